"""The connections of a group: a member opens one to each other, and takes those that the others open."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from rmq.broker.raft.incoming import Incoming
from rmq.broker.raft.member_addresses import MemberAddresses
from rmq.broker.raft.met import Meetings
from rmq.broker.raft.outgoing import Outgoing
from rmq.broker.raft.peers import Peers
from rmq.broker.raft.wire import Hello, SpanTold, Word, encode, pieces, sum_of
from rmq.broker.settings import BrokerSettings
from rmq.broker.store.trouble import Trouble
from rmq.protocol import addresses
from rmq.protocol.errors import ConfigError, ReplicationError, RMQError
from rmq.raft.messages import Append, Message
from rmq.remoting.limits import Repeated
from rmq.runtime import patience
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import Listener, World

__all__ = ["Links"]

log = logging.getLogger(__name__)

#: Seconds: to connect, and between two tries.
_CONNECT, _PAUSE = 3.0, 0.3
#: Connections that have not said who they are, and those of one member, at most.
_STRANGERS, _OF_ONE = 16, 4


class Links:
    """Every connection of one member.

    :param meetings: whom this member has met.
    :param meet: told who somebody says he is.
    :param heard: told each word of a member.
    :param lost: told of a member whose last connection has ended.
    """

    def __init__(
        self,
        world: World,
        settings: BrokerSettings,
        peers: Peers,
        meetings: Meetings,
        meet: Callable[[Hello], None],
        heard: Callable[[Word], None],
        lost: Callable[[str], None],
        *,
        broker: str,
        file_size: int,
    ) -> None:
        self._world = world
        self._settings = settings
        self._peers = peers
        self._me = peers.members.me
        self._meetings = meetings
        self._meet = meet
        self.heard = heard
        self.lost = lost
        # The order in which the settings name them means nothing.
        members = ";".join(sorted(peers.members.voters))
        self._hello = Hello(peers.group, self._me, "", "", members, file_size, broker, settings.broker_name)
        self.tasks = TaskOwner("group")
        self.tls = settings.server_tls()
        self._peer_tls = settings.peer_tls()
        self._addresses = MemberAddresses(world, settings, peers, self.tls)
        self._out: dict[str, Outgoing] = {}
        self._in: dict[Incoming, None] = {}
        self._listener: Listener | None = None
        self._refusals = Repeated(world.clock)
        #: Of the span that was sent or told of last: in which term, from where to where, and the sum of its bytes.
        self._span: tuple[int, int, int] | None = None
        self._span_sum = 0
        #: Others that do not take this member, and why.
        self.refused_by: dict[str, str] = {}
        #: What clients are told of the others, who said so when they connected.
        self.brokers: dict[str, str] = {}

    async def listen(self) -> None:
        """Take the others' connections.

        :raises ConfigError: the port is taken.
        """
        host, port = self._peers.at[self._me]
        try:
            self._listener = await self._world.network.listen(lambda: Incoming(self), self._settings.bind_address, port)
        except OSError as error:
            raise ConfigError(
                f"dLegerPeers: the broker cannot listen for its group on {host}:{port}: {error.strerror or error}: "
                "stop what has it, or give this member another address, in the dLegerPeers of all"
            ) from error

    def start(self) -> None:
        """Connect to the others, again and again."""
        for one in self._peers.members.others:
            self.tasks.serve(self._connect(one), f"to {one}")
        self._addresses.warn_of_left_out()
        self.tasks.spawn(self._addresses.warn_of_own(), "own address")

    async def stop(self) -> None:
        """Close everything."""
        await self.tasks.close()
        for outgoing in list(self._out.values()):
            outgoing.close()
        for incoming in list(self._in):
            incoming.close()
        if self._listener is not None:
            await self._listener.close()

    def send(self, to: str, message: Message, data: Sequence[bytes] = ()) -> None:
        """Say something, when there is a connection; else it is lost.

        Messages go to who has shown, on a connection of his own, that he is that member: something else may have its
        address now.

        :param data: as of :class:`~rmq.broker.raft.wire.Say`.
        """
        link = self._out.get(to)
        if link is not None and (not data or self._is_here(to)):
            link.send(pieces(message, data, self._sum(message, data)), span=bool(data))

    def _sum(self, message: Message, data: Sequence[bytes]) -> int:
        """Of the bytes of a span, made once for all who get it."""
        if not isinstance(message, Append) or not data:
            return 0
        span = message.term, message.before.end, message.after.end
        if span != self._span:
            self._span, self._span_sum = span, sum_of(data)
        return self._span_sum

    def tell(self, told: SpanTold) -> None:
        """Say the same to everybody who understands it, with the next span that it gets."""
        span = told.told
        self._span, self._span_sum = (told.term, span.start, span.end), span.crc  # most likely it is sent next
        unit = b""
        for one, link in self._out.items():
            if link.listens and self._is_here(one):
                unit = unit or encode(told)
                link.hold(unit)

    def _introduction(self, one: str) -> bytes:
        return self._meetings.introduce(replace(self._hello, to=one)).encode()

    def introduce(self) -> None:
        """Say again who this is: there is more to say."""
        for link in self._out.values():
            link.introduce()

    def _is_here(self, one: str) -> bool:
        return any(other.hello is not None and other.hello.source == one for other in self._in)

    @property
    def connected(self) -> list[str]:
        """Those to whom there is a connection."""
        return [one for one, link in self._out.items() if link.open]

    @property
    def answering(self) -> list[str]:
        """Those of them that have said something over it."""
        return [one for one, link in self._out.items() if link.answers]

    def speed_to(self, one: str) -> int:
        """Bytes of the log a second that a member was sent since the connection to it was opened."""
        link = self._out.get(one)
        return 0 if link is None else link.speed

    async def _connect(self, one: str) -> None:
        host, port = self._peers.at[one]
        trouble = Trouble(self._world.clock, log, f"connecting to {one} of the group", "it is tried again")
        tls = self._peer_tls
        while True:
            # What there is more to say while it is being opened is said with the first word, or behind it.
            link = self._out[one] = Outgoing(
                partial(self._introduction, one), self._world.clock.monotonic, partial(self._taken_by, one, trouble)
            )
            try:
                async with patience.timeout(_CONNECT):
                    await self._world.network.connect(
                        partial(_made, link), host, port, ssl_context=None if tls is None else tls.context
                    )
                if link.host is not None:
                    self._addresses.found(one, link.host)
                why = await link.ended
                if why is not None:
                    if link.refused:
                        self.refused_by[one] = why
                    trouble.failed(ReplicationError(f"{addresses.join(host, port)}: {why}"))
            except TimeoutError:
                trouble.failed(OSError(f"{addresses.join(host, port)} does not answer within {_CONNECT:.0f} s"))
            except OSError as error:
                fault = None if tls is None else tls.fault(error, connecting=True)
                trouble.failed(OSError(f"{addresses.join(host, port)}: {fault or error}"))
            finally:
                link.close()
                if self._out.get(one) is link:
                    del self._out[one]
            await asyncio.sleep(_PAUSE)

    def _taken_by(self, one: str, trouble: Trouble) -> None:
        self.refused_by.pop(one, None)
        trouble.over()  # now, and not when the connection ends: that would be told of a member that has just gone

    # -- for connections of others

    def opened(self, link: Incoming) -> None:
        """Somebody connects.

        :raises ReplicationError: he may not.
        """
        self._addresses.admit(link.host)
        self._in[link] = None
        strangers = [other for other in self._in if other.hello is None]
        if len(strangers) > _STRANGERS:  # a member says it at once, or after a handshake: the newest is rather one
            elsewhere = (other for other in strangers if not self._addresses.is_found(other.host))
            oldest = next(elsewhere, strangers[0])
            self.refused(oldest, ReplicationError("too many connect that do not say who they are"))

    def introduced(self, link: Incoming, hello: Hello) -> None:
        """Somebody says who he is.

        :raises ReplicationError: he is no member of this group.
        """
        own = self._hello
        group, members, file_size = own.group, own.members, own.file_size
        if hello.group != group or hello.to != self._me or hello.source not in self._peers.members.others:
            raise ReplicationError(
                f"{hello.source} of the group {hello.group} takes this for {hello.to}; it is {self._me} of {group}, "
                f"with the members {members}"
            )
        if hello.members != members or hello.file_size != file_size:
            raise ReplicationError(
                f"{hello.source} has the members {hello.members} and files of {hello.file_size} bytes, and "
                f"{self._me} has {members} and {file_size}: dLegerPeers and mappedFileSizeCommitLog are the same in all"
            )
        if hello.name != own.name:
            raise ReplicationError(
                f"{hello.source} has brokerName={hello.name}, and {self._me} has {own.name}: it is the same in all"
            )
        if self._meetings.has_to_prove(hello):
            self._addresses.prove(hello.source, link.host)
        self._meet(hello)
        of_one = [other for other in self._in if other.hello is not None and other.hello.source == hello.source]
        for other in of_one:
            if other is not link and other.hello is not None and other.hello.disk != hello.disk:
                other.close()  # nothing that a lost disk has said is heard behind a word of the newer one
        if len(of_one) > _OF_ONE:
            of_one[0].close()
        self.brokers[hello.source] = hello.broker

    def is_known(self, hello: Hello) -> bool:
        """Whether what a member says is heard."""
        return self._meetings.is_known(hello.source, hello.disk)

    def closed(self, link: Incoming) -> None:
        """A connection is gone."""
        if link in self._in:
            del self._in[link]
            hello = link.hello
            if hello is not None and not any(other.hello and other.hello.source == hello.source for other in self._in):
                self.lost(hello.source)

    def left_out(self, link: Incoming, error: ReplicationError) -> None:
        """What a leader tells of its log is nothing that can be used: that is read here, as it is without."""
        self._refusals.say(
            (link.host, str(error)), log.warning, "%s is not believed, and its log is read instead: %s", link.peer,
            error,
        )  # fmt: skip

    def refused(self, link: Incoming, error: RMQError) -> None:
        """Close a connection, and say why."""
        self._refusals.say(
            (link.host, str(error)), log.warning, "the connection of %s to this member of the group is closed: %s",
            link.peer, error,
        )  # fmt: skip
        link.refuse(str(error))


def _made(link: Outgoing) -> Outgoing:
    return link
