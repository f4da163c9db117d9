"""What a broker tells of its replicas: 5.x's 907 (protocol.md 2.13)."""

from __future__ import annotations

from rmq.protocol.bodies.body import Body, body, member

__all__ = ["HAClientRuntimeInfo", "HAConnectionRuntimeInfo", "HARuntimeInfo"]


@body
class HAConnectionRuntimeInfo(Body):
    """A slave as its master sees it; offsets of the commit log, bytes."""

    addr: str | None = member("addr", default=None)
    diff: int = member("diff", default=0)
    in_sync: bool = member("inSync", default=False)
    slave_ack_offset: int = member("slaveAckOffset", default=0)
    transfer_from_where: int = member("transferFromWhere", default=0)
    transferred_byte_in_second: int = member("transferredByteInSecond", default=0)
    #: Ours: seconds by which what it has is older than what its master has.
    behind_seconds: int | None = member("behindSeconds", default=None)


@body
class HAClientRuntimeInfo(Body):
    """A slave's own view; all 0 on a master."""

    activate_time: int | None = member("activateTime", default=None)
    last_read_timestamp: int = member("lastReadTimestamp", default=0)
    last_write_timestamp: int = member("lastWriteTimestamp", default=0)
    master_addr: str | None = member("masterAddr", default=None)
    master_flush_offset: int = member("masterFlushOffset", default=0)
    max_offset: int = member("maxOffset", default=0)
    transferred_byte_in_second: int = member("transferredByteInSecond", default=0)
    #: Ours: why it does not follow, and seconds by which what it has is older than what its master has.
    trouble: str | None = member("trouble", default=None)
    behind_seconds: int | None = member("behindSeconds", default=None)


@body
class HARuntimeInfo(Body):
    """907 GET_BROKER_HA_STATUS."""

    ha_client_runtime_info: HAClientRuntimeInfo = member("haClientRuntimeInfo", factory=HAClientRuntimeInfo)
    ha_connection_info: list[HAConnectionRuntimeInfo] = member("haConnectionInfo", factory=list)
    in_sync_slave_nums: int = member("inSyncSlaveNums", default=0)
    master: bool = member("master", default=False)
    master_commit_log_max_offset: int = member("masterCommitLogMaxOffset", default=0)
    #: Ours: slaves that were refused within the last minutes, and why.
    refused: list[str] | None = member("refused", default=None)
