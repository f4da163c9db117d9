"""``rmq apply``, ``diff`` and ``export``: topics, groups and key-value entries of a cluster as a file."""
