"""The blocking API on real sockets and threads, against a cluster on another loop of this process."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

import rmq
from rmq import (
    AdminClient,
    ClientError,
    ConsumeContext,
    ConsumeResult,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
    PullStatus,
    PushConsumer,
    RMQError,
    SendStatus,
    by_hash,
)
from rmq.runtime.aside import finish_records
from rmq.testing.cluster import BlockingCluster
from tests.support.daemons import PATIENCE

FIRST = "CONSUME_FROM_FIRST_OFFSET"
#: Sends on a busy machine.
PATIENT: dict[str, Any] = {"send_msg_timeout": PATIENCE, "mq_client_api_timeout": PATIENCE}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingCluster]:
    with BlockingCluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


class Seen:
    """Messages a listener got, waited for without sleeping."""

    def __init__(self) -> None:
        self.messages: list[MessageExt] = []
        self._changed = threading.Condition()

    def __call__(self, message: MessageExt) -> None:
        with self._changed:
            self.messages.append(message)
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.messages) >= count, PATIENCE), len(self.messages)


def test_every_way_to_send(cluster: BlockingCluster) -> None:
    """Field case B134."""
    with Producer("pg", namesrv=cluster.namesrv_addr, **PATIENT) as producer:
        one = producer.send(Message("Ways", b"x", keys="one"))
        assert one.send_status is SendStatus.SEND_OK
        batch = producer.send([Message("Ways", b"1"), Message("Ways", b"2")])
        assert len(batch.msg_id.split(",")) == 2
        queue = producer.fetch_publish_message_queues("Ways")[2]
        assert producer.send(Message("Ways", b"x"), queue=queue).message_queue == queue
        picked = {producer.send(Message("Ways", b"x"), selector=by_hash, arg="k").message_queue for _ in range(3)}
        assert len(picked) == 1
        producer.send_oneway(Message("Ways", b"x"))
        told = threading.Event()
        threads: list[str] = []

        def callback(future: object) -> None:
            producer.send(Message("Ways", b"a blocking call in a callback"))
            threads.append(threading.current_thread().name)
            told.set()

        assert producer.send_async(Message("Ways", b"x"), callback).result(PATIENCE).ok
        assert told.wait(PATIENCE)
        assert threads[0].startswith("rmq-callback")
        futures = [producer.send_async(Message("Ways", b"x")) for _ in range(200)]
        assert len({future.result(PATIENCE).msg_id for future in futures}) == 200
        with pytest.raises(ClientError, match="empty body"):
            producer.send(Message("Ways", b""))
        with pytest.raises(ClientError, match="empty body"):
            producer.send_async(Message("Ways", b""))
    with pytest.raises(ClientError, match="shut down"):
        producer.send(Message("Ways", b"x"))


def test_a_cancelled_future_costs_no_other_send(cluster: BlockingCluster) -> None:
    """Its result used to end the step that served all of them, and the broker's connection with it."""
    with (
        Producer("pg", namesrv=cluster.namesrv_addr, **PATIENT) as producer,
        AdminClient(namesrv=cluster.namesrv_addr) as admin,
    ):
        producer.send(Message("Cancelled", b"x"))
        called = threading.Event()
        futures = []
        for number in range(50):
            futures.append(producer.send_async(Message("Cancelled", b"x"), lambda ended: called.set()))
            if number == 25:
                futures[-1].cancel()
        assert sum(1 for future in futures if not future.cancelled() and future.result(PATIENCE).ok) in (49, 50)
        assert called.wait(PATIENCE)
        stored = sum(table.max_offset for table in admin.topic_stats("Cancelled").offset_table.values())
        assert stored <= 51


