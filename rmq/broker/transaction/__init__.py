"""Transactions: half messages, their ends, and the check of those nobody has ended."""
