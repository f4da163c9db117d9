"""``rmq secure``: what is made, that nothing is overwritten or readable by others, and what is called open."""

from __future__ import annotations

import ipaddress
import json
import os
import ssl
import stat
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from rmq.auth.client_file import read_client_file
from rmq.auth.files import AclFiles
from rmq.broker.settings import BrokerSettings
from rmq.cli.command import Refused, invoke
from rmq.cli.rmq import command
from rmq.cli.secure import authority, making
from rmq.cli.secure.files import look_at_files
from rmq.cli.secure.findings import of_slaves
from rmq.cli.secure.layout import ACCOUNTS, Plan
from rmq.config.sources import parse_properties, read_file
from rmq.namesrv.settings import NamesrvSettings
from rmq.remoting.certificates import client_context, server_context
from rmq.runtime.files import RealFiles
from tests.support.daemons import ROOT

#: OpenSSL looks at the clock of the machine.
NOW = datetime.now(UTC).replace(microsecond=0)


def make(folder: Path, **given: Any) -> Plan:
    options: dict[str, Any] = {"hosts": ["localhost", "127.0.0.1"], "days": 100, "namesrv_port": 9876}
    rest = {"broker_port": 10911, "topics": (), "groups": (), "demand": False}
    return making.make(str(folder), NOW, **{**options, **rest, **given})


def opened(*paths: Path | str, now: datetime = NOW) -> list[str]:
    return [one.what for one in look_at_files([str(path) for path in paths], now, 30)]


def test_all_that_a_secured_cluster_needs_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "secured"
    old = os.umask(0)
    try:
        make(folder)
    finally:
        os.umask(old)
    modes = {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}
    assert modes.pop("conf") == stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert set(modes.values()) == {0o600}
    assert os.listdir(folder.parent) == ["secured"]
    broker = BrokerSettings.from_sources(file=str(folder / "broker.properties"))
    namesrv = NamesrvSettings.from_sources(file=str(folder / "namesrv.properties"))
    broker.validate()
    for settings in (broker, namesrv):
        settings.check_acl()
        assert settings.server_tls().context is not None
        assert settings.bind_address == "127.0.0.1"
    peer = broker.peer_tls()
    assert peer is not None
    assert peer.context.verify_mode is ssl.CERT_REQUIRED
    files = AclFiles(RealFiles(), str(folder), "conf/plain_acl.yml")
    known = files.understand(files.read())
    assert [(one.admin, one.broker, one.default_topic) for one in known.rules.accounts.values()] == [
        (True, False, 1), (False, True, 1), (False, False, 12),
    ]  # fmt: skip
    for name, place in zip(ACCOUNTS, ("conf/tools.yml", "broker.yml", "client.yml"), strict=True):
        found = read_client_file(RealFiles(), str(folder / place))
        assert found.account is not None
        assert found.account.secret_key == known.rules.accounts[name].secret_key
        assert len(found.account.secret_key) == 32
        for key in ("tlsCaFile", "tlsCertFile", "tlsKeyFile"):
            assert key not in found.tls or os.path.isfile(found.tls[key])
    assert opened(folder) == []


