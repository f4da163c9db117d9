"""Bodies and values: what travels as what, and what is refused with a word."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any, TypedDict

import msgspec
import pytest

from rmq.app import PayloadError, Topic
from rmq.app.payload import codec_of
from rmq.protocol.errors import ClientError


@dataclasses.dataclass
class Order:
    number: int
    name: str = ""


class Price(msgspec.Struct):
    cents: int


class Row(TypedDict):
    number: int


class Model:
    """As pydantic's are, to the layer."""

    def __init__(self, number: int) -> None:
        self.number = number

    @classmethod
    def model_validate_json(cls, body: bytes) -> Model:
        return cls.model_validate(msgspec.json.decode(body))

    @classmethod
    def model_validate(cls, value: Any) -> Model:
        return cls(value["number"])

    def model_dump_json(self) -> str:
        return f'{{"number":{self.number}}}'

    def model_dump(self, mode: str) -> dict[str, int]:
        return {"number": self.number}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and other.number == self.number

    __hash__ = None  # type: ignore[assignment]


class Plain:
    pass


@pytest.mark.parametrize(
    ("kind", "value", "body"),
    [
        (bytes, b"\x00\xff", b"\x00\xff"),
        (str, "grün", "grün".encode()),
        (Order, Order(1, "a"), b'{"number":1,"name":"a"}'),
        (Price, Price(7), b'{"cents":7}'),
        (Row, {"number": 3}, b'{"number":3}'),
        (dict, {"a": [1, None]}, b'{"a":[1,null]}'),
        (list[Order], [Order(1), Order(2)], b'[{"number":1,"name":""},{"number":2,"name":""}]'),
        (int | None, None, b"null"),
        (float, 3, b"3"),
        (Any, {"x": 1}, b'{"x":1}'),
        (datetime.date, datetime.date(2026, 1, 2), b'"2026-01-02"'),
        (Model, Model(5), b'{"number":5}'),
        (list[Model], [Model(5)], b'[{"number":5}]'),
    ],
)
def test_a_value_travels_and_comes_back(kind: Any, value: Any, body: bytes) -> None:
    codec = codec_of(kind)
    assert codec.dump(value) == body
    assert codec.load(body) == value


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'{"number":"x"}', b"\xff", b"[" * 100_000, b'{"number":1e999}'])
def test_a_body_that_is_no_such_value_says_so_on_one_bounded_line(body: bytes) -> None:
    with pytest.raises(PayloadError, match="the body is no Order: ") as refused:
        codec_of(Order).load(body)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    ("kind", "value"),
    [(Order, {"number": 1}), (str, b"x"), (bytes, "x"), (Model, Price(1)), (int, "1"), (dict, Plain())],
)
def test_a_value_of_another_type_is_not_sent(kind: Any, value: Any) -> None:
    with pytest.raises(PayloadError, match=f"^topic T: {type(value).__name__} cannot be sent as "):
        Topic("T", kind).message(value)


@pytest.mark.parametrize("kind", [Plain, "Order", complex])
def test_a_type_without_a_form_is_refused_at_once(kind: Any) -> None:
    with pytest.raises(ClientError, match="the payload type"):
        codec_of(kind)


def test_a_topic_knows_its_type_from_either_way_of_writing_it() -> None:
    assert Topic[Order]("T").load(b'{"number":1}') == Order(1)
    assert Topic("T", Order).kind is Topic[Order]("T").kind is Order
    assert Topic("T").load(b"x") == b"x"


def test_a_codec_of_ones_own() -> None:
    topic = Topic("T", decode=lambda body: int(body, 16), encode=lambda value: b"%x" % value)
    assert topic.load(topic.message(255, tags="A").body) == 255
    with pytest.raises(PayloadError, match="the body is no body of T: ValueError"):
        topic.load(b"no")
    with pytest.raises(PayloadError, match="encoding a body of T made str, not bytes"):
        Topic("T", decode=bytes, encode=lambda value: "text").message(b"")  # type: ignore[arg-type, return-value]
    with pytest.raises(ClientError, match="decode and encode are given together"):
        Topic("T", decode=bytes)


def test_a_topic_that_cannot_be_named_so_is_refused() -> None:
    with pytest.raises(ClientError, match="illegal characters"):
        Topic[bytes]("a.b")
