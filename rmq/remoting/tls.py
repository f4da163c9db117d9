"""TLS over an open connection, by memory buffers: it works on every loop and after bytes were read.

A server looks at the first byte of a connection: 0x16 begins a TLS handshake, a plain frame begins with 0x00
(protocol.md 6.4). :class:`TlsPipe` then sits between the loop's transport and the connection.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Sequence
from enum import Enum
from typing import cast

from rmq.protocol.errors import ConfigError, ProtocolError
from rmq.remoting.peer_names import SharingContext
from rmq.runtime.aside import logger
from rmq.runtime.named_file import read_named
from rmq.runtime.sudden_end import end_in_order

__all__ = [
    "CLIENT_AUTH",
    "Renewed",
    "ServerTls",
    "TlsMode",
    "TlsPipe",
    "TlsRefused",
    "client_context",
    "server_context",
]

log = logger(__name__)

#: First byte of a TLS record of type handshake.
HANDSHAKE = 0x16
#: ``tls.server.need.client.auth``: what is asked of clients.
CLIENT_AUTH = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}
_READ_SIZE = 1 << 18
#: Bytes of a file of certificates that are looked at for what is in it.
_LARGEST_PEM = 1 << 20
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


class TlsMode(Enum):
    """What a server accepts (Java: TlsMode)."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"

    @classmethod
    def named(cls, text: str) -> TlsMode:
        """:raises ConfigError: no such mode."""
        try:
            return cls(text.strip().lower())
        except ValueError:
            raise ConfigError("disabled, permissive or enforcing is expected") from None


class TlsRefused(ProtocolError):
    """A connection that does not begin as it has to: its first bytes are, or are not, a handshake."""


class ServerTls:
    """How a server treats TLS; without a context a handshake is refused.

    :param context: what handshakes are done with, or what gives it for each of them.
    """

    __slots__ = ("_context", "mode")

    def __init__(
        self,
        mode: TlsMode = TlsMode.PERMISSIVE,
        context: ssl.SSLContext | Callable[[], ssl.SSLContext | None] | None = None,
    ) -> None:
        self.mode = mode
        self._context = context

    @property
    def context(self) -> ssl.SSLContext | None:
        """What the next handshake is done with."""
        return self._context() if callable(self._context) else self._context

    def sense(
        self,
        data: bytes,
        transport: asyncio.BaseTransport,
        inner: asyncio.Protocol,
        failed: Callable[[str], None],
        *,
        advice: str = "",
    ) -> TlsPipe | None:
        """What carries a connection whose first bytes these are: a pipe where they begin a handshake.

        The connection writes through the pipe from now on, and hands ``data`` to it; clear bytes (None) are its own.

        :param transport: the loop's; its protocol is the pipe from now on.
        :param inner: the connection: takes the clear bytes.
        :param failed: as of :class:`TlsPipe`.
        :param advice: what to do at the other end, for who does not speak TLS and has to.
        :raises TlsRefused: they ought to begin one, or ought not to.
        """
        if data[0] != HANDSHAKE:
            if self.mode is TlsMode.ENFORCING:
                raise TlsRefused("it does not speak TLS, which is enforced here" + (advice and f": {advice}"))
            return None
        if self.mode is TlsMode.DISABLED:
            raise TlsRefused("it speaks TLS, which is disabled here")
        if (context := self.context) is None:
            raise TlsRefused("it speaks TLS, but no certificate is configured here")
        pipe = TlsPipe(transport, inner, context, failed)
        cast(asyncio.Transport, transport).set_protocol(pipe)
        return pipe


