"""Key queries while the index is built behind the running broker."""

import asyncio
from typing import Any, cast

import pytest

from rmq.broker.admin.lookup import Lookup
from rmq.broker.admin.message import MessageAdmin
from rmq.broker.delivery.read import ReadLimits
from rmq.broker.settings import BrokerSettings
from rmq.broker.store.index import build as index_build
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.message import QueryMessageRequest
from rmq.testing.simloop import run
from rmq.testing.simworld import Simulation
from tests.support.scenes.store import opened, put, small


@pytest.mark.parametrize("unique", [False, True])
def test_key_queries_say_how_far_the_index_is(monkeypatch: pytest.MonkeyPatch, unique: bool) -> None:
    monkeypatch.setattr(index_build, "_STEP", 4096)
    monkeypatch.setattr(index_build, "_LEAST_AT_ONCE", 512)
    monkeypatch.setattr(index_build, "_MOST_AT_ONCE", 512)

    async def main() -> None:
        machine = Simulation(1).node("a")
        store = await opened(machine.world, small())
        queue = store.queues.get_or_create("T", 0)
        for number in range(500):
            store.append([put(queue, key=f"k{number}")])
        await store.stop()
        for name in machine.files.list("/store/index"):
            machine.files.unlink(f"/store/index/{name}")
        store = await opened(machine.world, small(index_at_start=0))
        assert store.indexing.build is not None
        admin = MessageAdmin(
            BrokerSettings(), store, cast(Any, None), Lookup(store, ReadLimits(memory_bound=0)), cast(Any, None)
        )

        async def ask(key: str) -> Command:
            header = QueryMessageRequest(
                topic="T", key=key, max_num=5, begin_timestamp=0, end_timestamp=1 << 62, unique_key_query=unique
            )
            return await admin.query(cast(Any, None), Command.request(RequestCode.QUERY_MESSAGE, header), header)

        while store.indexing.build.behind > 20_000:  # noqa: ASYNC110
            await asyncio.sleep(0.0005)
        missing, there = await ask("k499"), await ask("k0")
        assert missing.code == ResponseCode.QUERY_NOT_FOUND
        assert "the index is being rebuilt and" in (missing.remark or "")
        assert "not found by key yet" in (missing.remark or "")
        assert there.code == ResponseCode.SUCCESS
        assert there.remark == missing.remark
        while not store.indexing.build.complete:  # noqa: ASYNC110
            await asyncio.sleep(0.0005)
        found = await ask("k499")
        assert (found.code, found.remark) == (ResponseCode.SUCCESS, None)
        assert (await ask("none")).remark == "can not find message, maybe time range not correct"
        await store.stop()

    run(main())
