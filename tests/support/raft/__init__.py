"""Whole groups of Raft members in one process: scripts that people read, and a simulation that faults run through."""
