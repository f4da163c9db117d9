"""queryCq: entries of a queue, and what the filter of a group makes of them (mqadmin.md B.1)."""

from __future__ import annotations

from collections.abc import Iterator

import click

from rmq.cli.mqadmin.failures import NotFound
from rmq.cli.mqadmin.session import AdminClient, Output, admin_command
from rmq.cli.mqadmin.topics import topic as _topic
from rmq.client.admin.asking import address_of
from rmq.protocol import fastjson

__all__ = ["query_cq"]


@admin_command(
    "queryCq",
    _topic,
    click.option("-q", "--queue", "queue", required=True, type=click.IntRange(0), metavar="ID", help="The queue."),
    click.option("-i", "--index", "index", required=True, type=click.IntRange(0), metavar="N", help="The first entry."),
    click.option("-c", "--count", "count", type=click.IntRange(1, 10_000), default=10, metavar="N",
                 help="Entries."),
    click.option("-b", "--broker", "broker", metavar="ADDR", help="host:port; the first broker of the topic without."),
    click.option("-g", "--consumer", "group", metavar="NAME", help="Whether this group's filter lets each through."),
)  # fmt: skip
async def query_cq(
    admin: AdminClient,
    out: Output,
    topic: str,
    queue: int,
    index: int,
    count: int,
    broker: str | None,
    group: str | None,
) -> int:
    """Entries of a queue."""
    if broker is None:
        brokers = [one for one in (await admin.topic_route(topic)).broker_datas if one.broker_addrs]
        if not brokers:
            raise NotFound(f"no broker serves the topic {topic}")
        broker = address_of(brokers[0].broker_addrs)
    found = await admin.query_consume_queue(broker, topic, queue, index, count, group)

    def classic() -> Iterator[str]:
        if found.subscription_data is not None:
            yield "Subscription data: "
            yield fastjson.pretty(found.subscription_data.to_object()).decode()
            yield "======================================"
        if found.filter_data:
            yield "Filter data: "
            yield found.filter_data
            yield "======================================"
        yield "Queue data: "
        yield f"max: {found.max_queue_index}, min: {found.min_queue_index}"
        yield "======================================"
        for number, one in enumerate(found.queue_data or ()):
            yield f"idx: {number + index}"
            yield (
                f"ConsumeQueueData{{physicOffset={one.physic_offset}, physicSize={one.physic_size}, "
                f"tagsCode={one.tags_code}, extendDataJson='{one.extend_data_json or 'null'}', "
                f"bitMap='{one.bit_map or 'null'}', eval={str(one.eval).lower()}, msg='{one.msg or 'null'}'}}"
            )
            yield "======================================"

    return out.value(found.to_object(), classic, key="queueData" if found.queue_data else None)
