"""An answer that is none: who asks for success alone hears who said no, and why."""

from __future__ import annotations

from typing import Any

import pytest

from rmq.protocol.command import Command
from rmq.protocol.errors import ResponseError
from rmq.remoting.client import RemotingClient
from rmq.runtime.world import World
from tests.support.virtual import in_virtual_time


class Answered(RemotingClient):
    """Everybody answers so."""

    answer = Command(0, body=b"yes")

    async def request(self, addr: str, command: Command, timeout: float = 3.0, turn: Any = None) -> Command:
        return self.answer


@in_virtual_time
async def test_success_is_the_answer_and_anything_else_is_raised_with_who_said_it() -> None:
    async with Answered(World.real()) as client:
        assert (await client.ask("a:1", Command(43))).body == b"yes"
        client.answer = Command(17, remark="no such topic")
        with pytest.raises(ResponseError, match="no such topic") as caught:
            await client.ask("a:1", Command(43))
        assert (caught.value.code, caught.value.address) == (17, "a:1")
