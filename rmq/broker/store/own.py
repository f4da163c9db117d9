"""What the broker has to say itself, as messages: marks, journals, events. It is born where it is stored."""

from __future__ import annotations

from collections.abc import Mapping

from rmq.broker.store.index.words import keys_to_index
from rmq.broker.store.state import Put, Queue
from rmq.protocol import properties
from rmq.protocol.tags import string_hash

__all__ = ["own_message"]

#: System flags: both hosts have IPv6 addresses.
_HOSTS_V6 = 0x30


def own_message(queue: Queue, body: bytes, table: Mapping[str, str], now_ms: int, host: bytes) -> Put:
    """A message of the broker's own.

    :param table: its properties; TAGS among them is what its queue entry tells, UNIQ_KEY and KEYS what it is found by.
    :param now_ms: wall clock.
    :param host: the broker's address (4 or 16 bytes) and port, as records hold them.
    """
    tag = table.get("TAGS")
    return Put(
        queue=queue,
        body=body,
        properties=properties.encode(table).encode(),
        flag=0,
        sys_flag=_HOSTS_V6 if len(host) == 20 else 0,
        born_timestamp=now_ms,
        born_host=host,
        store_host=host,
        reconsume_times=0,
        prepared_offset=0,
        tags_code=string_hash(tag) if tag else 0,
        keys=keys_to_index(table),
    )
