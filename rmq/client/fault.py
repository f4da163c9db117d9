"""Which brokers to leave alone for a while (protocol.md 7.3). Pure: times come in."""

from __future__ import annotations

__all__ = ["LatencyFault"]

_LATENCY_MAX = (0.050, 0.100, 0.550, 1.0, 2.0, 3.0, 15.0)
_NOT_AVAILABLE = (0.0, 0.0, 30.0, 60.0, 120.0, 180.0, 600.0)
_FAILURE_COUNTS_AS = 30.0
#: Switched off, only a broker that could not be reached is left alone, and only this long (field case B082).
_SUSPECT = 10.0


class LatencyFault:
    """Remembers slow and failing brokers (Java: MQFaultStrategy, LatencyFaultTolerance).

    :param enabled: ``send_latency_fault_enable``; off, only transport failures count.
    """

    __slots__ = ("_until", "avoided", "enabled")

    def __init__(self, enabled: bool = False) -> None:
        self.enabled: bool = enabled
        self._until: dict[str, float] = {}
        #: The brokers to avoid now; replaced, never changed, so that any thread may read it.
        self.avoided: frozenset[str] = frozenset()

    def on_answer(self, broker: str, latency: float, now: float) -> None:
        """A broker answered after ``latency`` seconds."""
        rest = 0.0
        if self.enabled:
            for limit, away in zip(_LATENCY_MAX, _NOT_AVAILABLE, strict=True):
                if latency < limit:
                    break
                rest = away
        self._set(broker, rest, now)

    def on_failure(self, broker: str, now: float) -> None:
        """A broker could not be reached or did not answer in time."""
        if self.enabled:
            self.on_answer(broker, _FAILURE_COUNTS_AS, now)
        else:
            self._set(broker, _SUSPECT, now)

    def expire(self, now: float) -> None:
        """Let brokers back in whose time is over."""
        gone = [broker for broker, until in self._until.items() if until <= now]
        if gone:
            for broker in gone:
                del self._until[broker]
            self.avoided = frozenset(self._until)

    def _set(self, broker: str, rest: float, now: float) -> None:
        if rest > 0:
            self._until[broker] = now + rest
        elif self._until.pop(broker, None) is None:
            return
        self.avoided = frozenset(self._until)
