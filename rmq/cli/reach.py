"""Which cluster a command speaks to, and as whom: what was typed, a context, the environment.

==========================  =======================================================================
``-n``                      these name servers, with the environment's account or conf/tools.yml
``--context``               the context of this name, with its own account or the environment's
``RMQ_CONTEXT``             the same
``NAMESRV_ADDR``            as ``-n`` (``ROCKETMQ_NAMESRV_DOMAIN``: an address server that knows them)
the current context         of ``rmq context use``
==========================  =======================================================================

The first of them that is there decides alone: a context's account never goes to name servers that are not its own.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from rmq.cli.command import Refused
from rmq.protocol.errors import ConfigError
from rmq.runtime.world import World

if TYPE_CHECKING:
    from rmq.cli.contexts.file import Context

__all__ = ["as_whom", "cluster_words", "reach"]

_ENVIRONMENT = ("NAMESRV_ADDR", "ROCKETMQ_NAMESRV_DOMAIN")


def reach(namesrv: str | None, context: str | None, credentials: str | None) -> dict[str, Any]:
    """The arguments of a client: name servers and its file of credentials, those that are to be given.

    :raises click.UsageError: nothing says which cluster is meant, or two things do.
    :raises Refused: the file of contexts is not right, or has no such context.
    """
    named = _named(namesrv, context)
    if named is None:
        return _given(namesrv=namesrv, **as_whom(credentials))
    found = named[1]
    own = {"credentials_file": found.credentials} if found.credentials and credentials is None else None
    return _given(namesrv=found.namesrv, **(own or as_whom(credentials)))


def cluster_words(namesrv: str | None, context: str | None) -> list[str]:
    """Options that mean the same cluster in another shell, too; none where variables alone say which it is.

    :raises click.UsageError: as :func:`reach`. :raises Refused: likewise.
    """
    named = _named(namesrv, context)
    if named is None:
        return ["-n", namesrv] if namesrv else []
    return ["--context", named[0]]


def _named(namesrv: str | None, context: str | None) -> tuple[str, Context] | None:
    """The context that is meant, and its name; None: the option, or a variable, says the name servers."""
    if namesrv and context:
        raise click.UsageError("give name servers with -n or a context with --context, not both")
    name = context or ("" if namesrv else os.environ.get("RMQ_CONTEXT", ""))
    if namesrv or (not name and any(os.environ.get(one) for one in _ENVIRONMENT)):
        return None
    from rmq.cli.contexts.file import path_of_contexts, read_contexts

    try:
        contexts = read_contexts(World.around().files, path_of_contexts())
        name = name or contexts.current or ""
        if not name:
            raise click.UsageError(
                "no name server: give one with -n host:port, or set NAMESRV_ADDR, or choose one with rmq context",
                click.get_current_context(silent=True),
            )
        return name, contexts.named_as(name)
    except ConfigError as error:
        raise Refused(str(error)) from None


def as_whom(credentials: str | None) -> dict[str, str]:
    """The file that is named, else the environment's account, else that of Java's tools, if it is there."""
    if credentials is not None:
        return {"credentials_file": credentials}
    named = ("ROCKETMQ_ACCESS_KEY", "ROCKETMQ_CREDENTIALS_FILE")
    if any(os.environ.get(name) for name in named) or not (home := os.environ.get("ROCKETMQ_HOME")):
        return {}
    path = os.path.join(home, "conf", "tools.yml")
    return {"credentials_file": path} if os.path.exists(path) else {}


def _given(**options: str | None) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value}
