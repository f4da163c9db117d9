"""One request is one request: whatever breaks inside the broker for one of a tick, its neighbours hear nothing of it.

A bug is planted that one of them steps on; requests of several connections come in one tick.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from rmq.broker.delivery.checks import PullChecks
from rmq.broker.delivery.moved import OffsetMovedEvents
from rmq.broker.delivery.pull import Delivery
from rmq.broker.delivery.read import Reader
from rmq.broker.lane.admit import Admission
from rmq.broker.lane.answers import SendAnswers
from rmq.broker.lane.topic_lane import TopicLane
from rmq.broker.schedule.service import ScheduleService
from rmq.broker.store.log import append
from rmq.broker.store.log.durability import Durability
from rmq.broker.store.store import Store
from rmq.protocol import batch, frame
from rmq.protocol.command import Command, SerializeType
from rmq.testing.simworld import Simulation
from tests.support.odd import requests as odd_requests
from tests.support.odd.campaign import Campaign, Line
from tests.support.raw_peer import pull, send, subscribe
from tests.support.virtual import in_virtual_time

INTERNAL = "internal error while handling request code"


class Tick:
    """Several connections whose requests arrive together."""

    def __init__(self, made: Campaign, lines: list[Line]) -> None:
        self.made = made
        self.lines = lines
        self._opaque = 0

    async def ask(self, *commands: Command, seconds: float = 5.0) -> list[Command | None]:
        """One request a connection, all in one tick."""
        opaques = []
        for line, command in zip(self.lines, commands, strict=False):
            self._opaque += 1
            command.opaque = self._opaque
            opaques.append(command.opaque)
            line.transport.write(frame.encode(command))
        return [
            await line.answer(opaque, seconds if not command.is_oneway else 0.01)
            for line, opaque, command in zip(self.lines, opaques, commands, strict=False)
        ]

    async def codes(self, *commands: Command) -> list[int | None]:
        return [None if answer is None else answer.code for answer in await self.ask(*commands)]

    async def max_offset(self, topic: str = "T", queue: int = 0) -> int:
        [answer] = await self.ask(Command(30, ext={"topic": topic, "queueId": str(queue)}))
        assert answer is not None
        assert answer.ext is not None
        return int(answer.ext["offset"] or "")

    def nobody_is_cut_off(self) -> None:
        assert not any(line.lost for line in self.lines)


class Rig(AbstractAsyncContextManager[Tick]):
    def __init__(self, **settings: str) -> None:
        self._made = Campaign(Simulation(1).node("one"), settings)

    async def __aenter__(self) -> Tick:
        await self._made.__aenter__()
        tick = Tick(self._made, [await self._made.line(self._made.broker) for _ in range(5)])
        await tick.ask(send())
        await tick.ask(subscribe())
        return tick

    async def __aexit__(self, *_: object) -> None:
        await self._made.__aexit__()


def stumbles(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, when: Callable[..., bool]) -> None:
    """Plant a bug: the function raises when its arguments are such."""
    sound = getattr(where, name)

    def broken(*arguments: Any, **named: Any) -> Any:
        if when(*arguments, **named):
            raise ZeroDivisionError("planted")
        return sound(*arguments, **named)

    monkeypatch.setattr(where, name, broken)


def bad(puts: list[Any]) -> bool:
    return any(put[1] == b"BAD" for put in puts)


@in_virtual_time
async def test_a_send_whose_admission_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    stumbles(monkeypatch, Admission, "admit", lambda _, conn, header, body, *others: body == b"BAD")
    async with Rig() as tick:
        slow = "DELAY\x010\x02"  # what the fast branch leaves to the admission
        answers = await tick.ask(send(), send(body=b"BAD", props=slow), send(), send(props=slow), pull())
        assert [answer.code for answer in answers if answer] == [0, 1, 0, 0, 0]
        assert answers[1] is not None
        assert answers[1].remark == f"{INTERNAL} 310"
        tick.nobody_is_cut_off()
        assert await tick.max_offset() == 4


@in_virtual_time
async def test_a_plain_send_that_breaks_on_the_fast_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    stumbles(monkeypatch, TopicLane, "tag_code", lambda _, tag: tag in ("BAD", b"BAD"))
    async with Rig() as tick:
        assert await tick.codes(send(), send(props="TAGS\x01BAD\x02"), send(), pull(), send()) == [0, 1, 0, 0, 0]
        tick.nobody_is_cut_off()
        assert await tick.max_offset() == 4


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@in_virtual_time
async def test_a_message_that_cannot_be_packed(monkeypatch: pytest.MonkeyPatch, flush: str) -> None:
    stumbles(monkeypatch, append, "crc32", lambda body, *_: body == b"BAD")
    async with Rig(flushDiskType=flush) as tick:
        answers = await tick.ask(send(body=b"1"), send(body=b"BAD"), send(body=b"3"), send(body=b"4"), pull(offset=1))
        assert [answer.code for answer in answers if answer][:4] == [0, 1, 0, 0]
        # They come over five connections, in any order.
        stored = {(answer.ext or {})["queueOffset"] for answer in answers[:4] if answer and not answer.code}
        assert stored == {"1", "2", "3"}
        assert answers[1] is not None
        assert answers[1].remark == f"{INTERNAL} 310"
        tick.nobody_is_cut_off()
        assert await tick.max_offset() == 4
        # Nothing is half there: what comes next goes on behind it, and a restart finds the same.
        assert await tick.codes(send()) == [0]
        await tick.made.restart()
        assert not [fault for fault in tick.made.found if "planted" not in fault]


@in_virtual_time
async def test_what_is_stored_before_a_message_that_cannot_be_packed_is_stored_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A queue that is sent to and named by other messages of the tick divides the append in two."""
    stumbles(monkeypatch, append, "crc32", lambda body, *_: body == b"BAD")
    async with Rig(enableMultiDispatch="true") as tick:
        await tick.ask(send("U"))
        both = "INNER_MULTI_DISPATCH\x01U\x02"
        assert await tick.codes(send(props=both), send("U", b"BAD"), send("U"), send(), pull()) == [0, 1, 0, 0, 0]
        assert [await tick.max_offset(), await tick.max_offset("U")] == [3, 3]
        tick.nobody_is_cut_off()


