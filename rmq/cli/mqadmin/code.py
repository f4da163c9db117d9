"""``--show-code``: the Python that does what a command does, of the calls that it made."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

from rmq.cli.mqadmin.recorder import Call
from rmq.client.admin import AdminClient

__all__ = ["program"]

#: Calls that are written down; commands that look at everything make thousands.
_MOST = 24


def program(calls: Iterable[Call], options: Mapping[str, Any]) -> str:
    """A whole program.

    :param options: arguments of the client, as the command had them; no secret is among them.
    """
    every = list(calls)
    kinds: set[str] = set()
    lines = [_line(call, kinds) for call in every[:_MOST]]
    if len(every) > _MOST:
        lines.append(f"# and {len(every) - _MOST} calls more, for what those answered")
    if not lines:
        lines = ["pass  # it asks nothing"]
    given = ", ".join(f"{name}={value!r}" for name, value in options.items())
    imports = ", ".join(["AdminClient", *sorted(kinds)])
    body = "\n".join(f"    {line}" for line in lines)
    return f"from rmq import {imports}\n\nwith AdminClient({given}) as admin:\n{body}"


def _line(call: Call, kinds: set[str]) -> str:
    args = [_value(one, kinds) for one in call.args]
    args += [f"{name}={_value(value, kinds)}" for name, value in call.kwargs.items()]
    text = f"admin.{call.name}({', '.join(args)})"
    if not call.changes:
        return f"print({text})"
    # Answers of several servers say who failed, and raise it only when asked.
    several = "Answers" in str(inspect.signature(getattr(AdminClient, call.name)).return_annotation)
    return f"{text}.whole()" if several else text


def _value(value: Any, kinds: set[str]) -> str:
    if is_dataclass(value) and not isinstance(value, type):
        kinds.add(type(value).__name__)
        given = [(one.name, getattr(value, one.name)) for one in fields(value) if not _is_default(one, value)]
        return f"{type(value).__name__}({', '.join(f'{name}={_shown(name, at, kinds)}' for name, at in given)})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_value(key, kinds)}: {_value(one, kinds)}" for key, one in value.items()) + "}"
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        return repr(value)
    return "[" + ", ".join(_value(one, kinds) for one in value) + "]"


def _shown(name: str, value: Any, kinds: set[str]) -> str:
    return '"..."' if name == "secret_key" else _value(value, kinds)


def _is_default(one: Field[Any], value: Any) -> bool:
    given = getattr(value, one.name)
    return given is None or (one.default is not MISSING and given == one.default)
