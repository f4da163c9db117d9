"""Key-value settings: what is acknowledged is on the disk, and a damaged file is not taken for an empty one."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from rmq.namesrv.kvconfig import KVConfig
from rmq.protocol.errors import StoreError
from rmq.runtime.files import RealFiles
from rmq.runtime.world import World


async def loaded(path: Path) -> KVConfig:
    kv = KVConfig(World.real(), str(path))
    await kv.load()
    return kv


async def test_entries_survive_a_restart_in_java_form(tmp_path: Path) -> None:
    path = tmp_path / "namesrv" / "kvConfig.json"
    kv = await loaded(path)
    await kv.put("NS", "k1", "v1")
    await kv.put("NS", "键", "值 \t\x01é")
    await kv.put("OTHER", "k", "v")
    await kv.delete("NS", "k1")
    assert json.loads(path.read_bytes()) == {"configTable": {"NS": {"键": "值 \t\x01é"}, "OTHER": {"k": "v"}}}
    again = await loaded(path)
    assert again.get("NS", "键") == "值 \t\x01é"
    assert again.get("NS", "k1") is None
    assert again.table("OTHER") == {"k": "v"}
    assert again.table("NOWHERE") is None


async def test_a_file_of_java_is_read(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text('{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"broker-a:4"}}}')
    assert (await loaded(path)).get("ORDER_TOPIC_CONFIG", "T") == "broker-a:4"


@pytest.mark.parametrize("text", ["{}", '{"configTable":null}'])
async def test_an_empty_table_has_no_entries(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text(text)
    assert (await loaded(path)).table("NS") is None


async def test_a_damaged_file_gives_way_to_its_copy(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    kv = await loaded(path)
    await kv.put("NS", "k", "1")
    await kv.put("NS", "k", "2")
    for damage in ('{"configTable":{"NS"', "", " \n", "\0\0"):
        path.write_text(damage)
        assert (await loaded(path)).get("NS", "k") == "1"


@pytest.mark.parametrize("damage", ['{"configTable":{"NS"', "", "\0\0"])
async def test_what_cannot_be_read_never_becomes_the_backup(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "kvConfig.json"
    kv = await loaded(path)
    await kv.put("NS", "k", "1")
    await kv.put("NS", "k", "2")
    path.write_text(damage)
    kv = await loaded(path)
    await kv.put("NS", "other", "3")
    backup = path.with_name("kvConfig.json.bak")
    assert json.loads(backup.read_bytes()) == {"configTable": {"NS": {"k": "1"}}}
    assert json.loads(path.read_bytes()) == {"configTable": {"NS": {"k": "1", "other": "3"}}}
    await kv.delete("NS", "other")
    assert json.loads(backup.read_bytes()) == {"configTable": {"NS": {"k": "1", "other": "3"}}}


@pytest.mark.parametrize(
    "text", ['{"configTable"', '{"configTable":[]}', '{"configTable":{"NS":3}}', "\0\0\0\0", "", " "]
)
async def test_a_damaged_file_without_copy_stops_the_start(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text(text)
    with pytest.raises(StoreError, match=r"kvConfig\.json: neither the file nor its \.bak can be read"):
        await loaded(path)


async def test_an_entry_that_cannot_be_written_is_not_there(tmp_path: Path) -> None:
    class Full(RealFiles):
        def write_atomic(self, path: str, data: bytes, *, backup: bool = False) -> None:
            raise OSError(28, "No space left on device")

    kv = await loaded(tmp_path / "kvConfig.json")
    await kv.put("NS", "k", "1")
    kv._file._world = dataclasses.replace(kv._file._world, files=Full())
    with pytest.raises(StoreError, match="No space left on device"):
        await kv.put("NS", "k", "2")
    with pytest.raises(StoreError):
        await kv.delete("NS", "k")
    assert kv.get("NS", "k") == "1"
