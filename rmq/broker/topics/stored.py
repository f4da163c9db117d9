"""Names in the files of metadata, which people edit and other brokers write: a bad one costs itself alone."""

from __future__ import annotations

import logging
from collections.abc import Callable

from rmq.broker.reserved import name_fault
from rmq.config.values import shown

__all__ = ["stored_topic_fault", "without_bad_names"]

log = logging.getLogger(__name__)

#: Names that one line tells.
_TOLD = 5


def stored_topic_fault(topic: str) -> str | None:
    """Why a topic of a file is none: its name is that of a folder of the store.

    Java's brokers make retry topics of groups with any name, so that blanks and other letters than those of a send are
    taken.
    """
    if not topic.strip() or topic in (".", "..") or "/" in topic:
        return f"{shown(topic)} is no name of a topic"
    return name_fault(topic)


def without_bad_names(whole: object, member: str, fault: Callable[[str], str | None], path: str) -> object:
    """What a file holds, without the entries of a table whose names are none; they are told of in one line.

    :param whole: its JSON. :param member: the table, by name. :param path: for the log.
    """
    table = whole.get(member) if isinstance(whole, dict) else None
    if not isinstance(whole, dict) or not isinstance(table, dict):
        return whole
    bad = {name: why for name in table if isinstance(name, str) and (why := fault(name)) is not None}
    if not bad:
        return whole
    told = "; ".join(list(bad.values())[:_TOLD]) + (f"; and {len(bad) - _TOLD} more" if len(bad) > _TOLD else "")
    log.error("%s: of %s these are left out, and gone with the next change: %s", path, member, told)
    return {**whole, member: {name: value for name, value in table.items() if name not in bad}}
