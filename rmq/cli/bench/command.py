"""The commands ``rmq bench`` ``producer``, ``batch``, ``transaction``, ``consumer``."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import click

from rmq.cli.bench.running import Bench
from rmq.cli.bench.switches import BenchCommand, account_switches, delay_of, send_switches
from rmq.cli.command import CONTEXT, Commands, quiet_option
from rmq.cli.messages.options import client_options
from rmq.cli.messages.reading import find_queues
from rmq.client.consumer.push import PushConsumer
from rmq.client.message import Message, MessageExt
from rmq.client.producer import Producer
from rmq.client.results import ConsumeResult, TransactionState
from rmq.client.transaction import TransactionProducer
from rmq.protocol.errors import ClientError
from rmq.protocol.names import BENCHMARK_TOPIC
from rmq.runtime.world import World

__all__ = ["bench"]

#: Bytes of a body at most: what brokers take by default, less room for properties.
_LARGEST = 4 << 20
_PRODUCERS = "benchmark_producer"


def _with(function: Any, *options: Callable[[Any], Any]) -> Any:
    for option in reversed(options):
        function = option(function)
    return function


def _run_options(function: Any) -> Any:
    """What every benchmark takes."""
    return _with(
        function,
        click.option("-t", "--topic", default=BENCHMARK_TOPIC, show_default=True, metavar="NAME"),
        click.option("-q", "--quantity", type=click.IntRange(1), metavar="N", help="End after N messages."),
        click.option("--seconds", type=click.FloatRange(0.1), metavar="S", help="End after S seconds; else Ctrl-C."),
        click.option("-i", "--interval", type=click.FloatRange(0.1), default=10.0, show_default=True, metavar="S",
                     help="The time between two lines."),
        click.option("--ri", "--reportInterval", "millis", type=click.IntRange(100), hidden=True),
        click.option("--json", "json", is_flag=True, help="The summary as JSON; lines go to standard error."),
        account_switches,
    )  # fmt: skip


def _send_options(function: Any) -> Any:
    """What every benchmark takes that sends."""
    return _with(
        function,
        click.option("-w", "--threads", "width", type=click.IntRange(1, 4_096), default=64, show_default=True,
                     metavar="N", help="Calls under way at a time (Java: threads)."),
        click.option("-s", "--size", type=click.IntRange(0, _LARGEST), default=128, show_default=True, metavar="BYTES",
                     help="Of a body."),
        click.option("-k", "--keys", is_flag=True, help="A key of its own for each message: it goes to the index."),
        click.option("-l", "--tags", type=click.IntRange(0, 10_000), default=0, metavar="N", help="Tags, in turn."),
        click.option("-p", "--properties", type=click.IntRange(0, 100), default=0, metavar="N", help="Properties."),
        click.option("-m", "--trace", is_flag=True, help="With message trace."),
    )  # fmt: skip


class _Making:
    """Makes messages of one form. :param delay: seconds, or None. :param level: a delay level, 0 for none."""

    def __init__(
        self, topic: str, size: int, keys: bool, tags: int, properties: int, delay: float | None = None, level: int = 0
    ) -> None:
        self._topic, self._keys, self._tags, self._delay, self._level = topic, keys, tags, delay, level
        self._body = (b"hello baby" * (size // 10 + 1))[:size]
        self._properties = {f"property-{number}": f"value-{number}" for number in range(properties)}
        self._number = itertools.count()

    def __call__(self) -> Message:
        number = next(self._number)
        made = Message(
            self._topic, self._body, tags=f"tag{number % self._tags}" if self._tags else None,
            keys=str(number) if self._keys else None,
        )  # fmt: skip
        made.properties |= self._properties
        if self._level:
            made.delay_level = self._level
        made.delay = self._delay
        return made


@click.group(cls=Commands, context_settings=CONTEXT)
def bench() -> None:
    """Measure how much a cluster takes and gives: messages a second, and times in percentiles.

    It writes real messages to the topic, and measures this client as well: one process is one core.
    """


@bench.command(cls=BenchCommand, context_settings=CONTEXT)
@_run_options
@_send_options
@click.option("--delay", type=click.FloatRange(min=0.001), metavar="S", help="Deliver S seconds later.")
@click.option(
    "-e",
    "--delay-level",
    "level",
    type=click.IntRange(0, 18),
    default=0,
    metavar="N",
    help="A delay level.",
)
@click.option("--oneway", is_flag=True, help="Wait for no answer.")
@click.option("--auto-batch", is_flag=True, help="Let the producer join messages that are sent at the same time.")
@send_switches
@quiet_option
@client_options
def producer(
    topic: str, quantity: int | None, seconds: float | None, interval: float, json: bool, width: int, size: int,
    keys: bool, tags: int, properties: int, trace: bool, delay: float | None, level: int, oneway: bool,
    auto_batch: bool, delayed: bool, client: dict[str, Any], **java: Any,
) -> int:  # fmt: skip
    """Send messages one by one, many calls at a time."""
    interval, client = _as_java(interval, client, **java)
    level = delay_of(delayed, level)
    if delay is not None and level:
        raise click.UsageError("give --delay or --delay-level, not both", click.get_current_context())
    make = _Making(topic, size, keys, tags, properties, delay, level)
    options = {"enable_msg_trace": trace, "auto_batch": auto_batch, **client}

    async def work(world: World) -> int:
        run = Bench(world, "producer", quantity, seconds, interval, json, size)
        async with Producer(_PRODUCERS, world=world, **options) as sender:

            async def send(count: int) -> None:
                await (sender.send_oneway(make()) if oneway else sender.send(make()))

            return await run.run(send, 1, width)

    return _run(work)


@bench.command(cls=BenchCommand, context_settings=CONTEXT)
@_run_options
@_send_options
@click.option("-b", "--batch", type=click.IntRange(1, 10_000), default=16, show_default=True, metavar="N",
              help="Messages of a call.")  # fmt: skip
@quiet_option
@client_options
def batch(
    topic: str, quantity: int | None, seconds: float | None, interval: float, json: bool, width: int, size: int,
    keys: bool, tags: int, properties: int, trace: bool, batch: int, client: dict[str, Any], **java: Any,
) -> int:  # fmt: skip
    """Send batches (Java: batchproducer)."""
    interval, client = _as_java(interval, client, **java)
    make = _Making(topic, size, keys, tags, properties)

    async def work(world: World) -> int:
        run = Bench(world, "batch", quantity, seconds, interval, json, size)
        async with Producer(_PRODUCERS, world=world, **{"enable_msg_trace": trace, **client}) as sender:

            async def send(count: int) -> None:
                await sender.send([make() for _ in range(count)])

            return await run.run(send, batch, width)

    return _run(work)


@bench.command(cls=BenchCommand, context_settings=CONTEXT)
@_run_options
@_send_options
@click.option("--rollback", type=click.FloatRange(0, 1), default=0.0, metavar="SHARE", help="0.1: one of ten.")
@click.option("--unknown", type=click.FloatRange(0, 1), default=0.0, metavar="SHARE",
              help="Left open: the broker asks later, and gets a commit.")  # fmt: skip
@quiet_option
@client_options
def transaction(
    topic: str, quantity: int | None, seconds: float | None, interval: float, json: bool, width: int, size: int,
    keys: bool, tags: int, properties: int, trace: bool, rollback: float, unknown: float,
    client: dict[str, Any], **java: Any,
) -> int:  # fmt: skip
    """Send in transactions (Java: tproducer)."""
    interval, client = _as_java(interval, client, **java)
    if rollback + unknown > 1:
        raise click.UsageError("--rollback and --unknown are more than all together", click.get_current_context())
    make = _Making(topic, size, keys, tags, properties)
    ended = itertools.count()

    def end(message: Message) -> TransactionState:
        # By turns and not by chance: two runs do the same.
        turn = next(ended) % 1_000 / 1_000
        if turn < rollback:
            return TransactionState.ROLLBACK
        return TransactionState.UNKNOWN if turn < rollback + unknown else TransactionState.COMMIT

    async def work(world: World) -> int:
        run = Bench(world, "transaction", quantity, seconds, interval, json, size)
        options = {"enable_msg_trace": trace, **client}
        async with TransactionProducer(
            _PRODUCERS, check=lambda message: TransactionState.COMMIT, world=world, **options
        ) as sender:

            async def send(count: int) -> None:
                await sender.send_in_transaction(make(), end)

            return await run.run(send, 1, width)

    return _run(work)


@bench.command(cls=BenchCommand, context_settings=CONTEXT)
@_run_options
@click.option("-g", "--group", default="benchmark_consumer", show_default=True, metavar="NAME")
@click.option("--tags", "expression", metavar="TEXT", help="Tags: A, or A || B.")
@click.option("--sql", metavar="TEXT", help="A SQL92 condition on properties.")
@click.option("-r", "--fail-rate", "fails", type=click.FloatRange(0, 1), default=0.0, metavar="SHARE",
              help="Give so many back: 0.1 is one of ten.")  # fmt: skip
@quiet_option
@client_options
def consumer(
    topic: str, quantity: int | None, seconds: float | None, interval: float, json: bool, group: str,
    expression: str | None, sql: str | None, fails: float, client: dict[str, Any], **java: Any,
) -> int:  # fmt: skip
    """Consume as a member of a group: how much comes, and how long after it was sent and stored.

    The times are by the clocks of three machines: the sender's, the broker's and this one's.
    """
    interval, client = _as_java(interval, client, **java)
    if expression is not None and sql is not None:
        raise click.UsageError("give --tags or --sql, not both", click.get_current_context())
    turns = itertools.count()

    async def work(world: World) -> int:
        await find_queues(world, client, topic)
        run = Bench(world, "consumer", quantity, seconds, interval, json)
        member = PushConsumer(group, world=world, **client)

        @member.on(topic, sql or expression or "*", sql=sql is not None)
        async def take(message: MessageExt) -> ConsumeResult:
            if fails and next(turns) % 1_000 < fails * 1_000:
                run.failed(ClientError("given back, as --fail-rate says"))
                return ConsumeResult.RECONSUME_LATER
            now = world.clock.now_ms()
            run.did(1, now - message.born_timestamp, now - message.store_timestamp)
            return ConsumeResult.SUCCESS

        async with member:
            return await run.run()

    return _run(work)


def _as_java(
    interval: float, client: dict[str, Any], millis: int | None, access_key: str | None, secret_key: str | None
) -> tuple[float, dict[str, Any]]:
    """The interval and the client's arguments as switches of Java's scripts say them."""
    if (access_key is None) != (secret_key is None):
        raise click.UsageError("-ak and -sk are an account together", click.get_current_context())
    if access_key is not None:
        rest = {name: value for name, value in client.items() if name != "credentials_file"}
        client = {**rest, "access_key": access_key, "secret_key": secret_key}
    return interval if millis is None else millis / 1000, client


def _run(work: Callable[[World], Any]) -> int:
    from rmq.runtime import loop

    return loop.run(work(World.around()))
