"""Queries by key: what brokers say about them gets to the user."""

from types import SimpleNamespace
from typing import Any, cast

from rmq.client.lookup import query_message
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command

REBUILT = "the index is being rebuilt and 12.5 % done: no message is found by key yet"


class Brokers:
    """Two brokers of one topic, each with its answer to a query."""

    def __init__(self, **answers: tuple[int, str | None]) -> None:
        self.name_servers = self.remoting = self
        self._answers = answers
        self.settings = SimpleNamespace(mq_client_api_timeout=3.0)

    async def route(self, topic: str, limit: float) -> Any:
        brokers = [SimpleNamespace(broker_name=name, broker_addrs={0: name}) for name in self._answers]
        return SimpleNamespace(broker_datas=brokers)

    async def request(self, address: str, command: Command, limit: float) -> Command:
        code, remark = self._answers[address]
        return command.reply(code, remark)


async def test_an_index_that_is_being_rebuilt_is_told_when_nothing_is_found() -> None:
    none = (ResponseCode.QUERY_NOT_FOUND, "can not find message, maybe time range not correct")
    brokers = cast(Any, Brokers(a=none, b=(ResponseCode.QUERY_NOT_FOUND, REBUILT)))
    found = await query_message(brokers, "T", "k")
    assert (found.messages, found.remark) == ([], f"no message of T with the key k (b: {REBUILT})")


async def test_brokers_that_say_nothing_add_nothing() -> None:
    brokers = cast(Any, Brokers(a=(ResponseCode.SUCCESS, None)))
    found = await query_message(brokers, "T", "k")
    assert (found.messages, found.remark) == ([], "no message of T with the key k")
