"""The answers of the send path, from templates.

A send that succeeded is answered with the same JSON but for five values, so it is filled in rather than built. The
fields are those of Java's answer, with the region and the trace switch as plain ext fields (protocol.md 2.2).
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

import orjson

from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import FLAG_RESPONSE, VERSION, Command, SerializeType
from rmq.protocol.frame import encode

if TYPE_CHECKING:
    from rmq.broker.settings import BrokerSettings

__all__ = ["Recallable", "SendAnswers", "text_bytes"]

_lengths = Struct(">ii").pack
#: Room for the digits of what is filled in.
_DIGITS = 128


def text_bytes(text: str) -> bytes:
    """A text as the inside of a JSON string, safe to stand in a ``%`` template."""
    inside: bytes = orjson.dumps(text.encode(errors="replace").decode())[1:-1]
    return inside.replace(b"%", b"%%")


class Recallable(Command):
    """A send whose message waits for its time: the answer tells the handle it is recalled by."""

    __slots__ = ("recall_handle",)

    def __init__(self, request: Command, recall_handle: str) -> None:
        super().__init__(request.code, opaque=request.opaque, serialize=request.serialize)
        self.recall_handle = recall_handle


class SendAnswers:
    """Builds the answers of one broker.

    :param store_host: the broker's address, 4 or 16 bytes and 4 of port: the start of every message id.
    :param settings: region and trace switch, which may change while running.
    """

    def __init__(self, store_host: bytes, settings: BrokerSettings) -> None:
        self._host_id = store_host.hex().upper()
        self._region = settings.region_id
        self._trace_on = settings.trace_on
        self._build()

    def follow(self, settings: BrokerSettings) -> None:
        """Take over changed settings; called once a tick."""
        if settings.region_id != self._region or settings.trace_on != self._trace_on:
            self._region = settings.region_id
            self._trace_on = settings.trace_on
            self._build()

    def _build(self) -> None:
        region, trace_on = self._region, self._trace_on
        trace = "true" if trace_on else "false"
        self.ext: dict[str, str | None] = {"MSG_REGION": region, "TRACE_ON": trace}
        #: Code, queue id, commit-log offset, queue index and opaque make it the header of an answer.
        self.template = (
            b'{"code":%%d,"extFields":{"queueId":"%%d","TRACE_ON":"%b","MSG_REGION":"%b","msgId":"%b%%016X",'
            b'"queueOffset":"%%d"},"flag":1,"language":"PYTHON","opaque":%%d,"serializeTypeCurrentRPC":"JSON",'
            b'"version":%d}' % (trace.encode(), text_bytes(region), self._host_id.encode(), VERSION)
        )
        #: What stands in front of a header in a frame without a body, by the header's length.
        self.lengths = tuple(_lengths(size + 4, size) for size in range(len(self.template) + _DIGITS))

    def message_id(self, physical: int) -> str:
        """The offset message id of a record of this broker."""
        return f"{self._host_id}{physical:016X}"

    def stored(self, code: int, opaque: int, queue_id: int, index: int, physical: int) -> bytes:
        """A whole frame: the message is stored (code 0, or 10, 11, 12: stored, but not as durable as asked)."""
        header = self.template % (code, queue_id, physical, index, opaque)
        return self.lengths[len(header)] + header

    def ids(self, offsets: list[tuple[int, int]]) -> str:
        """The ids of messages, as the answer to a batch has them."""
        host = self._host_id
        return ",".join([f"{host}{physical:016X}" for _, physical in offsets])

    def stored_command(
        self,
        code: int,
        request: Command,
        queue_id: int,
        offsets: list[tuple[int, int]],
        transaction_id: str | None,
        ids: str | None = None,
    ) -> bytes:
        """The same for what the template does not fit: a batch's many ids, a binary header, a transaction id.

        :param ids: those of ``offsets``, when they are there already.
        """
        ext: dict[str, str | None] = {
            "queueId": str(queue_id),
            **self.ext,
            "msgId": self.ids(offsets) if ids is None else ids,
            "queueOffset": str(offsets[0][0]),
        }
        if transaction_id is not None:
            ext["transactionId"] = transaction_id
        if isinstance(request, Recallable):
            ext["recallHandle"] = request.recall_handle
        return self._answer(request, code, None, ext)

    def refused(self, request: Command, code: int, remark: str | None) -> bytes:
        """A send that was not stored, and why."""
        if code == ResponseCode.SYSTEM_BUSY:
            return self._answer(request, code, remark, None, SerializeType.JSON)
        return self._answer(request, code, remark, dict(self.ext))

    @staticmethod
    def _answer(
        request: Command,
        code: int,
        remark: str | None,
        ext: dict[str, str | None] | None,
        serialize: SerializeType | None = None,
    ) -> bytes:
        return encode(
            Command(
                code,
                ext=ext,
                remark=remark,
                flag=FLAG_RESPONSE,
                opaque=request.opaque,
                serialize=request.serialize if serialize is None else serialize,
            )
        )
