"""Who is no member of a group gets nothing of its log, and changes nothing: the port of its members."""

from __future__ import annotations

import asyncio
import logging

import pytest

from rmq.broker.raft.member_addresses import MemberAddresses
from rmq.broker.raft.peers import Peers
from rmq.broker.raft.wire import Hello, decode, encode
from rmq.broker.replication.wire import LARGEST_BODY, UnitDecoder, header
from rmq.broker.settings import BrokerSettings
from rmq.protocol.errors import ReplicationError
from rmq.raft.messages import Append, Install, VoteRequest
from rmq.raft.messages import Message as Word
from rmq.raft.position import Position
from tests.support.raft.brokers import GroupCluster
from tests.support.raft.strangers import PORT, SECRET, Line, call, fill, said_by, term
from tests.support.virtual import eventually, in_virtual_time

HOSTILE = {
    "a request of HTTP": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "a size below 0": header(0, -1),
    "a size above all": header(0, LARGEST_BODY + 1),
    "an offset below 0": header(-1, 5) + b"hello",
    "half a head": header(0, 10)[:7],
    "half a first word": header(0, 1000) + b"\x00{",
    "a first word without end": header(0, LARGEST_BODY) + b"\x00" * 100_000,
    "a word before the first": encode(VoteRequest(9, "n1", Position(0, 0), pre=False)),
    "nothing in it": header(0, 0) * 5000,
    "a handshake of TLS": b"\x16\x03\x01\x02\x00\x01\x00",
}


@in_virtual_time
async def test_bytes_of_strangers() -> None:
    async with GroupCluster(seed=1) as cluster:
        leader = await cluster.led_by()
        await fill(cluster)
        before = term(cluster)
        node = cluster.simulation.node("stranger")
        lines = {what: await call(node, cluster, leader, data) for what, data in HOSTILE.items()}
        await asyncio.sleep(1)
        assert lines["a first word without end"].ended
        await asyncio.sleep(11)
        for what, line in lines.items():
            assert line.ended, what
            assert SECRET not in line.got, what
            assert len(line.got) < 1200, what
        assert (cluster.leader(), term(cluster)) == (leader, before)


@in_virtual_time
async def test_who_says_something_wrong_of_the_group() -> None:
    async with GroupCluster(seed=2) as cluster:
        leader = await cluster.led_by()
        other = next(name for name in cluster.names if name != leader)
        node = cluster.simulation.node("stranger")
        for wrong, why in (
            ({"group": "another"}, "it is n. of group"), ({"to": other}, "it is n. of group"),
            ({"source": leader}, "it is n. of group"), ({"source": "n7"}, "it is n. of group"),
            ({"members": "n0;n1;n2;n3;n4"}, "dLegerPeers and mappedFileSizeCommitLog are the same in all"),
            ({"file_size": 1}, "dLegerPeers and mappedFileSizeCommitLog are the same in all"),
            ({"name": "another"}, "brokerName=another"), ({"disk": "guessed"}, "another disk"),
            ({"group": "two\nlines"}, "does not say who it is"),
            ({"group": "a\nb"}, "does not say who it is"),
        ):  # fmt: skip
            line = await call(node, cluster, leader, said_by(cluster, other, leader, **wrong))
            await eventually(lambda line=line: line.ended)
            assert line.refusal
            with pytest.raises(AssertionError, match=why):
                raise AssertionError(line.refusal)


@in_virtual_time
async def test_a_thousand_connections_keep_no_member_out() -> None:
    async with GroupCluster(seed=3) as cluster:
        leader = await cluster.led_by()
        follower = next(name for name in cluster.names if name != leader)
        node = cluster.simulation.node("stranger")
        lines = [await call(node, cluster, leader, b"\x00") for _ in range(500)]
        lines += [await call(node, cluster, leader) for _ in range(500)]
        await cluster.kill(follower)
        await cluster.begin(follower)
        await fill(cluster)
        await cluster.alike(5)
        assert sum(not line.ended for line in lines) <= 16
        assert cluster.leader() == leader
        await asyncio.sleep(12)
        assert all(line.ended for line in lines)


