"""Writing: from rows to messages, and every message of a task that ended well stored."""
