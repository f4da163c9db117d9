"""Looks at settings files, and at the files that they name, for what is open."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from rmq.auth.client_file import parse_client_file
from rmq.auth.document import parse_document
from rmq.auth.files import AclFiles
from rmq.auth.plain_acl import PlainFile, parse_plain_acl
from rmq.auth.settings import AclSettings
from rmq.broker.settings import BrokerSettings
from rmq.cli.command import Refused
from rmq.cli.secure import authority
from rmq.cli.secure.findings import Finding, of_accounts, of_certificate, of_settings, of_slaves, of_use
from rmq.cli.secure.hosts import elsewhere
from rmq.cli.secure.making import readable_by_others
from rmq.config.sources import read_file
from rmq.namesrv.settings import NamesrvSettings
from rmq.protocol.errors import ConfigError
from rmq.runtime.files import RealFiles

__all__ = ["look_at_files"]

#: What ``rmq secure init`` calls them.
_DAEMONS = ("namesrv.properties", "broker.properties")


def look_at_files(paths: Sequence[str], now: datetime, days: int) -> list[Finding]:
    """What is open, each once.

    :param paths: folders of ``rmq secure init``, settings of daemons, files of accounts, credentials files.
    :raises Refused: one of them cannot be looked at.
    """
    found: dict[Finding, None] = {}
    for path in paths:
        for one in _look(path, now, days):
            found[one] = None
    return list(found)


def _look(path: str, now: datetime, days: int) -> Iterator[Finding]:
    try:
        if os.path.isdir(path):
            inside = [name for name in _DAEMONS if os.path.isfile(os.path.join(path, name))]
            if not inside:
                raise Refused(f"{path}: neither {' nor '.join(_DAEMONS)} is in it: name the settings files")
            for name in inside:
                yield from _daemon(os.path.join(path, name), now, days)
            client = os.path.join(path, "client.yml")
            if os.path.isfile(client):
                yield from _signs_as(client, _accounts_below(path), broker=False)
            kept = [os.path.join(path, name) for name in ("ca.key", "client.key", "conf/tools.yml")]
            yield from _private(kept)
        elif path.endswith((".yml", ".yaml")) and not _of_daemon(path):
            yield from _private([path])
            with open(path, "rb") as file:
                data = file.read()
            root = parse_document(path, data)
            if root is not None and "accounts" in root.values:
                yield from of_accounts([parse_plain_acl(path, data)], skips=False)
            else:
                parse_client_file(path, data)
        else:
            yield from _daemon(path, now, days)
    except ConfigError as error:
        raise Refused(str(error)) from None
    except OSError as error:
        raise Refused(f"{error.filename or path}: {error.strerror or error}") from None


def _keys(kind: type[AclSettings]) -> set[str]:
    return {name for line in kind.lines() for name in (line.key, *line.also)}


def _of_daemon(path: str) -> bool:
    """Whether a YAML file has settings of a daemon: their keys are of no other file."""
    known = _keys(BrokerSettings) | _keys(NamesrvSettings)
    try:
        return any(item.key in known for item in read_file(path))
    except ConfigError:  # nested, as accounts are
        return False


def _daemon(path: str, now: datetime, days: int) -> Iterator[Finding]:
    given = {item.key for item in read_file(path)}
    broker, namesrv = _keys(BrokerSettings), _keys(NamesrvSettings)
    kind: type[AclSettings] = BrokerSettings
    if len(given & (namesrv - broker)) > len(given & (broker - namesrv)) or "namesrv" in os.path.basename(path):
        kind = NamesrvSettings
    home = os.environ.get("ROCKETMQ_HOME", "")
    settings = kind.from_sources(file=path, env={"ROCKETMQ_HOME": home} if home else {})
    yield from of_settings(path, settings)
    if isinstance(settings, BrokerSettings) and not settings.ha_allowed_addresses and settings.tls_server_cert_path:
        with contextlib.suppress(OSError, ValueError):  # which is told of below
            yield from of_slaves(path, settings, elsewhere(_hosts(settings.tls_server_cert_path)))
    secrets = [settings.tls_server_key_path, settings.tls_client_key_path, settings.acl_credentials_file]
    secrets.append(settings.metrics_token_file)
    if settings.tls_server_key_password or settings.tls_client_key_password:
        secrets.append(path)
    known: list[PlainFile] = []
    if settings.acl_enable and settings.rocketmq_home:
        files = AclFiles(RealFiles(), settings.rocketmq_home, settings.acl_plain_file)
        contents = files.read()
        known = list(files.understand(contents).files)
        yield from of_accounts(known, skips=settings.acl_white_list_skips_checks)
        secrets += contents
    if settings.acl_credentials_file:
        yield from _signs_as(settings.acl_credentials_file, known, broker=True)
    yield from _private(secrets)
    yield from _certificates([settings.tls_server_cert_path, settings.tls_client_cert_path], now, days)
    yield from _certificates([settings.tls_server_trust_cert_path, settings.tls_client_trust_cert_path], now, days)


def _hosts(path: str) -> tuple[str, ...]:
    """For which hosts a certificate is."""
    authority.need_cryptography()
    with open(path, "rb") as file:
        return authority.described(file.read()).hosts


def _accounts_below(folder: str) -> list[PlainFile]:
    files = AclFiles(RealFiles(), os.path.abspath(folder), "conf/plain_acl.yml")
    return list(files.understand(files.read()).files)


def _signs_as(path: str, known: Iterable[PlainFile], *, broker: bool) -> Iterator[Finding]:
    """Whether the account that a file names has to be what it is."""
    with open(path, "rb") as file:
        signer = parse_client_file(path, file.read()).account
    for account in (one for file in known for one in file.accounts):
        if signer is not None and account.access_key == signer.access_key:
            yield from of_use(path, account, broker=broker)
    yield from _private([path])


def _private(paths: Iterable[str]) -> Iterator[Finding]:
    for path in paths:
        if path and os.path.exists(path) and readable_by_others(path):
            yield Finding(path, "others may read it", "it holds secrets", f"chmod 600 {path}")


def _certificates(paths: Iterable[str], now: datetime, days: int) -> Iterator[Finding]:
    for path in filter(None, paths):
        authority.need_cryptography()
        with open(path, "rb") as file:
            data = file.read()
        try:
            ends = authority.described(data).ends
        except ValueError as error:
            raise Refused(f"{path}: it holds no certificate in PEM form: {error}") from None
        yield from of_certificate(path, ends, now, days)
