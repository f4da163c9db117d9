"""Clusters by name: a file that says where each is and as whom it is asked, and the commands that keep it."""
