"""As whom a client comes, and how: the account that it signs its requests with, and TLS."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

from rmq.auth.client_file import ClientFile, read_client_file
from rmq.auth.credentials import Credentials
from rmq.client.settings import ClientSettings
from rmq.client.tls import tls_of
from rmq.remoting.peer_tls import SDK, PeerTls, TlsOptions
from rmq.runtime.aside import logger
from rmq.runtime.world import Files

__all__ = ["Access", "access_of"]

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Access:
    """Clients that share connections have it in common.

    :param account: None: requests are not signed. :param tls: None: connections go without.
    """

    account: Credentials | None = None
    tls: ssl.SSLContext | TlsOptions | None = field(default=None, repr=False)

    def peer(self) -> PeerTls | None:
        """How connections are opened; None: without TLS. Says aloud when servers are not verified.

        :raises ConfigError: a file of certificates cannot be used.
        """
        if not isinstance(self.tls, TlsOptions):
            return None if self.tls is None else PeerTls(self.tls, names=SDK)
        if not self.tls.verify:
            log.warning(
                "TLS without verification (tls_verify=False): whoever is in between can read and change what goes to "
                "the servers; tls_ca_file names whom to trust"
            )
        return self.tls.peer(SDK)


def access_of(settings: ClientSettings, files: Files) -> Access:
    """What the settings say, or the file that they name.

    :raises ConfigError: the file cannot be read, or lacks something.
    """
    path = settings.credentials_file
    found = ClientFile(None, {}) if path is None else read_client_file(files, path)
    account = found.account
    if settings.access_key is not None and settings.secret_key is not None:
        account = Credentials(settings.access_key, settings.secret_key, settings.security_token)
    return Access(account, tls_of(settings, found.tls))