class Renewed:
    """The context of certificate files, made anew when they change: connections there are keep theirs.

    A change that cannot be used changes nothing, and is told once.

    :param make: reads the files. :param paths: of them.
    :raises ConfigError: they cannot be used now.
    """

    def __init__(self, make: Callable[[], ssl.SSLContext], paths: Sequence[str]) -> None:
        self._make = make
        self._paths = [path for path in paths if path]
        self._seen = self._look()
        self._context = make()

    def __call__(self) -> ssl.SSLContext:
        if (seen := self._look()) != self._seen:
            self._seen = seen
            try:
                self._context = self._make()
                log.info("TLS: the certificate of %s is in force", self._paths[0])
            except ConfigError as error:
                log.error("%s: the certificate read before stays in force", error)
        return self._context

    def _look(self) -> list[tuple[int, ...] | None]:
        """What tells that a file is another one, or may be read by others; some system calls for each handshake."""
        seen: list[tuple[int, ...] | None] = []
        for path in self._paths:
            try:
                one = os.stat(path)
            except OSError:
                seen.append(None)
            else:
                seen.append((one.st_ino, one.st_size, one.st_mtime_ns, one.st_mode, one.st_uid, one.st_gid))
        return seen


def server_context(
    cert: str, key: str, *, password: str | None = None, trust: str | None = None, client_auth: str = "none"
) -> ssl.SSLContext:
    """A server's TLS settings.

    :param cert: path of the certificate chain, PEM.
    :param key: path of the private key, PEM.
    :param trust: path of the certificates that clients are checked against, PEM.
    :param client_auth: one of :data:`CLIENT_AUTH`.
    :raises ConfigError: a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # a client would have us do the dear part of a handshake as it likes
    _load_chain(context, cert, key, password, "tls.server.keyPassword")
    if trust:
        _load_trust(context, trust)
    context.verify_mode = CLIENT_AUTH[client_auth]
    return context


def client_context(
    *,
    verify: bool = True,
    trust: str | None = None,
    own: str | None = None,
    cert: str | None = None,
    key: str | None = None,
    password: str | None = None,
    check_host: bool = False,
    password_option: str = "tls.client.keyPassword",
) -> ssl.SSLContext:
    """A client's TLS settings.

    :param verify: check the server's certificate.
    :param trust: path of the certificates to check against, PEM; the system's when not given.
    :param own: path of a certificate that servers share with this client: it is taken besides the system's, as it is
        (it needs no issuer), and need not name the host.
    :param check_host: the certificate has to name the host that is called (Java's clients never ask).
    :param password_option: what the key's password is given with, for errors.
    :raises ConfigError: a file cannot be used.
    """
    shared = _first_certificate(own) if own and verify and check_host else None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if shared is None else SharingContext(ssl.PROTOCOL_TLS_CLIENT)
    if isinstance(context, SharingContext) and shared is not None:
        context.own = shared
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = verify and check_host and shared is None
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    if verify:
        if trust:
            _load_trust(context, trust)
        else:
            context.load_default_certs()
            if own:
                _load_trust(context, own)
                context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if cert and key:
        _load_chain(context, cert, key, password, password_option)
    return context


def _load_chain(context: ssl.SSLContext, cert: str, key: str, password: str | None, option: str) -> None:
    chain, private = _pem(cert), _pem(key)
    try:
        context.load_cert_chain(cert, key, password or "")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigError(f"TLS: {_unfit(cert, chain, key, private, password, option, error)}") from None


def _unfit(
    cert: str, chain: bytes, key: str, private: bytes, password: str | None, option: str, error: Exception
) -> str:
    """Why OpenSSL does not take them; it says no more than "PEM lib" of most."""
    if b"BEGIN CERTIFICATE" not in chain:
        return f"{cert} holds no certificate in PEM form: give the certificate chain"
    if b"PRIVATE KEY" not in private:
        return f"{key} holds no private key in PEM form: give the key of {cert}"
    if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
        return f"the key {key} is not the one of the certificate {cert}: give the key that it was made with"
    if b"ENCRYPTED" in private:
        lacks = "another password is needed" if password else "its password is missing"
        return f"the key {key} is encrypted: {lacks} ({option})"
    return f"{cert} with {key} cannot be used: {getattr(error, 'reason', None) or 'they are damaged'}"


def _load_trust(context: ssl.SSLContext, trust: str) -> None:
    _pem(trust)
    try:
        context.load_verify_locations(trust)
    except OSError as error:
        reason = getattr(error, "reason", None)
        why = "it holds no certificate in PEM form" if reason in (None, "NO_CERTIFICATE_OR_CRL_FOUND") else reason
        raise ConfigError(f"TLS: {trust} cannot be used as certificates to trust: {why}") from None


def _first_certificate(path: str) -> bytes:
    """The one that a chain is for, DER. :raises ConfigError: there is none."""
    text = _pem(path).decode("latin-1")
    end = text.find(_END)
    begin = text.rfind(_BEGIN, 0, max(end, 0))
    try:
        if begin < 0:
            raise ValueError
        return ssl.PEM_cert_to_DER_cert(text[begin : end + len(_END)])
    except ValueError:
        raise ConfigError(f"TLS: {path} holds no certificate in PEM form: give the certificate chain") from None


def _pem(path: str) -> bytes:
    """What a file holds: OpenSSL, which reads it after us, does not say which of two is missing, and has no bounds.

    :raises ConfigError: it cannot be read.
    """
    try:
        return read_named(path, _LARGEST_PEM, plain=True)
    except OSError as error:
        raise ConfigError(f"TLS: {path} cannot be read: {error.strerror}") from None


class TlsPipe(asyncio.Protocol):
    """The loop's protocol and the connection's transport at once.

    :param transport: the loop's transport; its protocol is to be set to this pipe.
    :param inner: takes the clear bytes.
    :param failed: told why, when a handshake or a record is wrong; the transport is closed then.
    """

    __slots__ = ("_failed", "_inner", "_object", "_out", "_ready", "_received", "_transport", "_waiting")

    def __init__(
        self,
        transport: asyncio.BaseTransport,
        inner: asyncio.Protocol,
        context: ssl.SSLContext,
        failed: Callable[[str], None],
    ) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._inner = inner
        self._failed = failed
        self._received = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._received, self._out, server_side=True)
        self._ready = False
        self._waiting: list[bytes] = []

    @property
    def ready(self) -> bool:
        """The handshake is done."""
        return self._ready

    # -- protocol side

    def data_received(self, data: bytes) -> None:
        self._received.write(data)
        try:
            if not self._ready and not self._handshake():
                return
            parts = []
            ended = False
            while True:
                try:
                    part = self._object.read(_READ_SIZE)
                except ssl.SSLWantReadError:
                    break
                if not part:
                    ended = True
                    break
                parts.append(part)
            self._push()
        except ssl.SSLZeroReturnError:
            self.close()
            return
        except ssl.SSLError as error:
            self._push()  # the alert
            self._failed(f"TLS: {error.reason or error}")
            end_in_order(self._transport)
            self._transport.close()
            return
        if parts:
            self._inner.data_received(parts[0] if len(parts) == 1 else b"".join(parts))
        if ended:
            self.close()

    def _handshake(self) -> bool:
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            self._push()
            return False
        self._ready = True
        self._push()
        waiting, self._waiting = self._waiting, []
        for data in waiting:
            self.write(data)
        return True

    def _push(self) -> None:
        data = self._out.read()
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def eof_received(self) -> bool | None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)

    # -- transport side

    def write(self, data: bytes) -> None:
        if not self._ready:
            self._waiting.append(data)
            return
        done = self._object.write(data)
        if done < len(data):  # a record at a time, as some builds of OpenSSL do
            view = memoryview(data)
            while done < len(data):
                done += self._object.write(view[done:])
        self._push()

    def close(self) -> None:
        self.farewell().close()

    def farewell(self) -> asyncio.Transport:
        """Say that nothing more comes; the loop's transport, which is to be closed."""
        if self._ready and not self._transport.is_closing():
            try:
                self._object.unwrap()  # writes our close_notify; the other side's is not awaited
            except ssl.SSLError:
                pass
            self._push()
        return self._transport

    def abort(self) -> None:
        end_in_order(self._transport)
        self._transport.abort()

    def get_extra_info(self, name: str) -> object:
        """What is known of the connection below."""
        return self._transport.get_extra_info(name)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()
