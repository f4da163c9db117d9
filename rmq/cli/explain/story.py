"""A message's story, told from what brokers and members say of it; nothing here asks them.

What a group does with a message is one word, the state, and two sentences: what is known, and what comes next.

==============  =====================================================================================================
filtered        the group's filter does not want it: its members never see it
consumed        the group's offset is behind it, and no copy of it waits
in hand         a member has fetched it, and its listener has not finished it
fetched soon    a member has its queue and has not come to it
waits           nobody has its queue, or nobody is online
tries again     a listener gave it back: a copy waits for its time, or in the group's retry queue
dead            it was given back too often, or could not be: it is in the group's dead-letter topic
closed          the broker lets nobody of the group consume
broadcast       each member keeps for itself where it is
not subscribed  members are online, and none wants the topic
no offset       the group has none in the queue
==============  =====================================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rmq.client.message import MessageExt
from rmq.filter.sql import compile_sql
from rmq.protocol.bodies.heartbeat import SubscriptionData
from rmq.protocol.bodies.running import ConsumerRunningInfo
from rmq.protocol.errors import RMQError
from rmq.protocol.names import dlq_topic, retry_topic
from rmq.protocol.queue import MessageQueue

__all__ = ["GroupFacts", "Told", "ago", "clock", "of_group", "queue_of"]


@dataclass(slots=True)
class GroupFacts:
    """What is known of a group and one message.

    :param online: its members by client id; what each tells, or why it does not.
    :param subscription: what it wants of the message's topic; None: nothing.
    :param offsets: where it stands, by queue; queues where it has no offset are absent.
    :param ends: of queues, as brokers tell them.
    :param most: times that a message is tried again before it is given up; -1: 16.
    :param waiting: copies that wait for their time, with that time in ms. :param retried: copies in its retry queues.
    :param dead: the copy in its dead-letter topic.
    """

    name: str
    online: Mapping[str, ConsumerRunningInfo | str] = field(default_factory=dict)
    broadcasting: bool = False
    subscription: SubscriptionData | None = None
    offsets: Mapping[MessageQueue, int] = field(default_factory=dict)
    ends: Mapping[MessageQueue, int] = field(default_factory=dict)
    closed: bool = False
    most: int = 16
    waiting: list[tuple[MessageExt, int]] = field(default_factory=list)
    retried: list[MessageExt] = field(default_factory=list)
    dead: MessageExt | None = None

    def owner(self, queue: MessageQueue) -> str | None:
        """The member that has a queue, as far as members tell."""
        for name, info in self.online.items():
            if isinstance(info, ConsumerRunningInfo):
                held = info.mq_table.get(queue)
                if (held is not None and not held.droped) or queue in (info.mq_pop_table or ()):
                    return name
        return None


@dataclass(frozen=True, slots=True)
class Told:
    """What a group does with a message. :param state: see the head of this module."""

    group: str
    state: str
    what: str
    next: str

    def table(self) -> dict[str, object]:
        """For programs."""
        return {"group": self.group, "state": self.state, "what": self.what, "next": self.next}


def queue_of(message: MessageExt) -> MessageQueue:
    """Where it is stored."""
    return MessageQueue(message.topic, message.broker_name, message.queue_id)


def ago(ms: int) -> str:
    """How long something takes or is over: ``1h02m``, ``3m12s``, ``1.2s``, ``7ms``."""
    if ms < 1_000:
        return f"{max(ms, 0)}ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f}s"
    minutes, seconds = divmod(ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours:02}h"
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{seconds:02}s"


def clock(ms: int) -> str:
    """A time of this machine's zone."""
    from datetime import UTC, datetime

    return f"{datetime.fromtimestamp(ms / 1000, UTC).astimezone():%Y-%m-%d %H:%M:%S}.{ms % 1000:03}"


def of_group(message: MessageExt, group: GroupFacts, now: int) -> Told:
    """What becomes of a message in a group.

    :param now: ms, by the clock of whoever asks; brokers' times are compared with it.
    """

    def told(state: str, what: str, then: str) -> Told:
        return Told(group.name, state, what, then)

    if group.broadcasting:
        return told("broadcast", "its members get every message, and each keeps for itself where it is",
                    "mqadmin consumerStatus shows each member")  # fmt: skip
    if group.dead is not None:
        dead = group.dead
        tries = max((one.reconsume_times for one in [*group.retried, *(copy for copy, _ in group.waiting)]), default=0)
        times = f"tried {tries + 1} times" if tries else "given back"
        what = f"it was {times} and given up, {ago(now - dead.store_timestamp)} ago"
        where = f"{dlq_topic(group.name)} ({dead.broker_name}/{dead.queue_id} at {dead.queue_offset})"
        topic = f"'{dlq_topic(group.name)}'"
        return told("dead", f"{what}: it is in {where}",
                    f"nothing by itself; rmq tap {topic} FILE keeps it, rmq replay sends it again")  # fmt: skip
    last = max((one.reconsume_times for one in group.retried), default=0)
    held = [(copy, due) for copy, due in group.waiting if copy.reconsume_times > last]
    most = 16 if group.most < 0 else group.most
    if held:
        copy, due = max(held, key=lambda one: one[0].reconsume_times)
        late = now - due
        then = f"try {copy.reconsume_times + 1} of {most + 1} is due at {clock(due)}, in {ago(-late)}"
        if late > 0:
            then = f"try {copy.reconsume_times + 1} of {most + 1} was due {ago(late)} ago: it comes now"
        back = f"a listener gave it back {copy.reconsume_times} times, the last time {ago(now - copy.store_timestamp)}"
        return told("tries again", f"{back} ago", then)
    if group.retried:
        copy = max(group.retried, key=lambda one: one.reconsume_times)
        back = f"a listener gave it back {copy.reconsume_times} times"
        if group.offsets.get(queue_of(copy), 0) > copy.queue_offset:
            return told("consumed", f"{back}, and finished it then, at try {copy.reconsume_times + 1}", "nothing")
        place = _in_queue(copy, group, now)
        where = f"a copy is in {retry_topic(group.name)} ({copy.broker_name}/{copy.queue_id} at {copy.queue_offset})"
        return told("tries again", f"{back}; {where}", f"try {copy.reconsume_times + 1} of {most + 1}: {place.what}, "
                    f"and {place.next}")  # fmt: skip
    return _in_queue(message, group, now)


