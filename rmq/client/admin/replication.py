"""Replication: what masters and slaves tell of each other, and who leads a group that elects its master."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rmq.client.admin.answers import Answers
from rmq.client.admin.asking import Asking
from rmq.client.checks import typed
from rmq.protocol.bodies.cluster import BrokerMemberGroup
from rmq.protocol.bodies.replica import HARuntimeInfo
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.errors import NotFound, ResponseError
from rmq.protocol.headers.admin import ControllerMetaDataResponse, ElectMasterRequest, ElectMasterResponse

__all__ = ["Elected", "GroupLeader", "Replication"]


class GroupLeader(NamedTuple):
    """Who leads a group: its ``dLegerSelfId``, and ``host:port`` for clients."""

    id: str
    address: str


class Elected(NamedTuple):
    """Who leads a group now."""

    #: ``host:port`` of the new master, and the term in which it leads.
    address: str
    term: int
    #: Broker id -> ``host:port`` of the members; 0 is the master.
    brokers: dict[int, str]


@typed()
class Replication(Asking):
    """Operations on replication."""

    async def broker_ha_status(self, broker_addr: str) -> HARuntimeInfo:
        """A master's slaves and how far each is, or how far a slave is (haStatus; Java: HARuntimeInfo)."""
        reply = await self._client.call(broker_addr, RequestCode.GET_BROKER_HA_STATUS)
        return HARuntimeInfo.decode(reply.body)

    async def broker_ha_status_of(self, broker_addrs: Iterable[str]) -> Answers[HARuntimeInfo]:
        """The same of several brokers, asked side by side."""
        return await self._ask_each(
            broker_addrs, RequestCode.GET_BROKER_HA_STATUS, None, b"", lambda reply: HARuntimeInfo.decode(reply.body)
        )

    async def elect_master(
        self,
        broker_name: str,
        broker_id: int,
        cluster: str | None = None,
        controller_addr: str | None = None,
        *,
        timeout: float = 15.0,
    ) -> Elected:
        """Have a member of a group lead it, instead of the one that does (electMaster of 5.x).

        :param broker_id: the one that the member has while it follows: the number of its ``dLegerSelfId`` and one.
        :param cluster: refused where the group is of another one.
        :param controller_addr: a member to ask who leads; else those that the name server knows.
        :param timeout: seconds; the group itself gives up after three times ``raftElectionTimeout``.
        :raises NotFound: there is no such group, or nobody in it knows who leads.
        :raises ResponseError: the member cannot lead, or has not taken the lead.
        """
        leader = await self.group_leader(broker_name, controller_addr)
        header = ElectMasterRequest(
            broker_id=broker_id, cluster_name=cluster, broker_name=broker_name, designate_elect=True
        )
        reply = await self._client.call(leader.address, RequestCode.CONTROLLER_ELECT_MASTER, header, timeout=timeout)
        answer = reply.header(ElectMasterResponse)
        members = BrokerMemberGroup.decode(reply.body) if reply.body else BrokerMemberGroup()
        brokers = dict(sorted(members.broker_addrs.items()))
        return Elected(answer.master_address or "", answer.master_epoch or 0, brokers)

    async def group_leader(self, broker_name: str, controller_addr: str | None = None) -> GroupLeader:
        """Whom the members of a group call their leader.

        :param controller_addr: a member to ask; else those that the name server knows.
        :raises NotFound: there is no such group, or nobody in it knows who leads.
        """
        if controller_addr is None:
            known = (await self.cluster_info()).broker_addr_table
            if broker_name not in known:
                raise NotFound(f"no broker has the name {broker_name} (known: {', '.join(sorted(known)) or 'none'})")
            asked = [address for _, address in sorted(known[broker_name].broker_addrs.items())]
        else:
            asked = [controller_addr]
        answers = await self._ask_each(
            asked, RequestCode.CONTROLLER_GET_METADATA_INFO, None, b"",
            lambda reply: reply.header(ControllerMetaDataResponse),
        )  # fmt: skip
        for said in answers.found.values():
            if said.controller_leader_id and said.controller_leader_address:
                return GroupLeader(said.controller_leader_id, said.controller_leader_address)
        if answers.found:
            raise NotFound(f"{broker_name} has no leader: a majority of its members has to run and hear each other")
        error = next(iter(answers.failed.values()))
        if isinstance(error, ResponseError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise NotFound(f"{broker_name} is no group that elects its master") from error
        raise error