@in_virtual_time
async def test_who_has_the_address_of_a_dead_member_gets_no_messages() -> None:
    """Nor can it pass for the member that has called it, at the third one: each is told another word."""
    async with GroupCluster(seed=4) as cluster:
        leader = await cluster.led_by()
        dead, third = (name for name in cluster.names if name != leader)
        await fill(cluster)
        await cluster.alike()
        await cluster.kill(dead)
        lines: list[Line] = []

        def taken() -> Line:
            lines.append(Line())
            return lines[-1]

        there = cluster.simulation.net.node(cluster.addresses[dead])
        listener = await there.listen(taken, "", PORT)
        await eventually(lambda: sum(bool(line.got) for line in lines) >= 2)
        await fill(cluster)
        await asyncio.sleep(3)
        got = b"".join(line.got for line in lines)
        assert SECRET not in got
        heard = [Hello.decode(next(UnitDecoder().units(line.got))[1]) for line in lines if line.got]
        disk = next(hello.disk for hello in heard if hello.source == leader)
        line = await call(cluster.simulation.node("x"), cluster, third, said_by(cluster, leader, third, disk=disk))
        await eventually(lambda: line.ended)
        assert "another disk" in line.refusal
        await listener.close()


@in_virtual_time
async def test_terms_of_the_future_are_of_nobody() -> None:
    """Somebody has stolen a member's word: what it says still costs its connection alone."""
    words: list[Word] = [
        VoteRequest((1 << 63) - 1, "n0", Position(0, 0), pre=False), Install(1, "n0", Position(1 << 40, 0), 0),
        Append(1, "n0", Position(0, 0), Position(7, 10), 0, bytes(10)), VoteRequest(-1, "n0", Position(0, 0), pre=True),
    ]  # fmt: skip
    for word in words:
        with pytest.raises(ReplicationError):
            decode("n0", encode(word)[12:])
    async with GroupCluster(seed=5) as cluster:
        leader = await cluster.led_by()
        other, third = (name for name in cluster.names if name != leader)
        before = term(cluster)
        node = cluster.simulation.node("stranger")
        for word in words:
            line = await call(node, cluster, third, said_by(cluster, other, third) + encode(word))
            await eventually(lambda line=line: line.ended, 5)
        assert (cluster.leader(), term(cluster)) == (leader, before)
        assert cluster.driver(third).failures.count == 0


@in_virtual_time
async def test_addresses_that_are_not_allowed(caplog: pytest.LogCaptureFixture) -> None:
    allowed = "10.0.0.0/28"
    async with GroupCluster(seed=6, settings={"haAllowedAddresses": allowed}) as cluster:
        leader = await cluster.led_by()
        for number in range(20):
            node = cluster.simulation.node(f"stranger {number}")
        assert node.address == "10.0.0.25"
        line = await call(node, cluster, leader)
        await eventually(lambda: line.ended)
        assert "haAllowedAddresses does not name its address" in line.refusal
        assert any("haAllowedAddresses" in one.message for one in caplog.records if one.levelno == logging.WARNING)


@in_virtual_time
async def test_members_that_are_not_allowed_are_told(caplog: pytest.LogCaptureFixture) -> None:
    async with GroupCluster(seed=13, settings={"haAllowedAddresses": "10.0.0.1;10.0.0.2;10.0.0.3"}) as cluster:
        await asyncio.sleep(3)
        assert sorted(cluster.addresses.values()) == ["10.0.0.2", "10.0.0.3", "10.0.0.4"]
        told = [one.message for one in caplog.records if "does not name members" in one.message]
        assert (
            told
            == ["haAllowedAddresses does not name members of dLegerPeers, which may not connect then: n2 (10.0.0.4)"]
            * 2
        )


