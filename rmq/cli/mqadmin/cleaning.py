"""cleanExpiredCQ, deleteExpiredCommitLog, cleanUnusedTopic (mqadmin.md B.1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import click

from rmq.cli.mqadmin.session import AdminClient, Output, admin_command, so_far, targets_of
from rmq.protocol.errors import RMQError

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
    """One after the other: cleaning is work for disks."""
    done: list[str] = []
    for address in await targets_of(admin, out, broker, cluster):
        try:
            await clean(address)
        except RMQError as error:
            raise so_far(what, done, address, error) from error
        done.append(address)
    return out.done({"brokers": done}, ["success"])


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
