"""Calls over a simulated network: answers, timeouts, lost connections, callbacks, hooks, server-to-client calls."""

from __future__ import annotations

import asyncio

import pytest

from rmq.protocol import frame
from rmq.protocol.command import Command
from rmq.protocol.errors import (
    ConnectFailed,
    ConnectionLost,
    RequestTimeout,
    TooManyRequests,
)
from rmq.remoting.conn import Conn
from rmq.remoting.limits import Limits
from rmq.remoting.router import handles
from rmq.testing import simloop
from tests.support.scenes.calls import Rig


def test_oneway_is_never_answered() -> None:
    async def main() -> None:
        async with Rig() as rig:
            for code in (9, 10, 999, 4, 5, 2):
                await rig.client.oneway(rig.addr, Command(code))
            await asyncio.sleep(1)
            assert rig.services.oneways == [9, 10]
            assert [pipe.total_written for pipe in rig.simulation.net.pipes_of(rig.machine.address)] == [0]

    simloop.run(main())


def test_a_timeout_leaves_the_other_calls_alone() -> None:
    async def main() -> None:
        async with Rig() as rig:
            loop = asyncio.get_running_loop()
            slow = asyncio.ensure_future(rig.ask(3))
            began = loop.time()
            with pytest.raises(RequestTimeout, match=r"no answer in 0\.\d+ s"):
                await rig.ask(7, timeout=0.2)
            assert 0.19 <= loop.time() - began <= 0.23
            assert (await slow).remark == "slow"
            conn, request = rig.services.held[0]
            conn.send_command(request.reply(0, "late"))  # nobody waits any more
            await asyncio.sleep(0.1)
            assert (await rig.ask(1, body=b"x")).body == b"x"
            assert len(rig.server.connections) == 1
            assert conn.calls_waiting == 0

    simloop.run(main())


def test_a_lost_connection_fails_what_waits_and_the_next_call_connects_again() -> None:
    async def main() -> None:
        async with Rig() as rig:
            waiting = [asyncio.ensure_future(rig.ask(7, timeout=60)) for _ in range(3)]
            await asyncio.sleep(0.1)
            (conn,) = rig.server.connections
            conn.close("test")
            for future in waiting:
                with pytest.raises(ConnectionLost):
                    await future
            assert rig.client.addresses == []
            assert (await rig.ask(1, body=b"x")).body == b"x"

    simloop.run(main())


def test_who_cannot_be_reached() -> None:
    async def main() -> None:
        async with Rig() as rig:
            with pytest.raises(ConnectFailed, match="Connection refused"):
                await rig.client.request(f"{rig.machine.address}:1", Command(1))
            rig.simulation.net.cut("10.0.0.1", "10.0.0.2")
            began = asyncio.get_running_loop().time()
            with pytest.raises(ConnectFailed, match="no answer in 1 s"):
                await rig.client.request(rig.addr, Command(1), 1.0)
            assert asyncio.get_running_loop().time() - began == pytest.approx(1.0, abs=0.01)
            await asyncio.sleep(3)  # the attempt itself has three seconds, and later callers share it
            rig.simulation.net.heal()
            assert (await rig.ask(1)).code == 0

    simloop.run(main())


def test_callers_share_the_attempt_to_connect() -> None:
    async def main() -> None:
        async with Rig() as rig:
            await asyncio.gather(*(rig.ask(1) for _ in range(20)))
            assert len(rig.server.connections) == 1

    simloop.run(main())


def test_servers_may_ask_their_clients() -> None:
    class Answers:
        @handles(40)
        def me(self, conn: Conn, request: Command) -> Command:
            return request.reply(0, body=b"me: " + request.body)

    async def main() -> None:
        async with Rig() as rig:
            rig.client.router.add(Answers())
            assert (await rig.ask(8)).body == b"me: you?"

    simloop.run(main())


def test_calls_with_a_callback_are_told_once() -> None:
    async def main() -> None:
        async with Rig() as rig:
            told: list[Command | Exception] = []
            rig.client.call(rig.addr, Command(1, body=b"1"), 1.0, told.append)
            await asyncio.sleep(0.1)
            rig.client.call(rig.addr, Command(1, body=b"2"), 1.0, told.append)
            rig.client.call(rig.addr, Command(7), 0.2, told.append)
            rig.client.call("10.0.0.1:1", Command(1), 1.0, told.append)
            await asyncio.sleep(2)
            assert isinstance(told[0], Command)
            assert sorted(type(result).__name__ for result in told) == [
                "Command",
                "Command",
                "ConnectFailed",
                "RequestTimeout",
            ]

    simloop.run(main())


def test_hooks_see_every_call() -> None:
    class Hook:
        def __init__(self) -> None:
            self.seen: list[str] = []

        def before(self, addr: str, request: Command) -> None:
            self.seen.append(f"before {request.code}")
            request.ext = {"number": "4"}

        def after(self, addr: str, request: Command, response: Command | None) -> None:
            self.seen.append(f"after {request.code} {response.remark if response else None}")

    async def main() -> None:
        async with Rig() as rig:
            hook = Hook()
            rig.client.hooks.append(hook)
            await rig.ask(2)
            with pytest.raises(RequestTimeout):
                await rig.ask(7, timeout=0.1)
            rig.client.call(rig.addr, Command(2), 1.0, lambda result: None)
            await asyncio.sleep(0.1)
            assert hook.seen == ["before 2", "after 2 8", "before 7", "after 7 None", "before 2", "after 2 8"]

    simloop.run(main())


