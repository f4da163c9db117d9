"""Oneway sends that come to a member which does not lead."""

from __future__ import annotations

import asyncio
import logging
from typing import cast

import pytest

from rmq.broker.raft.strays import Strays
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ConnectFailed, RequestTimeout
from rmq.remoting.client import RemotingClient
from rmq.runtime.tasks import TaskOwner
from tests.support.virtual import in_virtual_time, one_world

OK = Command(0)
TAKES_NONE = Command(ResponseCode.SERVICE_NOT_AVAILABLE, remark="takes none")


class Leader:
    """Answers what it is told to, one after the other, and then that it has stored it."""

    def __init__(self, *outcomes: Command | Exception) -> None:
        self.outcomes = list(outcomes)
        self.got: list[Command] = []
        self.under_way = self.most = 0

    async def request(self, address: str, request: Command, seconds: float) -> Command:
        self.got.append(request)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0.01)
        self.under_way -= 1
        outcome = self.outcomes.pop(0) if self.outcomes else OK
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def oneway(body: bytes = b"x", **ext: str) -> Command:
    return Command(RequestCode.SEND_MESSAGE_V2, ext={"b": "Topic", **ext}, body=body).mark_oneway()


async def passed(leader: Leader, *requests: Command, known: bool = True) -> None:
    """Give a member sends, and wait for what becomes of them."""
    tasks = TaskOwner("test")
    address = (lambda: "leader:10911") if known else (lambda: None)
    strays = Strays(one_world().clock, cast(RemotingClient, leader), address, tasks)
    for request in requests:
        strays.take(request)
    await asyncio.sleep(10)
    await tasks.close()


@in_virtual_time
async def test_the_leader_gets_them_in_their_order_and_signed_anew() -> None:
    leader = Leader()
    await passed(leader, *(oneway(b"%d" % number, AccessKey="a", Signature="s") for number in range(2000)))
    assert [request.body for request in leader.got] == [b"%d" % number for number in range(2000)]
    assert leader.most == 512
    assert leader.got[0].ext == {"b": "Topic"}
    assert not leader.got[0].is_oneway, "its answer says when the next may come"


@pytest.mark.parametrize("why", [TAKES_NONE, ConnectFailed("refused")], ids=["takes none", "cannot be reached"])
@in_virtual_time
async def test_one_that_the_leader_has_not_is_sent_again(why: Command | Exception) -> None:
    leader = Leader(why, why)
    await passed(leader, oneway())
    assert len(leader.got) == 3


@in_virtual_time
async def test_one_that_the_leader_may_have_is_not_sent_again() -> None:
    leader = Leader(RequestTimeout("no answer"))
    await passed(leader, oneway(), oneway(b"y"))
    assert [request.body for request in leader.got] == [b"x", b"y"]


@in_virtual_time
async def test_one_that_the_leader_refuses_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    leader = Leader(Command(ResponseCode.NO_PERMISSION, remark="not to be written"))
    await passed(leader, oneway())
    assert len(leader.got) == 1
    assert "leader:10911: not to be written" in caplog.text


@in_virtual_time
async def test_they_are_not_kept_for_ever_nor_without_bound(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    leader = Leader(*[TAKES_NONE] * 1000)
    await passed(leader, oneway())
    assert 20 < len(leader.got) < 40
    assert "leader:10911: takes none" in caplog.text
    leader = Leader()
    await passed(leader, oneway(), known=False)
    assert leader.got == []
    await passed(leader, *(oneway(bytes(6 << 20)) for _ in range(4)))
    assert len(leader.got) == 2
