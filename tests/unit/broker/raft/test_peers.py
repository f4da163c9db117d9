"""Who is in a group, by the settings of Java's samples, and settings that make no group."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq.broker.raft.peers import Peers
from rmq.broker.settings import BrokerSettings
from rmq.protocol.errors import ConfigError

GOLDEN = Path(__file__).parents[3] / "golden" / "settings"
SAMPLE = {
    "enableDLegerCommitLog": "true",
    "dLegerGroup": "RaftNode00",
    "dLegerPeers": "n0-127.0.0.1:40911;n1-127.0.0.1:40912;n2-127.0.0.1:40913",
    "dLegerSelfId": "n1",
    "brokerName": "RaftNode00",
    "brokerIP1": "127.0.0.1",
}


def settings(**more: str) -> BrokerSettings:
    return BrokerSettings.from_sources(overrides={**SAMPLE, **more})


def test_javas_sample() -> None:
    peers = Peers.of(settings())
    assert (peers.group, peers.members.me, peers.members.voters) == ("RaftNode00", "n1", ("n0", "n1", "n2"))
    assert peers.at["n2"] == ("127.0.0.1", 40913)
    assert peers.follower_id == 2
    assert peers.members.preferred == ()


def test_the_group_is_named_after_its_broker() -> None:
    assert Peers.of(settings(dLegerGroup="")).group == "RaftNode00"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dLegerPeers", ""), ("dLegerPeers", "n0-127.0.0.1:40911"), ("dLegerPeers", "127.0.0.1:40911;n1-b:1;n2-c:1"),
        ("dLegerPeers", "n0-a:1;n1-b:1;n1-c:1"), ("dLegerPeers", "n0-a:1;n1-a:1;n2-c:1"),
        ("dLegerPeers", "n0-a:1;n1-b:1;n2-c:1;n3-d:1"), ("dLegerPeers", "n0-a:1;n1-b:x;n2-c:1"),
        ("dLegerPeers", "n0-a:1;n00-b:1;n1-c:1"), ("dLegerSelfId", "n7"), ("dLegerSelfId", ""),
        ("preferredLeaderId", "n9"), ("preferredLeaderId", "n1;n9"), ("preferredLeaderId", "n1,n2"),
        ("dLegerPeers", "n0-a:1;n1-0.0.0.0:1;n2-c:1"), ("dLegerPeers", "n0-[::]:1;n1-b:1;n2-c:1"),
        ("dLegerPeers", "n0-a:1;n1-10.0.0.300:1;n2-c:1"), ("dLegerPeers", "n0-a:1;n1-b c:1;n2-c:1"),
        ("dLegerPeers", "n0-a:1;n1-b:10911;n2-c:1"), ("dLegerPeers", "n0-a:1;n1-b:10909;n2-c:1"),
        ("dLegerPeers", "n0-a:1;n1-b:1;n1234567-c:1"), ("dLegerPeers", "n0-a:1;n1-b:1;n\u0662-c:1"),
    ],
)  # fmt: skip
def test_what_makes_no_group_is_refused_with_its_key(key: str, value: str) -> None:
    made = settings(**{key: value})

    def look() -> None:
        made.validate()
        Peers.of(made)

    with pytest.raises(ConfigError, match=key):
        look()


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("dLegerPeers", "n0-a:1,n1-b:1,n2-c:1", "members are separated by ';'"),
        ("dLegerPeers", "n0-a:1;n1-b:1", "names 2 members: a group has 3, 5 or 7"),
        ("dLegerPeers", "n0-a:1;n1-b:1;n1-c:1", "'n1-c:1' is there twice"),
        ("dLegerPeers", "n0-a;n1-b:1;n2-c:1", "'a' is no address: write host:port"),
        ("dLegerSelfId", "n7", "is none of the members n0, n1, n2 of dLegerPeers"),
        ("dLegerPeers", "n0-a:1;n1-b:10911;n2-c:1", "clients are served on the port of n1"),
        ("dLegerPeers", " ", "name the members, the same at all: n0-host:port;n1-host:port;n2-host:port"),
        (
            "dLegerPeers",
            "n0-a:1",
            "names 1 member: a group has 3, 5 or 7; one broker alone is a plain one, with enable",
        ),
        ("dLegerSelfId", "", "say which of n0, n1, n2 this broker is"),
        ("dLegerPeers", "n0-0.0.0.0:1;n1-b:1;n2-c:1", "'n0-0.0.0.0:1' is nowhere: give the address at which others"),
        ("preferredLeaderId", "n1;n9", "n9 is none of the members n0, n1, n2 of dLegerPeers"),
    ],
)
def test_a_mistake_is_one_clear_line(key: str, value: str, what: str) -> None:
    made = settings(**{key: value})

    def look() -> None:
        made.validate()
        Peers.of(made)

    with pytest.raises(ConfigError) as caught:
        look()
    assert what in str(caught.value)
    assert "\n" not in str(caught.value)


def test_several_may_be_preferred() -> None:
    """As DLedger reads it."""
    assert Peers.of(settings(preferredLeaderId="n2; n0")).members.preferred == ("n2", "n0")


@pytest.mark.parametrize(
    ("role", "number"), [("SYNC_MASTER", "0"), ("SLAVE", "2"), ("SLAVE", "0"), ("ASYNC_MASTER", "-1")]
)
def test_the_group_says_who_is_what_whatever_a_file_says(role: str, number: str) -> None:
    """Request 25 has a member of Java's write into its file what it is at that time."""
    made = settings(brokerRole=role, brokerId=number)
    made.validate()
    assert Peers.of(made).follower_id == 2
    told = [] if role == "ASYNC_MASTER" else [f"brokerRole={role}"]
    assert made.left_to_group() == told + ([] if number == "0" else [f"brokerId={number}"])


def test_the_file_that_javas_follower_has_written_makes_a_member(caplog: pytest.LogCaptureFixture) -> None:
    """Each of its 180 keys is known, and what it was at that time does not count."""
    made = BrokerSettings.from_sources(file=str(GOLDEN / "dledger-follower-4.9.4.properties"))
    made.validate()
    peers = Peers.of(made)
    assert (peers.group, peers.members.me, peers.members.voters) == ("group", "n0", ("n0", "n1", "n2"))
    assert made.left_to_group() == ["brokerRole=SLAVE", "brokerId=1"]
    assert made.file_reserved_time == 47
    (told,) = caplog.messages
    assert told.startswith("these settings have no effect here: ")
