"""Every kind of compression our producer offers, read by Apache's own client from Apache's own broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rmq import Message, Producer
from tests.support.interop import Scene
from tests.support.interop.rows import digest


@pytest.mark.parametrize("kind", ["ZLIB", "LZ4", "ZSTD"])
def test_java_reads_what_we_compress(kind: str, scene: Callable[[str, str], Scene]) -> None:
    there = scene("java-4.9.4", "python")
    topic = there.topic(f"compressed-{kind}")
    bodies = {f"k{size}": bytes(range(251)) * (size // 251 + 1) for size in (4_096, 10_000, 1_000_000)}
    with Producer("compressing", namesrv=there.cluster.namesrv, compress_type=kind, send_msg_timeout=60) as producer:
        for key, body in bodies.items():
            assert producer.send(Message(topic, body, keys=key)).ok
    seen = {row.key: row.digest for row in there.read(topic, len(bodies))}
    assert seen == {key: digest(body) for key, body in bodies.items()}