def _in_queue(message: MessageExt, group: GroupFacts, now: int) -> Told:
    """Where a group is in the queue of a message, which may be a copy in its retry queue."""

    def told(state: str, what: str, then: str) -> Told:
        return Told(group.name, state, what, then)

    queue = queue_of(message)
    offset = group.offsets.get(queue)
    behind = offset is not None and offset > message.queue_offset
    own = message.topic == retry_topic(group.name)
    wanted = None if own else group.subscription
    filter_ = "" if wanted is None else f"its filter {_expression(wanted)}"
    matches = wanted is None or _matches(wanted, message)
    if wanted is not None and not matches:
        then = "it is passed over" if not behind else "nothing: it was passed over"
        return told("filtered", f"{filter_} does not match {_marks(wanted, message)}", then)
    if behind:
        what = f"its offset is {offset}, and nothing of it waits"
        if filter_:
            what = f"{filter_} matches; {what}"
        elif not own:
            what += "; whether a filter let it through nobody tells who is online"
        return told("consumed", what, "nothing")
    ahead = max(0, message.queue_offset - (offset or 0))
    waits = "it has no offset here"
    if offset is not None:
        waits = f"it stands at {offset}, {ahead} messages before this one" if ahead else "this one is its next there"
    elif own:  # members begin it at its first message, wherever they begin others
        waits = f"it has read nothing there yet, and {ahead} messages are before this one"
    if group.closed:
        return told("closed", f"the broker lets nobody of it consume (consumeEnable=false); {waits}",
                    f"mqadmin updateSubGroup -g {group.name} -s true opens it")  # fmt: skip
    if not group.online:
        if offset is None:
            return told("no offset", "nobody is online, and it has no offset in this queue",
                        "a member that comes begins where its consume_from_where says")  # fmt: skip
        return told(
            "waits", f"nobody is online; {waits}", "it is consumed when a member is online, behind what waits before it"
        )
    if wanted is None and not own:
        return told("not subscribed", "members are online, and none wants this topic",
                    f"subscribe it, or mqadmin deleteSubGroup -g {group.name} if nobody should")  # fmt: skip
    owner = group.owner(queue)
    if owner is None:
        if any(isinstance(info, str) for info in group.online.values()):
            silent = ", ".join(name for name, info in group.online.items() if isinstance(info, str))
            return told("waits", f"no member tells that it has the queue, and {silent} says nothing; {waits}",
                        "does that member hang? rmq doctor -g looks at all of them")  # fmt: skip
        return told("waits", f"no member has the queue; {waits}",
                    "a rebalance gives it to one within 20 s; rmq doctor -g says why if it stays so")  # fmt: skip
    info = group.online[owner]
    held = info.mq_table.get(queue) if isinstance(info, ConsumerRunningInfo) else None
    if held is None:
        return told("in hand", f"{owner} pops from the queue; {waits}",
                    "what is not acknowledged in its invisible time comes again")  # fmt: skip
    if held.cached_msg_count and held.cached_msg_min_offset <= message.queue_offset <= held.cached_msg_max_offset:
        # Offsets of what was filtered are in between: there are this many at most.
        before = message.queue_offset - held.cached_msg_min_offset
        done = held.last_consume_timestamp
        idle = f"; its listener has finished nothing for {ago(now - done)}" if done and now - done > 60_000 else ""
        place = "it is the first of" if not before else f"behind {before} at most of"
        return told("in hand", f"{owner} has fetched it, {place} {held.cached_msg_count}{idle}",
                    f"its listener gets it; mqadmin consumerStatus -g {group.name} -i {owner} -s shows what it does now"
                    if idle else "its listener gets it")  # fmt: skip
    if offset is None and not own and not held.cached_msg_count:
        return told("fetched soon", f"{owner} has the queue, and has told no offset yet", "it begins where "
                    "consume_from_where says: at the end of the queue by default")  # fmt: skip
    pulled = held.last_pull_timestamp
    pause = f"; it has pulled nothing for {ago(now - pulled)}" if pulled and now - pulled > 120_000 else ""
    return told("fetched soon", f"{owner} has the queue; {waits}{pause}",
                f"it is fetched behind those {ahead}" if ahead else "it is fetched with the next pull")  # fmt: skip


def _expression(wanted: SubscriptionData) -> str:
    return f"'{wanted.sub_string or '*'}'"


def _marks(wanted: SubscriptionData, message: MessageExt) -> str:
    if wanted.is_tag_type:
        return f"its tag {message.tags}" if message.tags else "it: it has no tag"
    return "its properties"


def _matches(wanted: SubscriptionData, message: MessageExt) -> bool:
    """As a broker and a member decide it together."""
    if wanted.is_tag_type:
        return wanted.sub_string in ("*", "", None) or (message.tags or "").strip() in wanted.tags_set
    try:
        return compile_sql(wanted.sub_string).matches(message.properties)
    except RMQError:
        return True  # a dialect that only its broker knows
