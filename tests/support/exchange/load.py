"""Fills a broker, Java's or ours, with one of everything that a store directory can hold.

Requests are written out by hand: what a client of either side would refuse or add stays out of the picture.
"""

from __future__ import annotations

import asyncio
import json
import random
import zlib
from collections.abc import Awaitable, Callable

from rmq.protocol import batch
from rmq.protocol.command import Command
from rmq.remoting.client import RemotingClient
from tests.support.exchange.view import Broker

__all__ = ["GROUP", "GROUPS", "LONG_GONE", "TOPIC", "Filler", "sql_group"]

TOPIC = "ExPlain"
#: Written in the first life alone: all of it is in files that are deleted afterwards.
LONG_GONE = "ExLongGone"
GROUP = "ex_group"
#: The last one is no name that a client takes; a broker keeps its offsets all the same.
GROUPS = (GROUP, "ex_other", "ex-third%x", 'ex "ünï" \\x{3:4} \x7f ☃😀')
_COMPRESSED, _PREPARED = 1, 4
_COMMIT, _ROLLBACK = 8, 12
#: Two hours: what waits that long still waits when the directory is opened again.
_LAST_LEVEL = 18


def sql_group(life: int) -> str:
    """The group whose SQL92 subscription a life registers."""
    return f"ex_sql{life}"


