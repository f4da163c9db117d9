"""Benchmark programs: our broker against the Java one in one run, and the cost of the hot pieces (see README.md)."""
