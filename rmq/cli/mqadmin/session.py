"""What makes a command: its options, a started admin client, where it prints. How to add one:

1. A coroutine function in the module of its noun, made a command by :func:`admin_command`::

       @admin_command(
           "topicClusterList",
           click.option("-t", "--topic", "topic", required=True, metavar="NAME", help="The topic."),
       )
       async def topic_cluster_list(admin: AdminClient, out: Output, topic: str) -> int:
           \"\"\"The clusters that have a topic.\"\"\"
           clusters = await admin.topic_clusters(topic)
           return out.names(clusters)

   Letters and long names are Java's; the grammar, ``-n``, ``-o``, ``--timeout`` and ``-h`` are added. What it asks is
   an operation of :class:`rmq.client.admin.AdminClient`: what is not there yet is written there, in the module of the
   noun, and mirrored (``make mirror``).
2. A line in ``commands.COMMANDS``: name, place, purpose.
3. It gives Output a value and, apart, the lines of Java's tool (``classic``).
   What several servers are asked is asked with the ``..._of`` calls, and ``out.lacks(answers)`` says who is missing.
4. What it finds wrong it raises: ``NotFound``, ``Partial``, ClientError (their codes: failures.py), and
   ``click.UsageError`` for the command line.
5. What changes a cluster stands in ``changes.CHANGING``; an operation of the client that does so has a line in
   ``changes.CHANGES`` (for ``--dry-run``) and in ``undo`` (how to take it back).
6. A test beside ``tests/unit/cli/test_mqadmin_columns.py``, and a line in ``tests/interop/test_mqadmin_alike.py``,
   which has both tools run against the same cluster.
"""

from __future__ import annotations

import asyncio
import difflib
import functools
import logging
from codecs import BOM_UTF8
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import click

from rmq.cli.command import CONTEXT, QUIET
from rmq.cli.given_file import GivenFile
from rmq.cli.mqadmin.absent import miss_absent
from rmq.cli.mqadmin.careful import CARE_WORDS, PRETENDING, Care, care_options
from rmq.cli.mqadmin.failures import NotFound, undone
from rmq.cli.mqadmin.grammar import AdminCommand
from rmq.cli.mqadmin.output import FORMS, Output
from rmq.cli.mqadmin.watching import WATCH_WORDS, Rounds, watch_options, watched
from rmq.cli.reach import reach
from rmq.client.admin import AdminClient
from rmq.client.admin.answers import side_by_side
from rmq.client.nameservers import parse_addresses
from rmq.protocol import addresses, fastjson
from rmq.protocol.bodies.body import Body
from rmq.protocol.errors import BodyError, ClientError, ConfigError, RMQError

if TYPE_CHECKING:
    from rmq.client.producer import Producer

__all__ = [
    "MOST_LISTED",
    "AdminClient",
    "Output",
    "admin_command",
    "at_each",
    "broker_or_cluster",
    "flag",
    "listed",
    "masters_of",
    "one_of",
    "targets_of",
]

#: How long each server is waited for.
_SECONDS = 2.5
#: Bytes of a file with a list of topics or groups.
MOST_LISTED = 8 << 20
#: Of one in the JSON that Java's tools take besides, which is slow to read.
_MOST_LOOSE = 1 << 20
#: How the command reaches the cluster: options of every client.
_OPTIONS = f"{__name__}.options"

_UNSAID = logging.NullHandler()

P = ParamSpec("P")
B = TypeVar("B")
L = TypeVar("L", bound=Body)
Work = Callable[Concatenate[AdminClient, Output, P], Awaitable[int | None]]


