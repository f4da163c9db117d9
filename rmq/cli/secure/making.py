"""Writes a folder of ``rmq secure init``, and its certificates anew."""

from __future__ import annotations

import base64
import os
import re
import shutil
import stat
from collections.abc import Callable, Sequence
from datetime import datetime

from rmq.auth.document import MOST_BYTES
from rmq.cli.command import Refused
from rmq.cli.secure import authority
from rmq.cli.secure.layout import ACCOUNTS, CLIENT, Plan
from rmq.runtime.world import Files

__all__ = ["AUTHORITY_DAYS", "make", "renew"]

#: Days that an authority is valid for: whoever trusts it has to be told of another one.
AUTHORITY_DAYS = 3_650
_AUTHORITY = "rmq secure init"
_SECRET_BYTES = 24
#: Names of topics and groups, as brokers take them.
_NAME = re.compile(r"[%|a-zA-Z0-9_-]{1,127}\Z")


def make(
    folder: str,
    now: datetime,
    *,
    hosts: Sequence[str],
    days: int,
    namesrv_port: int,
    broker_port: int,
    topics: Sequence[str],
    groups: Sequence[str],
    demand: bool,
    chance: Callable[[int], bytes] = os.urandom,
) -> Plan:
    """Make the folder with all that is in it, or nothing: it appears when it is whole.

    :param folder: which is not there yet, or empty. :param now: with its time zone.
    :param days: for which certificates are valid. :param chance: bytes that nobody can guess.
    :raises Refused: the folder is in use, or an argument cannot be used. :raises OSError: it cannot be written.
    """
    authority.need_cryptography()
    folder = os.path.abspath(folder)
    if os.path.lexists(folder) and not (os.path.isdir(folder) and not os.listdir(folder)):
        raise Refused(
            f"{folder} is there already, and not empty: nothing is overwritten; rmq secure renew makes new certificates"
        )
    if "\n" in folder or '"' in folder or not folder.isprintable():
        raise Refused(f"{folder!r} is no name for a folder of settings: leave out quotes and line ends")
    for one in (*topics, *groups):
        if not _NAME.match(one):
            raise Refused(f"{one!r} is no name of a topic or a group")
    found = tuple(dict.fromkeys(authority.check_host(host) for host in hosts))
    name = f"{_AUTHORITY} {base64.b32encode(chance(5)).decode()}"  # clients may trust several
    root = authority.make_authority(name, now, max(days, AUTHORITY_DAYS))
    plan = Plan(
        folder, found, namesrv_port, broker_port, root,
        authority.issue(root, found[0], now, days, hosts=found, use="server"),
        authority.issue(root, CLIENT, now, days, use="client"),
        tuple(base64.urlsafe_b64encode(chance(_SECRET_BYTES)).decode() for _ in ACCOUNTS),
        topics, groups, demand,
    )  # fmt: skip
    _write(folder, plan.files())
    return plan


def _write(folder: str, files: dict[str, bytes]) -> None:
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    beside = f"{folder}.new-{os.getpid()}"
    os.mkdir(beside, 0o700)
    try:
        os.chmod(beside, 0o700)  # whatever the umask is
        for path, data in files.items():
            whole = os.path.join(beside, path)
            if not os.path.isdir(os.path.dirname(whole)):
                os.mkdir(os.path.dirname(whole), 0o700)
            with open(os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        os.rename(beside, folder)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise


def renew(
    folder: str, files: Files, now: datetime, *, days: int, hosts: Sequence[str], new_keys: bool, key_file: str | None
) -> list[str]:
    """Replace the certificates of servers and clients by new ones of the same authority.

    :param hosts: of servers; those of the certificate that is there when not given. :param new_keys: not those before.
    :param key_file: the authority's key, where it is kept elsewhere.
    :returns: what to tell.
    :raises Refused: the folder is none of ``rmq secure init``, or lacks something. :raises OSError: from the disk.
    """
    authority.need_cryptography()
    folder = os.path.abspath(folder)
    root_key = key_file or os.path.join(folder, "ca.key")
    root = authority.Issued(_read(files, os.path.join(folder, "ca.pem")), _read(files, root_key))
    told: list[str] = []
    try:
        ends = authority.described(root.cert).ends
        for name in ("server", "client"):
            cert, key = (os.path.join(folder, f"{name}.{end}") for end in ("pem", "key"))
            old, old_key = authority.described(_read(files, cert)), _read(files, key)
            names = tuple(dict.fromkeys(map(authority.check_host, hosts))) if hosts else old.hosts
            made = authority.issue(
                root, names[0] if name == "server" else old.name, now, days,
                hosts=names if name == "server" else (), use="server" if name == "server" else "client",
                key=None if new_keys else old_key,
            )  # fmt: skip
            if new_keys:
                files.write_atomic(key, made.key, private=True)
            files.write_atomic(cert, made.cert, private=True)
            until = authority.described(made.cert).ends
            told.append(f"{cert}: valid until {until:%Y-%m-%d} instead of {old.ends:%Y-%m-%d}")
            if name == "server":
                told[-1] += f", for {', '.join(names)}"
    except (ValueError, IndexError) as error:
        raise Refused(f"{folder}: its certificates cannot be used: {error}") from None
    if (ends - now).days < days:
        told.append(
            f"the authority itself ends on {ends:%Y-%m-%d}: make another folder with rmq secure init before, and have "
            "clients trust both (the PEM files one behind the other)"
        )
    return told


def _read(files: Files, path: str) -> bytes:
    try:
        return files.read(path, MOST_BYTES)
    except OSError as error:
        raise Refused(f"{path}: {error.strerror or error}: a folder of rmq secure init has it") from None


def readable_by_others(path: str) -> bool:
    """Whether somebody else than its owner may read a file. :raises OSError: it cannot be looked at."""
    return bool(os.stat(path).st_mode & (stat.S_IRGRP | stat.S_IROTH))
