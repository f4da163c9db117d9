"""A topic and the type of what it carries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, get_args

from rmq.app.payload import Codec, PayloadError, codec_of
from rmq.client.checks import check_function, check_topic
from rmq.client.message import Message
from rmq.protocol.errors import ClientError, WrongType
from rmq.protocol.keywords import keywords

__all__ = ["Topic"]

T = TypeVar("T")


@keywords
class Topic(Generic[T]):
    """A topic whose bodies are values of one type: ``orders = Topic[Order]("orders")``.

    :param name: of the topic.
    :param kind: the type, for those who would rather write ``Topic("orders", Order)``; without either the bodies are
        bytes. What types there are, and how their values travel: :func:`~rmq.app.payload.codec_of`.
    :param decode: your own way from a body to a value; with ``encode``.
    :param encode: and from a value to a body.
    :raises ClientError: no topic may have this name.
    """

    def __init__(
        self,
        name: str,
        kind: type[T] | None = None,
        *,
        decode: Callable[[bytes], T] | None = None,
        encode: Callable[[T], bytes] | None = None,
    ) -> None:
        check_topic(name)
        if isinstance(kind, (str, bytes, int, float)):
            raise WrongType(f"the topic {name}: its kind is {kind!r:.60}: give a type")
        for given, what in ((decode, "decode"), (encode, "encode")):
            if given is not None:
                check_function(given, f"{what} of the topic {name}")
        if (decode is None) != (encode is None):
            raise ClientError(f"the topic {name}: decode and encode are given together")
        self.name = name
        self._kind: Any = kind
        self._codec: Codec[Any] | None = None
        if decode is not None and encode is not None:
            self._codec = Codec(f"body of {name}", decode, encode)

    @property
    def kind(self) -> Any:
        """The type of its values; None when a codec of your own says what they are."""
        if self._kind is not None or self._codec is not None:
            return self._kind
        given = get_args(getattr(self, "__orig_class__", None))
        return given[0] if given else bytes

    @property
    def codec(self) -> Codec[T]:
        """:raises ClientError: values of its type have no form as bytes."""
        if self._codec is None:
            self._codec = codec_of(self.kind)
        return self._codec

    def load(self, body: bytes) -> T:
        """The value of a body. :raises PayloadError: it is none."""
        return self.codec.load(body)

    def message(self, payload: T, **fields: Any) -> Message:
        """A message that carries a value.

        :param fields: as :class:`~rmq.Message` takes them: ``tags``, ``keys``, ``delay``, ``properties`` ...
        :raises PayloadError: the value is not of the topic's type.
        """
        try:
            body = self.codec.dump(payload)
        except PayloadError as error:
            raise PayloadError(f"topic {self.name}: {error}") from error.__cause__
        return Message(self.name, body, **fields)

    def __repr__(self) -> str:
        return f"Topic({self.name!r}, {getattr(self.kind, '__name__', self.kind)})"
