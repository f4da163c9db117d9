"""plain_acl.yml is read as Java reads it, and told of with its line where it cannot be (field case B107)."""

from __future__ import annotations

import pytest

from rmq.auth.plain_acl import parse_plain_acl
from rmq.auth.rules import Rules, missing
from rmq.protocol.errors import ConfigError
from rmq.protocol.permissions import DENY, PUB, SUB, Need, publish_topic, use_group, use_topic

JAVA = b"""\
globalWhiteRemoteAddresses:
- 10.10.103.*
- 192.168.0.*

accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  - topicC=SUB
  groupPerms:
  # the group should convert to retry topic
  - groupA=DENY
  - groupB=PUB|SUB
  - groupC=SUB

- accessKey: rocketmq2
  secretKey: 12345678
  whiteRemoteAddress: 192.168.1.*
  # if it is admin, it could access all resources
  admin: true
dataVersion:
- counter: 3
  timestamp: 1700000000000
"""


def test_the_file_that_java_brings() -> None:
    file = parse_plain_acl("f", JAVA)
    first, second = file.accounts
    assert (first.access_key, first.secret_key, first.admin, first.white.empty) == ("RocketMQ", "12345678", False, True)
    assert (first.default_topic, first.default_group) == (DENY, SUB)
    assert first.topics == {"topicA": DENY, "topicB": PUB | SUB, "topicC": SUB}
    assert first.groups == {"groupA": DENY, "groupB": PUB | SUB, "groupC": SUB}
    assert (second.admin, second.white.text) == (True, "192.168.1.*")
    assert [pattern.text for pattern in file.white] == ["10.10.103.*", "192.168.0.*"]
    assert file.version is not None
    assert (file.version.counter, file.version.timestamp) == (3, 1700000000000)
    assert "12345678" not in repr(file)


@pytest.mark.parametrize("secret", ["12345678", "'12345678'", "0123456", "1_234_567", "1e10000", "2026-11-30"])
def test_a_secret_is_the_text_that_stands_there(secret: str) -> None:
    (account,) = parse_plain_acl("f", f"accounts:\n- accessKey: somebody\n  secretKey: {secret}\n".encode()).accounts
    assert account.secret_key == secret.strip("'")


ACCOUNT = "accounts:\n- accessKey: somebody\n  secretKey: 12345678\n"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("accounts:\n- accessKey: admin\n  secretKey: 12345678\n", 2, "accessKey has 5 characters: it must"),
        ("accounts:\n- accessKey: somebody\n", 2, "secretKey has 0 characters"),
        ("accounts:\n- accessKey: somebody\n  secretKey: short\n", 3, "secretKey has 5 characters"),
        (ACCOUNT + "  admin: 1\n", 4, "admin is true or false"),
        (ACCOUNT + "  admn: true\n", 4, "no key admn: is it admin"),
        (ACCOUNT + "  admin: false\n  admin: true\n", 5, "admin is here twice"),
        (ACCOUNT + "  whiteRemoteAddress: 10.x.y\n", 4, "no address pattern"),
        (ACCOUNT + "  topicPerms:\n  - a=PUB\n  - b\n", 6, "topicPerms: 'b'"),
        (ACCOUNT + "  topicPerms:\n  - a=ZZ\n", 5, "topicPerms: 'a=ZZ'"),
        (ACCOUNT + "  topicPerms:\n  - a=PUB\n  - a=SUB\n", 6, "topicPerms: a is here twice"),
        (ACCOUNT + "  topicPerms: a=PUB\n", 4, "topicPerms is a list"),
        ("account:\n- accessKey: somebody\n", 1, "no key account: is it accounts"),
        ("accounts:\n  somebody: 1\n", 2, "accounts is a list"),
        ("accounts:\n- somebody\n", 2, "an account is expected"),
        ("- a\n", 1, "keys with values are expected"),
        ("accounts: &a\n- *a\n", 1, "an anchor"),
        (ACCOUNT + "\tadmin: true\n", 4, "no YAML"),
        (ACCOUNT + "  topicPerms: [a\n", 5, "no YAML"),
        ("accounts: " + "[" * 20 + "]" * 20, 1, "deep"),
        ("accounts: " + "[" * 100_000, 1, "f.yml:1: "),
        (ACCOUNT + "---\na: 1\n", 4, "a second document"),
        (ACCOUNT + "dataVersion:\n- counter: x\n", 5, "counter is a number"),
        ("accounts: \udcff", 1, "no UTF-8"),
    ],
)  # fmt: skip
def test_an_error_names_file_line_and_what_is_expected(text: str, line: int, words: str) -> None:
    """Field case B107 (e)."""
    with pytest.raises(ConfigError) as error:
        parse_plain_acl("conf/f.yml", text.encode("utf-8", "surrogateescape"))
    assert str(error.value).startswith(f"conf/f.yml:{line}: ")
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_too_long_is_not_parsed() -> None:
    with pytest.raises(ConfigError, match="at most"):
        parse_plain_acl("f", b"#" * (513 << 10))


