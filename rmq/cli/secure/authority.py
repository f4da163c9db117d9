"""Certificates: an authority of one's own, and what it issues. Needs the package ``cryptography`` (extra ``tls``).

Keys are ECDSA P-256 in PKCS #8: OpenSSL, Java 8 and Go read them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from rmq.cli.command import Refused

if TYPE_CHECKING:
    from cryptography import x509

__all__ = ["Issued", "check_host", "described", "issue", "make_authority", "need_cryptography"]

#: A machine whose clock is behind takes a new certificate all the same.
_BEFORE = timedelta(hours=1)
_LONGEST_NAME = 64


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key, PEM."""

    cert: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Described:
    """What matters of a certificate that is there."""

    name: str
    issuer: str
    hosts: tuple[str, ...]
    begins: datetime
    ends: datetime


def need_cryptography() -> None:
    """:raises Refused: the package is not installed."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise Refused("certificates are made with the package cryptography: pip install 'rmq[tls]'") from None


def check_host(text: str) -> str:
    """The name or address of a host, as certificates have it. :raises Refused: it is none."""
    bare = text.strip().strip("[]")
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        pass
    labels = bare.rstrip(".").split(".")
    for label in labels:
        plain = label.replace("-", "a").replace("*", "a") if label != "*" else "a"
        if not 0 < len(label) < 64 or not plain.isascii() or not plain.isalnum() or label[0] == "-" or label[-1] == "-":
            raise Refused(f"{text!r} is no host: a name or an address is expected, without a port")
    return bare.rstrip(".").lower()


def make_authority(name: str, now: datetime, days: int) -> Issued:
    """A certificate that issues others, and nothing else.

    :param now: with its time zone. :param days: for which it is valid.
    """
    from cryptography import x509

    key = _new_key()
    builder = (
        _begun(_named(name), _named(name), key.public_key(), now, now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
    )
    return Issued(_signed(builder, key), _pem(key))


def issue(
    authority: Issued,
    name: str,
    now: datetime,
    days: int,
    *,
    hosts: Sequence[str] = (),
    use: Literal["server", "client"],
    key: bytes | None = None,
) -> Issued:
    """A certificate of an authority; never valid longer than that.

    :param hosts: names and addresses of a server. :param use: a server's is one of a client, too: brokers call others.
    :param key: the private key, PEM; a new one when not given.
    :raises ValueError: the authority, or the key, cannot be used.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509.oid import ExtendedKeyUsageOID

    of = x509.load_pem_x509_certificate(authority.cert)
    signing: Any = load_pem_private_key(authority.key, None)
    of_key: Any = of.public_key()
    if signing.public_key() != of_key:
        raise ValueError("the key of the authority is not that of its certificate")
    own: Any = _new_key() if key is None else load_pem_private_key(key, None)
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if use == "server":
        purposes.insert(0, ExtendedKeyUsageOID.SERVER_AUTH)
    until = min(now + timedelta(days=days), of.not_valid_after_utc)
    builder = (
        _begun(_named(name), of.subject, own.public_key(), now, until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(of_key), critical=False)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_general(host) for host in hosts]), critical=False)
    return Issued(_signed(builder, signing), _pem(own))


def described(cert: bytes) -> Described:
    """What a certificate says; of a chain the first. :raises ValueError: it is none."""
    from cryptography import x509

    found = x509.load_pem_x509_certificate(cert)
    hosts: list[str] = []
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        pass
    else:
        hosts += names.get_values_for_type(x509.DNSName)
        hosts += [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    return Described(
        _common_name(found.subject),
        _common_name(found.issuer),
        tuple(hosts),
        found.not_valid_before_utc,
        found.not_valid_after_utc,
    )


def _common_name(name: x509.Name) -> str:
    from cryptography.x509.oid import NameOID

    found = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else name.rfc4514_string()


def _named(name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:_LONGEST_NAME])])


def _general(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _begun(subject: x509.Name, issuer: x509.Name, key: Any, now: datetime, until: datetime) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs, key_cert_sign=signs, crl_sign=signs,
        content_commitment=False, key_encipherment=False, data_encipherment=False, key_agreement=False,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _new_key() -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _pem(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    form = serialization.PrivateFormat.PKCS8
    made: bytes = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    return made


def _signed(builder: x509.CertificateBuilder, key: Any) -> bytes:
    from cryptography.hazmat.primitives import hashes, serialization

    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
