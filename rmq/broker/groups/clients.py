"""Who is connected: producers and consumers by group, with what they said in their heartbeats."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rmq.broker.groups.notices import Notices, Tell
from rmq.broker.reserved import name_fault
from rmq.protocol.bodies.heartbeat import ConsumerData, SubscriptionData
from rmq.protocol.permissions import Grant
from rmq.remoting.conn import Conn
from rmq.remoting.limits import Rationed
from rmq.runtime.world import Clock

__all__ = ["EXPIRY_SECONDS", "SCAN_SECONDS", "Channel", "ConsumerGroup", "Consumers", "Producers", "Subscription"]

log = logging.getLogger(__name__)

#: A group that a connection has not named in a heartbeat for this long leaves it (store-and-broker.md 8.1).
EXPIRY_SECONDS = 120.0
SCAN_SECONDS = 10.0

#: Lines about joins and leaves that are logged in 10 s; the others are counted.
_LINES_MOST = 100


@dataclass(slots=True)
class Channel:
    """One client on one connection (Java: ClientChannelInfo)."""

    conn: Conn
    client_id: str
    #: Number of its language (``codes.Language``), or None when it named none we know; as first announced.
    language: int | None
    #: The version ordinal it announced.
    version: int
    #: Wall clock of the last heartbeat, ms: only shown, never compared.
    last_update: int
    #: The same on the monotonic clock, seconds.
    last_seen: float
    #: Of its last heartbeat, as a producer: what its account may do; None where no access control is on.
    grant: Grant | None = None


@dataclass(slots=True, frozen=True)
class Subscription:
    """What a group wants of one topic, ready for filtering."""

    data: SubscriptionData
    #: Java hashes of the wanted tags; empty = every message.
    code_set: frozenset[int]

    @classmethod
    def of(cls, data: SubscriptionData) -> Subscription:
        return cls(data, frozenset(data.code_set))


@dataclass(slots=True)
class ConsumerGroup:
    """A group with at least one consumer online (Java: ConsumerGroupInfo)."""

    name: str
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    channels: dict[Conn, Channel] = field(default_factory=dict)

    def subscription(self, topic: str) -> Subscription | None:
        return self.subscriptions.get(topic)

    def client_ids(self) -> list[str]:
        """Client ids, each once: an id that came back on a second connection must not get queues twice."""
        return list(dict.fromkeys(channel.client_id for channel in self.channels.values()))

    def find(self, client_id: str) -> Channel | None:
        """The newest connection of a client."""
        found = None
        for channel in self.channels.values():
            if channel.client_id == client_id and not channel.conn.closed:
                found = channel
        return found

    def _take_over(self, data: ConsumerData, notes: Rationed, complaints: Rationed) -> bool:
        """Overwrite what the last heartbeat decides; whether the set of topics changed (store-and-broker.md 8.1)."""
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from_where = data.consume_from_where
        changed = False
        wanted = set()
        for sub in data.subscription_data_set:
            wanted.add(sub.topic)
            old = self.subscriptions.get(sub.topic)
            if old is None:
                self.subscriptions[sub.topic] = Subscription.of(sub)
                changed = True
                notes.say(log.info, "%s subscribes to %s: %s", self.name, sub.topic, sub.sub_string)
            elif sub.sub_version > old.data.sub_version:
                if sub.sub_string != old.data.sub_string:
                    complaints.say(
                        log.warning,
                        "%s changes its subscription of %s from %s to %s",
                        self.name,
                        sub.topic,
                        old.data.sub_string,
                        sub.sub_string,
                    )
                self.subscriptions[sub.topic] = Subscription.of(sub)
        for topic in [topic for topic in self.subscriptions if topic not in wanted]:
            del self.subscriptions[topic]
            changed = True
            notes.say(log.info, "%s no longer subscribes to %s", self.name, topic)
        return changed


class Consumers:
    """Consumer groups online (Java: ConsumerManager).

    :param clock: the world's clock.
    :param tell: tells members of a group that it changed.
    """

    def __init__(self, clock: Clock, tell: Tell) -> None:
        self._clock = clock
        self._groups: dict[str, ConsumerGroup] = {}
        self._of_conn: dict[Conn, dict[str, None]] = {}
        self._notices = Notices(clock, self._members, tell)
        self._notes = Rationed(clock, most=_LINES_MOST)
        self._complaints = Rationed(clock, most=_LINES_MOST)
        #: Called with a group and all its subscriptions, at every heartbeat.
        self.on_heartbeat: list[Callable[[str, list[SubscriptionData]], None]] = []
        #: Called with a group and a client id: it has a connection again, and it has none any more.
        self.on_came: list[Callable[[str, str], None]] = []
        self.on_left: list[Callable[[str, str], None]] = []
        #: Called with a group whose last consumer is gone.
        self.on_gone: list[Callable[[str], None]] = []

    def group(self, name: str) -> ConsumerGroup | None:
        return self._groups.get(name)

    def groups(self) -> list[ConsumerGroup]:
        return list(self._groups.values())

    def _members(self, name: str) -> list[Conn]:
        group = self._groups.get(name)
        return [] if group is None else list(group.channels)

    def groups_on(self, topic: str) -> list[str]:
        """Online groups that subscribe to a topic."""
        return [group.name for group in self._groups.values() if topic in group.subscriptions]

    def register(
        self, conn: Conn, client_id: str, language: int | None, version: int, data: ConsumerData, *, notify: bool
    ) -> bool:
        """Take in one group of a heartbeat.

        :param notify: whether members are told of a change (the group's setting; whoever tells them asks the broker's).
        :returns: whether the group changed: a new connection, or topics added or removed.
        """
        name = data.group_name
        if conn.closed:
            return False
        if fault := name_fault(name):
            self._complaints.say(log.warning, "%s: a group of its heartbeat is left out: %s", conn.peer, fault)
            return False
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = ConsumerGroup(name)
        changed = group._take_over(data, self._notes, self._complaints)
        channel = group.channels.get(conn)
        if channel is None:
            if group.find(client_id) is not None:
                self._complaints.say(
                    log.warning,
                    "client id %s of %s is on two connections; the new one is %s",
                    client_id,
                    name,
                    conn.peer,
                )
            group.channels[conn] = self._channel(conn, client_id, language, version)
            self._of_conn.setdefault(conn, {})[name] = None
            changed = True
            self._notes.say(log.info, "consumer %s joins %s from %s", client_id, name, conn.peer)
            for told in self.on_came:
                told(name, client_id)
        else:
            self._refresh(channel, client_id, language, version)
        if changed and notify:
            self._notices.changed(name)
        for listener in self.on_heartbeat:
            listener(name, data.subscription_data_set)
        return changed

    def _channel(self, conn: Conn, client_id: str, language: int | None, version: int) -> Channel:
        return Channel(conn, client_id, language, version, self._clock.now_ms(), self._clock.monotonic())

    def _refresh(self, channel: Channel, client_id: str, language: int | None, version: int) -> None:
        if channel.client_id != client_id:
            channel.client_id, channel.language, channel.version = client_id, language, version
        channel.last_update = self._clock.now_ms()
        channel.last_seen = self._clock.monotonic()

    def unregister(self, conn: Conn, group_name: str, *, notify: bool) -> None:
        """A consumer leaves one group; unknown ones are ignored."""
        self._remove(conn, group_name, notify=notify)

    def closed(self, conn: Conn) -> None:
        """A connection is gone: it leaves every group, and the others are told."""
        for name in self._of_conn.pop(conn, {}):
            self._remove(conn, name, notify=True)

    def _remove(self, conn: Conn, name: str, *, notify: bool) -> None:
        group = self._groups.get(name)
        channel = group.channels.pop(conn, None) if group is not None else None
        if group is None or channel is None:
            return
        names = self._of_conn.get(conn)
        if names is not None:
            names.pop(name, None)
            if not names:
                del self._of_conn[conn]
        self._notes.say(log.info, "consumer %s leaves %s", channel.client_id, name)
        if group.find(channel.client_id) is None:
            for told in self.on_left:
                told(name, channel.client_id)
        if not group.channels:
            del self._groups[name]
            for listener in self.on_gone:
                listener(name)
        elif notify:
            self._notices.changed(name)

    def knows(self, conn: Conn) -> bool:
        """Whether a connection has a consumer."""
        return conn in self._of_conn

    def expire(self) -> list[Conn]:
        """Drop silent members from their groups; the connections of which one was dropped."""
        silent = _silent(((group.name, group.channels) for group in self._groups.values()), self._clock)
        for name, channel in silent:
            self._complaints.say(
                log.warning, "no heartbeat for %s from consumer %s for %d s", name, channel.conn.peer, EXPIRY_SECONDS
            )
            self._remove(channel.conn, name, notify=True)
        return list(dict.fromkeys(channel.conn for _, channel in silent))


class Producers:
    """Producer groups online, and the connection of each client id for replies (Java: ProducerManager)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._notes = Rationed(clock, most=_LINES_MOST)
        self._groups: dict[str, dict[Conn, Channel]] = {}
        self._of_conn: dict[Conn, dict[str, None]] = {}
        #: Client id -> the accounts that call a client so -> its connection; without access control they are None.
        self._clients: dict[str, dict[str | None, Conn]] = {}

    def register(
        self,
        conn: Conn,
        client_id: str,
        language: int | None,
        version: int,
        group: str,
        grant: Grant | None = None,
    ) -> None:
        """Take in one producer group of a heartbeat."""
        if conn.closed:
            return
        if fault := name_fault(group):
            self._notes.say(log.warning, "%s: a group of its heartbeat is left out: %s", conn.peer, fault)
            return
        channels = self._groups.setdefault(group, {})
        channel = channels.get(conn)
        now, seen = self._clock.now_ms(), self._clock.monotonic()
        if channel is None:
            channels[conn] = Channel(conn, client_id, language, version, now, seen, grant)
            self._of_conn.setdefault(conn, {})[group] = None
            self._notes.say(log.info, "producer %s joins %s from %s", client_id, group, conn.peer)
        else:
            if channel.client_id != client_id:
                before, channel.client_id = channel.client_id, client_id
                channel.language, channel.version = language, version
                self._left(conn, before)
            channel.last_update, channel.last_seen, channel.grant = now, seen, grant
        self._hold(client_id, conn, None if grant is None else grant.account)

    def _hold(self, client_id: str, conn: Conn, account: str | None) -> None:
        """Push the account's replies for a client there from now on."""
        claims = self._clients.get(client_id, {})
        others = {
            owner: there for owner, there in claims.items() if not (owner == account or there is conn or there.closed)
        }
        if others and account not in claims:
            self._notes.say(
                log.warning, "%s calls itself %s, as a client of another account at %s does: neither gets replies "
                "until one of them has another instance name",
                conn.peer, client_id, next(iter(others.values())).peer,
            )  # fmt: skip
        self._clients[client_id] = {**others, account: conn}

    def unregister(self, conn: Conn, group: str) -> None:
        channels = self._groups.get(group)
        channel = channels.pop(conn, None) if channels is not None else None
        if channels is None or channel is None:
            return
        if not channels:
            del self._groups[group]
        names = self._of_conn.get(conn)
        if names is not None:
            names.pop(group, None)
            if not names:
                del self._of_conn[conn]
        self._left(conn, channel.client_id)
        self._notes.say(log.info, "producer %s leaves %s", channel.client_id, group)

    def closed(self, conn: Conn) -> None:
        for group in list(self._of_conn.get(conn, ())):
            self.unregister(conn, group)

    def knows(self, conn: Conn) -> bool:
        """Whether a connection has a producer."""
        return conn in self._of_conn

    def expire(self) -> list[Conn]:
        """Drop silent members from their groups; the connections of which one was dropped."""
        silent = _silent(self._groups.items(), self._clock)
        for name, channel in silent:
            self._notes.say(
                log.warning, "no heartbeat for %s from producer %s for %d s", name, channel.conn.peer, EXPIRY_SECONDS
            )
            self.unregister(channel.conn, name)
        return list(dict.fromkeys(channel.conn for _, channel in silent))

    def group(self, name: str) -> list[Channel] | None:
        channels = self._groups.get(name)
        return None if channels is None else list(channels.values())

    def groups(self) -> dict[str, list[Channel]]:
        return {name: list(channels.values()) for name, channels in self._groups.items()}

    def _left(self, conn: Conn, client_id: str) -> None:
        """Forget a client id that no group of its connection has any more."""
        names = self._of_conn.get(conn, ())
        claims = self._clients.get(client_id, {})
        if conn not in claims.values() or any(self._groups[name][conn].client_id == client_id for name in names):
            return
        left = {account: there for account, there in claims.items() if there is not conn}
        if left:
            self._clients[client_id] = left
        else:
            del self._clients[client_id]

    def client(self, client_id: str) -> Conn | None:
        """The open connection of a client id, where a reply is pushed to; None while two accounts have one of that id.

        A reply does not say whose request it answers. Whoever is first is not thereby the one who asked.
        """
        there = [conn for conn in self._clients.get(client_id, {}).values() if not conn.closed]
        return there[0] if len(there) == 1 else None


def _silent(groups: Iterable[tuple[str, dict[Conn, Channel]]], clock: Clock) -> list[tuple[str, Channel]]:
    """Members without a heartbeat, with the name of their group."""
    oldest = clock.monotonic() - EXPIRY_SECONDS
    return [(name, channel) for name, channels in groups for channel in channels.values() if channel.last_seen < oldest]
