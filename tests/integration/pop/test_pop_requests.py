"""The requests of POP one by one: waiting, filters, order, notification, batches of acks, refusals, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from rmq.broker.pop.checks import Checks
from rmq.protocol.bodies.pop import BatchAck, BatchAckMessageRequestBody, bit_set
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.errors import StoreError
from rmq.protocol.headers.pop import (
    NotificationRequest,
    NotificationResponse,
    PeekMessageRequest,
    PollingInfoRequest,
    PollingInfoResponse,
    PopMessageResponse,
)
from rmq.protocol.headers.topic import DeleteTopicRequest
from rmq.protocol.message import decode_records
from tests.support.raw_peer import pull
from tests.support.scenes.pop import Given, PopScene, pop_scene
from tests.support.turns import Turns
from tests.support.virtual import eventually, in_virtual_time

NOT_FOUND, NO_MESSAGE, POLLING_FULL, POLLING_TIMEOUT = 19, 208, 209, 210


def bodies(messages: list[Given]) -> list[str]:
    return [message.body for message in messages]


@in_virtual_time
async def test_a_request_waits_for_a_message_and_only_for_its_time() -> None:
    async with pop_scene() as scene:
        await scene.topic(queues=4)
        loop = asyncio.get_running_loop()
        began = loop.time()
        answer = await scene.pop_answer(poll_time=5_000)
        assert answer.code == POLLING_TIMEOUT
        assert 4.9 < loop.time() - began < 5.1
        assert (await scene.pop_answer()).code == POLLING_TIMEOUT
        began = loop.time()
        waiting = asyncio.create_task(scene.pop(poll_time=15_000), name="client")
        await asyncio.sleep(3)
        await scene.send("now", queue_id=2)
        assert bodies(await waiting) == ["now"]
        assert loop.time() - began < 3.1


@in_virtual_time
async def test_one_message_goes_to_one_of_many_that_wait() -> None:
    async with pop_scene() as scene:
        await scene.topic(queues=4)
        waiting = [asyncio.create_task(scene.pop(poll_time=20_000), name="client") for _ in range(20)]
        await eventually(lambda: len(scene.app.roles.master.pop.polls) == 20)
        info = await scene.ask(RequestCode.POLLING_INFO, PollingInfoRequest(consumer_group="g", topic="T", queue_id=-1))
        assert info.header(PollingInfoResponse).polling_num == 20
        for i in range(20):
            await scene.send(str(i), queue_id=i % 4)
        got = [body for messages in await asyncio.gather(*waiting) for body in bodies(messages)]
        assert sorted(got, key=int) == [str(i) for i in range(20)]


@in_virtual_time
async def test_a_waiting_request_gets_a_retry_and_what_another_gives_back() -> None:
    async with pop_scene() as scene:
        await scene.topic()
        await scene.send("a")
        (a,) = await scene.pop(invisible_time=8_000)
        waiting = asyncio.create_task(scene.pop(poll_time=15_000), name="client")
        await asyncio.sleep(4)
        assert isinstance(await scene.change(a, 1_000), Given)
        (again,) = await asyncio.wait_for(waiting, 1.5)
        assert again.body == "a"


@in_virtual_time
async def test_a_client_that_is_gone_takes_nothing_with_it() -> None:
    async with pop_scene() as scene:
        await scene.topic()
        waiting = asyncio.create_task(scene.pop(poll_time=15_000), name="client")
        await eventually(lambda: len(scene.app.roles.master.pop.polls) == 1)
        await scene.client.close()
        with pytest.raises(Exception, match=r"."):
            await waiting
        scene.client = type(scene.client)(scene.outside)
        await eventually(lambda: len(scene.app.roles.master.pop.polls) == 0)
        await scene.send("kept")
        assert bodies(await scene.pop()) == ["kept"]


@in_virtual_time
async def test_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmq.broker.pop.polls._GROUP_LIMIT", 3)
    async with pop_scene() as scene:
        await scene.topic()
        waiting = [asyncio.create_task(scene.pop(poll_time=9_000), name="client") for _ in range(3)]
        await eventually(lambda: len(scene.app.roles.master.pop.polls) == 3)
        assert (await scene.pop_answer(poll_time=9_000)).code == POLLING_FULL
        assert (await scene.pop_answer(poll_time=9_000, consumer_group="other")).code == POLLING_TIMEOUT
        await asyncio.gather(*waiting)


@in_virtual_time
async def test_filters() -> None:
    async with pop_scene(enablePropertyFilter="true") as scene:
        await scene.topic()
        for i in range(6):
            await scene.send(str(i), properties=f"TAGS\x01{'AB'[i % 2]}\x02n\x01{i}\x02")
        assert bodies(await scene.pop(exp="B", consumer_group="tags")) == ["1", "3", "5"]
        assert bodies(await scene.pop(exp_type="SQL92", exp="n > 3", consumer_group="sql")) == ["4", "5"]
        # What a filter refuses is passed for good, and counts as consumed.
        assert await scene.pop(consumer_group="sql") == []
        assert (await scene.pop_answer(exp_type="SQL92", exp="n >")).code == 23
        await asyncio.sleep(2)
        assert scene.app.offsets.query("sql", "T", 0) == 6


@in_virtual_time
async def test_where_a_new_group_begins() -> None:
    async with pop_scene() as scene:
        await scene.topic()
        scene.app.roles.master.pop.handlers[0]._taker._limits.memory_bound = 0  # type: ignore[attr-defined]
        await scene.send("old")
        assert await scene.pop(init_mode=1, consumer_group="late") == []
        await scene.send("new")
        assert bodies(await scene.pop(init_mode=1, consumer_group="late")) == ["new"]
        assert bodies(await scene.pop(init_mode=0, consumer_group="early")) == ["old", "new"]


@in_virtual_time
async def test_lag_and_a_reset_of_the_offset() -> None:
    async with pop_scene() as scene:
        await scene.topic()
        await scene.send(*"abcdef")
        assert bodies(await scene.pop(max_msg_nums=4)) == list("abcd")
        await asyncio.sleep(2)
        assert scene.app.offsets.query("g", "T", 0) == 4
        scene.app.offsets.commit("g", "T", 0, 1)  # as an operator's reset does
        assert bodies(await scene.pop(max_msg_nums=2)) == ["b", "c"]
        scene.app.offsets.commit("g", "T", 0, 5)
        await asyncio.sleep(2)
        await scene.kill()
        assert bodies(await scene.pop(max_msg_nums=2)) == ["f"]
        scene.app.offsets.commit("g", "T", 0, 1)
        await asyncio.sleep(2)
        await scene.kill()
        assert bodies(await scene.pop(max_msg_nums=2)) == ["b", "c"]


@in_virtual_time
async def test_a_topic_made_anew_has_no_ghosts() -> None:
    async with pop_scene() as scene:
        await scene.topic()
        await scene.send("a", "b", "c")
        await scene.pop(invisible_time=5_000, max_msg_nums=2)
        await asyncio.sleep(5.1)  # a and b are retries now
        assert await scene.pop(invisible_time=5_000, queue_id=0, max_msg_nums=1)
        answer = await scene.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest(topic="T"))
        assert answer.code == 0
        await scene.topic()
        await scene.send("new")
        await asyncio.sleep(20)
        assert bodies(await scene.pop()) == ["new"]
        assert len(scene.app.roles.master.pop.state.checkpoints) == 1


def settling(message: Given, bits: str = "") -> BatchAck:
    """Acknowledges one popped message, or those in a bit set of its pop."""
    start, pop_time, invisible, revive, mark, _, queue_id, _ = message.handle.split(" ")
    return BatchAck(
        consumer_group="g", topic="T", retry=mark, start_offset=int(start), queue_id=int(queue_id),
        revive_queue_id=int(revive), pop_time=int(pop_time), invisible_time=int(invisible),
        bit_set=bits or bit_set([message.offset - int(start)]),
    )  # fmt: skip


def batch(*acks: BatchAck) -> bytes:
    return BatchAckMessageRequestBody(broker_name="b", acks=list(acks)).encode()


def batch_ack(messages: list[Given]) -> bytes:
    start = int(messages[0].handle.split(" ")[0])
    return batch(settling(messages[0], bit_set([message.offset - start for message in messages])))


@in_virtual_time
async def test_a_batch_of_acks() -> None:
    async with pop_scene() as scene:
        await scene.topic()
        await scene.send(*map(str, range(10)))
        first = await scene.pop(invisible_time=5_000)
        answer = await scene.ask(RequestCode.BATCH_ACK_MESSAGE, body=batch_ack([first[0], first[9], first[4]]))
        assert answer.code == 0
        await asyncio.sleep(5.1)
        again = await scene.pop(invisible_time=5_000)
        assert sorted(bodies(again)) == list("1235678")
        answer = await scene.ask(RequestCode.BATCH_ACK_MESSAGE, body=batch_ack(again[:6]))
        assert answer.code == 0
        await asyncio.sleep(5.1)
        assert len(await scene.pop()) == 1
        answer = await scene.ask(RequestCode.BATCH_ACK_MESSAGE, body=batch_ack(again[6:]))
        assert answer.code == NO_MESSAGE


@pytest.mark.parametrize("order", [False, True])
@in_virtual_time
async def test_others_are_served_within_a_long_batch_of_acks(monkeypatch: pytest.MonkeyPatch, order: bool) -> None:
    """A thousand of an orderly pop held the loop for 44 ms."""
    async with pop_scene() as scene:
        await scene.topic()
        await scene.send("a", "b")
        one, other = await scene.pop(invisible_time=60_000, order=order)
        looked_up = Turns(monkeypatch, Checks, "queue_of")
        acks = [settling(one)] * 999 + [settling(other)]
        assert (await scene.ask(RequestCode.BATCH_ACK_MESSAGE, body=batch(*acks))).code == 0
        assert (looked_up.whole, looked_up.longest) == (1_000, 50)
        await asyncio.sleep(61)
        assert await scene.pop(order=order) == []


@in_virtual_time
async def test_a_message_that_is_acknowledged_while_a_batch_with_it_goes_on() -> None:
    """Whichever comes first settles it, and the other is told that it is settled."""
    async with pop_scene() as scene:
        await scene.topic()
        await scene.send(*map(str, range(4)))
        popped = await scene.pop(invisible_time=5_000)
        acks = [settling(popped[0])] * 400 + [settling(popped[1])] * 400 + [settling(popped[2])]
        long = asyncio.create_task(scene.ask(RequestCode.BATCH_ACK_MESSAGE, body=batch(*acks)), name="client")
        for _ in range(8):
            await asyncio.sleep(0)
        both = [asyncio.create_task(scene.ack(popped[1]), name="client") for _ in range(2)]
        changed = await scene.change(popped[2], 3_000)
        assert [await asking for asking in both] == [0, 0]
        assert (await long).code == 0
        # The batch came after the change, and its old handle still speaks of the message.
        assert isinstance(changed, Given)
        await scene.kill()
        await asyncio.sleep(5.1)
        assert bodies(await scene.pop()) == ["3"]


@in_virtual_time
async def test_nobody_is_told_of_an_ack_that_was_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of a turn heard that it is done while the first of it was still to be written; one of a later turn,
    while it had not been.
    """
    async with pop_scene() as scene:
        await scene.topic()
        await scene.send("a")
        (one,) = await scene.pop(invisible_time=5_000)
        full = StoreError("the disk is full")

        def refuse(*given: Any) -> None:
            raise full

        journal = scene.app.roles.master.pop.state.journal
        with monkeypatch.context() as patch:
            patch.setattr(journal, "write", refuse)
            asked = [scene.ack(one), scene.ack(one)]
            asked.append(_code(scene.ask(RequestCode.BATCH_ACK_MESSAGE, body=batch(settling(one)))))
            assert await asyncio.gather(*asked) == [1, 1, 1]
            assert await scene.ack(one) == 1
        before = journal.queue.next
        assert await scene.ack(one) == 0
        assert journal.queue.next == before + 1
        assert await scene.ack(one) == 0
        assert journal.queue.next == before + 1


