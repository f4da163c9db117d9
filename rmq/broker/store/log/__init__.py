"""The commit log: its records, its files, the append, and what may be acknowledged of it."""
