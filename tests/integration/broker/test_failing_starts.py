"""A broker whose start fails half way ends what has begun."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from rmq.broker.app import BrokerApp
from rmq.broker.roles.master import MasterServices
from rmq.protocol.errors import RMQError
from tests.support.scenes.pop import PopScene, pop_scene
from tests.support.virtual import in_virtual_time


def raising(*_: object, **__: object) -> None:
    raise RuntimeError("planted")


def pop_fails(app: BrokerApp) -> None:
    make = app.roles._make_master

    def made() -> MasterServices:
        master = make()
        master.pop.load = raising  # type: ignore[method-assign]
        return master

    app.roles._make_master = made


@pytest.mark.parametrize(
    "plant",
    [
        pytest.param(lambda app: setattr(app.server, "start", raising), id="listening"),
        pytest.param(pop_fails, id="what POP has open"),
        pytest.param(lambda app: setattr(app.store.upkeep, "begin", raising), id="the store"),
        pytest.param(lambda app: setattr(app._registration, "start", raising), id="registering"),
    ],
)
@in_virtual_time
async def test_a_start_that_fails_half_way_leaves_nothing(
    plant: Callable[[BrokerApp], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pop_scene() as scene:
        await scene.topic()
        await scene.send("a")
        await scene.app.stop()
        await fails_at(scene, plant, monkeypatch)
        assert {task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}} == set()
        # Neither port nor lock is held.
        await scene.start()
        assert [given.body for given in await scene.pop()] == ["a"]


async def fails_at(scene: PopScene, plant: Callable[[BrokerApp], None], monkeypatch: pytest.MonkeyPatch) -> None:
    wire = BrokerApp._wire

    def planted(app: BrokerApp, store_host: bytes) -> None:
        wire(app, store_host)
        plant(app)

    with monkeypatch.context() as patched:
        patched.setattr(BrokerApp, "_wire", planted)
        with pytest.raises((RuntimeError, RMQError), match="planted"):
            await scene.start()
