"""``rmq top``: brokers, topics and groups as they go now."""
