"""``rmq produce``: messages from files, arguments or standard input."""

from __future__ import annotations

import sys
from codecs import BOM_UTF8
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, BinaryIO

import click
import orjson

from rmq.cli.command import CONTEXT, FAILED
from rmq.cli.messages.captured import captured
from rmq.cli.messages.options import client_options
from rmq.cli.mqadmin.failures import failure
from rmq.client.blocking.producer import Producer
from rmq.client.message import Message
from rmq.client.results import SendResult
from rmq.client.selectors import by_hash
from rmq.protocol.errors import ClientError, RMQError
from rmq.runtime.named_file import read_named

__all__ = ["GROUP", "lines_of", "produce"]

GROUP = "rmq_tools"
#: Bytes of a line at most: brokers take messages of 4 MiB by default, and base64 is a third longer.
_LONGEST_LINE = 64 << 20
#: Messages on their way at a time, unless they are to keep their order.
_IN_FLIGHT = 64


def _pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is no name=value", ctx, param)
        pairs[name] = value
    return pairs


@dataclass(frozen=True, slots=True)
class Making:
    """How a line becomes a message, and what every message gets."""

    topic: str
    json: bool
    delimiter: bytes | None
    keys: str | None
    tags: str | None
    properties: dict[str, str]
    delay: float | None

    def message(self, text: bytes) -> Message:
        """:raises ValueError: it is none. :raises ClientError: no such message can be sent."""
        if self.json:
            made = captured(text, self.topic).message
        elif self.delimiter is not None and self.delimiter in text:
            keys, _, body = text.partition(self.delimiter)
            made = Message(self.topic, body, keys=keys.decode(errors="replace"))
        else:
            made = Message(self.topic, text)
        made.tags = self.tags or made.tags
        made.keys = self.keys or made.keys
        made.properties |= self.properties
        made.delay = self.delay
        return made


_JSON = "json: a line is an object with body or body64, tags, keys, properties, as consume -o ndjson prints."


@click.command(context_settings=CONTEXT)
@click.argument("topic")
@click.argument("bodies", nargs=-1, metavar="[BODY]...")
@click.option("-l", "--lines", "file", type=click.File("rb"), metavar="FILE", help="A message a line; -: stdin.")
@click.option(
    "--file",
    "whole",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="A message of its bytes.",
)
@click.option(
    "-F", "--input", "form", type=click.Choice(["text", "json"]), default="text", show_default=True, help=_JSON
)
@click.option("-D", "--delimiter", metavar="TEXT", help="With -F text: splits a line into keys and body, as kcat's -K.")
@click.option("-k", "--key", "keys", metavar="TEXT", help="Of every message.")
@click.option("-t", "--tag", "tags", metavar="TEXT", help="Of every message.")
@click.option("-H", "--header", "properties", multiple=True, callback=_pairs, metavar="NAME=VALUE", help="A property.")
@click.option("--delay", type=click.FloatRange(min=0.001), metavar="SECONDS", help="Deliver later.")
@click.option("--by-key", is_flag=True, help="Messages of one key go to one queue, in order.")
@click.option("--in-order", is_flag=True, help="One after the other.")
@click.option("--json", "told", flag_value="json", help="Print what each became as JSON.")
@click.option("--quiet", "told", flag_value="errors", help="Print nothing but errors.")
@client_options
def produce(
    bodies: tuple[str, ...],
    file: BinaryIO | None,
    whole: tuple[str, ...],
    form: str,
    delimiter: str | None,
    by_key: bool,
    in_order: bool,
    told: str | None,
    client: dict[str, Any],
    **given: Any,
) -> int:
    """Send messages to TOPIC: each BODY, the lines of a file, or standard input when nothing else is given.

    A message that is not taken is told of with its line, and the others go on; the exit code is 1 then, or where none
    was taken that of its kind.
    """
    if delimiter == "":
        raise click.UsageError("--delimiter is empty")
    making = Making(json=form == "json", delimiter=delimiter.encode() if delimiter else None, **given)
    if not bodies and not whole and file is None:
        file = sys.stdin.buffer
    # Somebody who types wants to see what became of a line before the next one.
    alone = in_order or by_key or (file is not None and file.isatty())
    with Producer(GROUP, **client) as producer:
        sending = _Sending(producer, by_key, 1 if alone else _IN_FLIGHT, told)
        for where, text in _texts(bodies, whole, file):
            try:
                if isinstance(text, ClientError):
                    raise text
                made = making.message(text)
            except (ValueError, ClientError) as error:
                sending.fail(where, error)
            else:
                sending.send(where, made)
        sending.end()
    return sending.code


