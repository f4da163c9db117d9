"""Strangers that say they are members, and members that say what is not so: it costs them their connections alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from rmq.broker.raft import driver
from rmq.broker.raft.wire import Hello, Word, encode
from rmq.broker.replication.wire import HEADER_SIZE, UnitDecoder, header
from rmq.raft.effects import Write
from rmq.raft.messages import (
    Admit,
    Append,
    AppendReply,
    Install,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from rmq.raft.position import Position
from rmq.testing.simworld import SimOffload
from tests.support.raft.brokers import GroupCluster
from tests.support.raft.strangers import PORT, Line, call, fill, said_by, term
from tests.support.virtual import eventually, in_virtual_time


def takes_part(cluster: GroupCluster) -> bool:
    return all(app.group is not None and app.group.takes_part for app in cluster.members.values())


# -- while nobody has met anybody


@in_virtual_time
async def test_nobody_tells_a_new_member_that_it_had_another_disk_before() -> None:
    """It would neither vote nor be counted, and once all of them believe it nobody leads, for good."""
    cluster = GroupCluster(seed=3)
    cluster.waits = True
    async with cluster:
        node = cluster.simulation.node("stranger")
        for name in cluster.names:
            await cluster.begin(name)
            one = next(other for other in cluster.names if other != name)
            for wrong in ({"known": "x" * 24, "begun": True}, {"begun": True}, {"returned": True}):
                line = await call(node, cluster, name, said_by(cluster, one, name, disk="evil", **wrong))
                await eventually(lambda line=line: line.ended)
                assert f"says that it is {one}, whose disk is new to this member" in line.refusal
        await cluster.led_by()
        for name in cluster.names:
            assert not cluster.driver(name).returning
        await fill(cluster)
        await cluster.alike()


@in_virtual_time
async def test_who_says_that_he_is_a_member_of_a_new_group_is_forgotten_when_that_one_comes() -> None:
    cluster = GroupCluster(seed=4)
    cluster.waits = True
    async with cluster:
        node = cluster.simulation.node("stranger")
        lines: list[Line] = []
        for name in cluster.names:
            await cluster.begin(name)
            for one in cluster.names:
                if one != name:
                    lines.append(await call(node, cluster, name, said_by(cluster, one, name, disk="evil")))
            await asyncio.sleep(0.1)
        await cluster.led_by()
        await fill(cluster)
        await cluster.alike()
        for name in cluster.names:
            kept = json.loads(cluster.simulation.nodes[name].files.read("/store/raft/members"))
            assert kept["begun"]
            assert "evil" not in kept["others"].values()
        assert all(line.ended for line in lines)


async def without_a_disk(cluster: GroupCluster) -> tuple[str, str]:
    """A member that was killed and has lost its disk, and another that was killed; the leader has all messages."""
    leader = await cluster.led_by()
    lost, third = (name for name in cluster.names if name != leader)
    await fill(cluster)
    await cluster.alike()
    await cluster.kill(third)
    await cluster.kill(lost, disk=True)
    return lost, third


@in_virtual_time
async def test_who_has_lost_its_disk_hears_of_a_third_member_from_its_address_alone() -> None:
    async with GroupCluster(seed=5) as cluster:
        lost, third = await without_a_disk(cluster)
        await cluster.begin(lost)
        await eventually(lambda: cluster.driver(lost).returning, 10)
        line = await call(cluster.simulation.node("x"), cluster, lost, said_by(cluster, third, lost, disk="evil"))
        await eventually(lambda: line.ended)
        assert "not from the address that dLegerPeers names (nobody answers there)" in line.refusal
        await cluster.begin(third)
        await cluster.led_by()
        await cluster.alike()
        await eventually(lambda: not cluster.driver(lost).returning)


@in_virtual_time
async def test_it_is_not_counted_after_another_start_either() -> None:
    """Who has lost its disk knows it from then on, whatever it has not been told yet."""
    async with GroupCluster(seed=6) as cluster:
        lost, third = await without_a_disk(cluster)
        for seconds in (0, 0, 3, 3):
            await cluster.begin(lost)
            await eventually(lambda: cluster.driver(lost).returning, 10)
            await asyncio.sleep(seconds)
            kept = json.loads(cluster.simulation.nodes[lost].files.read("/store/raft/vote"))
            assert kept["returning"] is True
            assert seconds == 0 or cluster.leader() is None
            await cluster.kill(lost, power=True)
        await cluster.begin(third)
        await cluster.led_by()
        await cluster.begin(lost)
        await eventually(lambda: not cluster.driver(lost).returning, 10)
        await cluster.alike()


# -- connections


@in_virtual_time
async def test_strangers_push_out_no_member_that_is_about_to_say_who_it_is() -> None:
    """As long as a handshake of TLS takes, over a long line."""
    async with GroupCluster(seed=7) as cluster:
        leader = await cluster.led_by()
        other = next(name for name in cluster.names if name != leader)
        member = await call(cluster.simulation.nodes[other], cluster, leader)  # type: ignore[arg-type]
        node = cluster.simulation.node("stranger")
        lines = [await call(node, cluster, leader) for _ in range(100)]
        await asyncio.sleep(1)
        assert not member.ended
        assert sum(not line.ended for line in lines) <= 15
        assert "too many connect" in next(line for line in lines if line.ended).refusal


@in_virtual_time
async def test_a_first_word_in_pieces_is_waited_for_no_longer_than_a_whole_one() -> None:
    async with GroupCluster(seed=8) as cluster:
        leader = await cluster.led_by()
        other = next(name for name in cluster.names if name != leader)
        hello = said_by(cluster, other, leader)
        line = await call(cluster.simulation.node("stranger"), cluster, leader)
        for at in range(len(hello) - 1):
            line.say(hello[at : at + 1])
            await asyncio.sleep(0.2)
            if line.ended:
                break
        assert "has not said who it is within 10 s" in line.refusal
        assert cluster.leader() == leader


#: What a connection begins with, and what may not be in the log of the one that it goes to.
FIRST: dict[str, bytes] = {
    "a line of a log": b'\x00{"version":1,"a\\nERROR all is lost":1}',
    "long names": b'\x00{"version":1,"%s":1}' % (b"A" * 9000),
    "nothing but brackets": b"\x00" + b"[" * 30_000,
    "objects in each other": b"\x00" + b'{"version":' * 5000,
    "a number without end": b'\x00{"version":' + b"9" * 20_000 + b"}",
    "more than all fields have": b'\x00{"version":1,"group":"' + b" " * 40_000 + b'"}',
    "half a letter": b'\x00{"version":1,"group":"\xc3"}',
    "another version": b'\x00{"version":"%s"}' % (b"\\n" * 5000),
}


@in_virtual_time
async def test_a_first_word_costs_one_short_line(caplog: pytest.LogCaptureFixture) -> None:
    async with GroupCluster(seed=9) as cluster:
        leader = await cluster.led_by()
        node = cluster.simulation.node("stranger")
        known: set[str] = set()
        for what, body in FIRST.items():
            caplog.clear()
            line = await call(node, cluster, leader, header(0, len(body)) + body)
            await eventually(lambda line=line: line.ended)
            told = [one.getMessage() for one in caplog.records if "is closed" in one.getMessage()]
            assert len(told) == (line.refusal not in known), what  # what was told within the minute is not again
            known.add(line.refusal)
            for one in (*told, line.refusal):
                assert one.isprintable(), what
                assert len(one) < 300, what
            await asyncio.sleep(2)
        caplog.clear()
        for _ in range(200):
            await call(node, cluster, leader, header(0, 2) + b"\x00[")
        await asyncio.sleep(1)
        assert sum("is closed" in one.getMessage() for one in caplog.records) <= 11
        assert not [one for one in caplog.records if one.exc_info]


# -- members that say what was said already, or what is not so


class Tape:
    """Keeps what members write to each other, by who has said it to whom."""

    def __init__(self, cluster: GroupCluster) -> None:
        #: Of each connection, in turn.
        self.said: dict[tuple[str, str], list[list[bytes]]] = {}
        for name in cluster.members:
            network: Any = cluster.simulation.nodes[name].world.network
            self._listen(network, name, {at: one for one, at in cluster.addresses.items()})

    def _listen(self, network: Any, name: str, names: dict[str, str]) -> None:
        connect = network.connect

        async def tapped(factory: Callable[[], Any], host: str, port: int, **named: Any) -> Any:
            made = await connect(factory, host, port, **named)
            if port != PORT:
                return made
            transport = made[0]
            kept: list[bytes] = []
            self.said.setdefault((name, names.get(host, host)), []).append(kept)
            write = transport.write

            def keep(data: bytes) -> None:
                kept.append(bytes(data))
                write(data)

            transport.write = keep
            return made

        network.connect = tapped

    def units(self, source: str, to: str) -> list[bytes]:
        """What was said behind the first unit."""
        found = [UnitDecoder().units(b"".join(kept)) for kept in self.said[source, to]]
        return [header(at, len(body)) + body for units in found for at, body in units if body and body[0]]


@in_virtual_time
async def test_what_was_said_once_may_be_said_again_in_any_order_by_anybody() -> None:
    """Whoever has written down what went over the line has the members' words, too."""
    async with GroupCluster(seed=10) as cluster:
        tape = Tape(cluster)
        for pipe in list(cluster.simulation.net._pipes):
            pipe.abort()  # so that all connections are new ones
        first = await cluster.led_by()
        await fill(cluster)
        await cluster.alike()
        await cluster.kill(first)
        second = await cluster.led_by()
        await fill(cluster)
        await cluster.begin(first)
        await cluster.alike()
        tapes = {way: tape.units(*way) for way in tape.said if set(way) <= set(cluster.names)}
        assert sum(map(len, tapes.values())) > 50
        before, random, node = term(cluster), Random(1), cluster.simulation.node("stranger")
        for shuffled in (False, True):
            for (source, to), units in tapes.items():
                again = units * 2
                if shuffled:
                    random.shuffle(again)
                line = await call(node, cluster, to, said_by(cluster, source, to) + b"".join(again))
                await asyncio.sleep(0.2)
                line.transport.abort()  # type: ignore[union-attr]
        await fill(cluster)
        await cluster.alike()
        assert (cluster.leader(), term(cluster)) == (second, before)
        for name in cluster.names:
            assert (cluster.driver(name).parted, cluster.driver(name).failures.count) == (None, 0)


