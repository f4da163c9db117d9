"""Popping consumption: the broker divides the queues, and gives each message out for a time (5.x)."""
