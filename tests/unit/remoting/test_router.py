"""What becomes of a request: checks, handlers, and every way to answer or to fail."""

from __future__ import annotations

import asyncio
import logging
import re

import pytest

from rmq.protocol.command import Command, SerializeType
from rmq.protocol.errors import (
    AuthError,
    HeaderError,
)
from rmq.protocol.header import Header
from rmq.remoting.conn import Conn
from rmq.remoting.router import Refusal, Router
from rmq.testing import simloop
from tests.support.scenes.calls import NumberRequest, Rig, Services


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


class OneGuard:
    """Lets nobody in with code 9, and refuses what code 8 asks for."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def longest(self, code: int) -> int:
        return 5

    def admit(self, conn: Conn, request: Command) -> None:
        self.seen.append(request)
        if request.code == 9:
            raise AuthError("not you")

    def check(self, conn: Conn, request: Command, header: Header | None) -> None:
        assert self.seen[-1] is request
        if request.code == 8:
            raise AuthError("not that")


def test_a_guard_is_asked_before_handlers() -> None:
    async def main() -> None:
        async with Rig() as rig:
            rig.server.router.guard = OneGuard()
            for code, why in ((9, "not you"), (8, "not that")):
                answer = await rig.ask(code)
                assert answer.code == 1
                assert answer.remark == f"org.apache.rocketmq.acl.common.AclException: {why}"
            assert rig.services.oneways == []
            assert (await rig.ask(1)).code == 0
            # All of a body is signed: one that is too long is refused before anybody reads it.
            asked = len(rig.server.router.guard.seen)
            for code, most in ((1, 5), (12, 3)):
                answer = await rig.ask(code, body=b"x" * 6)
                assert (answer.code, answer.remark) == (
                    1,
                    f"a body of 6 bytes: at most {most} are taken by request {code}",
                )
            assert len(rig.server.router.guard.seen) == asked

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
