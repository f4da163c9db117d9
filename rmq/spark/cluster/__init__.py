"""The cluster as tasks and drivers of Spark see it, over blocking connections."""
