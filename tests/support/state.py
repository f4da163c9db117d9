"""What a daemon knows and keeps, part by part: a request that was refused must have changed none of it."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from rmq.broker.app import BrokerApp
from rmq.namesrv.app import NamesrvApp

__all__ = ["broker_state", "changed", "namesrv_state"]


def broker_state(broker: BrokerApp) -> dict[str, str]:
    """Log, topics, groups, offsets, who is connected, settings, accounts, timers: a digest of each part."""
    store, tables, members = broker.store, broker.tables, broker.members
    master = broker.roles.master
    offsets = tables.offsets
    parts: dict[str, Any] = {
        "log end": store.log.end,
        "log start": store.log.start,
        "queues": sorted((queue.topic, queue.id, queue.min, queue.next) for queue in store.queues),
        "topics": tables.topics.encode(),
        "groups": tables.groups.encode(),
        "offsets": sorted((pair, sorted(offsets.of(pair[1], pair[0]).items())) for pair in offsets.pairs()),
        "filters": sorted(tables.filters._topics),
        "request modes": broker.modes._render(),
        "consumers": [
            (one.name, one.client_ids(), sorted(one.subscriptions)) for one in members.consumers.groups()
        ],
        "producers": sorted((group, len(found)) for group, found in members.producers.groups().items()),
        "locks": sorted((group, sorted(map(repr, held))) for group, held in members.locks._groups.items()),
        "pulls that wait": broker.front.delivery.holds.count,
        "forbidden": sorted(tables.groups.forbidden.items()),
        "settings": broker.settings.dump(),
        "settings' file": _file(broker, broker.settings.config_path("broker.properties")),
        "accounts": broker.access.known.contents if broker.access is not None else None,
        "registered role": (broker.roles.role.broker_id, broker.settings.broker_permission),
    }  # fmt: skip
    if master is not None:
        parts |= {
            "delay levels": sorted(master.schedule.offsets.table.items()),
            "timers": (len(master.timers.waits), master.timers._seen),
            "half messages": sorted(master.check._settled),
            "slaves": [one.address for one in master.replication.slaves()],
            "pops that wait": master.pop.polls._count,
        }
    return _digests(parts)


def namesrv_state(namesrv: NamesrvApp) -> dict[str, str]:
    """Routes, brokers, key-value settings, settings, accounts: a digest of each part."""
    routes = namesrv.routes
    topics = routes.topics()
    return _digests(
        {
            "brokers": routes.cluster_info().encode(),
            "topics": topics,
            "routes": [(topic, repr(routes.route(topic))) for topic in topics],
            "versions": sorted((addr, repr(live.version)) for addr, live in routes._live.items()),
            "wiped": sorted(routes._wiped),
            "being read": sorted(namesrv._brokers._reading),
            "key-value settings": namesrv.kv._tables,
            "settings": namesrv.settings.dump(),
            "accounts": namesrv.access.known.contents if namesrv.access is not None else None,
        }
    )


def changed(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """The parts that differ."""
    return [part for part in before.keys() | after.keys() if before.get(part) != after.get(part)]


def _digests(parts: dict[str, Any]) -> dict[str, str]:
    return {name: sha256(repr(part).encode()).hexdigest()[:16] for name, part in parts.items()}


def _file(broker: BrokerApp, path: str) -> bytes | None:
    files = broker.world.files
    return files.read(path) if path and files.exists(path) else None
