"""A local transaction as a block; and docs/transactions.md, run with SQLAlchemy and Django on sqlite."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rmq import Message, SendStatus, TransactionProducer, TransactionState, aio
from rmq.protocol.errors import ClientError, ResponseError, RMQError
from tests.support.daemons import ROOT

FAST = {"transactionTimeOut": "1000", "transactionCheckInterval": "1000"}
UNKNOWN = TransactionState.UNKNOWN
pytestmark = pytest.mark.rmq_cluster(settings=FAST)


def texts(cluster: Any, topic: str = "orders") -> list[str]:
    return [message.body.decode() for message in cluster.messages(topic)]


def test_a_block_commits_or_leaves_it_to_the_check_or_rolls_back(rmq_cluster: Any) -> None:
    asked: list[str] = []

    def check(message: Any) -> TransactionState:
        asked.append(message.body.decode())
        return TransactionState.COMMIT

    with TransactionProducer("p", check) as producer:
        with producer.transaction(Message("orders", "good")) as block:
            assert block.msg_id
            rmq_cluster.advance(seconds=1)
            assert texts(rmq_cluster) == []
        rmq_cluster.advance(seconds=1)
        assert texts(rmq_cluster) == ["good"]
        assert block.result is not None
        assert (block.result.msg_id, block.result.local_transaction_state.name) == (block.msg_id, "COMMIT")
        with pytest.raises(ValueError, match="commit"), producer.transaction(Message("orders", "doubtful")) as block:
            raise ValueError("commit failed, or did it?")
        assert block.result.local_transaction_state is UNKNOWN
        block = producer.transaction(Message("orders", "dropped"))
        block.rollback()
        with pytest.raises(KeyError), block:
            raise KeyError("no such order")
        with producer.transaction(Message("orders", "dropped, too")) as block:
            block.rollback()
        assert block.result.local_transaction_state is TransactionState.ROLLBACK
        with pytest.raises(ClientError, match="entered before"):
            block.__enter__()
        rmq_cluster.advance(minutes=2)
        assert texts(rmq_cluster) == ["good", "doubtful"]
    assert asked == ["doubtful"]


async def test_blocks_of_coroutines_are_the_same(rmq_cluster: Any) -> None:
    asked: list[str] = []

    async def check(message: aio.MessageExt) -> TransactionState:
        asked.append(message.msg_id)
        return TransactionState.COMMIT

    async with aio.TransactionProducer("p", check) as producer:
        async with producer.transaction(Message("orders", "good")):
            pass
        block = producer.transaction(Message("orders", "late"))
        with pytest.raises(ClientError, match="once the block is entered"):
            block.msg_id  # noqa: B018

        async def cancelled() -> None:
            async with block:
                await asyncio.sleep(3600)

        task = asyncio.ensure_future(cancelled())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        await rmq_cluster.advance(minutes=2)
        assert [message.body for message in await rmq_cluster.messages("orders")] == [b"good", b"late"]
        assert asked == [block.msg_id]


def test_a_block_is_not_entered_for_a_message_that_is_not_stored_as_promised(
    rmq_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TransactionProducer("p", lambda message: TransactionState.COMMIT) as producer:
        client = producer._client
        stored = client._send_half

        async def flushed_late(*given: Any) -> Any:
            half = await stored(*given)
            half.send_status = SendStatus.FLUSH_DISK_TIMEOUT
            return half

        monkeypatch.setattr(client, "_send_half", flushed_late)
        entered = False
        with (
            pytest.raises(ResponseError, match="stored, but FLUSH_DISK_TIMEOUT: it is rolled back") as refused,
            producer.transaction(Message("orders", "x")),
        ):
            entered = True
        assert (entered, refused.value.code) == (False, 10)
        with pytest.raises(ClientError, match="takes a Message, not str"), producer.transaction("x"):  # type: ignore[arg-type]
            pass
        rmq_cluster.advance(minutes=2)
        assert texts(rmq_cluster) == []


# -- the programs of the page ------------------------------------------------------------------------------------------

PROGRAMS = dict(
    re.findall(
        r"^## (.*?)\n\n```python\n(.*?)```", (ROOT / "docs/transactions.md").read_text(), re.DOTALL | re.MULTILINE
    )
)


@pytest.fixture
def program(
    request: pytest.FixtureRequest, rmq_cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SimpleNamespace]:
    """A program of the page, with the test's cluster and a database of its own; its producer is started."""
    needed = "django" if "Django" in request.param else "sqlalchemy"
    pytest.importorskip(needed, reason=f"{needed} is not installed: pip install 'rmq[frameworks]'")
    text = PROGRAMS[request.param]
    for theirs, ours in (
        ("127.0.0.1:9876", rmq_cluster.namesrv_addr),
        ("orders.db", str(tmp_path / "orders.db")),
        ("time.time()", "now()"),
    ):
        text = text.replace(theirs, ours)
    module = ModuleType("shop")
    monkeypatch.setitem(sys.modules, "shop", module)
    names: dict[str, Any] = vars(module)
    names["now"] = lambda: rmq_cluster.now().timestamp()
    with _django(tmp_path / "orders.db", names) if "Django" in request.param else _sqlalchemy(names):
        exec(text, names)
        made = SimpleNamespace(**names)
        if "models" in names:
            _make_tables(names)
        with made.producer:
            yield made


