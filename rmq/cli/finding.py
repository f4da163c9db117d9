"""One thing that is wrong, open, or worth a look: what ``rmq doctor`` and ``rmq secure check`` print."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from rmq.cli.mqadmin.text import plain

__all__ = ["Finding", "judged"]


@dataclass(frozen=True, slots=True)
class Finding:
    """:param where: a file, an address, a broker, a name server, a group, a queue.

    :param why: what comes of it; empty where ``what`` says it. :param do: what to do about it.
    :param wrong: messages are lost, refused or stay where they are; False: worth a look; None: that is no question.
    """

    where: str
    what: str
    why: str
    do: str
    wrong: bool | None = None

    def line(self) -> str:
        """All of it in one line."""
        mark = "" if self.wrong is None else "WRONG  " if self.wrong else "look   "
        why = f": {self.why}" if self.why else ""
        return plain(f"{mark}{self.where}: {self.what}{why}; {self.do}")

    def table(self) -> dict[str, object]:
        """For programs: what there is of it."""
        return {name: value for name, value in asdict(self).items() if value not in (None, "")}


def judged(wrong: bool, where: str, what: str, do: str) -> Finding:
    """One of a cluster or a group, of which it is said how bad it is."""
    return Finding(where, what, "", do, wrong)
