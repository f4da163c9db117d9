"""What is wrong with a consumer group, judged by what brokers and members say; nothing here asks them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rmq.cli.finding import Finding, judged
from rmq.protocol.bodies.running import ConsumerRunningInfo
from rmq.protocol.bodies.stats import ConsumeStats
from rmq.protocol.names import is_retry_topic
from rmq.protocol.queue import MessageQueue

__all__ = ["Group", "of_group"]

#: A queue whose member has messages in hand and finished none for so long, or pulled for so long nothing, is stuck, ms.
_STUCK = 60_000
_NOT_PULLED = 120_000
#: Messages a second that count as none.
_NOTHING = 0.01
#: Seconds in which what comes is under way: less than that waits in any group, and two rates of it are never equal.
_UNDER_WAY = 5.0
#: Share of messages that may fail.
_FAILING = 0.05
#: Names in one line.
_NAMED = 8


@dataclass(slots=True)
class Group:
    """:param online: members, by client id; what each tells, or why it does not.

    :param state: what the group is where it has no member: ``offline``, ``never connected``.
    :param stats: where it stands; None where nobody knows.
    :param least: the oldest offset of queues whose topic says it.
    :param arriving: messages a second that come into its topics, by topic; those nobody knows are absent.
    :param closed: brokers where the group may not consume.
    :param dead: messages in its dead-letter topic.
    :param now: ms. :param missing: brokers that do not answer, and why: what they have is in no number.
    """

    name: str
    online: Mapping[str, ConsumerRunningInfo | str]
    state: str
    broadcasting: bool
    stats: ConsumeStats | None
    now: int
    least: Mapping[MessageQueue, int] = field(default_factory=dict)
    arriving: Mapping[str, float] = field(default_factory=dict)
    closed: list[str] = field(default_factory=list)
    dead: int = 0
    differences: list[str] = field(default_factory=list)
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def infos(self) -> dict[str, ConsumerRunningInfo]:
        """Members that answered."""
        return {name: info for name, info in self.online.items() if isinstance(info, ConsumerRunningInfo)}

    def lag(self, topic: str | None = None) -> int:
        """Messages that wait, of a topic or of all."""
        table = {} if self.stats is None else self.stats.offset_table
        return sum(
            max(0, one.broker_offset - one.consumer_offset)
            for queue, one in table.items()
            if one.consumer_offset >= 0 and topic in (None, queue.topic)
        )


def of_group(group: Group) -> Iterator[Finding]:
    """Everything that can be seen, the cause before what follows from it."""
    if group.missing:
        away = ", ".join(group.missing)
        what = f"{away} is away or does not answer: what waits there is in no number here, and nobody gets it"
        yield judged(True, group.name, what, "rmq doctor says what is wrong with the cluster")
    if group.closed:
        what = f"{', '.join(group.closed)} let nobody of it consume (consumeEnable=false)"
        yield judged(True, group.name, what, f"mqadmin updateSubGroup -g {group.name} -s true opens it")
    if not group.online:
        yield from _nobody(group)
    for difference in group.differences:
        what = f"its members subscribe different things, and get what others filtered away or nothing: {difference}"
        yield judged(True, group.name, what, "give every member the same subscriptions, or another group")
    for name, info in group.online.items():
        if isinstance(info, str):
            what = f"its member {name} does not say how it is: {info}"
            yield judged(False, group.name, what, "does it hang? mqadmin consumerStatus -s shows stacks of others")
    yield from _queues(group)
    for name, member in group.infos.items():
        yield from _member(group, name, member)
    yield from _rates(group)
    if group.dead:
        what = f"{group.dead} messages are in %DLQ%{group.name}: their listeners gave up"
        yield judged(
            False, group.name, what, f"rmq consume '%DLQ%{group.name}' shows them, rmq replay sends them again"
        )


def _nobody(group: Group) -> Iterator[Finding]:
    if (lag := group.lag()) > 0:
        what = f"nobody is online, and {lag} messages wait"
        yield judged(True, group.name, what, "start its members; are they in this cluster, and is the name the same?")
    else:
        was = "was" if group.state == "never connected" else "is"
        what = f"it {was} {group.state or 'offline'}: no member is online"
        yield judged(False, group.name, what, "nothing waits for it; mqadmin deleteSubGroup removes it")


def _queues(group: Group) -> Iterator[Finding]:
    """Queues that nobody has, or two; messages that went away unread; more members than queues."""
    table = {} if group.stats is None else group.stats.offset_table
    gone = sum(
        max(0, group.least[queue] - one.consumer_offset)
        for queue, one in table.items()
        if one.consumer_offset >= 0 and queue in group.least
    )
    if gone:
        what = f"{gone} messages were deleted before it consumed them"
        yield judged(True, group.name, what, "brokers keep messages for fileReservedTime hours: keep them longer")
    infos = group.infos
    if group.broadcasting or len(infos) < len(group.online) or not infos:
        return
    owners: dict[MessageQueue, list[str]] = {}
    for name, info in infos.items():
        for queue, state in info.mq_table.items():
            if not state.droped:
                owners.setdefault(queue, []).append(name)
    popping = {queue.topic for info in infos.values() for queue in info.mq_pop_table or ()}
    orphans = [
        queue
        for queue, one in sorted(table.items())
        if queue not in owners and queue.topic not in popping and one.broker_offset > one.consumer_offset >= 0
    ]
    if orphans:
        what = f"nobody has {_names(orphans)}, where messages wait"
        do = "after members came or went this lasts 20 s at most; else do all members see the same name servers?"
        yield judged(True, group.name, what, do)
    for queue, names in sorted(owners.items()):
        if len(names) > 1:
            what = f"{', '.join(names)} have the same queue, {queue.broker_name}/{queue.queue_id} of {queue.topic}"
            yield judged(
                True, group.name, what, "give members names of their own (instance_name), or wait for a rebalance"
            )
    for topic in sorted({queue.topic for queue in table} - popping):
        queues = sum(queue.topic == topic for queue in table)
        if len(infos) > queues and not is_retry_topic(topic):
            what = (
                f"{len(infos)} members share the {queues} queues of {topic}: {len(infos) - queues} of them get nothing"
            )
            yield judged(False, group.name, what, f"mqadmin updateTopic -t {topic} -r ... -w ... gives it more queues")


def _member(group: Group, name: str, info: ConsumerRunningInfo) -> Iterator[Finding]:
    stuck = []
    silent = []
    for queue, state in sorted(info.mq_table.items()):
        if state.droped:
            continue
        if state.cached_msg_count > 0 and 0 < state.last_consume_timestamp < group.now - _STUCK:
            stuck.append((queue, (group.now - state.last_consume_timestamp) // 1000, state.cached_msg_min_offset))
        elif 0 < state.last_pull_timestamp < group.now - _NOT_PULLED:
            silent.append(queue)
    for queue, seconds, offset in stuck[:_NAMED]:
        what = f"{name} has finished nothing of {queue.broker_name}/{queue.queue_id} of {queue.topic} for {seconds} s"
        do = f"its listener hangs or fails at offset {offset}, and in an orderly queue the rest waits behind that"
        stacks = f"mqadmin consumerStatus -g {group.name} -i {name} -s"
        yield judged(True, group.name, what, f"{do}: see its log, or its stacks with {stacks}")
    if silent:
        what = f"{name} has pulled nothing from {_names(silent)} for two minutes"
        yield judged(True, group.name, what, "it is suspended, its process stands still, or it cannot reach the broker")


def _rates(group: Group) -> Iterator[Finding]:
    """Listeners that fail, or take less than arrives."""
    done: dict[str, list[float]] = {}
    for info in group.infos.values():
        for topic, status in info.status_table.items():
            sums = done.setdefault(topic, [0.0, 0.0, 0.0])
            sums[0] += status.consume_ok_tps
            sums[1] += status.consume_failed_tps
            sums[2] = max(sums[2], status.consume_rt)
    for topic, (ok, failed, took) in sorted(done.items()):
        if failed > _NOTHING and failed > _FAILING * (ok + failed):
            what = f"its listeners fail for {failed:.1f} messages of {topic} a second, and finish {ok:.1f}"
            yield judged(
                True, group.name, what, "their logs say why; what fails comes again later, 16 times by default"
            )
        arriving = group.arriving.get(topic, 0.0)
        lag = group.lag(topic)
        if lag > _UNDER_WAY * arriving and arriving > ok + _NOTHING and len(group.infos) == len(group.online):
            what = (
                f"{arriving:.1f} messages of {topic} come a second, and its members finish {ok:.1f}, {took:.0f} ms each"
            )
            yield judged(False, group.name, f"{what}; {lag} wait", "a faster listener, more threads, more members")


def _names(queues: list[MessageQueue]) -> str:
    named = [f"{queue.broker_name}/{queue.queue_id} of {queue.topic}" for queue in queues[:_NAMED]]
    return ", ".join(named) + (f" and {len(queues) - _NAMED} more" if len(queues) > _NAMED else "")