@in_virtual_time
async def test_one_who_never_reads_is_given_little() -> None:
    """Neither the one that is no member, nor one who has stolen a member's word."""
    async with GroupCluster(seed=7) as cluster:
        leader = await cluster.led_by()
        other = next(name for name in cluster.names if name != leader)
        node = cluster.simulation.node("stranger")
        line = await call(node, cluster, leader, said_by(cluster, other, leader))
        assert line.transport is not None
        line.transport.pause_reading()
        for _ in range(50):
            line.say(header(0, 0))
            await asyncio.sleep(0.3)
        line.transport.resume_reading()
        await asyncio.sleep(1)
        assert 0 < len(line.got) < 2000
        assert SECRET not in line.got


@in_virtual_time
async def test_the_order_of_dlegerpeers_means_nothing() -> None:
    cluster = GroupCluster(seed=8)
    cluster.waits = True
    async with cluster:
        peers = [f"{name}-{at}:{PORT}" for name, at in cluster.addresses.items()]
        for number, name in enumerate(cluster.names):
            await cluster.begin(name, dLegerPeers=";".join(peers[number:] + peers[:number]))
        await cluster.led_by()
        await cluster.alike()


@in_virtual_time
async def test_an_address_of_another_machine_is_told(caplog: pytest.LogCaptureFixture) -> None:
    cluster = GroupCluster(seed=9)
    cluster.waits = True
    async with cluster:
        await cluster.begin("n0", dLegerPeers=f"n0-10.77.0.1:{PORT};n1-nowhere:{PORT};n2-10.0.0.5:{PORT}")
        await asyncio.sleep(5)
        told = [one.message for one in caplog.records if one.levelno >= logging.WARNING]
        assert any("10.77.0.1:40911 as this member, which is no address of this machine" in one for one in told), told
        assert any("nowhere:40911" in one for one in told), told


@in_virtual_time
async def test_an_address_that_is_every_machines_own_is_told(caplog: pytest.LogCaptureFixture) -> None:
    cluster = GroupCluster(seed=10)
    cluster.waits = True
    async with cluster:
        await cluster.begin("n0", dLegerPeers=f"n0-127.0.0.1:{PORT};n1-10.0.0.4:{PORT};n2-10.0.0.5:{PORT}")
        await asyncio.sleep(1)
        assert "and 10.0.0.4, 10.0.0.5 as others: these look for it on their own machines" in caplog.text


@pytest.mark.parametrize(
    ("bound", "own", "told"),
    [("127.0.0.1", "{}", True), ("0.0.0.0", "[::1]", True), ("{}", "{}", False), ("0.0.0.0", "{}", False),
     ("::", "{}", False), ("", "{}", False)],
)  # fmt: skip
def test_an_address_at_which_a_member_does_not_listen_is_told(
    bound: str, own: str, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    @in_virtual_time
    async def look() -> None:
        cluster = GroupCluster(seed=11)
        here = cluster.addresses["n0"]
        given = {
            "bindAddress": bound.format(here),
            "enableDLegerCommitLog": "true",
            "dLegerPeers": f"n0-{own.format(here)}:{PORT};n1-10.0.1.4:{PORT};n2-10.0.1.5:{PORT}",
            "dLegerSelfId": "n0",
        }
        settings = BrokerSettings.from_sources(overrides=given)
        world = cluster.simulation.nodes["n0"].world
        await MemberAddresses(world, settings, Peers.of(settings), settings.server_tls()).warn_of_own()

    look()
    said = f"with bindAddress={bound} it does not listen there: the others do not reach it"
    assert (said in caplog.text) == told


@in_virtual_time
async def test_a_broker_that_was_to_be_a_member_says_that_it_is_none(caplog: pytest.LogCaptureFixture) -> None:
    cluster = GroupCluster(seed=12)
    cluster.waits = True
    async with cluster:
        await cluster.begin("n0", enableDLegerCommitLog="false")
        cluster.members.clear()
        assert "dLegerPeers is set, and enableDLegerCommitLog is not: this is a plain broker" in caplog.text
