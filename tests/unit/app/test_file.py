"""Applications by name and out of files: what is taken, and what is wrong is named with file and place."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq.app import App, BadPayload
from rmq.app.file import app_of, load, named
from rmq.protocol.errors import ConfigError

app = App("here", namesrv="n:1")
none = 3


def pay(order: dict[str, int]) -> dict[str, int]:
    return order


async def stamped(call: object, following: object) -> None: ...


HERE = __name__
FILE = f"""
app: shop
client: {{namesrv: "n:1", instance_name: i}}
producer: {{send_msg_timeout: 5}}
middlewares: ["{HERE}:stamped"]
listeners:
  - call: {HERE}:pay
    topic: orders
    payload: dict
    expression: new || old
    group: payments
    on_bad_payload: retry
    send_to: {{topic: bills, payload: dict}}
    options: {{orderly: true, max_reconsume_times: 3}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shop.yaml"


def test_a_file_says_what_decorators_say(file: Path) -> None:
    file.write_text(FILE)
    made = load(file)
    assert made.name == "shop"
    assert made.producer._settings.send_msg_timeout == 5
    assert made.producer._settings.instance_name == "i"
    assert made.middlewares == [stamped]
    (handler,) = made.handlers
    assert handler.plan.function is pay
    assert handler.topic.kind is dict
    assert handler.send_to is not None
    assert handler.send_to.name == "bills"
    assert handler._on_bad_payload is BadPayload.RETRY
    consumer = made.consumers["payments"]
    assert (consumer._settings.orderly, consumer._settings.max_reconsume_times) == (True, 3)
    assert consumer._subscriptions.table["orders"].sub_string == "new || old"


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("app: shop", "app: [", "shop.yaml: "),
        ("app: shop", "name: shop", "Object contains unknown field `name`"),
        ("topic: orders", "topic: 3", "Expected `str`, got `int` - at `$.listeners[0].topic`"),
        ("topic: orders", "topics: orders", "unknown field `topics` - at `$.listeners[0]`"),
        ("topic: orders", "topic: or.ders", "shop.yaml: listeners[0]: The specified topic"),
        ("payload: dict", "payload: Order", "listeners[0]: payload is 'Order': give module:name"),
        (f"{HERE}:pay", f"{HERE}:play", "there is no play in <module"),
        (f"{HERE}:pay", "no.such:pay", "and no.such cannot be imported"),
        ("on_bad_payload: retry", "on_bad_payload: burn", "give dead-letter, retry, skip, or module:name"),
        ("orderly: true", "ordrely: true", "did you mean orderly?"),
        ("orderly: true", "pull_batch_size: 0", "pull_batch_size is 0"),
        ("orderly: true", "sql: true", "sql"),
        ("instance_name: i", "name: i", "multiple values for argument 'name'"),
        ("app: shop", "app: DEFAULT_PRODUCER", "is a placeholder"),
    ],
)
def test_what_a_file_says_wrong_is_named(file: Path, before: str, after: str, why: str) -> None:
    assert before in FILE
    file.write_text(FILE.replace(before, after))
    with pytest.raises(ConfigError) as refused:
        load(file)
    assert str(refused.value).startswith(str(file))
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"- a", b"&a [*a]", b"a: 2026-13-45"])
def test_a_file_that_is_none_is_refused(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"shop\.yaml: "):
        load(file)


def test_an_application_is_found_by_name(file: Path) -> None:
    assert app_of(f"{HERE}:app") is app
    assert app_of(HERE) is app
    assert named("str", "payload") is str
    with pytest.raises(ConfigError, match=r":none is int, not an rmq\.app\.App"):
        app_of(f"{HERE}:none")
    with pytest.raises(ConfigError, match=r"nowhere\.yaml cannot be read: No such file"):
        app_of("nowhere.yaml")
