"""What a broker is in its set: master, or slave of one (store-and-broker.md 6.7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rmq.broker.settings import BrokerSettings
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.errors import ConfigError
from rmq.protocol.names import MASTER_ID
from rmq.remoting.router import Refusal

__all__ = ["FOR_MASTERS", "Role"]

_MODIFY = Refusal(
    ResponseCode.SYSTEM_ERROR,
    "Can't modify topic or subscription group from slave broker, please execute it from master broker.",
)
_POP = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is a slave: messages are popped from its master")

#: What only a master does, and how Java's slaves refuse it. Sends are refused where they arrive, by the closed gate.
FOR_MASTERS: Mapping[int, Refusal] = {
    **dict.fromkeys(
        (
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
            RequestCode.DELETE_TOPIC_IN_BROKER,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            RequestCode.DELETE_SUBSCRIPTIONGROUP,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
            RequestCode.SET_MESSAGE_REQUEST_MODE,
        ),
        _MODIFY,
    ),
    RequestCode.CONSUMER_SEND_MSG_BACK: Refusal(ResponseCode.SYSTEM_ERROR, "SERVICE_NOT_AVAILABLE"),
    RequestCode.END_TRANSACTION: Refusal(ResponseCode.SLAVE_NOT_AVAILABLE, "not set any response code"),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: Refusal(
        ResponseCode.SYSTEM_ERROR, "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."
    ),
    RequestCode.RECALL_MESSAGE: Refusal(
        ResponseCode.SLAVE_NOT_AVAILABLE, "this broker is a slave: messages are recalled from its master"
    ),
    **dict.fromkeys(
        (
            RequestCode.POP_MESSAGE,
            RequestCode.PEEK_MESSAGE,
            RequestCode.NOTIFICATION,
            RequestCode.POLLING_INFO,
            RequestCode.ACK_MESSAGE,
            RequestCode.BATCH_ACK_MESSAGE,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        ),
        _POP,
    ),
}


@dataclass(frozen=True, slots=True)
class Role:
    """One role of a broker; whoever compares or shows it reads the name."""

    name: str
    #: What name servers are told.
    broker_id: int
    #: Whether it writes: takes messages, delivers what was delayed, asks about transactions, hands out by POP.
    leads: bool
    #: Request codes that it refuses, with the answer.
    refusals: Mapping[int, Refusal]

    @classmethod
    def master(cls) -> Role:
        """It writes, and refuses nothing."""
        return cls("master", MASTER_ID, leads=True, refusals={})

    @classmethod
    def slave(cls, broker_id: int) -> Role:
        """It has what its master has, and lets consumers read it.

        :raises ConfigError: the id is a master's, or none.
        """
        if broker_id <= MASTER_ID:
            raise ConfigError(f"brokerId={broker_id}: a slave has an id above 0")
        return cls("slave", broker_id, leads=False, refusals=FOR_MASTERS)

    @classmethod
    def of(cls, settings: BrokerSettings) -> Role:
        """The role that ``brokerRole`` and ``brokerId`` say.

        :raises ConfigError: a slave with a master's id.
        """
        return cls.slave(settings.broker_id) if settings.broker_role == "SLAVE" else cls.master()
