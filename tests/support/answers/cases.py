"""The same requests to a running Java server and to ours: what is asked, how answers are compared.

Requests are those of the recorded runs (tests/golden), and spoilt copies of them: without a field, with names nobody
knows, with numbers out of range, with bodies that are no JSON. What varies from run to run is replaced by its type.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rmq.protocol import fastjson
from rmq.protocol.codes import Language
from rmq.protocol.command import Command, SerializeType
from rmq.protocol.ids import decode_offset_msg_id, offset_msg_id
from tests.golden.broker.live import Listed
from tests.support.answers.differences import Differences, differences
from tests.support.answers.replay import CASES, Peer, body_of
from tests.support.answers.steps import obliging
from tests.support.dispatched import dispatched

__all__ = ["LATE_S", "Ask", "Pair", "Report", "Side", "asked", "spoilt"]

#: Longer than a Java broker needs for an answer, shorter than it takes to give up.
PATIENCE_S = 2.0
#: For the answer that the other side has given already, and for what is sent: a JVM on a busy machine.
LATE_S = 60.0
#: What pulls are held for, but for those with this limit, whose message does not come here: neither side answers them.
_HELD_S = 7.0
_HELD_IN_VAIN = "15000"
_NAMES = frozenset({"topic", "b", "group", "consumerGroup", "producerGroup", "groupName", "srcGroup", "destGroup", "a"})
#: After these Java has something to put into a queue.
_SENDS = frozenset({10, 36, 37, 310, 320})
#: Asked again when the sides differ: what Java does some time after its answer. 28 dies until Java has sampled its
#: figures for the first time, a second after its start.
_READS = frozenset(
    {11, 12, 14, 21, 28, 29, 30, 31, 32, 33, 38, 200, 201, 202, 203, 204, 208, 300, 303, 317, 321, 400, 105, 106, 206}
)


@dataclass(frozen=True)
class Ask:
    """One request; ``spoilt`` tells what was done to it."""

    id: str
    code: int
    ext: Mapping[str, str | None] | None = None
    body: bytes = b""
    client: str = "c"
    flag: int = 0
    remark: str | None = None
    language: str = "JAVA"
    version: int = 401
    serialize: str = "JSON"
    masked: frozenset[str] = frozenset()
    spoilt: str | None = None
    recorded_ids: str | None = None
    #: The recorded run had no answer.
    silent: bool = False
    #: Not asked again when the sides differ: nothing is on its way.
    settled: bool = False

    def command(self, side: Side) -> Command:
        return Command(
            self.code,
            ext=side.translated(self.ext, self.code),
            body=side.filled(self.body),
            flag=self.flag,
            remark=self.remark,
            language=Language[self.language],
            version=self.version,
            serialize=SerializeType[self.serialize],
        )


def asked(case: dict[str, Any]) -> Ask | None:
    """A recorded case as a question; None for raw bytes and for what the broker sends by itself."""
    request = case["request"]
    if "raw" in request or request.get("wait"):
        return None
    response = case["response"]
    return Ask(
        case["id"],
        request["code"],
        request.get("ext"),
        body_of(request.get("body")),
        case["client"],
        request.get("flag", 0),
        request.get("remark"),
        request.get("language", "JAVA"),
        request.get("version", 401),
        request.get("ser", "JSON"),
        frozenset(case.get("volatile") or ()),
        recorded_ids=(response.get("ext") or {}).get("msgId"),
        silent=response["outcome"] == "none",
    )


def _but(ask: Ask, what: str, *, ext: Mapping[str, str | None] | None, body: bytes) -> Ask:
    return Ask(
        f"{ask.id} {what}", ask.code, ext, body, ask.client, 0, None, ask.language, ask.version, ask.serialize,
        ask.masked, what,
    )  # fmt: skip


def spoilt(ask: Ask) -> Iterator[Ask]:
    """A request and what is wrong with it, one thing at a time."""
    ext = dict(ask.ext or {})
    for name, value in ext.items():
        without = {other: text for other, text in ext.items() if other != name}
        yield _but(ask, f"without {name}", ext=without, body=ask.body)
        if name in _NAMES:
            for text in ("NOBODY_KNOWS", "bad name!", "", "x" * 250):
                if (ask.code, name, text) == (15, "consumerGroup", ""):
                    continue  # Java stores the offset under the name "", and does not find it again
                yield _but(ask, f"{name}={text[:12]!r}", ext=ext | {name: text}, body=ask.body)
        elif value is not None and re.fullmatch(r"-?\d+", value):
            for text in ("-1", "77", "99999", "zz"):
                bad = _but(ask, f"{name}={text}", ext=ext | {name: text}, body=ask.body)
                # A send to queue -1 leaves the choice to the broker.
                yield replace(bad, masked=bad.masked | {"ext.queueId"}) if text == "-1" else bad
        elif value in ("true", "false"):
            yield _but(ask, f"{name}=maybe", ext=ext | {name: "maybe"}, body=ask.body)
    if ext:
        yield _but(ask, "without fields", ext=None, body=ask.body)
    if ask.body.startswith(b"{"):
        for broken in (b"", b"{", b"[]", b"null", b"{}"):
            yield _but(ask, f"body {broken.decode()!r}", ext=ask.ext, body=broken)
        try:
            members: Any = fastjson.loads(ask.body)
        except ValueError:
            return
        for member in members:
            if (ask.code, member) == (34, "clientID"):
                continue  # Java keeps a client without a name, and dies of it when it happens to come upon it
            kept = {name: value for name, value in members.items() if name != member}
            yield _but(ask, f"body without {member}", ext=ask.ext, body=fastjson.dumps(kept))


class Side:
    """One server, its connections, and where the recorded messages lie in it.

    The steps of tests/support/answers/steps.py that only ask take it for a replay.
    """

    def __init__(self, address: str) -> None:
        self.cases = {case["id"]: case for case in CASES}
        #: Values that a request names as ``@name``: receipt handles.
        self.known: dict[str, str] = {}
        host, port = address.split(":")
        self.where = (host, int(port))
        self._peers: dict[str, Peer] = {}
        self._offsets: dict[int, int] = {}
        self._unanswered: asyncio.Future[Command] | None = None

    async def peer(self, name: str) -> Peer:
        if name not in self._peers:
            peer = self._peers[name] = Peer(*await asyncio.open_connection(*self.where, limit=32 << 20))
            peer.answerer = obliging
        return self._peers[name]

    async def ask(self, ask: Ask, patience_s: float = PATIENCE_S) -> Command | None:
        """The answer; None when there is none, or the connection was closed."""
        peer = await self.peer(ask.client)
        future = peer.answers[peer.send(ask.command(self))]
        ended = asyncio.ensure_future(peer.ended.wait())
        either: set[asyncio.Future[Any]] = {future, ended}
        await asyncio.wait(either, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if peer.ended.is_set() and self._peers.pop(ask.client, None) is not None:
            await peer.close()
        self._unanswered = None if future.done() or peer.ended.is_set() else future
        return self._learned(ask, future.result()) if future.done() else None

    async def late(self, ask: Ask) -> Command | None:
        """The answer that did not come in time, which the other side has given."""
        if self._unanswered is not None:
            await asyncio.wait({self._unanswered}, timeout=LATE_S)
            if self._unanswered.done():
                return self._learned(ask, self._unanswered.result())
        return None

    async def dispatched(self) -> None:
        """Wait until what was sent is in its queues."""
        await dispatched((await self.peer("dispatched")).ask)

    async def until(self, ask: Ask, part: bytes) -> None:
        """Wait until the body of an answer has something in it that the server comes to know by itself."""
        for _ in range(200):
            answer = await self.ask(ask, LATE_S)
            if answer is not None and part in answer.body:
                return
            await asyncio.sleep(0.5)
        raise AssertionError(f"{ask.id}: {part!r} does not come")

    async def close(self) -> None:
        for peer in self._peers.values():
            await peer.close()

    def _learned(self, ask: Ask, answer: Command) -> Command:
        recorded, came = ask.recorded_ids, (answer.ext or {}).get("msgId")
        if recorded and came and len(recorded) >= 32:
            for one, other in zip(recorded.split(","), came.split(","), strict=False):
                self._offsets[decode_offset_msg_id(one)[2]] = decode_offset_msg_id(other)[2]
        return answer

    def filled(self, body: bytes) -> bytes:
        """A body with the numbers that stand for ``"@name"`` in it."""
        if b'"@' in body:
            for name, value in self.known.items():
                body = body.replace(f'"@{name}"'.encode(), value.encode())
        return body

    def translated(self, ext: Mapping[str, str | None] | None, code: int) -> dict[str, str | None] | None:
        """The fields with this side's commit-log offsets."""
        if ext is None:
            return None
        made = {
            name: self.known.get(value[1:], value) if value and value[0] == "@" else value
            for name, value in ext.items()
        }
        for name in ("offset", "commitLogOffset"):
            value = made.get(name) or ""
            if code in (33, 36, 37) and value.isdigit():
                made[name] = str(self._offsets.get(int(value), int(value)))
        for name in ("msgId", "originMsgId"):
            value = made.get(name) or ""
            if code in (309, 323) and re.fullmatch(r"[0-9A-F]{32}", value):
                host, _, offset = decode_offset_msg_id(value)
                made[name] = offset_msg_id(host, self.where[1], self._offsets.get(offset, offset))
        return made


