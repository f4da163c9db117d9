"""What commands print: one value, in the form that was asked for.

========  ============================================================================================
classic   Java's columns and wording; the default where standard output is no terminal
table     columns as wide as what is in them; the default on a terminal
json      one document
yaml      the same as YAML
ndjson    a line of JSON for each row
csv       a head line, then a line for each row; what is no text or number stands as JSON in its cell
========  ============================================================================================

A command gives rows (a list of objects that have the same keys), one object, or what it has done; the lines of the
classic form it makes itself. An answer that is not whole says so in every form: rows end with one
``{"missing": name, "why": text}`` for each that did not answer, an object has a key ``missing``.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click
import orjson

from rmq.cli.command import is_quiet
from rmq.cli.mqadmin.failures import PARTIAL, failure
from rmq.cli.mqadmin.text import plain, seconds, width
from rmq.protocol.errors import RMQError

__all__ = ["FORMS", "Output", "as_table", "complain", "print_json"]

FORMS = ("classic", "table", "json", "yaml", "csv", "ndjson")
_JSON = orjson.OPT_NON_STR_KEYS
#: Names in one line; the others are counted.
_NAMED = 16
#: Reasons that are told of, a line each.
_REASONS = 16

Rows = list[dict[str, Any]]
Lines = Callable[[], Iterable[str]]


def complain(text: str) -> None:
    """A line on standard error beside what a command prints, unless it is to be quiet."""
    if not is_quiet():
        _name(text)


def _name(text: str) -> None:
    click.echo(f"mqadmin: {' '.join(text.split())}", err=True)


def print_json(value: object) -> None:
    click.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2 | _JSON).decode())


class Output:
    """Where a command prints.

    :param form: one of :data:`FORMS`; None: classic, or table on a terminal.
    """

    def __init__(self, form: str | None = None) -> None:
        self.form = form or ("table" if sys.stdout.isatty() else "classic")
        #: What is not in what was shown, and why.
        self.missing: dict[str, str] = {}
        #: Exit codes of what went wrong, by kind.
        self._kinds: set[int] = set()
        #: Whether anything was there to show.
        self._shown = True

    @property
    def classic(self) -> bool:
        """Lines are printed as they come; other forms print at the end."""
        return self.form == "classic"

    @property
    def code(self) -> int:
        """The exit code: done, or done in part; where nothing is there for one kind of reason, that one's."""
        if self.missing and not self._shown and len(self._kinds) == 1:
            return next(iter(self._kinds))
        return PARTIAL if self.missing else 0

    # -- what is missing ----------------------------------------------------------------------------------------------

    def lacks(self, *answers: object) -> None:
        """Remember what answers of the admin client do not have: their ``missing``."""
        for answer in answers:
            missing = getattr(answer, "missing", None) or {}
            errors: Mapping[str, RMQError] = getattr(answer, "failed", {})
            self._kinds.update(failure(errors[name])[1] if name in errors else PARTIAL for name in missing)
            self.missing.update(missing)

    def failed(self, name: str, error: RMQError | str) -> None:
        """Remember one that cannot be looked at."""
        self._kinds.add(failure(error)[1] if isinstance(error, RMQError) else PARTIAL)
        self.missing[name] = str(error)

    def complain(self) -> None:
        """Name on standard error what is missing, a line for each reason."""
        names: dict[str, list[str]] = {}
        for name in sorted(self.missing):
            names.setdefault(self.missing[name], []).append(name)
        for why, some in [*names.items()][:_REASONS]:
            more = f" and {len(some) - _NAMED} more" if len(some) > _NAMED else ""
            verb = "is" if len(some) == 1 else "are"
            _name(f"{', '.join(some[:_NAMED])}{more} {verb} missing here: {why}")
        if len(names) > _REASONS:
            rest = sum(len(some) for some in [*names.values()][_REASONS:])
            _name(f"{rest} more are missing here: -o json names them")

    # -- what there is ------------------------------------------------------------------------------------------------

    def rows(
        self, rows: Rows, classic: Lines, *, table: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    ) -> int:
        """Print a list of objects. :returns: the exit code.

        :param table: what of a row stands in a table, where all of it is too much.
        """
        self._shown = bool(rows)
        if self.classic:
            self._lines(classic())
        elif self.form == "table":
            self._lines(as_table(rows if table is None else [table(row) for row in rows]))
        else:
            self._machine(rows + [{"missing": name, "why": why} for name, why in sorted(self.missing.items())])
        self.complain()
        return self.code

    def names(self, names: list[str], classic: Lines | None = None) -> int:
        """Print a list of texts, a line each. :returns: the exit code."""
        if self.form in ("classic", "table"):
            self._lines(names if classic is None else classic())
        elif self.form in ("json", "yaml"):
            self._machine(names)
        else:
            self._machine([{"name": name} for name in names])
        self.complain()
        return self.code

    def value(self, value: dict[str, Any], classic: Lines, *, key: str | None = None, table: Rows | None = None) -> int:
        """Print one object. :returns: the exit code.

        :param key: a table and CSV are made of the rows that stand there.
        :param table: the rows of a table, where others are easier to read.
        """
        if self.classic:
            self._lines(classic())
        elif self.form == "table":
            rows = value[key] if table is None and key is not None else table
            self._lines(_pairs(value) if rows is None else as_table(rows))
        elif self.form == "csv" and key is not None:
            self._machine(value[key])
        else:
            self._machine({**value, "missing": self.missing} if self.missing else value)
        self.complain()
        return self.code

    def done(self, value: dict[str, Any], lines: Iterable[str]) -> int:
        """Say what was done. :returns: the exit code."""
        if self.form in ("classic", "table"):
            self._lines(lines)
        else:
            self._machine({**value, "missing": self.missing} if self.missing else value)
        self.complain()
        return self.code

    @contextmanager
    def stream(self) -> Iterator[Callable[[dict[str, Any] | None, str | None], None]]:
        """Print rows as they come: ``put(row, line)``; either may be None, where a form has nothing there."""
        count = 0
        kept: Rows = []

        def put(row: dict[str, Any] | None, line: str | None) -> None:
            nonlocal count
            if self.form in ("classic", "table"):
                if line is not None:
                    click.echo(line)
                return
            if row is None:
                return
            if self.form == "json":
                click.echo(("[\n" if not count else ",\n") + orjson.dumps(row, option=_JSON).decode(), nl=False)
            elif self.form == "ndjson":
                click.echo(orjson.dumps(row, option=_JSON).decode())
            else:
                kept.append(row)
            count += 1

        yield put
        for name, why in sorted(self.missing.items()):
            put({"missing": name, "why": why}, None)
        if self.form == "json":
            click.echo("\n]" if count else "[]")
        elif self.form in ("yaml", "csv"):
            self._machine(kept)
        self.complain()

    # -- forms --------------------------------------------------------------------------------------------------------

    def _lines(self, lines: Iterable[str]) -> None:
        text = "\n".join(lines)
        if text:
            click.echo(text)

    def _machine(self, value: Any) -> None:
        if self.form == "yaml":
            import yaml

            plain_value = orjson.loads(orjson.dumps(value, option=_JSON))
            click.echo(yaml.safe_dump(plain_value, allow_unicode=True, sort_keys=False), nl=False)
        elif self.form == "csv":
            click.echo(_csv(value if isinstance(value, list) else [value]), nl=False)
        elif self.form == "ndjson":
            for one in value if isinstance(value, list) else [value]:
                click.echo(orjson.dumps(one, option=_JSON).decode())
        else:
            print_json(value)


