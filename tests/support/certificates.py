"""Certificates made for a test."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Certificate", "make_certificate"]


@dataclass(frozen=True)
class Certificate:
    cert: str
    key: str


def make_certificate(
    folder: Path,
    name: str,
    *,
    hosts: Sequence[str] = ("localhost",),
    days: tuple[int, int] = (-1, 2),
    password: str | None = None,
) -> Certificate:
    """A self-signed one.

    :param name: of its files. :param hosts: names and addresses that it is for.
    :param days: from and until when it is valid, from today.
    :param password: opens its key.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(days=days[0]))
        .not_valid_after(now + datetime.timedelta(days=days[1]))
        .add_extension(x509.SubjectAlternativeName([_named(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = Certificate(str(folder / f"{name}.pem"), str(folder / f"{name}.key"))
    Path(paths.cert).write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    locked = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    Path(paths.key).write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
    )
    return paths


def _named(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
