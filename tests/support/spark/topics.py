"""Topics for the Spark tests: filled quickly, and what is in them according to the brokers themselves."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import rmq
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.headers.send import SendMessageResponse, SendMessageV2Request
from rmq.protocol.headers.topic import DeleteTopicRequest
from rmq.protocol.headers.transaction import EndTransactionRequest
from rmq.protocol.ids import decode_offset_msg_id
from rmq.spark.cluster.brokers import Brokers
from rmq.spark.options.checked import Endpoint

#: (topic, broker, queue, offset)
Place = tuple[str, str, int, int]
PLACE = ("topic", "brokerName", "queueId", "offset")


def create(namesrv: str, addr: str, topic: str, queues: int = 2) -> None:
    with rmq.AdminClient(namesrv=namesrv) as admin:
        admin.create_and_update_topic(addr, topic, read_queue_nums=queues, write_queue_nums=queues)
    # The broker tells its name servers afterwards; who asks before goes by what was there, or sends to other queues.
    brokers = Brokers(Endpoint((namesrv,)))
    while brokers.route(topic, fresh=True) is None or len(brokers.queues(topic) or ()) != queues:
        time.sleep(0.02)
    brokers.close()


def delete(namesrv: str, addr: str, topic: str) -> None:
    brokers = Brokers(Endpoint((namesrv,)))
    for where, code in ((addr, RequestCode.DELETE_TOPIC_IN_BROKER), (namesrv, RequestCode.DELETE_TOPIC_IN_NAMESRV)):
        brokers.call(where, code, DeleteTopicRequest(topic=topic))
    brokers.close()


def fill(namesrv: str, topic: str, count: int, *, size: int = 20, **arguments: Any) -> None:
    """Send messages round the queues; their bodies begin with their number."""
    with rmq.Producer("fill", namesrv=namesrv, send_msg_timeout=60) as producer:
        at_once = max(1, min(100, (1 << 20) // (size + 300)))
        for start in range(0, count, at_once):
            numbers = range(start, min(start + at_once, count))
            bodies = [b"%d " % number + b"x" * size for number in numbers]
            producer.send(
                [rmq.Message(topic, body, keys=f"k{body.split()[0].decode()}", **arguments) for body in bodies]
            )


def stored(namesrv: str, *topics: str, least: int = 0) -> Counter[Place]:
    """Every message that consumers may see, as the queues' ends say.

    :param least: wait until there are so many: Java dispatches messages after it has acknowledged them.
    """
    with rmq.AdminClient(namesrv=namesrv) as admin:
        while True:
            found: Counter[Place] = Counter()
            for topic in topics:
                for queue in admin.fetch_subscribe_message_queues(topic):
                    offsets = range(admin.min_offset(queue), admin.max_offset(queue))
                    found.update((topic, queue.broker_name, queue.queue_id, offset) for offset in offsets)
            if found.total() >= least:
                return found
            time.sleep(0.02)


def places(rows: Iterable[Any]) -> Counter[Place]:
    return Counter(tuple(row[name] for name in PLACE) for row in rows)  # type: ignore[misc]


def open_batches(checkpoint: Path) -> set[str]:
    """Batches whose range is written and whose end is not."""
    return _names(checkpoint / "offsets") - _names(checkpoint / "commits")


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name.isdecimal()} if folder.is_dir() else set()


class Halves:
    """Half messages by hand: a producer that ends them when the test says."""

    def __init__(self, namesrv: str, addr: str) -> None:
        self._brokers = Brokers(Endpoint((namesrv,)))
        self._addr = addr

    def send(self, topic: str, body: bytes) -> EndTransactionRequest:
        text = f"UNIQ_KEY\x01{body.hex().upper():0>32}\x02TRAN_MSG\x01true\x02PGROUP\x01halves"
        header = SendMessageV2Request(
            producer_group="halves",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=2,
            queue_id=0,
            sys_flag=4,
            born_timestamp=self._brokers.dial.now_ms(),
            flag=0,
            properties=text,
        )
        reply = self._brokers.call(self._addr, RequestCode.SEND_MESSAGE_V2, header, body).header(SendMessageResponse)
        return EndTransactionRequest(
            producer_group="halves",
            tran_state_table_offset=reply.queue_offset,
            commit_log_offset=decode_offset_msg_id(reply.msg_id)[2],
            commit_or_rollback=0,
            msg_id=f"{body.hex().upper():0>32}",
            transaction_id=f"{body.hex().upper():0>32}",
        )

    def end(self, half: EndTransactionRequest, *, commit: bool) -> None:
        half.commit_or_rollback = 8 if commit else 12
        self._brokers.link(self._addr).post(Command.request(RequestCode.END_TRANSACTION, half).mark_oneway())

    def close(self) -> None:
        self._brokers.close()


def numbers(rows: Iterable[Any]) -> Iterator[int]:
    """The numbers that :func:`fill` put into bodies."""
    return (int(bytes(row["value"]).split()[0]) for row in rows)