def admin_command(name: str, *options: Callable[[Any], Any]) -> Callable[[Work[P]], click.Command]:
    """Make a command of a coroutine function that takes a started admin client, an output and the options."""

    def make(work: Work[P]) -> click.Command:
        @functools.wraps(work)
        def run(**given: Any) -> int:
            ctx = click.get_current_context()
            _refuse_nonsense(ctx)
            # What it finds wrong with a connection is said in the line of the failure.
            logging.getLogger("rmq.remoting").addHandler(_UNSAID)
            words = {one: given.pop(one) for one in _WORDS if one in given}
            form = Output("json" if words["json"] else words["output"]).form
            options: dict[str, Any] = {
                **reach(words["namesrv"], words["context"], words["credentials"]),
                **_over_tls(words["tls"], words["tls_ca_file"]),
            }
            if unit := given.pop("unit_name", None):
                options["unit_name"] = unit
            ctx.meta[_OPTIONS] = options
            ctx.meta[QUIET] = words["quiet"]
            rounds = Rounds.of(words)
            care = Care.of(name, words, options)

            async def session() -> int | None:
                async with AdminClient(mq_client_api_timeout=words["timeout"], **options) as admin:

                    async def asked(client: AdminClient, out: Output) -> int | None:
                        return await work(client, out, **given)  # type: ignore[call-arg]

                    async def once() -> int | None:
                        return await care.run(admin, Output(form), asked)

                    return await (once() if rounds is None else rounds.run(once, ctx))

            return asyncio.run(session()) or 0

        decorated: Any = run
        added = (*_COMMON, *care_options(name), *(watch_options if watched(name) else ()))
        for option in (*added, _output(options), *reversed(options)):
            decorated = option(decorated)
        return click.command(name, cls=AdminCommand, context_settings={**CONTEXT, "show_default": True})(decorated)

    return make


#: Options of every command; what is left is the command's own.
_WORDS = (
    "namesrv", "context", "output", "json", "timeout", "credentials", "tls", "tls_ca_file", "quiet", *WATCH_WORDS,
    *CARE_WORDS,
)  # fmt: skip
_COMMON: tuple[Callable[[Any], Any], ...] = (
    click.option("--classic-exit", is_flag=True, expose_value=False,
                 help="End with the exit codes of Java's tool: 0, or 1 for a wrong command line."),
    click.option("--quiet", "quiet", is_flag=True, help="No notes, warnings and bars on standard error; errors stay."),
    click.option("--timeout", "timeout", type=click.FloatRange(0.1, 600), default=_SECONDS, metavar="SECONDS",
                 help="How long each server is waited for."),
    click.option("--tlsCaFile", "tls_ca_file", metavar="FILE", help="Speak TLS; certificates to trust, PEM."),
    click.option("--tls", is_flag=True, help="Speak TLS; options that are not given are the environment's."),
    click.option("--credentialsFile", "credentials", metavar="FILE",
                 help="YAML with accessKey, secretKey and options of TLS.  [default: $ROCKETMQ_HOME/conf/tools.yml]"),
    click.option("--json", "json", is_flag=True, help="The same as --output json."),
    click.option("--context", "context", metavar="NAME", help="A cluster of rmq context, in place of -n."),
    click.option("-n", "--namesrvAddr", "namesrv", metavar="LIST", help="Name servers: host:port;host:port"),
)  # fmt: skip


def _output(options: tuple[Callable[[Any], Any], ...]) -> Callable[[Any], Any]:
    """``--output``, and ``-o`` where Java's tool has no other use of the letter."""

    def probe() -> None:
        """Gets the options of the command alone."""

    decorated: Any = probe
    for option in options:
        decorated = option(decorated)
    taken = any("-o" in one.opts for one in getattr(decorated, "__click_params__", ()))
    names = ("--output",) if taken else ("-o", "--output")
    return click.option(
        *names, "output", type=click.Choice(FORMS), envvar="MQADMIN_OUTPUT",
        help="How to print; classic is Java's, and the default where standard output is no terminal.",
    )  # fmt: skip


def _refuse_nonsense(ctx: click.Context) -> None:
    """A name that is empty is a shell variable that is not set: nobody means it. Nor an address that is none."""
    for option in ctx.command.params:
        value = ctx.params.get(option.name or "")
        if value == "" and option.name != "namesrv":
            raise click.BadParameter("it is empty", ctx, option)
        try:
            if value and option.name == "namesrv" and not parse_addresses(value):
                raise click.BadParameter("it names no server: give host:port;host:port", ctx, option)
            if value and option.metavar == "ADDR":
                addresses.parse(value)
        except (ClientError, ConfigError) as error:
            raise click.BadParameter(str(error), ctx, option) from None


def producing(group: str, *, traced: bool = False) -> Producer:
    """A producer that reaches the cluster as the admin client of this command does; not started."""
    from rmq.client.producer import Producer

    meta = click.get_current_context().meta
    if meta.get(PRETENDING):
        raise click.UsageError("--show-code knows what is asked, and not what is sent", click.get_current_context())
    return Producer(group, enable_msg_trace=traced, **meta[_OPTIONS])


