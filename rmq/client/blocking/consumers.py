"""Consumers for threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, Unpack, overload

from rmq.client.blocking.elsewhere import elsewhere, options_elsewhere
from rmq.client.blocking.life import twin
from rmq.client.blocking.mirror import LitePullConsumerMirror, PullConsumerMirror, PushConsumerMirror
from rmq.client.checks import check_text, seconds
from rmq.client.consumer.listeners import Batch, BatchListener, One, OneListener
from rmq.client.consumer.lite import LitePullConsumer as AioLitePullConsumer
from rmq.client.consumer.polling import Loop
from rmq.client.consumer.pull import PullConsumer as AioPullConsumer
from rmq.client.consumer.push import PushConsumer as AioPushConsumer
from rmq.client.consumer.scheduled import P
from rmq.client.consumer.scheduled import ScheduledPullConsumer as AioScheduledPullConsumer
from rmq.client.message import MessageExt
from rmq.client.settings import (
    Duration,
    LitePullConsumerOptions,
    LitePullConsumerSettings,
    PullConsumerOptions,
    PullConsumerSettings,
    PushConsumerOptions,
    PushConsumerSettings,
    ScheduledPullConsumerOptions,
    ScheduledPullConsumerSettings,
    lists_options,
)
from rmq.protocol.errors import ClientError
from rmq.protocol.keywords import keywords
from rmq.protocol.plain import plain
from rmq.runtime.aside import logger
from rmq.runtime.signals import signal_wait
from rmq.runtime.world import World

__all__ = ["LitePullConsumer", "PullConsumer", "PushConsumer", "ScheduledPullConsumer"]

log = logger(__name__)


@lists_options(PushConsumerSettings)
@twin(AioPushConsumer)
@keywords
class PushConsumer(PushConsumerMirror):
    """Gets messages as they come and hands them to listeners on a pool of threads (Java: DefaultMQPushConsumer).

    :param group: the consumer group: the same subscriptions and the same listeners in every member.
    :param world: the ports it touches the world through; the real ones by default.
    :param options: see :class:`~rmq.client.settings.PushConsumerOptions`.

    ::

        consumer = PushConsumer("order_consumers", namesrv="127.0.0.1:9876")

        @consumer.on("TopicTest", "TagA || TagB")
        def handle(message):            # returns nothing or ConsumeResult.SUCCESS; raising = tried again later
            print(message.body)

        consumer.run()                  # until SIGTERM; drains what it holds
    """

    _restarts = False
    _receives = True

    def __init__(self, group: str, *, world: World | None = None, **options: Unpack[PushConsumerOptions]) -> None:
        super().__init__(AioPushConsumer(group, world=world, **options_elsewhere(options, self._bridge_now)))
        self.group: str = self._client.group

    @overload
    def on(
        self, topic: str, expression: str = "*", *, sql: bool = False, batch: Literal[False] = False
    ) -> Callable[[One], One]: ...

    @overload
    def on(
        self, topic: str, expression: str = "*", *, sql: bool = False, batch: Literal[True]
    ) -> Callable[[Batch], Batch]: ...

    @overload
    def on(self, topic: str, expression: str = "*", *, sql: bool = False, batch: bool) -> Callable[[Any], Any]: ...

    def on(self, topic: str, expression: str = "*", *, sql: bool = False, batch: bool = False) -> Callable[[Any], Any]:
        topic, expression = check_text(topic), plain(expression, "expression")

        def register(function: Any) -> Any:
            listener = elsewhere(function, self._bridge_now)
            self._on_loop(lambda client: client.on(topic, expression, sql=sql, batch=batch)(listener))
            return function

        return register

    def register_message_listener(self, listener: OneListener | BatchListener, *, batch: bool = False) -> None:
        super().register_message_listener(elsewhere(listener, self._bridge_now), batch=batch)

    def shutdown(self, timeout: Duration | None = None) -> None:
        limit = None if timeout is None else seconds(timeout)
        if self._inside():
            self._stop_behind(lambda started: started.shutdown(limit))
        else:
            self._stop(lambda started: started.shutdown(limit))

    def run(self) -> None:
        """Start, consume until SIGTERM, SIGINT or SIGHUP, shut down; for the main thread.

        A second signal, more than a second later, ends the process at once with exit code 1.

        :raises SystemExit: a listener did, with its code; likewise KeyboardInterrupt. Its message comes again.
        :raises ClientError: time is virtual: none would pass until the signal.
        """
        if not self._bridge_now().runs:
            raise ClientError("run() waits for a signal, and no virtual time passes meanwhile: use start()")
        with signal_wait() as came, self._alive()._exits(came.end) as exits:
            self.start()
            try:
                log.info("group %s: %s: stopping", self.group, came())
            finally:
                self.shutdown()
            for error in exits:
                raise error


@lists_options(PullConsumerSettings)
class PullConsumer(PullConsumerMirror):
    """Pulls when asked to; any thread may use it (Java: DefaultMQPullConsumer).

    :param world: the ports it touches the world through; the real ones by default.
    :param options: see :class:`~rmq.client.settings.PullConsumerOptions`.
    """

    def __init__(self, group: str, *, world: World | None = None, **options: Unpack[PullConsumerOptions]) -> None:
        super().__init__(AioPullConsumer(group, world=world, **options_elsewhere(options, self._bridge_now)))
        self.group: str = self._client.group


@lists_options(LitePullConsumerSettings)
class LitePullConsumer(LitePullConsumerMirror):
    """Gives messages to whoever asks for them, and pulls ahead within limits (Java: DefaultLitePullConsumer).

    One thread asks at a time.

    :param group: the consumer group: the same subscriptions in every member.
    :param world: the ports it touches the world through; the real ones by default.
    :param options: see :class:`~rmq.client.settings.LitePullConsumerOptions`.

    ::

        consumer = LitePullConsumer("reporting", namesrv="127.0.0.1:9876")
        consumer.subscribe("TopicTest")
        with consumer:
            for message in consumer:  # consumed when the body is done; one that raises gets it again
                print(message.body)
    """

    _receives = True

    def __init__(self, group: str, *, world: World | None = None, **options: Unpack[LitePullConsumerOptions]) -> None:
        super().__init__(AioLitePullConsumer(group, world=world, **options_elsewhere(options, self._bridge_now)))
        self.group: str = self._client.group

    def __iter__(self) -> Iterator[MessageExt]:
        """Messages one by one, until the shutdown. Each is consumed when the next one is asked for: what a body that
        raised or broke off had in hand is given to whoever asks next."""
        loop = self._on_loop(lambda client: Loop(client._messages()))
        while (message := self._run(loop.next())) is not None:
            yield message


@lists_options(ScheduledPullConsumerSettings)
@twin(AioScheduledPullConsumer)
@keywords
class ScheduledPullConsumer(PullConsumer):
    """Calls a function for each queue of its share, when that function says (Java: MQPullConsumerScheduleService).

    :param world: the ports it touches the world through; the real ones by default.
    :param options: see :class:`~rmq.client.settings.ScheduledPullConsumerOptions`.

    ::

        consumer = ScheduledPullConsumer("reporting", namesrv="127.0.0.1:9876")

        @consumer.on("TopicTest")
        def pull(queue):
            offset = max(0, consumer.fetch_consume_offset(queue))
            result = consumer.pull(queue, "*", offset)
            ...
            consumer.update_consume_offset(queue, result.next_begin_offset)
            return 0 if result.messages else 5  # seconds until the next call for this queue

        with consumer:
            ...
    """

    _client: AioScheduledPullConsumer  # pyright: ignore[reportIncompatibleVariableOverride]
    _restarts = False
    _receives = True

    def __init__(
        self, group: str, *, world: World | None = None, **options: Unpack[ScheduledPullConsumerOptions]
    ) -> None:
        PullConsumerMirror.__init__(
            self, AioScheduledPullConsumer(group, world=world, **options_elsewhere(options, self._bridge_now))
        )
        self.group: str = self._client.group

    def on(self, topic: str) -> Callable[[P], P]:
        topic = check_text(topic)

        def register(function: P) -> P:
            self._alive()
            self._client.on(topic)(elsewhere(function, self._bridge_now))
            return function

        return register

    def shutdown(self) -> None:
        if self._inside():
            self._stop_behind(lambda client: client.shutdown())
        else:
            super().shutdown()
