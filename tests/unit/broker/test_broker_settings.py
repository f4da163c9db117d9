"""The broker's settings: Java's keys, and what is refused."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import rmq.broker.settings
from rmq.broker.delays import DelayLevels
from rmq.broker.settings import WITHOUT_EFFECT, BrokerSettings
from rmq.protocol.errors import ConfigError
from rmq.testing.simworld import SimIdentity


def settled(**attributes: Any) -> BrokerSettings:
    made = BrokerSettings(**attributes)
    made.settle(SimIdentity("host-1", "10.1.2.3"))
    return made


def test_what_depends_on_the_machine_is_filled_in() -> None:
    made = settled()
    assert made.broker_ip1 == made.broker_ip2 == "10.1.2.3"
    assert made.broker_name == "host-1"
    assert made.ha_listen_port == 10912
    assert made.store_path_commit_log == made.store_path_root_dir + "/commitlog"
    assert made.config_path("topics.json").endswith("/store/config/topics.json")


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"broker_role": "SLAVE"}, "brokerRole=SLAVE"),
        ({"broker_role": "MASTER"}, "must be one of ASYNC_MASTER, SYNC_MASTER"),
        ({"flush_disk_type": "sometimes"}, "flushDiskType"),
        ({"broker_id": 1}, "brokerId=1"),
        ({"acl_enable": True}, "aclEnable"),
        ({"enable_dleger_commit_log": True}, "enableDLegerCommitLog"),
        ({"broker_name": "a b"}, "brokerName"),
        ({"message_delay_level": "1s nonsense"}, "nonsense"),
        ({"message_delay_level": ""}, "messageDelayLevel is empty"),
        ({"broker_permission": 9}, "brokerPermission"),
        ({"max_message_size": -1}, "maxMessageSize=-1"),
        ({"namesrv_addr": "a:1;foo"}, "namesrvAddr=a:1;foo: 'foo' is no address"),
    ],
)
def test_what_this_broker_cannot_be_is_one_clear_line(attributes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        settled(**attributes)


def test_javas_properties_are_read_and_misspelt_keys_are_not(tmp_path: Any) -> None:
    file = tmp_path / "broker-a.properties"
    file.write_text(
        "brokerClusterName=DefaultCluster\nbrokerName=broker-a\nbrokerId=0\ndeleteWhen=04\nfileReservedTime=48\n"
        "brokerRole=ASYNC_MASTER\nflushDiskType=ASYNC_FLUSH\nsendMessageThreadPoolNums=16\n"
    )
    made = BrokerSettings.from_sources(file=str(file))
    assert made.file_reserved_time == 48
    file.write_text("brokerNmae=broker-a\n")
    with pytest.raises(ConfigError, match="brokerName"):
        BrokerSettings.from_sources(file=str(file))


def test_the_store_gets_its_part_and_the_live_keys_again() -> None:
    made = settled(flush_disk_type="SYNC_FLUSH", mapped_file_size_commit_log=8192, store_path_root_dir="/s")
    store = made.store_settings()
    assert store.root == "/s"
    assert store.commit_log_paths == ("/s/commitlog",)
    assert store.sync_flush
    assert not store.sync_master
    assert store.commit_log_file_size == 8192
    assert store.delays_ms[:2] == (1000, 5000)
    made.update("fileReservedTime=1\ndeleteWhen=05")
    made.apply_to(store)
    assert (store.file_reserved_hours, store.delete_when) == (1, "05")


def test_every_key_without_effect_says_why() -> None:
    assert all(reason and not reason.endswith(".") for reason in WITHOUT_EFFECT.values())


def test_every_other_key_has_an_effect() -> None:
    package = Path(rmq.broker.settings.__file__).parents[1]
    elsewhere = "\n".join(path.read_text() for path in package.rglob("*.py") if path.name != "settings.py")
    own = inspect.getsource(BrokerSettings).partition("def validate")[2]
    for line in BrokerSettings.lines():
        used = re.search(rf"\.{line.attribute}\b", elsewhere) or re.search(rf"\b{line.attribute}\b", own)
        assert used or line.key == "configBlackList", f"{line.key} is read by nobody"


def test_dangerous_keys_are_named() -> None:
    made = settled()
    for key in ("brokerConfigPath", "rocketmqHome", "configBlackList"):
        assert made.forbidden(f"{key}=zz\n") == [key]
    assert settled(config_black_list="traceOn").forbidden("traceOn=false") == ["traceOn"]


def test_delays() -> None:
    levels = DelayLevels("1s 2m  3h 1d")
    assert levels.delays == (1_000, 120_000, 10_800_000, 86_400_000)
    assert levels.max_level == 4
    assert levels.delay(9) == levels.delay(4)
    assert levels.deliver_at(2, 5) == 120_005