@contextmanager
def _sqlalchemy(names: dict[str, Any]) -> Iterator[None]:
    def orders() -> list[str]:
        with names["Session"](names["engine"]) as session:
            return sorted(one.id for one in session.query(names["Order"]))

    names["orders"] = orders
    yield
    names["engine"].dispose()


@contextmanager
def _django(path: Path, names: dict[str, Any]) -> Iterator[None]:
    from django.apps import apps
    from django.conf import settings
    from django.db import connections

    database = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path)}}
    if not settings.configured:
        settings.configure(DATABASES=database, INSTALLED_APPS=[], USE_TZ=True)
        apps.populate([])
    connections.settings["default"]["NAME"] = str(path)
    names["orders"] = lambda: sorted(names["Order"].objects.values_list("pk", flat=True))
    try:
        yield
    finally:
        connections.close_all()
        del connections["default"]  # the next test's is of another file
        apps.all_models.pop("shop", None)
        apps.clear_cache()


def _make_tables(names: dict[str, Any]) -> None:
    from django.db import connection

    with connection.schema_editor() as editor:
        for name in ("Order", "Sent", "Outbox"):
            if name in names:
                editor.create_model(names[name])


CHECK_BACK = ["Check-back with SQLAlchemy", "Check-back with Django"]
OUTBOX = ["Outbox with SQLAlchemy", "Outbox with Django"]


def test_the_page_has_these_programs() -> None:
    assert sorted(PROGRAMS) == sorted(CHECK_BACK + OUTBOX)


@pytest.mark.parametrize("program", CHECK_BACK, indirect=True)
def test_orders_and_messages_come_together(program: Any, rmq_cluster: Any) -> None:
    program.place("one")
    rmq_cluster.advance(seconds=1)
    assert texts(rmq_cluster) == ["one"]
    with pytest.raises(Exception, match="UNIQUE"):
        program.place("one")  # there is that order: neither row nor message
    rmq_cluster.advance(minutes=3)
    assert (program.orders(), texts(rmq_cluster)) == (["one"], ["one"])


@pytest.mark.parametrize("program", CHECK_BACK, indirect=True)
def test_a_commit_of_which_the_broker_was_not_told_is_found_by_the_check(
    program: Any, rmq_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def died(block: Any, error: BaseException | None) -> TransactionState:
        return UNKNOWN

    monkeypatch.setattr("rmq.client.scope.TransactionScope._state", died)
    program.place("one")
    assert (program.orders(), texts(rmq_cluster)) == (["one"], [])
    rmq_cluster.advance(seconds=30)
    assert texts(rmq_cluster) == ["one"]


@pytest.mark.parametrize("program", OUTBOX, indirect=True)
def test_the_outbox_is_sent_in_order_and_later_when_the_broker_is_away(program: Any, rmq_cluster: Any) -> None:
    program.place("one")
    program.place("two")
    rmq_cluster.kill_broker()
    with pytest.raises(RMQError):
        program.relay()
    program.place("three")
    rmq_cluster.start_broker()
    program.relay()
    program.relay()
    assert program.orders() == ["one", "three", "two"]
    sent = sorted(rmq_cluster.messages("orders"), key=lambda message: message.born_timestamp)
    assert [message.body for message in sent] == [b"one", b"two", b"three"]
