"""Key queries compare topic and keys: a hash that others share finds none of theirs, and does not count."""

from __future__ import annotations

from itertools import product
from typing import Any, cast

import pytest

from rmq.broker.admin import message
from rmq.broker.admin.lookup import Lookup
from rmq.broker.admin.message import MessageAdmin
from rmq.broker.delivery.read import ReadLimits
from rmq.broker.settings import BrokerSettings
from rmq.broker.store.index import chains, key_search
from rmq.broker.store.store import Store
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.message import QueryMessageRequest
from rmq.protocol.message import decode_records
from rmq.testing.simloop import run
from rmq.testing.simworld import Simulation
from tests.support.scenes.store import body_of, opened, put, small

#: 128 keys of one hash: "Aa" and "BB" are alike to it.
ALIKE = ["".join(parts) for parts in product(("Aa", "BB"), repeat=7)]
ALWAYS = (0, 1 << 62)


async def fresh() -> Store:
    return await opened(Simulation(1).node("a").world, small(index_entries=5000))


def with_keys(store: Store, topic: str, keys: str, body: bytes, unique: str = "") -> None:
    queue = store.queues.get_or_create(topic, 0)
    text = f"KEYS\x01{keys}" + (f"\x02UNIQ_KEY\x01{unique}" if unique else "")
    hashed = tuple(key.encode() for key in (unique, *keys.split(" ")) if key)
    store.append([put(queue, body)._replace(properties=text.encode(), keys=hashed)])


async def found(store: Store, topic: str, key: str, limit: int = 32) -> list[bytes]:
    return [body_of(record) for record in (await store.query_message(topic, key, limit, *ALWAYS)).records]


def test_each_of_many_keys_of_one_hash_is_found() -> None:
    async def main() -> None:
        store = await fresh()
        for key in ALIKE:
            with_keys(store, "T", f"first {key} last", b"body of " + key.encode())
        assert len({store.indexing.hasher("T")(key.encode()) for key in ALIKE}) == 1
        for key in ALIKE:
            assert await found(store, "T", key, limit=1) == [b"body of " + key.encode()]
        assert len(await found(store, "T", "first", limit=1000)) == len(ALIKE)
        assert await found(store, "T", "AaAaAaAaAaAaC#") == []
        assert await found(store, "T", "") == []
        await store.stop()

    run(main())


def test_nothing_of_another_topic_is_found() -> None:
    async def main() -> None:
        store = await fresh()
        with_keys(store, "Aa", "key", b"mine")
        for _ in range(40):
            with_keys(store, "BB", "key", b"others", unique="unique")
        assert store.indexing.hasher("Aa")(b"key") == store.indexing.hasher("BB")(b"key")
        assert await found(store, "Aa", "key") == [b"mine"]
        assert await found(store, "Aa", "unique") == []
        assert await found(store, "BB", "unique", limit=3) == [b"others"] * 3
        await store.stop()

    run(main())


def test_a_message_that_names_a_key_twice_counts_once() -> None:
    async def main() -> None:
        store = await fresh()
        for number in range(3):
            with_keys(store, "T", "k k", b"%d" % number, unique="k")
        assert await found(store, "T", "k", limit=2) == [b"1", b"2"]
        await store.stop()

    run(main())


@pytest.mark.parametrize("unique", [False, True])
def test_a_search_is_bounded_and_says_so(monkeypatch: pytest.MonkeyPatch, unique: bool) -> None:
    monkeypatch.setattr(key_search, "_MOST_LOOKED_AT", 20)
    monkeypatch.setattr(message, "_MOST_BYTES", 2500)
    monkeypatch.setattr(chains, "_CHAIN_TURN", 1)

    async def main() -> None:
        store = await fresh()
        admin = MessageAdmin(
            BrokerSettings(max_msgs_num_batch=4), store, cast(Any, None), Lookup(store, ReadLimits(memory_bound=0)),
            cast(Any, None),
        )  # fmt: skip

        async def ask(key: str, maximum: int = 10) -> Command:
            header = QueryMessageRequest(
                topic="T", key=key, max_num=maximum, begin_timestamp=0, end_timestamp=1 << 62, unique_key_query=unique
            )
            return await admin.query(cast(Any, None), Command.request(RequestCode.QUERY_MESSAGE, header), header)

        with_keys(store, "T", ALIKE[0], b"old")
        for number in range(19):
            with_keys(store, "T", ALIKE[1], b"%d" % number, unique="unique")
        assert (await ask(ALIKE[0])).code == ResponseCode.SUCCESS
        with_keys(store, "T", ALIKE[1], b"19", unique="unique")
        answer = await ask(ALIKE[0])
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
        assert answer.remark == "only the newest 20 messages whose keys have the hash of this one were looked at"
        answer = await ask(ALIKE[1])
        assert answer.remark == "only the newest 4: one answer has no more (maxMsgsNumBatch)"
        assert len(decode_records(answer.body or b"")) == 4
        for size in (1000, 1000, 1000):
            with_keys(store, "T", "big", bytes(size))
        answer = await ask("big", 4)
        assert (answer.remark, len(decode_records(answer.body or b""))) == (
            "only the newest 2: one answer has 0 MiB at most",
            2,
        )
        await store.stop()

    run(main())
