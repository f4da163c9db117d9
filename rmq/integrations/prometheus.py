"""Figures of clients for Prometheus, with its own client library.

::

    from rmq.integrations.prometheus import PrometheusHook

    hook = PrometheusHook()                                  # of the default registry
    producer = Producer("order_group", hooks=[hook])
    consumer = hook.watch(PushConsumer("payments", hooks=[hook]))
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Protocol, TypeVar

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily

from rmq import ConsumeHookContext, Hook, MessageQueue, SendHookContext
from rmq.protocol.keywords import keywords
from rmq.runtime.world import World

__all__ = ["PrometheusHook"]

_BEGAN = "prometheus.began"
#: Looks at the queues of a consumer that changes them meanwhile.
_LOOKS = 3


class Lagging(Protocol):
    """A push consumer of either kind."""

    group: str

    def lag(self) -> dict[MessageQueue, int]: ...


C = TypeVar("C", bound=Lagging)


class PrometheusHook(Hook):
    """Counts sends and calls of listeners, and how far consumers are behind.

    ======================================  ======================  ==================================================
    ``rmq_client_sends_total``              group, topic, result    attempts: SEND_OK and the like, or the error's class
    ``rmq_client_sent_messages_total``      group, topic            messages that were stored
    ``rmq_client_send_seconds``             group, topic            how long an attempt took
    ``rmq_client_consumed_messages_total``  group, topic, result    ok, or failed: those come again
    ``rmq_client_consume_seconds``          group, topic            how long a call of a listener took
    ``rmq_client_lag_messages``             group, topic            of consumers that are watched, in their own queues
    ======================================  ======================  ==================================================

    :param registry: where they are registered; once a registry.
    """

    quick = True

    @keywords
    def __init__(self, registry: CollectorRegistry = REGISTRY, *, world: World | None = None) -> None:
        self._clock = (world or World.real()).clock
        self._consumers: weakref.WeakSet[Lagging] = weakref.WeakSet()
        where = ("group", "topic")
        self._sends = Counter("rmq_client_sends", "Attempts to send", (*where, "result"), registry=registry)
        self._sent = Counter("rmq_client_sent_messages", "Messages stored", where, registry=registry)
        self._send_seconds = Histogram(
            "rmq_client_send_seconds", "Time of an attempt to send", where, registry=registry
        )
        self._consumed = Counter(
            "rmq_client_consumed_messages", "Messages listeners were called with", (*where, "result"), registry=registry
        )
        self._consume_seconds = Histogram(
            "rmq_client_consume_seconds", "Time of a call of a listener", where, registry=registry
        )
        registry.register(self)

    def watch(self, consumer: C) -> C:
        """Show a consumer's lag for as long as it is there; the consumer itself comes back."""
        self._consumers.add(consumer)
        return consumer

    # -- what the SDK tells -------------------------------------------------------------------------------------------

    def before_send(self, context: SendHookContext) -> None:
        context.data[_BEGAN] = self._clock.monotonic()

    def after_send(self, context: SendHookContext) -> None:
        where = context.group, context.queue.topic
        result, error = context.result, context.error
        self._sends.labels(
            *where, result.send_status.name if result is not None else type(error).__name__ if error else "ONEWAY"
        ).inc()
        if result is not None:
            self._sent.labels(*where).inc(len(context.messages))
        self._send_seconds.labels(*where).observe(self._clock.monotonic() - context.data[_BEGAN])

    def before_consume(self, context: ConsumeHookContext) -> None:
        context.data[_BEGAN] = self._clock.monotonic()

    def after_consume(self, context: ConsumeHookContext) -> None:
        where = context.group, context.messages[0].topic
        failed = len(context.failed)
        for result, count in (("failed", failed), ("ok", len(context.messages) - failed)):
            if count:
                self._consumed.labels(*where, result).inc(count)
        self._consume_seconds.labels(*where).observe(self._clock.monotonic() - context.data[_BEGAN])

    # -- what Prometheus asks -----------------------------------------------------------------------------------------

    def describe(self) -> Iterator[GaugeMetricFamily]:
        yield _lag()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        sums: dict[tuple[str, str], int] = {}
        for consumer in list(self._consumers):
            for queue, lag in _lags(consumer).items():
                where = consumer.group, queue.topic
                sums[where] = sums.get(where, 0) + lag
        family = _lag()
        for labels, lag in sums.items():
            family.add_metric(labels, lag)
        yield family


def _lag() -> GaugeMetricFamily:
    return GaugeMetricFamily("rmq_client_lag_messages", "Messages not consumed yet", labels=("group", "topic"))


def _lags(consumer: Lagging) -> dict[MessageQueue, int]:
    """Asked on whatever thread Prometheus is, while a consumer of coroutines may be given other queues."""
    for _ in range(_LOOKS):
        try:
            return consumer.lag()
        except RuntimeError:
            continue
    return {}
