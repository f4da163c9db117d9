"""A remoting command: one request or one response, with its header and body, and no I/O.

Layout of the frame that carries it (all integers big-endian; protocol.md section 1)::

    offset       width      field
    0            4          length = 4 + headerLen + bodyLen
    4            1          serialize type: 0 JSON, 1 ROCKETMQ
    5            3          headerLen
    8            headerLen  header
    8+headerLen  bodyLen    body
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, TypeVar

from rmq.protocol.codes import Language

if TYPE_CHECKING:
    from rmq.protocol.header import Header
    from rmq.protocol.permissions import Grant, Need

__all__ = ["FIRST_OF_5", "VERSION", "Command", "SerializeType"]

#: What we announce: V4_9_8 (protocol.md 1.5).
VERSION = 409
#: V5_0_0_SNAPSHOT: clients and tools from here on look for what 5.x has besides.
FIRST_OF_5 = 412

FLAG_RESPONSE = 1
FLAG_ONEWAY = 2

H = TypeVar("H", bound="Header")


class SerializeType(IntEnum):
    JSON = 0
    ROCKETMQ = 1


class Command:
    """One request or response (Java: RemotingCommand).

    ``ext`` holds the header's fields as texts; None and ``{}`` differ on the wire, so they differ here.
    """

    __slots__ = ("body", "code", "ext", "flag", "grant", "language", "opaque", "remark", "serialize", "version")

    def __init__(
        self,
        code: int,
        *,
        ext: dict[str, str | None] | None = None,
        body: bytes = b"",
        flag: int = 0,
        opaque: int = 0,
        remark: str | None = None,
        language: int | None = Language.PYTHON,
        version: int = VERSION,
        serialize: SerializeType = SerializeType.JSON,
    ) -> None:
        self.code: int = code
        self.ext: dict[str, str | None] | None = ext
        self.body: bytes = body
        self.flag: int = flag
        self.opaque: int = opaque
        self.remark: str | None = remark
        self.language: int | None = language
        self.version: int = version
        self.serialize: SerializeType = serialize
        #: What its sender may do; None where no access control is on.
        self.grant: Grant | None = None

    def demand(self, *needs: Need) -> None:
        """Insist that the sender of this request may do something; everybody may where no access control is on.

        For handlers that know only by themselves what a request is about: from its body, or from a stored message.

        :raises AuthError: he may not.
        """
        if self.grant is not None:
            self.grant.demand(*needs)

    @classmethod
    def request(cls, code: int, header: Header | None = None, body: bytes = b"") -> Command:
        """A request with a typed header; its opaque is given by the connection that sends it."""
        return cls(code, ext=None if header is None else header.encode(), body=body)

    def reply(self, code: int, remark: str | None = None, header: Header | None = None, body: bytes = b"") -> Command:
        """The response to this request: same opaque, same serialisation."""
        return Command(
            code,
            ext=None if header is None else header.encode(),
            body=body,
            flag=FLAG_RESPONSE,
            opaque=self.opaque,
            remark=remark,
            serialize=self.serialize,
        )

    @property
    def is_response(self) -> bool:
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & FLAG_ONEWAY)

    def mark_oneway(self) -> Command:
        self.flag |= FLAG_ONEWAY
        return self

    def header(self, kind: type[H]) -> H:
        """The ext fields as a typed header.

        :raises HeaderError: a required field is missing or a number does not parse.
        """
        return kind.decode(self.ext or {})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Command) and all(getattr(self, n) == getattr(other, n) for n in self.__slots__)

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "oneway" if self.is_oneway else "request"
        remark = f" remark={self.remark!r}" if self.remark else ""
        return f"<{kind} code={self.code} opaque={self.opaque}{remark} ext={self.ext} body={len(self.body)} B>"
