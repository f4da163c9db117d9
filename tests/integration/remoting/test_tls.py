"""TLS on the same port, sensed by the first byte, on both loops (protocol.md 6.4)."""

from __future__ import annotations

import asyncio
import logging
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest

from rmq.protocol.command import Command
from rmq.protocol.errors import ConfigError, ConnectFailed, ConnectionLost, RMQError
from rmq.remoting.certificates import Renewed, client_context, server_context
from rmq.remoting.client import RemotingClient
from rmq.remoting.limits import Limits
from rmq.remoting.peer_tls import SDK, PeerTls, TlsOptions
from rmq.remoting.router import Router
from rmq.remoting.server import Server
from rmq.remoting.tls import ServerTls, TlsMode
from rmq.remoting.tls_settings import TlsSettings
from rmq.runtime.world import World
from tests.support.certificates import make_certificate
from tests.support.loops import factories, run_on

LOOPS = sorted(factories())


async def serve(tls: ServerTls, limits: Limits | None = None) -> tuple[Server, str]:
    router = Router()
    router.on(1, lambda conn, request: request.reply(0, "tls" if conn.secure else "plain", body=request.body))
    server = Server(World.real(), router, limits, tls=tls)
    _, port = await server.start("127.0.0.1", 0)
    return server, f"127.0.0.1:{port}"


async def ask(addr: str, tls: Any = None, body: bytes = b"") -> Command:
    async with RemotingClient(World.real(), tls=tls) as client:
        return await client.request(addr, Command(1, body=body), 100.0)


@pytest.mark.parametrize("loop", LOOPS)
def test_both_kinds_share_the_port(loop: str, certificate: Any) -> None:
    async def main() -> None:
        server, addr = await serve(ServerTls(TlsMode.PERMISSIVE, server_context(certificate.cert, certificate.key)))
        assert (await ask(addr)).remark == "plain"
        assert (await ask(addr, client_context(verify=False))).remark == "tls"
        assert (await ask(addr, client_context(verify=True, trust=certificate.cert))).remark == "tls"
        big = bytes(range(256)) * 20_000
        answer = await ask(addr, client_context(verify=False), big)
        assert (answer.remark, answer.body == big) == ("tls", True)
        await server.stop()

    run_on(loop, main())


