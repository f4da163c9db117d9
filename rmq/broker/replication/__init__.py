"""Master and slave: the commit log of one broker, byte for byte at others (the HA stream of 4.9)."""
