"""One thing that is wrong, or worth a look."""

from __future__ import annotations

from dataclasses import asdict, dataclass

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """:param wrong: messages are lost, refused or stay where they are; False: worth a look.

    :param where: a broker, a name server, a group, a queue. :param do: what to do about it.
    """

    wrong: bool
    where: str
    what: str
    do: str

    def line(self) -> str:
        """All of it in one line."""
        return f"{'WRONG' if self.wrong else 'look '}  {self.where}: {self.what}; {self.do}"

    def table(self) -> dict[str, object]:
        """For programs."""
        return asdict(self)
