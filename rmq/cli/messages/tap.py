"""``rmq tap`` and ``rmq replay``: messages of a topic to a file, and back with their order and timing."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, BinaryIO

import click

from rmq.cli.command import CONTEXT, FAILED, Refused, is_quiet, quiet_option
from rmq.cli.messages.captured import Captured, captured, line_of
from rmq.cli.messages.consume import messages_of
from rmq.cli.messages.options import client_options, selection
from rmq.cli.messages.produce import GROUP, lines_of
from rmq.cli.messages.reading import Chosen, left_brokers
from rmq.client.message import Message, MessageQueue
from rmq.client.producer import Producer
from rmq.client.results import SendResult
from rmq.protocol.errors import ClientError, NotFound, RMQError
from rmq.runtime.world import World

__all__ = ["replay", "tap"]


@click.command(context_settings=CONTEXT)
@click.argument("topic")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@selection
@click.option("-c", "--count", type=click.IntRange(1), metavar="N", help="End after N messages.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@quiet_option
@client_options
def tap(chosen: Chosen, file: str, count: int | None, force: bool, client: dict[str, Any]) -> int:
    """Write the messages of TOPIC to FILE (- is standard output), a line of JSON each; nothing of the topic changes.

    A file appears whole, or not at all where it could not be finished; what Ctrl-C ends early is kept.
    """
    from rmq.runtime import loop

    if file == "-":
        return loop.run(_tap(sys.stdout.buffer, chosen, count, client))
    if os.path.exists(file) and not force:
        raise click.UsageError(f"{file} is there already: --force writes over it")
    # A name of its own: two that write one file do not write into each other's.
    part = f"{file}.{os.getpid()}.part"
    try:
        try:
            with open(part, "wb") as out:
                code = loop.run(_tap(out, chosen, count, client))
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(part)
            raise
    except RMQError:
        raise  # some are kinds of OSError, and nothing is wrong with the file
    except OSError as error:
        raise Refused(f"{file} cannot be written: {error.strerror or error}") from None
    os.replace(part, file)
    return code


async def _tap(out: BinaryIO, chosen: Chosen, count: int | None, client: dict[str, Any]) -> int:
    written = 0
    world = World.around()
    if left := await left_brokers(world, client):
        told = "; ".join(f"{name}: {why}" for name, why in sorted(left.items()))
        raise NotFound(f"a capture without these brokers would not be whole: {told}")
    try:
        async with AsyncExitStack() as open_:
            async for message in await messages_of(open_, world, client, chosen):
                out.write(line_of(message))
                written += 1
                if written == count:
                    break
    except asyncio.CancelledError:
        _told(out, written, chosen.topic)
        raise
    _told(out, written, chosen.topic)
    return 0


def _told(out: BinaryIO, written: int, topic: str) -> None:
    out.flush()
    if not is_quiet():
        click.echo(f"{written} messages of {topic}", err=True)


@click.command(context_settings=CONTEXT)
@click.argument("file", type=click.File("rb"))
@click.option("-t", "--topic", metavar="NAME", help="Send to this topic.  [default: what each line names]")
@click.option(
    "--speed",
    type=click.FloatRange(min=0.001),
    metavar="FACTOR",
    help="Keep the pauses between messages: 1 as they were, 10 ten times as fast.  [default: no pauses]",
)
@click.option("--skip", type=click.IntRange(0), default=0, metavar="N", help="Begin after N messages of the file.")
@click.option("-c", "--count", type=click.IntRange(1), metavar="N", help="End after N messages.")
@quiet_option
@client_options
def replay(
    file: BinaryIO, topic: str | None, speed: float | None, skip: int, count: int | None, client: dict[str, Any]
) -> int:
    """Send what `rmq tap` wrote to FILE, with tags, keys, properties and bodies.

    What was in one queue goes to one queue, in its order. The first message that is not taken ends it, and the command
    that goes on from there is printed; a few behind it, of other queues, may have been sent then.
    """
    from rmq.runtime import loop

    world = World.around()

    async def work() -> int:
        async with Producer(GROUP, world=world, **client) as producer:
            lanes = _Lanes(producer, skip)
            pace: _Pace | None = None
            try:
                for number, (where, line) in enumerate(lines_of(file)):
                    if number < skip:
                        continue
                    if number - skip == count:
                        break
                    try:
                        one = captured(line, topic)
                    except (ValueError, ClientError) as error:
                        raise ClientError(f"{where}: {error}") from None
                    if speed is not None and one.stored is not None:
                        pace = pace or _Pace(world, one.stored, speed)
                        await pace.wait(one.stored)
                    await lanes.send(one)
                await lanes.end()
            except RMQError as error:
                with suppress(RMQError):
                    await lanes.end()
                click.echo(f"rmq: {error}", err=True)
                click.echo(f"rmq: {lanes.done} messages were sent; go on with --skip {lanes.done}", err=True)
                return FAILED
        if not is_quiet():
            click.echo(f"{lanes.done - skip} messages sent", err=True)
        return 0

    return loop.run(work())


class _Pace:
    """When a message is due, of which the pause to the first one is known."""

    def __init__(self, world: World, first: int, speed: float) -> None:
        self._clock = world.clock
        self._began = world.clock.monotonic()
        self._first = first
        self._speed = speed

    async def wait(self, stored: int) -> None:
        due = self._began + (stored - self._first) / 1000 / self._speed
        if (rest := due - self._clock.monotonic()) > 0:
            await asyncio.sleep(rest)


class _SameQueue:
    """Chooses by the number that a queue had where it was captured."""

    quick = True

    def __call__(self, queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
        assert isinstance(arg, int)
        return queues[arg % len(queues)]


class _Lanes:
    """One message on its way for each queue of the capture.

    :ivar done: messages from the beginning of the file of which every one was sent.
    """

    def __init__(self, producer: Producer, done: int) -> None:
        self._producer = producer
        self._select = _SameQueue()
        self._last: dict[tuple[str, int | None], asyncio.Future[SendResult]] = {}
        #: In the order of the file.
        self._sent: dict[int, asyncio.Future[SendResult]] = {}
        self._next = done
        self.done = done

    async def send(self, one: Captured) -> None:
        """Send behind the last of its queue. :raises RMQError: that one, or an earlier one, was not taken."""
        lane = (one.message.topic, one.queue)
        if (last := self._last.get(lane)) is not None:
            await asyncio.wait([last])
        self._count()
        selector = self._select if one.queue is not None else None
        future = self._producer.send_async(one.message, selector=selector, arg=one.queue)
        self._last[lane] = self._sent[self._next] = future
        self._next += 1

    async def end(self) -> None:
        """:raises RMQError: one of the last was not taken."""
        if self._sent:
            await asyncio.wait(self._sent.values())
        self._count()

    def _count(self) -> None:
        """Take those off that are sent, up to the first that is not."""
        while (first := self._sent.get(self.done)) is not None and first.done():
            first.result()
            del self._sent[self.done]
            self.done += 1
