"""Options of TLS: where they come from, what does not fit together, and files that cannot be used."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Any

import pytest

from rmq.auth.client_file import parse_client_file
from rmq.client.account import access_of
from rmq.client.settings import ProducerSettings
from rmq.protocol.errors import ClientError, ConfigError
from rmq.remoting.peer_tls import SDK, PeerTls, TlsOptions
from rmq.remoting.tls_settings import TlsSettings
from rmq.runtime.world import World
from tests.support.certificates import Certificate, make_certificate

HUSH = "hush-hush"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"), "one")


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """With a key that a password opens."""
    return make_certificate(tmp_path_factory.mktemp("tls"), "locked", password=HUSH)


def context(**options: Any) -> ssl.SSLContext | None:
    """What a client with these options opens connections with."""
    peer = access_of(ProducerSettings.of({"namesrv": "127.0.0.1:1", **options}), World.real().files).peer()
    return None if peer is None else peer.context


def test_servers_are_verified_unless_that_is_switched_off(made: Certificate, caplog: pytest.LogCaptureFixture) -> None:
    assert context() is None
    assert context(tls=False) is None
    for options in ({}, {"tls_ca_file": made.cert}, {"tls_server_name": "broker.example"}):
        found = context(tls=True, **options)
        assert found is not None
        assert (found.verify_mode, found.check_hostname) == (ssl.CERT_REQUIRED, True)
    found = context(tls=True, tls_ca_file=made.cert, tls_check_hostname=False)
    assert found is not None
    assert (found.verify_mode, found.check_hostname) == (ssl.CERT_REQUIRED, False)
    assert caplog.text == ""
    found = context(tls=True, tls_verify=False)
    assert found is not None
    assert found.verify_mode is ssl.CERT_NONE
    [told] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "tls_verify=False" in told.getMessage()
    own = ssl.create_default_context()
    assert context(tls=own) is own


def test_the_environment_counts_where_nothing_is_given(made: Certificate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETMQ_TLS", "true")
    monkeypatch.setenv("ROCKETMQ_TLS_VERIFY", "false")
    found = context()
    assert found is not None
    assert found.verify_mode is ssl.CERT_NONE
    assert context(tls=False) is None
    found = context(tls=True, tls_ca_file=made.cert)  # what the environment says of trust is not for these
    assert found is not None
    assert found.verify_mode is ssl.CERT_REQUIRED
    monkeypatch.setenv("ROCKETMQ_TLS", "perhaps")
    with pytest.raises(ClientError, match=r"^ROCKETMQ_TLS='perhaps' in the environment: true or false is expected"):
        context()


def test_one_file_says_who_comes_and_how(made: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "client.yml"
    (tmp_path / "ca.pem").write_bytes(Path(made.cert).read_bytes())
    file.write_text(
        f"accessKey: someone\nsecretKey: {HUSH}\nuseTLS: true\ntlsCaFile: ca.pem\ntlsServerName: b.example\n"
    )
    access = access_of(ProducerSettings.of({"credentials_file": str(file)}), World.real().files)
    assert access.account is not None
    assert access.account.access_key == "someone"
    assert access.tls == TlsOptions(ca=str(tmp_path / "ca.pem"), server_name="b.example")
    peer = access.peer()
    assert peer is not None
    assert peer.server_name == "b.example"
    assert HUSH not in repr(access)
    assert access_of(ProducerSettings.of({"credentials_file": str(file), "tls": False}), World.real().files).tls is None
    monkeypatch.setenv("ROCKETMQ_CREDENTIALS_FILE", str(file))
    assert access_of(ProducerSettings.of({}), World.real().files) == access


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("accessKey: someone\n", "f.yml: secretKey is missing"),
        ("secretKey: hush-hush\ntlsCaFile: a\n", "f.yml: accessKey is missing"),
        ("", "f.yml: accessKey is missing"),
        ("tlsCAFile: a\n", "f.yml: there is no key tlsCAFile: did you mean tlsCaFile?"),
        ("tlsVerify: nein\n", "f.yml: tlsVerify: true or false is expected"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_client_file("f.yml", text.encode())
    assert str(refused.value).startswith(said)
    assert HUSH not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tls_ca_file": "a"}, "tls_ca_file does nothing without tls=True"),
        ({"tls": False, "tls_verify": False}, "tls_verify does nothing without tls=True"),
        ({"tls": True, "tls_cert_file": "a"}, "tls_cert_file and tls_key_file go together"),
        ({"tls": True, "tls_key_password": HUSH}, "there is no key that it is for"),
        ({"tls": True, "tls_verify": False, "tls_ca_file": "a"}, "do nothing where certificates are not verified"),
        ({"tls": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), "tls_ca_file": "a"}, "not both"),
        ({"tls": True, "tls_key_password": b"hush-hush"}, "tls_key_password is no text"),
        (
            {
                "tls": True,
                "tls_cert_file": "a",
                "tls_key_file": "b",
                "tls_key_password": HUSH,
                "tls_key_password_file": "f",
            },
            "give one of them",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused_when_the_client_is_made(options: Any, said: str) -> None:
    with pytest.raises((ClientError, ConfigError), match=said) as refused:
        ProducerSettings.of(options)
    assert HUSH not in str(refused.value)


def test_the_password_of_a_key_stands_in_no_text(locked: Certificate, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{HUSH}\n")
    chain: Any = {"tls": True, "tls_cert_file": locked.cert, "tls_key_file": locked.key}
    settings = ProducerSettings.of({**chain, "tls_key_password": HUSH})
    access = access_of(settings, World.real().files)
    assert access.peer() is not None
    assert HUSH not in repr(settings) + repr(access) + repr(access.tls)
    assert context(**chain, tls_key_password_file=str(file)) is not None
    for given, said in (
        ({}, r"locked\.key is encrypted: its password is missing \(tls_key_password or tls_key_password_file\)$"),
        ({"tls_key_password": "hush-no"}, r"locked\.key is encrypted: another password is needed \(tls_key_password"),
        ({"tls_key_password_file": str(tmp_path / "none")}, "none: the password of a TLS key cannot be read: No such"),
    ):
        with pytest.raises(ConfigError, match=said) as refused:
            context(**chain, **given)
        assert "hush" not in str(refused.value)


def test_files_that_cannot_be_used_are_named_with_what_is_wrong(
    made: Certificate, locked: Certificate, tmp_path: Path
) -> None:
    none = str(tmp_path / "none.pem")
    for cert, key, said in (
        (none, made.key, f"TLS: {none} cannot be read: No such file or directory"),
        (made.cert, none, f"TLS: {none} cannot be read: No such file or directory"),
        (made.key, made.key, f"TLS: {made.key} holds no certificate in PEM form: give the certificate chain"),
        (made.cert, made.cert, f"TLS: {made.cert} holds no private key in PEM form: give the key of {made.cert}"),
        (
            locked.cert,
            made.key,
            f"TLS: the key {made.key} is not the one of the certificate {locked.cert}: "
            "give the key that it was made with",
        ),
    ):
        with pytest.raises(ConfigError) as refused:
            TlsOptions(cert=cert, key=key).peer(SDK)
        assert str(refused.value) == said
    for ca, said in (
        (none, f"TLS: {none} cannot be read: No such file or directory"),
        (made.key, f"TLS: {made.key} cannot be used as certificates to trust: it holds no certificate in PEM form"),
    ):
        with pytest.raises(ConfigError) as refused:
            TlsOptions(ca=ca).peer(SDK)
        assert str(refused.value) == said


def test_what_is_no_matter_of_tls_is_left_to_others() -> None:
    peer = PeerTls(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    assert peer.fault(OSError(111, "Connection refused"), connecting=True) is None
    assert peer.fault(ConnectionResetError()) is None
    assert peer.fault(ConnectionResetError(), connecting=True) is not None


def test_files_that_change_count_with_the_next_connection(made: Certificate, tmp_path: Path) -> None:
    """A client, and a daemon that calls others, outlives its certificate."""
    ca, cert, key = (tmp_path / name for name in ("ca.pem", "cert.pem", "key.pem"))

    def put(one: Certificate) -> None:
        for path, source in ((ca, one.cert), (cert, one.cert), (key, one.key)):
            (tmp_path / "new").write_bytes(Path(source).read_bytes())
            (tmp_path / "new").replace(path)

    put(made)
    own = {"tls_client_cert_path": str(cert), "tls_client_key_path": str(key)}
    daemon = TlsSettings(tls_enable=True, tls_client_trust_cert_path=str(ca), **own).peer_tls()
    for peer in (TlsOptions(ca=str(ca), cert=str(cert), key=str(key)).peer(SDK), daemon):
        assert peer is not None
        put(made)
        before = peer.context
        assert peer.context is before
        assert trusted(before) == ["one"]
        cert.write_text("half a file")
        assert peer.context is before
        other = make_certificate(tmp_path, "other")
        put(other)
        assert trusted(peer.context) == ["other"]


def trusted(context: ssl.SSLContext) -> list[str]:
    """Names of what is trusted."""
    found: list[Any] = context.get_ca_certs()
    return [dict(pair for part in one["subject"] for pair in part)["commonName"] for one in found]
