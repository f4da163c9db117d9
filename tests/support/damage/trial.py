"""One trial: a damaged store is started in one way, read by two consumers, checked, read and written again."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

from rmq.client.decode import decode_pulled
from rmq.client.message import MessageQueue
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.errors import StoreError
from rmq.protocol.headers.pull import PullMessageResponse
from rmq.protocol.headers.send import SendMessageRequest, SendMessageResponse
from rmq.protocol.message import decode_records
from rmq.testing.simloop import run
from tests.support.damage.damages import CHECKSUMS, Damage
from tests.support.damage.stored import QUEUES, Stored, Where
from tests.support.damage.ways import Way, rebuilt, verified
from tests.support.raw_peer import pull
from tests.support.scenes.pop import PopScene

__all__ = ["Finding", "tried"]


class Finding(NamedTuple):
    """One thing that is not as it should be.

    :param what: of a kind: ``lost``, ``not sent``, ``twice``, ``still``, ``again``, ``untold``, ``refused``.
    """

    what: str
    told: str


#: Offset -> bodies that a consumer of a queue was given for it.
Given = dict[int, list[bytes]]
#: Pulls of one read of a queue, beyond which it stands still.
_PULLS: Final = 200
#: What is damaged may be all that a start is made of: it may refuse, and say why.
_MAY_REFUSE = frozenset({"small", "log"})


def tried(stored: Stored, damage: Damage, way: Way) -> list[Finding]:
    """What is wrong after one case of damage and one way of a start; empty: everything is as it should be."""
    usual = _said_anyway.get(way.name)
    if usual is None:
        unhurt = Damage("nothing", "small", {})
        usual = _said_anyway[way.name] = {*_trial(stored, unhurt, way, set(), [])}
    found: list[Finding] = []
    _trial(stored, damage, way, usual, found)
    return found


#: Way -> what the log says in it without any damage.
_said_anyway: dict[str, set[str]] = {}


def _trial(stored: Stored, damage: Damage, way: Way, usual: set[str], found: list[Finding]) -> list[str]:
    """One trial; what the log said that is not usual."""
    told = _Told(usual)

    async def main() -> None:
        scene = stored.scene(way.left(damage.done(stored.files)), same_boot=way.same_boot)
        try:
            await _Trial(scene, stored, damage, way, told, found).run()
        finally:
            await scene.client.close()

    run(main())
    return told.lines


class _Told(logging.Handler):
    """What the log says at warning level and above.

    :param usual: is not told.
    """

    def __init__(self, usual: set[str]) -> None:
        super().__init__(logging.WARNING)
        self._usual = usual
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if (line := record.getMessage()) not in self._usual:
            self.lines.append(line)


class _Trial:
    def __init__(
        self, scene: PopScene, stored: Stored, damage: Damage, way: Way, told: _Told, found: list[Finding]
    ) -> None:
        self._scene = scene
        self._stored = stored
        self._damage = damage
        self._way = way
        self._found = found
        self._told = told
        #: Entries may be passed over until they are mended.
        self._may_miss = damage.records | damage.entries

    async def run(self) -> None:
        logger = logging.getLogger("rmq")
        logger.addHandler(self._told)
        try:
            await self._run()
        finally:
            logger.removeHandler(self._told)

    async def _run(self) -> None:
        scene, damage = self._scene, self._damage
        tool_told = False
        if self._way.tool == "verify":
            tool_told = not (await verified(scene.node)).clean
            if not tool_told and self._is_to_be_told():
                self._add("untold", "verify finds nothing")
        try:
            if self._way.tool == "rebuild":
                tool_told = await rebuilt(scene.node)
            await scene.start()
        except StoreError as error:
            if damage.kind not in _MAY_REFUSE:
                self._add("refused", f"no start: {error}")
            return
        try:
            await self._read(self._may_miss, "at the start", (False, True))
            scene.app.store.settings.scrub_rate_mib = 100
            await scene.app.store.scrub.run()
            await self._read(damage.records, "after a pass of the scrub", (False,))
            await self._write()
            if not self._told.lines and not (self._way.tool == "rebuild" and tool_told) and self._is_to_be_told():
                self._add("untold", "told by nobody")
        finally:
            await scene.app.stop()

    def _is_to_be_told(self) -> bool:
        """What nothing knows of cannot be told, nor what makes no difference: tables have backups, notes are hints."""
        damage = self._damage
        proven = not damage.records or damage.records - self._stored.unproven
        unseen = damage.unseen and self._way.lost(CHECKSUMS)
        return bool(proven) and not unseen and damage.kind != "small"

    def _add(self, what: str, told: str) -> None:
        self._found.append(Finding(what, told))

    async def _read(self, may_miss: frozenset[Where], when: str, consumers: Sequence[bool]) -> None:
        for topic, queue_id in QUEUES:
            expected = self._stored.of(topic, queue_id)
            for checks in consumers:
                name = "our SDK" if checks else "a Java client"
                given = await self._consumed(topic, queue_id, checks=checks)
                for offset, bodies in given.items():
                    body = expected[offset].body if offset in expected else None
                    if any(one != body for one in bodies):
                        self._add(
                            "not sent", f"{when}, {name} is given what was not sent at {topic}-{queue_id} {offset}"
                        )
                    elif len(bodies) > 1:
                        self._add("twice", f"{when}, {name} is given {topic}-{queue_id} {offset} {len(bodies)} times")
                lost = [at for at in expected if at not in given and (topic, queue_id, at) not in may_miss]
                if lost:
                    self._add("lost", f"{when}, {name} is not given {topic}-{queue_id} {_ranges(lost)}")

    async def _consumed(self, topic: str, queue_id: int, *, checks: bool, offset: int = 0) -> Given:
        """Everything from an offset of a queue on, as a consumer takes it.

        :param checks: as our SDK: each record is compared, and a bad one asked for alone. Else as Java's client, which
            believes the answer up to the first record that cannot be read, and goes on where the broker says.
        """
        given: Given = {}
        queue = MessageQueue(topic, "b", queue_id)
        most = 32
        for _ in range(_PULLS):
            request = pull("reader", topic, offset, queue=queue_id)
            assert request.ext is not None
            request.ext["maxMsgNums"] = str(most)
            answer = await self._scene.client.request(self._scene.addr, request, 60.0)
            if answer.code not in _OUTCOMES:
                self._add(
                    "refused", f"a pull of {topic}-{queue_id} at {offset} is answered {answer.code} {answer.remark}"
                )
                return given
            following = answer.header(PullMessageResponse)
            begin, offset = offset, following.next_begin_offset
            if answer.code != ResponseCode.SUCCESS:
                if offset == begin:
                    return given
                continue
            if not checks:
                for record in decode_records(answer.body):
                    given.setdefault(record.queue_offset, []).append(record.body)
                continue
            messages, why = decode_pulled(answer.body, queue, begin, offset)
            for message in messages:
                given.setdefault(message.queue_offset, []).append(message.body)
            if why is not None:
                if messages:
                    offset = messages[-1].queue_offset + 1
                elif most > 1:
                    offset, most = begin, 1
                    continue
                else:
                    offset = max(offset, begin + 1)
            most = 32
        self._add("still", f"{topic}-{queue_id} stands still at {offset}")
        return given

    async def _write(self) -> None:
        """New messages come behind all that were acknowledged, and are found there."""
        unknown = self._damage.records & self._stored.unproven
        for topic, queue_id in QUEUES:
            header = SendMessageRequest(
                producer_group="pg", topic=topic, default_topic="TBW102", default_topic_queue_nums=1,
                queue_id=queue_id, sys_flag=0, born_timestamp=1, flag=0, properties="", reconsume_times=0,
                unit_mode=False, batch=False, max_reconsume_times=None,
            )  # fmt: skip
            answer = await self._scene.ask(RequestCode.SEND_MESSAGE, header, b"new")
            if answer.code != ResponseCode.SUCCESS:
                self._add("refused", f"a send to {topic}-{queue_id} is answered {answer.code} {answer.remark}")
                continue
            offset = answer.header(SendMessageResponse).queue_offset
            known = [at for at in self._stored.of(topic, queue_id) if (topic, queue_id, at) not in unknown]
            if offset <= (last := max(known)):
                self._add("again", f"offset {offset} of {topic}-{queue_id} is used again, {last} was the last")
            elif b"new" not in (await self._consumed(topic, queue_id, checks=True, offset=offset)).get(offset, []):
                self._add("lost", f"the new message of {topic}-{queue_id} at {offset} is not found")


_OUTCOMES = frozenset({
    ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
})  # fmt: skip


def _ranges(offsets: Sequence[int]) -> str:
    """Offsets, those in a row by their ends."""
    parts: list[list[int]] = []
    for offset in sorted(offsets):
        if parts and parts[-1][1] == offset - 1:
            parts[-1][1] = offset
        else:
            parts.append([offset, offset])
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in parts)
