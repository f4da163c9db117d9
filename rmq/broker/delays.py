"""The delays of the levels that ``messageDelayLevel`` names (store-and-broker.md 7.1)."""

from __future__ import annotations

import re

from rmq.protocol.errors import ConfigError

__all__ = ["DelayLevels"]

_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TOKEN = re.compile(r"([+-]?\d+)([smhd])\Z")


class DelayLevels:
    """The delays of levels 1 to n, in milliseconds (setting ``messageDelayLevel``; store-and-broker.md 7.1).

    :param text: tokens such as ``1s 5s 10m 2h``, separated by blanks; the n-th one is level n.
    :raises ConfigError: names the token that is not a delay.
    """

    __slots__ = ("_delays",)

    def __init__(self, text: str) -> None:
        delays = []
        for token in text.split():
            match = _TOKEN.match(token)
            if match is None:
                raise ConfigError(f"{token!r} is not a delay; write a number and s, m, h or d")
            delays.append(int(match[1]) * _UNITS[match[2]])
        if not delays:
            raise ConfigError("no delay; write delays such as: 1s 5s 10s 30s 1m")
        self._delays = tuple(delays)

    @property
    def delays(self) -> tuple[int, ...]:
        """Milliseconds of level 1, 2, ..."""
        return self._delays

    @property
    def max_level(self) -> int:
        return len(self._delays)

    def delay(self, level: int) -> int:
        """Milliseconds a message of ``level`` waits; levels beyond the last one wait as long as the last one."""
        return self._delays[min(level, len(self._delays)) - 1]

    def deliver_at(self, level: int, store_timestamp: int) -> int:
        """When a message is due, ms since the epoch: what its queue entry carries instead of a tag hash."""
        return store_timestamp + self.delay(level)
