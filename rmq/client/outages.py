"""Brokers that do not answer: said once when that begins and once when it is over, whichever client notices."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Hashable

from rmq.protocol.errors import TransportError
from rmq.runtime.aside import logger

__all__ = ["Outages", "outages_of"]

log = logger(__name__)

#: Brokers that are gone for good, at other addresses by now, are forgotten when so many have come together.
_MOST = 1000


class Outages:
    """Which brokers gave no answer when they were last asked."""

    def __init__(self) -> None:
        #: Clients on other loops, in other threads, note theirs here, too.
        self._away: dict[str, object] = {}

    def away(self, address: str) -> bool:
        """Whether a broker gave no answer when it was last asked."""
        return address in self._away

    def level(self, error: BaseException) -> int:
        """How loudly a failed call is to be told of: a warning, or DEBUG where this broker's outage was told of."""
        address = error.address if isinstance(error, TransportError) else None
        if address is None:
            return logging.WARNING
        if len(self._away) >= _MOST and address not in self._away:
            self._away.clear()
        mine = object()  # of two threads that notice at once one tells
        return logging.WARNING if self._away.setdefault(address, mine) is mine else logging.DEBUG

    def answered(self, address: str) -> None:
        """A broker has answered, whatever it said."""
        if self._away and self._away.pop(address, None) is not None:
            log.warning("the broker %s works again", address)


#: While a client has them.
_shared: weakref.WeakValueDictionary[tuple[Hashable, Hashable], Outages] = weakref.WeakValueDictionary()


def outages_of(where: Hashable, whose: Hashable) -> Outages:
    """What the clients of one place know together that reach brokers in the same way.

    :param where: a process. :param whose: as whom they come.
    """
    return _shared.setdefault((where, whose), Outages())