async def _code(asked: Awaitable[Command]) -> int:
    return (await asked).code


@pytest.mark.parametrize(
    ("bits", "acks", "remark"),
    [
        ("/" * 400_000, 1, "a bit set of 400000 characters: 4096 at most"),
        ("/" * 4_096, 100, "a batch acknowledges at most 16384 messages; send several"),
        ("////", 900, "a batch acknowledges at most 16384 messages; send several"),
    ],
)
@in_virtual_time
async def test_a_batch_of_acks_is_refused_before_millions_are_looked_up(
    monkeypatch: pytest.MonkeyPatch, bits: str, acks: int, remark: str
) -> None:
    async with pop_scene() as scene:
        await scene.topic()
        await scene.send("a")
        (one,) = await scene.pop()
        monkeypatch.setattr(Checks, "queue_of", lambda *_: pytest.fail("looked up"))
        answer = await scene.ask(RequestCode.BATCH_ACK_MESSAGE, body=batch(*[settling(one, bits)] * acks))
        assert (answer.code, answer.remark) == (1, remark)


@in_virtual_time
async def test_peek_and_notification() -> None:
    async with pop_scene() as scene:
        await scene.topic(queues=2)

        def notify(poll: int) -> Any:
            header = NotificationRequest(
                consumer_group="g", topic="T", queue_id=-1, poll_time=poll, born_time=scene.outside.clock.now_ms()
            )
            return scene.ask(RequestCode.NOTIFICATION, header)

        assert not (await notify(0)).header(NotificationResponse).has_msg
        waiting = asyncio.create_task(notify(10_000), name="client")
        await asyncio.sleep(1)
        await scene.send("a", "b", queue_id=1)
        assert (await asyncio.wait_for(waiting, 1)).header(NotificationResponse).has_msg
        for _ in range(2):
            answer = await scene.ask(
                RequestCode.PEEK_MESSAGE,
                PeekMessageRequest(consumer_group="g", topic="T", queue_id=-1, max_msg_nums=32),
            )
            assert [record.body for record in decode_records(answer.body)] == [b"a", b"b"]
        assert bodies(await scene.pop()) == ["a", "b"]
        assert not (await notify(0)).header(NotificationResponse).has_msg