def _over_tls(tls: bool, ca_file: str | None) -> dict[str, Any]:
    if ca_file is not None:
        return {"tls": True, "tls_ca_file": ca_file}
    return {"tls": True} if tls else {}


# -- options that many have -------------------------------------------------------------------------------------------


def flag(*names: str, default: bool, help: str) -> Callable[[Any], Any]:
    """An option that takes true or false, as Java's do."""
    return click.option(*names, type=bool, metavar="BOOL", default=str(default).lower(), help=f"{help} (true|false).")


def broker_or_cluster(function: Any) -> Any:
    """Adds ``-b`` and ``-c``; :func:`masters_of` turns them into addresses."""
    function = click.option("-c", "--clusterName", "cluster", metavar="NAME", help="Every master of this cluster.")(
        function
    )
    return click.option("-b", "--brokerAddr", "broker", metavar="ADDR", help="This broker, host:port.")(function)


def one_of(broker: str | None, cluster: str | None) -> None:
    """:raises click.UsageError: both or neither were given."""
    if (broker is None) == (cluster is None):
        raise click.UsageError("give a broker with -b or a cluster with -c, not both", click.get_current_context())


async def masters_of(admin: AdminClient, out: Output, broker: str | None, cluster: str | None) -> list[str]:
    """The addresses that ``-b`` or ``-c`` mean; a broker without a master is complained of.

    :raises click.UsageError: both or neither were given. :raises NotFound: no such cluster, or no master in it.
    """
    one_of(broker, cluster)
    if broker is not None:
        return [broker]
    return await _masters(admin, out, cluster or "")


async def targets_of(admin: AdminClient, out: Output, broker: str | None, cluster: str | None) -> list[str]:
    """The same where neither means every master of every cluster."""
    if broker is not None or cluster is not None:
        return await masters_of(admin, out, broker, cluster)
    clusters = sorted((await admin.cluster_info()).cluster_addr_table)
    if not clusters:
        raise NotFound("no broker is registered at this name server")
    return [address for name in clusters for address in await _masters(admin, out, name)]


async def _masters(admin: AdminClient, out: Output, cluster: str) -> list[str]:
    masters = await admin.masters(cluster)
    await miss_absent(admin, out)
    for name in sorted(set((await admin.cluster_info()).cluster_addr_table.get(cluster, ())) - masters.keys()):
        out.failed(name, "it has no master now")
    if not masters:
        raise NotFound(f"the cluster {cluster} has no master: nothing was done")
    return list(masters.values())


async def at_each(what: str, addresses: Iterable[str], change: Callable[[str], Awaitable[B]]) -> dict[str, B]:
    """Make a change at servers side by side; one that does not take it keeps it from no other.

    :param what: the change, as in "create topic T". :returns: what each said, in the order of the addresses.
    :raises Partial: some have it and some have not. :raises RMQError: what the first of them said: none has it.
    """
    answers = await side_by_side(addresses, change)
    if answers.failed:
        raise undone(what, answers.found, answers.failed)
    return answers.found


def listed(file: GivenFile, kind: type[L], name: str) -> list[L]:
    """The objects of a JSON file.

    :raises click.BadParameter: it is no list of such; one of them has no name, or a key that means nothing.
    """
    try:
        try:
            found = fastjson.loads(file.data.removeprefix(BOM_UTF8), limit=_MOST_LOOSE)
        except RMQError as error:
            raise BodyError(f"it is no JSON: {error}") from None
        if not isinstance(found, list) or not found:
            raise BodyError("a list of objects is expected, with one at least")
        objects = [kind.from_object(one) for one in found]
        for number, one in enumerate(found):
            if not isinstance(one, dict) or not isinstance(one.get(name), str) or not one[name]:
                raise BodyError(f"number {number + 1} of the list has no {name}")
            for key in one:
                if key not in kind.names():
                    near = difflib.get_close_matches(key, kind.names(), 1)
                    meant = f"; did you mean {near[0]}?" if near else ""
                    raise BodyError(f"number {number + 1} of the list has {key!r:.80}, which means nothing{meant}")
    except (RMQError, ValueError) as error:
        raise click.BadParameter(f"{file.name}: {error}", param_hint="'-f' / '--filename'") from None
    return objects
