"""Values that JSON has no type for: an object as a map key, and bytes that are JSON already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["ObjectKey", "Raw"]


class ObjectKey(tuple[tuple[str, object], ...]):
    """A map key that is itself an object, such as a MessageQueue: its members, sorted by name.

    Equal members give equal keys whatever the order they were written in.
    """

    __slots__ = ()

    @classmethod
    def of(cls, members: Mapping[str, object]) -> ObjectKey:
        return cls(sorted(members.items()))

    @classmethod
    def queue(cls, topic: str | None, broker_name: str | None, queue_id: int) -> ObjectKey:
        """The key for a MessageQueue."""
        return cls((("brokerName", broker_name), ("queueId", queue_id), ("topic", topic)))

    def get(self, name: str) -> object:
        """A member's value; None when there is no such member."""
        for member, value in self:
            if member == name:
                return value
        return None

    @property
    def members(self) -> dict[str, object]:
        return dict(self)

    @property
    def java_text(self) -> str:
        """What ``$ref`` paths call this key: MessageQueue's text form in Java (protocol.md 4.1, E6)."""
        return (
            f"MessageQueue [topic={self.get('topic')}, brokerName={self.get('brokerName')}, "
            f"queueId={self.get('queueId')}]"
        )


class Raw(bytes):
    """Text that is JSON already: the writer copies it."""

    __slots__ = ()

    @classmethod
    def array(cls, items: Iterable[bytes]) -> Raw:
        return cls(b"[" + b",".join(items) + b"]")
