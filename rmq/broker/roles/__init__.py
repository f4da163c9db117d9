"""What a broker does as master, and what it leaves to its master otherwise."""
