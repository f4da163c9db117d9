"""A program: atheris feeds one of the readers of what peers send, and keeps what takes it where nothing was before.

``python -m tests.support.odd.guided frame -max_total_time=60``. A reader may refuse with its own errors; anything else
that it raises ends the program, with the bytes in a file.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import atheris  # type: ignore[import-not-found,unused-ignore]

with atheris.instrument_imports(include=["rmq.protocol"]):
    from rmq.protocol import batch, fastjson, frame, properties
    from rmq.protocol.bodies.heartbeat import HeartbeatData
    from rmq.protocol.bodies.lock import LockBatchRequestBody
    from rmq.protocol.bodies.topic import DataVersion, RegisterBrokerBody, TopicConfigTable
    from rmq.protocol.errors import ProtocolError
    from rmq.protocol.headers.table import REQUEST_HEADERS

from tests.support.odd import requests


def _frame(data: bytes) -> None:
    """A frame without its length, and the header that its code has."""
    command = frame.decode(data)
    kind = REQUEST_HEADERS.get(command.code)
    if kind is not None:
        kind.decode(command.ext or {})
    properties.decode((command.ext or {}).get("i"))
    frame.encode(command)


def _body(data: bytes) -> None:
    for kind in (HeartbeatData, LockBatchRequestBody, TopicConfigTable, DataVersion):
        try:
            kind.decode(data)
        except ProtocolError:
            continue
    fastjson.loads(data)


def _batch(data: bytes) -> None:
    list(batch.read(data))


def _namesrv(data: bytes) -> None:
    RegisterBrokerBody.decode(data, compressed=data.startswith(b"\x78"))


_TARGETS: dict[str, Callable[[bytes], None]] = {
    "frame": _frame, "body": _body, "batch": _batch, "namesrv": _namesrv,
}  # fmt: skip


#: Requests whose bodies a target reads.
_BODIES = {_body: [34, 41, 322], _batch: [320], _namesrv: [103]}


def main(arguments: list[str]) -> None:
    """Run until libFuzzer's own arguments say that it is enough."""
    target = _TARGETS[arguments[1]]
    chance = random.Random(1)
    codes = _BODIES.get(target, [int(code) for code in REQUEST_HEADERS])

    def one(data: bytes) -> None:
        try:
            target(data)
        except ProtocolError:
            return

    def mutated(data: bytes, most: int, seed: int) -> Any:
        """Now and then a request that is understood in part, so that there is something to begin with."""
        if not seed % 50:
            odd = requests.drawn(chance, codes)
            return (odd.data[4:] if target is _frame else requests.body(odd.code))[:most]
        return atheris.Mutate(data, most)

    atheris.Setup([arguments[0], *arguments[2:]], one, custom_mutator=mutated)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
