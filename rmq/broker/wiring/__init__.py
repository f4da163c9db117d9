"""Composition: each file makes some parts of a broker and connects them; it does nothing else."""
