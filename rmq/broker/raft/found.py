"""What a start finds in its store of another kind of broker: the log of Java's DLedger, or a group's folder.

A plain broker that begins with a member's store leaves a file ``plain`` in the folder ``raft``, one JSON object with a
sum (:mod:`rmq.broker.store.kept_file`): ``end``, where the log ended then. The group knows nothing of what is stored
behind that, and would take it back.
"""

from __future__ import annotations

import logging
import os

from rmq.broker.raft.sidecar import FOLDER
from rmq.broker.store import kept_file
from rmq.broker.store.refusal import unusable
from rmq.protocol.errors import StoreError
from rmq.runtime.world import Files

__all__ = ["committed", "is_members", "left", "look", "returned"]

log = logging.getLogger(__name__)

#: Java's DLedger keeps its log in ``dledger-n0/data`` of the store, and its index beside that (store-and-broker.md 12).
_JAVAS = "dledger-"
_PLAIN = "plain"


def look(files: Files, root: str, *, in_group: bool) -> None:
    """Look at a store before it is opened; nobody is served yet.

    :param root: its folder.
    :param in_group: the broker is to be one of a group that elects its master.
    :raises StoreError: the messages that it has in a group are Java's DLedger's, and would not be there; or the folder
        cannot be read.
    """
    if not files.is_dir(root):
        return  # made when the store is opened, or that tells why it cannot be
    try:
        javas = _javas(files, root)
        of_group = _has_files(files, os.path.join(root, FOLDER))
    except OSError as error:
        raise unusable(root, error) from error
    for folder in javas:
        what = f"{folder} has the log of Java's DLedger, another format that is not read here"
        if in_group:
            raise StoreError(
                f"{what}: its messages would not be there; make a plain store of it with mqadmin store import-dledger "
                "and begin with that, or move this folder away if nobody wants its messages"
            )
        log.warning("%s: its messages are not there", what)
    if of_group and not in_group:
        log.warning(
            "%s says that this store was that of a member of a group, and enableDLegerCommitLog is off: the broker "
            "starts as a plain one with all of that member's log, also what no majority had, and the other members get "
            "nothing of what it stores; before the group begins again, copy this store to all of them and remove the "
            "folder at each (docs/failover.md)", os.path.join(root, FOLDER),
        )  # fmt: skip


def left(files: Files, root: str, end: int) -> None:
    """A plain broker has loaded a store: where that is a member's, keep what the group had of it.

    :param end: of the log.
    :raises StoreError: that cannot be written.
    """
    folder = os.path.join(root, FOLDER)
    path = os.path.join(folder, _PLAIN)
    try:
        if _has_files(files, folder) and not files.exists(path):
            files.write_atomic(path, kept_file.encode({"end": end}))
    except OSError as error:
        raise unusable(root, error) from error


def returned(files: Files, root: str, end: int) -> None:
    """A member has loaded its store: go on where no plain broker has written to it meanwhile.

    :param end: of the log.
    :raises StoreError: one has, or nobody can tell.
    """
    path = os.path.join(root, FOLDER, _PLAIN)
    try:
        if not files.exists(path):
            return
        try:
            was = int(kept_file.decode(files.read(path))["end"])
        except (ValueError, TypeError, KeyError):
            raise StoreError(f"{path} does not say what a plain broker leaves there: restore it") from None
        if was != end:
            raise StoreError(
                f"{root} was a plain broker's since it was a member's, and its log ends at {end} now, not at {was}: "
                "the group would take back what that one has stored; stop all members, copy this store to each without "
                f"its folder {FOLDER}, which is removed at all of them, and start all (docs/failover.md)"
            )
        files.unlink(path)
    except OSError as error:
        raise unusable(root, error) from error


def is_members(files: Files, root: str) -> bool:
    """Whether a store that is not in use is that of a member of a group, and no plain broker has begun with it since.

    :raises OSError: its folder cannot be looked into.
    """
    folder = os.path.join(root, FOLDER)
    return files.exists(os.path.join(folder, "members")) and not files.exists(os.path.join(folder, _PLAIN))


def committed(files: Files, root: str) -> int | None:
    """Up to where a member's log was committed when it noted that last; None where the store is no member's.

    What a plain broker has found of a member's, or nobody can tell, counts as a plain broker's, whose log is all there.

    :param root: the folder of a store that is not in use.
    """
    folder = os.path.join(root, FOLDER)
    try:
        if is_members(files, root):
            path = os.path.join(folder, "commit")
            return int(kept_file.decode(files.read(path))["end"]) if files.exists(path) else 0
    except (OSError, ValueError, TypeError, KeyError) as error:
        log.warning("how far the log was committed is not known: %s: %s", folder, error)
    return None


def _javas(files: Files, root: str) -> list[str]:
    folders = [os.path.join(root, name) for name in files.list(root) if name.startswith(_JAVAS)]
    return [folder for folder in folders if _has_files(files, folder)]


def _has_files(files: Files, folder: str) -> bool:
    if not files.is_dir(folder):
        return False
    paths = [os.path.join(folder, name) for name in files.list(folder)]
    return any(not files.is_dir(path) or _has_files(files, path) for path in paths)
