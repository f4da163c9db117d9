"""A store that another kind of broker has left: refused where messages would silently not be there, else told of."""

from __future__ import annotations

import asyncio
import logging

import pytest

from rmq.aio import Producer
from rmq.broker.raft.found import committed
from rmq.broker.store.stopped.stopped_store import StoppedStore
from rmq.broker.store.stopped.verify import verify
from rmq.client.message import Message
from rmq.protocol.errors import RMQError, StoreError
from tests.support.raft.brokers import GroupCluster
from tests.support.virtual import in_virtual_time


def _left(cluster: GroupCluster, *paths: str) -> None:
    """Put files into the store of ``n0``."""
    files = cluster.simulation.nodes["n0"].files
    for path in paths:
        folder = path.rpartition("/")[0]
        at = ""
        for part in folder.strip("/").split("/"):
            at += f"/{part}"
            if not files.is_dir(at):
                files.mkdir(at)
        files.write_atomic(path, b"x")


def _unstarted(seed: int) -> GroupCluster:
    cluster = GroupCluster(seed=seed)
    cluster.waits = True
    return cluster


@pytest.mark.parametrize("path", ["data/00000000000000000000", "index/00000000000000000000"])
@in_virtual_time
async def test_a_member_does_not_start_beside_javas_log(path: str) -> None:
    async with _unstarted(1) as cluster:
        _left(cluster, f"/store/dledger-n0/{path}")
        with pytest.raises(StoreError, match=r"^/store/dledger-n0 has the log of Java's .* import-dledger"):
            await cluster.begin("n0")
        files = cluster.simulation.nodes["n0"].files
        assert files.list("/store") == ["dledger-n0"]
        files.unlink(f"/store/dledger-n0/{path}")
        await cluster.begin("n0")  # folders without files


@in_virtual_time
async def test_a_plain_broker_says_what_is_not_there(caplog: pytest.LogCaptureFixture) -> None:
    async with _unstarted(2) as cluster:
        _left(cluster, "/store/dledger-n0/data/00000000000000000000")
        with caplog.at_level(logging.WARNING, "rmq.broker.raft.found"):
            await cluster.begin("n0", enableDLegerCommitLog="false")
        assert "/store/dledger-n0 has the log of Java's DLedger" in caplog.text


@in_virtual_time
async def test_a_member_that_starts_as_a_plain_broker_says_what_that_means(caplog: pytest.LogCaptureFixture) -> None:
    async with _unstarted(3) as cluster:
        with caplog.at_level(logging.WARNING, "rmq.broker.raft.found"):
            await cluster.stop_broker(await cluster.begin("n0"))
            cluster.members.clear()
            caplog.clear()
            await cluster.begin("n0", enableDLegerCommitLog="false")
        [told] = [record.getMessage() for record in caplog.records if record.name == "rmq.broker.raft.found"]
        assert told.startswith("/store/raft says that this store was that of a member of a group")
        assert "docs/failover.md" in told


@in_virtual_time
async def test_what_a_plain_broker_stored_meanwhile_is_not_given_to_the_group_to_take_back() -> None:
    """The others would elect one of themselves, and nobody would be told that acknowledged messages are gone."""
    async with GroupCluster(seed=4) as cluster:
        name = await cluster.led_by()
        for one in cluster.names:
            await cluster.stop_broker(cluster.members.pop(one))
        for _ in range(2):  # as long as nothing is stored it may come back
            await cluster.stop_broker(await cluster.begin(name, enableDLegerCommitLog="false"))
            await cluster.stop_broker(await cluster.begin(name))
        cluster.members.clear()
        plain = await cluster.begin(name, enableDLegerCommitLog="false")
        async with Producer("meanwhile", namesrv=cluster.namesrv_addr) as producer:
            await producer.send(Message("Topic", b"stored"))
        await cluster.stop_broker(plain)
        await cluster.stop_broker(await cluster.begin(name, enableDLegerCommitLog="false"))  # keeps what it was
        cluster.members.clear()
        with pytest.raises(StoreError, match=r"^/store was a plain broker's since .*: the group would take back"):
            await cluster.begin(name)
        cluster.members.clear()


@in_virtual_time
async def test_what_no_majority_has_need_not_be_in_queues(caplog: pytest.LogCaptureFixture) -> None:
    """A member that is stopped when the others are: a look at its store finds no damage, and tells of it."""
    sizes = {"mappedFileSizeCommitLog": "65536", "maxHashSlotNum": "1000", "maxIndexNum": "4000"}
    async with GroupCluster(seed=3, settings=sizes) as cluster:
        leader = await cluster.led_by()
        name, other = (one for one in cluster.names if one != leader)
        async with Producer("p", namesrv=cluster.namesrv_addr, send_msg_timeout=1.0) as producer:
            await producer.send(Message("T", b"has a majority", keys="a"))
            await asyncio.sleep(2)
            for one in (name, other):
                cluster.mute(one)
            with pytest.raises(RMQError):
                await producer.send(Message("T", b"has none", keys="b"))
        app = cluster.members.pop(name)
        end, shown = app.store.log.end, app.store.durability.visible
        assert shown < end
        await cluster.stop_broker(app)
        world = cluster.simulation.nodes[name].world
        async with StoppedStore(world, app.settings.store_settings()) as store:
            known = committed(world.files, "/store")
            found = await verify(store, committed=known)
            assert (found.findings.damages, found.log_end) == ([], end)
            assert [(note.kind, note.start, note.end) for note in found.findings.notes][-1] == (
                "uncommitted",
                shown,
                end,
            )
            assert {one.part for one in (await verify(store)).findings.damages} == {"consumequeue", "index"}
        # A plain broker that takes it shows all of it.
        world.files.write_atomic("/store/raft/plain", b"{}")
        assert committed(world.files, "/store") is None
        world.files.unlink("/store/raft/plain")
        world.files.write_atomic("/store/raft/commit", b"not what a member keeps")
        assert committed(world.files, "/store") is None
        assert "how far the log was committed is not known: /store/raft" in caplog.text
