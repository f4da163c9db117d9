"""queryMsgTraceById: what clients told of a message in their trace (mqadmin.md B.1; field case B114)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import click

from rmq.cli.mqadmin.messages import say
from rmq.cli.mqadmin.session import AdminClient, Output, admin_command
from rmq.cli.mqadmin.text import plain, seconds
from rmq.client.lookup import FOREVER
from rmq.client.message import MessageExt
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ResponseError
from rmq.protocol.names import TRACE_TOPIC
from rmq.protocol.trace import ConsumeEnded, Sent, TraceRecord, decode

__all__ = ["query_msg_trace_by_id"]

#: Trace messages that are looked at, as by Java's tool.
_MOST = 64
_ROW = "{:<10} {:<20} {:<20} {:<20} {:<10} {:<10}"


@admin_command(
    "queryMsgTraceById",
    click.option("-i", "--msgId", "msg_id", required=True, metavar="ID", help="The unique id of the message."),
    click.option("-t", "--traceTopic", "topic", metavar="NAME", default=TRACE_TOPIC, help="Where its trace is."),
    click.option("-b", "--beginTimestamp", "begin", type=int, default=0, metavar="MS", show_default=False,
                 help="Told of since then."),
    click.option("-e", "--endTimestamp", "end", type=int, default=FOREVER, metavar="MS", show_default=False,
                 help="Told of until then."),
    click.option("-c", "--maxNum", "most", type=click.IntRange(1, 10_000), metavar="N", default=_MOST,
                 help="Trace messages to look at."),
)  # fmt: skip
async def query_msg_trace_by_id(
    admin: AdminClient, out: Output, msg_id: str, topic: str, begin: int, end: int, most: int
) -> int:
    """Who sent a message and who consumed it, by its unique id: its message trace."""
    result = await admin.query_message(topic, msg_id, most, begin, end)
    found = [
        (record, message) for message in result.messages for record in decode(message.body) if record.msg_id == msg_id
    ]
    if not found:
        raise ResponseError(
            ResponseCode.QUERY_NOT_FOUND,
            f"{topic} holds no trace of {msg_id}: clients that have enable_msg_trace (Java: enableMsgTrace) write it, "
            f"to a topic that brokers have with traceTopicEnable=true, or to that named with -t. {result.remark}",
        )
    say(out, result)
    return out.rows([_as_json(record, message) for record, message in found], lambda: _lines(found))


def _lines(found: list[tuple[TraceRecord, MessageExt]]) -> Iterator[str]:
    """Java's tables: a send by itself, then the calls of listeners by group."""
    groups: dict[str, list[str]] = {}
    for record, message in found:
        host = message.born_host[0]
        if isinstance(record, Sent):
            yield from _head(
                "#ProducerGroup", "#SendTime", [_row("Pub", record.group, host, record.at, record.cost, record.ok)]
            )
        elif isinstance(record, ConsumeEnded):
            at = record.at if record.at is not None else message.born_timestamp
            row = _row("Sub", record.group, host, at, record.cost, record.ok)
            groups.setdefault(record.group or "", []).append(row)
    for rows in groups.values():
        yield from _head("#ConsumerGroup", "#ConsumerTime", rows)


def _head(group: str, time: str, rows: list[str]) -> Iterator[str]:
    yield (_ROW.format("#Type", group, "#ClientHost", time, "#CostTimes", "#Status"))
    yield from rows
    yield ""


def _row(kind: str, group: str | None, host: str, at: int, cost: int, ok: bool) -> str:
    return _ROW.format(kind, plain(group or "null"), host, seconds(at), f"{cost}ms", "success" if ok else "failed")


def _as_json(record: TraceRecord, message: MessageExt) -> dict[str, object]:
    told: dict[str, object] = {"type": record.name}
    for name, value in asdict(record).items():
        first, *rest = name.split("_")
        told[first + "".join(map(str.title, rest))] = getattr(value, "name", value)
    return told | {"clientHost": told.get("clientHost") or message.born_host[0]}