def _shown(name: str, value: Any) -> str:
    """As people read it: a time as one."""
    if isinstance(value, int) and name.lower().endswith("timestamp"):
        return seconds(value) if value > 0 else ""
    return plain(_cell(value))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, (str, int)):
        return str(value)
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ", ".join(value)
    return orjson.dumps(value, option=_JSON).decode()


def as_table(rows: Rows) -> Iterator[str]:
    """Numbers to the right, texts to the left."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[_shown(name, row.get(name)) for name in names] for row in rows]
    widths = [max(len(name), *(width(line[at]) for line in cells)) for at, name in enumerate(names)]
    right = [
        all(isinstance(row.get(name), (int, float)) and row.get(name) is not True for row in rows) for name in names
    ]
    for line in [names, *cells] if rows else ():
        row = (" " * (room - width(cell)) + cell if to_right else cell + " " * (room - width(cell))
               for cell, room, to_right in zip(line, widths, right, strict=True))  # fmt: skip
        yield "  ".join(row).rstrip()


def _pairs(value: Mapping[str, Any]) -> Iterator[str]:
    room = max((len(str(name)) for name in value), default=0)
    for name, one in value.items():
        yield f"{name:<{room}}  {_shown(str(name), one)}".rstrip()


def _csv(rows: Rows) -> str:
    import csv

    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(str(name) for row in rows for name in row)), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({str(name): _exact(value) for name, value in row.items()})
    return text.getvalue()


def _exact(value: Any) -> str:
    return repr(value) if isinstance(value, float) else _cell(value)
