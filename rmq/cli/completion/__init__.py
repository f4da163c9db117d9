"""Completion for bash, zsh and fish, with the names that the cluster has now."""
