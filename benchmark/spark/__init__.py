"""What the Spark source and sink cost, beside a source that makes the same rows out of memory."""
