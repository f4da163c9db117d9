"""``rmq consume``: messages of a topic on standard output, by place or as a member of a group."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing
from datetime import UTC, datetime
from typing import Any

import click

from rmq.cli.command import CONTEXT, tell
from rmq.cli.messages.captured import line_of
from rmq.cli.messages.options import client_options, selection
from rmq.cli.messages.places import Place
from rmq.cli.messages.reading import Chosen, find_queues, left_brokers, read
from rmq.cli.messages.templates import template
from rmq.cli.mqadmin.failures import PARTIAL
from rmq.client.consumer.lite import LitePullConsumer
from rmq.client.consumer.pull import PullConsumer
from rmq.client.message import MessageExt
from rmq.protocol.errors import RMQError
from rmq.protocol.names import TOOLS_CONSUMER_GROUP
from rmq.runtime import patience
from rmq.runtime.world import World

__all__ = ["consume", "messages_of"]

Render = Callable[[MessageExt], bytes]


def _template(ctx: click.Context, param: click.Parameter, value: str | None) -> Render | None:
    if value is None:
        return None
    try:
        return template(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def _letters(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    if asked:
        from rmq.cli.messages import templates

        click.echo((templates.__doc__ or "").partition("\n\n")[2], nl=False)
        ctx.exit()


@click.command(context_settings=CONTEXT)
@click.argument("topic")
@selection
@click.option("-c", "--count", type=click.IntRange(1), metavar="N", help="End after N messages.")
@click.option("-g", "--group", metavar="NAME", help="As a member of this group: what is printed counts as consumed.")
@click.option("--idle", type=click.FloatRange(min=0.1), metavar="SECONDS", help="With -g: end when nothing comes.")
@click.option("-o", "--output", type=click.Choice(["text", "ndjson", "body"]), default="text", show_default=True)
@click.option("-f", "--format", "render", callback=_template, metavar="TEXT", help="In place of -o: '%o %k %s\\n'.")
@click.option("--letters", is_flag=True, is_eager=True, expose_value=False, callback=_letters, help="List those of -f.")
@client_options
def consume(
    chosen: Chosen,
    count: int | None,
    group: str | None,
    idle: float | None,
    output: str,
    render: Render | None,
    client: dict[str, Any],
) -> int:
    """Print the messages of TOPIC in the order in which they were stored.

    Without -g nothing is committed and no group is moved: it prints what is there and ends, or goes on with -F.
    """
    from rmq.runtime import loop

    if group is not None and chosen != Chosen(chosen.topic, chosen.expression, chosen.sql, Place(offset=0)):
        raise click.UsageError("a group goes on where it is: -g takes no --from, --to, --zone, -q, --broker or -F")
    if idle is not None and group is None:
        raise click.UsageError("--idle is for -g: without it, reading ends by itself")
    write = render or {"text": _text, "ndjson": line_of, "body": _body}[output]
    world = World.around()

    async def work() -> int:
        seen = 0
        missing: dict[str, str] = {}
        async with AsyncExitStack() as open_:
            member: LitePullConsumer | None = None
            source: AsyncIterator[MessageExt]
            if group is None:
                missing.update(await left_brokers(world, client))
                source = await messages_of(open_, world, client, chosen, missing)
            else:
                await find_queues(world, client, chosen.topic)
                member = LitePullConsumer(group, world=world, **client)
                member.subscribe(chosen.topic, chosen.expression, sql=chosen.sql)
                await open_.enter_async_context(member)
                source = aiter(member)
            out = sys.stdout.buffer
            while count is None or seen < count:
                try:
                    async with patience.timeout(idle):
                        message = await anext(source)
                except RMQError:
                    raise  # that of a broker may be a TimeoutError, too
                except (StopAsyncIteration, TimeoutError):
                    break
                out.write(write(message))
                out.flush()
                seen += 1
            if member is not None and seen:
                await member.commit()
        for name, why in sorted(missing.items()):
            tell(f"{name} is missing here: {why}")
        return PARTIAL if missing else 0

    return loop.run(work())


async def messages_of(
    open_: AsyncExitStack, world: World, client: dict[str, Any], chosen: Chosen, missing: dict[str, str] | None = None
) -> AsyncGenerator[MessageExt]:
    """What is chosen, read with a client that leaves with the stack. :param missing: as :func:`read` has it."""
    reader = await open_.enter_async_context(PullConsumer(TOOLS_CONSUMER_GROUP, world=world, **client))
    return await open_.enter_async_context(aclosing(read(world, reader, chosen, missing)))


def _body(message: MessageExt) -> bytes:
    return message.body + b"\n"


def _text(message: MessageExt) -> bytes:
    """One line for people: where and when, tag and keys, the body with what is not to be printed escaped."""
    when = datetime.fromtimestamp(message.store_timestamp / 1000, UTC).astimezone()
    marks = " ".join(f"{name}={value}" for name, value in (("tags", message.tags), ("keys", message.keys)) if value)
    where = f"{message.broker_name}/{message.queue_id}@{message.queue_offset}"
    body = message.body.decode(errors="backslashreplace")
    shown = "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in body)
    head = f"{when:%Y-%m-%d %H:%M:%S}.{message.store_timestamp % 1000:03} {where}"
    return f"{' '.join(filter(None, (head, marks, shown)))}\n".encode()
