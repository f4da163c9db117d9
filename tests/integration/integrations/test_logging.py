"""Log records on their way to a topic: none waits, none is lost while there is room, and no log makes another."""

from __future__ import annotations

import logging
import logging.config
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from rmq import PullConsumer
from rmq.integrations.logging import RocketMQHandler
from rmq.protocol.errors import ClientError
from rmq.testing.cluster import BlockingCluster
from tests.support.daemons import PATIENCE, ROOT


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingCluster]:
    with BlockingCluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    made = logging.getLogger("shop.orders")
    made.setLevel(logging.DEBUG)
    made.propagate = False
    yield made
    for handler in list(made.handlers):
        made.removeHandler(handler)
        handler.close()


def bodies(cluster: BlockingCluster, topic: str, expression: str = "*") -> list[str]:
    """Everything in a topic, a queue after the other; all of it is marked as Java's appenders mark theirs."""
    found: list[str] = []
    with PullConsumer("reader", namesrv=cluster.namesrv_addr) as reader:
        for queue in reader.fetch_subscribe_message_queues(topic):
            offset, end = 0, reader.max_offset(queue)
            while offset < end:
                pulled = reader.pull(queue, expression, offset, 1000)
                assert {one.properties["APPENDER_TYPE"] for one in pulled.messages} <= {"PYTHON_LOGGING"}
                found += [message.body.decode() for message in pulled.messages]
                offset = pulled.next_begin_offset
    return found


def test_records_of_many_threads_arrive(cluster: BlockingCluster) -> None:
    logging.config.dictConfig({
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": {"format": "%(name)s %(message)s"}},
        "handlers": {
            "rocketmq": {
                "class": "rmq.integrations.logging.RocketMQHandler",
                "topic": "logs",
                "namesrv": cluster.namesrv_addr,
                "tags": "%(levelname)s",
                "keys": "%(threadName)s",
                "formatter": "plain",
                "level": "INFO",
            }
        },
        "loggers": {"shop.many": {"handlers": ["rocketmq"], "level": "DEBUG", "propagate": False}},
    })  # fmt: skip
    log = logging.getLogger("shop.many")
    (handler,) = log.handlers
    assert isinstance(handler, RocketMQHandler)

    def work(thread: int) -> None:
        for number in range(200):
            log.info("%d-%d", thread, number)
            log.debug("not shipped")
        log.warning("done %d", thread)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    handler.flush()
    assert (handler.sent, handler.lost) == (804, 0)
    assert sorted(bodies(cluster, "logs")) == sorted(
        [f"shop.many {thread}-{number}" for thread in range(4) for number in range(200)]
        + [f"shop.many done {thread}" for thread in range(4)]
    )
    assert len(bodies(cluster, "logs", "WARNING")) == 4
    log.removeHandler(handler)
    handler.close()
    log.info("after the end")


def test_nobody_waits_for_a_cluster_that_is_away(log: logging.Logger) -> None:
    handler = RocketMQHandler("logs", namesrv="127.0.0.1:1", capacity=10, close_timeout=0.2)
    log.addHandler(handler)
    for number in range(500):
        log.info("%d", number)
    log.removeHandler(handler)
    handler.close()
    handler.emit(logging.makeLogRecord({"name": "shop", "msg": "late"}))
    assert handler.sent == 0
    assert handler.lost == 501


