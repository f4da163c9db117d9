"""What a broker tells of its replicas: 5.x's 907 (protocol.md 2.13)."""

from __future__ import annotations

from rmq.protocol.bodies.body import Body, body, member

__all__ = ["GroupInfo", "GroupMember", "HAClientRuntimeInfo", "HAConnectionRuntimeInfo", "HARuntimeInfo"]


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
class GroupMember(Body):
    """Ours: a member of a group that elects its master, as the one that is asked sees it."""

    id: str = member("id", default="")
    #: Where members speak to it (``dLegerPeers``), and where clients do, as far as it was ever met.
    addr: str = member("addr", default="")
    broker: str | None = member("broker", default=None)
    #: Whether there is a connection to it.
    connected: bool = member("connected", default=False)
    #: A leader's: whether it could lead next; up to where it has the log, bytes that it lacks, and milliseconds since
    #: it was heard.
    in_sync: bool = member("inSync", default=False)
    #: A leader's: False of one that has lost its disk, until it has everything again.
    counted: bool = member("counted", default=True)
    end: int | None = member("end", default=None)
    behind: int | None = member("behind", default=None)
    heard: int | None = member("heardMillis", default=None)
    #: A leader's: bytes of the log a second that it was sent, since the connection to it was opened.
    speed: int | None = member("transferredByteInSecond", default=None)
    #: Why it does not take the one that is asked.
    trouble: str | None = member("trouble", default=None)


@body
class GroupInfo(Body):
    """Ours: a group that elects its master, as one of its members sees it."""

    group: str = member("group", default="")
    me: str = member("me", default="")
    #: leader, follower, candidate, or stopped.
    role: str = member("role", default="")
    term: int = member("term", default=0)
    leader: str | None = member("leader", default=None)
    preferred: str | None = member("preferredLeader", default=None)
    #: Up to where the log is committed, and where it ends here.
    committed: int = member("committed", default=0)
    end: int = member("end", default=0)
    #: The others.
    members: list[GroupMember] = member("members", factory=list)
    #: Why clients may not be sent here.
    trouble: str | None = member("trouble", default=None)


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
    #: Ours: of a broker whose group elects its master.
    group: GroupInfo | None = member("group", default=None)
