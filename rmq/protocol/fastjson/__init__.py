"""The JSON that fastjson writes and reads, which is not quite JSON (protocol.md 4.1).

Reading is tolerant: unquoted and numeric keys, objects as keys, ``$ref``, single quotes, comments, spare commas.
Writing gives what Java writes, byte for byte; the caller gives members in Java's order (sorted by name for beans).
"""

from __future__ import annotations

from rmq.protocol.fastjson.keys import ObjectKey, Raw
from rmq.protocol.fastjson.reader import loads
from rmq.protocol.fastjson.writer import dumps, pretty, quote, standard

__all__ = ["ObjectKey", "Raw", "dumps", "loads", "pretty", "quote", "standard"]
