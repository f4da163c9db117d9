"""Who leads a group that elects its master, and giving the lead to another member (1002, 1005).

Java's 4.9 has nothing of the kind for DLedger. 5.x asks its controller; here each member is the controller of its own
group, so that mqadmin of 5.x finds the leader, too. A member's broker id is the one it has while it follows: its number
and one.
"""

from __future__ import annotations

import asyncio

from rmq.broker.parts import Ground
from rmq.broker.raft.group import Group
from rmq.protocol import addresses
from rmq.protocol.bodies.cluster import BrokerMemberGroup
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ResponseError
from rmq.protocol.headers.admin import ControllerMetaDataResponse, ElectMasterRequest, ElectMasterResponse
from rmq.remoting.conn import Conn
from rmq.remoting.router import handles

__all__ = ["ElectionAdmin"]

_C = ResponseCode
#: Seconds between two looks whether the other one leads.
_LOOK = 0.02


class ElectionAdmin:
    """Handlers of a member.

    :param group: None where the broker is none: it does not know these requests, as brokers of 4.9 do not.
    """

    def __init__(self, ground: Ground, group: Group | None) -> None:
        self._clock = ground.world.clock
        self._settings = ground.settings
        self._store = ground.store
        self._member = group

    @property
    def _group(self) -> Group:
        if self._member is None:
            raise ResponseError(_C.REQUEST_CODE_NOT_SUPPORTED, "this broker is no member of a group")
        return self._member

    @handles(RequestCode.CONTROLLER_GET_METADATA_INFO)
    def meta_data(self, conn: Conn, request: Command) -> Command:
        """1005 (5.x): the group, who leads it, and where its members speak to each other."""
        peers, driver = self._group.peers, self._group.driver
        leader = None if driver is None else driver.leader
        answer = ControllerMetaDataResponse(
            group=peers.group,
            controller_leader_id=leader,
            controller_leader_address=None if leader is None else self._group.view.address_of(leader),
            is_leader=leader == peers.members.me,
            peers=";".join(f"{one}-{addresses.join(*at)}" for one, at in peers.at.items()),
        )
        return request.reply(ResponseCode.SUCCESS, header=answer)

    @handles(RequestCode.CONTROLLER_ELECT_MASTER, header=ElectMasterRequest)
    async def elect_master(self, conn: Conn, request: Command, header: ElectMasterRequest) -> Command:
        """1002 (5.x): give the lead to a member; answered when it has it, or has not taken it."""
        heir = self._heir(header)
        await self._give(heir)
        group, driver = self._group, self._group.driver
        term = None if driver is None or driver.node is None else driver.node.term
        answer = ElectMasterResponse(
            master_broker_id=header.broker_id, master_address=group.view.address_of(heir), master_epoch=term,
            sync_state_set_epoch=term,
        )  # fmt: skip
        live = {0: group.view.address_of(heir)}
        live |= {int(one[1:]) + 1: group.view.address_of(one) for one in group.peers.members.voters if one != heir}
        body = BrokerMemberGroup(
            broker_addrs={number: address for number, address in live.items() if address is not None},
            broker_name=self._settings.broker_name,
            cluster=self._settings.broker_cluster_name,
        )
        return request.reply(ResponseCode.SUCCESS, header=answer, body=body.encode())

    def _heir(self, header: ElectMasterRequest) -> str:
        """The member that is to lead.

        :raises ResponseError: it cannot, or this one has no lead to give.
        """
        peers, driver = self._group.peers, self._group.driver
        settings, members = self._settings, self._group.peers.members
        for asked, own, what in (
            (header.cluster_name, settings.broker_cluster_name, "cluster"),
            (header.broker_name, settings.broker_name, "broker name"),
        ):
            if asked and asked != own:
                raise ResponseError(
                    _C.CONTROLLER_BROKER_METADATA_NOT_EXIST, f"this member is of the {what} {own}, not of {asked}"
                )
        heir = peers.with_id(header.broker_id)
        if heir is None:
            known = ", ".join(f"{int(one[1:]) + 1} is {one}" for one in members.voters)
            raise ResponseError(
                _C.CONTROLLER_BROKER_ID_INVALID, f"no member of {peers.group} has the id {header.broker_id}: {known}"
            )
        node = None if driver is None else driver.node
        followers = {} if node is None else node.followers(self._clock.monotonic())
        if driver is None or node is None or driver.leads is None or not followers:
            raise self._leads_not(driver.leader if driver is not None else None)
        if heir == members.me:
            raise ResponseError(_C.CONTROLLER_MASTER_STILL_EXIST, f"{heir} leads {peers.group} already")
        if node.heir is not None:
            raise ResponseError(_C.CONTROLLER_ELECT_MASTER_FAILED, f"{node.heir} is being given the lead: look again")
        match, silent, counted = followers[heir]
        if match is None or silent > members.election:
            away = "since this one leads" if match is None else f"for {silent:.0f} s"
            raise ResponseError(
                _C.CONTROLLER_BROKER_NOT_ALIVE, f"{heir} was not heard {away}: it is away, and cannot lead"
            )
        if not counted:
            raise ResponseError(
                _C.CONTROLLER_ELECT_MASTER_FAILED,
                f"{heir} has lost its disk, and is not counted before it has everything again (haStatus)",
            )
        lacks = self._store.log.end - match.end
        if lacks > members.near:
            raise ResponseError(
                _C.CONTROLLER_ELECT_MASTER_FAILED,
                f"{heir} lacks {lacks} bytes of the log, and nobody could send while it gets them: wait until it lacks "
                f"no more than {members.near} (haStatus)",
            )
        return heir

    def _leads_not(self, leader: str | None) -> ResponseError:
        group = self._group
        if leader in (None, group.peers.members.me):  # it has lost the lead, and has not carried that out
            why = group.view.missing or "the group has no leader"
            return ResponseError(
                _C.CONTROLLER_MASTER_NOT_AVAILABLE, f"{group.peers.members.me} has no lead to give: {why}"
            )
        return ResponseError(
            _C.CONTROLLER_NOT_LEADER,
            f"{group.peers.members.me} does not lead {group.peers.group}: ask {leader}, at "
            f"{group.view.address_of(leader)}",
        )

    async def _give(self, heir: str) -> None:
        """:raises ResponseError: it does not take the lead; this member leads on, or somebody else does."""
        driver, clock = self._group.driver, self._clock
        if driver is None:
            raise self._leads_not(None)
        # It is waited for twice: until it has everything, and for its election.
        until = clock.monotonic() + 3 * self._group.peers.members.election
        driver.transfer(heir)
        while driver.leader != heir:
            await asyncio.sleep(_LOOK)
            if (driver.node is not None and driver.node.takes_messages) or clock.monotonic() > until:
                now = "nobody is known to lead" if driver.leader is None else f"{driver.leader} leads"
                why = f": {driver.kept}" if driver.kept else ""
                raise ResponseError(
                    _C.CONTROLLER_ELECT_MASTER_FAILED, f"{heir} has not taken the lead{why}; {now}, try again"
                )
