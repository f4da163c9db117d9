"""sendMessage, checkMsgSendRT, sendMsgStatus, clusterRT, recallMessage: what sends to see what comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from rmq.cli.mqadmin.failures import NotFound
from rmq.cli.mqadmin.messages import result_text
from rmq.cli.mqadmin.output import complain
from rmq.cli.mqadmin.session import AdminClient, Output, admin_command, flag, producing
from rmq.cli.mqadmin.text import cut
from rmq.cli.mqadmin.topics import topic as _topic
from rmq.client.message import Message, MessageQueue
from rmq.client.results import SendResult
from rmq.protocol.errors import RMQError, TransportError

if TYPE_CHECKING:
    from rmq.client.producer import Producer

__all__ = ["check_msg_send_rt", "cluster_rt", "recall_message", "send_message", "send_msg_status"]

#: What a broker takes at most, and a test needs less.
_LARGEST = 4 * 1024 * 1024


@admin_command(
    "sendMessage",
    _topic,
    click.option("-p", "--body", "body", required=True, metavar="TEXT", help="The body, as UTF-8."),
    click.option("-k", "--key", "keys", metavar="KEYS", help="Keys, separated by spaces."),
    click.option("-c", "--tags", "tags", metavar="TAG", help="The tag."),
    click.option("-b", "--broker", "broker", metavar="NAME", help="The name of the broker, with -i."),
    click.option("-i", "--qid", "queue_id", type=click.IntRange(0), metavar="ID", help="The queue there."),
    flag("-m", "--msgTraceEnable", "traced", default=False, help="Write its trace"),
)
async def send_message(
    admin: AdminClient,
    out: Output,
    topic: str,
    body: str,
    keys: str | None,
    tags: str | None,
    broker: str | None,
    queue_id: int | None,
    traced: bool,
) -> int:
    """Send a message."""
    if (broker is None) != (queue_id is None):
        raise click.UsageError("-b and -i name a queue together", click.get_current_context())
    await admin.topic_route(topic)  # a topic that is not there is not made by the way
    queue = None
    if broker is not None and queue_id is not None:
        queue = MessageQueue(topic, broker, queue_id)
        if queue not in await admin.fetch_publish_message_queues(topic):
            raise NotFound(f"the topic {topic} has no queue {queue_id} on {broker} that can be written")
    async with producing("TOOLS_PRODUCER", traced=traced) as producer:
        result = await producer.send(Message(topic, body, tags=tags, keys=keys), queue=queue)

    def classic() -> Iterator[str]:
        columns = "{:<32}  {:<4}  {:<20}    {}".format
        yield columns("#Broker Name", "#QID", "#Send Result", "#MsgId")
        place = result.message_queue
        yield columns(place.broker_name, place.queue_id, result.send_status.name, result.msg_id)

    return out.value(_as_json(result), classic)


def _as_json(result: SendResult) -> dict[str, object]:
    return {
        "brokerName": result.message_queue.broker_name,
        "queueId": result.message_queue.queue_id,
        "sendStatus": result.send_status.name,
        "msgId": result.msg_id,
        "offsetMsgId": result.offset_msg_id,
        "queueOffset": result.queue_offset,
    }


async def _timed(
    admin: AdminClient,
    producer: Producer,
    message: Message,
    queue: MessageQueue,
    away: dict[str, RMQError],
    refused: dict[str, RMQError],
) -> tuple[int, bool]:
    """How many milliseconds a send took, and whether it was stored.

    :param away: brokers that did not answer; gets this one, if it does not. :param refused: those that did not take it.
    """
    began = admin.world.clock.monotonic()
    try:
        ok = (await producer.send(message, queue=queue)).ok
    except RMQError as error:
        ok = False
        gone = isinstance(error.__cause__ or error, TransportError)
        (away if gone else refused)[queue.broker_name] = error
    return round((admin.world.clock.monotonic() - began) * 1000), ok


@admin_command(
    "checkMsgSendRT",
    _topic,
    click.option("-a", "--amount", "amount", type=click.IntRange(1, 1_000_000), default=100, metavar="N",
                 help="Messages."),
    click.option("-s", "--size", "size", type=click.IntRange(1, _LARGEST), default=128, metavar="BYTES",
                 help="Bytes of each."),
)  # fmt: skip
async def check_msg_send_rt(admin: AdminClient, out: Output, topic: str, amount: int, size: int) -> int:
    """How long sends to each queue of a topic take: they are real messages, which its consumers get."""
    await admin.topic_route(topic)
    queues = sorted(await admin.fetch_publish_message_queues(topic))
    if not queues:
        raise NotFound(f"no queue of {topic} can be written")
    columns = "{:<32}  {:<4}  {:<20}    {}".format
    times: list[int] = []
    away: dict[str, RMQError] = {}
    refused: dict[str, RMQError] = {}
    failed = 0
    async with producing("CHECK_MSG_SEND_RT") as producer:
        with out.stream() as put:
            put(None, columns("#Broker Name", "#QID", "#Send Result", "#RT"))
            for number in range(amount):
                queue = queues[number % len(queues)]
                if queue.broker_name in away:
                    failed += 1
                    continue
                took, ok = await _timed(admin, producer, Message(topic, b"a" * size), queue, away, refused)
                failed += not ok
                times.append(took)
                row = {"brokerName": queue.broker_name, "queueId": queue.queue_id, "ok": ok, "rt": took}
                put(row, columns(queue.broker_name, queue.queue_id, "true" if ok else "false", took))
            # The first one opens the connections: Java's tool leaves it out as well.
            put(None, f"Avg RT: {sum(times[1:]) / max(1, len(times) - 1):.2f}")
    for name, error in sorted(away.items()):
        complain(f"{name} did not answer, and was sent nothing more: {error}")
    for name, error in sorted(refused.items()):
        complain(f"{name} did not take it: {error}")
    if failed:
        raise RMQError(f"{failed} of {amount} messages were not stored")
    return 0


@admin_command(
    "sendMsgStatus",
    click.option("-b", "--brokerName", "broker", required=True, metavar="NAME", help="The broker's name."),
    click.option("-s", "--messageSize", "size", type=click.IntRange(1, _LARGEST), default=128, metavar="BYTES",
                 help="Bytes of each."),
    click.option("-c", "--count", "count", type=click.IntRange(1, 1_000_000), default=50, metavar="N",
                 help="Messages."),
)  # fmt: skip
async def send_msg_status(admin: AdminClient, out: Output, broker: str, size: int, count: int) -> int:
    """Send messages to a broker's own topic, and show what comes of each."""
    names = (await admin.cluster_info()).broker_addr_table
    if broker not in names:
        raise NotFound(f"no broker has the name {broker} (known: {', '.join(sorted(names)) or 'none'})")
    async with producing("PID_SMSC") as producer:
        with out.stream() as put:
            await producer.send(Message(broker, b"a" * 16))  # opens the connection
            for _ in range(count):
                began = admin.world.clock.monotonic()
                result = await producer.send(Message(broker, b"a" * size))
                took = round((admin.world.clock.monotonic() - began) * 1000)
                put({**_as_json(result), "rt": took}, f"rt={took}ms, SendResult={result_text(result)}")
    return 0


