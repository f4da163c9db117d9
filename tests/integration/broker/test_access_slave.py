"""A slave of a master with access control asks it with the account of a broker, and follows its file by itself."""

from __future__ import annotations

import asyncio

from rmq.auth.credentials import Credentials, Signer
from tests.support.accounts import ACCOUNTS, SECRET, by
from tests.support.raw_peer import send
from tests.support.scenes.pair import Pair, rounds
from tests.support.virtual import in_virtual_time

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
