"""The TLS keys that every listening daemon has (protocol.md 6.4)."""

from __future__ import annotations

import ssl

from rmq.config.settings import Settings, setting
from rmq.protocol.errors import ConfigError
from rmq.remoting.tls import CLIENT_AUTH, ServerTls, TlsMode, client_context, server_context

__all__ = ["TlsSettings"]


class TlsSettings(Settings):
    """Base of a daemon's settings: which of its connections may or must speak TLS, and with which certificate."""

    tls_server_mode: str = setting(
        "permissive", key="tls.server.mode", doc="TLS on the port: disabled, permissive or enforcing"
    )
    tls_server_cert_path: str = setting(
        "", key="tls.server.certPath", unit="path", doc="Certificate chain, PEM; without one TLS is refused."
    )
    tls_server_key_path: str = setting("", key="tls.server.keyPath", unit="path", doc="Private key, PEM.")
    tls_server_key_password: str = setting(
        "", key="tls.server.keyPassword", secret=True, doc="Password of the private key."
    )
    tls_server_trust_cert_path: str = setting(
        "", key="tls.server.trustCertPath", unit="path", doc="Certificates that clients are checked against, PEM."
    )
    tls_server_need_client_auth: str = setting(
        "none", key="tls.server.need.client.auth", doc="Client certificates: none, optional or require."
    )

    def server_tls(self) -> ServerTls:
        """What the listener does with TLS.

        :raises ConfigError: TLS is enforced and there is no certificate, or a file cannot be used.
        """
        try:
            mode = TlsMode.named(self.tls_server_mode)
        except ConfigError as error:
            raise self.refused("tls.server.mode", str(error)) from None
        if self.tls_server_need_client_auth not in CLIENT_AUTH:
            raise self.refused("tls.server.need.client.auth", f"{', '.join(CLIENT_AUTH)} is expected")
        if not self.tls_server_cert_path:
            if mode is TlsMode.ENFORCING:
                raise self.refused("tls.server.mode", "needs tls.server.certPath and tls.server.keyPath")
            return ServerTls(mode)
        if not self.tls_server_key_path:
            raise self.refused("tls.server.certPath", "needs tls.server.keyPath, the private key of that certificate")
        return ServerTls(
            mode,
            server_context(
                self.tls_server_cert_path,
                self.tls_server_key_path,
                password=self.tls_server_key_password or None,
                trust=self.tls_server_trust_cert_path or None,
                client_auth=self.tls_server_need_client_auth,
            ),
        )

    def peer_tls(self) -> ssl.SSLContext | None:
        """How this daemon calls those of its kind, which are set up alike; None unless TLS is enforced.

        The other side is checked when there are certificates to check it against, and is shown the daemon's own.

        :raises ConfigError: a file cannot be used.
        """
        if self.server_tls().mode is not TlsMode.ENFORCING:
            return None
        return client_context(
            verify=bool(self.tls_server_trust_cert_path),
            trust=self.tls_server_trust_cert_path or None,
            cert=self.tls_server_cert_path,
            key=self.tls_server_key_path,
            password=self.tls_server_key_password or None,
        )
