"""TLS towards those that are called: whose certificate is taken, which one is shown, and in words why it failed.

Verifying is the default: the certificate has to lead to one that is trusted, and to name the host that was called.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from rmq.protocol.errors import ConfigError
from rmq.remoting.certificates import Renewed, client_context
from rmq.runtime.named_file import read_named

__all__ = ["DAEMON", "SDK", "SPARK", "OptionNames", "PeerTls", "TlsOptions"]


@dataclass(frozen=True, slots=True)
class OptionNames:
    """What the options are called where they are given, for errors that say what to change."""

    on: str
    ca: str
    chain: str
    password: str
    #: What to give where certificates name other hosts; empty: nothing does it there.
    name: str
    #: What to do instead.
    unnamed: str = ""


SDK = OptionNames(
    "tls, ROCKETMQ_TLS",
    "tls_ca_file or ROCKETMQ_TLS_CA_FILE",
    "tls_cert_file and tls_key_file",
    "tls_key_password or tls_key_password_file",
    "tls_server_name",
)
SPARK = OptionNames("useTLS", "tlsCaFile", "tlsCertFile and tlsKeyFile", "tlsKeyPassword", "tlsServerName")
DAEMON = OptionNames(
    "tls.enable",
    "tls.client.trustCertPath",
    "tls.client.certPath and tls.client.keyPath",
    "tls.client.keyPassword",
    "",
    "set tls.client.checkHostname=false",
)

#: X509_V_ERR_*: what OpenSSL finds wrong with a certificate.
_NOT_YET, _EXPIRED = 9, 10
_NAMES = frozenset({62, 63, 64})
_NO_PURPOSE = 26
#: Words of OpenSSL's alerts: the other side does not take our certificate, or wants one.
_OURS_MISSING = ("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE")
_OURS_REFUSED = (
    "UNKNOWN_CA",
    "BAD_CERTIFICATE",
    "CERTIFICATE_UNKNOWN",
    "UNSUPPORTED_CERTIFICATE",
    "CERTIFICATE_REVOKED",
)
_NO_TLS = ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")


class PeerTls:
    """How a client speaks TLS.

    :param context: what each connection is opened with, or what gives it: files that change count with the next one.
    :param server_name: the host that certificates have to name, whatever address was called; None: the one called.
    :param names: of the options.
    """

    __slots__ = ("_context", "_names", "server_name")

    def __init__(
        self,
        context: ssl.SSLContext | Callable[[], ssl.SSLContext],
        server_name: str | None = None,
        names: OptionNames = SDK,
    ) -> None:
        self._context = context
        self._names = names
        self.server_name = server_name

    @property
    def context(self) -> ssl.SSLContext:
        """What the next connection is opened with."""
        return self._context() if callable(self._context) else self._context

    def fault(self, error: BaseException, *, connecting: bool = False) -> str | None:
        """What was wrong with TLS and what to do, in one line; None: the error is about something else.

        :param error: what a connection ended with. :param connecting: what opening it ended with.
        """
        names = self._names
        if isinstance(error, ssl.SSLCertVerificationError):
            return _distrust(error, names)
        if connecting and isinstance(error, ConnectionResetError | ConnectionAbortedError | ssl.SSLEOFError):
            return f"it ends the TLS handshake: it takes none there ({names.on}), or not ours; its log says why"
        if not isinstance(error, ssl.SSLError):
            return None
        reason = error.reason or ""
        if "CERTIFICATE_EXPIRED" in reason:
            return f"it refuses our TLS certificate, which has expired: renew what {names.chain} name"
        if any(word in reason for word in _OURS_MISSING):
            return f"it wants to see a TLS certificate that it trusts: give one with {names.chain}"
        if any(word in reason for word in _OURS_REFUSED):
            return f"it does not trust our TLS certificate: give one with {names.chain} that it knows the issuer of"
        if any(word in reason for word in _NO_TLS):
            return f"it answers without TLS: this is a plain port, or another service ({names.on} is set)"
        return f"TLS: {reason.replace('_', ' ').lower() or error}"


def _distrust(error: ssl.SSLCertVerificationError, names: OptionNames) -> str:
    why = (error.verify_message or str(error)).rstrip(".")
    if error.verify_code == _EXPIRED:
        return "its TLS certificate has expired: it has to be renewed there (or this machine's clock is wrong)"
    if error.verify_code == _NOT_YET:
        return "its TLS certificate is not valid yet: this machine's clock, or the one that made it, is wrong"
    if error.verify_code in _NAMES:
        called = why.partition("not valid for ")[2] or "what was called"
        else_ = f"give the name that it has as {names.name}" if names.name else names.unnamed
        return f"its TLS certificate is not for {called}: call it by a name that the certificate has, or {else_}"
    if error.verify_code == _NO_PURPOSE:
        return f"its TLS certificate is none of a server ({why}): it has to be made for servers"
    return f"its TLS certificate is not trusted ({why}): give the one that issued it with {names.ca}"


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """What users say about TLS; the password is in no text of it.

    :param ca: certificates to trust, PEM; None: those of this machine.
    :param cert: certificate chain to show. :param key: its private key.
    :param server_name: see :class:`PeerTls`. :param check_host: the certificate has to name who was called.
    :param verify: False takes any certificate, from whomever.
    """

    verify: bool = True
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    password: str | None = field(default=None, repr=False)
    password_file: str | None = None
    server_name: str | None = None
    check_host: bool = True

    def check(self, names: OptionNames) -> None:
        """:raises ConfigError: what does not fit together."""
        if (self.cert is None) != (self.key is None):
            raise ConfigError(f"{names.chain} go together: give both")
        if self.key is None and (self.password is not None or self.password_file is not None):
            raise ConfigError(f"{names.password}: there is no key that it is for: give {names.chain}")
        if self.password is not None and self.password_file is not None:
            raise ConfigError(f"{names.password}: give one of them")
        if not self.verify and (self.ca is not None or self.server_name is not None):
            raise ConfigError(f"{names.ca} and {names.name} do nothing where certificates are not verified: give one")

    def peer(self, names: OptionNames) -> PeerTls:
        """Read the files; they are read again when they change.

        :raises ConfigError: one of them cannot be used, or options do not fit together.
        """
        self.check(names)
        paths = [path for path in (self.ca, self.cert, self.key, self.password_file) if path is not None]
        return PeerTls(
            Renewed(lambda: self._make(names), paths) if paths else self._make(names), self.server_name, names
        )

    def _make(self, names: OptionNames) -> ssl.SSLContext:
        return client_context(
            verify=self.verify,
            trust=self.ca,
            cert=self.cert,
            key=self.key,
            password=self.password if self.password_file is None else _first_line(self.password_file),
            check_host=self.check_host,
            password_option=names.password,
        )


def _first_line(path: str) -> str:
    """The password in a file: its first line. :raises ConfigError: it cannot be read, or has none."""
    try:
        found = read_named(path, 4_096).decode("utf-8-sig").partition("\n")[0].rstrip("\r")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(f"{path}: the password of a TLS key cannot be read: {why}") from None
    if not found:
        raise ConfigError(f"{path}: the password of a TLS key is expected in its first line, which is empty")
    return found
