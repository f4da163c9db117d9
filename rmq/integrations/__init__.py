"""What joins the SDK with other libraries and frameworks; each module stands alone, and none is imported by the SDK."""
