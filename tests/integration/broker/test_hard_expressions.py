"""Requests that bring SQL92 of their own, each another one: it is compiled some at a time, and others are served."""

from __future__ import annotations

import asyncio
import json

import pytest

from rmq.filter import sql
from rmq.protocol import frame
from rmq.protocol.command import Command
from rmq.testing.simworld import Simulation
from tests.support.odd.campaign import Campaign, Line
from tests.support.raw_peer import pull, send, subscribe
from tests.support.turns import Turns
from tests.support.virtual import in_virtual_time


def expression(number: int) -> str:
    return " or ".join(f"a{number}={term}" for term in range(150))


def pulling(number: int) -> Command:
    command = pull()
    command.ext = {**command.ext, "subscription": expression(number), "expressionType": "SQL92"}
    return command


def popping(number: int) -> Command:
    ext = {"consumerGroup": "G", "topic": "T", "queueId": "0", "maxMsgNums": "1", "invisibleTime": "10000"}
    ext |= {"pollTime": "0", "bornTime": "0", "initMode": "0", "expType": "SQL92", "exp": expression(number)}
    return Command(200050, ext=ext)


def checking(number: int) -> Command:
    data = {"topic": "T", "subString": expression(number), "expressionType": "SQL92", "subVersion": 1}
    return Command(46, body=json.dumps({"clientId": "c", "group": "G", "subscriptionData": data}).encode())


def beating(number: int) -> Command:
    command = subscribe(f"G{number}")
    body = json.loads(command.body)
    (wanted,) = body["consumerDataSet"][0]["subscriptionDataSet"]
    wanted |= {"subString": expression(number), "expressionType": "SQL92"}
    command.body = json.dumps(body).encode()
    return command


@pytest.mark.parametrize(("made_of", "code"), [(pulling, 20), (popping, 210), (checking, 0), (beating, 0)])
@in_virtual_time
async def test_each_with_another_expression(monkeypatch: pytest.MonkeyPatch, made_of, code: int) -> None:  # type: ignore[no-untyped-def]
    settings = {"enablePropertyFilter": "true"}
    async with Campaign(Simulation(1).node("one"), settings) as made:
        lines: list[Line] = [await made.line(made.broker) for _ in range(8)]
        first = send()
        first.opaque = 1
        lines[0].transport.write(frame.encode(first))
        assert await lines[0].answer(1, 5.0)
        hello = subscribe()
        hello.opaque = 2
        lines[0].transport.write(frame.encode(hello))
        assert await lines[0].answer(2, 5.0)
        sql._compiled.cache_clear()
        compiled = Turns(monkeypatch, sql._Parser, "parse", lambda parser: len(parser._text))
        for number in range(64):
            command = made_of(number)
            command.opaque = 100 + number
            lines[number % 8].transport.write(frame.encode(command))
        answers = [await lines[number % 8].answer(100 + number, 60.0) for number in range(64)]
        assert {answer.code for answer in answers if answer is not None} == {code}
        assert None not in answers
        assert compiled.whole == sum(len(expression(number)) for number in range(64))
        assert compiled.longest < 4096 + len(expression(63))
        await asyncio.sleep(0)
