"""Brokers with access control ask each other with the account of a broker, and follow its file by themselves."""

from __future__ import annotations

import asyncio

import pytest

from rmq.aio import Message, Producer
from rmq.auth.credentials import Credentials, Signer
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.remoting.client import RemotingClient
from tests.support.accounts import ACCOUNTS, SECRET, by
from tests.support.raft.brokers import GroupCluster
from tests.support.raw_peer import send
from tests.support.scenes.pair import Pair, rounds
from tests.support.virtual import eventually, in_virtual_time

SETTINGS = {"aclEnable": "true", "rocketmqHome": "/home", "aclCredentialsFile": "/home/broker.yml",
            "haAllowedAddresses": "10.0.0.0/8"}  # fmt: skip


def write(scene: Pair, path: str, text: str) -> None:
    for name in ("master", "slave"):
        files = scene.nodes[name].files
        files.mkdir("/home/conf")
        files.write_atomic(path, text.encode())


@in_virtual_time
async def test_a_slave_and_its_master_have_access_control() -> None:
    scene = Pair(SETTINGS)
    write(scene, "/home/conf/plain_acl.yml", ACCOUNTS)
    write(scene, "/home/broker.yml", f"accessKey: a-broker\nsecretKey: {SECRET}\n")
    await scene.start_namesrv()
    await scene.start_master()
    await scene.start_slave()
    try:
        scene.client.hooks.append(Signer(Credentials("operator", SECRET)))
        await scene.topic("T")
        await scene.send("T", "a")
        await rounds(scene)
        assert scene.slave.topics.get("T") is not None
        await scene.commit("master", "g", "T", 1)
        await rounds(scene)
        assert scene.offset() == 1
        scene.client.hooks.clear()
        assert (await scene.ask("master", by("owner-of-T", send("T")))).code == 0
        # Nobody asks it to look: within five seconds it has.
        write(scene, "/home/conf/plain_acl.yml", ACCOUNTS.replace("T=PUB|SUB", "T=SUB"))
        await asyncio.sleep(5)
        assert (await scene.ask("master", by("owner-of-T", send("T")))).code == 1
        # A slave whose account is none any more learns nothing.
        write(scene, "/home/conf/plain_acl.yml", ACCOUNTS.replace("accessKey: a-broker", "accessKey: another-broker"))
        await asyncio.sleep(5)
        scene.client.hooks.append(Signer(Credentials("operator", SECRET)))
        await scene.topic("U")
        await rounds(scene)
        assert scene.slave.topics.get("U") is None
    finally:
        await scene.stop()


@in_virtual_time
async def test_a_follower_takes_progress_over_and_passes_on_what_its_leader_has_the_word_on() -> None:
    cluster = GroupCluster(settings=SETTINGS)
    for name in cluster.names:
        files = cluster.simulation.nodes[name].world.files
        files.mkdir("/home")
        files.mkdir("/home/conf")
        files.write_atomic("/home/conf/plain_acl.yml", ACCOUNTS.encode())
        files.write_atomic("/home/broker.yml", f"accessKey: a-broker\nsecretKey: {SECRET}\n".encode())
    queue = {"consumerGroup": "G", "topic": "T", "queueId": "0"}
    async with cluster:
        client = RemotingClient(cluster.simulation.node("asking").world)

        async def ask(name: str, code: int, **fields: str) -> Command:
            request = by("owner-of-T", Command(code, ext=queue | fields))
            return await client.request(f"{cluster.addresses[name]}:10911", request, 4.0)

        leader = await cluster.led_by()
        follower = next(name for name in cluster.names if name != leader)
        async with Producer("p", namesrv=cluster.namesrv_addr, access_key="operator", secret_key=SECRET) as producer:
            await producer.send(Message("T", b"x"))
        assert (await ask(leader, RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset="1")).code == 0
        here = cluster.members[follower].offsets
        await eventually(lambda: here.query("G", "T", 0) == 1, 5)
        assert (await ask(follower, RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset="0")).code == 0
        answer = await ask(leader, RequestCode.QUERY_CONSUMER_OFFSET)
        assert (answer.code, (answer.ext or {})["offset"]) == (0, "0")
        here.commit("G", "T", 0, 1)
        answer = await ask(follower, RequestCode.QUERY_CONSUMER_OFFSET)
        assert (answer.code, (answer.ext or {})["offset"]) == (0, "0")
        await client.close()


@pytest.mark.parametrize(("changed", "told"), [({"aclCredentialsFile": ""}, True), ({}, False)])
def test_who_follows_and_signs_nothing_is_told_at_the_start(
    changed: dict[str, str], told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    @in_virtual_time
    async def start() -> None:
        scene = Pair(SETTINGS | changed)
        write(scene, "/home/conf/plain_acl.yml", ACCOUNTS)
        write(scene, "/home/broker.yml", f"accessKey: a-broker\nsecretKey: {SECRET}\n")
        await scene.start_slave()
        await scene.stop()

    start()
    assert ("aclEnable without aclCredentialsFile" in caplog.text) == told
