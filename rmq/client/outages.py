"""Brokers that do not answer: said once when that begins and once when it is over, whichever client notices."""

from __future__ import annotations

import logging

from rmq.protocol.errors import TransportError
from rmq.runtime.aside import logger

__all__ = ["Outages"]

log = logger(__name__)

#: Brokers that are gone for good, at other addresses by now, are forgotten when so many have come together.
_MOST = 1000


class Outages:
    """Which brokers gave no answer when they were last asked."""

    def __init__(self) -> None:
        self._away: set[str] = set()

    def away(self, address: str) -> bool:
        """Whether a broker gave no answer when it was last asked."""
        return address in self._away

    def level(self, error: BaseException) -> int:
        """How loudly a failed call is to be told of: a warning, or DEBUG where this broker's outage was told of."""
        address = error.address if isinstance(error, TransportError) else None
        if address is None:
            return logging.WARNING
        if address in self._away:
            return logging.DEBUG
        if len(self._away) >= _MOST:
            self._away.clear()
        self._away.add(address)
        return logging.WARNING

    def answered(self, address: str) -> None:
        """A broker has answered, whatever it said."""
        if address in self._away:
            self._away.discard(address)
            log.warning("the broker %s works again", address)