def test_what_is_hung_on_a_future_never_runs_on_the_loop(cluster: BlockingCluster) -> None:
    with Producer("pg", namesrv=cluster.namesrv_addr, **PATIENT) as producer:
        producer.send(Message("Hung", b"x"))
        told = threading.Event()
        names: list[str] = []

        def callback(ended: object) -> None:
            producer.send(Message("Hung", b"a blocking call"))
            names.append(threading.current_thread().name)
            told.set()

        producer.send_async(Message("Hung", b"x")).add_done_callback(callback)
        assert told.wait(PATIENCE)
        assert names[0].startswith("rmq-callback")


def test_a_shutdown_waits_for_the_callbacks_of_what_was_sent(cluster: BlockingCluster) -> None:
    called: list[object] = []
    with Producer("pg", namesrv=cluster.namesrv_addr, **PATIENT) as producer:
        hold = threading.Event()

        def callback(ended: object) -> None:
            assert hold.wait(PATIENCE)
            called.append(ended)

        futures = [producer.send_async(Message("Called", b"x"), callback) for _ in range(30)]
        threading.Timer(0.05, hold.set).start()
    assert len(called) == 30
    assert all(future.done() for future in futures)


def test_so_does_the_end_of_a_process(cluster: BlockingCluster) -> None:
    code = (
        "import sys, time\n"
        "from rmq import Message, Producer\n"
        "producer = Producer('pg', namesrv=sys.argv[1])\n"
        "producer.start()\n"
        "def callback(ended):\n"
        "    time.sleep(0.05)\n"
        "    print('called', flush=True)\n"
        "for _ in range(10):\n"
        "    producer.send_async(Message('Called', b'x'), callback)\n"
    )
    out = subprocess.run([sys.executable, "-c", code, cluster.namesrv_addr], capture_output=True, timeout=PATIENCE)
    assert out.stdout.count(b"called") == 10, out.stderr.decode()


def test_a_callback_may_end_the_producer(cluster: BlockingCluster, caplog: pytest.LogCaptureFixture) -> None:
    """Which waits for all of its callbacks but this one."""
    producer = Producer("pg", namesrv=cluster.namesrv_addr, **PATIENT)
    producer.start()
    ended = threading.Event()

    def callback(future: object) -> None:
        producer.shutdown()
        ended.set()

    producer.send_async(Message("Called", b"x"), callback)
    assert ended.wait(PATIENCE)
    assert "have not returned" not in caplog.text


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit])
def test_a_selector_that_ends_the_program_costs_no_place_and_no_shutdown(
    cluster: BlockingCluster, raised: type[BaseException]
) -> None:
    def selector(queues: object, message: object, arg: object) -> Any:
        raise raised

    with Producer("pg", namesrv=cluster.namesrv_addr, **PATIENT, back_pressure_for_async_send_num=10) as producer:
        producer.send(Message("Ended", b"x"))
        for _ in range(12):
            with pytest.raises(raised):
                producer.send(Message("Ended", b"x"), selector=selector)
            with pytest.raises(raised):
                producer.send_async(Message("Ended", b"x"), selector=selector)
        assert producer.send(Message("Ended", b"x")).ok
        assert producer._client._sender.window.used == 0


class _Interrupt:
    """Raises KeyboardInterrupt before the so manieth instruction that is run of some modules, as Ctrl-C may."""

    def __init__(self, modules: tuple[str, ...], number: int) -> None:
        self._modules = modules
        self.left = number

    def __call__(self, frame: Any, event: str, arg: object) -> Any:
        if not frame.f_code.co_filename.endswith(self._modules):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self


def _interrupted(modules: tuple[str, ...], call: Callable[[], object]) -> int:
    """Make a call again and again, interrupted at each instruction of some modules in turn; how often it was."""
    before = sys.gettrace()
    interrupted = 0
    for number in range(1, 2_000):
        interrupt = _Interrupt(modules, number)
        sys.settrace(interrupt)
        try:
            call()
        except KeyboardInterrupt:
            interrupted += 1
        finally:
            sys.settrace(before)
        if interrupt.left > 0:
            break
    return interrupted