class Filler:
    """One life's messages.

    :param life: a number that keeps keys of several lives apart.
    """

    def __init__(self, client: RemotingClient, address: str, life: int) -> None:
        self._broker = Broker(client, address)
        self._life = life
        self._rng = random.Random(life)
        self._number = 0

    async def fill(self, *, plain: int = 700, old: bool = False, delays: bool = True) -> None:
        """Send everything.

        :param old: with the topic that only the first life has.
        :param delays: with retries, and delayed messages of a second, until all those are there. A broker that is
            killed before it has saved how far it is delivers them again.
        """
        if old:
            await self._many(40, lambda n: self.send(LONG_GONE, n % 4, size=1500))
        await self._many(plain, lambda n: self.send(TOPIC, n % 4, size=self._rng.randrange(1500)))
        await self._many(12, lambda n: self.send("ExKeyed", 0, keys=f"shared{self._life} own{self._life}-{n}"))
        await self.send("ExKeyed", 0, tag="标签", keys=f"schlüssel{self._life}", odd="a b=c;ümlaut", empty="")
        await self._many(8, lambda n: self.send("ExTagged", n % 2, tag=("A", "B", "AaAa", "BBBB")[n % 4], flag=n))
        await self._many(4, lambda n: self._compressed(n))
        await self._batch()
        await self.send("ExDelayed", 0, DELAY=str(_LAST_LEVEL))
        for end in (_COMMIT, _ROLLBACK, 0, _COMMIT):
            await self._transaction(end)
        _, failed = await self.send("ExFailed", 0)
        await self.send_back(failed, -1)  # to the dead letter queue at once
        if delays:
            await self._delays(failed)
        for number, group in enumerate(GROUPS):
            for queue in range(4):
                await self._broker.commit(group, TOPIC, queue, 10 * self._life + queue + number)
        await self._broker.commit(GROUP, f"%RETRY%{GROUP}", 0, 1)
        await self._configure()

    async def _configure(self) -> None:
        """A topic and a group with nothing as it is by default, and a filter."""
        topic: dict[str, str | None] = {
            "topic": f"ExSet{self._life}", "defaultTopic": "TBW102", "readQueueNums": "3", "writeQueueNums": "7",
            "perm": "4", "topicFilterType": "MULTI_TAG", "topicSysFlag": "3", "order": "true",
        }  # fmt: skip
        await self._broker.ask(Command(17, ext=topic))
        group = {
            "groupName": f"ex_set{self._life}", "consumeEnable": False, "consumeFromMinEnable": False,
            "consumeBroadcastEnable": False, "retryQueueNums": 3, "retryMaxTimes": 5, "brokerId": 2,
            "whichBrokerWhenConsumeSlowly": 3, "notifyConsumerIdsChangedEnable": False,
        }  # fmt: skip
        await self._broker.ask(Command(200, body=json.dumps(group).encode()))
        subscription = {
            "topic": TOPIC, "subString": "city = 'Zürich \\ \"☃😀\"'", "expressionType": "SQL92",
            "subVersion": self._life, "classFilterMode": False, "tagsSet": [], "codeSet": [],
        }  # fmt: skip
        consumer = {
            "groupName": sql_group(self._life), "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [subscription], "unitMode": False,
        }  # fmt: skip
        beat = {"clientID": "ex_client", "consumerDataSet": [consumer], "producerDataSet": []}
        await self._broker.ask(Command(34, body=json.dumps(beat).encode()))

    async def _delays(self, failed: int) -> None:
        delivered = await self._broker.maximum("ExDelayed", 0)
        retried = await self._broker.maximum(f"%RETRY%{GROUP}", 0)
        for _ in range(3):
            await self.send("ExDelayed", 0, DELAY="1")
        await self.send_back(failed, 1)
        await self._broker.until(lambda: self._broker.maximum("ExDelayed", 0), delivered + 3)
        await self._broker.until(lambda: self._broker.maximum(f"%RETRY%{GROUP}", 0), retried + 1)

    async def _many(self, count: int, send: Callable[[int], Awaitable[object]]) -> None:
        """Several at a time, so that a life is over soon; each queue gets its messages in some order."""
        for first in range(0, count, 50):
            await asyncio.gather(*(send(n) for n in range(first, min(count, first + 50))))

    def _properties(self, tag: str, keys: str, more: dict[str, str]) -> dict[str, str]:
        self._number += 1
        found = {"UNIQ_KEY": f"{self._life:08X}{self._number:024X}", **more}
        if tag:
            found["TAGS"] = tag
        if keys:
            found["KEYS"] = keys
        return found

    async def send(
        self, topic: str, queue: int, *, size: int = 30, tag: str = "", keys: str = "", flag: int = 0,
        body: bytes | None = None, sys_flag: int = 0, **more: str,
    ) -> tuple[int, int]:  # fmt: skip
        """Queue offset and physical offset of one message."""
        properties = self._properties(tag, keys, more)
        content = properties["UNIQ_KEY"].encode() + self._rng.randbytes(size) if body is None else body
        text = "\x02".join(f"{name}\x01{value}" for name, value in properties.items()) + "\x02"
        fields = await self._request(310, topic, queue, content, text, flag=flag, sys_flag=sys_flag)
        return int(fields["queueOffset"] or 0), int((fields["msgId"] or "")[-16:], 16)

    async def _request(
        self, code: int, topic: str, queue: int, body: bytes, properties: str, *, flag: int = 0, sys_flag: int = 0
    ) -> dict[str, str | None]:
        ext: dict[str, str | None] = {
            "a": "ex_producers", "b": topic, "c": "TBW102", "d": "4", "e": str(queue), "f": str(sys_flag),
            "g": str(1_700_000_000_000 + self._number), "h": str(flag), "i": properties, "j": "0", "k": "false",
            "m": str(code == 320).lower(),
        }  # fmt: skip
        return (await self._broker.ask(Command(code, ext=ext, body=body))).ext or {}

    async def _compressed(self, number: int) -> None:
        body = b"%d of life %d, " % (number, self._life) * 500
        await self.send("ExPacked", 0, body=zlib.compress(body), sys_flag=_COMPRESSED)

    async def _batch(self) -> None:
        items = [
            (n, b"item %d of life %d" % (n, self._life), self._properties("B", f"item{self._life}-{n}", {}))
            for n in range(10)
        ]
        await self._request(320, "ExBatch", 1, batch.encode(items), "")

    async def _transaction(self, end: int) -> None:
        """A half message; ``end`` commits it, rolls it back or, 0, leaves it to be checked some day."""
        offset, physical = await self.send(
            "ExTransaction", 2, keys=f"tx{self._life}-{self._number}", sys_flag=_PREPARED, TRAN_MSG="true",
            PGROUP="ex_producers",
        )  # fmt: skip
        if end:
            ext: dict[str, str | None] = {
                "producerGroup": "ex_producers", "tranStateTableOffset": str(offset),
                "commitLogOffset": str(physical), "commitOrRollback": str(end), "fromTransactionCheck": "false",
                "msgId": f"{self._life:08X}{self._number:024X}",
            }  # fmt: skip
            await self._broker.ask(Command(37, ext=ext))

    async def send_back(self, offset: int, level: int, *, group: str = GROUP) -> None:
        ext: dict[str, str | None] = {
            "offset": str(offset), "group": group, "delayLevel": str(level), "originTopic": "ExFailed",
            "originMsgId": "0" * 32, "unitMode": "false", "maxReconsumeTimes": "16",
        }  # fmt: skip
        await self._broker.ask(Command(36, ext=ext))
