"""The grammar of every command: Java's letters and long names, with one dash or two.

===========================  =================================================
``-t TopicTest``             a letter of Java's
``-tTopicTest``              with its value glued to it
``--topic TopicTest``        the long name; ``--topic=TopicTest`` as well
``-topic TopicTest``         with one dash, as Java's own tool takes it
``--top TopicTest``          two dashes and the beginning of a long name, where no other begins so
===========================  =================================================

Names of commands are taken in any case, those of options as they are written in the help.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator

import click

__all__ = ["AdminCommand"]


#: So alike are a long name and a misspelt one.
_ALIKE = 0.8


class AdminCommand(click.Command):
    """A command that takes its long options with one dash as well, and says which one was meant."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(self._two_dashes(ctx, args)))

    def _two_dashes(self, ctx: click.Context, args: list[str]) -> Iterator[str]:
        """The same words, long options as click knows them.

        :raises click.UsageError: a word is no option, and looks like one.
        """
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        takes_value = {name: not one.is_flag for one in options for name in (*one.opts, *one.secondary_opts)}
        rest = iter(args)
        for word in rest:
            if word == "--":
                yield word
                yield from rest
                return
            name, joined, value = word.partition("=")
            if name.startswith("-") and len(name) > 2:
                name = _option(ctx, name, takes_value)
            yield name + joined + value
            if takes_value.get(name) and not joined:
                yield from _next(rest)


def _next(rest: Iterator[str]) -> Iterator[str]:
    """The value of an option, whatever it looks like; click says when there is none."""
    for word in rest:
        yield word
        return


def _option(ctx: click.Context, word: str, known: Collection[str]) -> str:
    """The long option that a word means, or the word itself: a letter with its value.

    :raises click.UsageError: it is neither.
    """
    wanted = "--" + word.lstrip("-")
    if wanted in known:
        return wanted
    names = [name for name in known if name.startswith("--")]
    near = difflib.get_close_matches(wanted, names, 1, _ALIKE)
    if word.startswith("--"):
        begun = [name for name in names if name.startswith(wanted)]
        if len(begun) == 1:
            return begun[0]
        near = begun or near or difflib.get_close_matches(wanted, names, 1, 0.5)
    elif word[:2] in known and not near:
        return word
    meant = f": did you mean {' or '.join(near)}?" if near else ""
    raise click.UsageError(f"there is no option {word}{meant}", ctx)
