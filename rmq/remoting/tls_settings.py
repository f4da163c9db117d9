"""The TLS keys that every listening daemon has (protocol.md 6.4)."""

from __future__ import annotations

import os
import ssl

from rmq.config.settings import Settings, setting
from rmq.config.sources import Given, read_file
from rmq.protocol.errors import ConfigError
from rmq.remoting.certificates import CLIENT_AUTH, Renewed, client_context, server_context
from rmq.remoting.ephemeral import MadeCertificate
from rmq.remoting.peer_tls import DAEMON, PeerTls
from rmq.remoting.tls import ServerTls, TlsMode
from rmq.runtime.aside import logger

__all__ = ["TlsSettings"]

log = logger(__name__)

_CONFIG_FILE = "/etc/rocketmq/tls.properties"
#: Keys of Java's that mean nothing here: a certificate that is asked for is always checked.
_IN_FORCE = frozenset({"tls.server.authClient"})


class TlsSettings(Settings):
    """Base of a daemon's settings: which of its connections may or must speak TLS, and with which certificate."""

    tls_server_mode: str = setting(
        "permissive", key="tls.server.mode", doc="TLS on the port: disabled, permissive or enforcing"
    )
    tls_test_mode_enable: bool = setting(
        True,
        key="tls.test.mode.enable",
        doc="Without a certificate clients that speak TLS get one made for this run, which nobody can check (needs the "
        "extra tls); false: TLS is refused. Enforcing TLS needs a certificate anyway.",
    )
    tls_server_cert_path: str = setting(
        "", key="tls.server.certPath", unit="path", doc="Certificate chain, PEM; read again when it changes."
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
    tls_enable: bool = setting(
        False,
        key="tls.enable",
        doc="Speak TLS with name servers and brokers that this daemon calls; with brokers always where it is enforced.",
    )
    tls_client_auth_server: bool = setting(
        True,
        key="tls.client.authServer",
        doc="Check the certificates of those this daemon calls. false, Java's default: whoever answers is trusted, "
        "unless there are certificates to check against.",
    )
    tls_client_trust_cert_path: str = setting(
        "",
        key="tls.client.trustCertPath",
        unit="path",
        doc="Certificates that those are checked against, PEM; by default those of tls.server.trustCertPath, else the "
        "machine's and tls.server.certPath: daemons that share a certificate trust each other.",
    )
    tls_client_check_hostname: bool = setting(
        True,
        key="tls.client.checkHostname",
        doc="Their certificates have to name the host that is called, unless it is the one of tls.server.certPath: "
        "daemons may share one. false, Java's way: a trusted certificate of any host is taken.",
    )
    tls_client_cert_path: str = setting(
        "",
        key="tls.client.certPath",
        unit="path",
        doc="Certificate chain that those are shown, PEM; by default the server's own.",
    )
    tls_client_key_path: str = setting("", key="tls.client.keyPath", unit="path", doc="Private key of it, PEM.")
    tls_client_key_password: str = setting(
        "", key="tls.client.keyPassword", secret=True, doc="Password of that private key."
    )
    tls_config_file: str = setting(
        _CONFIG_FILE,
        key="tls.config.file",
        unit="path",
        doc="A .properties file of keys that begin with tls., which go before all others; this one need not be there.",
    )

    def named_elsewhere(self) -> list[Given]:
        """The keys of ``tls.config.file``.

        :raises ConfigError: it was named, and cannot be read.
        """
        path = self.tls_config_file
        if not path or (path == _CONFIG_FILE and not os.path.exists(path)):
            return []
        given = read_file(path)
        foreign = sorted({item.key for item in given if not item.key.startswith("tls.")})
        if foreign:
            raise ConfigError(f"{path}: {foreign[0]} is no key of TLS: those begin with tls.")
        if any(item.key in _IN_FORCE for item in given):
            log.info("%s: %s: certificates that are asked for are always checked", path, ", ".join(sorted(_IN_FORCE)))
        return [item for item in given if item.key not in _IN_FORCE]

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
            asks = self.tls_server_need_client_auth != "none"
            if asks and mode is not TlsMode.DISABLED:
                raise self.refused("tls.server.need.client.auth", "needs tls.server.certPath and tls.server.keyPath")
            return ServerTls(mode, MadeCertificate(type(self).__name__) if self.tls_test_mode_enable else None)
        if not self.tls_server_key_path:
            raise self.refused("tls.server.certPath", "needs tls.server.keyPath, the private key of that certificate")
        files = self.tls_server_cert_path, self.tls_server_key_path, self.tls_server_trust_cert_path
        return ServerTls(mode, Renewed(self._server_context, files))

    def _server_context(self) -> ssl.SSLContext:
        return server_context(
            self.tls_server_cert_path,
            self.tls_server_key_path,
            password=self.tls_server_key_password or None,
            trust=self.tls_server_trust_cert_path or None,
            client_auth=self.tls_server_need_client_auth,
        )

    def peer_tls(self) -> PeerTls | None:
        """How this daemon calls others, which are set up alike; None unless TLS is enforced or ``tls.enable`` is set.

        The other side is checked, and is shown the daemon's own certificate. Files that change count with the next
        connection.

        :raises ConfigError: a file cannot be used.
        """
        if not self.tls_enable and self.server_tls().mode is not TlsMode.ENFORCING:
            return None
        trust = self.tls_client_trust_cert_path or self.tls_server_trust_cert_path
        own = self.tls_client_cert_path, self.tls_client_key_path, self.tls_client_key_password
        if not self.tls_client_cert_path:
            own = self.tls_server_cert_path, self.tls_server_key_path, self.tls_server_key_password
        cert, key, password = own

        def make() -> ssl.SSLContext:
            return client_context(
                verify=bool(trust) or self.tls_client_auth_server,
                trust=trust or None,
                own=self.tls_server_cert_path or None,
                cert=cert,
                key=key,
                password=password or None,
                check_host=self.tls_client_check_hostname,
            )

        paths = [path for path in dict.fromkeys((trust, cert, key, self.tls_server_cert_path)) if path]
        return PeerTls(Renewed(make, paths) if paths else make(), names=DAEMON)
