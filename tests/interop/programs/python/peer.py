"""Reads requests, runs them with our SDK, writes answers: see ../README.md.

With `--blocking` it is the blocking API that does the work, on threads; else the asyncio API.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import os
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any

import rmq
from rmq import ConsumeResult, Message, MessageExt, ReplyTimeout, ResponseError, TransactionState, aio

BATCH = 50
IN_FLIGHT = 64
#: Seconds: a busy machine is not what is tested.
PATIENCE = 60.0

BLOCKING = "--blocking" in sys.argv

Asked = dict[str, Any]


_numbers = itertools.count()


def instance() -> str:
    """An instance name of its own for every client of the process."""
    return f"peer-{next(_numbers)}"


class Threads:
    """A blocking client behind coroutines: every call runs on a thread."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self.client, name)

        async def call(*args: Any, **options: Any) -> Any:
            result = await asyncio.to_thread(method, *args, **options)
            return await asyncio.wrap_future(result) if isinstance(result, Future) else result

        return call

    async def __aenter__(self) -> Threads:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()


def client(name: str, group: str, asked: Asked, *more: Any, **options: Any) -> Any:
    """A client of our SDK of a kind ("Producer" ...), of either API."""
    options = {"namesrv": asked["namesrv"], "instance_name": instance(), "mq_client_api_timeout": PATIENCE, **options}
    if BLOCKING:
        return Threads(getattr(rmq, name)(group, *more, **options))
    return getattr(aio, name)(group, *more, **options)


