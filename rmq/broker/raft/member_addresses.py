"""Where the members of a group are: where the settings say, where they were found, and whether who comes is one."""

from __future__ import annotations

import logging
import ssl

from rmq.broker.raft.peers import Peers
from rmq.broker.settings import BrokerSettings
from rmq.protocol import addresses
from rmq.protocol.errors import ReplicationError
from rmq.remoting.tls import ServerTls, TlsMode
from rmq.runtime import patience
from rmq.runtime.world import World

__all__ = ["MemberAddresses"]

log = logging.getLogger(__name__)

#: Seconds to look up a name.
_RESOLVE = 3.0


class MemberAddresses:
    """As one member knows them.

    :param tls: of the connections that others open.
    """

    def __init__(self, world: World, settings: BrokerSettings, peers: Peers, tls: ServerTls) -> None:
        self._world = world
        self._settings = settings
        self._at = peers.at
        self._me = peers.members.me
        self._tls = tls
        self._allowed = settings.ha_networks()
        #: Where the others answered last.
        self._found: dict[str, addresses.Host] = {}

    # -- of who connects

    def found(self, one: str, host: addresses.Host) -> None:
        """A member answers there."""
        self._found[one] = host

    def is_found(self, host: addresses.Host | None) -> bool:
        """Whether a member answered there last."""
        return host in self._found.values()

    def admit(self, host: addresses.Host | None) -> None:
        """Somebody connects from there.

        :raises ReplicationError: ``haAllowedAddresses`` does not let it.
        """
        if self._allowed and not any(host in network for network in self._allowed):
            raise ReplicationError(
                "haAllowedAddresses does not name its address; with aclEnable this machine alone may be of the group "
                "unless haAllowedAddresses names the members' addresses"
            )

    def prove(self, one: str, host: addresses.Host | None) -> None:
        """Who comes with a new disk, or to one, is where ``dLegerPeers`` says, or has a certificate of ours.

        Else anybody could have a new member believe that it had another disk before, and is not counted.

        :raises ReplicationError: it is somewhere else.
        """
        found = self._found.get(one)
        if found != host and not self._asks_certificates():
            raise ReplicationError(
                f"it says that it is {one}, whose disk is new to this member, and comes from {host}, not from the "
                f"address that dLegerPeers names ({found or 'nobody answers there'})"
            )

    def _asks_certificates(self) -> bool:
        context = self._tls.context
        enforced = self._tls.mode is TlsMode.ENFORCING
        return enforced and context is not None and context.verify_mode is ssl.CERT_REQUIRED

    # -- of the settings

    def warn_of_left_out(self) -> None:
        """Name the members that may not connect, where that can be told.

        No error: they may come from other addresses than they have.
        """
        left = [
            f"{one} ({host})"
            for one, (host, _) in self._at.items()
            if one != self._me and self._allowed and not self._may_connect(host)
        ]
        if left:
            own = "" if self._settings.ha_allowed_addresses else " (with aclEnable it names this machine alone)"
            log.warning(
                "haAllowedAddresses does not name members of dLegerPeers, which may not connect then: %s%s",
                ", ".join(left), own,
            )  # fmt: skip

    def _may_connect(self, host: str) -> bool:
        """Whether a host is allowed; of a name nobody knows here."""
        try:
            address = addresses.host(host)
        except ValueError:
            return True
        return any(address in network for network in self._allowed)

    async def warn_of_own(self) -> None:
        """Say why the others may not find this member where the settings say.

        No error: addresses may be passed on.
        """
        host, port = self._at[self._me]
        where = f"dLegerPeers names {addresses.join(host, port)} as this member"
        try:
            found = [addresses.host(host)]
        except ValueError:  # a name
            try:
                async with patience.timeout(_RESOLVE):
                    found = [addresses.host(one) for one in await self._world.network.resolve(host)]
            except OSError as error:  # a timeout, too
                log.warning("%s, and no address is known for that name here: %s", where, error.strerror or "no answer")
                return
        elsewhere = [other for other, _ in self._at.values() if not _is_loopback(other)]
        if found and elsewhere and all(one.is_loopback for one in found):
            log.warning("%s, and %s as others: these look for it on their own machines", where, ", ".join(elsewhere))
        own = [addresses.host(text) for _, text in self._world.identity.addresses()]
        if found and not any(one.is_loopback or one in own for one in found):
            log.warning(
                "%s, which is no address of this machine: the others reach it only if that is passed on to here", where
            )
        elif found and not self._listens_at(found):
            log.warning(
                "%s, and with bindAddress=%s it does not listen there: the others do not reach it; leave bindAddress "
                "out, or name its address in dLegerPeers", where, self._settings.bind_address,
            )  # fmt: skip

    def _listens_at(self, own: list[addresses.Host]) -> bool:
        """Whether the socket for members has one of these addresses; True where nobody knows here."""
        try:
            bound = addresses.host(self._settings.bind_address)
        except ValueError:  # empty, which is every address, or a name
            return True
        return bound in own or (bound.is_unspecified and any(one.version <= bound.version for one in own))


def _is_loopback(host: str) -> bool:
    """Whether it is this machine's own for everybody; of a name that is known of one alone."""
    try:
        return addresses.host(host).is_loopback
    except ValueError:
        return host == "localhost"