@admin_command(
    "clusterRT",
    click.option("-a", "--amount", "amount", type=click.IntRange(1, 1_000_000), default=100, metavar="N",
                 help="Messages to each broker."),
    click.option("-s", "--size", "size", type=click.IntRange(1, _LARGEST), default=128, metavar="BYTES",
                 help="Bytes of each."),
    click.option("-c", "--cluster", "cluster", metavar="NAME", help="This cluster; every one without it."),
    flag("-p", "--print", "logged", default=False, help="A line a broker, for logs"),
    click.option("-m", "--machine", "room", default="noname", metavar="NAME", help="With -p: the name of this place."),
    click.option("-i", "--interval", "interval", type=click.FloatRange(0.1, 86_400), default=10.0, metavar="SECONDS",
                 help="Between two rounds."),
    click.option("--rounds", "rounds", type=click.IntRange(1), metavar="N", help="End after so many; else Ctrl-C."),
)  # fmt: skip
async def cluster_rt(
    admin: AdminClient,
    out: Output,
    amount: int,
    size: int,
    cluster: str | None,
    logged: bool,
    room: str,
    interval: float,
    rounds: int | None,
) -> int:
    """How long sends to each broker take, again and again; each has a topic of its own name for it."""
    worst = 0
    refused: dict[str, RMQError] = {}
    head = "{:<24}  {:<24}  {:<4}  {:<8}  {:<8}".format
    line = "{:<24}  {:<24}  {:<8}  {:<16}  {:<16}".format
    async with producing("CLUSTER_RT") as producer:
        with out.stream() as put:
            done = 0
            while True:
                clusters = (await admin.cluster_info()).cluster_addr_table
                if cluster is not None and cluster not in clusters:
                    raise NotFound(f"there is no cluster {cluster} (known: {', '.join(sorted(clusters)) or 'none'})")
                if not logged and not done:
                    put(None, head("#Cluster Name", "#Broker Name", "#RT", "#successCount", "#failCount"))
                for name in sorted(clusters) if cluster is None else [cluster]:
                    for broker in sorted(clusters[name]):
                        times: list[int] = []
                        failed = 0
                        away: dict[str, RMQError] = {}
                        for _ in range(amount):
                            queue = MessageQueue(broker, broker, 0)
                            if away:
                                failed += 1
                                continue
                            took, ok = await _timed(admin, producer, Message(broker, b"a" * size), queue, away, refused)
                            times.append(took)
                            failed += not ok
                        worst = max(worst, failed)
                        rt = f"{sum(times[1:]) / max(1, len(times) - 1):.2f}"
                        row = {"cluster": name, "brokerName": broker, "rt": float(rt), "stored": amount - failed,
                               "failed": failed}  # fmt: skip
                        put(row, _log_line(admin, room, name, broker, rt) if logged else
                            line(cut(name, 24), cut(broker, 24), rt, amount - failed, failed))  # fmt: skip
                done += 1
                if rounds is not None and done >= rounds:
                    break
                await asyncio.sleep(interval)
    for name, error in sorted(refused.items()):
        complain(f"{name} did not take it: {error}")
    return 1 if worst else 0


def _log_line(admin: AdminClient, room: str, cluster: str, broker: str, rt: str) -> str:
    from datetime import datetime

    now = datetime.fromtimestamp(admin.world.clock.now_ms() / 1000)
    return f"{now:%Y-%m-%d %H:%M:%S}|{room}|{cluster}|{broker}|{rt.partition('.')[0]}"


@admin_command(
    "recallMessage",
    _topic,
    click.option("-r", "--recallHandle", "handle", required=True, metavar="HANDLE",
                 help="recall_handle of the result of its send."),
)  # fmt: skip
async def recall_message(admin: AdminClient, out: Output, topic: str, handle: str) -> int:
    """Take back a message that waits for its time (5.x)."""
    await admin.topic_route(topic)
    async with producing("TOOLS_PRODUCER") as producer:
        msg_id = await producer.recall_message(topic, handle)
    return out.done({"topic": topic, "msgId": msg_id}, [f"recall message success. topic=[{topic}], msgId=[{msg_id}]"])
