"""The SDK: producer, consumers and the admin client (``rmq`` is the blocking surface, ``rmq.aio`` this one)."""
