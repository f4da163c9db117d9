"""What a start finds in its store of another kind of broker: the log of Java's DLedger, or a group's folder."""

from __future__ import annotations

import logging
import os

from rmq.broker.raft.sidecar import FOLDER
from rmq.broker.store.refusal import unusable
from rmq.protocol.errors import StoreError
from rmq.runtime.world import Files

__all__ = ["look"]

log = logging.getLogger(__name__)

#: Java's DLedger keeps its log in ``dledger-n0/data`` of the store, and its index beside that (store-and-broker.md 12).
_JAVAS = "dledger-"


def look(files: Files, root: str, *, in_group: bool) -> None:
    """Look at a store before it is opened; nobody is served yet.

    :param root: its folder.
    :param in_group: the broker is to be one of a group that elects its master.
    :raises StoreError: the messages that it has in a group are Java's DLedger's, and would not be there; or the folder
        cannot be read.
    """
    try:
        javas = _javas(files, root)
        of_group = _has_files(files, os.path.join(root, FOLDER))
    except OSError as error:
        raise unusable(root, error) from error
    for folder in javas:
        what = f"{folder} has the log of Java's DLedger, another format that is not read here"
        if in_group:
            raise StoreError(
                f"{what}: its messages would not be there; set another storePathRootDir and have that group of Java's "
                "consumed to its end, or move this folder away if nobody wants its messages"
            )
        log.warning("%s: its messages are not there", what)
    if of_group and not in_group:
        log.warning(
            "%s says that this store was that of a member of a group, and enableDLegerCommitLog is off: the broker "
            "starts as a plain one with all of that member's log, also what no majority had, and the other members get "
            "nothing of what it stores; before the group begins again, copy this store to all of them and remove the "
            "folder at each (docs/failover.md)", os.path.join(root, FOLDER),
        )  # fmt: skip


def _javas(files: Files, root: str) -> list[str]:
    folders = [os.path.join(root, name) for name in files.list(root) if name.startswith(_JAVAS)]
    return [folder for folder in folders if _has_files(files, folder)]


def _has_files(files: Files, folder: str) -> bool:
    if not files.is_dir(folder):
        return False
    paths = [os.path.join(folder, name) for name in files.list(folder)]
    return any(not files.is_dir(path) or _has_files(files, path) for path in paths)