@pytest.mark.parametrize("how", ["send", "send_async"])
def test_an_interrupt_costs_no_place_and_no_shutdown_wherever_it_comes(cluster: BlockingCluster, how: str) -> None:
    with Producer("pg", namesrv=cluster.namesrv_addr, **PATIENT, back_pressure_for_async_send_num=10) as producer:
        producer.send(Message("Interrupted", b"x"))
        send = getattr(producer, how)
        modules = ("blocking/producer.py", "runtime/window.py")
        assert 200 < _interrupted(modules, lambda: send(Message("Interrupted", b"x"))) < 1_900
        for _ in range(3):
            assert producer.send(Message("Interrupted", b"x")).ok
        assert producer._client._sender.window.used == 0


@pytest.mark.parametrize("how", ["send_async", "request_async"])
def test_an_interrupt_leaves_no_coroutine_that_nobody_awaits(cluster: BlockingCluster, how: str) -> None:
    """Of one, Python would write a warning to standard error, which is an error here."""
    with Producer("pg", namesrv=cluster.namesrv_addr, **PATIENT, auto_batch=True) as producer:
        producer.send(Message("Coroutines", b"x"))
        window = producer._client._sender.window
        send = getattr(producer, how)
        modules = ("blocking/producer.py",)
        assert 100 < _interrupted(modules, lambda: send(Message("Coroutines", b"x"), timeout=0.2).cancel()) < 1_900
        assert not wait(list(producer._under_way), PATIENCE).not_done, "a shutdown would wait for these"
    assert window.used == 0


