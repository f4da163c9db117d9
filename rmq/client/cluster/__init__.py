"""What is known of a cluster and whom to ask, without I/O: the SDK, mqadmin and Spark's source and sink stand on it."""
