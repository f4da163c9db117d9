"""What is asked last: requests of which every odd form may change what later cases would see.

Settings, cleaning up, registrations and deletions at the nameserver: each is spoilt on names of its own, and what it
did is read back where both sides can be asked alike.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count

from rmq.broker.admin.unsupported import UNSUPPORTED
from tests.support.answers.cases import Ask, spoilt

__all__ = ["LAST", "SERVED_BY_5", "last_of_broker", "last_of_namesrv", "unserved"]

#: What a 5.3.3 nameserver and broker answer with another code than 3, of what is said to be served by nobody
#: (row "Requests about what only 5.x has are unknown").
SERVED_BY_5: dict[str, dict[int, int]] = {
    "namesrv": {217: 0, 901: 0, 904: 1},
    "broker": {
        354: 0, 355: 1, 513: 29, 905: 1, 1007: 1, 1008: 0, 2001: 0, 2002: 0, 2003: 0, 2004: 1, 200056: 0,
    },
}  # fmt: skip
#: Answers whose values are the process's own: only their names and types are compared.
_VALUES = frozenset({"values", "ext.version"})
#: Not in the record, for the order of a run matters: these come last.
LAST = frozenset({25, 26, 27, 28, 103, 104, 216, 306, 316, 318, 329})

#: Bodies for a request that has none, and for those that want one.
_ODD_BODIES = (b"{", b"[]", b"null", b"\xff\xfe\x00", b"x" * 100)
#: Settings as nobody should write them, of a broker (4.9 takes some of them).
_BROKER_SETTINGS = (
    "", "=", "=1", "defaultQueryMaxNum", "defaultQueryMaxNum=", "defaultQueryMaxNum=1.5", "defaultQueryMaxNum= 34 ",
    "brokerPermission=zz", "traceOn=maybe", "traceOn=TRUE", "traceOn=",
    "flushDiskType=ZZ", "brokerRole=ZZ", "messageDelayLevel=", "regionId=", "pbUnknown=", "pbUnknown=1\ntraceOn=true",
    "defaultQueryMaxNum=35\ndefaultQueryMaxNum=36", "fileReservedTime=48\ndefaultQueryMaxNum=zz",
    "a=\\u12", "a=\\uzzzz", "regionId=a\\tb", "regionId=\\", "regionId:DefaultRegion",
    "brokerConfigPath=zz\ndefaultQueryMaxNum=37", "diskMaxUsedSpaceRatio=900", "deleteWhen=99", "deleteWhen=4;x",
    "defaultQueryMaxNum=99999999999", "defaultQueryMaxNum=-1",
)  # fmt: skip
_NAMESRV_SETTINGS = (
    "", "=", "=1", "serverWorkerThreads", "serverWorkerThreads=", "serverWorkerThreads=1.5",
    "orderMessageEnable=maybe", "orderMessageEnable=TRUE", "orderMessageEnable=false",
    "clusterTest=", "pbUnknown=", "orderMessageEnable=true\norderMessageEnable=false", "a=\\u12", "a=\\uzzzz",
    "productEnvName=\\", "kvConfigPath=zz\norderMessageEnable=true",
)  # fmt: skip

_NAMES = ("NOBODY_KNOWS", "bad name!", "", "x" * 250)


def _odd(code: int, masked: frozenset[str] = frozenset()) -> Iterator[Ask]:
    """A request that takes nothing: as it is, and with what it does not ask for."""
    yield Ask(f"last.{code}", code, masked=masked)
    yield Ask(f"last.{code} fields", code, {"topic": "NOBODY_KNOWS", "zz": "", "queueId": "zz"}, masked=masked)
    for body in _ODD_BODIES:
        yield Ask(f"last.{code} body {body[:5]!r}", code, body=body, masked=masked)


def _settings(update: int, read: int, texts: tuple[str, ...], keys: dict[str, str]) -> Iterator[Ask]:
    """Change settings in every odd way, and read them back each time.

    :param keys: what is read, with the values that are set before each case.
    """
    only = frozenset(f"only.{key}" for key in keys) | {"ext.version"}
    before = Ask(f"last.{update}", update, body="\n".join(f"{key}={value}" for key, value in keys.items()).encode())
    bodies = {repr(text): text.encode() for text in texts} | {f"body {body[:5]!r}": body for body in _ODD_BODIES}
    for name, body in bodies.items():
        yield before
        yield Ask(f"last.{update} {name}", update, body=body)
        yield Ask(f"last.{read} after {name}", read, masked=only)
    yield Ask(f"last.{update} fields", update, dict(keys))


def last_of_broker() -> Iterator[Ask]:
    """Everything that is asked of a broker last."""
    stats = Ask("last.202", 202, {"topic": "PB_PULL"})
    yield from _odd(201)
    yield from _settings(
        25, 26, _BROKER_SETTINGS,
        {
            "defaultQueryMaxNum": "33", "brokerPermission": "6", "traceOn": "true", "fileReservedTime": "72",
            "regionId": "R", "diskMaxUsedSpaceRatio": "75", "deleteWhen": "04",
        },
    )  # fmt: skip
    yield from _odd(26, _VALUES)
    yield from _odd(28, _VALUES)
    for code in (27, 306, 316, 329):
        for ask in _odd(code):
            yield ask
            yield _after(stats, ask)


def _after(read: Ask, ask: Ask) -> Ask:
    return Ask(f"{read.id} after {ask.id}", read.code, read.ext, masked=read.masked, settled=True)


def _registration(number: int) -> Ask:
    """A broker and a topic of their own, so that nothing of the case before is left."""
    config = {
        "topicName": f"LAST_{number}", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicSysFlag": 0,
        "topicFilterType": "SINGLE_TAG", "order": False,
    }  # fmt: skip
    body = {
        "filterServerList": [],
        "topicConfigSerializeWrapper": {
            "dataVersion": {"counter": number, "timestamp": 1_700_000_000_000},
            "topicConfigTable": {config["topicName"]: config},
        },
    }
    ext = {
        "brokerName": f"last-{number}", "brokerAddr": f"10.8.8.{number}:10911", "clusterName": f"Last{number}",
        "haServerAddr": f"10.8.8.{number}:10912", "brokerId": "0", "compressed": "false", "bodyCrc32": "0",
    }  # fmt: skip
    return Ask(f"last.103 {number}", 103, dict(ext), json.dumps(body).encode())


def _registered(number: int, code: int, names: tuple[str, ...], **more: str) -> Ask:
    """A request that names what was registered under a number."""
    ext = _registration(number).ext or {}
    return Ask(f"last.{code}", code, {**{name: ext[name] for name in names}, **more})


def _renamed(ask: Ask) -> Iterator[Ask]:
    """A request with odd texts in the fields that name brokers and clusters."""
    for name in ("brokerName", "brokerAddr", "clusterName", "haServerAddr"):
        for text in _NAMES if name in (ask.ext or {}) else ():
            yield Ask(f"{ask.id} {name}={text[:12]!r}", ask.code, {**(ask.ext or {}), name: text}, ask.body)


def _unregister(number: int) -> Ask:
    return _registered(number, 104, ("brokerName", "brokerAddr", "clusterName", "brokerId"))


def _delete(number: int) -> Ask:
    return _registered(number, 216, ("clusterName",), topic=f"LAST_{number}")


def last_of_namesrv() -> Iterator[Ask]:
    """Everything that is asked of a nameserver last."""
    yield from _settings(318, 319, _NAMESRV_SETTINGS, {"orderMessageEnable": "true"})
    numbers = count(1)
    for kind in (_registration, _unregister, _delete):
        for at in range(len(list(_forms(kind(0))))):
            number = next(numbers)
            ask = list(_forms(kind(number)))[at]
            if ask.code != 103:
                yield _registration(number)
            yield ask
            yield _after(Ask("last.105", 105, {"topic": f"LAST_{number}"}), ask)


def _forms(base: Ask) -> Iterator[Ask]:
    """A request as it is, and everything that may be wrong with it."""
    yield base
    yield from _renamed(base)
    yield from spoilt(base)


def unserved(*, silent: bool) -> Iterator[Ask]:
    """Requests that are said to be served by nobody.

    :param silent: a 4.9 nameserver answers none of them.
    """
    for code in UNSUPPORTED:
        yield Ask(f"unserved.{code}", code, silent=silent)
