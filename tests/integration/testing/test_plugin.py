"""The pytest plugin as a user's test-suite has it: found by pytest itself, in runs of its own in this process."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from rmq import Producer, PushConsumer, TransactionProducer, aio
from rmq.app import App
from rmq.testing import BlockingCluster, BlockingSimCluster, SimCluster
from tests.support.daemons import ROOT

pytest_plugins = ["pytester"]
#: What a run within this process imports, it forgets at its end, and the next one would get another copy.
_LOADED = (App, Producer, PushConsumer, TransactionProducer, aio, BlockingCluster, BlockingSimCluster, SimCluster)

#: What a user has beside the plugin; a warning is an error in his run, too. That rmq is imported already is so in ours
#: alone, and is told where pytest was started by its script.
HOW = ("-p", "no:cacheprovider", "-W", "error", "-W", "ignore:Module already imported so cannot be rewritten")
ASYNCIO = ("-o", "asyncio_default_fixture_loop_scope=function")

BLOCKING = """
import queue

import pytest

from rmq import Message, Producer, PushConsumer, RMQError, TransactionProducer, TransactionState


@pytest.fixture
def producer(rmq_cluster):  # it names no address and no world, as a service does not
    with Producer("orders") as producer:
        yield producer


@pytest.fixture
def handled(rmq_cluster):
    got = []
    consumer = PushConsumer("payments", consume_from_where="CONSUME_FROM_FIRST_OFFSET", max_reconsume_times=2)

    @consumer.on("orders")
    def handle(message):
        got.append((message.body, message.reconsume_times))
        if message.body == b"bad":
            raise ValueError("no")

    with consumer:
        yield got


def test_a_delay(rmq_cluster, producer, handled):
    before = rmq_cluster.now()
    producer.send(Message("orders", "one", delay=600))
    rmq_cluster.advance(minutes=9, seconds=59)
    assert (handled, rmq_cluster.messages("orders")) == ([], [])
    rmq_cluster.advance(1)
    assert handled == [(b"one", 0)]
    assert [message.body for message in rmq_cluster.messages("orders")] == [b"one"]
    assert 600 <= (rmq_cluster.now() - before).total_seconds() < 602


def test_retries_end_in_the_dead_letters(rmq_cluster, producer, handled):
    producer.send(Message("orders", "bad"))
    rmq_cluster.advance(minutes=2)
    assert handled == [(b"bad", 0), (b"bad", 1), (b"bad", 2)]
    assert [message.body for message in rmq_cluster.messages("%DLQ%payments")] == [b"bad"]


def test_the_broker_asks_back(rmq_cluster, handled):
    asked = []

    def check(message):
        asked.append(message.body)
        return TransactionState.COMMIT

    with TransactionProducer("tx", check) as producer:
        producer.send_in_transaction(Message("orders", "one"), lambda message: TransactionState.UNKNOWN)
        assert rmq_cluster.messages("orders") == []
        rmq_cluster.advance(minutes=3)
    assert asked == [b"one"]
    assert handled == [(b"one", 0)]


def test_what_waits_for_a_thread_gets_what_is_on_its_way(rmq_cluster, producer):
    got = queue.Queue()
    consumer = PushConsumer("payments")
    consumer.on("orders")(lambda message: got.put(message.body))
    with consumer:
        producer.send(Message("orders", "one"))
        assert got.get(timeout=60) == b"one"


def test_a_broker_dies(rmq_cluster, producer, handled):
    producer.send(Message("orders", "one"))
    before = rmq_cluster.now()
    rmq_cluster.kill_broker()
    assert (rmq_cluster.now() - before).total_seconds() < 1
    disk = rmq_cluster.cluster.simulation.nodes["broker-0"].files
    assert disk.exists("/cluster/broker-0/abort")  # which a clean stop takes away
    with pytest.raises(RMQError):
        producer.send(Message("orders", "lost"))
    rmq_cluster.start_broker()
    assert [message.body for message in rmq_cluster.messages("orders")] == [b"one"]
    producer.send(Message("orders", "two"))
    rmq_cluster.advance(minutes=1)
    assert sorted(handled) == [(b"one", 0), (b"two", 0)]
    with pytest.raises(RMQError, match="broker-7 does not run"):
        rmq_cluster.kill_broker(7)


def test_a_line_is_cut(rmq_cluster, producer):
    producer.send(Message("orders", "one"))
    rmq_cluster.cut()
    with pytest.raises(TimeoutError, match="no answer in 3 s"):
        producer.send(Message("orders", "two"))
    rmq_cluster.heal()
    producer.send(Message("orders", "three"))


@pytest.mark.rmq_cluster(brokers=2, settings={"defaultTopicQueueNums": "1"})
def test_the_mark_says_what_cluster(rmq_cluster, producer):
    assert len(producer.fetch_publish_message_queues("TBW102")) == 2
    rmq_cluster.kill_broker(1)
    for number in range(4):
        producer.send(Message("orders", str(number)))
    assert {message.broker_name for message in rmq_cluster.messages("orders")} == {"broker-0"}
