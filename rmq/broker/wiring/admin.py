"""Wires the handlers of everything that is neither sent nor pulled."""

from __future__ import annotations

from collections.abc import Callable

from rmq.auth.control import AccessControl
from rmq.broker.admin.access import AccessAdmin, AccessOff
from rmq.broker.admin.client import ClientAdmin
from rmq.broker.admin.config import ConfigAdmin
from rmq.broker.admin.group import GroupAdmin
from rmq.broker.admin.lookup import Lookup
from rmq.broker.admin.maintenance import MaintenanceAdmin
from rmq.broker.admin.message import MessageAdmin
from rmq.broker.admin.offset import OffsetAdmin
from rmq.broker.admin.relay import ClientRelay
from rmq.broker.admin.replica import ReplicaAdmin
from rmq.broker.admin.reply import ReplyAdmin
from rmq.broker.admin.reset import ResetAdmin
from rmq.broker.admin.runtime import RuntimeAdmin
from rmq.broker.admin.statistics import StatisticsAdmin
from rmq.broker.admin.topic import TopicAdmin
from rmq.broker.lane.send_back import SendBack
from rmq.broker.parts import Counted, Ground, Members, Tables
from rmq.broker.raft.passing import PassOn
from rmq.broker.replication.takeover import BesideTables
from rmq.broker.roles.change import Roles
from rmq.broker.wiring.front import Front
from rmq.protocol.bodies.replica import GroupInfo

__all__ = ["make_handlers"]


def make_handlers(
    ground: Ground,
    tables: Tables,
    members: Members,
    counted: Counted,
    front: Front,
    beside: BesideTables,
    runtime: RuntimeAdmin,
    roles: Callable[[], Roles],
    access: AccessControl | None,
    group: Callable[[], GroupInfo | None],
    pass_on: PassOn | None,
) -> tuple[object, ...]:
    """What the router serves whatever the broker's role is.

    :param roles: what the broker is now.
    :param access: None while access control is off.
    :param group: how the group is that elects its master; None where there is none.
    :param pass_on: asks its leader; None where there is none.
    """
    settings, store, clock = ground.settings, ground.store, ground.world.clock
    topics, groups, offsets = tables.topics, tables.groups, tables.offsets
    consumers, producers, stats = members.consumers, members.producers, counted.stats
    modes, delays, forgetting = beside
    lookup = Lookup(store, front.limits)
    offset_admin = OffsetAdmin(offsets, topics, store, lookup, delays, pass_on)
    return (
        front.lane,
        front.delivery,
        SendBack(ground.world, settings, topics, groups, store, front.admission, stats.sent_back),
        ClientAdmin(settings, topics, groups, consumers, producers, members.locks, tables.filters.expressions),
        TopicAdmin(settings, topics, offsets, consumers, lookup, forgetting.delete_topic),
        GroupAdmin(ground, tables, consumers, stats, lookup, forgetting.delete_group),
        offset_admin,
        ResetAdmin(settings, topics, offsets, consumers, lookup, offset_admin),
        ClientRelay(settings, consumers, store.messages.at),
        ConfigAdmin(ground.world, settings, topics, store.settings, lambda: roles().role),
        runtime,
        MessageAdmin(settings, store, consumers, lookup, tables.filters),
        StatisticsAdmin(stats),
        MaintenanceAdmin(store, topics),
        ReplicaAdmin(ground, lambda: roles().sends_log, lambda: roles().link(), group),
        AccessOff() if access is None else AccessAdmin(ground, access),
        ReplyAdmin(clock, settings, store, producers, front.admission, front.answers, ground.broker_addr),
        modes,
    )
