"""Replays recorded broker cases against a nameserver and broker in this process, and compares the answers.

What a run decides anew is translated, not ignored: ports, and commit-log offsets, which are learned from the answers to
sends and the records that come back. Records are compared field by field.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from rmq.broker.app import BrokerApp
from rmq.protocol import fastjson, frame, properties
from rmq.protocol.codes import Language
from rmq.protocol.command import FLAG_RESPONSE, Command, SerializeType
from rmq.protocol.ids import decode_offset_msg_id, offset_msg_id
from rmq.protocol.message import MessageRecord, decode_records
from rmq.testing.cluster import Cluster
from tests.golden.broker.differences import ACCEPTED, ANY, EXCLUDED, SAMPLED, Difference

__all__ = ["CASES", "EXCLUDED", "SETTINGS", "Peer", "Replay", "body_of"]

GOLDEN = Path(__file__).parents[2] / "golden" / "broker" / "answers-broker-4.9.4.jsonl"
CASES: list[dict[str, Any]] = [json.loads(line) for line in GOLDEN.read_text().splitlines()]

#: Settings of the recorded broker.
SETTINGS = {
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": "8388608",
    "mappedFileSizeConsumeQueue": "6000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
    "transactionCheckInterval": "3600000",
    "cleanResourceInterval": "200",
    "deleteCommitLogFilesInterval": "1",
}
#: Asked of the nameserver.
NAMESRV_CASES = ("broker.setup.wait_registered", "broker.send.order_kv")
OWN_PORT = 34070
#: Born timestamps before it were given by the recorder, later ones are the time of the recorded run.
LONG_AGO = 1_750_000_000_000

#: Members of bodies that say when.
TIMES = frozenset(
    {
        "timestamp", "lastUpdateTimestamp", "lastTimestamp", "consumeTimeStamp", "consumeTimeStampStr", "maxTimeStamp",
        "maxTimeStampStr", "minTimeStamp", "minTimeStampStr",
    }
)  # fmt: skip
#: Java's remark of a handler that threw is its exception and a stack frame; a client can read no more than that.
EXCEPTION = re.compile(r"(java|com|org)\.[\w.$]+(Exception|Error)\b.*", re.DOTALL)
#: Java's remark of a handler that set only a code.
UNSET = "not set any response code"
EXPECTED_OTHERWISE = {case: difference for difference in ACCEPTED for case in difference.cases}

Answerer = Callable[[Command], Command | None]


class Peer:
    """One connection: answers by opaque, and what the broker sent by itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.port = writer.get_extra_info("sockname")[1]
        self.pushed: list[Command] = []
        self.keys: dict[int, list[str]] = {}
        self.answers: dict[int, asyncio.Future[Command]] = {}
        self.ended = asyncio.Event()
        self.arrived = asyncio.Event()
        #: Answers what the broker asks.
        self.answerer: Answerer = lambda request: None
        self._opaque = 1000
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            while True:
                length = int.from_bytes(await self.reader.readexactly(4), "big")
                data = await self.reader.readexactly(length)
                command = frame.decode(data)
                if data[0] == SerializeType.JSON:
                    header = json.loads(data[4 : 4 + int.from_bytes(data[1:4], "big")])
                    self.keys[command.opaque] = sorted(header)
                if command.is_response:
                    self.answers.setdefault(command.opaque, asyncio.get_running_loop().create_future()).set_result(
                        command
                    )
                    continue
                self.pushed.append(command)
                answer = self.answerer(command)
                if answer is not None and not command.is_oneway:
                    answer.flag = FLAG_RESPONSE
                    answer.opaque = command.opaque
                    self.writer.write(frame.encode(answer))
                self.arrived.set()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.ended.set()

    def send(self, command: Command) -> int:
        self._opaque += 1
        command.opaque = self._opaque
        self.answers[command.opaque] = asyncio.get_running_loop().create_future()
        self.writer.write(frame.encode(command))
        return command.opaque

    async def ask(self, command: Command) -> Command:
        return await self.answers[self.send(command)]

    async def settled(self) -> None:
        """Whatever was sent before has been handled: a request that is always answered has come back."""
        await self.ask(Command(31, ext={"topic": "PB_T", "queueId": "0"}, language=Language.JAVA, version=401))

    async def close(self) -> None:
        self.writer.close()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            pass


