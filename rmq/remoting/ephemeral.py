"""A certificate for one run of a server that was given none (Java: ``tls.test.mode.enable``).

It lets clients speak TLS that trust any server, as Java's do unless told otherwise: what goes over the wire is hidden,
who the server is stays unknown.
"""

from __future__ import annotations

import datetime
import os
import ssl
import tempfile

from rmq.protocol.errors import ConfigError
from rmq.remoting.certificates import server_context
from rmq.runtime.aside import logger

__all__ = ["MadeCertificate"]

log = logger(__name__)

_NAME = "made for this run"
_FROM, _UNTIL = datetime.datetime(2020, 1, 1), datetime.datetime(2120, 1, 1)


class MadeCertificate:
    """Makes it when the first client speaks TLS, and gives it again to the others.

    :param who: the server, for the log.
    """

    def __init__(self, who: str) -> None:
        self._who = who
        self._made: ssl.SSLContext | None = None
        self._tried = False

    def __call__(self) -> ssl.SSLContext | None:
        """The context with it; None where the package that makes certificates is missing."""
        if not self._tried:
            self._tried = True
            self._made = self._make()
        return self._made

    def _make(self) -> ssl.SSLContext | None:
        try:
            chain, key = _self_signed()
        except ImportError:
            log.warning(
                "%s: a client speaks TLS, and there is no certificate: set tls.server.certPath and tls.server.keyPath, "
                "or install rmq[tls], which makes one for tests",
                self._who,
            )
            return None
        try:
            context = _context(chain, key)
        except (OSError, ConfigError) as error:
            log.error(
                "%s: a client speaks TLS, and no certificate can be made for it: %s: set tls.server.certPath and "
                "tls.server.keyPath, or TMPDIR to a folder that can be written",
                self._who, error,
            )  # fmt: skip
            return None
        log.warning(
            "%s: a client speaks TLS: it gets a certificate made for this run, which nobody can check; set "
            "tls.server.certPath and tls.server.keyPath (tls.test.mode.enable=false refuses it)",
            self._who,
        )
        return context


def _context(chain: bytes, key: bytes) -> ssl.SSLContext:
    """OpenSSL reads a key from files alone.

    :raises OSError: there is no folder for them. :raises ConfigError: they cannot be used.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem")
        for path, data in zip(paths, (chain, key), strict=True):
            with open(path, "xb") as file:
                file.write(data)
        return server_context(*paths)


def _self_signed() -> tuple[bytes, bytes]:
    """Certificate and private key, PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_FROM)
        .not_valid_after(_UNTIL)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM), private