def test_a_full_disk_loses_what_has_no_room_here_and_nothing_else(
    cluster: BlockingCluster, log: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    (broker,) = cluster.cluster.brokers

    retention = broker.store.retention

    async def set_full(full: bool) -> None:
        paths = retention._measure()[0]
        monkeypatch.setattr(retention, "_measure", lambda: (dict.fromkeys(paths, 1.0 if full else 0.1), None))
        await retention.check_disk()

    handler = RocketMQHandler("full", namesrv=cluster.namesrv_addr, capacity=10)
    log.addHandler(handler)
    log.info("before")
    handler.flush()
    handler._close_timeout = 0.2
    cluster.call(lambda _: set_full(True))
    for number in range(100):
        log.info("%d", number)  # returns at once
    log.removeHandler(handler)
    handler.flush()  # waits no longer than that
    assert handler.sent == 1
    cluster.call(lambda _: set_full(False))
    handler._close_timeout = PATIENCE
    handler.close()
    found = bodies(cluster, "full")
    assert handler.sent + handler.lost == 101
    assert len(found) == len(set(found)) == handler.sent
    # Those in hand, and as many as wait at most.
    assert {"before", *map(str, range(10))} <= set(found)
    assert handler.lost > 0


def test_a_record_that_cannot_be_sent_costs_itself_alone(
    cluster: BlockingCluster, log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = RocketMQHandler("bad", namesrv=cluster.namesrv_addr, tags="%(kind)s", max_message_size=1000)
    log.addHandler(handler)
    good = {"extra": {"kind": "x"}}
    log.info("one", **good)
    log.info("no kind")
    log.info("x" * 2000, **good)
    # Past pytest's own handler, which could not pass it on.
    handler.handle(logging.makeLogRecord({"name": "shop", "msg": "two \ud800", "kind": "x"}))
    log.info("three", **good)
    handler.flush()
    assert (handler.sent, handler.lost) == (2, 1)
    assert sorted(bodies(cluster, "bad")) == ["one", "three"]
    assert "KeyError: 'kind'" in capsys.readouterr().err


@pytest.mark.parametrize("own", [False, True])
def test_its_own_records_make_no_others(cluster: BlockingCluster, own: bool) -> None:
    """On the root logger, everything at DEBUG: what is logged while records are shipped is shipped, and that ends."""
    root, sdk = logging.getLogger(), logging.getLogger("rmq")
    before = root.level
    handler = RocketMQHandler(f"own-{own}", namesrv=cluster.namesrv_addr, own_records=own)
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        for number in range(50):
            logging.getLogger("shop").info("%d", number)
            sdk.getChild("client").info("of the SDK")
        handler.flush()
    finally:
        root.setLevel(before)
        root.removeHandler(handler)
        handler.close()
    assert handler.lost == 0
    found = bodies(cluster, f"own-{own}")
    assert [one for one in found if one.isdigit()]
    assert ("of the SDK" in found) == own


def test_a_forked_child_ships_its_own_and_the_end_of_a_process_sends_what_waits(cluster: BlockingCluster) -> None:
    program = f"""
import logging, os
from rmq.integrations.logging import RocketMQHandler
log = logging.getLogger("shop")
log.setLevel(logging.INFO)
log.addHandler(RocketMQHandler("forked", namesrv={cluster.namesrv_addr!r}))
for n in range(20):
    log.info("before %d", n)
child = os.fork()
for n in range(20):
    log.info("%s %d", "parent" if child else "child", n)
if child:
    assert os.waitpid(child, 0)[1] == 0
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert sorted(bodies(cluster, "forked")) == sorted(
        f"{who} {number}" for who in ("before", "parent", "child") for number in range(20)
    )


def test_what_cannot_be_used_is_refused_where_it_is_made() -> None:
    for options, why in (
        ({"topic": "a.b"}, "illegal characters"),
        ({"topic": "T", "capacity": 0}, "capacity is 0"),
        ({"topic": "T", "group": "no group"}, "illegal characters"),
        ({"topic": "T", "send_msg_timeout": -1}, "send_msg_timeout is -1"),
        ({"topic": "T", "close_timeout": "x"}, "close_timeout is 'x'"),
    ):
        with pytest.raises(ClientError, match=why):
            RocketMQHandler(**options)  # type: ignore[arg-type]


def test_what_other_libraries_log_arrives(cluster: BlockingCluster) -> None:
    loguru = pytest.importorskip("loguru", reason="loguru is not installed: pip install 'rmq[frameworks]'")
    structlog = pytest.importorskip("structlog", reason="structlog is not installed: pip install 'rmq[frameworks]'")
    handler = RocketMQHandler("others", namesrv=cluster.namesrv_addr)
    number = loguru.logger.add(handler, format="{message}")
    standard = logging.getLogger("shop.structured")
    standard.addHandler(handler)
    try:
        loguru.logger.warning("by loguru")
        render = structlog.processors.JSONRenderer(sort_keys=True)
        structlog.wrap_logger(standard, processors=[render]).warning("by structlog", order=7)
    finally:
        loguru.logger.remove(number)
        standard.removeHandler(handler)
        handler.close()
    assert (handler.sent, handler.lost) == (2, 0)
    assert sorted(bodies(cluster, "others")) == ["by loguru", '{"event": "by structlog", "order": 7}']