@in_virtual_time
async def test_a_message_too_large_for_a_file_of_the_log() -> None:
    async with Rig(mappedFileSizeCommitLog="65536") as tick:
        large = send(body=bytes(70_000))
        assert await tick.codes(send(), large, send(), send()) == [0, 13, 0, 0]
        assert await tick.max_offset() == 4


@in_virtual_time
async def test_an_answer_that_cannot_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    stumbles(monkeypatch, SendAnswers, "stored_command", lambda _, code, request, *__: request.body == b"BAD")
    async with Rig() as tick:
        binary = [send(body=body) for body in (b"1", b"BAD", b"3")]
        for command in binary:
            command.serialize = SerializeType.ROCKETMQ
        assert await tick.codes(send(), *binary, pull()) == [0, 0, 1, 0, 0]
        tick.nobody_is_cut_off()
    async with Rig(flushDiskType="SYNC_FLUSH") as tick:
        assert await tick.codes(send(), *binary, pull()) == [0, 0, 1, 0, 0]
        tick.nobody_is_cut_off()


@in_virtual_time
async def test_a_batch_that_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    stumbles(monkeypatch, Store, "append", lambda _, puts, *__, together=False, **___: together and bad(puts))
    async with Rig() as tick:

        def many(*bodies: bytes) -> Command:
            command = send(body=batch.encode([(0, body, {}) for body in bodies]))
            command.code = 320
            command.ext = {**(command.ext or {}), "m": "true"}
            return command

        bodies = [b"x"] * 1_500
        assert await tick.codes(send(), many(b"1", b"BAD"), many(b"2"), many(*bodies, b"BAD"), many(*bodies)) == [
            0, 1, 0, 1, 0,
        ]  # fmt: skip
        tick.nobody_is_cut_off()
        assert await tick.max_offset() == 1503


@in_virtual_time
async def test_a_pull_that_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    stumbles(monkeypatch, PullChecks, "check", lambda _, conn, fields: fields.consumer_group == "BAD")
    async with Rig() as tick:
        answers = await tick.ask(pull(), pull("BAD"), send(), pull(), Command(30, ext={"topic": "T", "queueId": "0"}))
        assert [answer.code for answer in answers if answer] == [0, 1, 0, 0, 0]
        assert answers[1] is not None
        assert answers[1].remark == f"{INTERNAL} 11"
        tick.nobody_is_cut_off()


@in_virtual_time
async def test_parked_pulls_that_break_when_they_are_woken_or_their_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    stumbles(monkeypatch, Reader, "scan", lambda _, queue, offset, most, wants: most == 31 and queue.visible > 1)

    def parked(offset: int) -> list[Command]:
        made = [pull(offset=offset, hold_ms=5_000) for _ in range(4)]
        for command in made[::2]:
            command.ext = {**(command.ext or {}), "maxMsgNums": "31"}
        return made

    async with Rig() as tick:
        waiting = asyncio.create_task(tick.ask(*parked(1)))
        await asyncio.sleep(1)
        other = Tick(tick.made, tick.lines[4:])
        assert await other.codes(send()) == [0]
        assert [answer.code for answer in await waiting if answer] == [1, 0, 1, 0]
        monkeypatch.undo()
        stumbles(monkeypatch, Delivery, "_give_up", lambda _, hold: hold.pull.fields.max_msg_nums == 31)
        assert [answer.code for answer in await tick.ask(*parked(2), seconds=10.0) if answer] == [1, 19, 1, 19]
        tick.nobody_is_cut_off()


