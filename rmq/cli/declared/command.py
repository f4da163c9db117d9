"""The commands ``rmq apply``, ``rmq diff`` and ``rmq export``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Container, Iterable
from dataclasses import replace
from typing import Any

import click

from rmq.cli.command import Refused, agrees, is_quiet, tell
from rmq.cli.declared.document import MOST_BYTES, Declared, parse_declared
from rmq.cli.declared.plan import State, Step, exported, steps_of
from rmq.cli.given_file import STDIN, GivenFile, GivenFileType
from rmq.cli.mqadmin.absent import departed, known_elsewhere, ordered_elsewhere
from rmq.cli.mqadmin.careful import Care
from rmq.cli.mqadmin.failures import REFUSED, NotFound, Partial
from rmq.cli.mqadmin.recorder import Recorder
from rmq.cli.mqadmin.session import AdminClient, Output, admin_command
from rmq.cli.mqadmin.undo import undo_of
from rmq.client.admin.nameservers import ORDER_TOPIC_CONFIG
from rmq.protocol.bodies.group import SubscriptionGroupConfig
from rmq.protocol.errors import ConfigError, RMQError

__all__ = ["apply", "diff", "export"]

_file = click.option("-f", "--file", "file", type=GivenFileType(MOST_BYTES), required=True, metavar="FILE",
                     help="What the cluster is to have, YAML; -: stdin.")  # fmt: skip
_cluster = click.option("-c", "--clusterName", "cluster", metavar="NAME", help="Needed where there are several.")
_prune = click.option("--prune", is_flag=True, help="Delete what the file's sections do not name, too.")


@admin_command("diff", _file, _cluster, _prune)
async def diff(admin: AdminClient, out: Output, file: GivenFile, cluster: str | None, prune: bool) -> int:
    """Say in what a cluster differs from a file; the exit code is 1 where it does."""
    steps, _ = await _plan(admin, file, cluster, prune)
    out.done({"changes": [step.table() for step in steps]}, _lines(steps))
    return REFUSED if steps else 0


@admin_command(
    "apply",
    _file,
    _cluster,
    _prune,
    click.option("--dry-run", "only_say", is_flag=True, help="Say what would change, and change nothing."),
    click.option("--yes", "agreed", is_flag=True, help="Do not ask; needed where no terminal can be asked."),
    click.option("--undo", "notes", metavar="FILE", envvar="MQADMIN_UNDO",
                 help="Write the commands that take it back before what is in FILE.  [MQADMIN_UNDO]"),
)  # fmt: skip
async def apply(
    admin: AdminClient, out: Output, file: GivenFile, cluster: str | None, prune: bool, only_say: bool, agreed: bool,
    notes: str | None,
) -> int:  # fmt: skip
    """Give a cluster the topics, groups and key-value entries of a file; what the file does not name stays.

    The plan is shown first. The first change that fails ends it: what was done before stays, and the same command goes
    on from there.
    """
    steps, state = await _plan(admin, file, cluster, prune)
    if only_say or not steps:
        return out.done({"changes": [step.table() for step in steps], "done": 0}, _lines(steps))
    if not agreed:
        if not (sys.stdin.isatty() and sys.stderr.isatty()) or file.name == STDIN:
            raise Refused(f"{len(steps)} changes: rmq diff shows them, and --yes makes them")
        for line in _lines(steps):
            click.echo(line, err=True)
        if not agrees():
            raise Refused("nothing was changed")
    recorder = Recorder(admin, before=undo_of if notes is not None or sys.stderr.isatty() else None)
    care = Care.of("apply", {**click.get_current_context().params, "undo": notes}, {})
    done: list[str] = []
    try:
        for step in steps:
            try:
                await _do(recorder.client(), step, state)
            except asyncio.CancelledError:  # Ctrl-C
                recorder.tell_interrupted()
                rest = len(steps) - len(done)
                tell(f"{len(done)} of {len(steps)} changes were made: the same command goes on with the other {rest}")
                raise
            except RMQError as error:
                if not done:
                    raise
                raise Partial(f"{len(done)} of {len(steps)} changes were made; not {step.line()}: {error}") from error
            done.append(step.line())
    finally:
        care.note(recorder.notes, sys.stderr.isatty() and not is_quiet(), admin)
    return out.done({"changes": [step.table() for step in steps], "done": len(done)},
                    [*done, f"{len(done)} changes made"])  # fmt: skip


@admin_command(
    "export",
    _cluster,
    click.option("--kv", "namespaces", multiple=True, metavar="NAME", help="The entries of this namespace, too."),
    click.option("--like", "before", type=GivenFileType(MOST_BYTES), metavar="FILE",
                 help="An export of before: where a broker of it is gone, nothing is printed."),
)  # fmt: skip
async def export(
    admin: AdminClient, out: Output, cluster: str | None, namespaces: tuple[str, ...], before: GivenFile | None
) -> int:
    """Print the topics and groups of a cluster as a file for rmq apply.

    `brokers` in it are those that were asked. A broker that is registered nowhere any more cannot be missed, but for a
    file that names it (--like), or ordered topics that do.
    """
    state = await _state(admin, cluster, namespaces)
    if before is not None:
        _refuse_gone(before.name, _declared(before), state)
    made = exported(state)
    if out.form in ("classic", "table"):
        out.form = "yaml"
    return out.value(made, list)


def _declared(file: GivenFile) -> Declared:
    try:
        return parse_declared(file.name, file.data)
    except ConfigError as error:
        raise Refused(str(error)) from None


def _refuse_gone(name: str, declared: Declared, state: State) -> None:
    """:raises NotFound: the file tells of a broker that is not registered now: what it has would look deleted."""
    if gone := sorted(set(declared.asked) - set(state.masters)):
        raise NotFound(
            f"{name} tells of {', '.join(gone)}, and {state.cluster} has no such master now "
            f"({', '.join(sorted(state.masters))} has it): what is there cannot be looked at; start it, or take it out "
            f"of `brokers` in {name} if it is gone for good, or if this is another cluster"
        )


async def _plan(admin: AdminClient, file: GivenFile, cluster: str | None, prune: bool) -> tuple[list[Step], State]:
    declared = _declared(file)
    entries = declared.kv or {}
    state = await _state(admin, cluster, entries, entries.get(ORDER_TOPIC_CONFIG, ()))
    _refuse_gone(file.name, declared, state)
    if unknown := sorted(declared.brokers() - set(state.masters)):
        raise NotFound(
            f"{file.name} names {', '.join(unknown)}, and {state.cluster} has no such master "
            f"({', '.join(sorted(state.masters))} has it)"
        )
    for kind, named in (("topic", declared.topics), ("group", declared.groups)):
        if kept := sorted(name for name in named or () if state.keeps(kind, name)):
            raise Refused(f"{file.name} names {', '.join(kept)}: a {kind} that brokers keep for themselves")
    return steps_of(declared, state, prune=prune), state


async def _state(
    admin: AdminClient, cluster: str | None, namespaces: Iterable[str], ordered: Container[str] = ()
) -> State:
    """What a cluster has.

    :param ordered: topics whose order is said anew.
    :raises RMQError: a master is away or does not answer: what it has would look as if it were not there.
    """
    info = await admin.cluster_info()
    clusters = sorted(info.cluster_addr_table)
    if not clusters:
        raise NotFound("no broker is registered at this name server")
    if cluster is None:
        if len(clusters) > 1:
            raise click.UsageError(f"which cluster? Give {', '.join(clusters)} with -c", click.get_current_context())
        cluster = clusters[0]
    masters = await admin.masters(cluster)
    missing = sorted(set(info.cluster_addr_table.get(cluster, ())) - masters.keys())
    if missing:
        raise NotFound(f"{', '.join(missing)} of {cluster} has no master now: what it has cannot be looked at")
    away = await departed(admin, on_purpose=True, cluster=cluster)
    away = away or await known_elsewhere(admin, info) or await ordered_elsewhere(admin, info, ordered)
    if away:
        told = "; ".join(f"{name}: {why}" for name, why in away.items())
        raise NotFound(f"{told}: what is there cannot be looked at")
    groups = (await admin.subscription_groups_of(masters.values())).whole()
    kv = {namespace: await admin.kv_list(namespace) for namespace in {*namespaces, ORDER_TOPIC_CONFIG}}
    return State(
        cluster,
        masters,
        {name: (await admin.topic_configs(address)).topic_config_table for name, address in masters.items()},
        {name: groups[address].subscription_group_table for name, address in masters.items()},
        {namespace: entries for namespace, entries in kv.items() if namespace in namespaces or entries},
    )


async def _do(admin: AdminClient, step: Step, state: State) -> None:
    if step.kind == "kv":
        if step.sign == "-":
            (await admin.delete_kv_config(step.where, step.name)).whole()
        else:
            (await admin.put_kv_config(step.where, step.name, step.becomes["value"])).whole()
        return
    address = state.masters[step.where]
    if step.kind == "topic":
        await _do_topic(admin, step, state, address)
    elif step.sign == "-":
        await admin.delete_subscription_group(address, step.name)
    else:
        config = state.groups[step.where].get(step.name) or SubscriptionGroupConfig(step.name)
        given: dict[str, Any] = {_snake(key): value for key, value in step.becomes.items()}
        await admin.create_and_update_subscription_group(address, replace(config, **given))


async def _do_topic(admin: AdminClient, step: Step, state: State, address: str) -> None:
    if step.sign == "-":
        (await admin.delete_topic_in_broker([address], step.name)).whole()
        last = [name for name, table in sorted(state.topics.items()) if step.name in table][-1]
        if step.where == last:
            (await admin.delete_topic_in_name_servers(step.name, state.cluster)).whole()
        return
    known = state.topics[step.where].get(step.name)
    becomes = step.becomes
    await admin.create_and_update_topic(
        address, step.name, read_queue_nums=becomes["readQueueNums"], write_queue_nums=becomes["writeQueueNums"],
        perm=becomes["perm"], order=known is not None and known.order,
        topic_sys_flag=0 if known is None else known.topic_sys_flag,
    )  # fmt: skip


def _snake(key: str) -> str:
    return "".join(f"_{sign.lower()}" if sign.isupper() else sign for sign in key)


def _lines(steps: list[Step]) -> list[str]:
    return [step.line() for step in steps] or ["nothing differs"]