@pytest.mark.parametrize("loop", LOOPS)
def test_enforcing_and_disabled(loop: str, certificate: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        context = server_context(certificate.cert, certificate.key)
        server, addr = await serve(ServerTls(TlsMode.ENFORCING, context))
        assert (await ask(addr, client_context(verify=False))).remark == "tls"
        with pytest.raises(ConnectionLost):
            await ask(addr)
        await server.stop()
        server, addr = await serve(ServerTls(TlsMode.DISABLED, context))
        assert (await ask(addr)).remark == "plain"
        with pytest.raises(ConnectFailed):
            await ask(addr, client_context(verify=False))
        await server.stop()

    run_on(loop, main())
    assert "it does not speak TLS, which is enforced here" in caplog.text
    assert "it speaks TLS, which is disabled here" in caplog.text


@pytest.mark.parametrize("loop", LOOPS)
def test_without_a_certificate_the_connection_closes_with_one_line(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        server, addr = await serve(ServerTls())
        with pytest.raises(ConnectFailed):
            await ask(addr, client_context(verify=False))
        assert (await ask(addr)).remark == "plain"
        await server.stop()

    run_on(loop, main())
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) == 1
    assert "it speaks TLS, but no certificate is configured here" in lines[0]


@pytest.mark.parametrize("loop", LOOPS)
def test_who_is_not_trusted_is_refused(loop: str, certificate: Any, other_certificate: Any) -> None:
    async def main() -> None:
        context = server_context(certificate.cert, certificate.key, trust=other_certificate.cert, client_auth="require")
        server, addr = await serve(ServerTls(TlsMode.PERMISSIVE, context))
        with pytest.raises(RMQError):
            await ask(addr, client_context(verify=False))  # shows no certificate
        with pytest.raises(ConnectFailed):
            await ask(addr, client_context(verify=True, trust=other_certificate.cert))
        known = client_context(verify=False, cert=other_certificate.cert, key=other_certificate.key)
        assert (await ask(addr, known)).remark == "tls"
        await server.stop()

    run_on(loop, main())


@pytest.mark.parametrize("loop", LOOPS)
def test_broken_handshakes_close(loop: str, certificate: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        limits = Limits(handshake_seconds=0.1)
        context = server_context(certificate.cert, certificate.key)
        server, addr = await serve(ServerTls(TlsMode.PERMISSIVE, context), limits)
        port = int(addr.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x16nonsense, not a handshake at all")
        assert len(await reader.read(1000)) < 100  # an alert at most, then the end
        await reader.read()
        writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x16\x03\x01")  # and never goes on
        assert await reader.read() == b""
        writer.close()
        assert (await ask(addr)).remark == "plain"
        await server.stop()

    run_on(loop, main())
    assert "its TLS handshake took too long" in caplog.text


def test_files_that_cannot_be_used_are_named(tmp_path: Any, certificate: Any) -> None:
    with pytest.raises(ConfigError, match=r"missing\.pem"):
        server_context(str(tmp_path / "missing.pem"), certificate.key)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"tls_server_need_client_auth": "maybe"}, "tls.server.need.client.auth='maybe': none, optional, require is"),
        (
            {"tls_server_mode": "sometimes"},
            "tls.server.mode='sometimes': disabled, permissive or enforcing is",
        ),
        ({"tls_server_mode": "enforcing"}, "tls.server.mode='enforcing': needs tls.server.certPath and"),
        ({"tls_server_cert_path": "c.pem"}, "tls.server.certPath='c.pem': needs tls.server.keyPath"),
    ],
)
def test_settings_that_cannot_be_used_are_named(settings: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=f"^{told}"):
        TlsSettings(**settings).server_tls()


@pytest.mark.parametrize("loop", LOOPS)
def test_a_server_without_a_certificate_makes_one_for_its_run(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        server, addr = await serve(TlsSettings().server_tls())
        assert (await ask(addr)).remark == "plain"
        assert "made for this run" not in caplog.text  # before somebody asks
        for _ in range(2):
            assert (await ask(addr, client_context(verify=False))).remark == "tls"
        with pytest.raises(ConnectFailed):
            await ask(addr, client_context(verify=True))
        await server.stop()
        server, addr = await serve(TlsSettings(tls_test_mode_enable=False).server_tls())
        with pytest.raises(ConnectFailed):
            await ask(addr, client_context(verify=False))
        await server.stop()

    run_on(loop, main())
    assert caplog.text.count("made for this run") == 1


def _no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)


def _no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryDirectory", full)


@pytest.mark.parametrize(("spoil", "told"), [(_no_package, "rmq[tls]"), (_no_folder, "No space left on device")])
def test_where_no_certificate_can_be_made_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, spoil: Any, told: str
) -> None:
    spoil(monkeypatch)

    async def main() -> None:
        server, addr = await serve(TlsSettings().server_tls())
        for _ in range(2):
            with pytest.raises(ConnectFailed):
                await ask(addr, client_context(verify=False))
        await server.stop()

    asyncio.run(main())
    assert caplog.text.count(told) == 1
    assert "Traceback" not in caplog.text


