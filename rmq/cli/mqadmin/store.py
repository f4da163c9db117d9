"""``store verify``, ``dump``, ``rebuild`` and ``truncate``: tools for the store of a broker that does not run.

====  =====================================================================
0     nothing is damaged; everything was printed or made
1     something is damaged, or the disk does not give it (rebuild: of the
      commit log; the rest is made; dump: the rest is printed)
2     it could not be looked at: no store, in use, no permission, wrong use
      (truncate: or nothing was changed, because nobody has said yes)
====  =====================================================================
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import click
import orjson

from rmq.auth.credentials import Signer
from rmq.broker.raft.found import committed, is_members
from rmq.broker.schedule.timing import may_have
from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.stopped import cutting
from rmq.broker.store.stopped import dump as dumps
from rmq.broker.store.stopped.findings import Finding
from rmq.broker.store.stopped.rebuild import rebuild
from rmq.broker.store.stopped.shared_end import shared_end
from rmq.broker.store.stopped.stopped_store import StoppedStore
from rmq.broker.store.stopped.verify import Verified, verify
from rmq.cli.command import FAILED, Refused, agrees
from rmq.cli.mqadmin import store_import
from rmq.cli.mqadmin.output import print_json
from rmq.cli.mqadmin.store_command import store, store_command
from rmq.cli.mqadmin.text import address, plain, stamp
from rmq.cli.progress import Bar
from rmq.client.account import access_of
from rmq.client.settings import AdminSettings
from rmq.protocol.bodies.kv import KVTable
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ProtocolError, ResponseError, StoreError
from rmq.protocol.headers.message import ViewMessageRequest
from rmq.protocol.message import MessageRecord
from rmq.protocol.names import TIMER_TOPIC
from rmq.remoting.client import RemotingClient
from rmq.runtime.world import World

__all__ = ["store"]

store.add_command(store_import.import_store)

# -- verify ------------------------------------------------------------------------------------------------------------


@store_command("verify")
async def verify_store(world: World, settings: StoreSettings, json: bool) -> int:
    """Look for damage. Exit code 0: none, 1: some, 2: the store cannot be looked at. Changes nothing."""
    async with StoppedStore(world, settings) as opened:
        with Bar() as bar:
            found = await verify(opened, bar, {TIMER_TOPIC: may_have}, committed(world.files, settings.root))
    if json:
        print_json(_verified_json(settings, found))
    else:
        _print_verified(settings, found)
    return 0 if found.clean else FAILED


def _verified_json(settings: StoreSettings, found: Verified) -> dict[str, object]:
    return {
        "root": settings.root,
        "clean": found.clean,
        "damaged": found.findings.damaged,
        "commitLog": {"start": found.log_start, "end": found.log_end, "records": found.records},
        "consumeQueue": {"queues": found.queues, "entries": found.entries},
        "index": {"files": found.index_files, "entries": found.keys},
        "damages": [_finding_json(finding) for finding in found.findings.damages],
        "notes": [_finding_json(finding) for finding in found.findings.notes],
        "dropped": found.findings.dropped,
    }


def _finding_json(finding: Finding) -> dict[str, object]:
    return {key: _unicode(value) if isinstance(value, str) else value for key, value in finding.as_json().items()}


def _unicode(name: str) -> str:
    """A name as text: bytes of it that are no UTF-8 are shown by their numbers."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _plain(text: str) -> str:
    """The same on one line and harmless to a terminal: names and properties may hold anything."""
    return plain(_unicode(text))


def _print_verified(settings: StoreSettings, found: Verified) -> None:
    click.echo(
        f"{settings.root}: commit log {found.log_start} to {found.log_end}, {found.records} records; "
        f"{found.queues} queues, {found.entries} entries; {found.index_files} index files, {found.keys} entries"
    )
    for finding in found.findings.notes:
        click.echo(_line("note", finding))
    for finding in found.findings.damages:
        click.echo(_line("DAMAGED", finding))
    if found.findings.dropped:
        click.echo(f"and {found.findings.dropped} more like these")
    if found.clean:
        click.echo("nothing is damaged")
        return
    click.echo(f"{found.findings.damaged} damaged")
    if any(one.part in ("consumequeue", "consumequeue_ext", "index", "checkpoint") for one in found.findings.damages):
        click.echo("queues, index and checkpoint are made anew by: mqadmin store rebuild")