def _texts(
    bodies: tuple[str, ...], whole: tuple[str, ...], file: BinaryIO | None
) -> Iterator[tuple[str, bytes | ClientError]]:
    """What is to be sent, and what to call it; an error where it cannot be read."""
    for number, body in enumerate(bodies, 1):
        yield f"message {number}", body.encode(errors="surrogateescape")
    for path in whole:
        try:
            yield path, read_named(path, _LONGEST_LINE)
        except OSError as error:
            yield path, ClientError(error.strerror or str(error))
    if file is not None:
        yield from lines_of(file)


def lines_of(file: BinaryIO) -> Iterator[tuple[str, bytes]]:
    """Each line without its end, and what to call it. :raises ClientError: one is too long to be a message."""
    number = 0
    while line := file.readline(_LONGEST_LINE + 1):
        number += 1
        if number == 1:
            line = line.removeprefix(BOM_UTF8)  # editors of Windows begin a file with one
        if len(line) > _LONGEST_LINE:
            raise ClientError(f"line {number} is longer than {_LONGEST_LINE} bytes")
        yield f"line {number}", line.removesuffix(b"\n").removesuffix(b"\r")


class _Sending:
    """Sends side by side, and tells in the order of the input what became of each.

    :param most: messages on their way at a time.
    :param told: how: ``json``, ``errors`` of those that failed alone; None = a line each.
    """

    def __init__(self, producer: Producer, by_key: bool, most: int, told: str | None) -> None:
        self._producer = producer
        self._by_key = by_key
        self._most = most
        self._told = told
        self._under_way: deque[tuple[str, Future[SendResult]]] = deque()
        self.failures = self._sent = 0
        self._kinds: set[int] = set()

    @property
    def code(self) -> int:
        """How it ends: where nothing was sent, and all of it for one kind of reason, with that one's code."""
        if not self._sent and len(self._kinds) == 1:
            return next(iter(self._kinds))
        return FAILED if self.failures else 0

    def send(self, where: str, message: Message) -> None:
        try:
            selector = by_hash if self._by_key and message.keys else None
            future = self._producer.send_async(message, selector=selector, arg=message.keys)
        except RMQError as error:
            self.fail(where, error)
            return
        self._under_way.append((where, future))
        while len(self._under_way) >= self._most or (self._under_way and self._under_way[0][1].done()):
            self._settle()

    def end(self) -> None:
        while self._under_way:
            self._settle()

    def _settle(self) -> None:
        where, future = self._under_way.popleft()
        try:
            result = future.result()
        except RMQError as error:
            self.fail(where, error)
            return
        self._sent += 1
        if self._told == "json":
            click.echo(orjson.dumps(result.as_dict()).decode())
        elif self._told is None:
            queue = result.message_queue
            place = f"{queue.broker_name}/{queue.queue_id}@{result.queue_offset}"
            click.echo(f"{result.msg_id} {place}{'' if result.ok else f' {result.send_status.name}'}")

    def fail(self, where: str, error: Exception) -> None:
        self.failures += 1
        self._kinds.add(failure(error)[1] if isinstance(error, RMQError) else FAILED)
        click.echo(f"rmq: {where} was not sent: {error}", file=sys.stderr)
