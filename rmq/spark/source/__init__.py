"""Reading: where a stream goes next, which ranges a task has, and the records of a range."""
