"""cleanExpiredCQ, deleteExpiredCommitLog, cleanUnusedTopic (mqadmin.md B.1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import click

from rmq.cli.mqadmin.session import AdminClient, Output, admin_command, at_each, targets_of

__all__ = ["clean_expired_cq", "clean_unused_topic", "delete_expired_commit_log"]


def _where(function: Any) -> Any:
    """Java's long name of ``-c`` is another one here."""
    function = click.option("-c", "--cluster", "cluster", metavar="NAME", help="Every master of this cluster.")(
        function
    )
    return click.option(
        "-b", "--brokerAddr", "broker", metavar="ADDR", help="This broker, host:port; with neither every master."
    )(function)


async def _each(
    admin: AdminClient,
    out: Output,
    broker: str | None,
    cluster: str | None,
    what: str,
    clean: Callable[[str], Awaitable[None]],
) -> int:
    """Every broker at once: each has its own disk, and one that stands still keeps no other from it.

    Cleaning may take its time, so that a broker which answers nothing at all is found by something small.
    """

    async def awake(address: str) -> None:
        await admin.broker_runtime_stats(address)
        await clean(address)

    done = await at_each(what, await targets_of(admin, out, broker, cluster), awake)
    return out.done({"brokers": [*done]}, ["success"])


@admin_command("cleanExpiredCQ", _where)
async def clean_expired_cq(admin: AdminClient, out: Output, broker: str | None, cluster: str | None) -> int:
    """Delete queue files of which every message has expired."""
    return await _each(admin, out, broker, cluster, "clean queues", admin.clean_expired_consume_queue)


@admin_command("deleteExpiredCommitLog", _where)
async def delete_expired_commit_log(admin: AdminClient, out: Output, broker: str | None, cluster: str | None) -> int:
    """Delete commit log files that have expired, whatever the hour is."""
    return await _each(admin, out, broker, cluster, "delete files", admin.delete_expired_commit_log)


@admin_command("cleanUnusedTopic", _where)
async def clean_unused_topic(admin: AdminClient, out: Output, broker: str | None, cluster: str | None) -> int:
    """Delete the queues of topics that a broker does not have any more."""
    return await _each(admin, out, broker, cluster, "clean topics", admin.clean_unused_topic)
