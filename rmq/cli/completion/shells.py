"""What a shell asks and how it is answered. The shell runs the program with ``_RMQ_COMPLETE=bash_complete`` and the
words that were typed; what is printed are the words that could stand there.

Commands are listed without loading their modules, long options are known with one dash, and nothing that goes wrong is
printed into somebody's line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import click
from click import shell_completion
from click.shell_completion import CompletionItem, ShellComplete

__all__ = ["SHELLS", "script"]


class _Answering(ShellComplete):
    """What is the same for every shell."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[Any]]:
        from rmq.cli.completion.names import names_for

        try:
            ctx = shell_completion._resolve_context(self.cli, self.ctx_args, self.prog_name, args)
            asked, incomplete = shell_completion._resolve_incomplete(ctx, _two_dashes(ctx, args), incomplete)
            if isinstance(asked, click.Parameter):
                names = names_for(ctx, asked, incomplete)
                if names is not None:
                    return [CompletionItem(name) for name in names]
            purposes: Mapping[str, str] | None = getattr(asked, "purposes", None)
            if purposes is not None and not incomplete.startswith("-"):
                begun = incomplete.lower()
                return [CompletionItem(name, help=what) for name, what in purposes.items()
                        if name.lower().startswith(begun)]  # fmt: skip
            return asked.shell_complete(ctx, incomplete)
        except click.ClickException:
            return []  # a line that is wrong before the place where somebody types has no completions


def _two_dashes(ctx: click.Context, args: list[str]) -> list[str]:
    known = {name for one in ctx.command.get_params(ctx) for name in one.opts}
    return [f"-{word}" if word not in known and f"-{word}" in known else word for word in args]


def _open_quote(line: str) -> str:
    """The quote that is open at the end of a line; empty: none is."""
    quote = ""
    signs = iter(line)
    for sign in signs:
        if sign == "\\" and quote != "'":
            next(signs, "")
        elif sign == quote:
            quote = ""
        elif not quote and sign in "'\"":
            quote = sign
    return quote


_BASH = """\
%(complete_func)s() {
    local answer line="${COMP_LINE:0:COMP_POINT}"
    COMPREPLY=()
    while IFS= read -r answer; do
        case "$answer" in
            dir,*) compopt -o dirnames ;;
            file,*) compopt -o default ;;
            plain,*) COMPREPLY+=("${answer#plain,}") ;;
        esac
    done < <(RMQ_COMP_LINE="$line" RMQ_COMP_BREAKS="$COMP_WORDBREAKS" %(complete_var)s=bash_complete "$1")
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


#: What needs a backslash in a line of bash, outside of quotes.
_HARMFUL = re.compile(r"[^\w@%+=:,./-]")
#: What cannot stand in quotes of a kind without ending them, or meaning something.
_ACTIVE = {"'": "'", '"': '"\\$`!'}


class _Bash(_Answering, shell_completion.BashComplete):
    """Gets the line, not bash's words: those are cut at the colons of addresses.

    Gives words as they are to be typed: bash puts them into the line unquoted, and a topic may be called ``a|reboot``.
    """

    source_template = _BASH

    def source(self) -> str:
        return ShellComplete.source(self)

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ.get("RMQ_COMP_LINE", "")
        words = shell_completion.split_arg_string(line)
        incomplete = words.pop() if words and not line[-1:].isspace() else ""
        self._quote = _open_quote(line)
        breaks = os.environ.get("RMQ_COMP_BREAKS", "")
        #: What stands before the word that bash will replace.
        self._before = max((incomplete.rfind(one) + 1 for one in ":" if one in breaks), default=0)
        return words[1:], incomplete

    def format_completion(self, item: CompletionItem[Any]) -> str:
        if item.type != "plain":
            return f"{item.type},{item.value}"
        value = item.value[self._before :]
        if not self._quote:
            return f"plain,{_HARMFUL.sub(lambda found: chr(92) + found[0], value)}"
        return "none," if any(one in _ACTIVE[self._quote] for one in value) else f"plain,{value}"


class _Zsh(_Answering, shell_completion.ZshComplete):
    pass


class _Fish(_Answering, shell_completion.FishComplete):
    pass


SHELLS: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}
for _name, _class in SHELLS.items():
    shell_completion.add_completion_class(_class, _name)


def script(shell: str, programs: list[str]) -> str:
    """What a shell has to read to ask these programs."""
    made = [SHELLS[shell](click.Command(name), {}, name, f"_{name.upper()}_COMPLETE").source() for name in programs]
    return "\n".join(made)
