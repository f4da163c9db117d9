"""The account that a client signs its requests with, where brokers and name servers have access control."""

from __future__ import annotations

from rmq.auth.credentials import Credentials, read_credentials
from rmq.client.settings import ClientSettings
from rmq.runtime.world import Files

__all__ = ["account_of"]


def account_of(settings: ClientSettings, files: Files) -> Credentials | None:
    """What the settings say, or the file that they name; None: requests are not signed.

    :raises ConfigError: the file cannot be read, or lacks something.
    """
    if settings.access_key is not None and settings.secret_key is not None:
        return Credentials(settings.access_key, settings.secret_key, settings.security_token)
    return None if settings.credentials_file is None else read_credentials(files, settings.credentials_file)
