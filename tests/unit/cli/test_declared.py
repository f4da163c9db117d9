"""A cluster as a file: what the file may say, and what is to be done about it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from rmq.cli.declared.document import MOST_BYTES, parse_declared
from rmq.cli.declared.plan import State, exported, steps_of
from rmq.protocol.bodies.group import SubscriptionGroupConfig
from rmq.protocol.bodies.topic import TopicConfig
from rmq.protocol.errors import ConfigError


def topics(*given: tuple[str, int]) -> dict[str, TopicConfig]:
    own = [("TBW102", 8), ("a", 1), ("C", 1), ("%RETRY%g", 1), ("SELF_TEST_TOPIC", 1)]
    return {name: TopicConfig(name, queues, queues) for name, queues in (*given, *own)}


def groups(**times: int) -> dict[str, SubscriptionGroupConfig]:
    return {name: SubscriptionGroupConfig(name, retry_max_times=count)
            for name, count in {**times, "TOOLS_CONSUMER": 1, "CID_RMQ_SYS_X": 1}.items()}  # fmt: skip


STATE = State(
    "C", {"a": "a:1", "b": "b:1"},
    {"a": topics(("T", 8), ("Only", 4)), "b": topics(("T", 4))},
    {"a": groups(g=16), "b": groups(g=16)},
    {"N": {"k": "v", "old": "1"}},
)  # fmt: skip


def lines(text: str, state: State = STATE, *, prune: bool = False) -> list[str]:
    return [step.line() for step in steps_of(parse_declared("f", text.encode()), state, prune=prune)]


def test_what_the_file_names_is_brought_about_and_the_rest_stays() -> None:
    text = "topics:\n  T: {queues: 8}\n  New: {queues: 2, perm: 4}\ngroups:\n  g: {retryMaxTimes: 3}\n  h:\n"
    assert lines(text + "kv: {N: {k: v2, new: '1'}}") == [
        "~ topic T at b: readQueueNums 4 -> 8, writeQueueNums 4 -> 8",
        "+ topic New at a: readQueueNums 2, writeQueueNums 2, perm 4",
        "+ topic New at b: readQueueNums 2, writeQueueNums 2, perm 4",
        "~ group g at a: retryMaxTimes 16 -> 3",
        "~ group g at b: retryMaxTimes 16 -> 3",
        *(f"+ group h at {broker}: consumeEnable true, consumeFromMinEnable true, consumeBroadcastEnable true, "
          "retryQueueNums 1, retryMaxTimes 16, brokerId 0, whichBrokerWhenConsumeSlowly 1, "
          "notifyConsumerIdsChangedEnable true" for broker in "ab"),
        "~ kv N/k: value v -> v2",
        "+ kv N/new: value 1",
    ]  # fmt: skip
    assert lines("") == lines("topics:\n") == lines("topics: {T: {perm: 6}}\nkv: {N: {k: v}}") == []


def test_brokers_may_differ() -> None:
    assert lines("topics: {T: {queues: 8, brokers: {a: , b: {queues: 4}}}}") == []
    assert lines("topics: {T: {writeQueueNums: 2, brokers: [b]}}") == ["~ topic T at b: writeQueueNums 4 -> 2"]
    assert lines("topics: {Only: {queues: 4, brokers: [a]}}") == []
    (line,) = lines("topics: {Only: {queues: 4}}")
    assert line.startswith("+ topic Only at b")


def test_pruning_deletes_what_a_section_does_not_name_and_nothing_of_the_brokers_own() -> None:
    assert lines("topics: {T: }\nkv: {N: {k: v}}", prune=True) == ["- kv N/old", "- topic Only at a, with its messages"]
    assert lines("groups:\n", prune=True) == ["- group g at a", "- group g at b"]
    assert lines("", prune=True) == []


def test_what_is_exported_differs_in_nothing() -> None:
    made: dict[str, Any] = exported(STATE)
    assert made["topics"] == {
        "Only": {"queues": 4, "perm": 6, "brokers": ["a"]},
        "T": {"queues": 8, "perm": 6, "brokers": {"a": None, "b": {"queues": 4}}},
    }
    assert list(made["groups"]) == ["g"]
    assert made["kv"] == STATE.kv
    assert lines(yaml.safe_dump(made), prune=True) == []


def test_a_large_cluster_is_read_back() -> None:
    text = "topics:\n" + "".join(f"  {n:0100}:\n    queues: 8\n    perm: 6\n" for n in range(5_000))
    assert len(text) > 512 << 10
    assert len(parse_declared("f", text.encode()).topics or {}) == 5_000


def test_a_step_is_one_line_whatever_an_entry_holds() -> None:
    (line,) = lines('kv: {N: {k: "v\\n- topic T at a\\e[2K"}}')
    assert line == r"~ kv N/k: value v -> v\n- topic T at a\x1b[2K"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("topic: {}", "f:1: there is no key topic: did you mean topics?"),
        ("topics:\n  T: {quues: 8}", "f:2: there is no key quues: did you mean queues?"),
        ("topics:\n  T: {queues: 0}", "f:2: queues is 0: 1 to 65536 is expected"),
        ("topics:\n  T: {queues: eight}", "f:2: queues is 'eight': a whole number is expected"),
        ("topics:\n  T: {queues: 99999999999999999999}", "f:2: queues is 99999999999999999999: 1 to 65536"),
        ("topics:\n  T: {perm: 5}", "f:2: perm is 5: 2 (write), 4 (read) or 6 (both) is expected"),
        ("groups:\n  g: {consumeEnable: 1}", "f:2: consumeEnable is '1': true or false is expected"),
        ("topics:\n  T: {order: true}", "f:2: there is no key order: "),
        ("topics:\n  'a b': {}", "f:2: 'a b' is no name of a topic"),
        ("topics: [T]", "f:1: keys with values are expected"),
        ("topics:\n  T: 8", "f:2: keys with values are expected"),
        ("groups:\n  g: {queues: 8}", "f:2: there is no key queues: "),
        ("groups:\n  g: {retryMaxTimes: [1]}", "f:2: retryMaxTimes: a text is expected"),
        ("groups:\n  g: {brokers: {a: {retryMaxTimes: -2}}}", "f:2: retryMaxTimes is -2: -1 to"),
        ("kv:\n  N: {k: }", "f:2: k: a text is expected"),
        ("topics: {", "this is no YAML"),
        ("[topics]", "f:1: keys with values are expected, such as `key: value`"),
        ("topics:\n  T: {queues: 1_0}", "f:2: queues is '1_0': a whole number is expected"),
        ("topics:\n  T: {queues: \u0666}", "f:2: queues is '\u0666': a whole number is expected"),
        ("#" * (MOST_BYTES + 1), f"f: it is too long: at most {MOST_BYTES} bytes are read"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_the_file_is_named_with_its_line(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_declared("f", text.encode())
    assert said in str(caught.value)
