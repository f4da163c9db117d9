"""The switches of Java's benchmark scripts: ``-threadCount 8``, ``-k true``, ``-ak NAME -sk SECRET``, ``-ri 500``.

What Java's tools take as ``true`` or ``false`` is a flag here; the word behind it is taken, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import click

from rmq.cli.mqadmin.grammar import AdminCommand

__all__ = ["BenchCommand", "account_switches", "delay_of", "send_switches"]

#: Long names of Java's -> ours.
_NAMES = {
    "threadCount": "--threads", "messageSize": "--size", "keyEnable": "--keys", "tagCount": "--tags",
    "msgTraceEnable": "--trace", "messageQuantity": "--quantity", "delayLevel": "--delay-level",
    "namesrvAddr": "--namesrv", "batchSize": "--batch", "failRate": "--fail-rate",
}  # fmt: skip
#: Flags of ours that take true or false in Java's scripts.
_FLAGS = frozenset({"-k", "--keys", "-m", "--trace", "-d", "--delayEnable", "-y", "--asyncEnable", "-a", "--aclEnable"})


class BenchCommand(AdminCommand):
    """A command with long options behind one dash, and flags that may say true or false."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(_flags(args)))


def _flags(args: list[str]) -> Iterator[str]:
    """Without the words behind flags; a flag that is false is none."""
    at = 0
    while at < len(args):
        word = _ours(args[at])
        said = args[at + 1].lower() if word in _FLAGS and at + 1 < len(args) else ""
        if said not in ("true", "false"):
            yield word
            at += 1
            continue
        if said == "true":
            yield word
        at += 2


def _ours(word: str) -> str:
    """A word of Java's scripts as this command's."""
    if not word.startswith("-"):
        return word
    name, joined, value = word.partition("=")
    bare = name.lstrip("-")
    if bare in ("delayEnable", "asyncEnable", "aclEnable"):
        return f"--{bare}{joined}{value}"
    return _NAMES.get(bare, name) + joined + value


def account_switches(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds ``-a``, ``-ak`` and ``-sk``."""
    for option in (
        click.option("--sk", "--secretKey", "secret_key", hidden=True),
        click.option("--ak", "--accessKey", "access_key", hidden=True),
        click.option("-a", "--aclEnable", "acl", is_flag=True, hidden=True, expose_value=False),
    ):
        function = option(function)
    return function


def send_switches(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds ``-d`` and ``-y``; calls are under way side by side with or without the latter."""
    for option in (
        click.option("-y", "--asyncEnable", "many", is_flag=True, hidden=True, expose_value=False),
        click.option("-d", "--delayEnable", "delayed", is_flag=True, hidden=True),
    ):
        function = option(function)
    return function


def delay_of(delayed: bool, level: int) -> int:
    """The delay level: Java's scripts have the first where none is given."""
    return level or (1 if delayed else 0)
