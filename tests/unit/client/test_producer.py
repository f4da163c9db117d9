"""The producer against brokers that fail in every way, in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rmq.aio import (
    ClientError,
    ConnectFailed,
    Message,
    MessageQueue,
    Producer,
    RequestTimeout,
    ResponseError,
    SendStatus,
    by_hash,
)
from rmq.protocol.bodies.heartbeat import HeartbeatData
from rmq.protocol.command import Command
from rmq.protocol.ids import offset_msg_id
from tests.support.scripted import ScriptedCluster, refuse, stored
from tests.support.virtual import eventually, in_virtual_time


def producer(cluster: ScriptedCluster, **options: object) -> Producer:
    return Producer("pg", namesrv=cluster.namesrv, world=cluster.world, **options)  # type: ignore[arg-type]


def now() -> float:
    return asyncio.get_running_loop().time()


@in_virtual_time
async def test_queues_take_turns() -> None:
    async with ScriptedCluster("a", "b") as c, producer(c) as p:
        taken = Counter([str((await p.send(Message("T", b"x"))).message_queue) for _ in range(40)])
        assert set(taken.values()) == {10}
        assert len(taken) == 4


@in_virtual_time
async def test_a_topic_that_is_sent_to_now_and_then_stays_known_and_others_are_asked_for_no_more() -> None:
    async with ScriptedCluster("a") as c, producer(c) as p:
        c.topics |= {"U": ["a"], "V": ["a"]}
        for topic in "TUV":
            await p.send(Message(topic, b"x"))
        known = {topic: p._client.routes.publish[topic] for topic in "TU"}
        for _ in range(20):
            await asyncio.sleep(60)
            await p.send(Message("T", b"x"))
            await p.send(Message("U", b"x"), selector=lambda queues, message, arg: queues[0])
        c.routes_asked.clear()
        await asyncio.sleep(60)
        assert set(c.routes_asked) == {"T", "U"}
        assert all(p._client.routes.publish[topic] is info for topic, info in known.items())
        await p.send(Message("V", b"x"))
        assert c.routes_asked.count("V") == 1


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 204, 205])
def test_codes_that_lead_to_another_broker(code: int) -> None:
    """Field case B081."""

    @in_virtual_time
    async def run() -> None:
        async with ScriptedCluster("a", "b") as c, producer(c) as p:
            c.brokers["a"].script = refuse(code)
            for _ in range(10):
                assert (await p.send(Message("T", b"x"))).message_queue.broker_name == "b"
            assert c.brokers["a"].sends
            first, again = c.brokers["a"].sends[0], c.brokers["b"].sends[0]
            for command in (first, again):
                assert (command.ext or {})["i"]
            assert len({(command.ext or {})["i"] for b in c.brokers.values() for command in b.sends}) == 10

    run()


@in_virtual_time
async def test_arguments_of_a_wrong_type_are_refused_in_one_line() -> None:
    async with ScriptedCluster("a") as c, producer(c) as p:
        message = Message("T", b"x")
        five: Any = 5
        none: Any = None
        now: Any = "now"
        calls: tuple[tuple[Callable[[], Awaitable[object]], str], ...] = (
            (lambda: p.send(message, queue=five), "the queue is 5: give a MessageQueue"),
            (lambda: p.send(message, queue=MessageQueue("U", "a", 0)), "one of U, and the message is for T"),
            (lambda: p.send(message, selector=five), "the selector is 5: give a function"),
            (lambda: p.send_async(message, five), "the callback is 5: give a function"),
            (lambda: p.send_oneway(none), "send_oneway takes a Message, not NoneType"),
            (lambda: p.recall_message("T", none), "recall_handle is None: give a text"),
            (lambda: p.view_message(none), "None is no offset message id"),
            (lambda: p.query_message("T", none), "the key to look for is None"),
            (lambda: p.query_message(none, "k"), "a topic is a text"),
            (lambda: p.max_offset(none), "the queue is None: give a MessageQueue"),
            (lambda: p.search_offset(MessageQueue("T", "a", 0), now), "timestamp is 'now': give a datetime"),
        )
        for refused, why in calls:
            with pytest.raises(ClientError, match=why):
                await refused()
        assert not c.brokers["a"].sends


@in_virtual_time
async def test_other_codes_are_final() -> None:
    async with ScriptedCluster("a", "b") as c, producer(c) as p:
        for broker in c.brokers.values():
            broker.script = refuse(13, "MESSAGE_ILLEGAL")
        with pytest.raises(ResponseError, match=r"MESSAGE_ILLEGAL .tried 1 time: ") as caught:
            await p.send(Message("T", b"x"))
        assert caught.value.code == 13
        assert sum(len(broker.sends) for broker in c.brokers.values()) == 1


@in_virtual_time
async def test_a_message_whose_send_failed_can_be_sent_again_as_it_was() -> None:
    """Field case B080."""
    async with ScriptedCluster("a") as c, producer(c) as p:
        body = b"text " * 20_000
        message = Message("T", body, tags="A", keys="k", properties={"own": "1"})
        c.brokers["a"].script = refuse(13)
        with pytest.raises(ResponseError):
            await p.send(message)
        kept = (message.topic, message.body, message.tags, message.keys, dict(message.properties))
        assert kept == ("T", body, "A", "k", {"own": "1"})
        c.brokers["a"].script = stored
        await p.send(message)
        first, second = c.brokers["a"].sends
        assert first.body == second.body
        assert len(first.body) < len(body)


@in_virtual_time
async def test_the_last_error_says_how_often_it_was_tried() -> None:
    """Field case B081."""
    async with ScriptedCluster("a") as c, producer(c, retry_times_when_send_failed=4) as p:
        c.brokers["a"].script = refuse(2, "[TIMEOUT_CLEAN_QUEUE]broker busy")
        with pytest.raises(ResponseError, match=r"code 2 .*broker busy .tried 5 times: a, a, a, a, a"):
            await p.send(Message("T", b"x"))
        assert len(c.brokers["a"].sends) == 5


@in_virtual_time
async def test_a_hung_broker_does_not_eat_the_whole_time_and_is_avoided_afterwards() -> None:
    """Field case B082."""
    async with ScriptedCluster("a", "b") as c, producer(c) as p:
        c.brokers["a"].script = lambda request: None
        for _ in range(20):
            began = now()
            assert (await p.send(Message("T", b"x"))).message_queue.broker_name == "b"
            assert now() - began < 3
        assert len(c.brokers["a"].sends) == 1
        await asyncio.sleep(11)
        for _ in range(3):
            await p.send(Message("T", b"x"))
        assert len(c.brokers["a"].sends) == 2


@in_virtual_time
async def test_one_hung_broker_alone_gets_the_whole_time() -> None:
    async with ScriptedCluster("a") as c, producer(c) as p:
        began = now()
        c.brokers["a"].script = lambda request: None
        with pytest.raises(RequestTimeout, match="tried 1 time: a"):
            await p.send(Message("T", b"x"), timeout=2)
        assert 2 <= now() - began < 2.1


@in_virtual_time
async def test_a_machine_that_vanishes_is_left_for_another_one() -> None:
    async with ScriptedCluster("a", "b") as c, producer(c) as p:
        for _ in range(4):
            await p.send(Message("T", b"x"))
        c.simulation.net.cut(c.simulation.nodes["client"].address, c.brokers["a"].host)
        for _ in range(10):
            assert (await p.send(Message("T", b"x"))).message_queue.broker_name == "b"


@in_virtual_time
async def test_slow_brokers_are_avoided_when_asked_for() -> None:
    async with ScriptedCluster("a", "b") as c, producer(c, send_latency_fault_enable=True) as p:

        def slowly(request: Command) -> None:
            conn = next(iter(c.brokers["a"]._server.connections))
            asyncio.get_running_loop().call_later(0.7, conn.send_command, stored(request))

        c.brokers["a"].script = slowly
        for _ in range(20):
            await p.send(Message("T", b"x"))
        assert len(c.brokers["a"].sends) == 1
        await asyncio.sleep(31)
        for _ in range(3):
            await p.send(Message("T", b"x"))
        assert len(c.brokers["a"].sends) == 2


@in_virtual_time
async def test_an_unknown_topic_goes_by_the_template_until_it_has_a_route() -> None:
    async with ScriptedCluster("a", "b") as c, producer(c) as p:
        c.topics["TBW102"] = ["a"]
        result = await p.send(Message("New", b"x"))
        assert result.message_queue.broker_name == "a"
        sent = c.brokers["a"].sends[0].ext or {}
        assert (sent["b"], sent["c"], sent["d"]) == ("New", "TBW102", "4")
        c.topics["New"] = ["b"]
        await asyncio.sleep(31)
        assert (await p.send(Message("New", b"x"))).message_queue.broker_name == "b"


@in_virtual_time
async def test_a_topic_created_with_fewer_queues_than_the_template_is_found_out() -> None:
    def illegal_queue(request: Command) -> Command:
        c.topics["New"] = ["b"]
        return request.reply(1, "request queueId[3] is illegal")

    async with ScriptedCluster("a", "b") as c, producer(c) as p:
        c.topics["TBW102"] = ["a"]
        c.brokers["a"].script = illegal_queue
        assert (await p.send(Message("New", b"x"))).message_queue.broker_name == "b"


@in_virtual_time
async def test_a_name_server_that_knows_no_broker_yet_is_asked_again() -> None:
    """Just restarted: the topic is there, its brokers register within 30 s."""
    async with ScriptedCluster("a") as c, producer(c) as p:
        c.fresh = True
        with pytest.raises(ConnectFailed, match=r"T is not known to .*, and no broker is") as caught:
            await p.send(Message("T", b"x"))
        assert caught.value.retriable
        waiting = asyncio.ensure_future(p.send(Message("T", b"x")))
        await asyncio.sleep(1.0)
        c.fresh = False
        assert (await waiting).ok


@in_virtual_time
async def test_the_name_of_a_name_server_is_resolved_at_the_start_and_with_every_poll() -> None:
    async with ScriptedCluster("a") as c:
        host, _, port = c.namesrv.rpartition(":")
        names = c.world.network.names = {"ns.example": [host]}  # type: ignore[attr-defined]
        async with Producer("pg", namesrv=f"ns.example:{port}", world=c.world) as p:
            assert (await p.send(Message("T", b"x"))).ok
            remoting = p._client.remoting
            assert remoting.connected(c.namesrv) is not None
            names["ns.example"] = ["10.9.9.9"]
            await asyncio.sleep(31.0)
            assert remoting.connected(c.namesrv) is None, "it moved: the old machine is left"
            assert p._client.name_servers.addresses == [f"ns.example:{port}"]


@in_virtual_time
async def test_a_topic_whose_master_is_away_is_waited_for() -> None:
    async with ScriptedCluster("a") as c, producer(c) as p:
        c.headless = {"a"}
        with pytest.raises(ConnectFailed, match="the topic T takes no message now: a has no master") as caught:
            await p.send(Message("T", b"x"))
        assert caught.value.retriable
        waiting = asyncio.ensure_future(p.send(Message("T", b"x")))
        await asyncio.sleep(1.0)
        c.headless = set()
        assert (await waiting).ok


@in_virtual_time
async def test_only_brokers_of_the_cluster_are_asked_for_a_message() -> None:
    """An offset id names an address, and anybody may write one."""
    async with ScriptedCluster("a") as c, producer(c) as p:
        stranger = c.simulation.node("stranger")
        reached: list[object] = []

        def accept() -> asyncio.Protocol:
            reached.append("connected")
            return asyncio.Protocol()

        await stranger.world.network.listen(accept, "", 10911)
        with pytest.raises(ResponseError, match=r"10911, which it names, is no broker of this cluster"):
            await p.view_message(offset_msg_id(stranger.address, 10911, 0))
        assert reached == []


@in_virtual_time
async def test_a_topic_nobody_has_and_nobody_creates() -> None:
    async with ScriptedCluster("a") as c, producer(c) as p:
        with pytest.raises(ClientError, match=r"the topic Nope has no queue to send to.*updateTopic"):
            await p.send(Message("Nope", b"x"))


@in_virtual_time
async def test_a_silent_name_server_counts_in_the_deadline() -> None:
    """Field case B082."""
    async with ScriptedCluster("a") as c, producer(c) as p:
        c.silent = True
        began = now()
        with pytest.raises((ConnectFailed, RequestTimeout)):
            await p.send(Message("T", b"x"), timeout=1)
        assert now() - began < 1.3


@in_virtual_time
async def test_the_next_name_server_is_asked_when_one_does_not_answer() -> None:
    async with ScriptedCluster("a") as c:
        c.simulation.node("hole")
        c.simulation.net.cut(c.simulation.nodes["client"].address, c.simulation.nodes["hole"].address)
        dead = f"{c.simulation.nodes['hole'].address}:9876"
        async with Producer("pg", namesrv=f"{dead};{c.namesrv}", world=c.world) as p:
            began = now()
            await p.send(Message("T", b"x"))
            assert now() - began < 2
            began = now()
            for _ in range(5):
                await p._instance.refresh_route("T")  # type: ignore[union-attr]
            assert now() - began < 0.05


@in_virtual_time
async def test_a_queue_or_a_selector_is_obeyed_and_not_left() -> None:
    async with ScriptedCluster("a", "b") as c, producer(c) as p:
        queues = await p.fetch_publish_message_queues("T")
        assert [queue.broker_name for queue in queues] == ["a", "a", "b", "b"]
        for _ in range(5):
            assert (await p.send(Message("T", b"x"), queue=queues[3])).message_queue == queues[3]
        results = {(await p.send(Message("T", b"x"), selector=by_hash, arg="order-7")).message_queue for _ in range(5)}
        assert len(results) == 1
        c.brokers["b"].script = refuse(2)
        with pytest.raises(ResponseError):
            await p.send(Message("T", b"x"), queue=queues[3])
        with pytest.raises(ClientError, match="must return one of the queues"):
            await p.send(Message("T", b"x"), selector=lambda queues, message, arg: 1)  # type: ignore[arg-type,return-value]


@in_virtual_time
async def test_a_status_other_than_ok_is_told_and_retried_only_when_asked_for() -> None:
    def no_slave(request: Command) -> Command:
        answer = stored(request)
        answer.code = 11
        return answer

    async with ScriptedCluster("a", "b") as c:
        c.brokers["a"].script = no_slave
        async with producer(c) as p:
            seen = {(await p.send(Message("T", b"x"))).send_status for _ in range(8)}
            assert seen == {SendStatus.SEND_OK, SendStatus.SLAVE_NOT_AVAILABLE}
        async with producer(c, retry_another_broker_when_not_store_ok=True) as p:
            assert {(await p.send(Message("T", b"x"))).send_status for _ in range(8)} == {SendStatus.SEND_OK}


@in_virtual_time
async def test_async_sends_end_before_the_shutdown_does() -> None:
    async with ScriptedCluster("a") as c:
        p = producer(c)
        await p.start()
        told: list[asyncio.Future[object]] = []
        futures = [p.send_async(Message("T", b"x"), told.append) for _ in range(50)]
        await p.shutdown()
        assert all(future.done() for future in futures)
        assert len({(await future).msg_id for future in futures}) == 50
        assert len(told) == 50
        with pytest.raises(ClientError, match="is shut down"):
            await p.send(Message("T", b"x"))


@in_virtual_time
async def test_brokers_learn_of_a_producer_soon_after_its_first_send() -> None:
    async with ScriptedCluster("a") as c, producer(c) as p:
        await p.send(Message("T", b"x"))
        await eventually(lambda: c.brokers["a"].beats, within=2)
        data = HeartbeatData.decode(c.brokers["a"].beats[0].body)
        assert (data.client_id, [one.group_name for one in data.producer_data_set]) == (p.client_id, ["pg"])
        await asyncio.sleep(65)
        assert len(c.brokers["a"].beats) >= 3


@in_virtual_time
async def test_clients_of_one_instance_name_share_what_they_have() -> None:
    async with ScriptedCluster("a") as c:
        one, other = (
            producer(c, instance_name="shared"),
            Producer("other", namesrv=c.namesrv, world=c.world, instance_name="shared"),
        )
        async with one, other:
            assert one._client is other._client
            await one.send(Message("T", b"x"))
            await asyncio.sleep(31)
            data = HeartbeatData.decode(c.brokers["a"].beats[-1].body)
            assert [group.group_name for group in data.producer_data_set] == ["other", "pg"]
            again = producer(c, instance_name="shared")
            with pytest.raises(ClientError, match="already has a producer"):
                await again.start()
        alone = producer(c)
        async with alone, producer(c) as second:
            assert alone.client_id != second.client_id


@in_virtual_time
async def test_oneway_is_sent_and_not_answered() -> None:
    async with ScriptedCluster("a") as c, producer(c) as p:
        await p.send_oneway(Message("T", b"x"))
        await eventually(lambda: c.brokers["a"].sends)
        assert c.brokers["a"].sends[0].is_oneway


@in_virtual_time
async def test_hooks_see_and_sign_every_send() -> None:
    async with ScriptedCluster("a") as c, producer(c) as p:
        seen: list[int] = []

        class Signer:
            def before(self, addr: str, request: Command) -> None:
                request.ext = {**(request.ext or {}), "Signature": "s"}

            def after(self, addr: str, request: Command, response: Command | None) -> None:
                seen.append(request.code)

        p._client.remoting.hooks.append(Signer())
        await p.send(Message("T", b"x"))
        await p.send_oneway(Message("T", b"x"))
        await eventually(lambda: len(c.brokers["a"].sends) == 2)
        assert all((command.ext or {})["Signature"] == "s" for command in c.brokers["a"].sends)
        assert 310 in seen


def test_what_cannot_be_a_producer() -> None:
    for group, why in (("", "blank"), ("a b", "illegal"), ("g" * 121, "120"), ("DEFAULT_PRODUCER", "placeholder")):
        with pytest.raises(ClientError, match=why):
            Producer(group)
    with pytest.raises(ClientError, match="not started"):
        Producer("g")._client  # noqa: B018


@in_virtual_time
async def test_no_name_server_is_said_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.delenv("ROCKETMQ_NAMESRV_DOMAIN", raising=False)
    p = Producer("g", world=ScriptedCluster().world)
    with pytest.raises(ClientError, match="no name server"):
        await p.start()
    with pytest.raises(ClientError, match="not host:port"):
        await Producer("g", namesrv="localhost", world=ScriptedCluster().world).start()


@in_virtual_time
async def test_name_servers_can_be_changed_while_running() -> None:
    async with ScriptedCluster("a") as c, producer(c) as p:
        await p.send(Message("T", b"x"))
        before = len(c.routes_asked)
        p.update_name_server_address(f"{c.node.address}:1")
        assert c.namesrv not in p._client.remoting.addresses
        with pytest.raises(ConnectFailed):
            await p.fetch_publish_message_queues("T")
        assert len(c.routes_asked) == before
        with pytest.raises(ClientError, match="no name server is left"):
            p.update_name_server_address(" ; ")
        p.update_name_server_address(c.namesrv)
        await p.fetch_publish_message_queues("T")


@in_virtual_time
async def test_a_broker_that_leaves_every_route_is_forgotten() -> None:
    async with ScriptedCluster("a", "b") as c, producer(c) as p:
        for _ in range(4):
            await p.send(Message("T", b"x"))
        assert set(p._client.routes.broker_addrs) == {"a", "b"}
        c.topics["T"] = ["b"]
        await asyncio.sleep(31)
        assert set(p._client.routes.broker_addrs) == {"b"}
        beats = len(c.brokers["a"].beats)
        await asyncio.sleep(65)
        assert len(c.brokers["a"].beats) == beats
