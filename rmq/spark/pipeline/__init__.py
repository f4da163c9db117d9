"""Ready jobs of Spark over RocketMQ: a YAML file says what, ``rmq pipeline run`` does it."""