def _line(word: str, finding: Finding) -> str:
    where = "" if finding.start is None else f" {finding.start}"
    if finding.end is not None and finding.start is not None and finding.end > finding.start + 1:
        where += f" to {finding.end - 1}"
    return _plain(f"{word:<8} {finding.part:<16} {finding.kind:<10} {finding.path}{where}: {finding.detail}")


# -- dump --------------------------------------------------------------------------------------------------------------


@store_command(
    "dump",
    click.argument("what", type=click.Choice(["records", "queue", "index"])),
    click.option("-t", "--topic", "topic", metavar="NAME", help="Only this topic; needed for queue, and with -k."),
    click.option("-q", "--queueId", "queue_id", type=int, metavar="ID", help="Only this queue; needed for queue."),
    click.option("-k", "--msgKey", "key", metavar="KEY", help="Index: only entries with the hash of this key."),
    click.option("--file", "file", metavar="NAME", help="Index: only this file."),
    click.option("--from", "start", type=int, default=0, metavar="N", help="First offset, of the log or of the queue."),
    click.option("--to", "end", type=int, default=dumps.END, metavar="N", help="The offset behind the last one."),
    click.option("-l", "--limit", "limit", type=int, default=-1, metavar="N", help="At most so many lines."),
    click.option("--body", "body", is_flag=True, help="Records: the bodies, too."),
)
async def dump_store(
    world: World,
    settings: StoreSettings,
    what: str,
    topic: str | None,
    queue_id: int | None,
    key: str | None,
    file: str | None,
    start: int,
    end: int,
    limit: int,
    body: bool,
    json: bool,
) -> int:
    """Print records of the commit log, entries of a queue, or entries of the index, a line each. Changes nothing.

    Exit code 0: done, 1: done, but for places that the disk does not give, which standard error names, 2: not done.
    """
    async with StoppedStore(world, settings) as opened:
        unread: list[Finding] = []
        source: AsyncGenerator[Any, None]
        shown: Callable[[Any], str | bytes]
        if what == "records":
            source = dumps.records(opened, start, end, topic, queue_id, unread=unread.append)
            shown = functools.partial(_record_json if json else _record_line, body=body)
            heading = (
                f"{'#Offset':>20} {'#Size':>8} {'#Store Time':<23} {'#QID':>4} {'#Queue Offset':>13} #Topic #MsgId"
            )
        elif what == "queue":
            if topic is None or queue_id is None:
                raise click.UsageError("dump queue needs -t and -q", click.get_current_context())
            source = dumps.queue_entries(opened, topic, queue_id, start, end, unread=unread.append)
            shown = _entry_json if json else _entry_line
            heading = f"{'#Queue Offset':>13} {'#Offset':>20} {'#Size':>8} #Tags Code"
        else:
            if key is not None and topic is None:
                raise click.UsageError("-k needs the topic of the key, with -t", click.get_current_context())
            wanted = (topic, key) if topic is not None and key is not None else None
            source = dumps.index_entries(opened, start, end, file=file, key=wanted, unread=unread.append)
            shown = _index_json if json else _index_line
            heading = f"{'#File':<17} {'#Number':>8} {'#Hash':>10} {'#Offset':>20} {'#Time':<23} #Before"
        async with aclosing(source):  # before the store: it may have a file open when there are lines enough
            await _print(source, shown, None if json else heading, limit)
    for finding in unread:
        click.echo(_line("UNREAD", finding), err=True)
    return FAILED if unread else 0


async def _print(
    items: AsyncIterator[Any], shown: Callable[[Any], str | bytes], heading: str | None, limit: int
) -> None:
    if heading is not None:
        click.echo(heading)
    if limit == 0:
        return
    async for item in items:
        click.echo(shown(item))
        limit -= 1
        if limit == 0:
            return


