"""Creating topics (client.md 2; the admin client uses it, too)."""

from __future__ import annotations

from rmq.client.checks import check_topic
from rmq.client.instance import ClientInstance
from rmq.protocol.codes import RequestCode
from rmq.protocol.errors import ClientError
from rmq.protocol.headers.topic import CreateTopicRequest

__all__ = ["create_topic", "create_topic_on"]


async def create_topic_on(
    instance: ClientInstance,
    address: str,
    topic: str,
    *,
    read_queue_nums: int,
    write_queue_nums: int,
    perm: int = 6,
    topic_sys_flag: int = 0,
    order: bool = False,
    default_topic: str = "TBW102",
    timeout: float | None = None,
) -> None:
    """Create or change a topic on one broker."""
    check_topic(topic)
    header = CreateTopicRequest(
        topic=topic,
        default_topic=default_topic,
        read_queue_nums=read_queue_nums,
        write_queue_nums=write_queue_nums,
        perm=perm,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=topic_sys_flag,
        order=order,
    )
    await instance.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header, timeout=timeout)


async def create_topic(
    instance: ClientInstance, key: str, new_topic: str, queue_num: int, topic_sys_flag: int = 0
) -> None:
    """Create a topic on every master of the route of ``key``."""
    check_topic(new_topic)
    if queue_num < 1:
        raise ClientError(f"queue_num is {queue_num}: a topic has at least one queue")
    route = await instance.name_servers.route(key, instance.settings.mq_client_api_timeout)
    masters = [broker.broker_addrs[0] for broker in route.broker_datas if 0 in broker.broker_addrs] if route else []
    if not masters:
        raise ClientError(f"no master serves {key}: name a topic that every broker has (TBW102), or the cluster")
    for address in masters:
        await create_topic_on(
            instance,
            address,
            new_topic,
            read_queue_nums=queue_num,
            write_queue_nums=queue_num,
            topic_sys_flag=topic_sys_flag,
            default_topic=key,
        )
