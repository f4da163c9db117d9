"""Consumers: push and pull, and what they are made of."""