@in_virtual_time
async def test_an_event_that_cannot_be_written_costs_no_pull(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Rig() as tick:
        # 34 KB of properties would fit no record.
        assert await tick.codes(pull("g" * 17_000, offset=99), pull(), send(), pull(offset=99)) == [1, 0, 0, 21]
        tick.nobody_is_cut_off()
        stumbles(monkeypatch, OffsetMovedEvents, "_add", lambda *_: True)
        assert await tick.codes(pull(offset=99), pull(), send()) == [21, 0, 0]
        tick.nobody_is_cut_off()


@in_virtual_time
async def test_what_is_woken_by_an_append_does_not_undo_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stumbles(monkeypatch, ScheduleService, "arrived", lambda *_: True)
    async with Rig() as tick:
        assert await tick.codes(send(), send(), pull()) == [0, 0, 0]
        assert await tick.max_offset() == 3


@in_virtual_time
async def test_answers_released_by_a_failed_flush_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[object] = []
    durability = Durability(sync_flush=True)

    def never(code: int) -> list[Any]:
        raise ZeroDivisionError("planted")

    durability.hold(10, 1, 5.0, 5.0, [], never)
    durability.hold(20, 1, 5.0, 5.0, [], lambda code: [("conn", b"%d" % code)])
    released += durability.on_tick(6.0)
    assert released == [("conn", b"10")]


@in_virtual_time
async def test_a_remark_that_grows_is_no_end_of_a_connection() -> None:
    """60,000 times U+007F takes six times as many bytes in the JSON of the remark that repeats it."""
    async with Rig() as tick:
        long = "\x7f" * 60_000
        for line, (code, field) in zip(tick.lines, ((11, "topic"), (310, "b"), (351, "topic")), strict=False):
            odd = odd_requests.made(code, odd_requests.fields(code) | {field: long}, b"", "long")
            assert odd is not None
            line.transport.write(odd.data)
        found = [await line.answer(7, 5.0) for line in tick.lines[:3]]
        assert [answer.code for answer in found if answer] == [1, 1, 1]
        assert await tick.codes(*[send() for _ in tick.lines]) == [0] * 5
        tick.nobody_is_cut_off()


@pytest.mark.parametrize("serialize", list(SerializeType))
@in_virtual_time
async def test_a_batch_of_nine_thousand_is_answered_with_its_ids(serialize: SerializeType) -> None:
    """As a Java broker answers it; more ids than the header of a request may hold."""
    async with Rig() as tick:
        many = send(body=batch.encode([(0, b"", {})] * 9_000))
        many.code = 320
        many.ext = {**(many.ext or {}), "m": "true"}
        many.serialize = serialize
        answers = await tick.ask(many, send(), send(), pull(), pull())
        assert [answer.code for answer in answers if answer] == [0, 0, 0, 0, 0]
        tick.nobody_is_cut_off()
        assert answers[0] is not None
        assert answers[0].ext is not None
        ids = (answers[0].ext["msgId"] or "").split(",")
        assert len(set(ids)) == 9_000
        assert await tick.max_offset() == 9_003


@in_virtual_time
async def test_prepared_without_a_transaction_is_there_after_a_restart() -> None:
    """A record with the bits of a half message is in no queue for a recovery: it must not be in one before."""
    async with Rig() as tick:
        odd = send(body=b"odd")
        odd.ext = {**(odd.ext or {}), "f": "4"}
        assert await tick.codes(odd, send()) == [0, 0]
        await tick.made.restart()
        assert tick.made.found == []
        tick.lines[0] = await tick.made.line(tick.made.broker)
        assert await tick.max_offset() == 3
        [answer] = await tick.ask(pull())
        assert answer is not None
        assert answer.body.count(b"odd") == 1


@pytest.mark.parametrize("invisible", ["-1", "-9223372036854775808", "9223372036854775807"])
@pytest.mark.parametrize("order", ["false", "true"])
@in_virtual_time
async def test_a_pop_for_a_time_that_is_none_is_understood_by_a_restart(invisible: str, order: str) -> None:
    async with Rig() as tick:
        ext = odd_requests.fields(200050) | {"invisibleTime": invisible, "order": order}
        [answer] = await tick.ask(Command(200050, ext=ext))
        assert answer is not None
        assert (answer.code, (answer.ext or {})["invisibleTime"]) == (0, invisible)
        await tick.made.restart()
        assert tick.made.found == []
