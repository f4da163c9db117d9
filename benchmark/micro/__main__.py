"""Run the sections named on the command line, or all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import msgspec
import orjson

from benchmark.micro import answers, frames, hashes, headers, properties, records, told

SECTIONS: dict[str, Callable[[], None]] = {
    "decode": headers.run,
    "props": properties.run,
    "hash": hashes.run,
    "pack": records.run,
    "told": told.run,
    "answer": answers.run,
    "crc": frames.run_crc,
    "split": frames.run_split,
}


def main(names: Sequence[str]) -> int:
    """Exit code 2 for an unknown section."""
    unknown = [name for name in names if name not in SECTIONS]
    if unknown:
        print(f"micro: no section {unknown[0]!r}; there are {', '.join(SECTIONS)}", file=sys.stderr)
        return 2
    print(f"Python {sys.version.split()[0]}, msgspec {msgspec.__version__}, orjson {orjson.__version__}")
    for name in names or SECTIONS:
        SECTIONS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
