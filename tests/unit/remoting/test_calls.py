"""Client and server over a simulated network: calls, timeouts, lost connections, server-to-client calls, stop."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

import pytest

from rmq.protocol import frame
from rmq.protocol.command import Command, SerializeType
from rmq.protocol.errors import (
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    HeaderError,
    RequestTimeout,
    ResponseError,
    TooManyRequests,
)
from rmq.protocol.header import Header, wire, wire_header
from rmq.remoting.client import RemotingClient, split_address
from rmq.remoting.conn import Conn
from rmq.remoting.limits import Limits
from rmq.remoting.router import Refusal, Router, handles
from rmq.remoting.server import Server
from rmq.remoting.timeouts import Timeouts
from rmq.testing import simloop
from rmq.testing.simworld import Simulation


@wire_header
class NumberRequest(Header):
    number: int = wire("number")


class Services:
    """One handler for each way to answer."""

    def __init__(self) -> None:
        self.oneways: list[int] = []
        self.bodies: list[bytes] = []
        self.held: list[tuple[Conn, Command]] = []
        self.gate = asyncio.Event()

    @handles(1)
    def echo(self, conn: Conn, request: Command) -> Command:
        self.bodies.append(request.body)
        return request.reply(0, body=request.body)

    @handles(2, header=NumberRequest)
    def double(self, conn: Conn, request: Command, header: NumberRequest) -> Command:
        return request.reply(0, str(header.number * 2))

    @handles(3)
    async def slow(self, conn: Conn, request: Command) -> Command:
        await asyncio.sleep(0.5)
        return request.reply(0, "slow")

    @handles(4)
    def refuse(self, conn: Conn, request: Command) -> Command:
        raise ResponseError(17, "no such topic")

    @handles(5)
    def throw(self, conn: Conn, request: Command) -> Command:
        raise ZeroDivisionError("secret detail")

    @handles(6)
    async def throw_later(self, conn: Conn, request: Command) -> Command:
        await asyncio.sleep(0)
        raise KeyError("secret detail")

    @handles(7)
    def hold(self, conn: Conn, request: Command) -> None:
        self.held.append((conn, request))

    @handles(8)
    async def ask_back(self, conn: Conn, request: Command) -> Command:
        answer = await conn.request(Command(40, body=b"you?"), 1.0)
        return request.reply(0, body=answer.body)

    @handles(9, 10)
    def note(self, conn: Conn, request: Command) -> Command:
        self.oneways.append(request.code)
        return request.reply(0)

    @handles(11)
    async def gated(self, conn: Conn, request: Command) -> Command:
        await self.gate.wait()
        return request.reply(0)

    @handles(12, body=3)
    def short(self, conn: Conn, request: Command) -> Command:
        self.oneways.append(request.code)
        return request.reply(0, body=request.body)


class Rig:
    def __init__(self, limits: Limits | None = None, client_limits: Limits | None = None) -> None:
        self.simulation = Simulation(seed=1)
        self.machine = self.simulation.node("server")
        self.services = Services()
        self.server = Server(self.machine.world, Router([self.services]), limits)
        self.client = RemotingClient(self.simulation.node("client").world, limits=client_limits)
        self.addr = ""

    async def __aenter__(self) -> Rig:
        _, port = await self.server.start("", 0)
        self.addr = f"{self.machine.address}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()
        await self.server.stop()

    async def ask(self, code: int, timeout: float = 3.0, **fields: Any) -> Command:
        return await self.client.request(self.addr, Command(code, **fields), timeout)


@pytest.mark.parametrize("serialize", list(SerializeType))
def test_every_way_to_answer(serialize: SerializeType, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Rig() as rig:
            assert (await rig.ask(1, body=b"abc", serialize=serialize)).body == b"abc"
            assert (await rig.ask(2, ext={"number": "21"}, serialize=serialize)).remark == "42"
            assert (await rig.ask(3, serialize=serialize)).remark == "slow"
            refused = await rig.ask(4, serialize=serialize)
            assert (refused.code, refused.remark, refused.serialize) == (17, "no such topic", serialize)
            unknown = await rig.ask(999, serialize=serialize)
            assert (unknown.code, unknown.remark, unknown.serialize) == (
                3,
                " request type 999 not supported",
                serialize,
            )
            for code in (5, 6):
                failed = await rig.ask(code, serialize=serialize)
                assert failed.code == 1
                assert failed.remark == f"internal error while handling request code {code}"
                assert failed.serialize is SerializeType.JSON  # whatever the request's (protocol.md 1.1)
                assert failed.ext is None
            for ext, field in (({}, "number is missing"), ({"number": "1x"}, "number=.1x. is no number")):
                wrong = await rig.ask(2, ext=ext, serialize=serialize)
                assert wrong.code == 1
                assert re.search(field, wrong.remark or "")
                assert wrong.serialize is SerializeType.JSON

    simloop.run(main())
    assert [record.levelno for record in caplog.records if record.exc_info] == [logging.ERROR] * 2
    assert "secret detail" in caplog.text


def test_a_longer_body_than_a_handler_takes_is_refused_before_it_is_called() -> None:
    async def main() -> None:
        async with Rig() as rig:
            assert (await rig.ask(12, body=b"abc")).body == b"abc"
            refused = await rig.ask(12, body=b"abcd")
            assert (refused.code, refused.remark) == (1, "a body of 4 bytes: at most 3 are taken by request 12")
            assert rig.services.oneways == [12]

    simloop.run(main())


def test_an_unexpected_error_is_logged_with_its_traceback_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Rig() as rig:
            for _ in range(3):
                await rig.ask(5)

    simloop.run(main())
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 3
    assert [bool(record.exc_info) for record in errors] == [True, False, False]


def test_whoever_fails_at_an_answer_fails_alone() -> None:
    """An answer, a timeout and the end of the connection: told to each, and nobody is cut off by another's bug."""

    async def main() -> None:
        async with Rig() as rig:
            told: list[str] = []

            def broken(result: Command | Exception) -> None:
                told.append("broken")
                raise ZeroDivisionError

            conn = await rig.client.connection(rig.addr)
            for code in (1, 7):
                for done in (broken, lambda result: told.append(type(result).__name__)):
                    conn.call(Command(code), 0.2, done)
            await asyncio.sleep(1)
            assert told == ["broken", "Command", "broken", "RequestTimeout"]
            for done in (broken, lambda result: told.append(type(result).__name__)):
                conn.call(Command(7), 5, done)
            await asyncio.sleep(0.1)
            conn.close()
            await asyncio.sleep(0.1)
            assert told[4:] == ["broken", "ConnectionLost"]

    simloop.run(main())


