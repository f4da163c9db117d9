"""Who is in a group, by the settings of Java's samples, and settings that make no group."""

from __future__ import annotations

import pytest

from rmq.broker.raft.peers import Peers
from rmq.broker.settings import BrokerSettings
from rmq.protocol.errors import ConfigError

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
    assert peers.members.preferred is None


def test_the_group_is_named_after_its_broker() -> None:
    assert Peers.of(settings(dLegerGroup="")).group == "RaftNode00"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dLegerPeers", ""), ("dLegerPeers", "n0-127.0.0.1:40911"), ("dLegerPeers", "127.0.0.1:40911;n1-b:1;n2-c:1"),
        ("dLegerPeers", "n0-a:1;n1-b:1;n1-c:1"), ("dLegerPeers", "n0-a:1;n1-a:1;n2-c:1"),
        ("dLegerPeers", "n0-a:1;n1-b:1;n2-c:1;n3-d:1"), ("dLegerPeers", "n0-a:1;n1-b:x;n2-c:1"),
        ("dLegerPeers", "n0-a:1;n00-b:1;n1-c:1"), ("dLegerSelfId", "n7"), ("dLegerSelfId", ""),
        ("preferredLeaderId", "n9"), ("brokerRole", "SLAVE"),
    ],
)  # fmt: skip
def test_what_makes_no_group_is_refused_with_its_key(key: str, value: str) -> None:
    made = settings(**{key: value})

    def look() -> None:
        made.validate()
        Peers.of(made)

    with pytest.raises(ConfigError, match=key):
        look()


def test_samples_of_java_have_no_role() -> None:
    settings(brokerRole="SYNC_MASTER").validate()
