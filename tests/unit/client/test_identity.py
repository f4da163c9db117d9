"""Client ids, addresses, message ids, start times, figures."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from rmq.client.consumer.beginning import timestamp_ms
from rmq.client.consumer.statistics import TopicStatistics
from rmq.client.identity import client_id, local_address, message_ids
from rmq.client.settings import ClientSettings
from rmq.protocol.errors import ClientError
from rmq.runtime.world import World


class Machine:
    pid = 1
    hostname = "h"

    def __init__(self, *addresses: str) -> None:
        self._addresses = [("eth0", address) for address in addresses]

    def addresses(self) -> list[tuple[str, str]]:
        return self._addresses

    def physical_memory(self) -> int:
        return 1 << 30

    def processors(self) -> int:
        return 1


def world(*addresses: str) -> World:
    return dataclasses.replace(World.real(), identity=Machine(*addresses))


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        (("127.0.0.1", "10.0.0.1", "8.8.8.8"), "8.8.8.8"),
        (("127.0.0.1", "192.168.1.5", "10.0.0.1"), "192.168.1.5"),
        (("127.0.0.1", "169.254.1.1", "fe80::1%eth0"), "127.0.0.1"),
        (("127.0.0.1", "2001:4860:4860::8888"), "2001:4860:4860::8888"),
        ((), "127.0.0.1"),
    ],
)
def test_the_address_others_know_us_by(addresses: tuple[str, ...], expected: str) -> None:
    assert local_address(world(*addresses)) == expected


def test_client_ids() -> None:
    """Field case B031."""
    here = world("10.0.0.1")
    plain = client_id(here, ClientSettings())
    assert re.fullmatch(r"10\.0\.0\.1@1#\d{19}", plain)
    assert client_id(here, ClientSettings()) != plain
    assert client_id(here, ClientSettings(), stable=True) == "10.0.0.1@DEFAULT"
    assert client_id(here, ClientSettings(instance_name="i", unit_name="u", client_ip="1.2.3.4")) == "1.2.3.4@i@u"
    assert client_id(here, ClientSettings(instance_name="i"), stream=True) == "10.0.0.1@i@STREAM"


def test_message_ids_of_many_threads_differ() -> None:
    """Field case B084."""
    make = message_ids(world("10.0.0.1"), ClientSettings())
    with ThreadPoolExecutor(8) as pool:
        ids = [one for many in pool.map(lambda _: [make() for _ in range(2_000)], range(8)) for one in many]
    assert len(set(ids)) == 16_000
    assert all(re.fullmatch(r"0A0000010001[0-9A-F]{20}", one) for one in ids)
    other = message_ids(world("10.0.0.1"), ClientSettings())
    assert make()[12:20] != other()[12:20], "two generators with one address and pid must differ"


def test_a_forked_child_makes_ids_of_its_own() -> None:
    """Made before a fork and used behind it: parent and child had one generator in the same state."""
    here = world("10.0.0.1")
    here.random.seed(1)
    parent = message_ids(here, ClientSettings())
    here.random.seed(1)
    child = message_ids(here, ClientSettings())
    same = parent()[12:20]
    assert child()[12:20] == same
    here.identity.pid = 2  # type: ignore[misc]
    assert child()[12:20] != same


def test_random_numbers_are_drawn_anew_in_a_forked_child() -> None:
    program = (
        "import os\nfrom rmq.runtime.real import real_world\nworld = real_world()\n"
        "os.fork()\nos.fork()\nos.write(1, b'%d\\n' % world.random.getrandbits(64))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert len(set(ended.stdout.split())) == 4


def test_a_name_as_client_ip_is_part_of_the_client_id_and_of_no_message_id() -> None:
    """With Java's clients it may be any text, too: a pod's name, say."""
    here, named = world("10.0.0.1"), ClientSettings(client_ip="pod-1", instance_name="i")
    assert client_id(here, named) == "pod-1@i"
    assert message_ids(here, named)()[:8] == "0A000001"
    assert message_ids(here, ClientSettings(client_ip="10.9.8.7"))()[:8] == "0A090807"


def test_the_time_to_start_at() -> None:
    assert timestamp_ms(None, 10_000_000) == 10_000_000 - 1_800_000
    when = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert timestamp_ms(when, 0) == int(when.timestamp() * 1000)
    assert timestamp_ms("20260102030405", 0) == int(datetime(2026, 1, 2, 3, 4, 5).timestamp() * 1000)
    with pytest.raises(ClientError, match="yyyyMMddHHmmss"):
        timestamp_ms("2026-01-02", 0)


def test_figures_cover_the_last_minute() -> None:
    made = TopicStatistics()
    for second in range(120):
        made.on_pull(10, 0.002, float(second))
        made.on_consume(5, 1, 0.006, float(second))
    status = made.status(119.0)
    assert status.consume_failed_msgs == 120
    assert status.pull_rt == pytest.approx(2.0)
    assert status.consume_rt == pytest.approx(1.0)
    assert 9.5 < status.pull_tps <= 10.2
    assert 4.8 < status.consume_ok_tps <= 5.1
    assert made.status(500.0).consume_ok_tps == 0.0
