"""The broker's metrics: one set of figures, told in RocketMQ 5's names and in those of rocketmq-exporter."""
