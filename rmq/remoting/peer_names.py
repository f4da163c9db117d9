"""The name in a server's certificate, compared by daemons that may share one.

OpenSSL compares names for everybody else. It cannot leave out the comparison for one certificate: daemons that share
theirs show each other the very certificate that they have themselves, and it need not name any of their hosts.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Mapping
from typing import Any

__all__ = ["SharingContext", "names_host"]

#: X509_V_ERR_HOSTNAME_MISMATCH.
_MISMATCH = 62


def names_host(certificate: Mapping[str, Any], host: str) -> bool:
    """Whether a certificate is for a host (RFC 6125): its common name counts for nothing.

    :param certificate: of ``getpeercert()``. :param host: a name, or an address without brackets.
    """
    named = certificate.get("subjectAltName", ())
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return any(kind == "DNS" and _fits(name, host) for kind, name in named)
    return any(kind == "IP Address" and _address(name) == address for kind, name in named)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.strip())
    except ValueError:
        return None


def _fits(pattern: str, host: str) -> bool:
    """``*`` stands for a whole first label of a name with two more, and for nothing else."""
    pattern, host = pattern.lower(), host.lower()
    if pattern == host:
        return bool(host)
    star, _, rest = pattern.partition(".")
    label, _, domain = host.partition(".")
    return star == "*" and bool(label) and rest.count(".") > 0 and rest == domain


class _Checked(ssl.SSLObject):
    """A connection whose handshake ends with the comparison."""

    def do_handshake(self) -> None:
        super().do_handshake()
        context = self.context
        if isinstance(context, SharingContext):
            context.compare(self)


class SharingContext(ssl.SSLContext):
    """A client's settings: the server's certificate names the host that was called, or is the one of :attr:`own`."""

    #: The certificate that this daemon shows others, DER.
    own: bytes = b""
    sslobject_class = _Checked

    def compare(self, connection: ssl.SSLObject) -> None:
        """:raises ssl.SSLCertVerificationError: it is another one, for another host."""
        host = connection.server_hostname or ""
        if connection.getpeercert(binary_form=True) == self.own or names_host(connection.getpeercert() or {}, host):
            return
        error = ssl.SSLCertVerificationError(1, f"certificate verify failed: it is not valid for {host!r}")
        error.verify_code = _MISMATCH
        error.verify_message = f"Hostname mismatch, certificate is not valid for {host!r}"
        raise error
