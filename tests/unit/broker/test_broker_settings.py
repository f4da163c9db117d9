"""The broker's settings: Java's keys, and what is refused."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import rmq.broker.settings
from rmq.broker.delays import DelayLevels
from rmq.broker.inert import WITHOUT_EFFECT
from rmq.broker.settings import BrokerSettings
from rmq.config.settings import Settings
from rmq.namesrv.settings import NamesrvSettings
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
        ({"broker_role": "SLAVE"}, "brokerId='0': a SLAVE has an id above 0"),
        ({"broker_role": "MASTER"}, "must be one of ASYNC_MASTER, SYNC_MASTER"),
        ({"flush_disk_type": "sometimes"}, "flushDiskType"),
        ({"broker_id": 1}, "brokerId='1': a ASYNC_MASTER has"),
        ({"acl_enable": True}, "aclEnable"),
        ({"authentication_enabled": True}, "authenticationEnabled='true': that of 5.x is not available, aclEnable is"),
        ({"authorization_enabled": True}, "authorizationEnabled='true': that of 5.x is not available, aclEnable is"),
        ({"broker_name": "a b"}, "brokerName"),
        ({"message_delay_level": "1s nonsense"}, "nonsense"),
        ({"message_delay_level": ""}, "messageDelayLevel='': no delay"),
        ({"broker_permission": 9}, "brokerPermission"),
        ({"max_message_size": -1}, "maxMessageSize='-1'"),
        ({"broker_ip1": "10.0.0.1:10911"}, "brokerIP1='10.0.0.1:10911': one address or name, without a port"),
        ({"broker_ip2": "a b"}, "brokerIP2='a b'"),
        ({"ha_allowed_addresses": "10.0.0.1; host"}, "haAllowedAddresses='10.0.0.1; host': 'host' .*separated by ';'"),
        ({"ha_allowed_addresses": "10.0.0.1/8"}, "haAllowedAddresses=.* has host bits set"),
        ({"ha_master_address": "10.0.0.1"}, "haMasterAddress='10.0.0.1': .*host:port"),
        (
            {"trace_topic_enable": True, "msg_trace_topic_name": "../x"},
            "msgTraceTopicName='../x': .*illegal characters",
        ),
        ({"broker_ip1": "[::1]:10911"}, r"brokerIP1='\[::1\]:10911': one address or name, without a port"),
        ({"broker_name": "b" * 256}, "brokerName='b{77}...': at most 255 bytes"),
        ({"broker_cluster_name": "c\u3000d"}, "brokerClusterName='c.*d': must have no blanks"),
        ({"region_id": "\ud800"}, "regionId='.*ud800': .*half a character"),
        ({"namesrv_addr": "a:1;foo"}, "namesrvAddr='a:1;foo': 'foo' is no address"),
    ],
)
def test_what_this_broker_cannot_be_is_one_clear_line(attributes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        settled(**attributes)


def test_what_a_file_says_is_refused_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "b.properties"
    file.write_text("brokerName=b\nflushDiskType=SYNC\n")
    made = BrokerSettings.from_sources(file=str(file))
    with pytest.raises(ConfigError, match=r"b.properties line 2: flushDiskType='SYNC': must be one of ASYNC_FLUSH, S"):
        made.settle(SimIdentity("host-1", "10.1.2.3"))
    with pytest.raises(ConfigError, match=r"^update line 1: regionId='x{77}\.\.\.': at most 255 bytes"):
        settled().update("regionId=" + "x" * 256)
    with pytest.raises(ConfigError, match=r"^update line 1: namesrvAddr='a': 'a' is no address"):
        settled().update("namesrvAddr=a")


def test_an_ipv6_address_is_taken_with_its_brackets() -> None:
    made = settled(broker_ip1="[::1]", broker_ip2="[2001:db8::7]")
    assert (made.broker_ip1, made.broker_ip2) == ("::1", "2001:db8::7")


@pytest.mark.parametrize("kind", [BrokerSettings, NamesrvSettings])
def test_every_number_has_a_range_and_its_default_is_within(kind: type[Settings]) -> None:
    for line in kind.lines():
        if line.kind is int and line.key != "brokerId":  # the role decides that one
            assert line.minimum is not None or line.lowest is not None, line.key
            assert line.maximum is not None or line.highest is not None, line.key
            assert line.outside(line.check(line.default)) is None, line.key


@pytest.mark.parametrize(
    ("text", "used", "said"),
    [
        ("diskMaxUsedSpaceRatio=900", 95, "at most 95 is expected: 95 is used"),
        ("diskMaxUsedSpaceRatio=-1", 10, "at least 10 is expected: 10 is used"),
        ("defaultQueryMaxNum=99999999999", 1024, "at most 1024 is expected: 1024 is used"),
        ("fileReservedTime=99999999999", 2147483647, "at most 2147483647 is expected: 2147483647 is used"),
        ("registerNameServerPeriod=5", 10_000, "at least 10000 is expected: 10000 is used"),
        ("flushIntervalCommitLog=0", 1, "at least 1 is expected: 1 is used"),
        ("transactionTimeOut=-5", 0, "at least 0 is expected: 0 is used"),
        ("maxMessageSize=100000000", 16_777_216, "at most 16777216 is expected"),
        ("serverSocketBacklog=-1", 1, "at least 1 is expected"),
        ("deleteWhen=4;99; x ;22", "4;22", "hours of the day, 0 to 23, separated by ';' are expected: 4;22 is used"),
        ("deleteWhen=99", "", "no hour, so that files stay until the disk is full, is used"),
        ("deleteWhen=\\u00b2", "", "no hour"),
        ("deleteWhen=", "", "no hour"),
    ],
)
def test_what_java_starts_with_does_not_stop_a_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, used: object, said: str
) -> None:
    """Each of them was given to a Java 4.9.4 broker, which started and served."""
    file = tmp_path / "b.properties"
    file.write_text(text)
    made = BrokerSettings.from_sources(file=str(file))
    made.settle(SimIdentity("host-1", "10.1.2.3"))
    key = text.partition("=")[0]
    assert made.get(key) == used
    assert f"b.properties line 1: {key}=" in caplog.text
    assert said in caplog.text
    other = settled()
    before = other.get(key)
    with pytest.raises(ConfigError, match=f"{key}"):
        other.update(text)
    assert other.get(key) == before


@pytest.mark.parametrize(
    ("text", "value"),
    [("deleteWhen= 4 ; 16;", "4 ; 16;"), ("deleteWhen=0;23", "0;23"), ("diskMaxUsedSpaceRatio=95", 95)],
)
def test_the_ends_of_a_range_are_in_it(text: str, value: object) -> None:
    made = settled()
    assert made.update(text) == [text.partition("=")[0]]
    assert made.get(text.partition("=")[0]) == value


@pytest.mark.parametrize(
    "text",
    [
        "flushConsumerOffsetInterval=0", "cleanResourceInterval=0", "flushDelayOffsetInterval=0",
        "pullThreadPoolQueueCapacity=0", "maxErrorRateOfBloomFilter=100", "expectConsumerNumUseFilter=0",
        "listenPort=65535", "mappedFileSizeCommitLog=4294967296", "fileReservedTime=-1", "brokerPermission=8",
    ],
)  # fmt: skip
def test_what_nobody_can_mean_stops_a_start(tmp_path: Path, text: str) -> None:
    """A Java broker does not start with most of them; an age below 0 makes it delete every file."""
    file = tmp_path / "b.properties"
    file.write_text("brokerName=b\n" + text)
    key, _, value = text.partition("=")
    with pytest.raises(ConfigError, match=f"line 2: {key}='{value}': at (least|most)"):
        BrokerSettings.from_sources(file=str(file))


def test_an_update_is_checked_as_a_whole() -> None:
    made = settled()
    for text in ("namesrvAddr=a:1;foo", "brokerPermission=8", "maxMessageSize=0", "traceOn=false\ndeleteWhen=99"):
        with pytest.raises(ConfigError, match=text.splitlines()[-1].partition("=")[0]):
            made.update(text)
    assert (made.namesrv_addr, made.broker_permission, made.max_message_size, made.trace_on) == ("", 6, 4_194_304, True)


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


def test_every_key_of_javas_two_generations_is_known() -> None:
    """So that a broker.conf of 4.9 or 5.3, and what getBrokerConfig prints of it, starts this one."""
    broker = {"BrokerConfig", "MessageStoreConfig", "NettyServerConfig", "NettyClientConfig", "AuthConfig"}
    namesrv = {"NamesrvConfig", "NettyServerConfig", "NettyClientConfig", "ControllerConfig"}
    found = 0
    for line in (Path(__file__).parents[2] / "golden" / "settings" / "java-keys.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        _, source, key = line.split(" ")
        found += 1
        for kind, classes in ((BrokerSettings, broker), (NamesrvSettings, namesrv)):
            assert source not in classes or kind.line(key) is not None or key in kind.inert, f"{key} of {source}"
    assert found > 600


def test_a_misspelt_key_is_still_refused(tmp_path: Path) -> None:
    file = tmp_path / "b.properties"
    for wrong, right in (("timerStopEnque", "timerStopEnqueue"), ("flushDiskTyp", "flushDiskType")):
        file.write_text(f"{wrong}=1\n")
        with pytest.raises(ConfigError, match=f"line 1: {wrong} is not a key; did you mean {right}"):
            BrokerSettings.from_sources(file=str(file))


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
