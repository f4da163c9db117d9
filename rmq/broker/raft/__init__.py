"""A broker as one of a group that elects its master: drives :mod:`rmq.raft` over store, disk and network."""