def test_an_answer_that_no_frame_holds_is_an_error_of_its_own_request() -> None:
    async def main() -> None:
        async with Rig() as rig:
            rig.server.router.on(20, lambda conn, request: request.reply(0, body=bytes(1 << 25)))
            rig.server.router.on(21, lambda conn, request: Command(40_000, flag=1, opaque=request.opaque, serialize=1))
            rig.server.router.on(22, lambda conn, request: request.reply(1, "\x7f" * 300_000))
            answers = await asyncio.gather(*(rig.ask(code) for code in (1, 20, 21, 22, 1)))
            assert [answer.code for answer in answers] == [0, 1, 1, 1, 0]
            assert len(rig.client.addresses) == 1

    simloop.run(main())


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


def test_stop_answers_what_is_in_flight_and_closes() -> None:
    async def main() -> None:
        rig = Rig()
        async with rig:
            slow = asyncio.ensure_future(rig.ask(3))
            held = asyncio.ensure_future(rig.ask(7, timeout=60))
            await asyncio.sleep(0.1)
            await rig.server.stop()
            assert (await slow).remark == "slow"
            with pytest.raises(ConnectionLost):
                await held
            with pytest.raises(ConnectFailed):
                await rig.ask(1)
            assert rig.server.connections == {}

    simloop.run(main())


def test_stop_does_not_wait_for_ever() -> None:
    async def main() -> None:
        async with Rig() as rig:
            stuck = asyncio.ensure_future(rig.ask(11, timeout=60))
            await asyncio.sleep(0.1)
            began = asyncio.get_running_loop().time()
            await rig.server.stop(seconds=2)
            assert asyncio.get_running_loop().time() - began == pytest.approx(2, abs=0.1)
            with pytest.raises(ConnectionLost):
                await stuck

    simloop.run(main())


