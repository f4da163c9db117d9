"""Contexts of TLS, made of files of certificates and keys; an error says which file, and what to do."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Sequence

from rmq.protocol.errors import ConfigError
from rmq.remoting.peer_names import SharingContext
from rmq.runtime.aside import logger
from rmq.runtime.named_file import read_named

__all__ = ["CLIENT_AUTH", "Renewed", "client_context", "server_context"]

log = logger(__name__)

#: ``tls.server.need.client.auth``: what is asked of clients.
CLIENT_AUTH = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}
#: Bytes of a file of certificates that are looked at for what is in it.
_LARGEST_PEM = 1 << 20
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


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