def test_one_call_takes_two_turns_of_its_loop_and_many_are_written_together(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Rig() as rig:
            await rig.ask(1)
            conn = await rig.client.connection(rig.addr)
            written: list[int] = []
            write = conn._transport.write
            monkeypatch.setattr(conn._transport, "write", lambda data: (written.append(len(data)), write(data)))
            answers: list[Command | Exception] = []
            conn.call(Command(1), 1.0, answers.append)
            assert len(written) == 1, "nothing else is on its way"
            conn.call(Command(1), 1.0, answers.append)
            conn.call(Command(1), 1.0, answers.append)
            assert len(written) == 1
            await asyncio.sleep(0)
            assert len(written) == 2
            await asyncio.sleep(0.1)
            assert len(answers) == 3
            conn.call(Command(1), 1.0, answers.append)
            answer = frame.encode(Command(0, opaque=conn._opaque, flag=1))
            conn.data_received(answer)
            assert len(answers) == 4, "in the turn that has read it"

    simloop.run(main())


def test_calls_beyond_the_limit_are_refused() -> None:
    async def main() -> None:
        async with Rig(client_limits=Limits(waiting=2)) as rig:
            waiting = [asyncio.ensure_future(rig.ask(7, timeout=1)) for _ in range(2)]
            await asyncio.sleep(0.1)
            with pytest.raises(TooManyRequests):
                await rig.ask(7)
            await asyncio.gather(*waiting, return_exceptions=True)
            assert (await rig.ask(1)).code == 0

    simloop.run(main())


def test_what_came_while_the_process_stood_still_is_read_before_anything_expires() -> None:
    """SIGSTOP, a busy machine: the answers lie in the socket, and a call that failed would be made again."""

    async def main() -> None:
        async with Rig() as rig:
            await rig.ask(1)
            calls = [asyncio.ensure_future(rig.ask(3)) for _ in range(20)]  # each answered after half a second
            await asyncio.sleep(0.1)
            asyncio.get_running_loop().pass_time(4.0)  # type: ignore[attr-defined]
            assert {(await call).remark for call in calls} == {"slow"}
            with pytest.raises(RequestTimeout):
                await rig.ask(7, timeout=0.2)

    simloop.run(main())


@pytest.mark.parametrize("how", ["answered", "lost", "late"])
def test_a_caller_that_fails_on_its_answer_fails_alone(how: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Rig() as rig:
            conn = await rig.client.connection(rig.addr)
            ends: list[object] = []

            def fail(result: object) -> None:
                ends.append("failed")
                raise asyncio.InvalidStateError("the future is cancelled")

            code = 1 if how == "answered" else 7
            for done in (ends.append, fail, ends.append):
                conn.call(Command(code), 1.0, done)
            await asyncio.sleep(0.5)
            if how == "lost":
                conn.abort("test")
            await asyncio.sleep(1.0)
            assert [end if end == "failed" else type(end).__name__ for end in ends] == [
                {"answered": "Command", "lost": "ConnectionLost", "late": "RequestTimeout"}[how],
                "failed",
                {"answered": "Command", "lost": "ConnectionLost", "late": "RequestTimeout"}[how],
            ]
            assert conn.closed == (how == "lost")
            assert (await rig.ask(1, body=b"x")).body == b"x"

    simloop.run(main())
    assert "a caller failed on how its call ended" in caplog.text


def test_a_hook_that_fails_after_a_call_changes_nothing_of_it(caplog: pytest.LogCaptureFixture) -> None:
    class Failing:
        def before(self, addr: str, request: Command) -> None: ...

        def after(self, addr: str, request: Command, response: Command | None) -> None:
            raise ValueError("the metrics are away")

    async def main() -> None:
        async with Rig() as rig:
            rig.client.hooks.append(Failing())
            assert (await rig.ask(1, body=b"x")).body == b"x"
            told: list[Command | Exception] = []
            rig.client.call(rig.addr, Command(1, body=b"y"), 1.0, told.append)
            await asyncio.sleep(0.1)
            (answer,) = told
            assert isinstance(answer, Command)
            assert answer.body == b"y"

    simloop.run(main())
    assert "a hook failed after a call" in caplog.text


def test_a_call_under_way_when_the_client_closes_is_told_so() -> None:
    async def main() -> None:
        async with Rig() as rig:
            told: list[Command | Exception] = []
            rig.client.call(rig.addr, Command(1), 1.0, told.append)
            await asyncio.sleep(0)
            await rig.client.close()
            rig.client.call(rig.addr, Command(1), 1.0, told.append)
            await asyncio.sleep(0)
            assert [type(end) for end in told] == [ConnectFailed, ConnectFailed]

    simloop.run(main())


def test_oneway_requests_to_a_peer_that_reads_nothing_are_bounded() -> None:
    async def main() -> None:
        async with Rig(client_limits=Limits(write_high=1 << 10, write_low=1 << 9, write_most=1 << 20)) as rig:
            conn = await rig.client.connection(rig.addr)
            rig.simulation.net.cut(rig.machine.address, rig.simulation.nodes["client"].address)

            async def flood() -> None:
                for _ in range(3_000):
                    await rig.client.oneway(rig.addr, Command(9, body=bytes(1 << 10)))

            with pytest.raises(TooManyRequests, match="1 MiB of requests wait to be sent"):
                await flood()
            assert not conn.closed

    simloop.run(main())
