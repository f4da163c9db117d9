"""The index of messages by key."""