@in_virtual_time
async def test_one_answer_tells_of_several_queues() -> None:
    async with pop_scene() as scene:
        await scene.topic(queues=3)
        for i in range(9):
            await scene.send(str(i), queue_id=i % 3)
        answer = await scene.pop_answer(max_msg_nums=7)
        header = answer.header(PopMessageResponse)
        assert sum(len(part.split(",")) for part in (header.msg_offset_info or "").split(";")) == 7
        assert header.rest_num == 2
        assert (await scene.pop_answer()).header(PopMessageResponse).rest_num == 0


class TestOrder:
    """One batch at a time, the first message first."""

    @staticmethod
    async def pop(scene: PopScene, **how: Any) -> list[Given]:
        return await scene.pop(**{"order": True, "queue_id": 0, "max_msg_nums": 3, "invisible_time": 5_000, **how})

    @in_virtual_time
    async def test_the_queue_waits_for_its_batch(self) -> None:
        async with pop_scene() as scene:
            await scene.topic()
            await scene.send(*"abcdef")
            a, b, c = await self.pop(scene)
            assert [a.body, b.body, c.body] == list("abc")
            assert a.handle.split(" ")[3] == "999"
            assert await self.pop(scene) == []
            assert await scene.ack(b) == 0
            assert await scene.ack(a) == 0
            assert await self.pop(scene) == []
            await asyncio.sleep(2)
            assert scene.app.offsets.query("g", "T", 0) == 2
            assert await scene.ack(c) == 0
            assert await scene.ack(c) == 0
            assert bodies(await self.pop(scene)) == list("def")

    @in_virtual_time
    async def test_what_is_not_acknowledged_comes_first_again(self) -> None:
        async with pop_scene() as scene:
            await scene.topic()
            await scene.send(*"abcdef")
            a, b, c = await self.pop(scene)
            assert await scene.ack(b) == 0
            waiting = asyncio.create_task(self.pop(scene, poll_time=15_000), name="client")
            await asyncio.sleep(4.9)
            assert not waiting.done()
            again = await asyncio.wait_for(waiting, 1)
            assert bodies(again) == ["a", "c"]
            assert [message.order_count for message in again] == [1, 1]
            assert await scene.ack(a) == NO_MESSAGE
            for message in again:
                assert await scene.ack(message) == 0
            assert bodies(await self.pop(scene)) == list("def")
            assert c.body == "c"

    @in_virtual_time
    async def test_nobody_gets_a_batch_of_which_somebody_has_a_message(self) -> None:
        async with pop_scene() as scene:
            await scene.topic()
            await scene.send(*"abcdef")
            a, b, c = await self.pop(scene)
            changed = await scene.change(a, 1_000)
            assert isinstance(changed, Given)
            await asyncio.sleep(1.5)
            assert await self.pop(scene) == [], "b and c are still with whoever got them"
            waiting = asyncio.create_task(self.pop(scene, poll_time=3_000), name="client")
            await asyncio.sleep(0)
            assert await scene.ack(b) == await scene.ack(c) == 0
            assert bodies(await asyncio.wait_for(waiting, 1)) == ["a"]

    @in_virtual_time
    async def test_no_more_is_given_out_again_than_is_asked_for(self) -> None:
        async with pop_scene() as scene:
            await scene.topic()
            await scene.send(*"abcdef")
            assert bodies(await self.pop(scene)) == list("abc")
            await asyncio.sleep(6)
            (a,) = await self.pop(scene, max_msg_nums=1)
            assert (a.body, a.order_count) == ("a", 1)
            assert await self.pop(scene) == []
            assert await scene.ack(a) == 0
            assert bodies(await self.pop(scene)) == ["b", "c"]

    @in_virtual_time
    async def test_an_attempt_that_is_repeated_gets_its_batch(self) -> None:
        async with pop_scene() as scene:
            await scene.topic()
            await scene.send(*"abcdef")
            assert bodies(await self.pop(scene, attempt_id="x")) == list("abc")
            assert await self.pop(scene, attempt_id="y") == []
            again = await self.pop(scene, attempt_id="x")
            assert bodies(again) == list("abc")
            assert {message.order_count for message in again} == {0}
            for message in again:
                assert await scene.ack(message) == 0
            assert bodies(await self.pop(scene, attempt_id="x")) == list("def")

    @pytest.mark.parametrize("crash", ["kill", "restart"])
    def test_a_batch_survives(self, crash: str) -> None:
        @in_virtual_time
        async def run() -> None:
            async with pop_scene() as scene:
                await scene.topic()
                await scene.send(*"abcdef")
                a, b, _ = await self.pop(scene, invisible_time=20_000)
                assert await scene.ack(a) == 0
                changed = await scene.change(b, 60_000)
                assert isinstance(changed, Given)
                await getattr(scene, crash)()
                assert await self.pop(scene) == []
                await asyncio.sleep(21)
                assert await self.pop(scene) == [], "b is not free yet, and nothing passes it"
                await asyncio.sleep(40)
                again = await self.pop(scene)
                assert bodies(again) == ["b", "c"]
                for message in again:
                    assert await scene.ack(message) == 0
                assert bodies(await self.pop(scene)) == list("def")

        run()