def _record_line(record: MessageRecord, body: bool) -> str:
    line = (
        f"{record.physical_offset:>20} {record.size:>8} {stamp(record.store_timestamp)} {record.queue_id:>4} "
        f"{record.queue_offset:>13} {_plain(record.topic)} {_plain(record.msg_id)}"
    )
    return f"{line} {_text(record)[0]!r}" if body else line


def _text(record: MessageRecord) -> tuple[str, bool]:
    """The body as its sender gave it, and whether it is text; bytes that are none are base64."""
    try:
        content = record.content()
    except ProtocolError:
        content = record.body
    try:
        return content.decode(), True
    except UnicodeDecodeError:
        return base64.b64encode(content).decode(), False


def _record_json(record: MessageRecord, body: bool) -> bytes:
    shown: dict[str, object] = {
        "offset": record.physical_offset,
        "size": record.size,
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "msgId": record.msg_id,
        "offsetMsgId": record.offset_msg_id,
        "sysFlag": record.sys_flag,
        "flag": record.flag,
        "bornTimestamp": record.born_timestamp,
        "bornHost": address(record.born_host),
        "storeTimestamp": record.store_timestamp,
        "storeHost": address(record.store_host),
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "bodyCRC": record.body_crc,
        "bodySize": len(record.body),
        "properties": record.properties,
    }
    if body:
        text, readable = _text(record)
        shown["body" if readable else "bodyBase64"] = text
    return orjson.dumps(shown)


def _entry_line(entry: dumps.QueueEntry) -> str:
    return f"{entry.queue_offset:>13} {entry.offset:>20} {entry.size:>8} {entry.tags_code}"


def _entry_json(entry: dumps.QueueEntry) -> bytes:
    return orjson.dumps(
        {
            "queueOffset": entry.queue_offset,
            "offset": entry.offset,
            "size": entry.size,
            "tagsCode": entry.tags_code,
        }
    )


def _index_line(entry: dumps.IndexEntry) -> str:
    return f"{entry.file:<17} {entry.number:>8} {entry.hash:>10} {entry.offset:>20} {stamp(entry.time)} {entry.before}"


def _index_json(entry: dumps.IndexEntry) -> bytes:
    return orjson.dumps(entry._asdict())


# -- rebuild -----------------------------------------------------------------------------------------------------------


@store_command("rebuild")
async def rebuild_store(world: World, settings: StoreSettings, json: bool) -> int:
    """Make consume queues, index and checkpoint anew from the commit log, which stays as it is.

    Exit code 0: done, 1: done, and places of the commit log are damaged, lost or not to be read, 2: not done. It can be
    killed at any time.
    """
    with Bar() as bar:
        made = await rebuild(world, settings, bar)
    if json:
        shown = dataclasses.asdict(made)
        damages = [{"start": start, "end": end} for start, end in made.damages]
        unread = [{"start": start, "end": end} for start, end in made.unread]
        names = {
            "log_start": "start",
            "log_end": "end",
            "queues": "queues",
            "entries": "entries",
            "lost": "lost",
            "index_files": "indexFiles",
        }
        print_json(
            {
                "root": settings.root,
                **{names[key]: shown[key] for key in names},
                "damages": damages,
                "unreadable": unread,
            }
        )
    else:
        click.echo(
            f"{settings.root}: made of commit log {made.log_start} to {made.log_end}: {made.queues} queues with "
            f"{made.entries} entries, {made.index_files} index files"
        )
        for start, end in made.damages:
            click.echo(f"DAMAGED  commitlog {start} to {end - 1}: no records; those behind them are kept")
        for start, end in made.unread:
            click.echo(
                f"UNREAD   commitlog {start} to {end - 1}: the disk does not give some of these {end - start} bytes; "
                "queue entries that point there are kept"
            )
        if made.lost:
            click.echo(
                f"DAMAGED  consumequeue  {made.lost} messages that queues had are not in the commit log; their offsets "
                "are given to no others"
            )
    return FAILED if made.damages or made.unread or made.lost else 0


# -- truncate ----------------------------------------------------------------------------------------------------------

_ASK_SECONDS = 10.0