def test_odd_things_that_are_no_errors_are_noted() -> None:
    file = parse_plain_acl("f", (ACCOUNT + "  defaultTopicPerm: EVERYTHING\n  colour: blue\n").encode())
    assert file.accounts[0].default_topic == DENY
    assert [note.partition(": ")[0] for note in sorted(file.notes)] == ["f:4", "f:5"]


def test_a_key_in_two_files_is_refused() -> None:
    files = [parse_plain_acl(name, ACCOUNT.encode()) for name in ("a.yml", "b.yml")]
    with pytest.raises(ConfigError, match=r"b.yml:2: the accessKey somebody is in a.yml:2 already"):
        Rules.of(files)


MORE = """\
accounts:
- {accessKey: ordinary, secretKey: 12345678, defaultTopicPerm: PUB|SUB, defaultGroupPerm: SUB,
   topicPerms: [denied=DENY, sub=SUB, pub=PUB, traces=SUB], groupPerms: [notmine=DENY, sender=PUB]}
- {accessKey: nothing, secretKey: 12345678}
- {accessKey: operator, secretKey: 12345678, admin: true}
- {accessKey: halfadmin, secretKey: 12345678, admin: true, topicPerms: [one=SUB]}
- {accessKey: gone-one, secretKey: 12345678, admin: true, disabled: true}
- {accessKey: retriers, secretKey: 12345678, topicPerms: ['%RETRY%theirs=SUB']}
"""


@pytest.mark.parametrize(
    ("who", "allowed", "refused"),
    [
        (
            "ordinary",
            [publish_topic("any"), use_topic("any"), use_topic("sub"), publish_topic("pub"), use_group("any"),
             use_topic("%RETRY%mine"), publish_topic("%RETRY%mine"), use_topic("%DLQ%mine"), use_topic("traces"),
             Need("topic", "pub", 2)],
            [publish_topic("denied"), use_topic("denied"), publish_topic("sub"), use_topic("pub"), use_group("notmine"),
             use_topic("%RETRY%notmine"), publish_topic("%RETRY%notmine"), use_topic("%DLQ%notmine"),
             use_group("sender"), Need("topic", "denied", 2),
             # by name alone
             use_topic("RMQ_SYS_TRACE_TOPIC"), publish_topic("RMQ_SYS_TRACE_TOPIC"), publish_topic("traces"),
             use_topic("rmq_sys_TRACE_DATA_x"), use_topic("RMQ_SYS_TRANS_HALF_TOPIC"),
             use_topic("rmq_sys_REVIVE_LOG_c")],
        ),
        ("nothing", [], [publish_topic("any"), use_topic("any"), use_group("any")]),
        ("operator", [publish_topic("any"), use_topic("SCHEDULE_TOPIC_XXXX"), use_group("notmine")], []),
        ("halfadmin", [use_topic("one")], [publish_topic("one"), use_topic("two")]),
        ("gone-one", [], [publish_topic("any")]),
        ("retriers", [use_group("theirs"), use_topic("%RETRY%theirs")], [use_group("other")]),
    ],
)  # fmt: skip
def test_what_an_account_may_do(who: str, allowed: list[Need], refused: list[Need]) -> None:
    account = Rules.of([parse_plain_acl("f", MORE.encode())]).accounts[who]
    assert [need for need in allowed if missing(account, need, "traces")] == []
    assert [need for need in refused if not missing(account, need, "traces")] == []
