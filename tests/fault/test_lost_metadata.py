"""B005, I12: a configuration file that was emptied or spoilt is no fresh start: its backup, or a refusal.

The older version that a broker really leaves as ``.bak``, every file it keeps, and no backup at all.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmq.protocol.command import Command
from rmq.protocol.errors import StoreError
from rmq.remoting.client import RemotingClient
from rmq.runtime.world import World
from rmq.testing.simloop import run
from tests.support.kills.killer import BrokerProcess, digest_of
from tests.support.kills.load import commit, send_command
from tests.support.scenes.pop import PopScene

#: Every file a broker keeps beside its store; the last one is what clients bring again with each heartbeat.
FILES = (
    "topics.json", "subscriptionGroup.json", "consumerOffset.json", "lmqConsumerOffset.json", "delayOffset.json",
    "messageRequestMode.json", "consumerFilter.json",
)  # fmt: skip
SPOILS = {
    "empty": b"",
    "blanks": b" \n\0"[:2],
    "zeros": bytes(512),
    "random": random.Random(5).randbytes(300),
    "null": b"null",
    "list": b"[1]",
    "cut": b'{"dataVersion":{"counter":1,"ti',
    "other": b'{"offsetTable":5,"topicConfigTable":7,"subscriptionGroupTable":1,"messageRequestModeMap":2,'
    b'"filterDataByTopic":3,"lmqOffsetTable":4}',
}


#: What each of them may hold.
KINDS = {
    "topics.json": b'{"dataVersion":{"counter":1,"timestamp":5},"topicConfigTable":{}}',
    "subscriptionGroup.json": b'{"dataVersion":{"counter":1,"timestamp":5},"subscriptionGroupTable":{}}',
    "consumerOffset.json": b'{"offsetTable":{"A@g":{0:1}}}',
    "lmqConsumerOffset.json": b'{"lmqOffsetTable":{"%LMQ%A@g":1},"offsetTable":{"A@g":{0:1}}}',
    "delayOffset.json": b'{"offsetTable":{1:1}}',
    "messageRequestMode.json": b'{"messageRequestModeMap":{}}',
    "consumerFilter.json": b'{"filterDataByTopic":{}}',
}


async def _started(name: str, content: bytes, backup: bytes | None) -> PopScene:
    settings = {"enableLmq": "true", "enableMultiDispatch": "true"} if name.startswith("lmq") else {}
    scene = PopScene(1, settings)
    files = scene.node.files
    files.mkdir("/store/config")
    for ending, data in (("", content), (".bak", backup)):
        if data is not None:
            files.write_atomic(f"/store/config/{name}{ending}", data)
    await scene.start()
    return scene


@pytest.mark.parametrize("spoil", SPOILS)
@pytest.mark.parametrize("name", FILES)
def test_b005_without_a_backup_the_start_is_refused(name: str, spoil: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        if name == "consumerFilter.json":
            scene = await _started(name, SPOILS[spoil], None)
            assert f"/store/config/{name}: neither the file nor its .bak can be read" in caplog.text
            await scene.app.stop()
            return
        with pytest.raises(StoreError, match=rf"/store/config/{name}: neither .* remove both to start without"):
            await _started(name, SPOILS[spoil], None)

    run(main())


@pytest.mark.parametrize("of", FILES)
@pytest.mark.parametrize("name", FILES[:-1])
def test_b005_the_file_of_another_kind_in_its_place_is_none(name: str, of: str) -> None:
    """As after two files were exchanged: each is good JSON, and no fresh start."""
    if name == of or {name, of} == {"consumerOffset.json", "lmqConsumerOffset.json"}:
        return
    with pytest.raises(StoreError, match=rf"/store/config/{name}: neither"):
        run(_started(name, KINDS[of], None))


@pytest.mark.parametrize("name", FILES)
def test_b005_a_refused_start_leaves_the_store_to_the_next(name: str) -> None:
    async def main() -> None:
        scene = PopScene(1, {})
        await scene.start()
        await scene.send("kept")
        await scene.app.stop()
        files = scene.node.files
        path = f"/store/config/{name}"
        for one in (path, f"{path}.bak"):
            if files.exists(one):
                files.rename(one, f"{one}.kept")
        files.write_atomic(path, b"")
        if name not in ("consumerFilter.json", "lmqConsumerOffset.json"):
            with pytest.raises(StoreError, match=name):
                await scene.start()
            assert not files.exists("/store/abort")
        files.unlink(path)
        if files.exists(f"{path}.kept"):
            files.rename(f"{path}.kept", path)
        await scene.start()
        assert [given.body for given in await scene.pop()] == ["kept"]
        await scene.client.close()
        await scene.app.stop()

    run(main())


async def _change(address: str, number: int) -> None:
    """A topic, a group, an offset, a delayed message and a request mode more."""
    client = RemotingClient(World.real())

    async def done(command: Command) -> None:
        answer = await client.request(address, command, 30)
        assert answer.code == 0, answer.remark

    try:
        await done(send_command(f"T{number}", 0, [f"0.0.{number:06d}"]))
        await done(Command(200, body=json.dumps({"groupName": f"g{number}", "retryMaxTimes": 7}).encode()))
        await commit(client, address, "g", "BenchmarkTest", 0, number)
        mode = {"topic": f"T{number}", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 0}
        await done(Command(401, body=json.dumps(mode).encode()))
    finally:
        await client.close()


async def _told(address: str) -> dict[str, Any]:
    client = RemotingClient(World.real())
    try:
        topics = json.loads((await client.request(address, Command(21), 30)).body)["topicConfigTable"]
        groups = json.loads((await client.request(address, Command(201), 30)).body)["subscriptionGroupTable"]
        text = (await client.request(address, Command(43), 30)).body.decode()
        offsets = json.loads(text.replace("{0:", '{"0":'))["offsetTable"]
        return {
            "topics.json": {name for name in topics if name[0] == "T" and name[1:].isdigit()},
            "subscriptionGroup.json": {name for name in groups if name[0] == "g"},
            "consumerOffset.json": offsets["BenchmarkTest@g"]["0"],
        }
    finally:
        await client.close()


@pytest.mark.parametrize("spoil", ["empty", "random"])
async def test_b005_what_the_broker_left_as_backup_is_used(tmp_path: Path, spoil: str) -> None:
    """The last change of each file came in the second life: its backup is without it."""
    async with BrokerProcess(tmp_path / "broker", RMQ_FLUSH_CONSUMER_OFFSET_INTERVAL="3600000") as broker:
        config = broker.store / "config"
        for number in (1, 2):
            await _change(await broker.start(), number)
            assert await broker.stop() == 0
        newest = {"topics.json": {"T1", "T2"}, "subscriptionGroup.json": {"g1", "g2"}, "consumerOffset.json": 2}
        older = {"topics.json": {"T1"}, "subscriptionGroup.json": {"g1"}, "consumerOffset.json": 1}
        kept = shutil.copytree(config, tmp_path / "kept")
        for name, known in older.items():
            shutil.rmtree(config)
            shutil.copytree(kept, config)
            path = config / name
            good, backup = path.read_bytes(), path.with_name(f"{name}.bak").read_bytes()
            assert backup
            assert backup != good
            path.write_bytes(SPOILS[spoil])
            told = await _told(await broker.start())
            assert told == {**newest, name: known}
            assert await broker.stop() == 0
            lines = [line for line in broker.errors.splitlines() if str(path) in line]
            assert len(lines) == 1
            assert f"the backup {path}.bak is used" in lines[0]


async def test_b005_an_emptied_first_version_is_one_line_and_nothing_is_modified(tmp_path: Path) -> None:
    async with BrokerProcess(tmp_path / "broker") as broker:
        await _change(await broker.start(), 1)
        assert await broker.stop() == 0
        path = broker.store / "config" / "topics.json"
        path.write_bytes(b"")
        path.with_name("topics.json.bak").unlink(missing_ok=True)
        before = digest_of(broker.store)
        with pytest.raises(AssertionError, match="the broker ended with 1"):
            await broker.start()
        (line,) = [text for text in broker.errors.splitlines() if not text.startswith("warning: ")]
        assert line == (
            f"mqbroker: {path}: neither the file nor its .bak can be read (no content); "
            "restore one of them, or remove both to start without"
        )
        assert digest_of(broker.store) == before
