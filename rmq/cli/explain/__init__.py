"""``rmq explain``: where a message or a group is, why, and what happens next."""