@store_command(
    "truncate",
    click.option("--to-master", "master", metavar="ADDR", help="Cut what this broker, host:port, does not have."),
    click.option("--all", "everything", is_flag=True, help="Empty the store: as a slave it begins anew."),
    click.option("--yes", "yes", is_flag=True, help="Do not ask."),
    click.option("--tls", "tls", is_flag=True, help="Speak TLS with the master (ROCKETMQ_TLS_CA_FILE)."),
)
async def truncate_store(
    world: World, settings: StoreSettings, master: str | None, everything: bool, yes: bool, tls: bool, json: bool
) -> int:
    """Cut the log back to where it is its master's, or empty the store, so that this broker can be that master's slave.

    Shows first what would go, and asks. What goes is kept in a folder below the store, for: mqadmin store dump.
    """
    if (master is None) is not everything:
        raise click.UsageError("give --to-master ADDR or --all, not both", click.get_current_context())
    if not everything and is_members(world.files, settings.root):
        raise Refused(
            f"{settings.root} is the store of a member of a group, which cuts its log itself where that is not the "
            "leader's, and has promised to keep the rest; --all empties it: the member gets everything from the others "
            "then (docs/failover.md)"
        )
    async with StoppedStore(world, settings) as opened:
        with Bar() as bar:
            at = opened.start if master is None else await _parted_at(opened, master, tls=tls)
            going = await cutting.what_goes(opened, at, bar)
    print_json(_going_json(settings, going)) if json else _print_going(settings, going, everything=everything)
    if going.at == going.end and not everything:
        return 0
    if not yes and not (sys.stdin.isatty() and agrees()):
        raise Refused("nothing was changed; --yes does it")
    kept = await (cutting.empty(world, settings) if everything else cutting.cut(world, settings, going))
    dump = f"mqadmin store dump records -s {kept}" + ("" if everything else f" --from {going.at}")
    click.echo(f"done; what was there is kept until you delete it: {dump}", err=json)
    return 0


async def _parted_at(opened: StoppedStore, master: str, *, tls: bool) -> int:
    """Where the log stops being the master's.

    :raises StoreError: it has nothing in common with it.
    """
    access = access_of(AdminSettings.of({"tls": True} if tls else {}), opened.world.files)
    client = RemotingClient(opened.world, tls=access.peer(), name="mqadmin")
    client.signer = Signer(access.account).sign if access.account is not None else None

    async def ask(code: RequestCode, header: ViewMessageRequest | None = None) -> Command:
        return await client.ask(master, Command.request(code, header), _ASK_SECONDS)

    async def record(offset: int) -> bytes | None:
        try:
            return (await ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequest(offset=offset))).body
        except ResponseError:
            return None

    try:
        figures = KVTable.decode((await ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
        start = int(figures.get("commitLogMinOffset", "0"))
        found = await shared_end(opened, record, start)
    finally:
        await client.close()
    if found is None:
        raise StoreError(
            f"{opened.root} has no message in common with {master}, whose log begins at {start}: empty it, with --all"
        )
    return found


def _going_json(settings: StoreSettings, going: cutting.Going) -> dict[str, object]:
    return {
        "root": settings.root,
        "commitLog": {"start": going.start, "end": going.end},
        "from": going.at,
        "records": going.records.total(),
        "oldest": going.oldest,
        "newest": going.newest,
        "queues": [
            {"topic": _unicode(topic), "queueId": queue_id, "records": count}
            for (topic, queue_id), count in sorted(going.records.items())
        ],
    }


def _print_going(settings: StoreSettings, going: cutting.Going, *, everything: bool) -> None:
    if going.at == going.end and not everything:
        click.echo(f"{settings.root}: the log ends at {going.end}, and its master has all of it: nothing is to be cut")
        return
    times = f", stored {stamp(going.oldest)} to {stamp(going.newest)}" if going.records else ""
    click.echo(
        f"{settings.root}: commit log {going.start} to {going.end}; what would go: {going.at} to {going.end}, "
        f"{going.records.total()} messages{times}"
    )
    click.echo(f"{'#Messages':>12} {'#QID':>5} #Topic")
    for (topic, queue_id), count in sorted(going.records.items()):
        click.echo(f"{count:>12} {queue_id:>5} {_plain(topic)}")
