"""Wires what serves clients at any time, whatever the broker's role is: sends and pulls."""

from __future__ import annotations

from dataclasses import dataclass

from rmq.broker.delays import DelayLevels
from rmq.broker.delivery.moved import OffsetMovedEvents
from rmq.broker.delivery.pull import Delivery
from rmq.broker.delivery.read import ReadLimits
from rmq.broker.lane.admit import Admission
from rmq.broker.lane.answers import SendAnswers
from rmq.broker.lane.guarded import GuardedLane
from rmq.broker.lane.pressure import Pressure
from rmq.broker.lane.step import Lane, Sends
from rmq.broker.lane.topic_lane import LaneTable
from rmq.broker.parts import Counted, Ground, Members, Tables
from rmq.broker.schedule.timing import TimerSends
from rmq.remoting.limits import Limits
from rmq.remoting.router import Router
from rmq.remoting.server import Server

__all__ = ["Front", "make_front", "make_server"]


@dataclass(frozen=True, slots=True)
class Front:
    """Sends and pulls."""

    lane: Lane
    delivery: Delivery
    admission: Admission
    answers: SendAnswers
    pressure: Pressure
    limits: ReadLimits
    timer_sends: TimerSends
    #: The delays of a broker that delivers nothing late itself.
    levels: DelayLevels


def make_front(ground: Ground, tables: Tables, members: Members, counted: Counted, router: Router) -> Front:
    """Sends are refused and pulls find nothing until the store has started."""
    world, settings, store, store_host = ground.world, ground.settings, ground.store, ground.store_host
    clock, topics, stats = world.clock, tables.topics, counted.stats
    levels = DelayLevels(settings.message_delay_level)
    lanes = LaneTable(topics, store.queues)
    timer_sends = TimerSends(clock, settings, topics, store)
    admission = Admission(ground, tables, lanes, levels, timer_sends)
    limits = ReadLimits.following(settings, world.identity.physical_memory())
    moved = OffsetMovedEvents(clock, settings, store, store_host)
    delivery = Delivery(ground, tables, members.consumers, counted, moved, limits, router.faults)
    stats.pulls_missed = lambda: delivery.missed
    answers = SendAnswers(store_host, settings)
    pressure = Pressure(clock, settings, store, stats)
    router.latency = pressure.latency = counted.latency
    lane = (GuardedLane if settings.acl_enable else Lane)(
        ground, topics, counted, Sends(lanes, admission, answers, pressure), delivery, router
    )
    return Front(lane, delivery, admission, answers, pressure, limits, timer_sends, levels)


def make_server(ground: Ground, router: Router, front: Front) -> Server:
    """The transport: the lane takes what it knows, the router the rest."""
    settings = ground.settings
    limits = Limits(
        idle_seconds=float(settings.server_channel_max_idle_time_seconds), unread=settings.unread_answers_max_bytes
    )
    server = Server(
        ground.world, router, limits,
        step=front.lane.step, after=front.lane.after, tls=settings.server_tls(), settings=settings,
        name="broker",
    )  # fmt: skip
    front.pressure.ready = lambda: server.ready
    return server
