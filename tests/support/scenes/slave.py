"""Scenes of a SYNC_MASTER whose slave is dead, slow or alive, for the tests and for the table of planted bugs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.headers.transaction import COMMIT, EndTransactionRequest
from rmq.testing.simloop import run
from tests.support.kills.load import parse_body, send_command
from tests.support.scenes.pop import PopScene, pop_scene

__all__ = ["UNWAITED", "a_dead_slave_stops_nobody", "sent"]

#: Seconds of virtual time in which anything that is decided at once is seen; ``slaveTimeout`` is longer.
SOON = 2.0
TIMEOUT_MS = 5000


def sent(key: str, *more: str, topic: str = "T0") -> Command:
    """A send with more properties, ``NAME=value``."""
    command = send_command(topic, 0, [key])
    text = (command.ext or {})["i"]
    assert text is not None
    command.ext = {**(command.ext or {}), "i": "\x02".join((text, *(one.replace("=", "\x01") for one in more)))}
    return command


async def _oneway(scene: PopScene) -> None:
    await scene.client.oneway(scene.addr, sent("x"))


async def _unwaited(scene: PopScene) -> None:
    assert (await scene.client.request(scene.addr, sent("x", "WAIT=false"), 60)).code == 0


async def _unwaited_batch(scene: PopScene) -> None:
    batch = send_command("T0", 0, ["y", "x"])
    batch.ext = {**(batch.ext or {}), "i": "WAIT\x01false"}
    assert (await scene.client.request(scene.addr, batch, 60)).code == 0


async def _oneway_batch(scene: PopScene) -> None:
    await scene.client.oneway(scene.addr, send_command("T0", 0, ["y", "x"]))


async def _delayed(scene: PopScene) -> None:
    await scene.client.oneway(scene.addr, sent("x", "DELAY=1"))


async def _timed(scene: PopScene) -> None:
    at = scene.node.clock.now_ms() + 500
    await scene.client.oneway(scene.addr, sent("x", f"TIMER_DELIVER_MS={at}"))


async def _committed(scene: PopScene) -> None:
    half = sent("x", "TRAN_MSG=true", "PGROUP=pg")
    half.ext = {**(half.ext or {}), "f": "4"}
    answer = await scene.client.request(scene.addr, half, 60)
    told = answer.ext or {}
    position = int((told["msgId"] or "")[-16:], 16)
    end = EndTransactionRequest(
        producer_group="pg", tran_state_table_offset=int(told["queueOffset"] or 0), commit_log_offset=position,
        commit_or_rollback=COMMIT, msg_id="x",
    )  # fmt: skip
    await scene.client.oneway(scene.addr, Command.request(RequestCode.END_TRANSACTION, end))


#: Appends that nobody waits for, each of a message with key x for queue 0 of T0.
UNWAITED: dict[str, Callable[[PopScene], Awaitable[None]]] = {
    "one-way": _oneway,
    "WAIT=false": _unwaited,
    "batch, WAIT=false": _unwaited_batch,
    "batch, one-way": _oneway_batch,
    "delayed": _delayed,
    "timed": _timed,
    "committed": _committed,
}


async def seen(scene: PopScene) -> list[str]:
    """Keys a consumer is given from queue 0 of T0."""
    ext: dict[str, str | None] = {
        "consumerGroup": "g", "topic": "T0", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4",
        "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG",
    }  # fmt: skip
    answer = await scene.client.request(scene.addr, Command(11, ext=ext), 60)
    return [key for _, key, _ in parse_body(answer.body)] if answer.code == 0 else []


async def appeared(scene: PopScene, within: float) -> bool:
    """Whether the message with key x is seen in time, with no other send."""
    loop = asyncio.get_running_loop()
    end = loop.time() + within
    while loop.time() < end:
        if "x" in await seen(scene):
            return True
        await asyncio.sleep(0.05)
    return False


def a_dead_slave_stops_nobody(flush: str = "ASYNC_FLUSH", only: str = "") -> None:
    """I9: without a slave everything appended is seen, whoever waits for an answer, with no later send."""

    async def main(name: str) -> None:
        timeout = str(TIMEOUT_MS)
        async with pop_scene(brokerRole="SYNC_MASTER", flushDiskType=flush, slaveTimeout=timeout) as scene:
            await scene.topic("T0")
            await UNWAITED[name](scene)
            assert await appeared(scene, SOON), f"I9: {name}: what was appended is not given to consumers"

    for name in UNWAITED:
        if not only or only == name:
            run(main(name))
