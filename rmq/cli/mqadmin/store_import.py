"""``store import-dledger``: a plain store of what members of a Java DLedger group have.

====  =====================================================================
0     everything that was to be taken is in the new store
1     the new store is made, and lacks entries that are damaged or missing
2     nothing was made: no DLedger log, in use, no room, nobody said yes
====  =====================================================================
"""

from __future__ import annotations

import dataclasses
import os
import sys

import click

from rmq.broker.store.settings import QUEUE_FILE_SIZE, StoreSettings
from rmq.broker.store.stopped.dledger_import import Imported, import_log
from rmq.broker.store.stopped.dledger_plan import Member, Plan, look
from rmq.cli.command import FAILED, Refused, agrees
from rmq.cli.mqadmin.output import print_json
from rmq.cli.mqadmin.store_command import store_command
from rmq.cli.mqadmin.text import plain
from rmq.cli.progress import Bar
from rmq.protocol.errors import StoreError
from rmq.runtime.world import World

__all__ = ["import_store"]

#: Damaged places in the output; more are counted.
_SHOWN = 100


@store_command(
    "import-dledger",
    click.argument("roots", nargs=-1, required=True, metavar="DIR..."),
    click.option("--members", "members", type=click.IntRange(1), metavar="N", help="How many the group has."),
    click.option("--everything", "everything", is_flag=True, help="Take what may not have been committed, too."),
    click.option("--data", "data", metavar="DIR", help="Its storePathDLedgerCommitLog, where that is set."),
    click.option("--dry-run", "dry_run", is_flag=True, help="Say what would be done, and do nothing."),
    click.option("--yes", "yes", is_flag=True, help="Do not ask."),
)
async def import_store(
    world: World,
    settings: StoreSettings,
    roots: tuple[str, ...],
    members: int | None,
    everything: bool,
    data: str | None,
    dry_run: bool,
    yes: bool,
    json: bool,
) -> int:
    """Make a plain store, -s, of the storePathRootDir of one stopped broker of a Java DLedger group, or of several.

    Messages keep topic, queue and queue offset, groups keep their progress, and message ids change. DIR stays as it is.
    Give more than half of the members, and --members, to have everything that was acknowledged: a single one tells
    what its checkpoint says, which is up to three seconds old after a kill. Shows first what it would do, and asks.
    """
    if data is not None and len(roots) > 1:
        raise click.UsageError("--data is for one DIR alone", click.get_current_context())
    if members is not None and len(roots) > members:
        raise click.UsageError(f"--members {members}: {len(roots)} are given", click.get_current_context())
    plan = await world.offload(_look, world, roots, settings, members, everything, data)
    if dry_run or not json:
        print_json(_plan_json(settings, plan)) if json else _print_plan(settings, plan)
    if dry_run:
        return 0
    if not yes and not (sys.stdin.isatty() and agrees()):
        raise Refused("nothing was made; --yes does it")
    with Bar() as bar:
        done = await import_log(world, plan, settings, bar)
    print_json(_done_json(plan, done)) if json else _print_done(plan, done)
    return 0 if done.whole else FAILED


def _look(
    world: World,
    roots: tuple[str, ...],
    settings: StoreSettings,
    members: int | None,
    everything: bool,
    data: str | None,
) -> Plan:
    absolute = [os.path.abspath(root) for root in roots]
    if len(set(absolute)) < len(absolute):
        raise StoreError("one DIR is given twice: each is another member's")
    where = None if data is None else os.path.abspath(data)
    return look(world.files, absolute, settings.root, members=members, everything=everything, data=where)


