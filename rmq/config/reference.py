"""The reference page of settings, made from the tables themselves."""

from __future__ import annotations

from enum import Enum

from rmq.config import values
from rmq.config.settings import INT_MAX, LONG_MAX, Setting, Settings
from rmq.config.sources import environment_name

__all__ = ["reference"]


def reference(kind: type[Settings], title: str) -> str:
    """A Markdown page with a table of every key and a list of those that are known and without effect.

    :param title: the page's heading.
    """
    rows = [
        f"| `{line.key}` | {_type(line)} | {_default(line)} | {line.unit} | {'yes' if line.live else ''} "
        f"| `{environment_name(kind.env_prefix, line.key)}` | {_cell(line.doc)} |"
        for line in kind.lines()
    ]
    page = [
        f"# {title}",
        "",
        "Keys are RocketMQ's. They are read from a `.properties` or YAML file (`-c`); a variable wins over the file,",
        "the command line over both. *Live* keys can be changed while running",
        "(updateBrokerConfig, updateNamesrvConfig). A value outside its range is refused; where Java starts with it,",
        "the daemon here does, too: it uses the nearest end of the range and says so in the log.",
        "",
        "| Key | Type | Default | Unit | Live | Variable | Meaning |",
        "|---|---|---|---|---|---|---|",
        *rows,
    ]
    if kind.inert:
        page += ["", "## Known keys without effect", "", "| Key | Why |", "|---|---|"]
        page += [f"| `{key}` | {_cell(why)} |" for key, why in kind.inert.items()]
    return "\n".join(page) + "\n"


def _type(line: Setting) -> str:
    if issubclass(line.kind, Enum):
        return ", ".join(member.name for member in line.kind)
    return {str: "text", int: "int", float: "number", bool: "bool"}[line.kind] + _range(line)


def _range(line: Setting) -> str:
    """The narrower of both ranges; the ends of Java's own types are no news."""
    low = line.minimum if line.lowest is None else line.lowest
    high = line.maximum if line.highest is None else line.highest
    if high in (INT_MAX, LONG_MAX):
        high = None
    if low is None or high is None:
        return "" if low is None and high is None else f", from {low:.15g}" if high is None else f", to {high:.15g}"
    return f", {low:.15g} to {high:.15g}"


def _default(line: Setting) -> str:
    return "" if line.default is None or line.default == "" else f"`{_cell(values.text(line.default))}`"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
