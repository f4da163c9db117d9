"""A page of the manual: blocks of a terminal, which are run, and options of commands, which are written.

A comment ``<!-- scene: NAME -->`` begins a cluster of its own (``scenes.py``) for the blocks behind it. In a block
``console`` a line ``$ words`` is typed, and what stands under it is what it prints. A comment
``<!-- options: COMMAND -->`` stands before the options of a command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import click

from rmq.cli.mqadmin import session
from rmq.cli.mqadmin.commands import COMMANDS, root
from tests.support.manual.scenes import SCENES, staged
from tests.support.manual.shell import Shell

__all__ = ["FOLDER", "PAGES", "commands_of", "documented", "run", "shared", "typed"]

FOLDER = Path(__file__).parents[3] / "docs" / "mqadmin"
PAGES = sorted(FOLDER.glob("*.md"))
_PARTS = re.compile(
    r"<!-- scene: ([\w-]+) -->|<!-- options: (\w+) -->\n```text\n(.*?)```|```console\n(.*?)```", re.DOTALL
)


def run(page: Path, folder: Path) -> str:
    """The text that the page should have: what its commands print now, and the options that there are."""
    with ExitStack() as stack:
        shell: Shell | None = None

        def again(found: re.Match[str]) -> str:
            nonlocal shell
            scene, command, _, lines = found.groups()
            if scene is not None:
                stack.close()
                (folder / scene).mkdir(exist_ok=True)
                shell = stack.enter_context(staged(SCENES[scene], folder / scene))
                return found[0]
            if command is not None:
                return f"<!-- options: {command} -->\n```text\n{options(command)}```"
            assert shell is not None, f"{page.name}: no scene before {lines!r}"
            return f"```console\n{''.join(_shown(shell, [*typed(lines)]))}```"

        return _PARTS.sub(again, page.read_text())


def typed(block: str) -> Iterator[str]:
    """The lines that are typed in a block; a backslash at the end joins the next one."""
    lines = iter(block.splitlines())
    for line in lines:
        if line.startswith("$ "):
            while line.endswith("\\"):
                line += "\n" + next(lines)
            yield line[2:]


def _shown(shell: Shell, lines: list[str]) -> Iterator[str]:
    """A line that fails is followed by one that asks for its exit code."""
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        out = shell.run(line.replace("\\\n", ""))
        assert shell.code == 0 or "echo $?" in (line, after), f"{line}: {shell.code}: {out}"
        yield f"$ {line}\n" + "".join(f"{one.rstrip()}\n" for one in out.splitlines())


def options(command: str) -> str:
    """The own options of a command, as its help has them."""
    found = root.get_command(click.Context(root), command)
    assert found is not None
    with click.Context(found, terminal_width=110, **found.context_settings) as context:
        formatter = context.make_formatter()
        records = [one.get_help_record(context) for one in found.get_params(context) if not _shared(one)]
        own = [record for record in records if record is not None]
        if own:
            formatter.write_dl(own)
        return formatter.getvalue()


def _shared(option: click.Parameter) -> bool:
    """Whether many commands have it: the manual lists those once."""
    return option.name in session._WORDS or option.name == "classic_exit" or "--help" in option.opts


def shared() -> set[str]:
    """The long names of options that many commands have."""
    found = (root.get_command(click.Context(root), name) for name in COMMANDS if name != "store")
    return {one.opts[-1] for command in found if command for one in command.params if _shared(one)}


def documented(page: Path) -> list[str]:
    """The commands whose options a page has."""
    return [found[2] for found in _PARTS.finditer(page.read_text()) if found[2] is not None]


def commands_of(page: Path) -> set[str]:
    """The commands that a page runs."""
    lines = [line for found in _PARTS.finditer(page.read_text()) if found[4] for line in typed(found[4])]
    return {words[1] for line in lines if (words := line.split())[0] == "mqadmin"}