@in_virtual_time
async def test_refusals() -> None:
    async with pop_scene(autoCreateSubscriptionGroup="false") as scene:
        await scene.topic()
        assert (await scene.pop_answer(topic="nowhere")).code == 17
        assert (await scene.pop_answer(consumer_group="nobody")).code == 26
        assert (await scene.pop_answer(queue_id=7)).code == 29
        assert (await scene.pop_answer(max_msg_nums=33)).code == 29
        assert (await scene.pop_answer(max_msg_nums=-1)).code == 1


@in_virtual_time
async def test_a_group_that_a_pull_gave_an_odd_name_cannot_pop() -> None:
    async with pop_scene() as scene:
        await scene.topic()
        await scene.send("a")
        pulled = await scene.client.request(scene.addr, pull("../g"), 3.0)
        assert pulled.code == 0
        assert (await scene.pop_answer(consumer_group="../g")).code == 26


@in_virtual_time
async def test_a_refusal_carries_the_header_of_its_answer() -> None:
    async with pop_scene() as scene:
        await scene.topic()
        await scene.send(*"abc")
        refusal = await scene.pop_answer(queue_id=7)
        assert refusal.ext == {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"}
        nothing = await scene.pop_answer(max_msg_nums=0)
        assert (nothing.code, nothing.remark) == (210, "NO_MESSAGE_IN_QUEUE")
        assert nothing.header(PopMessageResponse).rest_num == 3
        assert nothing.header(PopMessageResponse).start_offset_info == ""


@in_virtual_time
async def test_handles_that_are_none() -> None:
    async with pop_scene() as scene:
        await scene.topic()
        await scene.send("a")
        (a,) = await scene.pop()
        for handle, code in (
            ("0 0 x 0 0 b 0 0", 13),
            ("0 0", 13),
            (a.handle.replace(" 0 b 0 0", " 0 b 7 0"), 13),
            (a.handle.replace(" 0 b 0 0", " 0 b 0 5"), NO_MESSAGE),
            ("0 1 1 0 0 b 0 0", NO_MESSAGE),
        ):
            forged = Given(a.record, handle, a.topic)
            assert await scene.ack(forged) == code, handle
            assert await scene.change(forged, 1_000) == code, handle
        assert await scene.ack(a) == 0
        assert await scene.ack(Given(a.record, a.handle, "nowhere")) == 17


@in_virtual_time
async def test_a_queue_with_too_much_open_gives_out_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmq.broker.pop.state._MOST_OPEN", 4)
    async with pop_scene() as scene:
        await scene.topic()
        await scene.send(*"abcdef")
        first = await scene.pop(max_msg_nums=4, invisible_time=60_000)
        waiting = asyncio.create_task(scene.pop(poll_time=15_000), name="client")
        await asyncio.sleep(1)
        assert not waiting.done()
        assert await scene.ack(first[0]) == 0
        assert bodies(await asyncio.wait_for(waiting, 1)) == ["e", "f"]
