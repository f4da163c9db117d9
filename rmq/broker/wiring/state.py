"""Wires what a broker knows: tables, members, figures."""

from __future__ import annotations

from functools import partial

from rmq.broker.admin.client import notify_members
from rmq.broker.groups.clients import Consumers, Producers
from rmq.broker.groups.configs import GroupTable
from rmq.broker.groups.filters import ConsumerFilters
from rmq.broker.groups.lmq_groups import LmqGroupTable, LmqOffsetTable
from rmq.broker.groups.locks import RebalanceLocks
from rmq.broker.groups.offsets import OffsetTable
from rmq.broker.kinds import MessageKinds
from rmq.broker.lmq_stats import LmqStats
from rmq.broker.parts import Counted, Ground, Members, Tables
from rmq.broker.stats import BrokerStats
from rmq.broker.topics.lmq_topics import LmqTopicTable
from rmq.broker.topics.table import TopicTable
from rmq.remoting.latency import CallLatency

__all__ = ["make_counted", "make_members", "make_tables"]


def make_tables(ground: Ground) -> Tables:
    """The tables, empty but for what every broker has."""
    world, settings, store = ground.world, ground.settings, ground.store
    lmq, path = settings.enable_lmq, settings.config_path
    topics = (LmqTopicTable if lmq else TopicTable)(world, settings, path("topics.json"))
    groups = (LmqGroupTable if lmq else GroupTable)(world, settings, path("subscriptionGroup.json"))
    filters = ConsumerFilters(world, settings, path("consumerFilter.json"))
    store.bit_map = filters.bit_map
    store.retention.is_gone = topics.is_left
    return Tables(topics, groups, LmqOffsetTable() if lmq else OffsetTable(), filters)


def make_members(ground: Ground, tables: Tables) -> Members:
    """Nobody yet."""
    clock = ground.world.clock
    consumers = Consumers(clock, partial(notify_members, ground.settings))
    consumers.on_heartbeat.append(tables.filters.register)
    consumers.on_gone.append(tables.filters.unregister)
    locks = RebalanceLocks(clock)
    consumers.on_came.append(locks.came)
    consumers.on_left.append(locks.left)
    return Members(consumers, Producers(clock), locks)


def make_counted(ground: Ground) -> Counted:
    """Everything at 0."""
    clock, settings = ground.world.clock, ground.settings
    stats = (LmqStats if settings.enable_lmq else BrokerStats)(
        clock, settings.broker_cluster_name, ground.store.queues, lambda: settings.enable_detail_stat
    )
    latency = CallLatency(clock.monotonic) if settings.metrics_exporter_type == "PROM" else None
    return Counted(stats, MessageKinds(), latency)