def test_closing_the_client_fails_what_waits() -> None:
    async def main() -> None:
        async with Rig() as rig:
            waiting = asyncio.ensure_future(rig.ask(7, timeout=60))
            await asyncio.sleep(0.1)
            await rig.client.close()
            with pytest.raises(ConnectionLost):
                await waiting
            with pytest.raises(ConnectFailed, match="the client is closed"):
                await rig.ask(1)

    simloop.run(main())


def test_a_silent_connection_is_closed_after_two_minutes() -> None:
    async def main() -> None:
        async with Rig(client_limits=Limits(idle_seconds=0)) as rig:
            loop = asyncio.get_running_loop()
            ended: list[float] = []
            rig.server.on_close.append(lambda conn: ended.append(loop.time()))
            await rig.ask(1)
            await asyncio.sleep(100)
            await rig.ask(1)
            last = loop.time()
            await asyncio.sleep(200)
            assert 120 <= ended[0] - last <= 122.5

    simloop.run(main())


def test_an_unfinished_frame_is_not_awaited_for_ever() -> None:
    async def main() -> None:
        async with Rig() as rig:
            conn = await rig.client.connection(rig.addr)
            data = frame.encode(Command(1, body=b"x" * 1000))
            for byte in data[:40]:
                conn.send(bytes([byte]))  # a drop now and then does not count as traffic that keeps it open
                await asyncio.sleep(1)
            assert conn.closed

            conn = await rig.client.connection(rig.addr)
            big = frame.encode(Command(1, body=b"x" * 4_000_000))
            for at in range(0, len(big), 40_000):
                conn.send(big[at : at + 40_000])
                await asyncio.sleep(1)  # a slow line: 100 s for the frame, and welcome
            assert not conn.closed

    simloop.run(main())


def test_a_closed_connection_does_not_wait_for_its_reader_for_ever() -> None:
    async def main() -> None:
        async with Rig() as rig:
            conn = await rig.client.connection(rig.addr)
            conn._transport.pause_reading()
            conn.oneway(Command(9))
            await asyncio.sleep(0.1)
            (inbound,) = rig.server.connections
            inbound.send(b"x" * 1000)
            inbound.close("test")
            await asyncio.sleep(5)
            assert inbound in rig.server.connections  # the peer may yet take it
            await asyncio.sleep(10)
            assert rig.server.connections == {}

    simloop.run(main())


def test_connections_beyond_the_limit_are_closed() -> None:
    async def main() -> None:
        async with Rig(Limits(connections=1)) as rig:
            await rig.ask(1)
            other = RemotingClient(rig.simulation.node("other").world)
            with pytest.raises(ConnectionLost):
                await other.request(rig.addr, Command(1))
            assert (await rig.ask(1)).code == 0
            await other.close()

    simloop.run(main())


def test_requests_that_take_time_hold_back_a_flood() -> None:
    async def main() -> None:
        async with Rig(Limits(owed=40_000)) as rig:
            conn = await rig.client.connection(rig.addr)
            for _ in range(50):
                for _ in range(10):
                    conn.oneway(Command(11, body=b"x" * 1000))
                await asyncio.sleep(0.01)
            (inbound,) = rig.server.connections
            assert inbound.owed_bytes < 200_000  # of 500 requests with about 5,000 each
            rig.services.gate.set()
            await asyncio.sleep(1)
            assert inbound.owed_bytes == 0
            assert (await rig.ask(1)).code == 0

    simloop.run(main())


def test_checks_come_before_handlers() -> None:
    async def main() -> None:
        async with Rig() as rig:

            def deny(conn: Conn, request: Command) -> None:
                if request.code == 9:
                    raise ResponseError(16, "not you")

            rig.server.router.before.append(deny)
            assert (await rig.ask(9)).remark == "not you"
            assert rig.services.oneways == []
            assert (await rig.ask(1)).code == 0

    simloop.run(main())


def test_the_router_refuses_doubles_and_services_without_handlers() -> None:
    router = Router([Services()])
    assert router.codes() == list(range(1, 13))
    with pytest.raises(ValueError, match=r"request code 8 is handled by Services\.ask_back and by Services\.ask_back"):
        router.add(Services())
    with pytest.raises(ValueError, match="marks no method"):
        router.add(object())


