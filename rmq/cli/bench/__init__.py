"""``rmq bench``: how much a cluster takes and gives, with the switches of Java's benchmark scripts."""
