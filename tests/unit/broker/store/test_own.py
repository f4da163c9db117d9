"""What the broker has to say itself."""

from __future__ import annotations

import pytest

from rmq.broker.store.own import own_message
from rmq.broker.store.state import Queue

V4 = bytes((10, 0, 0, 1)) + (10911).to_bytes(4, "big")
V6 = bytes(15) + b"\1" + (10911).to_bytes(4, "big")


@pytest.mark.parametrize(("host", "flag"), [(V4, 0), (V6, 0x30)], ids=["IPv4", "IPv6"])
def test_it_is_born_where_it_is_stored(host: bytes, flag: int) -> None:
    queue = Queue("T", 3)
    made = own_message(queue, b"body", {"TAGS": "d", "KEYS": "k l"}, 1234, host)
    assert made == (queue, b"body", b"TAGS\x01d\x02KEYS\x01k l", 0, flag, 1234, host, host, 0, 0, 100, (b"k", b"l"))
    assert own_message(queue, b"", {}, 1, host)[2:5] == (b"", 0, flag)
    assert own_message(queue, b"", {}, 1, host).tags_code == 0
