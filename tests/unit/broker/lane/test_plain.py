"""The quick reading of property strings agrees with the decoder, whatever the string."""

from hypothesis import given
from hypothesis import strategies as st

from rmq.broker.lane.plain import plain_properties
from rmq.protocol import properties

CLUSTER = b"CLUSTER\x01C"

JAVA = "KEYS\x01order-1\x02UNIQ_KEY\x010A000001\x02WAIT\x01true\x02TAGS\x01TagA"


def test_the_java_clients_form() -> None:
    stored = b"KEYS\x01order-1\x02UNIQ_KEY\x010A000001\x02TAGS\x01TagA\x02CLUSTER\x01C"
    assert plain_properties(JAVA, CLUSTER) == (stored, b"TagA", (b"0A000001", b"order-1"), True)


def test_a_trailing_separator_and_another_order() -> None:
    found = plain_properties("TAGS\x01A\x02WAIT\x01false\x02KEYS\x01a b  c\x02", CLUSTER)
    assert found == (b"TAGS\x01A\x02KEYS\x01a b  c\x02CLUSTER\x01C", b"A", (b"a", b"b", b"c"), False)


def test_blank_separated_keys_in_the_java_clients_form() -> None:
    found = plain_properties(JAVA.replace("order-1", "a b"), CLUSTER)
    assert found is not None
    assert found[2] == (b"0A000001", b"a", b"b")


def test_nothing_but_the_cluster() -> None:
    assert plain_properties("", CLUSTER) == (CLUSTER, b"", (), True)


def test_a_name_inside_another_name_does_not_count() -> None:
    found = plain_properties("MYTAGS\x01x\x02TAGS2\x01y\x02AWAIT\x01false", CLUSTER)
    assert found == (b"MYTAGS\x01x\x02TAGS2\x01y\x02AWAIT\x01false\x02CLUSTER\x01C", b"", (), True)


def test_what_diverts_a_message_is_not_plain() -> None:
    for name in ("DELAY", "TRAN_MSG", "TIMER_DELAY_SEC", "CLUSTER", "INNER_MULTI_DISPATCH"):
        assert plain_properties(f"KEYS\x01k\x02{name}\x01true\x02TAGS\x01t", CLUSTER) is None


def test_what_takes_long_is_not_plain() -> None:
    for text in (
        "\x02".join(f"{number}\x01v" for number in range(65)),
        "KEYS\x01" + "a " * 9,
        f"KEYS\x01{'k' * 257}",
        f"UNIQ_KEY\x01{'k' * 257}",
        JAVA.replace("order-1", "k" * 257),
        JAVA.replace("0A000001", "k" * 257),
    ):
        assert plain_properties(text, CLUSTER) is None
    assert plain_properties("\x02".join(f"{number}\x01v" for number in range(64)), CLUSTER) is not None
    assert plain_properties("KEYS\x01" + "a " * 7 + "a", CLUSTER) is not None


names = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "a", "XTAGS", "日本"])
values = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=("Cs",)), min_size=1, max_size=12)


@given(st.lists(st.tuples(names, values), max_size=7), st.booleans())
def test_it_agrees_with_the_decoder(items: list[tuple[str, str]], trailing: bool) -> None:
    text = "\x02".join(f"{name}\x01{value}" for name, value in items) + ("\x02" if trailing and items else "")
    table = properties.decode(text)
    found = plain_properties(text, CLUSTER)
    assert found is not None
    stored, tag, keys, wait = found
    assert tag.decode() == table.get("TAGS", "")
    expected = ([table["UNIQ_KEY"]] if "UNIQ_KEY" in table else []) + [k for k in table.get("KEYS", "").split(" ") if k]
    assert [key.decode() for key in keys] == expected
    assert wait == (table.pop("WAIT", "true").lower() == "true")
    assert properties.decode(stored.decode()) == {**table, "CLUSTER": "C"}