def _print_plan(settings: StoreSettings, plan: Plan) -> None:
    for member in (plan.member, *plan.others):
        click.echo(_member_line(member))
    taken = (
        f"entries {plan.member.first} to {plan.upto} ({plan.entries})" if plan.entries else "no entry: there is none"
    )
    click.echo(f"taken: {taken} of {plain(plan.member.root)}: {plan.why}")
    if plan.left_out:
        click.echo(
            f"left out: the {plan.left_out} entries behind that, of which nobody here knows whether they were "
            "committed; give more of the members, with --members, or take them with --everything"
        )
    if plan.config != plan.member.root:
        click.echo(f"topics, groups and their progress: of {plain(plan.config)}, which are the newest")
    topics = "topics.json cannot be read" if plan.topics is None else f"{plan.topics} topics"
    click.echo(
        f"new store: {plain(settings.root)}, {topics}; it may need {plan.needed >> 20} MiB, {plan.free >> 20} MiB are "
        "free there"
    )


def _member_line(member: Member) -> str:
    entries = "no entries" if member.first < 0 else f"entries {member.first} to {member.last}, term {member.term}"
    committed = "unknown" if member.committed is None else member.committed
    return f"{plain(member.root)}: {entries}; committed: {committed}; {member.file_size} bytes a file"


def _print_done(plan: Plan, done: Imported) -> None:
    made = done.rebuilt
    sizes = f"mappedFileSizeCommitLog={done.file_size}"
    if done.queue_file_size != QUEUE_FILE_SIZE:
        sizes += f" and mappedFileSizeConsumeQueue={done.queue_file_size}"
    queues = f"; {made.queues} queues with {made.entries} entries" if made is not None else ""
    click.echo(
        f"{plain(done.root)}: {done.messages} messages, commit log {done.log_start} to {done.log_end}{queues}; start a "
        f"broker on it with {sizes}"
    )
    if done.from_others:
        click.echo(f"note     {done.from_others} entries are damaged there, and came from another member")
    if done.torn is not None and plan.upto >= plan.member.last:
        click.echo(f"note     behind the last entry, at {done.torn[0]}, lies something that is none: {done.torn[1]}")
    for topic, count in sorted(done.deleted.items()):
        click.echo(f"note     {count} messages of topic {plain(topic)}, which was deleted, are in no queue")
    for lost in done.lost[:_SHOWN]:
        entries = f"entries {lost.first} to {lost.end - 1}" if lost.end - lost.first != 1 else f"entry {lost.first}"
        click.echo(f"DAMAGED  {plain(lost.path)} at {lost.position}: {lost.why}; left out: {entries}")
    for start, end in done.damages[:_SHOWN]:
        click.echo(
            f"DAMAGED  commitlog {start} to {end - 1}: what stands beside the body is not what was stored; the message "
            "is in no queue"
        )
    if len(done.lost) > _SHOWN:
        click.echo(f"and {len(done.lost) - _SHOWN} more like these")


def _plan_json(settings: StoreSettings, plan: Plan) -> dict[str, object]:
    return {
        "root": settings.root,
        "members": [
            {key: value for key, value in dataclasses.asdict(member).items() if value is not None}
            for member in (plan.member, *plan.others)
        ],
        "from": plan.member.root,
        "config": plan.config,
        "upto": plan.upto,
        "why": plan.why,
        "entries": plan.entries,
        "leftOut": plan.left_out,
        "needed": plan.needed,
        "free": plan.free,
    }


def _done_json(plan: Plan, done: Imported) -> dict[str, object]:
    made = done.rebuilt
    return {
        "root": done.root,
        "from": plan.member.root,
        "upto": plan.upto,
        "leftOut": plan.left_out,
        "mappedFileSizeCommitLog": done.file_size,
        "mappedFileSizeConsumeQueue": done.queue_file_size,
        "messages": done.messages,
        "commitLog": {"start": done.log_start, "end": done.log_end},
        "queues": 0 if made is None else made.queues,
        "entries": 0 if made is None else made.entries,
        "fromOthers": done.from_others,
        "deleted": dict(done.deleted),
        "lost": [lost._asdict() for lost in done.lost],
        "damages": [{"start": start, "end": end} for start, end in done.damages],
    }
