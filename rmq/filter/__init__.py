"""Message filters: tags and SQL92. Pure: no I/O, no clock."""