def test_certificates_are_what_they_are_for(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    make(folder, hosts=["broker.example", "10.1.2.3", "fd00::1"])
    server = authority.described((folder / "server.pem").read_bytes())
    assert server.hosts == ("broker.example", "10.1.2.3", "fd00::1")
    assert server.ends == NOW + timedelta(days=100)
    assert BrokerSettings.from_sources(file=str(folder / "broker.properties")).broker_ip1 == "10.1.2.3"
    ca = str(folder / "ca.pem")
    for shown, said in (("server", None), ("client", "unsuitable certificate purpose")):
        error = handshake(str(folder / f"{shown}.pem"), str(folder / f"{shown}.key"), ca)
        assert (said is None and error is None) or (said is not None and said in str(error))


@pytest.mark.parametrize(
    ("hosts", "named"),
    [
        (["mq1.example", "10.0.0.11", "mq2.example", "10.0.0.12"], "10.0.0.11;10.0.0.12"),
        (["10.0.0.11", "fd00::2", "127.0.0.1"], "10.0.0.11;fd00::2"),
        (["mq1.example", "10.0.0.11"], ""),  # one machine: it gets its own log anyway
        (["localhost", "127.0.0.1", "::1"], ""),
    ],
)
@pytest.mark.parametrize("demand", [False, True])
def test_slaves_on_all_machines_get_the_log_and_nobody_else(
    tmp_path: Path, hosts: list[str], named: str, demand: bool
) -> None:
    folder = tmp_path / "s"
    assert not make(folder, hosts=hosts, demand=demand).names_alone
    file = folder / "broker.properties"
    settings = BrokerSettings.from_sources(file=str(file))
    assert settings.ha_allowed_addresses == named
    assert opened(folder) == []
    networks = settings.ha_networks()
    for host in named.split(";") if named else ["127.0.0.1"]:
        assert any(ipaddress.ip_address(host) in network for network in networks)
    assert not any(ipaddress.ip_address("10.0.0.13") in network for network in networks)
    file.write_text(file.read_text().replace(f"haAllowedAddresses={named}\n", ""))
    assert opened(folder) == [f"a slave on {host} gets no log" for host in named.split(";")[1:]]
    for wide in ("0.0.0.0/0", "10.0.0.11;::/0", "0.0.0.0/1;128.0.0.0/1"):
        file.write_text(f"{file.read_text()}haAllowedAddresses={wide}\nbindAddress=0.0.0.0\n")
        found = next(one for one in wide.split(";") if one != "10.0.0.11")
        assert opened(folder) == [f"haAllowedAddresses names {found}"]


def test_of_servers_without_an_address_it_is_said_what_slaves_need(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "set haAllowedAddresses in broker.properties"
    for folder, hosts in (("s", "mq1.example,mq2.example"), ("t", "mq1.example,10.0.0.1"), ("u", "mq1.example")):
        assert invoke(command, "rmq", ["secure", "init", str(tmp_path / folder), "--hosts", hosts]) == 0
        assert (said in capsys.readouterr().out) is (folder == "s")


def test_a_slave_that_its_master_does_not_name_is_named() -> None:
    settings = BrokerSettings.from_sources(overrides={"haAllowedAddresses": "10.0.0.11", "brokerIP1": "10.0.0.11"})
    slaves = ["10.0.0.11", "10.0.0.12", "fd00::1", "mq3.example"]
    found = [one.what for one in of_slaves("m", settings, slaves)]
    assert found == ["a slave on 10.0.0.12 gets no log", "a slave on fd00::1 gets no log"]
    assert list(of_slaves("m", BrokerSettings.from_sources(), slaves)) == []


def handshake(cert: str, key: str, ca: str) -> ssl.SSLError | None:
    """What a client says that trusts ``ca`` of a server with that certificate, without a network."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context(trust=ca).wrap_bio(to_client, to_server)
    server = server_context(cert, key).wrap_bio(to_server, to_client, server_side=True)
    for _ in range(3):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                return error
    return None


def test_nothing_is_overwritten_and_nothing_half_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "s"
    folder.mkdir()
    (folder / "mine").touch()
    with pytest.raises(Refused, match="not empty: nothing is overwritten"):
        make(folder)
    (folder / "mine").unlink()
    written = os.fsync
    left = iter(range(5))

    def full(fd: int) -> None:
        if next(left, None) is None:
            raise OSError(28, "No space left on device")
        written(fd)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        make(folder)
    assert os.listdir(tmp_path) == ["s"]
    assert os.listdir(folder) == []
    monkeypatch.undo()
    make(folder)


def test_the_samples_are_what_is_made(tmp_path: Path) -> None:
    """For another folder, and without secrets."""
    hosts = ("mq1.example.com", "10.0.0.11")
    made = make(tmp_path / "s", hosts=hosts)
    text = {path: data.decode().replace(made.folder, "/etc/rocketmq") for path, data in made.files().items()}
    for sample, path in (("namesrv.conf", "namesrv.properties"), ("broker.conf", "broker.properties")):
        given = read_file(str(ROOT / "conf" / "secured" / sample))
        ours = parse_properties(text[path], path)
        assert {one.key: one.value for one in given} == {one.key: one.value for one in ours}
    sample_tools = yaml.safe_load((ROOT / "conf/secured/tools.yml").read_text())
    assert {**sample_tools, "secretKey": made.secrets[0]} == yaml.safe_load(text["conf/tools.yml"])
    assert authority.described((tmp_path / "s" / "server.pem").read_bytes()).hosts == hosts


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"hosts": ["a.example:9876"]}, "'a.example:9876' is no host"),
        ({"hosts": [""]}, "'' is no host"),
        ({"topics": ["a b"]}, "'a b' is no name of a topic"),
        ({"groups": ["x'"]}, "is no name of a topic or a group"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, given: Any, said: str) -> None:
    with pytest.raises(Refused, match=said):
        make(tmp_path / "s", **given)
    assert os.listdir(tmp_path) == []


def test_applications_get_what_they_are_given_alone(tmp_path: Path) -> None:
    make(tmp_path / "s", topics=("orders",), groups=("workers",), demand=True)
    files = AclFiles(RealFiles(), str(tmp_path / "s"), "conf/plain_acl.yml")
    account = files.understand(files.read()).rules.accounts["application"]
    assert (account.default_topic, account.default_group) == (1, 1)
    assert (dict(account.topics), dict(account.groups)) == ({"orders": 12}, {"workers": 8})
    broker = BrokerSettings.from_sources(file=str(tmp_path / "s" / "broker.properties"))
    assert broker.tls_server_need_client_auth == "require"


@pytest.mark.parametrize("new_keys", [False, True])
def test_certificates_are_renewed_for_the_same_hosts(tmp_path: Path, new_keys: bool) -> None:
    folder = tmp_path / "s"
    make(folder)
    before = {name: (folder / name).read_bytes() for name in ("server.pem", "server.key", "client.pem", "ca.pem")}
    kept = folder.rename(tmp_path / "elsewhere") / "ca.key"
    folder = kept.parent
    key = tmp_path / "kept.key"
    kept.rename(key)
    told = making.renew(str(folder), RealFiles(), NOW, days=4_000, hosts=(), new_keys=new_keys, key_file=str(key))
    after = {name: (folder / name).read_bytes() for name in before}
    assert (after["server.key"] == before["server.key"]) is not new_keys
    assert after["ca.pem"] == before["ca.pem"]
    made = authority.described(after["server.pem"])
    assert made.hosts == ("localhost", "127.0.0.1")
    assert made.ends == authority.described(after["ca.pem"]).ends  # no longer than what it leads to
    assert "for localhost, 127.0.0.1" in told[0]
    assert "the authority itself ends on" in told[2]
    assert stat.S_IMODE((folder / "server.pem").stat().st_mode) == 0o600
    assert handshake(str(folder / "server.pem"), str(folder / "server.key"), str(folder / "ca.pem")) is None
    with pytest.raises(Refused, match=r"ca\.key: No such file"):
        making.renew(str(folder), RealFiles(), NOW, days=1, hosts=(), new_keys=False, key_file=None)


def test_without_the_package_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert invoke(command, "rmq", ["secure", "init", str(tmp_path / "s")]) == 2
    assert capsys.readouterr().err == (
        "rmq: certificates are made with the package cryptography: pip install 'rmq[tls]'\n"
    )


ALL = {
    "permissive": ["tls.server.mode=permissive", "no certificate", "a broker without accounts"],
    "auto": ["autoCreateTopicEnable=true", "the HA port is open"],
}


def test_a_broker_of_javas_defaults_is_open(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=b\n")
    assert opened(file) == [*ALL["permissive"], *ALL["auto"]]
    file.write_text("brokerName=b\nenableDLegerCommitLog=true\n")
    assert opened(file) == [*ALL["permissive"], "autoCreateTopicEnable=true", "the port of its group is open"]
    file.write_text("brokerName=b\nbindAddress=127.0.0.1\nautoCreateTopicEnable=false\n")
    assert opened(file) == ALL["permissive"]


@pytest.mark.parametrize(
    ("file", "change", "what"),
    [
        ("broker.properties", "tls.server.mode=permissive", "tls.server.mode=permissive"),
        ("broker.properties", "tls.server.mode=disabled", "tls.server.mode=disabled"),
        ("namesrv.properties", "aclEnable=false", "a name server without accounts"),
        ("broker.properties", "autoCreateTopicEnable=true", "autoCreateTopicEnable=true"),
        ("broker.properties", "tls.enable=false", "tls.enable=false"),
        ("broker.properties", "tls.client.checkHostname=false", "tls.client.checkHostname=false"),
        ("broker.properties", "aclCredentialsFile=", "no aclCredentialsFile"),
        ("broker.properties", "aclUncheckedCodes=true", "aclUncheckedCodes=true"),
        ("broker.properties", "aclTraceTopicOpen=true", "aclTraceTopicOpen=true"),
        ("broker.properties", "aclConfigShowsSecrets=true", "aclConfigShowsSecrets=true"),
        ("namesrv.properties", "aclWhiteListSkipsChecks=true", "aclWhiteListSkipsChecks=true"),
        (
            "broker.properties",
            "metricsExporterType=PROM\nmetricsPromExporterHost=0.0.0.0",
            "metricsExporterType=PROM on 0.0.0.0",
        ),
        ("broker.yml", "accessKey: administrator\nsecretKey: x", "it signs as administrator, an administrator"),
        ("client.yml", "accessKey: administrator\nsecretKey: x", "it signs as administrator, an administrator"),
    ],
)
def test_each_thing_that_is_opened_is_named(tmp_path: Path, file: str, change: str, what: str) -> None:
    folder = tmp_path / "s"
    make(folder)
    assert opened(folder) == []
    path = folder / file
    keys = {line.partition("=")[0] for line in change.splitlines()}
    kept = [line for line in path.read_text().splitlines() if line.partition("=")[0] not in keys]
    path.write_text("\n".join([*(kept if file.endswith(".properties") else []), change, ""]))
    assert opened(folder) == [what]


@pytest.mark.parametrize(
    ("accounts", "what"),
    [
        ("accessKey: RocketMQ\n    secretKey: 12345678", "a secret of the samples"),
        ("accessKey: somebody\n    secretKey: abcdefgh", "a secret of 8 characters"),
        ("accessKey: somebody\n    secretKey: 0123456789abcdef\n    admin: true", "one more administrator"),
    ],
)
def test_accounts_that_are_too_easy_or_too_much_are_named(tmp_path: Path, accounts: str, what: str) -> None:
    make(tmp_path / "s")
    file = tmp_path / "s" / "conf" / "plain_acl.yml"
    file.write_text(f"{file.read_text()}  - {accounts}\n")
    assert opened(tmp_path / "s") == [what]
    assert opened(file) == [what]


def test_what_white_lists_skip_files_show_and_certificates_end_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    make(folder)
    accounts = folder / "conf" / "plain_acl.yml"
    accounts.write_text(f"globalWhiteRemoteAddresses:\n  - 10.1.*.*\n{accounts.read_text()}")
    assert opened(folder) == []  # they narrow
    broker = folder / "broker.properties"
    broker.write_text(f"{broker.read_text()}aclWhiteListSkipsChecks=true\n")
    assert opened(folder) == ["aclWhiteListSkipsChecks=true", "globalWhiteRemoteAddresses: 10.1.*.*"]
    make(tmp_path / "t")
    for name in ("server.key", "conf/plain_acl.yml", "conf/tools.yml", "ca.key"):
        (tmp_path / "t" / name).chmod(0o644)
    found = look_at_files([str(tmp_path / "t")], NOW, 30)
    assert {one.what for one in found} == {"others may read it"}
    assert {os.path.basename(one.where) for one in found} == {"server.key", "plain_acl.yml", "tools.yml", "ca.key"}
    assert opened(tmp_path / "t" / "conf" / "tools.yml") == ["others may read it"]
    make(tmp_path / "u")
    assert opened(tmp_path / "u", now=NOW + timedelta(days=69)) == []
    assert opened(tmp_path / "u", now=NOW + timedelta(days=71)) == [f"it ends on {NOW + timedelta(days=100):%Y-%m-%d}"]
    assert opened(tmp_path / "u", now=NOW + timedelta(days=101)) == [
        f"it has ended on {NOW + timedelta(days=100):%Y-%m-%d}"
    ]


def test_the_exit_code_and_json_tell_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path / "s", days=4_000)
    assert invoke(command, "rmq", ["secure", "check", str(tmp_path / "s")]) == 0
    capsys.readouterr()
    file = tmp_path / "s" / "broker.properties"
    file.write_text(f"{file.read_text()}autoCreateTopicEnable=true\n")
    assert invoke(command, "rmq", ["secure", "check", str(tmp_path / "s")]) == 1
    assert capsys.readouterr().out == (
        f"{file}: autoCreateTopicEnable=true: a misspelt name, or whoever may send, makes topics; "
        "set autoCreateTopicEnable=false, and make topics with mqadmin updateTopic\n"
    )
    assert invoke(command, "rmq", ["secure", "check", "--json", str(tmp_path / "s")]) == 1
    [told] = json.loads(capsys.readouterr().out)
    assert set(told) == {"where", "what", "why", "do"}
    for arguments, said in (
        ([], "what is to be looked at"),
        ([str(tmp_path)], "neither namesrv.properties nor broker.properties is in it"),
        ([str(tmp_path / "none.properties")], "none.properties: No such file"),
    ):
        assert invoke(command, "rmq", ["secure", "check", *arguments]) == 2
        assert said in capsys.readouterr().err
