"""``rmq doctor``: what is wrong with a cluster or a group, why, and what to do."""
