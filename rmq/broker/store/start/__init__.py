"""From a directory to a store that can be served."""
