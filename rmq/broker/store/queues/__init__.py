"""Consume queues: their entries in memory and on disk, and which topics they no longer belong to."""