"""

FAILING = """
import asyncio

from rmq import Message, Producer, aio


def test_blocking(rmq_cluster):
    with Producer("orders") as producer:
        producer.send(Message("orders", "one"))
        assert [message.body for message in rmq_cluster.messages("orders")] == [b"two"]


async def test_coroutine(rmq_cluster):
    async with aio.Producer("orders") as producer:
        await producer.send(Message("orders", "three"))
        assert [message.body for message in await rmq_cluster.messages("orders")] == [b"four"]


async def test_in_vain(rmq_cluster):
    loop = asyncio.get_running_loop()
    loop.limit = loop.time() + 60  # instead of an hour
    await asyncio.Event().wait()  # this is where it waits


def test_another_loop(rmq_cluster):
    async def service():
        async with aio.Producer("orders") as producer:
            await producer.send(Message("orders", "five"))

    asyncio.run(service())
"""

COROUTINES = """
import asyncio
import contextvars

import pytest
import pytest_asyncio

from rmq.aio import Message, Producer, PushConsumer
from rmq.app import App

request_id = contextvars.ContextVar("request_id")


@pytest_asyncio.fixture
async def producer(rmq_cluster):
    request_id.set("r1")
    async with Producer("orders") as producer:
        yield producer


@pytest_asyncio.fixture
async def loop_of_fixtures():  # asks for no cluster: its test does
    return asyncio.get_running_loop()


@MARK
async def test_a_delay(loop_of_fixtures, rmq_cluster, producer):
    assert loop_of_fixtures is asyncio.get_running_loop()
    assert request_id.get() == "r1"
    assert App("payments").world is rmq_cluster.world
    got = asyncio.Queue()
    consumer = PushConsumer("payments")

    @consumer.on("orders")
    async def handle(message):
        got.put_nowait(message.body)

    async with consumer:
        await producer.send(Message("orders", "one", delay=600))
        await rmq_cluster.advance(minutes=9)
        assert got.empty()
        assert await asyncio.wait_for(got.get(), 120) == b"one"
    assert [message.body for message in await rmq_cluster.messages("orders")] == [b"one"]
    assert await asyncio.to_thread(lambda: 7) == 7


class TestMethods:
    @pytest_asyncio.fixture
    async def mine(self):
        self.value = 5

    @MARK
    @pytest.mark.parametrize("number", [1, 2])
    async def test_a_broker_dies(self, mine, rmq_cluster, producer, number):
        assert self.value == 5
        await producer.send(Message("orders", "one"))
        await rmq_cluster.kill_broker()
        await rmq_cluster.start_broker()
        assert len(await rmq_cluster.messages("orders")) == 1


@MARK
async def test_of_another_loop():
    assert not hasattr(asyncio.get_running_loop(), "pass_time")
"""


def test_blocking_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(BLOCKING)
    pytester.runpytest_inprocess(*HOW, *ASYNCIO, "--strict-markers").assert_outcomes(passed=7)


@pytest.mark.parametrize(("mode", "mark"), [("strict", "pytest.mark.asyncio"), ("auto", "pytest.mark.x")])
def test_coroutine_tests(mode: str, mark: str, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(COROUTINES.replace("MARK", mark))
    pytester.makeini("[pytest]\nmarkers = x")
    pytester.runpytest_inprocess(*HOW, *ASYNCIO, "-o", f"asyncio_mode={mode}").assert_outcomes(passed=4)


def test_what_fails_is_readable(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(FAILING)
    result = pytester.runpytest_inprocess(*HOW, "-p", "no:asyncio")
    result.assert_outcomes(failed=4)
    told = result.stdout.str()
    for line in (
        "E           AssertionError: assert [b'one'] == [b\"two\"]".replace('"', "'"),
        "E           AssertionError: assert [b'three'] == [b'four']",
        ">       await asyncio.Event().wait()  # this is where it waits",
        "TimeoutError: an hour of virtual time has passed, and what is waited for here has not come",
        "ClientError: a client in virtual time, on another loop than its cluster",
    ):
        assert line in told
    assert "runners.py" not in told.partition("test_another_loop")[0]


def test_the_programs_of_the_guide_pass(pytester: pytest.Pytester) -> None:
    page = (ROOT / "docs" / "testing.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    tests = [text for text in programs if "def test_" in text]
    pytester.makepyfile(**{f"test_{number}": text for number, text in enumerate(tests)})
    result = pytester.runpytest_inprocess(*HOW, *ASYNCIO)
    result.assert_outcomes(passed=sum(len(re.findall(r"^(?:async )?def test_", text, re.M)) for text in tests))


def test_a_run_that_asks_for_nothing_pays_nothing() -> None:
    program = (
        "import sys, rmq.testing.plugin; "
        "print([name for name in sys.modules if name == 'asyncio' or name.startswith('rmq.')])"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "['rmq.testing', 'rmq.testing.plugin']"