def test_a_certificate_that_changes_is_in_force_without_a_restart(
    tmp_path: Path, certificate: Any, other_certificate: Any, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"

    def put(one: Any) -> None:
        for path, source in ((cert, one.cert), (key, one.key)):
            (tmp_path / "new").write_bytes(Path(source).read_bytes())
            (tmp_path / "new").replace(path)

    async def main() -> None:
        put(certificate)
        settings = TlsSettings(tls_server_cert_path=str(cert), tls_server_key_path=str(key))
        server, addr = await serve(settings.server_tls())
        first, second = (client_context(verify=True, trust=one.cert) for one in (certificate, other_certificate))
        async with RemotingClient(World.real(), tls=first) as living:
            assert (await living.request(addr, Command(1))).remark == "tls"
            put(other_certificate)
            assert (await ask(addr, second)).remark == "tls"
            with pytest.raises(ConnectFailed):
                await ask(addr, first)
            assert (await living.request(addr, Command(1))).remark == "tls"  # goes on as it was opened
            cert.write_text("half a file")
            for _ in range(2):
                assert (await ask(addr, second)).remark == "tls"
            put(certificate)
            assert (await ask(addr, first)).remark == "tls"
        await server.stop()

    asyncio.run(main())
    assert caplog.text.count("the certificate read before stays in force") == 1


def test_a_certificate_that_could_not_be_read_is_taken_once_it_may_be(tmp_path: Path) -> None:
    """Its content has not changed since: who may read it has."""
    path = tmp_path / "cert.pem"
    path.touch(mode=0o600)
    before, new = client_context(verify=False), client_context(verify=False)

    def make() -> ssl.SSLContext:
        if path.stat().st_size and not path.stat().st_mode & 0o040:
            raise ConfigError("Permission denied")
        return new if path.stat().st_size else before

    renewed = Renewed(make, [str(path)])
    path.write_text("new")
    assert renewed() is before
    path.chmod(0o640)
    assert renewed() is new


def test_the_file_of_javas_tls_settings_goes_before_all_others(tmp_path: Path, certificate: Any) -> None:
    file = tmp_path / "tls.properties"
    file.write_text(
        f"tls.test.mode.enable=false\ntls.server.mode=enforcing\ntls.server.certPath={certificate.cert}\n"
        f"tls.server.keyPath={certificate.key}\ntls.server.authClient=false\ntls.client.authServer=true\n"
        f"tls.client.trustCertPath={certificate.cert}\n"
    )
    given = {"tls.config.file": str(file), "tls.server.mode": "disabled"}
    settings = TlsSettings.from_sources(overrides=given)
    assert settings.server_tls().mode is TlsMode.ENFORCING
    assert settings.origin("tls.server.mode") == f"{file} line 2"
    peer = settings.peer_tls()
    assert peer is not None
    assert peer.context.verify_mode is ssl.CERT_REQUIRED
    file.write_text("listenPort=1\n")
    with pytest.raises(ConfigError, match="listenPort is no key of TLS"):
        TlsSettings.from_sources(overrides=given)
    with pytest.raises(ConfigError, match=r"none\.properties"):
        TlsSettings.from_sources(overrides={"tls.config.file": str(tmp_path / "none.properties")})


def test_contradictions_are_refused(certificate: Any) -> None:
    for given, named in (
        ({"tls_server_mode": "enforcing"}, "needs tls.server.certPath"),
        ({"tls_server_need_client_auth": "require"}, "needs tls.server.certPath"),
        ({"tls_server_cert_path": certificate.cert}, "needs tls.server.keyPath"),
        ({"tls_server_need_client_auth": "perhaps"}, "none, optional, require"),
    ):
        with pytest.raises(ConfigError, match=named):
            TlsSettings(**given).server_tls()


@pytest.mark.parametrize("loop", LOOPS)
def test_daemons_check_those_that_they_call_unless_told_otherwise(
    loop: str, certificate: Any, other_certificate: Any
) -> None:
    """Those that share a certificate trust each other; Java's default is a switch."""

    async def main() -> None:
        server, addr = await serve(ServerTls(TlsMode.PERMISSIVE, server_context(certificate.cert, certificate.key)))

        async def called(**settings: Any) -> str | None:
            return (await ask(addr, TlsSettings(tls_enable=True, **settings).peer_tls())).remark

        same = {"tls_server_cert_path": certificate.cert, "tls_server_key_path": certificate.key}
        other = {"tls_server_cert_path": other_certificate.cert, "tls_server_key_path": other_certificate.key}
        assert await called(**same) == "tls"
        trusts = {"tls_client_trust_cert_path": certificate.cert}
        with pytest.raises(ConnectFailed, match=r"not for '127.0.0.1': .*, or set tls\.client\.checkHostname=false$"):
            await called(**other, **trusts)
        assert await called(**other, **trusts, tls_client_check_hostname=False) == "tls"
        assert await called(**same, **trusts) == "tls"  # the very certificate that it has itself
        assert await called(**other, tls_client_auth_server=False) == "tls"
        for settings in (other, {}, {"tls_client_trust_cert_path": other_certificate.cert}):
            with pytest.raises(ConnectFailed, match=r"not trusted .* with tls\.client\.trustCertPath$"):
                await called(**settings)
        await server.stop()

    run_on(loop, main())


@pytest.mark.parametrize("loop", LOOPS)
def test_each_failure_is_one_line_that_says_what_to_do(
    loop: str, certificate: Any, other_certificate: Any, tmp_path: Path
) -> None:
    old = make_certificate(tmp_path, "old", days=(-3, -1))
    named = make_certificate(tmp_path, "named", hosts=["broker.example"])

    def served(one: Any, **options: Any) -> ServerTls:
        return ServerTls(TlsMode.PERMISSIVE, server_context(one.cert, one.key, **options))

    def calls(ca: Any, own: Any = None, name: str | None = "localhost") -> PeerTls:
        chain = (own.cert, own.key) if own else (None, None)
        return TlsOptions(ca=ca.cert, cert=chain[0], key=chain[1], server_name=name).peer(SDK)

    async def said(tls: ServerTls | None, peer: PeerTls | None) -> str:
        if tls is None:  # another service
            other = await asyncio.start_server(_greet, "127.0.0.1", 0)
            addr = f"127.0.0.1:{other.sockets[0].getsockname()[1]}"
            with pytest.raises(ConnectFailed) as error:
                await ask(addr, peer)
            other.close()
        else:
            server, addr = await serve(tls)
            with pytest.raises((ConnectFailed, ConnectionLost)) as error:
                await ask(addr, peer)
            await server.stop()
        assert str(error.value).count(addr) == 1
        return str(error.value).partition(addr)[2]

    async def main() -> None:
        wants = served(certificate, trust=old.cert, client_auth="require")
        for tls, peer, words in (
            (served(certificate), calls(other_certificate), "not trusted (self-signed certificate): give the one that"),
            (served(old), calls(old), "its TLS certificate has expired: it has to be renewed there"),
            (served(named), calls(named), "not for 'localhost': call it by a name that the certificate has, or give"),
            (served(certificate), calls(certificate, name=None), "not for '127.0.0.1': call it by a name"),
            (
                ServerTls(TlsMode.DISABLED),
                calls(certificate),
                "ends the TLS handshake: it takes none there (tls, R",
            ),
            (None, calls(certificate), "it answers without TLS: this is a plain port, or another service"),
            (
                wants,
                calls(certificate),
                "it wants to see a TLS certificate that it trusts: give one with tls_cert",
            ),
            (wants, calls(certificate, named), "it does not trust our TLS certificate: give one with tls_cert_file"),
            (wants, calls(certificate, old), "it refuses our TLS certificate, which has expired: renew what tls_cert"),
            (
                ServerTls(TlsMode.ENFORCING, server_context(certificate.cert, certificate.key)),
                None,
                "closed by the other side before it answered anything: perhaps it takes TLS only (tls, ROCKETMQ_TLS)",
            ),
        ):
            assert words in await said(tls, peer)

    run_on(loop, main())


async def _greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(10)
    writer.write(b"SSH-2.0-another service\r\n")
    writer.close()