class Report:
    """How many cases were compared with a server, and which of them differ.

    :param version: of the server, as it is told to readers.
    :param listed: the accepted differences.
    """

    def __init__(self, version: str, listed: Listed) -> None:
        self.version = version
        self.compared = 0
        self.accepted: Counter[str] = Counter()
        #: Case and what differs, of what is not listed.
        self.problems: list[tuple[str, Differences]] = []
        self.codes: set[int] = set()
        self._listed = listed

    def why(self, ask: Ask, differs: Differences) -> str | None:
        return self._listed.why(ask.id, differs)

    def line(self) -> str:
        return (
            f"answers: {self.compared} cases of {len(self.codes)} request codes compared with Java {self.version}: "
            f"{self.accepted.total()} differ as listed, {len(self.problems)} otherwise"
        )

    def faults(self) -> list[str]:
        """What makes the comparison fail: differences, in the form of the list, and lines that say what is not so."""
        found = [json.dumps({"why": "", "differs": differs, "cases": [case]}) for case, differs in self.problems]
        differing = {case for case, _ in self.problems}
        return found + [f"{case}: listed, but alike" for case in self._listed.unseen() if case not in differing]


class Pair:
    """A Java server and ours, asked alike."""

    def __init__(self, java: Side, ours: Side, report: Report) -> None:
        self.java = java
        self.ours = ours
        self.report = report

    async def compare(self, ask: Ask) -> tuple[Command | None, Command | None]:
        """Ask both and note what differs; the last two answers."""
        patience_s = 0.4 if ask.silent else LATE_S if ask.recorded_ids else PATIENCE_S
        if ask.code == 11 and not ask.silent and (ask.ext or {}).get("suspendTimeoutMillis") != _HELD_IN_VAIN:
            patience_s = max(patience_s, _HELD_S)
        why = None
        for attempt in range(30):
            java, ours = await asyncio.gather(self.java.ask(ask, patience_s), self.ours.ask(ask, patience_s))
            differs = differences(java, ours, ask.masked)
            why = self.report.why(ask, differs) if differs else None
            if differs and not why and not ask.silent and (java is None) is not (ours is None):
                java, ours = java or await self.java.late(ask), ours or await self.ours.late(ask)
                differs = differences(java, ours, ask.masked)
                why = self.report.why(ask, differs) if differs else None
            if not differs or why or ask.settled or ask.code not in _READS:
                break
            await asyncio.sleep(0.05 * attempt)
        if ask.code in _SENDS and java is not None:
            await self.java.dispatched()
        self.report.compared += 1
        self.report.codes.add(ask.code)
        if why:
            self.report.accepted[why] += 1
        elif differs:
            self.report.problems.append((ask.id, differs))
        return java, ours

    async def silent(self, asks: Sequence[Ask]) -> None:
        """Compare what nobody answers: the silence is waited for once."""
        for side in (self.java, self.ours):
            for client in {ask.client for ask in asks}:
                await side.peer(client)
        await asyncio.gather(*map(self.compare, asks))

    async def close(self) -> None:
        await self.java.close()
        await self.ours.close()
