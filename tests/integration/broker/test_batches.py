"""Batches that hold what a batch cannot do."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq.protocol import batch, properties
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.testing.cluster import Cluster
from tests.support.raw_peer import RawPeer, send

WAITS = ("DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")


def batched(members: list[dict[str, str]], shared: dict[str, str], code: int) -> Command:
    command = send(props=properties.encode(shared), body=batch.encode((0, b"x", member) for member in members))
    command.code = code
    assert command.ext is not None
    command.ext["m"] = "true"
    return command


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE])
async def test_a_batch_with_a_message_that_is_to_wait_is_refused_whole(tmp_path: Path, code: int) -> None:
    async with Cluster(tmp_path) as cluster:
        store = cluster.brokers[0].store
        async with RawPeer(*cluster.brokers[0].address) as peer:
            assert (await peer.ask(batched([{"k": "v", "DELAY": "0"}, {}], {"DELAY": "0"}, code))).code == 0
            stored = store.log.end
            for name in WAITS:
                for value in ("3", "99" if name == "DELAY" else "4102444800000"):
                    for members, shared in (
                        ([{"k": "v"}, {"k": "v", name: value}], {}),
                        ([{name: value}, {}], {}),
                        ([{}, {}], {name: value}),
                    ):
                        answer = await peer.ask(batched(members, shared, code))
                        assert answer.code == 13, (name, members, shared)
                        assert "the message is illegal" in (answer.remark or "")
            assert (await peer.ask(batched([{"DELAY": "x"}], {}, code))).code == 1
            assert store.log.end == stored
