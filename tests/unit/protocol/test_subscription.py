"""Subscriptions and signatures."""

from __future__ import annotations

import base64
import hmac

import pytest

from rmq.protocol import signature, sysflags, tags
from rmq.protocol.errors import ClientError
from rmq.protocol.subscription import build


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_everything(expression: str | None) -> None:
    data = build("T", expression, sub_version=7)
    assert (data.sub_string, data.tags_set, data.code_set, data.sub_version) == ("*", [], [], 7)


def test_tags() -> None:
    data = build("T", " TagA || ZZZZZZZZ ||TagA|| ")
    assert (data.tags_set, data.code_set) == (["TagA", "ZZZZZZZZ"], [2598919, -1127396096])
    assert data.is_tag_type
    assert tags.tags_code(None) == tags.tags_code("") == 0


def test_only_separators_is_an_error() -> None:
    with pytest.raises(ClientError, match="names no tag"):
        build("T", "||")


def test_a_condition() -> None:
    data = build("T", "a > 5", "SQL92")
    assert (data.sub_string, data.tags_set, data.expression_type, data.is_tag_type) == ("a > 5", [], "SQL92", False)
    with pytest.raises(ClientError, match="needs an expression"):
        build("T", " ", "SQL92")
    assert build("T", "A", None).tags_set == ["A"]


def test_the_signature_of_protocol_md() -> None:
    ext: dict[str, str | None] = {
        "a": "PG", "b": "T1", "bname": "b1", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000",
        "h": "0",
        "i": "KEYS\x01k", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    signed = signature.signed_fields(ext, b"hello", "rocketmq2", "12345678")
    assert signed["Signature"] == "kWIKMZ8QXeW0Y2i1o0yzxdVZNOU="
    assert signature.verify(signed, b"hello", "12345678")
    assert not signature.verify(signed, b"hallo", "12345678")
    assert not signature.verify(ext, b"hello", "12345678")


def test_the_unique_key_mark_is_signed_or_not() -> None:
    old = signature.signed_fields({"key": "k"}, b"", "a", "secret") | {"_UNIQUE_KEY_QUERY": "true"}
    new = signature.signed_fields({"key": "k", "_UNIQUE_KEY_QUERY": "true"}, b"", "a", "secret", "token")
    assert signature.verify(old, b"", "secret")
    assert signature.verify(new, b"", "secret")
    assert not signature.verify(old | {"more": "1"}, b"", "secret")


def test_what_is_signed_goes_by_names_and_not_by_their_order() -> None:
    fields: dict[str, str | None] = {"b": "2", "Signature": "s", "a": "1", "_UNIQUE_KEY_QUERY": "m", "c": None}
    for ext in (fields, fields, dict(reversed(fields.items()))):
        assert signature.content(ext, b"!") == b"m12null!"
        assert signature.content(ext, b"!", 399) == b"12null!"
        assert signature.content(ext, b"!", 400) == b"m12null!"
    assert signature.content({"a": "1"}, b"") == b"1"
    assert signature.content({}, b"x") == b"x"


def test_names_that_nobody_sends_twice_are_not_kept() -> None:
    for number in range(2_000):
        assert signature.content({f"n{number}": "1", "a": "2"}, b"") == b"21"
    assert signature.content({"long" * 1_000: "1", "a": "2"}, b"") == b"21"
    assert len(signature._ORDERS) <= 256
    assert max(sum(map(len, names)) for names in signature._ORDERS) <= 1_024


def test_permissions_print_as_in_java() -> None:
    assert [sysflags.perm_text(perm) for perm in (0, 2, 4, 6, 7)] == ["---", "-W-", "R--", "RW-", "RWX"]


@pytest.mark.parametrize("secret", ["k", "12345678", "k" * 64, "k" * 65, "ключ и ключ", "\udcff"])
def test_a_signature_is_the_hmac_of_the_content(secret: str) -> None:
    expected = hmac.new(secret.encode("utf-8", "replace"), b"content" * 99, "sha1").digest()
    assert base64.b64decode(signature.sign(b"content" * 99, secret)) == expected
    assert signature.sign(b"content" * 99, secret) == signature.sign(b"content" * 99, secret)
