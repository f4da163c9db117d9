"""Whether a group pulls or pops from a topic: messageRequestMode.json, in the form that Java 5 gives it (401, 402)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rmq.broker.groups.faults import mode_fault
from rmq.broker.reserved import check_group, check_private
from rmq.broker.topics.changes import APPLIED, MODE, Change, Journal, applied_of
from rmq.broker.topics.metadata import MetadataFile
from rmq.protocol import fastjson
from rmq.protocol.bodies.pop import MessageRequestModeTable, SetMessageRequestModeRequestBody
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ResponseError
from rmq.protocol.names import is_retry_topic
from rmq.remoting.router import SHORT, handles

if TYPE_CHECKING:
    from rmq.remoting.conn import Conn
    from rmq.runtime.world import World

__all__ = ["RequestModes"]

log = logging.getLogger(__name__)

_PULL = SetMessageRequestModeRequestBody(mode="PULL", pop_share_queue_num=-1)


class RequestModes:
    """The table, its file, and the requests that change and list it."""

    def __init__(self, world: World, path: str) -> None:
        self._modes: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}
        #: As of the topic table.
        self.journal: Journal | None = None
        self.applied: int | None = None
        self.file = MetadataFile(world, path, self._render)

    def load(self) -> None:
        """Read the file.

        :raises StoreError: neither it nor its backup can be read.
        """
        self.file.load(self._parse)

    def replace_all(self, modes: dict[str, dict[str, SetMessageRequestModeRequestBody]]) -> None:
        """Take over a master's table: by topic and group."""
        if modes != self._modes:
            self._modes = modes
            self.file.changed()

    def all(self) -> dict[str, dict[str, SetMessageRequestModeRequestBody]]:
        """Every mode that was set, by topic and group."""
        return self._modes

    def _parse(self, data: bytes) -> None:
        whole = MessageRequestModeTable.file_object(data)
        self._modes = MessageRequestModeTable.from_object(whole).message_request_mode_map
        self.applied = applied_of(whole)

    def _table(self) -> dict[str, object]:
        position = {} if self.journal is None or self.applied is None else {APPLIED: self.applied}
        return position | MessageRequestModeTable(message_request_mode_map=self._modes).to_object()

    def _render(self) -> bytes:
        return fastjson.pretty(self._table())

    def get(self, topic: str, group: str) -> SetMessageRequestModeRequestBody:
        """The mode of a group on a topic; pulling unless it was set."""
        return self._modes.get(topic, {}).get(group, _PULL)

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted: one of its name is pulled from."""
        if self._modes.pop(topic, None) is not None:
            self.file.changed()

    def forget_group(self, group: str) -> None:
        """A group was deleted."""
        for topic in [topic for topic, groups in self._modes.items() if group in groups]:
            del self._modes[topic][group]
            if not self._modes[topic]:
                del self._modes[topic]
            self.file.changed()

    def put(self, mode: SetMessageRequestModeRequestBody) -> None:
        """Set the mode of a group on a topic."""
        self._modes.setdefault(mode.topic, {})[mode.consumer_group] = mode
        log.info(
            "%s on %s: mode %s, shared by %d", mode.consumer_group, mode.topic, mode.mode, mode.pop_share_queue_num
        )
        self.file.changed()

    @handles(RequestCode.SET_MESSAGE_REQUEST_MODE, body=SHORT)
    async def set_mode(self, conn: Conn, request: Command) -> Command:
        """401: let a group pop, or pull again."""
        if not request.body:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "the request has no body")
        body = SetMessageRequestModeRequestBody.decode(request.body)
        if (fault := mode_fault(body)) is not None:
            code = ResponseCode.NO_PERMISSION if is_retry_topic(body.topic) else ResponseCode.SYSTEM_ERROR
            raise ResponseError(code, fault)
        check_group(body.consumer_group)
        check_private(body.topic)
        if self.journal is not None and self.journal.records:
            self.journal.write(Change(MODE, body.topic, body.encode(), beside=body.consumer_group))
            await self.journal.settled()
        else:
            self.put(body)
            await self.file.flush()
        return request.reply(ResponseCode.SUCCESS)

    @handles(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
    def all_modes(self, conn: Conn, request: Command) -> Command:
        """402: the whole table."""
        return request.reply(ResponseCode.SUCCESS, body=fastjson.dumps(self._table()))
