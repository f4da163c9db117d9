"""An application: its listeners by group, its producer, and its life."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import fields
from inspect import iscoroutinefunction
from itertools import chain
from types import SimpleNamespace
from typing import Any, Self, TypeVar, Unpack

from rmq.aio import Message, MessageExt, Producer, PushConsumer, SendResult
from rmq.app.depends import Plan
from rmq.app.handler import Handler, Middleware, OnBadPayload
from rmq.app.health import Health
from rmq.app.payload import codec_of
from rmq.app.topic import Topic
from rmq.client.checks import check_function, check_group, typed
from rmq.client.consumer.listeners import ConsumeContext
from rmq.client.life import ends, starts
from rmq.client.settings import (
    ClientOptions,
    ClientSettings,
    Duration,
    ProducerOptions,
    PushConsumerOptions,
    PushConsumerSettings,
    check_names,
)
from rmq.protocol.errors import ClientError, UnknownOption, WrongType
from rmq.protocol.keywords import names_of, no_such
from rmq.runtime.aside import logger
from rmq.runtime.ending import Parts, Stop, end_each
from rmq.runtime.loop import loop_factory
from rmq.runtime.signals import signal_wait_on_loop
from rmq.runtime.world import World

__all__ = ["App"]

log = logger(__name__)

_UP = "%s is up: %d listeners in %d groups, process %d"

F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M", bound=Middleware)
R = TypeVar("R")
T = TypeVar("T")
Lifespan = Callable[["App"], AbstractAsyncContextManager[Any]]


@typed(inner=("send", "request"))
class App:
    """Listeners that take typed payloads, and a producer, as one thing that starts and stops.

    :param name: of the application: the group of its producer and of listeners that name none.
    :param producer: settings of the producer, by :class:`~rmq.client.settings.ProducerOptions`.
    :param lifespan: a function of the app that gives an asynchronous context manager: what the application needs
        beside RocketMQ (a pool of connections), made before its consumers start, ended after they have stopped.
    :param health: ``host:port`` for ``/livez`` and ``/readyz``; None = neither is served.
    :param options: of every client of it, by :class:`~rmq.client.settings.ClientOptions`: ``namesrv`` ...
    :raises ClientError: a name or a setting cannot be used.

    ::

        app = App("payments", namesrv="127.0.0.1:9876")
        orders = Topic[Order]("orders")

        @app.listener(orders, "new || changed")
        async def pay(order: Order) -> None:      # raising = tried again later
            ...

        app.run()                                 # or: rmq run module:app
    """

    def __init__(
        self,
        name: str,
        *,
        producer: ProducerOptions | None = None,
        lifespan: Lifespan | None = None,
        health: str | None = None,
        world: World | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        check_group(name, "DEFAULT_PRODUCER")
        if producer is not None and not isinstance(producer, Mapping):
            raise WrongType(f"producer is {producer!r:.60}: give settings by name")
        if lifespan is not None:
            check_function(lifespan, "lifespan")
        self.name = name
        self.world: World = world or World.around()
        #: What the application keeps, as ``app.state.pool``.
        self.state: SimpleNamespace = SimpleNamespace()
        self.middlewares: list[Middleware] = []
        self.handlers: list[Handler] = []
        #: The consumers, by group.
        self.consumers: dict[str, PushConsumer] = {}
        of_producer: ProducerOptions = {**options, **(producer or {})}
        self.producer: Producer = Producer(name, world=self.world, **of_producer)
        self.health: Health | None = None
        if health is not None:
            self.serve_health(health)
        self._options = options
        self._given: dict[str, PushConsumerOptions] = {}
        self._lifespan = lifespan
        self._parts: Parts | None = None
        self._up = False

    # -- what it consists of ------------------------------------------------------------------------------------------

    def listener(
        self,
        topic: Topic[Any] | str,
        expression: str = "*",
        *,
        group: str | None = None,
        sql: bool = False,
        send_to: Topic[Any] | None = None,
        reply: Any = None,
        on_bad_payload: OnBadPayload | None = None,
        **options: Unpack[PushConsumerOptions],
    ) -> Callable[[F], F]:
        """Make the decorated function the listener of a topic.

        Its first parameter is the payload; beside it, it may ask for ``MessageExt``, ``ConsumeContext`` and ``App`` by
        annotation, and for what :class:`~rmq.app.Depends` makes. A plain function runs on a thread, with all that
        it depends on. Returning and raising mean what they mean to a :class:`~rmq.PushConsumer`.

        :param topic: a text has the type that the function's first parameter is annotated with, or bytes.
        :param expression: tags, or with ``sql`` a SQL92 condition.
        :param group: the consumer group, the application's name by default. Listeners of one group share a consumer.
        :param send_to: where what the function returns is sent, unless it is None or a ``ConsumeResult``.
        :param reply: the type of what it returns, which is the reply to a message that was sent by :meth:`request`.
        :param on_bad_payload: what becomes of a message whose body is not of its type; a dead letter by default.
        :param options: of the group's consumer; listeners of one group give the same, or all but one none.
        :raises ClientError: the topic has a listener in this group, the function's parameters do not fit, ...
        """
        _check_options(App.listener, options, PushConsumerSettings)
        group = group or self.name

        def register(function: F) -> F:
            of = topic if isinstance(topic, Topic) else Topic(topic, _annotated(function))
            consumer = self._consumer(group, options)
            handler = Handler(
                self,
                function,
                of,
                group,
                send_to=send_to,
                reply=None if reply is None else codec_of(reply),
                on_bad_payload=on_bad_payload,
                broadcasting=consumer._settings.broadcasting,
            )

            async def call(message: MessageExt, context: ConsumeContext) -> Any:
                return await handler(consumer, message, context)

            call.__qualname__ = handler.name
            consumer.on(of.name, expression, sql=sql)(call)
            self.handlers.append(handler)
            self.consumers[group] = consumer
            return function

        return register

    def _consumer(self, group: str, options: PushConsumerOptions) -> PushConsumer:
        known = self.consumers.get(group)
        if known is None:
            merged: PushConsumerOptions = {**self._options, **options}
            self._given[group] = options
            return PushConsumer(group, world=self.world, **merged)
        if options and (before := self._given[group]) and options != before:
            names = sorted(name for name in {*options, *before} if options.get(name) != before.get(name))
            raise ClientError(f"the group {group} has other settings for another listener: {', '.join(names)}")
        if options and not self._given[group]:
            raise ClientError(f"the group {group}: give its settings with its first listener: {', '.join(options)}")
        return known

    def middleware(self, function: M) -> M:
        """Make the decorated coroutine function stand around every listener; those that come first stand outside.

        ::

            @app.middleware
            async def timed(call: Call, following):
                began = perf_counter()
                try:
                    return await following()
                finally:
                    seconds.labels(call.listener).observe(perf_counter() - began)

        :raises ClientError: it is no coroutine function.
        """
        if not any(map(iscoroutinefunction, (function, getattr(function, "__call__", None)))):  # noqa: B004
            name = getattr(function, "__qualname__", type(function).__name__)
            raise ClientError(f"the middleware {name} is no coroutine function: write async def, await following()")
        self.middlewares.append(function)
        return function

    def serve_health(self, address: str) -> None:
        """Have ``/livez`` and ``/readyz`` served once it starts, in place of what ``health`` says.

        :param address: ``host:port``.
        :raises ConfigError: it is no address.
        """
        self.health = Health(self, address)

    async def send(self, topic: Topic[T], payload: T, **fields: Any) -> SendResult:
        """Send a payload to its topic.

        :param fields: of the message: ``tags``, ``keys``, ``delay``, ``properties`` ...
        :raises PayloadError: the value is not of the topic's type.
        :raises RMQError: it was not stored, as :meth:`rmq.aio.Producer.send` says.
        """
        _check_topic(topic)
        message = _message(App.send, topic, payload, fields)
        return await self.producer.send(message)

    async def request(
        self, topic: Topic[T], payload: T, reply: type[R], *, timeout: Duration = 3.0, **fields: Any
    ) -> R:
        """Send a payload and wait for what a listener with ``reply`` answers.

        :param reply: the type of the answer.
        :param timeout: seconds, or a timedelta.
        :param fields: of the message: ``tags``, ``keys``, ``properties`` ...
        :raises ReplyTimeout: nobody has answered in time.
        :raises PayloadError: the value is not of the topic's type, or the answer is no such value.
        """
        _check_topic(topic)
        answer = await self.producer.request(_message(App.request, topic, payload, fields), timeout=timeout)
        return codec_of(reply).load(answer.body)  # type: ignore[no-any-return]

    # -- life ---------------------------------------------------------------------------------------------------------

    @property
    def missing(self) -> str | None:
        """Why nobody is to count on it now; None when it receives."""
        if not self._up:
            return "it is starting" if self._parts is not None else "it is stopping, or not started"
        each = ((group, consumer.missing) for group, consumer in self.consumers.items())
        return next((f"group {group}: {why}" for group, why in each if why is not None), None)

    @starts
    async def start(self) -> None:
        """Begin to receive; starting a started application does nothing.

        :raises ConfigError: the address for its health is taken, or none.
        :raises ClientError: no name server is known, or a setting cannot be used.
        """
        if self._parts is not None:
            return
        self._parts = parts = Parts(f"application {self.name}")
        try:
            if self.health is not None:
                parts.push("health", self.health.stop)
                await self.health.start()
            if self._lifespan is not None:
                block = self._lifespan(self)
                await block.__aenter__()
                parts.push("lifespan", lambda: block.__aexit__(None, None, None))
            parts.push("producer", self.producer.shutdown)
            await self.producer.start()
            parts.push("consumers", self._stop_consumers)
            for consumer in self.consumers.values():
                await consumer.start()
        except BaseException:
            await self.stop()
            raise
        self._up = True
        log.info(_UP, self.name, len(self.handlers), len(self.consumers), self.world.identity.pid)

    async def _stop_consumers(self) -> None:
        """All side by side: each waits for its own listeners, and may do so for as long as its settings say."""
        stops: dict[str, Stop] = {f"group {group}": one.shutdown for group, one in self.consumers.items()}
        await asyncio.gather(*(end_each(self.name, {what: stop}) for what, stop in stops.items()))

    @ends
    async def stop(self) -> None:
        """Take nothing more, let running listeners finish, then end the producer and what ``lifespan`` made."""
        parts, self._parts, self._up = self._parts, None, False
        if parts is not None:
            await parts.unwind()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def serve(self) -> None:
        """Start, receive until SIGTERM, SIGINT or SIGHUP, stop; for the main thread.

        :raises SystemExit: a listener did, with its code; likewise KeyboardInterrupt. Its message comes again.
        """
        with signal_wait_on_loop() as came, ExitStack() as stack:
            raised = [stack.enter_context(consumer._exits(came.end)) for consumer in self.consumers.values()]
            async with self:
                log.info("%s: %s: stopping", self.name, await came())
            for error in chain.from_iterable(raised):
                raise error

    def run(self) -> None:
        """:meth:`serve` on a loop of its own, uvloop's where it is installed."""
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(self.serve())


def _check_topic(topic: object) -> None:
    if not isinstance(topic, Topic):
        raise WrongType(f"the topic is {topic!r:.60}: give a Topic, as in orders = Topic[Order]('orders')")


def _message(function: Callable[..., Any], topic: Topic[Any], payload: Any, fields: dict[str, Any]) -> Message:
    """:raises UnknownOption: names the field that no message has, and what the function was to be given instead."""
    try:
        return topic.message(payload, **fields)
    except UnknownOption:
        raise no_such(function, fields.keys() - names_of(Message)[0], names_of(Message)[0]) from None


def _check_options(function: Callable[..., Any], options: Mapping[str, Any], settings: type[ClientSettings]) -> None:
    """:raises UnknownOption: names the option that is no setting, and the argument or setting that was meant."""
    check_names(options, [*names_of(function)[0], *(field.name for field in fields(settings))])


def _annotated(function: Callable[..., Any]) -> Any:
    said = Plan.of(function).payload
    return bytes if said is None else said
