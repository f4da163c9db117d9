"""Changes to plain_acl.yml keep the rest of the file."""

from __future__ import annotations

import pytest

from rmq.auth.edit import put_account, put_version, put_white, take_account
from rmq.auth.plain_acl import parse_plain_acl
from rmq.protocol.bodies.topic import DataVersion
from rmq.protocol.errors import ConfigError
from rmq.protocol.permissions import DENY, PUB, SUB

FILE = b"""\
# who may what
globalWhiteRemoteAddresses:
  - 10.10.103.*   # office
  - 192.168.0.*

accounts:
  # the shop
  - accessKey: shop_user
    secretKey: 12345678   # rotate me
    whiteRemoteAddress:
    admin: false
    topicPerms:
      - orders=PUB|SUB  # both
      - bills=SUB
  # operators
  - accessKey: operator
    secretKey: 'it''s secret'
    admin: true
# the end
"""


def accounts(data: bytes) -> dict[str, object]:
    return {one.access_key: one for one in parse_plain_acl("f", data).accounts}


def changed(before: bytes, after: bytes) -> tuple[list[str], list[str]]:
    old, new = before.decode().splitlines(), after.decode().splitlines()
    return [line for line in old if line not in new], [line for line in new if line not in old]


def test_a_value_is_replaced_in_its_place() -> None:
    after = put_account("f", FILE, "shop_user", {"secretKey": "a new one", "admin": "true"})
    assert changed(FILE, after) == (
        ["    secretKey: 12345678   # rotate me", "    admin: false"],
        ["    secretKey: 'a new one'   # rotate me"],
    )
    assert accounts(after)["shop_user"].admin  # type: ignore[attr-defined]


def test_lists_keep_the_lines_of_what_stays() -> None:
    after = put_account("f", FILE, "shop_user", {"topicPerms": ["orders=PUB|SUB", "bills=DENY", "new=PUB"]})
    assert changed(FILE, after) == (["      - bills=SUB"], ["      - bills=DENY", "      - new=PUB"])
    less = put_account("f", FILE, "shop_user", {"topicPerms": ["bills=SUB"]})
    assert changed(FILE, less) == (["      - orders=PUB|SUB  # both"], [])


def test_a_key_and_a_list_that_were_not_there() -> None:
    after = put_account("f", FILE, "shop_user", {"defaultTopicPerm": "PUB", "groupPerms": ["g=SUB"]})
    assert changed(FILE, after) == ([], ["    defaultTopicPerm: PUB", "    groupPerms:", "    - g=SUB"])
    assert accounts(after)["shop_user"].groups == {"g": SUB}  # type: ignore[attr-defined]
    white = put_account("f", FILE, "shop_user", {"whiteRemoteAddress": "10.1.2.*"})
    assert changed(FILE, white) == (["    whiteRemoteAddress:"], ["    whiteRemoteAddress: '10.1.2.*'"])


def test_a_key_that_was_not_there_comes_behind_the_new_items_of_the_last_list() -> None:
    """Both go behind the last line of the account; the key came first, and the items were none of the list any more."""
    after = put_account("f", FILE, "shop_user", {"defaultTopicPerm": "DENY", "topicPerms": ["new=PUB"]})
    assert changed(FILE, after) == (
        ["      - orders=PUB|SUB  # both", "      - bills=SUB"],
        ["      - new=PUB", "    defaultTopicPerm: DENY"],
    )


def test_an_account_comes_and_goes() -> None:
    more = put_account("f", FILE, "third_one", {"secretKey": "12345678", "topicPerms": ["t=DENY", "u=PUB"]})
    assert more.decode().endswith(
        "  - accessKey: third_one\n    secretKey: 12345678\n    topicPerms:\n    - t=DENY\n    - u=PUB\n# the end\n"
    )
    assert accounts(more)["third_one"].topics == {"t": DENY, "u": PUB}  # type: ignore[attr-defined]
    assert take_account("f", more, "third_one") == FILE
    less = take_account("f", FILE, "shop_user")
    assert set(accounts(less)) == {"operator"}
    assert b"# the shop" in less
    assert b"# operators" in less
    with pytest.raises(ConfigError, match="no account nobody"):
        take_account("f", FILE, "nobody")


def test_white_list_and_version() -> None:
    after = put_white("f", FILE, ["192.168.0.*", "10.0.0.1"])
    assert changed(FILE, after) == (["  - 10.10.103.*   # office"], ["  - '10.0.0.1'"])
    first = put_version("f", FILE, DataVersion(counter=1, timestamp=7))
    assert first == FILE + b"dataVersion:\n- counter: 1\n  timestamp: 7\n"
    second = put_version("f", first, DataVersion(counter=2, timestamp=8))
    assert second == FILE + b"dataVersion:\n- counter: 2\n  timestamp: 8\n"


@pytest.mark.parametrize(
    "text",
    [b"", b"# nothing yet\n", b"accounts:\n", b"accounts: []\n", b"accounts: # none\n", b"globalWhiteRemoteAddresses:"],
)
def test_the_first_account_of_a_file(text: bytes) -> None:
    after = put_account("f", text, "first_one", {"secretKey": "12345678"})
    assert set(accounts(after)) == {"first_one"}
    assert all(line in after for line in text.splitlines() if line.startswith(b"#"))


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_line_ends_are_the_file_s(newline: bytes, end: bytes) -> None:
    text = newline.join([b"accounts:", b"- accessKey: only_one", b"  secretKey: 12345678"]) + (newline if end else b"")
    after = put_account("f", text, "only_one", {"admin": "true"})
    assert after == newline.join([*text.splitlines(), b"  admin: true", b""])


@pytest.mark.parametrize("secret", ["1234567\x85x", "1234567\udc80", "1" * 5_000])
def test_what_would_be_read_as_another_text_is_refused(secret: str) -> None:
    with pytest.raises(ConfigError):
        put_account("f", FILE, "newcomer", {"secretKey": secret})


def test_forms_that_are_not_known_are_refused() -> None:
    flow = b"accounts: [{accessKey: only_one, secretKey: 12345678}]\n"
    for change in (lambda: put_account("f", flow, "only_one", {"admin": "true"}),
                   lambda: put_account("f", flow, "other_one", {"secretKey": "12345678"})):  # fmt: skip
        with pytest.raises(ConfigError, match=r"f:1: .* edit it"):
            change()
