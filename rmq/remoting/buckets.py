"""Token buckets by name: what each of many may do in a time, counted without a timer."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Buckets"]


class Buckets:
    """Each name has a bucket that fills at a rate up to its size; whoever is in debt waits until it is filled again.

    Rate and size are given with each question, so that a setting counts from its next one on.

    :param now: monotonic seconds.
    :param most: names that are remembered. Beyond it those go first whose bucket is full, then the oldest half.
    """

    def __init__(self, now: Callable[[], float], most: int = 10_000) -> None:
        self._now = now
        self._most = most
        #: Name -> what is in its bucket, and when that was so.
        self._held: dict[str, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def level(self, name: str, rate: float, size: float) -> float:
        """What is in the bucket; below 0 it is what was taken too much.

        :param rate: what flows in, a second.
        """
        held = self._held.get(name)
        if held is None:
            return size
        level, since = held
        return min(size, level + (self._now() - since) * rate)

    def take(self, name: str, amount: float, rate: float, size: float) -> None:
        """Take something out, even if there is less."""
        level = self.level(name, rate, size) - amount
        now = self._now()
        if name not in self._held and len(self._held) >= self._most:
            self._make_room(now, rate, size)
        self._held[name] = (level, now)

    def _make_room(self, now: float, rate: float, size: float) -> None:
        self._held = {
            name: (level, since) for name, (level, since) in self._held.items() if level + (now - since) * rate < size
        }
        if len(self._held) >= self._most:
            for name in list(self._held)[: self._most // 2]:
                del self._held[name]
