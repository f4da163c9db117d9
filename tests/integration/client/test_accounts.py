"""Clients with an account, where there is access control: all is signed, and what is refused says so at once."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import rmq
from rmq.aio import (
    AccessDenied,
    AdminClient,
    ClientError,
    LitePullConsumer,
    Message,
    MessageExt,
    Producer,
    PullConsumer,
    PushConsumer,
    TransactionProducer,
    TransactionState,
)
from rmq.cli.command import invoke
from rmq.cli.mqadmin.commands import root
from rmq.cli.mqadmin.failures import DENIED
from rmq.protocol.errors import ConfigError
from rmq.testing.cluster import Cluster
from tests.support.accounts import SECRET, home
from tests.support.daemons import PATIENCE
from tests.support.virtual import eventually

OWNER: Any = {"access_key": "owner-of-T", "secret_key": SECRET}
FIRST = "CONSUME_FROM_FIRST_OFFSET"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    settings = {**home(tmp_path), "transactionTimeOut": "100", "transactionCheckInterval": "100"}
    async with Cluster(tmp_path, settings=settings) as cluster:
        operator: Any = {"access_key": "operator", "secret_key": SECRET}
        async with AdminClient(namesrv=cluster.namesrv_addr, **operator) as admin:
            await admin.create_and_update_topic(cluster.broker_addr, "T", read_queue_nums=1, write_queue_nums=1)
        yield cluster


async def test_all_that_clients_do_is_signed(cluster: Cluster) -> None:
    how: Any = {"namesrv": cluster.namesrv_addr, **OWNER}
    asked: list[str] = []

    async def check(message: MessageExt) -> TransactionState:
        asked.append(message.msg_id)
        return TransactionState.COMMIT

    seen: list[bytes] = []
    consumer = PushConsumer("G", consume_from_where=FIRST, **how)

    @consumer.on("T")
    async def take(message: MessageExt) -> None:
        seen.append(message.body)

    async with Producer("p", **how) as producer, TransactionProducer("tx", check, **how) as transactions, consumer:
        await producer.send(Message("T", b"one"))
        await producer.send([Message("T", b"two"), Message("T", b"three")])
        await producer.send_async(Message("T", b"four"))
        await producer.send_oneway(Message("T", b"five"))
        await transactions.send_in_transaction(Message("T", b"six"), lambda _: TransactionState.COMMIT)
        unknown = await transactions.send_in_transaction(Message("T", b"seven"), lambda _: TransactionState.UNKNOWN)
        await eventually(lambda: len(seen) == 7, within=PATIENCE)
        assert unknown.msg_id in asked  # on a busy machine of the other one, too, while its end is under way
    async with PullConsumer("G", **how) as puller, LitePullConsumer("G", **how) as lite:
        [queue] = await puller.fetch_subscribe_message_queues("T")
        assert await puller.fetch_consume_offset(queue, from_store=True) == 7
        lite.assign([queue])
        await lite.seek(queue, 0)
        assert len(await lite.poll(10)) == 7


@pytest.mark.parametrize(
    ("account", "said"),
    [
        ({}, "accessKey"),
        ({"access_key": "owner-of-T", "secret_key": "87654321"}, "signature"),
        ({"access_key": "nobody-here", "secret_key": SECRET}, "nobody-here"),
        ({"access_key": "unprivileged", "secret_key": SECRET}, "T"),
    ],
)
async def test_who_may_not_is_told_at_once_and_no_other_broker_is_tried(
    cluster: Cluster, account: Any, said: str
) -> None:
    """Field case B109."""
    loop = asyncio.get_running_loop()
    async with Producer("p", namesrv=cluster.namesrv_addr, send_msg_timeout=3 * PATIENCE, **account) as producer:
        began = loop.time()
        with pytest.raises(AccessDenied, match=said) as refused:
            await producer.send(Message("T", b"x"))
        assert loop.time() - began < PATIENCE
        assert (refused.value.retriable, refused.value.topic, refused.value.address) == (
            False,
            "T",
            cluster.broker_addr,
        )
        assert "org.apache" not in str(refused.value)
        assert SECRET not in "".join(traceback.format_exception(refused.value))


async def test_accounts_come_from_a_file_or_the_environment(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tools.yml"
    file.write_text(f"accessKey: owner-of-T\nsecretKey: '{SECRET}'\n")
    async with Producer("p", namesrv=cluster.namesrv_addr, credentials_file=str(file)) as producer:
        assert (await producer.send(Message("T", b"x"))).ok
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "owner-of-T")
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", SECRET)
    async with Producer("p", namesrv=cluster.namesrv_addr) as producer:
        assert (await producer.send(Message("T", b"x"))).ok
    other: Any = {"access_key": "unprivileged", "secret_key": SECRET}  # what is given counts
    async with Producer("p", namesrv=cluster.namesrv_addr, instance_name="one", **other) as producer:
        with pytest.raises(AccessDenied):
            await producer.send(Message("T", b"x"))
        async with Producer("p2", namesrv=cluster.namesrv_addr, instance_name="one") as owner:
            assert (await owner.send(Message("T", b"x"))).ok  # of one instance name, and not one connection


def test_an_account_that_cannot_be_used_is_refused_without_its_secret(
    tmp_path: Path,
) -> None:
    for options, named in (
        ({"access_key": "someone"}, "secret_key is missing"),
        ({"secret_key": "hush-hush"}, "access_key is missing"),
        ({"access_key": "someone", "secret_key": "hush-hush", "credentials_file": "f"}, "not both"),
        ({"access_key": "someone", "secret_key": b"hush-hush"}, "secret_key is no text"),
        ({"access_key": "someone", "secret_key": ""}, "secret_key is no text"),
    ):
        with pytest.raises(ClientError, match=named) as refused:
            Producer("p", **options)  # type: ignore[arg-type]
        assert "hush" not in str(refused.value)
    producer = Producer("p", namesrv="127.0.0.1:1", access_key="someone", secret_key="hush-hush")
    assert "hush" not in repr(producer._settings) + repr(producer)
    missing = rmq.Producer("p", namesrv="127.0.0.1:1", credentials_file=str(tmp_path / "none.yml"))
    with pytest.raises(ConfigError, match=r"none\.yml"):
        missing.start()


async def test_mqadmin_signs_with_the_account_of_javas_tools(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["topicStatus", "-n", cluster.namesrv_addr, "-t", "T"]
    assert await asyncio.to_thread(invoke, root, "mqadmin", words) == DENIED
    assert "access denied" in capsys.readouterr().err
    (tmp_path / "conf" / "tools.yml").write_text(f"accessKey: operator\nsecretKey: '{SECRET}'\n")
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    assert await asyncio.to_thread(invoke, root, "mqadmin", words) == 0
    assert "broker-0" in capsys.readouterr().out
