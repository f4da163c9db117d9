"""How a client speaks TLS: what its options say, else its credentials file, else the environment."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rmq.protocol.errors import ClientError
from rmq.remoting.peer_tls import SDK, TlsOptions

if TYPE_CHECKING:
    from rmq.client.settings import ClientSettings

__all__ = ["check_tls", "tls_of"]

#: Option -> key of the credentials file. The variable of each is ROCKETMQ_ and the option in capitals.
_KEYS = {
    "tls_ca_file": "tlsCaFile",
    "tls_cert_file": "tlsCertFile",
    "tls_key_file": "tlsKeyFile",
    "tls_key_password": "tlsKeyPassword",
    "tls_key_password_file": "tlsKeyPasswordFile",
    "tls_server_name": "tlsServerName",
    "tls_verify": "tlsVerify",
    "tls_check_hostname": "tlsCheckHostname",
}
_FLAGS = ("tls_verify", "tls_check_hostname")


def check_tls(settings: ClientSettings) -> None:
    """:raises ClientError: options contradict each other, or a variable cannot be used."""
    given = [name for name in _KEYS if getattr(settings, name) is not None]
    if given and isinstance(settings.tls, ssl.SSLContext):
        raise ClientError(f"give tls an ssl.SSLContext, or {given[0]} beside tls=True, not both")
    if given and settings.tls is not True:
        raise ClientError(f"{given[0]} does nothing without tls=True: give that, too")
    if given:
        _options(settings, {}).check(SDK)
    elif settings.tls is None and settings.credentials_file is None:
        _variable_on()


def tls_of(settings: ClientSettings, of_file: Mapping[str, str]) -> ssl.SSLContext | TlsOptions | None:
    """What connections are opened with; None: no TLS.

    :param of_file: what the credentials file says.
    :raises ConfigError: what was said does not fit together.
    """
    if isinstance(settings.tls, ssl.SSLContext):
        return settings.tls
    on = settings.tls
    if on is None:
        on = of_file["useTLS"] == "true" if "useTLS" in of_file else bool(of_file) or _variable_on()
    if not on:
        return None
    options = _options(settings, of_file)
    options.check(SDK)
    return options


def _options(settings: ClientSettings, of_file: Mapping[str, str]) -> TlsOptions:
    """One source says all of it: what one says of trust means nothing beside a certificate of another."""
    values: dict[str, Any]
    if any(getattr(settings, name) is not None for name in _KEYS):
        values = {name: getattr(settings, name) for name in _KEYS}
    elif of_file:
        values = {name: of_file.get(key) for name, key in _KEYS.items()}
    else:
        values = {name: os.environ.get(f"ROCKETMQ_{name.upper()}") or None for name in _KEYS}
    for name in _FLAGS:
        if isinstance(text := values[name], str):
            values[name] = _flag(f"ROCKETMQ_{name.upper()}", text)
    return TlsOptions(
        verify=values["tls_verify"] is not False,
        ca=values["tls_ca_file"],
        cert=values["tls_cert_file"],
        key=values["tls_key_file"],
        password=values["tls_key_password"],
        password_file=values["tls_key_password_file"],
        server_name=values["tls_server_name"],
        check_host=values["tls_check_hostname"] is not False,
    )


def _variable_on() -> bool:
    """Whether the environment says that TLS is spoken."""
    return _flag("ROCKETMQ_TLS", os.environ.get("ROCKETMQ_TLS") or "false")


def _flag(name: str, text: str) -> bool:
    if (word := text.strip().lower()) not in ("true", "false", "1", "0"):
        raise ClientError(f"{name}={text!r:.20} in the environment: true or false is expected")
    return word in ("true", "1")
