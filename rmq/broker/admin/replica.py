"""What 5.x brokers and mqadmin ask a master about its replicas (60, 61, 906, 907, 908)."""

from __future__ import annotations

from collections.abc import Callable

from rmq.broker.parts import Ground
from rmq.broker.replication.master_service import MasterReplication
from rmq.protocol.bodies.replica import GroupInfo, HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ResponseError
from rmq.protocol.headers.admin import ExchangeHAInfoRequest, ExchangeHAInfoResponse, ResetMasterFlushOffsetRequest
from rmq.remoting.conn import Conn
from rmq.remoting.router import handles

__all__ = ["ReplicaAdmin"]


class ReplicaAdmin:
    """Handlers of a master, and of a slave.

    :param master: what sends the log to slaves; None while the broker is no master.
    :param slave: how the link to the master is; None while the broker is no slave.
    :param group: how its group is that elects its master; None where there is none.
    """

    def __init__(
        self,
        ground: Ground,
        master: Callable[[], MasterReplication | None],
        slave: Callable[[], HAClientRuntimeInfo | None],
        group: Callable[[], GroupInfo | None] = lambda: None,
    ) -> None:
        self._group = group
        self._master = master
        self._slave = slave
        self._store = ground.store
        self._broker_addr = ground.broker_addr
        self._ha_addr = ground.ha_addr

    @handles(RequestCode.GET_BROKER_HA_STATUS)
    def ha_status(self, conn: Conn, request: Command) -> Command:
        """907 (5.x): where the log ends, and the slaves that read it; of a slave how far it is itself."""
        master = self._master()
        if master is not None:
            status = self._of_master(master)
        else:
            told = self._slave() or HAClientRuntimeInfo(max_offset=self._store.log.end)
            status = HARuntimeInfo(master=False, ha_client_runtime_info=told)
        if (group := self._group()) is not None:
            status.group = group
            if status.master:
                self._of_leader(status, group)
        return request.reply(ResponseCode.SUCCESS, body=status.encode())

    def _of_master(self, master: MasterReplication) -> HARuntimeInfo:
        end, seen = self._store.log.end, master.slaves()
        return HARuntimeInfo(
            master=True,
            master_commit_log_max_offset=end,
            in_sync_slave_nums=sum(one.in_sync for one in seen),
            ha_connection_info=[
                HAConnectionRuntimeInfo(
                    addr=one.address,
                    diff=max(0, end - one.acked),
                    in_sync=one.in_sync,
                    slave_ack_offset=one.acked,
                    transfer_from_where=one.next,
                    transferred_byte_in_second=int(one.sent / max(one.seconds, 1.0)),
                    behind_seconds=int(one.behind),
                )
                for one in seen
            ],
            refused=master.refusals() or None,
        )

    def _of_leader(self, status: HARuntimeInfo, group: GroupInfo) -> None:
        """The others of a group look like slaves to who knows no groups."""
        status.ha_connection_info = [
            HAConnectionRuntimeInfo(
                addr=one.broker or one.addr,
                diff=one.behind or 0,
                in_sync=one.in_sync,
                slave_ack_offset=one.end or 0,
                transfer_from_where=one.end or 0,
                transferred_byte_in_second=one.speed or 0,
            )
            for one in group.members
            if one.connected
        ]
        status.in_sync_slave_nums = sum(one.in_sync for one in status.ha_connection_info)

    @handles(RequestCode.EXCHANGE_BROKER_HA_INFO, header=ExchangeHAInfoRequest)
    def exchange_ha_info(self, conn: Conn, request: Command, header: ExchangeHAInfoRequest) -> Command:
        """906 (5.x): a slave asks for its master's addresses. One that tells them, or asks a slave, gets none."""
        if header.master_ha_address is not None or self._master() is None:
            return request.reply(ResponseCode.SUCCESS, header=ExchangeHAInfoResponse())
        answer = ExchangeHAInfoResponse(
            master_ha_address=self._ha_addr, master_flush_offset=0, master_address=self._broker_addr
        )
        return request.reply(ResponseCode.SUCCESS, header=answer)

    @handles(RequestCode.RESET_MASTER_FLUSH_OFFSET, header=ResetMasterFlushOffsetRequest)
    def reset_flush_offset(self, conn: Conn, request: Command, header: ResetMasterFlushOffsetRequest) -> Command:
        """908 (5.x): only a slave keeps its master's flush offset."""
        return request.reply(ResponseCode.SUCCESS)

    @handles(RequestCode.GET_TIMER_CHECK_POINT)
    def timer_check_point(self, conn: Conn, request: Command) -> Command:
        """60 (5.x): refused as by a 5.x broker without a timer wheel; timers are kept otherwise (docs/delays.md)."""
        raise ResponseError(ResponseCode.SYSTEM_ERROR, "The checkpoint is null")

    @handles(RequestCode.GET_TIMER_METRICS)
    def timer_metrics(self, conn: Conn, request: Command) -> Command:
        """61 (5.x): likewise."""
        raise ResponseError(ResponseCode.SYSTEM_ERROR, "The timer message store is null")
