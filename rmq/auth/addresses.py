"""Address patterns of plain_acl.yml (protocol.md 6.2; Java: RemoteAddressStrategyFactory).

====================================================  ====================================================
pattern                                               matches
====================================================  ====================================================
nothing, blanks                                       nothing
``*``, ``*.*.*.*``, ``*:*:*:*:*:*:*:*``               everything
``10.1.2.3``                                          that address
``10.1.2.3,10.1.2.4``                                 any of the list
``10.1.2.{3,4}``                                      the last part is one of these
``10.1.2.1-100``, ``10.1.2.*``, ``10.1.1-9.*``        ranges or ``*``, from the second part on
the same with ``:`` and 16-bit groups                 IPv6
====================================================  ====================================================

Java does not compare what stands behind the first range or ``*``; here every part is compared, which is never wider.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rmq.protocol.errors import ConfigError

__all__ = ["NOBODY", "AddressPattern", "parse_pattern"]

_EVERYTHING = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
_CHOICE = re.compile(r"(?P<head>[^{},]+[.:])\{(?P<items>[^{}]+)\}")
#: Addresses that one pattern may name.
_MOST = 1_000

#: Of each part of an address the numbers that it may have, as ranges.
_Parts = tuple[tuple[tuple[int, int], ...], ...]


@dataclass(frozen=True, slots=True)
class AddressPattern:
    """One pattern: matches everything, or what any of ``forms`` does; none of them matches nothing."""

    text: str
    everything: bool = False
    forms: tuple[_Parts, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether it matches nothing."""
        return not (self.everything or self.forms)

    def matches(self, host: str) -> bool:
        """:param host: an address without its port."""
        if self.everything:
            return True
        parts = _numbers(host)
        return parts is not None and any(
            len(form) == len(parts)
            and all(any(low <= part <= high for low, high in ranges) for part, ranges in zip(parts, form, strict=True))
            for form in self.forms
        )


#: What a missing pattern is.
NOBODY = AddressPattern("")


@lru_cache(maxsize=4096)
def _numbers(host: str) -> tuple[int, ...] | None:
    """The parts of an address: four of IPv4, eight of IPv6; None of what is no address."""
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return tuple(int(part, 16) for part in address.exploded.split(":"))
        address = address.ipv4_mapped
    return tuple(address.packed)


def parse_pattern(text: str | None) -> AddressPattern:
    """Read a pattern.

    :raises ConfigError: it is none.
    """
    text = (text or "").strip()
    if not text:
        return NOBODY
    if text in _EVERYTHING:
        return AddressPattern(text, everything=True)
    choice = _CHOICE.fullmatch(text)
    if choice is not None:
        items = [item.strip() for item in choice["items"].split(",")]
        texts = [choice["head"] + item for item in items]
    else:
        texts = [item.strip() for item in text.split(",")]
    if len(texts) > _MOST:
        raise ConfigError(f"an address pattern names {len(texts)} addresses: at most {_MOST} are taken")
    return AddressPattern(text, forms=tuple(_form(text, item) for item in texts))


def _form(pattern: str, text: str) -> _Parts:
    colons = ":" in text
    parts = _grouped(text) if colons else text.split(".")
    if len(parts) != (8 if colons else 4):
        raise _refused(pattern)
    read = tuple(_ranges(pattern, part, colons=colons) for part in parts)
    if any(low != high for low, high in read[0]):
        raise _refused(pattern)  # the first part is a number, unless the pattern is for everything
    return read


def _grouped(text: str) -> Sequence[str]:
    """The groups of an IPv6 address, what ``::`` leaves out filled in."""
    head, gap, tail = text.partition("::")
    before, after = (side.split(":") if side else [] for side in (head, tail))
    if not gap:
        return before
    return [*before, *["0"] * (8 - len(before) - len(after)), *after]


def _ranges(pattern: str, part: str, *, colons: bool) -> tuple[tuple[int, int], ...]:
    base, most = (16, 0xFFFF) if colons else (10, 255)
    if part == "*":
        return ((0, most),)
    low, dash, high = part.partition("-")
    found = (_number(low, base), _number(high if dash else low, base))
    if found[0] is None or found[1] is None or not found[0] <= found[1] <= most:
        raise _refused(pattern)
    return ((found[0], found[1]),)


def _number(text: str, base: int) -> int | None:
    digits = "0123456789abcdefABCDEF" if base == 16 else "0123456789"
    return int(text, base) if text and len(text) <= 4 and not text.strip(digits) else None


def _refused(pattern: str) -> ConfigError:
    return ConfigError(
        f"{pattern[:80]!r} is no address pattern: an address, a list with commas, 10.1.2.{{3,4}}, 10.1.2.1-100, "
        "10.1.*.* or * is expected"
    )
