"""The strings of POP, as both ends read and write them."""

from __future__ import annotations

import pytest

from rmq.protocol.errors import HeaderError
from rmq.protocol.pop import counts_of, order_count_info, start_info, starts_of, topic_of_pop_retry


def test_what_one_end_writes_the_other_reads() -> None:
    text = start_info([("T", 3, 17), ("%RETRY%g_T", 0, 4)])
    assert starts_of(text) == {("0", 3): 17, ("1", 0): 4}
    counts = order_count_info([("T", 3, {17: 2, 18: 0})])
    assert counts_of(counts) == {("0", "qo3%17"): 2, ("0", "3"): 0}
    assert starts_of(None) == starts_of("") == {}


@pytest.mark.parametrize("text", ["0 3", "0 3 x", "0 x 3", "0 3 -1", "0 3 4;", "0 3 99999999999999999999"])
def test_what_is_damaged_is_refused(text: str) -> None:
    with pytest.raises(HeaderError, match="no mark, queue and number"):
        starts_of(text)


@pytest.mark.parametrize(
    ("name", "topic"),
    [
        ("%RETRY%g_T", "T"),
        ("%RETRY%g+T", "T"),
        ("%RETRY%g_a_b", "a_b"),
        ("%RETRY%g", None),
        ("%RETRY%g_", None),
        ("%RETRY%group_T", None),
        ("T", None),
    ],
)
def test_the_topic_of_a_retry_topic(name: str, topic: str | None) -> None:
    assert topic_of_pop_retry("g", name) == topic