def nonsense(random: Random, source: str, near: int, end: int) -> Word:
    """A word of about this term and about this log."""

    def place() -> Position:
        offset = random.choice((0, end, random.randint(0, end + 99)))
        return Position(max(0, near - random.choice((0, 0, 1, 2))), offset)

    nearest = random.choice((None, place()))
    number = random.choice((0, 1, near, end, (1 << 62) - 1))
    said = max(0, near - random.choice((0, 0, 0, 1)))
    before, after = sorted((place(), place()))
    span = bytes(max(0, min(after.end - before.end, 5000)))
    words: list[Word] = [
        VoteRequest(said, source, place(), random.random() < 0.5, random.random() < 0.5),
        VoteReply(said, source, random.random() < 0.5, random.random() < 0.5),
        Append(said, source, before, Position(after.term, before.end + len(span)), number, span, number),
        AppendReply(said, source, random.choice((None, place())), place(), nearest, number, number),
        Install(said, source, place(), number, number), TimeoutNow(said, source), Admit(said, source, number),
    ]  # fmt: skip
    return random.choice(words)


@in_virtual_time
@pytest.mark.parametrize("seed", range(4))
async def test_words_without_sense_end_no_member_without_a_word(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """Who lies with a member's word may stop the group, which says so; nothing fails that nobody has thought of."""
    random = Random(seed)
    async with GroupCluster(seed=11) as cluster:
        leader = await cluster.led_by()
        await fill(cluster, 3)
        await cluster.alike()
        node = cluster.simulation.node("stranger")
        for _ in range(20):
            to = random.choice(cluster.names)
            source = random.choice([name for name in cluster.names if name != to])
            end = cluster.members[leader].store.log.end
            words = [nonsense(random, source, term(cluster), end) for _ in range(30)]
            line = await call(node, cluster, to, said_by(cluster, source, to))
            for word in words:
                line.say(encode(word))
            await asyncio.sleep(0.05)
            if any(cluster.driver(name).node is None for name in cluster.names):
                break
        assert not [one.getMessage() for one in caplog.records if one.exc_info]


@in_virtual_time
async def test_a_flood_of_first_words_holds_nobody_up() -> None:
    async with GroupCluster(seed=12) as cluster:
        leader = await cluster.led_by()
        other = next(name for name in cluster.names if name != leader)
        hello = said_by(cluster, other, leader)
        assert Hello.decode(hello[HEADER_SIZE:]).source == other
        line = await call(cluster.simulation.node("stranger"), cluster, leader, hello * 500)
        await fill(cluster)
        await cluster.alike()
        assert (cluster.leader(), line.ended) == (leader, False)


@in_virtual_time
@pytest.mark.parametrize("spans", [True, False])
async def test_what_waits_for_a_disk_that_stands_still_is_bounded(spans: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever members say meanwhile; afterwards it is one of them as before."""
    monkeypatch.setattr(driver, "_MOST_EFFECTS", 300)
    monkeypatch.setattr(driver, "_MOST_BYTES", 1 << 20)
    async with GroupCluster(seed=13) as cluster:
        leader = await cluster.led_by()
        source, to = (name for name in cluster.names if name != leader)
        await fill(cluster)
        await cluster.alike()
        own, offload = cluster.driver(to), cluster.simulation.nodes[to].world.offload
        assert isinstance(offload, SimOffload)
        delay, offload.delay = offload.delay, lambda: 2.0
        assert own.node is not None
        place, near, data = own.node.path.last, term(cluster) + 1, bytes(1 << 17)
        words: list[Word] = [Append(near, source, place, place, 0)]
        for number in range(900):
            if spans:
                after = place._replace(end=place.end + len(data))
                words.append(Append(near, source, place, after, 0, data))
                place = after
            else:
                words.append(VoteRequest(near + number, source, Position(near, 1 << 40), False, told=True))
        line = await call(cluster.simulation.node("stranger"), cluster, to, said_by(cluster, source, to))
        line.say(b"".join(map(encode, words[: 40 if spans else None])))
        await asyncio.sleep(0.5)
        waiting = sum(len(effect.data) for effect in own._effects._waiting if isinstance(effect, Write))
        if spans:
            assert 1 << 20 <= waiting <= (1 << 20) + len(data)
        else:
            assert 300 < len(own._effects) < 310
        offload.delay = delay
        await cluster.kill(to)
        await cluster.begin(to)
        await fill(cluster)
        await cluster.alike()
