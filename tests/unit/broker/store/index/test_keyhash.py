"""Key hashes are Java's, by whichever of the three ways they are computed."""

from hypothesis import example, given
from hypothesis import strategies as st

from rmq.broker.store.index.keyhash import KeyHasher


def java_hash(text: str) -> int:
    """String.hashCode and Math.abs as the index uses them, unit by unit."""
    h = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        h = (31 * h + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    signed = h - (1 << 32) if h >= 1 << 31 else h
    return 0 if signed == -(1 << 31) else abs(signed)


def test_a_value_worked_by_hand() -> None:
    # Worked by hand: 84 * 31^2 + 35 * 31 + 107.
    assert KeyHasher("T")(b"k") == java_hash("T#k") == 81916


@given(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=40), st.text("0123456789ABCDEF", min_size=1, max_size=64)
)
@example("T", "0" * 300)
def test_unique_keys(topic: str, key: str) -> None:
    assert KeyHasher(topic).unique(key.encode()) == java_hash(f"{topic}#{key}")
    assert KeyHasher(topic)(key.encode()) == java_hash(f"{topic}#{key}")


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=300))
@example("order_1 2-3~")
@example("_1_")
@example(" 12 ")
@example("+5")
@example("-5")
@example("x" * 256)
@example("x" * 257)
@example("z" * 5000)
@example("键")
@example("\U0001f600k")
def test_any_key(key: str) -> None:
    assert KeyHasher("Topic")(key.encode()) == java_hash(f"Topic#{key}")
    assert KeyHasher("Topic").unique(key.encode()) == java_hash(f"Topic#{key}")


_SHAPED = st.lists(st.one_of(st.from_regex("order-[0-9]{4}", fullmatch=True), st.text(min_size=1, max_size=300)))


@given(_SHAPED)
@example(["order-0001", "ORDER-0001", "order-12", "order-9999", "键", "x" * 300])
@example(["0A", "99"])
def test_many_keys(texts: list[str]) -> None:
    keys = [text.encode("utf-8", "replace") for text in texts]
    expected = [java_hash("T#" + key.decode()) for key in keys]
    hasher = KeyHasher("T")
    for _ in range(2):  # with what was remembered, too
        assert hasher.uniques(keys) == hasher.each(keys) == expected


def test_what_is_remembered_is_bounded() -> None:
    hasher = KeyHasher("T")
    for number in range(1000):
        key = f"{number:b}".replace("1", "x")
        assert hasher.of(key.encode()) == java_hash("T#" + key)
    assert len(hasher._shares) < 100
    assert hasher.each([b"x0", b"0x"] * 9) == [java_hash("T#x0"), java_hash("T#0x")] * 9


def test_the_smallest_int_has_no_absolute_value() -> None:
    # The prefix "T#" leaves 30 free digits: find the key whose hash is exactly Integer.MIN_VALUE.
    start = (31 * ord("T") + ord("#")) & 0xFFFFFFFF
    want = (1 << 31) - start * 31**7 & 0xFFFFFFFF
    for top in range(64):
        rest = want + (top << 32)
        digits = []
        for _ in range(7):
            rest, digit = divmod(rest, 31)
            digits.append(digit)
        if rest == 0:
            # Digits below the printable range are taken from the next one: 31 of the lower is 1 of the higher.
            for at in range(6):
                while digits[at] < 32:
                    digits[at] += 31
                    digits[at + 1] -= 1
            if 0 < digits[6] < 128:
                key = bytes(reversed(digits))
                assert java_hash("T#" + key.decode()) == 0
                assert KeyHasher("T")(key) == 0
                return
    raise AssertionError("no key found")
