"""How much of what users see has types that type checkers know: ``make public-types``.

pyright looks at the whole package; counted is what belongs to names that are exported, without what has an underscore.
"""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["PUBLIC", "unknown"]

PUBLIC = (
    "rmq",
    "rmq.aio",
    "rmq.app",
    "rmq.testing",
    "rmq.integrations.logging",
    "rmq.integrations.openmessaging",
    "rmq.integrations.opentelemetry",
    "rmq.integrations.prometheus",
)


def exported() -> Iterator[str]:
    """Where the exported classes and functions are defined, and what the classes inherit from."""
    for module in map(importlib.import_module, PUBLIC):
        for name in module.__all__:
            made = getattr(module, name)
            for one in inspect.getmro(made) if inspect.isclass(made) else [made]:
                if getattr(one, "__module__", "").startswith("rmq"):
                    yield f"{one.__module__}.{getattr(one, '__qualname__', name)}"


def unknown() -> tuple[int, list[str]]:
    """How many symbols are public, and those of them whose types are not known."""
    pyright = Path(sys.executable).with_name("pyright")
    command = [pyright, "--pythonpath", sys.executable, "--ignoreexternal", "--verifytypes", "rmq", "--outputjson"]
    told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    ours = set(exported())
    count, found = 0, []
    for symbol in json.loads(told)["typeCompleteness"]["symbols"]:
        parts = symbol["name"].split(".")
        if any(part.startswith("_") and not part.startswith("__") for part in parts):
            continue
        if any(".".join(parts[:size]) in ours for size in range(len(parts), 1, -1)):
            count += 1
            if not symbol["isTypeKnown"] or symbol.get("isTypeAmbiguous"):
                why = "; ".join(one["message"].partition("\n")[0] for one in symbol.get("diagnostics", ()))
                found.append(f"{symbol['name']}: {why}" if why else symbol["name"])
    return count, found


if __name__ == "__main__":
    count, found = unknown()
    print(*found, f"{count - len(found)} of {count} public symbols have known types", sep="\n")
    sys.exit(bool(found))
