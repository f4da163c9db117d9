"""The names in certificates: ours compares as OpenSSL does, and lets one certificate pass besides."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from rmq.protocol.errors import ConfigError
from rmq.remoting.certificates import client_context, server_context
from rmq.remoting.peer_names import SharingContext
from tests.support.certificates import make_certificate

CERTIFIED = (
    "broker.example", "BROKER.Example", "*.example.com", "*.example", "b*.example.com", "a.*.example.com", "*",
    "*.*.example.com", "127.0.0.1", "10.0.0.1", "fd00::1", "xn--bcher-kva.example",
)  # fmt: skip
CALLED = (
    "broker.example", "broker.EXAMPLE", "example", "example.com", "a.example.com", "b.example.com", "a.b.example.com",
    "xbroker.example", "broker.example.com", "127.0.0.1", "127.0.0.2", "10.0.0.1", "fd00::1", "fd00:0:0::1", "::1",
    "::ffff:10.0.0.1", "10.0.0.1.example.com", "xn--bcher-kva.example", "xn--bcher-kva.example.com", "localhost",
    "a.example.com.example.com", "broker", "broker.example.", "a.example.com.",
)  # fmt: skip


def handshake(client: ssl.SSLContext, server: ssl.SSLContext, host: str) -> str | None:
    """Why a client does not go on that has called ``host``; None: it does."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server, server_hostname=host)
    answering = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(3):
        for side in (asking, answering):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
    return None


@pytest.mark.parametrize("certified", CERTIFIED)
def test_names_are_compared_as_openssl_compares_them(certified: str, tmp_path: Path) -> None:
    made, own = make_certificate(tmp_path, "one", hosts=[certified]), make_certificate(tmp_path, "own")
    server = server_context(made.cert, made.key)
    ours = client_context(trust=made.cert, own=own.cert, check_host=True)
    theirs = client_context(trust=made.cert, check_host=True)
    assert isinstance(ours, SharingContext)
    assert not isinstance(theirs, SharingContext)
    for host in CALLED:
        found, expected = (handshake(context, server, host) for context in (ours, theirs))
        assert (found is None) is (expected is None), (host, found, expected)
        if expected is not None:
            assert found is not None
            assert "not valid for" in found


def test_the_common_name_names_nobody(tmp_path: Path) -> None:
    made, own = make_certificate(tmp_path, "broker.example", hosts=["other"]), make_certificate(tmp_path, "own")
    ours = client_context(trust=made.cert, own=own.cert, check_host=True)
    assert handshake(ours, server_context(made.cert, made.key), "broker.example") is not None


def test_who_shows_our_own_certificate_need_not_be_named_in_it(tmp_path: Path) -> None:
    own, other = (make_certificate(tmp_path, name, hosts=["nobody"]) for name in ("own", "other"))
    both = tmp_path / "both.pem"
    both.write_text(Path(own.cert).read_text() + Path(other.cert).read_text())
    for trust in (None, str(both)):  # both.pem as own, too: the first of a chain is meant
        ours = client_context(trust=trust, own=str(both), check_host=True)
        assert handshake(ours, server_context(own.cert, own.key), "10.0.0.1") is None
        assert handshake(ours, server_context(other.cert, other.key), "10.0.0.1") is not None
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("-----BEGIN CERTIFICATE-----\n")
    for path in (nothing, tmp_path / "none.pem"):
        with pytest.raises(ConfigError, match=path.name):
            client_context(own=str(path), check_host=True)


def test_an_expired_certificate_of_our_own_is_not_taken(tmp_path: Path) -> None:
    own = make_certificate(tmp_path, "own", days=(-3, -1))
    ours = client_context(own=own.cert, check_host=True)
    assert handshake(ours, server_context(own.cert, own.key), "localhost") == "certificate has expired"
