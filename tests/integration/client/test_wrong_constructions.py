"""Arguments of a wrong type, in every public constructor: one line at once, a TypeError as anywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rmq
from rmq.app import App, Depends, Topic
from rmq.integrations.logging import RocketMQHandler
from rmq.protocol.errors import ClientError
from rmq.testing import Cluster, SimCluster

QUEUE = rmq.MessageQueue("T", "b", 0)
TEXT: list[Any] = [1, 2.5, True, b"x", ["x"], object()]
NUMBER: list[Any] = [None, "1", 1.0, True]
FUNCTION: list[Any] = [None, 1, "f"]
SEVERAL: list[Any] = [None, 1, "room", [1]]
SERVERS: dict[str, Any] = {"namesrv": "127.0.0.1:1"}


def f(*_: object) -> str:
    return "x"


def listening(**how: Any) -> None:
    async def take(body: Any) -> None: ...

    App("a", **SERVERS).listener(**how)(take)


def serving(**how: Any) -> None:
    App("a", **SERVERS).serve_health(**how)


CLIENT = {"group": [None, *TEXT], "world": [1], "namesrv": TEXT, "namespace": TEXT, "hooks": [1, [1]]}
#: What makes it, arguments that are right, and by argument what is wrong.
TABLE: list[tuple[Callable[..., object], dict[str, Any], dict[str, list[Any]]]] = [
    (rmq.MessageQueue, QUEUE.as_dict(), {"topic": [None, *TEXT], "broker_name": [None, *TEXT], "queue_id": NUMBER}),
    (rmq.Producer, {"group": "g", **SERVERS}, CLIENT),
    (rmq.PushConsumer, {"group": "g", **SERVERS}, CLIENT),
    (rmq.PullConsumer, {"group": "g", **SERVERS}, CLIENT),
    (rmq.LitePullConsumer, {"group": "g", **SERVERS}, CLIENT),
    (rmq.ScheduledPullConsumer, {"group": "g", **SERVERS}, CLIENT),
    (rmq.TransactionProducer, {"group": "g", "check": f, **SERVERS}, {**CLIENT, "check": FUNCTION}),
    (rmq.AdminClient, SERVERS, {"namesrv": TEXT, "world": [1]}),
    (rmq.AllocateConsistentHash, {}, {"virtual_nodes": NUMBER, "hash_function": FUNCTION[1:]}),
    (
        rmq.AllocateByMachineRoomNearby,
        {"inner": rmq.AllocateQueuesAveragely(), "broker_room": f, "client_room": f},
        {"inner": [None, 1, "AVG"], "broker_room": FUNCTION, "client_room": FUNCTION},
    ),
    (rmq.AllocateByMachineRoom, {"rooms": ["a"]}, {"rooms": SEVERAL}),
    (rmq.AllocateQueuesByConfig, {"queues": [QUEUE]}, {"queues": [QUEUE, *SEVERAL]}),
    (rmq.by_machine_room, {"rooms": ["a"]}, {"rooms": SEVERAL}),
    (Topic, {"name": "T"}, {"name": [None, *TEXT], "kind": [1, "int"], "decode": [1], "encode": [1]}),
    (Depends, {"make": f}, {"make": FUNCTION}),
    (
        App,
        {"name": "a", **SERVERS},
        {
            "name": [None, *TEXT],
            "producer": [1, "x"],
            "lifespan": FUNCTION[1:],
            "health": [1, True],
            "world": [1],
            "namesrv": TEXT,
        },
    ),
    (
        listening,
        {"topic": "T"},
        {
            "topic": [None, *TEXT],
            "expression": [1],
            "group": TEXT,
            "sql": ["false", 1],
            "send_to": ["T", 1],
            "reply": [1],
            "on_bad_payload": [1, "retry"],
        },
    ),
    (serving, {"address": "127.0.0.1:0"}, {"address": [None, 1]}),
    (
        Cluster,
        {"folder": "/nowhere"},
        {
            "folder": [None, 1],
            "brokers": NUMBER,
            "slaves": NUMBER,
            "namesrvs": NUMBER,
            "settings": [1, "a", ["ab"], {"a": 1}],
            "world": [1],
        },
    ),
    (SimCluster, {}, {"brokers": NUMBER, "settings": [{"a": 1}], "seed": NUMBER}),
    (
        RocketMQHandler,
        {"topic": "T", **SERVERS},
        {
            "topic": [None, *TEXT],
            "group": TEXT,
            "tags": TEXT,
            "keys": TEXT,
            "capacity": NUMBER,
            "close_timeout": ["1", True],
            "own_records": ["x", 1],
            "world": [1],
        },
    ),
]


@pytest.mark.parametrize(("make", "right", "wrong"), TABLE, ids=[row[0].__name__ for row in TABLE])
def test_they_are_refused(make: Callable[..., object], right: dict[str, Any], wrong: dict[str, list[Any]]) -> None:
    make(**right)
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(ClientError) as refused:
                make(**{**right, name: value})
            assert isinstance(refused.value, TypeError), f"{name}={value!r}: {refused.value!r}"
            assert "\n" not in str(refused.value)
