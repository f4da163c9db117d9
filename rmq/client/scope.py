"""A local transaction as a block: ``with producer.transaction(message): session.commit()``."""

from __future__ import annotations

from rmq.client.results import SendResult, SendStatus, TransactionSendResult, TransactionState
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ClientError, ResponseError

__all__ = ["TransactionScope"]


class TransactionScope:
    """How the block of one message went; what it is on both surfaces."""

    def __init__(self) -> None:
        self._half: SendResult | None = None
        self._rolled_back = False
        self._result: TransactionSendResult | None = None

    @property
    def msg_id(self) -> str:
        """The message's unique id: what the database keeps of it, and what ``check`` finds it by.

        :raises ClientError: the block was not entered.
        """
        if self._half is None:
            raise ClientError("the message of a transaction has its id once the block is entered: use it with 'with'")
        return self._half.msg_id

    @property
    def result(self) -> TransactionSendResult | None:
        """What became of it, behind the block."""
        return self._result

    def rollback(self) -> None:
        """The message is dropped at the end of the block, however that ends."""
        self._rolled_back = True

    def _fresh(self) -> None:
        if self._half is not None:
            raise ClientError("this transaction was entered before: ask the producer for another one")

    def _begun(self, half: SendResult) -> bool:
        """The message is stored. :returns: whether as it should be."""
        self._half = half
        return half.send_status is SendStatus.SEND_OK

    def _refusal(self) -> ResponseError:
        assert self._half is not None
        status = self._half.send_status.name
        remark = f"the message was stored, but {status}: it is rolled back, and the transaction was not begun"
        return ResponseError(ResponseCode[status], remark).about(queue=self._half.message_queue)

    def _state(self, error: BaseException | None) -> TransactionState:
        """What the broker is told; with an error nobody knows whether the database has committed, but ``check``."""
        if self._rolled_back:
            return TransactionState.ROLLBACK
        return TransactionState.COMMIT if error is None else TransactionState.UNKNOWN