def test_what_is_refused_is_refused_until_it_is_not() -> None:
    async def main() -> None:
        async with Rig() as rig:
            router = rig.server.router
            router.refuse({9: Refusal(14, "not now"), 99: Refusal(11, "nobody serves it")})
            for code, wanted in ((9, (14, "not now")), (99, (11, "nobody serves it")), (1, (0, None))):
                answer = await rig.ask(code)
                assert (answer.code, answer.remark) == wanted, code
            assert router.codes() == [*range(1, 13), 99]
            router.refuse({1: Refusal(1, "the others are served again")})
            assert ((await rig.ask(9)).code, (await rig.ask(99)).code, (await rig.ask(1)).code) == (0, 3, 1)
            # Whoever comes and goes meanwhile.
            router.remove(rig.services)
            assert router.codes() == [1]
            router.add(Services())
            assert (await rig.ask(1)).code == 1
            router.refuse({})
            assert (await rig.ask(1)).code == 0
            assert router.codes() == list(range(1, 13))

    simloop.run(main())


def test_headers_that_do_not_decode_name_the_field() -> None:
    with pytest.raises(HeaderError, match="the field number is missing"):
        NumberRequest.decode({})


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("127.0.0.1:9876", ("127.0.0.1", 9876)),
        (" broker.example:10911 ", ("broker.example", 10911)),
        ("[::1]:9876", ("::1", 9876)),
        ("fe80::1:9876", ("fe80::1", 9876)),
    ],
)
def test_addresses(text: str, pair: tuple[str, int]) -> None:
    assert split_address(text) == pair


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:0", "host:65536", "host:x"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ConfigError, match="is no address"):
        split_address(text)


def test_deadlines_share_one_timer() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        told: list[tuple[str, float]] = []
        timeouts: Timeouts[str] = Timeouts(lambda key: told.append((key, loop.time() - began)))
        for number in range(1000):
            timeouts.add(3.0 - number * 0.001, f"{number}")
        scheduled = [handle for handle in loop._scheduled if not handle.cancelled()]  # type: ignore[attr-defined]
        assert len(scheduled) == 1
        timeouts.add(0.5, "soon")
        await asyncio.sleep(4)
        assert told[0][0] == "soon"
        assert len(told) == 1001
        for key, when in told[1:]:
            assert 0 <= when - (3.0 - int(key) * 0.001) <= 0.02
        timeouts.add(1, "never")
        timeouts.close()
        await asyncio.sleep(2)
        assert len(told) == 1001

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


def test_a_connection_made_while_the_process_stood_still_is_taken() -> None:
    async def main() -> None:
        async with Rig() as rig:
            call = asyncio.ensure_future(rig.ask(1, body=b"x", timeout=30.0))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            asyncio.get_running_loop().pass_time(4.0)  # type: ignore[attr-defined]
            assert (await call).body == b"x"

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


def test_a_deadline_that_fails_ends_no_other() -> None:
    async def main() -> None:
        told: list[int] = []

        def expire(key: int) -> None:
            told.append(key)
            if key == 1:
                raise ZeroDivisionError

        timeouts: Timeouts[int] = Timeouts(expire)
        for key in range(3):
            timeouts.add(1.0, key)
        timeouts.add(2.0, 3)
        await asyncio.sleep(3.0)
        assert told == [0, 1, 2, 3]

    simloop.run(main())


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


def test_a_peer_that_takes_everything_and_answers_nothing_is_left_for_a_new_connection() -> None:
    """A tunnel or sidecar whose other end is gone acknowledges every byte."""

    async def main() -> None:
        async with Rig() as rig:
            await rig.ask(1)
            first = await rig.client.connection(rig.addr)
            for _ in range(3):
                with pytest.raises((RequestTimeout, ConnectionLost)):
                    await rig.ask(7)
            assert first.closed
            assert (await rig.ask(1, body=b"x")).body == b"x"
            second = await rig.client.connection(rig.addr)
            beating = True

            async def beat() -> None:
                while beating:
                    await rig.ask(1)
                    await asyncio.sleep(1.0)

            beats = asyncio.ensure_future(beat())
            for _ in range(5):
                with pytest.raises(RequestTimeout):
                    await rig.ask(7)
            beating = False
            await beats
            assert not second.closed  # slow with one thing, there for another

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