def test_a_logging_handler_may_send_through_a_producer(cluster: BlockingCluster) -> None:
    sent: list[str] = []

    class Sending(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if not sent:
                sent.append(record.getMessage())
                producer.send(Message("Logs", record.getMessage()))

    handler = Sending()
    handler.addFilter(lambda record: record.name.startswith(("rmq.client", "rmq.remoting")))  # not our broker's own
    root = logging.getLogger()
    root.addHandler(handler)
    level = root.level
    root.setLevel(logging.INFO)
    try:
        with Producer("pg", namesrv=cluster.namesrv_addr, **PATIENT) as producer:
            for number in range(5):
                assert producer.send(Message("Logs", f"{number}")).ok
            finish_records(PATIENCE)
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    assert sent


def test_many_threads_share_a_producer(cluster: BlockingCluster) -> None:
    with Producer("pg", namesrv=cluster.namesrv_addr, **PATIENT) as producer, ThreadPoolExecutor(32) as pool:

        def send(number: int) -> tuple[str, object, int]:
            result = producer.send(Message("Threads", b"%d" % number, keys=str(number)))
            return result.msg_id, result.message_queue, result.queue_offset

        results = list(pool.map(send, range(1_000)))
    assert len({msg_id for msg_id, _, _ in results}) == 1_000
    assert len({(queue, offset) for _, queue, offset in results}) == 1_000


def test_listeners_run_on_the_pool_and_may_make_blocking_calls(cluster: BlockingCluster) -> None:
    seen, copied = Seen(), Seen()
    names: set[str] = set()
    with Producer("pg", namesrv=cluster.namesrv_addr, **PATIENT) as producer:
        for i in range(50):
            producer.send(Message("In", b"%d" % i, tags="A" if i % 2 else "B"))
        consumer = PushConsumer(
            "pool", namesrv=cluster.namesrv_addr, consume_from_where=FIRST, consume_thread_max=4, consume_thread_min=1
        )

        @consumer.on("In", "A")
        def handle(message: MessageExt, context: ConsumeContext) -> ConsumeResult:
            names.add(threading.current_thread().name)
            producer.send(Message("Out", message.body))
            seen(message)
            return ConsumeResult.SUCCESS

        consumer.on("Out")(copied)
        with consumer:
            seen.wait_for(25)
            copied.wait_for(25)
            assert {queue.topic for queue in consumer.assignment} >= {"In"}
    assert {message.body for message in seen.messages} == {b"%d" % i for i in range(1, 50, 2)}
    assert {message.body for message in copied.messages} == {message.body for message in seen.messages}
    assert 1 <= len(names) <= 4
    assert all(name.startswith("rmq-pool") for name in names)


def test_a_listener_thread_may_shut_its_consumer_down(cluster: BlockingCluster) -> None:
    """Field case B132."""
    ended = threading.Event()
    consumer = PushConsumer("ends", namesrv=cluster.namesrv_addr, consume_from_where=FIRST)

    @consumer.on("Ends")
    def handle(message: MessageExt) -> None:
        consumer.shutdown()
        ended.set()

    with Producer("pg", namesrv=cluster.namesrv_addr, **PATIENT) as producer:
        producer.send(Message("Ends", b"x"))
        consumer.start()
        assert ended.wait(PATIENCE)


def test_pull_and_admin(cluster: BlockingCluster) -> None:
    with (
        Producer("pg", namesrv=cluster.namesrv_addr, **PATIENT) as producer,
        PullConsumer("plg", namesrv=cluster.namesrv_addr) as consumer,
        AdminClient(namesrv=cluster.namesrv_addr, mq_client_api_timeout=PATIENCE) as admin,
    ):
        admin.create_and_update_topic(cluster.broker_addr, "Pull", read_queue_nums=2, write_queue_nums=2)
        results = [producer.send(Message("Pull", b"%d" % i)) for i in range(10)]
        found: list[bytes] = []
        for queue in consumer.fetch_subscribe_message_queues("Pull"):
            result = consumer.pull(queue, "*", 0)
            assert result.status is PullStatus.FOUND
            found += [message.body for message in result.messages]
            consumer.update_consume_offset(queue, result.next_begin_offset)
        assert sorted(found) == [b"%d" % i for i in range(10)]
        consumer.persist_offsets()
        assert {queue.queue_id for queue in consumer.fetch_message_queues_in_balance("Pull")} == {0, 1}
        assert "Pull" in admin.topic_list().topic_list
        assert len(admin.topic_stats("Pull").offset_table) == 2
        assert admin.view_message(results[0].offset_msg_id).body == b"0"
        assert cluster.broker_addr in str(admin.cluster_info())
        assert admin.topic_route("Pull").queue_datas[0].read_queue_nums == 2
        assert int(admin.broker_runtime_stats(cluster.broker_addr)["msgPutTotalTodayNow"]) >= 10


def python(code: str, cluster: BlockingCluster, *arguments: str) -> subprocess.Popen[str]:
    root = Path(rmq.__file__).parent.parent
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "NAMESRV_ADDR": cluster.namesrv_addr, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


FORK = """
import os
from rmq import Message, Producer
producer = Producer("pg", send_msg_timeout=100)
producer.start()
ids = [producer.send(Message("Fork", b"before")).msg_id]
children = []
for number in range(4):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        mine = [producer.send(Message("Fork", b"child")).msg_id for _ in range(500)]
        os.write(write, (producer.client_id + " " + " ".join(mine)).encode())
        os.close(write)
        producer.shutdown()
        raise SystemExit(0)
    os.close(write)
    children.append((pid, read))
ids += [producer.send(Message("Fork", b"parent")).msg_id for _ in range(500)]
clients = {producer.client_id}
for pid, read in children:
    data = b""
    while part := os.read(read, 1 << 16):
        data += part
    client, *mine = data.decode().split()
    clients.add(client)
    ids += mine
    assert os.waitpid(pid, 0)[1] == 0
ids.append(producer.send(Message("Fork", b"after")).msg_id)
assert len(ids) == len(set(ids)) == 2502, len(set(ids))
assert len(clients) == 5, clients
producer.shutdown()
print("ok")
"""


def test_a_forked_child_has_clients_of_its_own(cluster: BlockingCluster) -> None:
    """Field case B084, B133."""
    process = python(FORK, cluster)
    out, error = process.communicate(timeout=2 * PATIENCE)
    assert (process.returncode, out.strip(), error.strip()) == (0, "ok", "")


RUN = """
import rmq
consumer = rmq.PushConsumer("run", consume_from_where="CONSUME_FROM_FIRST_OFFSET")

@consumer.on("Run")
def handle(message):
    print(message.body.decode(), flush=True)

consumer.run()
print("stopped", flush=True)
"""


def test_run_ends_cleanly_on_sigterm(cluster: BlockingCluster) -> None:
    with (
        Producer("pg", namesrv=cluster.namesrv_addr, **PATIENT) as producer,
        AdminClient(namesrv=cluster.namesrv_addr, mq_client_api_timeout=PATIENCE) as admin,
    ):
        sent = producer.send(Message("Run", b"hello"))
        process = python(RUN, cluster)
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "hello"
        process.send_signal(signal.SIGTERM)
        out, error = process.communicate(timeout=2 * PATIENCE)
        assert (process.returncode, out.strip(), error.strip()) == (0, "stopped", "")
        stats = admin.consume_stats("run")
        one = stats.offset_table[sent.message_queue]
        assert one.consumer_offset == one.broker_offset == 1


EXIT = """
import asyncio, rmq, rmq.aio, sys
consumer = {api}.PushConsumer(sys.argv[1], consume_from_where="CONSUME_FROM_FIRST_OFFSET", orderly={orderly})

@consumer.on("Exit")
async def handle(message):
    raise {error}

{run}
"""


@pytest.mark.parametrize(
    ("api", "kind", "run", "orderly"),
    [
        ("rmq", "def", "consumer.run()", False),
        ("rmq", "async def", "consumer.run()", True),
        ("rmq.aio", "def", "asyncio.run(consumer.run())", True),
        ("rmq.aio", "async def", "asyncio.run(consumer.run())", False),
    ],
)
@pytest.mark.parametrize(("error", "code"), [("SystemExit(3)", 3), ("KeyboardInterrupt", -signal.SIGINT)])
def test_a_listener_that_exits_ends_run(
    api: str, kind: str, run: str, orderly: bool, error: str, code: int, cluster: BlockingCluster
) -> None:
    script = EXIT.format(api=api, kind=kind, run=run, error=error, orderly=orderly)
    with Producer("pg", namesrv=cluster.namesrv_addr, **PATIENT) as producer:
        producer.send(Message("Exit", b"hello"))
    process = python(script, cluster, f"exit-{api[-3:]}-{len(kind)}-{code}")
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == code, told
    assert "a listener raised, handle, for MessageExt('Exit', id=" in told


def test_what_is_no_address_of_a_broker_is_refused(cluster: BlockingCluster) -> None:
    with AdminClient(namesrv=cluster.namesrv_addr) as admin:
        with pytest.raises(ClientError, match="broker_addr is None: give a text"):
            admin.broker_config(None)  # type: ignore[arg-type]
        with pytest.raises(RMQError, match="'broker-a' is no address: host:port"):
            admin.broker_config("broker-a")


FORGETFUL = """
import rmq, threading
consumer = rmq.PushConsumer("forgetful", consume_from_where="CONSUME_FROM_FIRST_OFFSET")
got = threading.Event()

@consumer.on("Forget")
def handle(message):
    got.set()

consumer.start()
assert got.wait(100)
"""


def test_a_process_that_forgets_the_shutdown_ends_and_keeps_its_offsets(cluster: BlockingCluster) -> None:
    """Field case B132."""
    with (
        Producer("pg", namesrv=cluster.namesrv_addr, **PATIENT) as producer,
        AdminClient(namesrv=cluster.namesrv_addr, mq_client_api_timeout=PATIENCE) as admin,
    ):
        sent = producer.send(Message("Forget", b"x"))
        process = python(FORGETFUL, cluster)
        out, error = process.communicate(timeout=2 * PATIENCE)
        assert (process.returncode, out.strip(), error.strip()) == (0, "", "")
        assert admin.consume_stats("forgetful").offset_table[sent.message_queue].consumer_offset == 1


STUCK = """
import rmq, threading, time
consumer = rmq.PushConsumer(
    "stuck", consume_from_where="CONSUME_FROM_FIRST_OFFSET", persist_consumer_offset_interval=60
)
other, stuck = threading.Event(), threading.Event()

@consumer.on("Stuck")
async def handle(message):
    if message.body == b"stuck":
        stuck.set()
        time.sleep(1000)
    other.set()

consumer.start()
assert other.wait(100) and stuck.wait(100)
"""


def test_a_listener_that_does_not_return_costs_a_forgotten_shutdown_its_own_message_alone(
    cluster: BlockingCluster,
) -> None:
    with (
        Producer("pg", namesrv=cluster.namesrv_addr, **PATIENT) as producer,
        AdminClient(namesrv=cluster.namesrv_addr, mq_client_api_timeout=PATIENCE) as admin,
    ):
        queues = [MessageQueue("Stuck", "broker-0", number) for number in range(2)]
        admin.create_and_update_topic(cluster.broker_addr, "Stuck", read_queue_nums=8, write_queue_nums=8)
        producer.send(Message("Stuck", b"other"), queue=queues[0])
        producer.send(Message("Stuck", b"stuck"), queue=queues[1])
        end = producer.max_offset(queues[0])
        process = python(STUCK, cluster)
        _, error = process.communicate(timeout=2 * PATIENCE)
        assert process.returncode == 0, error
        table = admin.consume_stats("stuck").offset_table
        assert table[queues[0]].consumer_offset == end
        assert table[queues[1]].consumer_offset < producer.max_offset(queues[1])


CYCLES = """
import os, threading
from rmq import Message, Producer, PushConsumer

def once():
    got = threading.Event()
    with Producer("cycle", send_msg_timeout=100) as producer:
        producer.send(Message("Cycle", b"x"))
        consumer = PushConsumer("cycle", consume_from_where="CONSUME_FROM_FIRST_OFFSET")
        consumer.on("Cycle")(lambda message: got.set())
        with consumer:
            assert got.wait(100)

def held():
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0

once()
descriptors = held()
for _ in range(15):
    once()
for thread in threading.enumerate():
    if thread.name.startswith("rmq-cycle"):
        thread.join(100)
print(held() - descriptors, sorted(thread.name for thread in threading.enumerate()))
"""


def test_starting_and_stopping_leaves_nothing_behind(cluster: BlockingCluster) -> None:
    """Field case B132, B133."""
    out, error = python(CYCLES, cluster).communicate(timeout=2 * PATIENCE)
    assert (out.strip(), error.strip()) == ("0 ['MainThread', 'rmq']", "")


def _listens(consumer: PushConsumer) -> PushConsumer:
    consumer.on("T")(print)
    return consumer


@pytest.mark.parametrize(
    "make",
    [
        lambda namesrv: Producer("other", namesrv=namesrv, topics=("T",)),
        lambda namesrv: PullConsumer("pull", namesrv=namesrv, register_topics=("T",)),
        lambda namesrv: _listens(PushConsumer("push", namesrv=namesrv)),
    ],
    ids=["producer", "pull", "push"],
)
def test_a_shutdown_cuts_a_start_short_that_waits_on_another_thread(make: Callable[[str], Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(1) as thread:
        client = make(f"127.0.0.1:{silent.getsockname()[1]}")
        starting = thread.submit(client.start)
        silent.settimeout(PATIENCE)
        asked, _ = silent.accept()
        with asked:
            client.shutdown()
            with pytest.raises(ClientError, match=r"^the \w+ \w+ was shut down while it started$"):
                starting.result(PATIENCE)
        assert "not started" in repr(client)
