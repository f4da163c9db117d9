"""Brokers that are missing without a trace: the name server that was asked does not know them.

A broker that has stopped, or was cut off from a name server, is simply not in its answers: what it has would look as if
it were not there. Three places may still name it: other name servers, what ours remembers of those that left, and the
queue counts of ordered topics, which are kept apart from brokers' registrations.
"""

from __future__ import annotations

import shlex
from collections.abc import Container

import orjson

from rmq.cli.mqadmin.failures import NOT_FOUND
from rmq.cli.mqadmin.output import Output, complain
from rmq.client.admin import AdminClient
from rmq.client.admin.nameservers import ORDER_TOPIC_CONFIG
from rmq.protocol.bodies.cluster import ClusterInfo
from rmq.protocol.errors import ResponseError
from rmq.protocol.names import DEPARTED_BROKERS, MASTER_ID

__all__ = ["departed", "known_elsewhere", "masters_away", "miss_absent", "nobody", "ordered_elsewhere"]

_HOW = {
    "silent": "the name server has heard nothing of it for two minutes",
    "ended": "its connection to the name server ended: killed, cut off, or two minutes without a word",
    "unregistered": "it was shut down",
}
#: How long other name servers have to say whom they know.
_SECONDS = 1.0


async def miss_absent(admin: AdminClient, out: Output) -> None:
    """Have an answer that tells of a whole cluster name the brokers that nobody would miss."""
    out.missing.update(await departed(admin, on_purpose=False))
    out.missing.update(await known_elsewhere(admin))


def nobody(info: ClusterInfo) -> int:
    """Say that no broker is registered, where that is so: the exit code then, else 0."""
    if info.broker_addr_table:
        return 0
    complain("no broker is registered at this name server: start one, with namesrvAddr set to it")
    return NOT_FOUND


def masters_away(info: ClusterInfo, names: Container[str]) -> dict[str, str]:
    """Of these brokers, those of which slaves are registered alone: nothing is sent to them, and nobody would see it.

    :param names: their brokerNames.
    """
    why = "slaves of its name are registered, and no master: nothing is sent to it (rmq doctor says what to do)"
    return {
        f"the master of {name}": why
        for name, broker in sorted(info.broker_addr_table.items())
        if name in names and MASTER_ID not in broker.broker_addrs
    }


async def known_elsewhere(admin: AdminClient, info: ClusterInfo | None = None) -> dict[str, str]:
    """Brokers that one name server knows and another one does not, by name: whoever asks that one misses them.

    :param info: what was asked already, of one of them; None: all are compared with each other.
    """
    if len(admin.name_server_addresses) < 2:
        return {}
    views = (await admin.cluster_infos(timeout=_SECONDS)).found
    known = {address: set(view.broker_addr_table) for address, view in views.items()}
    if info is not None:
        known["the one that was asked"] = set(info.broker_addr_table)
    found = {}
    for name in sorted(set().union(*known.values())):
        have = [address for address, names in known.items() if name in names]
        lack = [address for address, names in known.items() if name not in names]
        if lack:
            found[name] = f"the name server {', '.join(have)} knows it, and {', '.join(lack)} does not"
    return found


async def departed(admin: AdminClient, *, on_purpose: bool, cluster: str | None = None) -> dict[str, str]:
    """Brokers that were registered and have left, by name, as our name server remembers them; Java's does not.

    :param on_purpose: those that took leave, too; else those alone that fell silent or whose connection ended.
    :param cluster: of this one alone.
    """
    found = {}
    try:
        left = await admin.kv_list(DEPARTED_BROKERS)
    except ResponseError:
        return {}  # it is for others to say what this account may not
    for name, text in sorted(left.items()):
        try:
            one = orjson.loads(text)
            where, how = (one["cluster"], one["addr"]), _HOW[one["how"]]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            continue  # nobody but our name servers writes there
        if cluster not in (None, where[0]) or (one["how"] == "unregistered" and not on_purpose):
            continue
        remedy = (
            f"mqadmin deleteKvConfig -s {DEPARTED_BROKERS} -k {shlex.quote(name)} forgets it if it is gone for good"
        )
        found[name] = f"it was at {where[1]}, and {how} ({remedy})"
    return found


async def ordered_elsewhere(admin: AdminClient, info: ClusterInfo, but: Container[str] = ()) -> dict[str, str]:
    """Brokers on which ordered topics have queues, and that are not registered, by name.

    :param but: topics that do not count.
    """
    found: dict[str, str] = {}
    for topic, value in sorted((await admin.kv_list(ORDER_TOPIC_CONFIG)).items()):
        remedy = f"mqadmin updateOrderConf -t {shlex.quote(topic)} -m put -v ... takes it out if it is gone for good"
        for part in () if topic in but else value.split(";"):
            name = part.partition(":")[0]
            if name and name not in info.broker_addr_table:
                found.setdefault(name, f"{topic} has ordered queues there, and it is not registered ({remedy})")
    return found
