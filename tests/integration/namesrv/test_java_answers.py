"""Every recorded answer of a Java 4.9.4 nameserver, asked again of ours, in the same order.

Code, remark, ext fields, header keys and body are compared. What varies from run to run (version, language, hash order
of lists) is masked field by field; where we answer otherwise on purpose, :data:`ACCEPTED` says what and why, and
docs/differences.md says it to users.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rmq.namesrv.app import NamesrvApp
from rmq.namesrv.settings import NamesrvSettings
from rmq.protocol import fastjson, frame
from rmq.protocol.codes import Language
from rmq.protocol.command import Command, SerializeType
from rmq.runtime.world import World

ROOT = Path(__file__).parents[3]
CASES = [
    json.loads(line) for line in (ROOT / "tests/golden/namesrv/answers-namesrv-4.9.4.jsonl").read_text().splitlines()
]
ANY = object()
#: First byte of a TLS record that says what is wrong.
TLS_ALERT = b"\x15"


@dataclass(frozen=True)
class Difference:
    """What we answer instead of Java 4.9.4, and why (a row of docs/differences.md begins with ``why``)."""

    why: str
    cases: tuple[str, ...]
    code: int | None = None
    remark: str | None = None
    ext: Any = ANY
    body: str | None = None


UNKNOWN_CODE = "An unknown request code is answered with code 3"
MISSING_FIELD = "A request without a required field is refused"
REFUSED_KEYS = "Settings that name paths, and the black list itself, are refused"
NEWER_BROKER = "A 5.x broker's compressed registration is read"
UNKNOWN_SETTING = "A setting that does not exist, or a value that does not fit, is refused"

ACCEPTED = [
    Difference(
        UNKNOWN_CODE,
        (
            "namesrv.frame.unknown_code",
            "namesrv.frame.unknown_code@bin",
            "namesrv.frame.json_empty_object",
            *(f"namesrv.code.{code}" for code in (10, 11, 34, 25, 26, 217, 901, 3, -1)),
        ),
        code=3,
        remark=r" request type -?\d+ not supported",
    ),
    Difference(
        MISSING_FIELD,
        (
            "namesrv.frame.json_ext_null",
            "namesrv.route.noext",
            "namesrv.kv.put.noext",
            "namesrv.kv.put.no_namespace",
            "namesrv.kv.put.no_key",
            "namesrv.kv.put.no_value",
            "namesrv.kv.get.noext",
            "namesrv.kv.get.no_namespace",
            "namesrv.kv.get.no_key",
            "namesrv.kv.list.noext",
            "namesrv.kv.delete.noext",
            "namesrv.kv.delete.no_namespace",
            "namesrv.qdv.noext",
            "namesrv.qdv.no_brokerName",
            "namesrv.qdv.no_clusterName",
            "namesrv.qdv.no_brokerId",
            "namesrv.topics.by_cluster.noext",
            "namesrv.delete.noext",
            "namesrv.hostile.noext",
            "namesrv.hostile.no_brokerName",
            "namesrv.hostile.no_brokerAddr",
            "namesrv.hostile.no_clusterName",
            "namesrv.hostile.no_brokerId",
            "namesrv.hostile.unreg.noext",
            "namesrv.hostile.unreg.no_brokerName",
            "namesrv.hostile.unreg.no_brokerAddr",
            "namesrv.hostile.unreg.no_brokerId",
        ),
        code=1,
        remark=r"\w+Request: the field \w+ is missing",
        ext=None,
    ),
    Difference(
        MISSING_FIELD,
        ("namesrv.qdv.nobody",),
        code=1,
        remark="QUERY_DATA_VERSION needs a DataVersion as its body",
    ),
    Difference(
        MISSING_FIELD,  # so the entry put before is still there
        ("namesrv.kv.get.after_put_without_value",),
        code=0,
        ext={"value": "v1"},
    ),
    Difference(
        MISSING_FIELD,  # so nothing was registered under the key null
        ("namesrv.hostile.cluster",),
        code=0,
        body='{"brokerAddrTable":{'
        '"broker-a":{"brokerAddrs":{0:"127.0.0.1:34070"},"brokerName":"broker-a","cluster":"DefaultCluster"},'
        '"pb-old":{"brokerAddrs":{0:"10.9.9.3:10911"},"brokerName":"pb-old","cluster":"PbCluster"},'
        '"pb-f":{"brokerAddrs":{0:"10.9.9.5:10911"},"brokerName":"pb-f","cluster":"PbCluster"},'
        '"pb-h":{"brokerAddrs":{0:"10.9.8.1:10911"},"brokerName":"pb-h","cluster":"PbHost"}},'
        '"clusterAddrTable":{"DefaultCluster":["broker-a"],"PbCluster":["pb-old","pb-f"],"PbHost":["pb-h"]}}',
    ),
    Difference(
        MISSING_FIELD,
        ("namesrv.hostile.route",),
        code=0,
        body='{"brokerDatas":[{"brokerAddrs":{"0":"10.9.8.1:10911"},"brokerName":"pb-h","cluster":"PbHost"}],'
        '"filterServerTable":{},'
        '"queueDatas":[{"brokerName":"pb-h","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}',
    ),
    Difference(NEWER_BROKER, ("namesrv.reg.compressed_six_tokens",), code=0, ext={}),
    Difference(
        NEWER_BROKER,
        ("namesrv.reg.route_c6",),
        code=0,
        body='{"brokerDatas":[{"brokerAddrs":{"0":"10.9.9.6:10911"},"brokerName":"pb-c6","cluster":"PbCluster"}],'
        '"filterServerTable":{},'
        '"queueDatas":[{"brokerName":"pb-c6","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":5}]}',
    ),
    Difference(
        REFUSED_KEYS,
        tuple(
            f"namesrv.config.update.black_{key}"
            for key in ("configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome")
        ),
        code=16,
        remark="Can not update config in black list.",
    ),
    Difference(
        UNKNOWN_SETTING,
        ("namesrv.config.update.unknown_key",),
        code=1,
        remark="pbUnknown: no such setting; nothing changed",
    ),
]
EXPECTED_OTHERWISE = {case: difference for difference in ACCEPTED for case in difference.cases}

PB_B = {"brokerName": "pb-b", "clusterName": "PbCluster"}
#: Steps of the recorded run that are not in the sample: before which case, what was asked.
STEPS_LEFT_OUT: dict[str, list[tuple[int, dict[str, str]]]] = {
    "namesrv.unreg.route_slave_only": [(104, {**PB_B, "brokerAddr": "10.9.9.1:10911", "brokerId": "0"})],
    "namesrv.unreg.route_none": [(104, {**PB_B, "brokerAddr": "10.9.9.2:10911", "brokerId": "1"})],
}


class Peer:
    """A connection that sends bytes as they are and reads whole frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._opaque = 100

    async def read(self) -> tuple[Command, list[str] | None]:
        length = int.from_bytes(await self.reader.readexactly(4), "big")
        data = await self.reader.readexactly(length)
        keys = None
        if data[0] == SerializeType.JSON:
            keys = sorted(json.loads(data[4 : 4 + int.from_bytes(data[1:4], "big")]))
        return frame.decode(data), keys

    def send(self, code: int, ext: dict[str, str] | None, body: bytes, ser: str, version: int) -> int:
        self._opaque += 1
        self.writer.write(
            frame.encode(
                Command(
                    code,
                    ext=dict(ext) if ext is not None else None,
                    body=body,
                    opaque=self._opaque,
                    language=Language.JAVA,
                    version=version,
                    serialize=SerializeType[ser],
                )
            )
        )
        return self._opaque

    async def ask(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Command:
        opaque = self.send(code, ext, body, "JSON", 401)
        answer, _ = await self.read()
        assert answer.opaque == opaque
        return answer


class Replay:
    """The recorded connections, opened again as they first show up."""

    def __init__(self, app: NamesrvApp) -> None:
        self.app = app
        self.peers: dict[str, Peer] = {}

    async def peer(self, name: str) -> Peer:
        if name not in self.peers:
            self.peers[name] = Peer(*await asyncio.open_connection(*self.app.address))
        return self.peers[name]

    async def close(self, name: str) -> None:
        """Close one, and wait until the nameserver has noticed."""
        noticed = asyncio.Event()
        self.app._server.on_close.append(lambda conn: noticed.set())
        peer = self.peers.pop(name)
        peer.writer.close()
        await peer.writer.wait_closed()
        await noticed.wait()
        self.app._server.on_close.pop()

    async def close_all(self) -> None:
        for peer in self.peers.values():
            peer.writer.close()
            await peer.writer.wait_closed()


@pytest.fixture
async def replay(tmp_path: Path) -> AsyncIterator[Replay]:
    settings = NamesrvSettings(
        listen_port=0,
        bind_address="127.0.0.1",
        kv_config_path=str(tmp_path / "kvConfig.json"),
        config_store_path=str(tmp_path / "namesrv.properties"),
    )
    async with NamesrvApp(World.real(), settings) as app:
        replay = Replay(app)
        await register_java_broker(await replay.peer("broker-a"))
        yield replay
        await replay.close_all()


async def register_java_broker(peer: Peer) -> None:
    """What the Java broker of the recorded run had registered before the first case."""
    queues = {"TBW102": (8, 7), "BenchmarkTest": (1024, 6), "SCHEDULE_TOPIC_XXXX": (18, 6)}
    topics = [
        *("TBW102", "BenchmarkTest", "SCHEDULE_TOPIC_XXXX", "OFFSET_MOVED_EVENT", "SELF_TEST_TOPIC", "DefaultCluster"),
        *("DefaultCluster_REPLY_TOPIC", "broker-a", "RMQ_SYS_TRANS_HALF_TOPIC"),
    ]
    table = {
        name: {
            "topicName": name,
            "readQueueNums": queues.get(name, (1, 6))[0],
            "writeQueueNums": queues.get(name, (1, 6))[0],
            "perm": queues.get(name, (1, 6))[1],
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
        }
        for name in topics
    }
    wrapper = {"dataVersion": {"counter": 1, "timestamp": 1_700_000_000_000}, "topicConfigTable": table}
    body = json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()
    ext = {"brokerName": "broker-a", "brokerAddr": "127.0.0.1:34070", "clusterName": "DefaultCluster"}
    ext |= {"haServerAddr": "127.0.0.1:34071", "brokerId": "0", "compressed": "false", "bodyCrc32": "0"}
    assert (await peer.ask(103, ext, body)).code == 0


async def test_the_recorded_cases_are_answered_alike(replay: Replay) -> None:
    problems = []
    for case in CASES:
        async with asyncio.timeout(100):
            problem = await run_case(replay, case)
        if problem:
            problems.append(f"{case['id']}: {problem}")
    assert not problems, "\n".join(problems)


def test_every_accepted_difference_names_a_case_and_is_told_to_users() -> None:
    known = {case["id"] for case in CASES}
    page = (ROOT / "docs/differences.md").read_text()
    for difference in ACCEPTED:
        assert set(difference.cases) <= known
        assert difference.why in page


async def run_case(replay: Replay, case: dict[str, Any]) -> str | None:
    for code, ext in STEPS_LEFT_OUT.get(case["id"], []):
        assert (await (await replay.peer("between")).ask(code, ext)).code == 0
    if case["id"] == "namesrv.close.route_after":
        await replay.close(next(c["client"] for c in CASES if c["id"] == "namesrv.close.register"))
    if case["id"] == "namesrv.hostile.nobody_then_version":
        ext = {"brokerName": "pb-h", "brokerAddr": "10.9.8.1:10911", "clusterName": "PbHost", "brokerId": "0"}
        registering = next(c["client"] for c in CASES if c["id"] == "namesrv.hostile.no_compressed")
        assert (await (await replay.peer(registering)).ask(103, ext)).code == 0
        await unregister(await replay.peer("between"), "pb-c", "10.9.9.4:10911")
    peer = await replay.peer(case["client"])
    request, response = case["request"], case["response"]
    if "raw" in request:
        return await run_raw(peer, case)
    body = body_bytes(request.get("body"))
    opaque = peer.send(request["code"], request.get("ext"), body, request["ser"], request.get("version", 401))
    difference = EXPECTED_OTHERWISE.get(case["id"])
    if response["outcome"] == "none" and difference is None:
        return await silent(peer)
    answer, keys = await peer.read()
    if answer.opaque != opaque:
        return f"opaque {answer.opaque}, not {opaque}"
    return compare(answer, keys, response, difference, case.get("volatile") or [])


async def unregister(peer: Peer, name: str, addr: str) -> None:
    ext = {"brokerName": name, "brokerAddr": addr, "clusterName": "PbCluster", "brokerId": "0"}
    assert (await peer.ask(104, ext)).code == 0


async def run_raw(peer: Peer, case: dict[str, Any]) -> str | None:
    data = raw_bytes(case)
    response = case["response"]
    difference = EXPECTED_OTHERWISE.get(case["id"])
    peer.writer.write(data)
    expected: list[Any] = response["frames"]
    if difference is not None and not expected:
        expected = [{"outcome": "none"}]
    for one in expected:
        answer, keys = await peer.read()
        problem = compare(answer, keys, one, difference, case.get("volatile") or [])
        if problem:
            return problem
    if response["closed"]:
        left = await peer.reader.read()
        if left[:1] == TLS_ALERT and case["id"] == "namesrv.frame.tls_hello":
            return None  # as Java's: the recording has frames alone
        return f"{len(left)} bytes before the connection was closed" if left else None
    return await silent(peer)


async def silent(peer: Peer) -> str | None:
    """Nothing more comes, and the connection still serves."""
    opaque = peer.send(106, None, b"", "JSON", 401)
    answer, _ = await peer.read()
    return None if answer.opaque == opaque and answer.code == 0 else f"answered {answer!r}"


def raw_bytes(case: dict[str, Any]) -> bytes:
    text = case["request"]["raw"]
    if "..." not in text:
        return bytes.fromhex(text)
    # The largest legal frame is recorded shortened: the header of the first case, then zeros.
    whole = bytes.fromhex(CASES[0]["request"]["raw"])
    return (0x00FFFFFC).to_bytes(4, "big") + whole[4:] + bytes(16_777_216 - len(whole))


def body_bytes(body: dict[str, str] | None) -> bytes:
    if body is None:
        return b""
    return base64.b64decode(body["base64"]) if "base64" in body else body["text"].encode()


def compare(
    answer: Command, keys: list[str] | None, java: dict[str, Any], difference: Difference | None, volatile: list[str]
) -> str | None:
    if difference is not None:
        if answer.code != difference.code or not re.fullmatch(difference.remark or "", answer.remark or ""):
            return f"{answer!r} is not the accepted difference"
        if difference.ext is not ANY and answer.ext != difference.ext:
            return f"ext {answer.ext}"
        return None if difference.body is None else compare_bodies(answer.body.decode(), difference.body, [])
    if answer.code != java["code"]:
        return f"code {answer.code} ({answer.remark}), not {java['code']}"
    if SerializeType[java["ser"]] != answer.serialize:
        return f"serialised as {answer.serialize}, not {java['ser']}"
    if answer.remark != java["remark"] and not failed_to_decode(answer.remark, java["remark"]):
        return f"remark {answer.remark!r}, not {java['remark']!r}"
    if answer.ext != java["ext"]:
        return f"ext {answer.ext}, not {java['ext']}"
    if keys is not None and "header_keys" in java and keys != java["header_keys"]:
        return f"header keys {keys}, not {java['header_keys']}"
    return compare_bodies(answer.body.decode(), body_bytes(java.get("body")).decode(), volatile)


def failed_to_decode(ours: str | None, java: str | None) -> bool:
    """Java's remark holds its exception and stack frame: the gist is what a client may read."""
    gist = "Failed to decode RegisterBrokerBody"
    return gist in (java or "") and (ours or "").startswith(gist)


def compare_bodies(ours: str, java: str, volatile: list[str]) -> str | None:
    if ours == java:
        return None
    masked = {name.removeprefix("json.") for name in volatile if name.startswith("json.")}
    if java.startswith("{"):
        unquoted = re.compile(r"[{,]\d+:")
        if bool(unquoted.search(ours)) != bool(unquoted.search(java)):
            return f"keys are quoted otherwise: {ours} / {java}"
        left, right = (plain(fastjson.loads(text.encode())) for text in (ours, java))
        for name in masked:
            left.pop(name, None)
            right.pop(name, None)
        return None if left == right else f"body {ours}, not {java}"
    left, right = (dict(line.split("=", 1) for line in text.splitlines()) for text in (ours, java))
    missing = [key for key in right if key not in left]
    other = [key for key in right if key in left and left[key] != right[key] and key not in masked]
    return f"missing {missing}, other values {other}" if missing or other else None


def plain(value: Any) -> Any:
    """Lists without their order: Java's come in hash order."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted((plain(item) for item in value), key=repr)
    return value