def body(key: str, i: int) -> bytes:
    size = 6000 if i % 50 == 0 else 16 + (37 * i) % 1000
    unit = f"{key} ".encode()
    return (unit * (size // len(unit) + 1))[:size]


def digest(content: bytes) -> str:
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()[:16]


def arrived(message: MessageExt) -> list[object]:
    """[key, digest, queue, offset, tag, reconsume times, offset message id, unique id]"""
    return [
        message.keys,
        digest(message.body),
        message.queue_id,
        message.queue_offset,
        message.tags,
        message.reconsume_times,
        None,
        message.properties.get("UNIQ_KEY"),
    ]


def made(asked: Asked) -> list[Message]:
    tags = asked.get("tags") or [None]
    first = asked.get("first", 0)
    return [
        Message(
            asked["topic"],
            body(f"{asked['prefix']}-{i}", i),
            tags=tags[i % len(tags)],
            keys=f"{asked['prefix']}-{i}",
        )
        for i in range(first, first + asked["count"])
    ]


def sent(message: Message, result: Any = None, at: int = 0) -> list[object]:
    known: list[object] = [message.keys, digest(message.body)]
    if result is None:
        return [*known, None, None, message.tags, 0, None, None]
    if not result.ok:
        raise RuntimeError(f"not SEND_OK: {result}")
    offset_id = result.offset_msg_id.split(",")[at]
    unique_id = result.msg_id.split(",")[at]
    return [
        *known, result.message_queue.queue_id, result.queue_offset + at, message.tags, 0, offset_id, unique_id,
    ]  # fmt: skip


async def produce(asked: Asked) -> Asked:
    messages = made(asked)
    rows: list[list[object]] = []
    async with client("Producer", asked["group"], asked, send_msg_timeout=PATIENCE) as producer:
        match asked["mode"]:
            case "sync":
                for message in messages:
                    rows.append(sent(message, await producer.send(message)))
            case "async":
                for at in range(0, len(messages), IN_FLIGHT):
                    part = messages[at : at + IN_FLIGHT]
                    results = await asyncio.gather(*(producer.send_async(message) for message in part))
                    rows += map(sent, part, results)
            case "oneway":
                for message in messages:
                    await producer.send_oneway(message)
                    rows.append(sent(message))
            case "batch":
                for start in range(0, len(messages), BATCH):
                    part = messages[start : start + BATCH]
                    result = await producer.send(part)
                    rows += [sent(message, result, at) for at, message in enumerate(part)]
            case "ordered":
                for i, message in enumerate(messages, asked.get("first", 0)):
                    result = await producer.send(
                        message, selector=lambda queues, _, order: queues[order % len(queues)], arg=i % 10
                    )
                    rows.append(sent(message, result))
            case other:
                raise RuntimeError(f"the client has no such call: {other}")
    return {"rows": rows}


class Arrivals:
    """What one consumer was given, in order."""

    def __init__(self, fail: bool, orderly: bool) -> None:
        self.rows: list[list[object]] = []
        self.counted = 0
        self.changed = asyncio.Event()
        self.consumer: Any = None
        self._loop = asyncio.get_running_loop()
        self._result = ConsumeResult.SUCCESS
        if fail:
            self._result = ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT if orderly else ConsumeResult.RECONSUME_LATER

    async def take(self, message: MessageExt) -> ConsumeResult:
        """The listener of the asyncio API."""
        self._note(message)
        return self._result

    def take_on_thread(self, message: MessageExt) -> ConsumeResult:
        """The listener of the blocking API."""
        self._loop.call_soon_threadsafe(self._note, message)
        return self._result

    def _note(self, message: MessageExt) -> None:
        self.rows.append(arrived(message))
        self.counted += not (message.keys or "").startswith("warm")
        self.changed.set()

    async def up_to(self, count: int, timeout: float) -> list[list[object]]:
        try:
            async with asyncio.timeout(timeout):
                while self.counted < count:
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            pass  # what there is, is the answer
        return self.rows


class History:
    """What a listener was given and was done with, a line of JSON each, one write a line: it outlives a SIGKILL."""

    def __init__(self, path: str, name: str, work: float) -> None:
        self.consumer: Any = None
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._name = name
        self._work = work

    def note(self, kind: str, message: MessageExt) -> None:
        line = {
            "t": time.monotonic_ns(), "proc": self._name, "kind": kind, "topic": message.topic,
            "queue": f"{message.broker_name}/{message.queue_id}", "offset": message.queue_offset, "key": message.keys,
            "tries": message.reconsume_times,
        }  # fmt: skip
        os.write(self._fd, json.dumps(line).encode() + b"\n")

    async def take(self, message: MessageExt) -> ConsumeResult:
        self.note("given", message)
        await asyncio.sleep(self._work)
        self.note("done", message)
        return ConsumeResult.SUCCESS

    def take_on_thread(self, message: MessageExt) -> ConsumeResult:
        self.note("given", message)
        time.sleep(self._work)
        self.note("done", message)
        return ConsumeResult.SUCCESS


consumers: dict[str, Arrivals | History] = {}


async def subscribe(asked: Asked) -> Asked:
    options: Asked = {
        "instance_name": asked["handle"],
        "message_model": asked["model"].upper(),
        "consume_from_where": "CONSUME_FROM_" + asked.get("from", "FIRST_OFFSET"),
        "consume_timestamp": asked.get("since"),
        "orderly": asked["orderly"],
        "poll_name_server_interval": 1.0,
        "heartbeat_broker_interval": 1.0,
        "rebalance_interval": 1.0,
    }
    if "maxReconsume" in asked:
        options["max_reconsume_times"] = asked["maxReconsume"]
    if "pop" in asked:
        options |= {"client_rebalance": False, "pop_invisible_time": asked["pop"]}
    if "strategy" in asked:
        options |= {
            "allocate_message_queue_strategy": asked["strategy"],
            "machine_rooms": asked.get("rooms", ()),
            "allocate_queues": [rmq.MessageQueue(asked["topic"], *queue) for queue in asked.get("queues", ())],
            "client_machine_room": lambda client_id: client_id.split("@")[1].split("-")[0],
        }
    arrivals: Arrivals | History = Arrivals(asked["fail"], asked["orderly"])
    if "history" in asked:
        arrivals = History(asked["history"], asked["handle"], asked["work"] / 1000)
    arrivals.consumer = client("PushConsumer", asked["group"], asked, **options)
    own = arrivals.consumer.client if BLOCKING else arrivals.consumer
    own.subscribe(asked["topic"], asked["expression"])
    own.register_message_listener(arrivals.take_on_thread if BLOCKING else arrivals.take)
    await arrivals.consumer.start()
    consumers[asked["handle"]] = arrivals
    return {}


async def received(asked: Asked) -> Asked:
    arrivals = consumers[asked["handle"]]
    assert isinstance(arrivals, Arrivals)
    return {"rows": await arrivals.up_to(asked["count"], asked["timeout"])}


async def unsubscribe(asked: Asked) -> Asked:
    await consumers.pop(asked["handle"]).consumer.shutdown()
    return {}


async def pull(asked: Asked) -> Asked:
    rows: list[list[object]] = []
    async with client("PullConsumer", asked["group"], asked) as consumer:
        for queue in await consumer.fetch_subscribe_message_queues(asked["topic"]):
            at, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
            while at < end:
                result = await consumer.pull(queue, "*", at, 32)
                rows += map(arrived, result.messages)
                if result.next_begin_offset <= at:
                    raise RuntimeError(f"pull at {at} of {queue} stays there: {result.status}")
                at = result.next_begin_offset
    return {"rows": rows}


async def lite_pull(asked: Asked) -> Asked:
    rows: list[list[object]] = []
    made = client(
        "LitePullConsumer", asked["group"], asked, consume_from_where="CONSUME_FROM_FIRST_OFFSET", pull_batch_size=32
    )
    if not BLOCKING:
        made.subscribe(asked["topic"])
    end = asyncio.get_running_loop().time() + asked["timeout"]
    async with made:
        if BLOCKING:
            await made.assign(await made.fetch_message_queues(asked["topic"]))
        while len(rows) < asked["count"] and asyncio.get_running_loop().time() < end:
            rows += map(arrived, await made.poll(0.2))
    return {"rows": rows}


async def kept(asked: Asked) -> Asked:
    async with client("PullConsumer", asked["group"], asked) as consumer:
        queues = sorted(await consumer.fetch_subscribe_message_queues(asked["topic"]))
        return {"offsets": [await consumer.fetch_consume_offset(queue, from_store=True) for queue in queues]}


async def query_key(asked: Asked) -> Asked:
    rows: list[list[object]] = []
    async with client("Producer", "query-by-key", asked) as producer:
        for key in asked["keys"]:
            with contextlib.suppress(ResponseError):  # not in the index yet
                rows += map(arrived, (await producer.query_message(asked["topic"], key, 32)).messages)
    return {"rows": rows}


async def query_id(asked: Asked) -> Asked:
    rows: list[list[object]] = []
    async with client("Producer", "query-by-id", asked) as producer:
        for each in asked["ids"]:
            with contextlib.suppress(ResponseError):
                rows.append(arrived(await producer.view_message(each, asked["topic"])))
    return {"rows": rows}


#: What Java calls the states.
STATES = {
    "COMMIT_MESSAGE": TransactionState.COMMIT,
    "ROLLBACK_MESSAGE": TransactionState.ROLLBACK,
    "UNKNOW": TransactionState.UNKNOWN,
}


class Side:
    """A transaction producer, what it answers to checks, and the checks it was asked."""

    def __init__(self, asked: Asked) -> None:
        self.answer = STATES[asked["answer"]]
        self.checks: list[list[object]] = []
        self.producer = client("TransactionProducer", asked["group"], asked, self.check)

    def check(self, message: MessageExt) -> TransactionState:
        count = message.properties.get("TRANSACTION_CHECK_TIMES")
        self.checks.append(
            [message.keys, message.body.decode(), message.topic, message.transaction_id, count, message.tags]
        )
        return self.answer


SIDES: dict[str, Side] = {}


async def tx_start(asked: Asked) -> Asked:
    side = SIDES[asked["handle"]] = Side(asked)
    await side.producer.start()
    return {}


async def tx_send(asked: Asked) -> Asked:
    message = Message(asked["topic"], asked["key"], keys=asked["key"], tags="A")
    state = STATES[asked["state"]]
    result = await SIDES[asked["handle"]].producer.send_in_transaction(message, lambda _: state)
    return {"status": result.send_status.name, "uniqueId": result.msg_id, "offsetId": result.offset_msg_id}


async def tx_answer(asked: Asked) -> Asked:
    SIDES[asked["handle"]].answer = STATES[asked["answer"]]
    return {}


async def tx_checks(asked: Asked) -> Asked:
    return {"rows": SIDES[asked["handle"]].checks}


async def tx_stop(asked: Asked) -> Asked:
    await SIDES.pop(asked["handle"]).producer.shutdown()
    return {}


RESPONDERS: dict[str, Any] = {}
REQUESTERS: dict[str, Any] = {}


def silent(message: MessageExt) -> bool:
    return message.body.startswith(b"silent")


async def respond(asked: Asked) -> Asked:
    responder = RESPONDERS[asked["handle"]] = client(
        "PushConsumer",
        asked["group"],
        asked,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        poll_name_server_interval=1.0,
        heartbeat_broker_interval=1.0,
        rebalance_interval=1.0,
    )
    own = responder.client if BLOCKING else responder

    def answer(message: MessageExt) -> None:
        if not silent(message):
            own.reply(message, b"re:" + message.body)

    async def answer_in_coroutine(message: MessageExt) -> None:
        if not silent(message):
            await own.reply(message, b"re:" + message.body)

    own.on(asked["topic"])(answer if BLOCKING else answer_in_coroutine)
    await responder.start()
    return {}


async def unrespond(asked: Asked) -> Asked:
    await RESPONDERS.pop(asked["handle"]).shutdown()
    return {}


async def request(asked: Asked) -> Asked:
    producer = REQUESTERS.get(asked["namesrv"])
    if producer is None:
        producer = REQUESTERS[asked["namesrv"]] = client("Producer", "requesting", asked)
        await producer.start()
    message = Message(asked["topic"], asked["key"], tags="A", keys=asked["key"])
    try:
        reply = await producer.request(message, timeout=asked["timeout"])
    except ReplyTimeout as late:
        return {"timeout": str(late)}
    return {"reply": reply.body.decode()}


async def names(_: Asked) -> Asked:
    return {"ops": list(OPS)}


OPS: dict[str, Callable[[Asked], Awaitable[Asked]]] = {
    "ops": names,
    "produce": produce,
    "subscribe": subscribe,
    "received": received,
    "unsubscribe": unsubscribe,
    "pull": pull,
    "litepull": lite_pull,
    "kept": kept,
    "querykey": query_key,
    "queryid": query_id,
    "txstart": tx_start,
    "txsend": tx_send,
    "txanswer": tx_answer,
    "txchecks": tx_checks,
    "txstop": tx_stop,
    "respond": respond,
    "unrespond": unrespond,
    "request": request,
}


async def main() -> None:
    loop = asyncio.get_running_loop()
    requests = asyncio.StreamReader(limit=1 << 22)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(requests), sys.stdin)
    while line := await requests.readline():
        asked = json.loads(line)
        try:
            if asked["op"] not in OPS:
                raise RuntimeError(f"the client has no such call: {asked['op']}")
            answer = await OPS[asked["op"]](asked)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": repr(error)}
        sys.stdout.write(json.dumps({"id": asked["id"], **answer}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
