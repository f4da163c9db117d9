"""What `-f` makes of a message: kcat's letters, and RocketMQ's own.

=====  ============================================  =========  =====================================
%t     topic                                         %k         keys
%p %q  queue                                         %g         tag
%b     broker                                        %i         id
%o     offset                                        %T         store time, ms
%s     body                                          %B         born time, ms
%S     size of the body, bytes                       %r         times it was consumed again
%h     properties, ``name=value,name=value``         %{name}    one property; empty where it has none
%%     a percent sign                                \\n \\t \\0  line end, tab, zero byte, \\xHH, \\\\
=====  ============================================  =========  =====================================
"""

from __future__ import annotations

import re
from collections.abc import Callable

from rmq.client.message import MessageExt

__all__ = ["template"]

_PIECE = re.compile(r"%\{([^}]*)\}|%(.)|\\x([0-9a-fA-F]{2})|\\(.)|%|\\", re.DOTALL)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}

_FIELDS: dict[str, Callable[[MessageExt], bytes]] = {
    "t": lambda message: message.topic.encode(),
    "p": lambda message: b"%d" % message.queue_id,
    "q": lambda message: b"%d" % message.queue_id,
    "b": lambda message: message.broker_name.encode(),
    "o": lambda message: b"%d" % message.queue_offset,
    "s": lambda message: message.body,
    "S": lambda message: b"%d" % len(message.body),
    "k": lambda message: (message.keys or "").encode(),
    "g": lambda message: (message.tags or "").encode(),
    "i": lambda message: message.msg_id.encode(),
    "T": lambda message: b"%d" % message.store_timestamp,
    "B": lambda message: b"%d" % message.born_timestamp,
    "r": lambda message: b"%d" % message.reconsume_times,
    "h": lambda message: ",".join(f"{name}={value}" for name, value in message.properties.items()).encode(),
}


def template(text: str) -> Callable[[MessageExt], bytes]:
    """What makes the bytes of a message.

    :raises ValueError: a letter or an escape that there is not, or an end in the middle of one.
    """
    pieces: list[bytes | Callable[[MessageExt], bytes]] = []
    end = 0
    for found in _PIECE.finditer(text):
        pieces.append(text[end : found.start()].encode())
        pieces.append(_piece(found))
        end = found.end()
    pieces.append(text[end:].encode())

    def render(message: MessageExt) -> bytes:
        return b"".join(piece if isinstance(piece, bytes) else piece(message) for piece in pieces)

    return render


def _piece(found: re.Match[str]) -> bytes | Callable[[MessageExt], bytes]:
    name, letter, code, escape = found.groups()
    if name is not None:
        return lambda message: message.properties.get(name, "").encode()
    if letter is not None:
        if letter == "%":
            return b"%"
        if letter in _FIELDS:
            return _FIELDS[letter]
        raise ValueError(
            f"%{letter} is no field: there are %{' %'.join(sorted(_FIELDS, key=str.lower))}, %{{name}} and %%"
        )
    if code is not None:
        return bytes.fromhex(code)
    if escape is not None:
        if escape in _ESCAPES:
            return _ESCAPES[escape]
        raise ValueError(f"\\{escape} is no escape: there are \\n, \\t, \\r, \\0, \\xHH and \\\\")
    raise ValueError(f"it ends in the middle of {found[0]!r}: write {found[0] * 2} for the sign itself")