class Replay:
    """The recorded run, asked of a broker of ours.

    :param steps: what is done before a case: the steps of the recorded run that are not in the sample.
    """

    def __init__(self, cluster: Cluster, steps: dict[str, Callable[[Replay], Awaitable[None]]]) -> None:
        self.cluster = cluster
        self.steps = steps
        self.peers: dict[str, Peer] = {}
        self.offsets: dict[int, int] = {}
        self.ports: dict[str, int] = {}
        self.answers: dict[str, Command] = {}
        self.cases = {case["id"]: case for case in CASES}
        #: What a step does while the case waits.
        self.background: asyncio.Task[None] | None = None

    @property
    def app(self) -> BrokerApp:
        return self.cluster.brokers[0]

    async def peer(self, name: str, *, namesrv: bool = False, vip: bool = False) -> Peer:
        key = f"{name}{' namesrv' if namesrv else ''}"
        if key not in self.peers:
            host, port = self.app.address
            if namesrv:
                host, port = self.cluster.namesrvs[0].address
            elif vip:
                port -= 2
            self.peers[key] = Peer(*await asyncio.open_connection(host, port, limit=32 << 20))
            self.ports[name] = self.peers[key].port
        return self.peers[key]

    async def close(self, name: str) -> None:
        """Close a client's connection, and wait until the broker has noticed."""
        noticed = asyncio.Event()
        self.app.server.on_close.append(lambda conn: noticed.set())
        await self.peers.pop(name).close()
        await noticed.wait()
        self.app.server.on_close.pop()

    async def close_all(self) -> None:
        for peer in self.peers.values():
            await peer.close()
        self.peers.clear()

    # -- translation

    def offset(self, recorded: int) -> int:
        """A commit-log offset of the recorded run as it is here; unknown ones are kept."""
        for distance in (0, 1):
            if recorded - distance in self.offsets:
                return self.offsets[recorded - distance] + distance
        return recorded

    def message_id(self, recorded: str) -> str:
        host, _, position = decode_offset_msg_id(recorded)
        mapped = self.offset(position)
        return offset_msg_id(host, self.app.address[1], mapped)

    def learn(self, recorded: str | None, ours: str | None) -> None:
        """Two message ids, or lists of them, that name the same messages."""
        if not recorded or not ours or len(recorded) < 32:
            return
        for one, other in zip(recorded.split(","), ours.split(","), strict=False):
            self.offsets[decode_offset_msg_id(one)[2]] = decode_offset_msg_id(other)[2]

    def request_ext(self, ext: dict[str, str] | None, code: int) -> dict[str, str | None] | None:
        if ext is None:
            return None
        made: dict[str, str | None] = dict(ext)
        if code in (33, 36) and str(made.get("offset", "")).lstrip("-").isdigit():
            made["offset"] = str(self.offset(int(str(made["offset"]))))
        if code == 37 and "commitLogOffset" in made:
            made["commitLogOffset"] = str(self.offset(int(str(made["commitLogOffset"]))))
        born = str(made.get("g", ""))
        if code == 310 and "TRAN_MSG\x01true" in str(made.get("i")) and born > "1750000000000":
            made["g"] = str(self.app.world.clock.now_ms())
        for name in ("msgId", "originMsgId"):
            value = made.get(name)
            if code in (309, 323) and value and len(value) == 32:
                made[name] = self.message_id(value)
        return made

    # -- running

    async def run(self, case: dict[str, Any]) -> Any:
        """Ask one case; what came: a Command, a list of them, or None."""
        step = self.steps.get(case["id"])
        if step is not None:
            await step(self)
        request = case["request"]
        if "raw" in request:
            return await self._raw(case)
        if request.get("wait"):
            return await self._pushed(case)
        code = request["code"]
        peer = await self.peer(case["client"], namesrv=case["id"] in NAMESRV_CASES, vip="vip" in case["id"])
        command = Command(
            code,
            ext=self.request_ext(request.get("ext"), code),
            body=body_of(request.get("body")),
            flag=request.get("flag", 0),
            remark=request.get("remark"),
            language=Language[request.get("language", "JAVA")],
            version=request.get("version", 401),
            serialize=SerializeType[request.get("ser", "JSON")],
        )
        opaque = peer.send(command)
        if case["response"]["outcome"] == "none":
            await peer.settled()
            return peer.answers[opaque].result() if peer.answers[opaque].done() else None
        return await peer.answers[opaque]

    async def _raw(self, case: dict[str, Any]) -> Any:
        peer = await self.peer(case["client"])
        data = bytes.fromhex(case["request"]["raw"])
        peer.writer.write(data)
        response = case["response"]
        if response["closed"]:
            await peer.ended.wait()
            return "closed"
        expected = response["frames"]
        if expected:
            future = peer.answers.setdefault(7, asyncio.get_running_loop().create_future())
            return [await future]
        await peer.settled()
        return [future.result() for opaque, future in peer.answers.items() if opaque < 1000 and future.done()]

    async def _pushed(self, case: dict[str, Any]) -> list[Command]:
        peer = await self.peer(case["client"])
        expected = len(case["response"]["frames"])
        await peer.settled()
        while len(peer.pushed) < expected:
            peer.arrived.clear()
            await peer.arrived.wait()
        pushed, peer.pushed = peer.pushed, []
        return pushed

    # -- comparing

    def compare(self, case: dict[str, Any], came: Any) -> str | None:
        """What differs, or None."""
        response = case["response"]
        volatile = set(case.get("volatile") or [])
        client = case["client"]
        outcome = response["outcome"]
        difference = EXPECTED_OTHERWISE.get(case["id"])
        if difference is not None:
            return self._accepted(came, response, difference, volatile)
        if outcome == "none":
            return None if came is None else f"answered {came!r}"
        if outcome in ("raw", "pushed"):
            if response.get("closed"):
                return None if came == "closed" else "not closed"
            frames = response["frames"]
            if len(came) != len(frames):
                return f"{len(came)} frames, not {len(frames)}: {came!r}"
            for one, recorded in zip(came, frames, strict=True):
                problem = self._answer(one, recorded, volatile, client)
                if problem:
                    return problem
            return None
        if case["id"] in SAMPLED:
            return self._sampled(came, response)
        return self._answer(came, response, volatile, client)

    def _accepted(self, ours: Any, java: dict[str, Any], difference: Difference, volatile: set[str]) -> str | None:
        if not isinstance(ours, Command) or ours.code != difference.code:
            return f"{ours!r} is not the accepted difference"
        if (difference.remark is None) != (ours.remark is None):
            return f"remark {ours.remark!r} is not the accepted difference"
        if difference.remark is not None and not re.fullmatch(difference.remark, ours.remark or ""):
            return f"remark {ours.remark!r} is not the accepted difference"
        if difference.ext is not ANY and ours.ext != difference.ext:
            return f"ext {ours.ext}"
        if difference.without:
            return self._body(
                ours, java, volatile | {f"{kind}.{n}" for n in difference.without for kind in ("json", "rec")}
            )
        return None

    def _answer(self, ours: Command, java: dict[str, Any], volatile: set[str], client: str) -> str | None:
        if ours.code != java["code"]:
            return f"code {ours.code} ({ours.remark}), not {java['code']} ({java['remark']})"
        if ours.serialize != SerializeType[java["ser"]]:
            return f"serialised as {ours.serialize.name}, not {java['ser']}"
        remark = None if java["remark"] == UNSET else self._translated(java["remark"])
        if remark is not None and EXCEPTION.fullmatch(remark):
            return None if ours.remark else "no remark"
        if ours.remark != remark:
            return f"remark {ours.remark!r}, not {remark!r}"
        peer = self.peers.get(client)
        keys = None if peer is None else peer.keys.get(ours.opaque)
        if keys is not None and "header_keys" in java:
            wanted = [key for key in java["header_keys"] if key != "remark" or remark is not None]
            if keys != wanted:
                return f"header keys {keys}, not {wanted}"
        return self._ext(ours, java, volatile) or self._body(ours, java, volatile)

    def _translated(self, text: str | None) -> str | None:
        """A recorded text with this run's addresses and offsets."""
        if text is None:
            return None
        text = re.sub(r"(offset(?: failed)?, )(\d+)$", lambda found: f"{found[1]}{self.offset(int(found[2]))}", text)
        return re.sub(r"127\.0\.0\.1:\d+", lambda found: self._own_address(found[0]), text)

    def _own_address(self, recorded: str) -> str:
        if recorded == f"127.0.0.1:{OWN_PORT}":
            return f"127.0.0.1:{self.app.address[1]}"
        port = self.ports.get(recorded)
        return recorded if port is None else f"127.0.0.1:{port}"

    def _ext(self, ours: Command, java: dict[str, Any], volatile: set[str]) -> str | None:
        theirs = java["ext"]
        if theirs is None or ours.ext is None:
            return None if theirs is None and ours.ext is None else f"ext {ours.ext}, not {theirs}"
        if "msgId" in theirs and "queueOffset" in theirs:
            self.learn(theirs["msgId"], ours.ext.get("msgId"))
        if set(ours.ext) != set(theirs):
            return f"ext {sorted(ours.ext)}, not {sorted(theirs)}"
        for name, value in theirs.items():
            mine = ours.ext[name]
            if f"ext.{name}" in volatile:
                if (mine is None) != (value is None):
                    return f"ext {name}={mine}, not {value}"
            elif name == "properties":
                if properties.decode(mine) != properties.decode(value):
                    return f"ext {name}={mine!r}, not {value!r}"
            elif name == "queueOffset" and "msgId" in theirs:
                # Sends between the cases are not in the sample: ours come earlier in their queue.
                if mine is None or not 0 <= int(mine) <= int(value):
                    return f"ext {name}={mine}, not {value} or before"
            elif name == "msgId":
                if len(mine or "") != len(value):
                    return f"ext {name}={mine}, not {value}"
            elif mine != self._translated(value):
                return f"ext {name}={mine}, not {value}"
        return None

    def _body(self, ours: Command, java: dict[str, Any], volatile: set[str]) -> str | None:
        recorded = java.get("body")
        if recorded is None:
            return None if not ours.body else f"a body of {len(ours.body)} bytes, not none: {ours.body[:200]!r}"
        if "body" in volatile:
            return None if ours.body else "no body"
        if "records" in recorded:
            return self._records(decode_records(ours.body), recorded["records"], volatile)
        text = recorded["text"]
        if not text.startswith("{"):
            return None if ours.body.decode() == text else f"body {ours.body!r}, not {text!r}"
        names = {name.removeprefix("json.") for name in volatile if name.startswith("json.")} | TIMES
        mine = plain(fastjson.loads(ours.body), names)
        theirs = plain(fastjson.loads((self._translated(text) or "").encode()), names)
        return None if mine == theirs else f"body {first_difference(mine, theirs)}"

    def _records(self, ours: list[MessageRecord], java: list[dict[str, Any]], volatile: set[str]) -> str | None:
        if len(ours) != len(java):
            return f"{len(ours)} records, not {len(java)}"
        for mine, theirs in zip(ours, java, strict=True):
            self.offsets[theirs["physicalOffset"]] = mine.physical_offset
            fields: dict[str, tuple[object, object]] = {
                "topic": (mine.topic, theirs["topic"]),
                "queueId": (mine.queue_id, theirs["queueId"]),
                "queueOffset": (mine.queue_offset, theirs["queueOffset"]),
                "flag": (mine.flag, theirs["flag"]),
                "sysFlag": (mine.sys_flag, theirs["sysFlag"]),
                "reconsumeTimes": (mine.reconsume_times, theirs["reconsumeTimes"]),
                "bodyCRC": (mine.body_crc, theirs["bodyCRC"]),
                "magic": (f"{(mine.magic or 0) & 0xFFFFFFFF:08X}", theirs["magic"]),
                "size": (mine.size, theirs["size"]),
                "properties": (mine.properties, properties.decode(theirs["properties"])),
            }
            if theirs["bornTimestamp"] < LONG_AGO:
                fields["bornTimestamp"] = (mine.born_timestamp, theirs["bornTimestamp"])
            for name, (one, other) in fields.items():
                if f"rec.{name}" not in volatile and one != other:
                    return f"record {name} {one!r}, not {other!r}"
        return None

    def _sampled(self, ours: Command, java: dict[str, Any]) -> str | None:
        """What we have is part of what Java had."""
        if ours.code != java["code"] or ours.remark != java["remark"]:
            return f"{ours!r}, not code {java['code']} and {java['remark']!r}"
        recorded = java["body"]
        if "records" in recorded:
            theirs = [
                self._kept(r["topic"], r["bodyCRC"], r["reconsumeTimes"], properties.decode(r["properties"]))
                for r in recorded["records"]
            ]
            for mine in decode_records(ours.body):
                kept = self._kept(mine.topic, mine.body_crc, mine.reconsume_times, mine.properties)
                if kept not in theirs:
                    return f"{kept} is not among {theirs}"
            return None
        mine_groups, their_groups = (
            {
                name: stats
                for group in plain(fastjson.loads(text), TIMES | {"consumeTps"})["consumeStatsList"]
                for name, stats in group.items()
            }
            for text in (ours.body, recorded["text"].encode())
        )
        both = set(mine_groups) & set(their_groups)
        if len(both) < 15:
            return f"only {sorted(both)} are on both sides"
        other = [name for name in both if mine_groups[name] != their_groups[name]]
        return (
            f"{other}: {[mine_groups[name] for name in other]}, not {[their_groups[name] for name in other]}"
            if other
            else None
        )

    @staticmethod
    def _kept(topic: str, crc: int | None, tries: int, held: dict[str, str]) -> tuple[object, ...]:
        return topic, crc, tries, sorted((k, v) for k, v in held.items() if k != "ORIGIN_MESSAGE_ID")


def body_of(body: dict[str, Any] | None) -> bytes:
    if body is None:
        return b""
    if "base64" in body:
        return base64.b64decode(body["base64"])
    if "text_len" in body:
        return b"x" * body["text_len"]
    if "len" in body:
        return b"\0" * body["len"]
    return str(body["text"]).encode()


def plain(value: Any, masked: set[str]) -> Any:
    """A JSON value without order in its lists and without masked members."""
    if isinstance(value, dict):
        kept = [
            (key, plain(item, masked)) for key, item in value.items() if not (isinstance(key, str) and key in masked)
        ]
        return dict(sorted(kept, key=lambda pair: repr(pair[0])))
    if isinstance(value, list):
        return sorted((plain(item, masked) for item in value), key=repr)
    return value


def first_difference(ours: Any, java: Any, where: str = "") -> str:
    if isinstance(ours, dict) and isinstance(java, dict):
        for key in [*java, *ours]:
            if key not in ours:
                return f"{where}/{key} is missing ({java[key]!r})"
            if key not in java:
                return f"{where}/{key} is too much ({ours[key]!r})"
            if ours[key] != java[key]:
                return first_difference(ours[key], java[key], f"{where}/{key}")
    return f"{where}: {ours!r}, not {java!r}"[:600]
