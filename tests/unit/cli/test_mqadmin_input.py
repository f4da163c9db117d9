"""What mqadmin makes of files and times that it is given, and of a broker that fails for one group."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

import click
import pytest

from rmq.cli.command import invoke
from rmq.cli.given_file import GivenFile
from rmq.cli.mqadmin import statistics
from rmq.cli.mqadmin.commands import root
from rmq.cli.mqadmin.output import Output
from rmq.cli.mqadmin.session import AdminClient, listed
from rmq.cli.mqadmin.times import moment, moment_or_now
from rmq.client.admin import Answers
from rmq.client.admin.reset import TO_END
from rmq.client.results import GroupStats
from rmq.protocol.bodies.stats import OffsetWrapper
from rmq.protocol.bodies.topic import TopicConfig
from rmq.protocol.errors import ResponseError
from rmq.protocol.queue import MessageQueue
from tests.support.virtual import in_virtual_time, one_world


def read(text: str, convert: Any = moment) -> int:
    ctx = click.Context(click.Command("any"))
    return cast(int, convert(ctx, click.Option(["-s"]), text))


@in_virtual_time
async def test_times_are_javas_and_what_people_type() -> None:
    with (world := one_world()).entered():
        now = world.clock.now_ms()
        assert read("-10m") == now - 600_000
        assert read("0") == 0
        assert read("12345") == 12_345
        assert read("2026-11-29T18:30:00Z") == 1_795_977_000_000
        assert read("2026-11-29#18:30:00:250") - read("2026-11-29 18:30:00") == 250
        assert read("now", moment_or_now) == read("-1", moment_or_now) == TO_END
    for text in ("soon", "-10", "", "10:30"):
        with pytest.raises(click.BadParameter, match="milliseconds since 1970"):
            read(text)


def file(text: str) -> GivenFile:
    return GivenFile("topics.json", text.encode())


def test_a_key_that_means_nothing_is_refused_and_the_nearest_named() -> None:
    (one,) = listed(file('[{"topicName": "T", "readQueueNums": 2, "order": true}]'), TopicConfig, "topicName")
    assert (one.topic_name, one.read_queue_nums, one.order) == ("T", 2, True)
    said = "number 2 of the list has 'readQueuNums', which means nothing; did you mean readQueueNums"
    with pytest.raises(click.BadParameter, match=said):
        listed(file('[{"topicName": "A"}, {"topicName": "B", "readQueuNums": 2}]'), TopicConfig, "topicName")


class Broker:
    """Knows three groups: one fails, one has no offset."""

    async def topic_groups(self, topic: str) -> Answers[list[str]]:
        return Answers({"b": ["fails", "new", "sound"]})

    async def view_broker_stats_of(self, addresses: Iterable[str], name: str, key: str) -> Answers[None]:
        return Answers(dict.fromkeys(addresses))

    async def consume_stats(self, group: str, topic: str) -> GroupStats:
        if group == "fails":
            raise ResponseError(1, "the table cannot be read")
        if group == "new":
            raise ResponseError(206, "not online")
        return GroupStats(offset_table={MessageQueue(topic, "b", 0): OffsetWrapper(broker_offset=7, consumer_offset=3)})


async def test_a_group_that_cannot_be_looked_at_is_missing_and_one_without_offsets_is_not() -> None:
    out = Output("json")
    rows = await statistics._figures(cast(AdminClient, Broker()), out, "T", {"b": "b:1"}, asyncio.Semaphore(2))
    assert [(row.group, row.accumulation) for row in rows] == [("fails", 0), ("new", 0), ("sound", 4)]
    assert list(out.missing) == ["fails"]
    assert "the table cannot be read" in out.missing["fails"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["topicList", "-n", "127.0.0.1"], "'127.0.0.1' is not host:port"),
        (["topicList", "-n", ";"], "it names no server"),
        (["topicList", "-n", "[::1"], "'[::1' is not host:port"),
        (["brokerStatus", "-n", "n:1", "-b", "nohost"], "'nohost' is no address"),
        (["updateTopic", "-n", "n:1", "-t", "T", "-b", "x:y"], "'x:y' has no usable port"),
        (["cleanUnusedTopic", "-n", "n:1", "-b", "10.0.0.1:99999"], "'10.0.0.1:99999' has no usable port"),
    ],
)
def test_an_address_that_is_none_is_a_wrong_command_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(root, "mqadmin", words) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1
