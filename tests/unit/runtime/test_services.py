"""Services that end before their time are told of, those of owners that are done are not."""

from __future__ import annotations

import asyncio

from rmq.runtime.services import Services
from rmq.runtime.tasks import TaskOwner


async def test_who_is_done_is_watched_no_more() -> None:
    async def fails() -> None:
        raise RuntimeError("planted")

    services, kept, done = Services("broker"), TaskOwner("kept"), TaskOwner("done")
    services.watch(kept, done)
    async with kept, done:
        for owner in (kept, done):
            owner.serve(fails(), "one")
            owner.serve(asyncio.Event().wait(), "other")
        while len(services.ended) < 2:  # noqa: ASYNC110 - tasks make it true
            await asyncio.sleep(0)
        assert services.ended.keys() == {"kept.one", "done.one"}
        services.unwatch(done)
        assert services.ended.keys() == {"kept.one"}
        assert services.running == ["kept.other"]
        again = TaskOwner("done")
        services.watch(again)
        async with again:
            again.serve(asyncio.Event().wait(), "one")
            assert set(services.running) == {"kept.other", "done.one"}
