"""Doing what a job file says; everything here needs pyspark."""
