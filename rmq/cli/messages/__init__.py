"""Messages in and out of a cluster by hand: `rmq produce`, `rmq consume`, `rmq tap`, `rmq replay`."""
