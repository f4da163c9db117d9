"""The first bytes of a connection say whether it speaks TLS, and the mode whether it has to or may."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from rmq.remoting.tls import ServerTls, TlsMode, TlsPipe, TlsRefused

HELLO, CLEAR = b"\x16\x03\x01", b"\x00\x00\x00\x64"


class Transport(asyncio.Transport):
    """Keeps its protocol."""

    protocol: asyncio.BaseProtocol | None = None

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol


def made() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


def sensed(tls: ServerTls, data: bytes, advice: str = "") -> bool:
    """Whether a pipe carries the connection; the transport then has it as its protocol."""
    transport = Transport()
    pipe = tls.sense(data, transport, asyncio.Protocol(), pytest.fail, advice=advice)
    assert transport.protocol is pipe
    assert pipe is None or isinstance(pipe, TlsPipe)
    return pipe is not None


def test_a_permissive_server_takes_both() -> None:
    assert sensed(ServerTls(TlsMode.PERMISSIVE, made), HELLO)
    assert not sensed(ServerTls(TlsMode.PERMISSIVE, made), CLEAR)


def test_who_does_not_speak_tls_where_it_is_enforced_is_told_what_to_do() -> None:
    tls = ServerTls(TlsMode.ENFORCING, made)
    assert sensed(tls, HELLO)
    with pytest.raises(TlsRefused, match=r"^it does not speak TLS, which is enforced here$"):
        sensed(tls, CLEAR)
    with pytest.raises(TlsRefused, match=r"^it does not speak TLS, which is enforced here: set it there, too$"):
        sensed(tls, CLEAR, "set it there, too")


def test_no_certificate_is_made_for_a_handshake_where_tls_is_disabled() -> None:
    tls = ServerTls(TlsMode.DISABLED, lambda: pytest.fail("asked for"))
    assert not sensed(tls, CLEAR)
    with pytest.raises(TlsRefused, match=r"^it speaks TLS, which is disabled here$"):
        sensed(tls, HELLO)


def test_a_handshake_without_a_certificate_is_refused() -> None:
    assert not sensed(ServerTls(), CLEAR)
    with pytest.raises(TlsRefused, match=r"^it speaks TLS, but no certificate is configured here$"):
        sensed(ServerTls(), HELLO)
