"""CRC-32, as Java and zlib have it: each body that is stored has one, and whoever reads it makes it again.

isal (``rmq[server]``) makes it with the processor's own instructions: 0.05 us a KB where Python's zlib takes 0.27.
"""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]
