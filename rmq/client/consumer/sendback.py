"""Failed messages on their way to the retry topic (protocol.md 2.3, 7.5)."""

from __future__ import annotations

from rmq.client.instance import ClientInstance
from rmq.client.message import MessageExt, MessageQueue
from rmq.protocol import properties as property_string
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.errors import ClientError, ResponseError, RMQError
from rmq.protocol.headers.send import ConsumerSendMsgBackRequest, SendMessageV2Request
from rmq.protocol.names import dlq_topic, retry_topic
from rmq.protocol.properties import POP_CK
from rmq.runtime.aside import logger

__all__ = ["bury", "give_back", "original_topic", "send_message_back", "send_to_retry_topic"]

log = logger(__name__)

_STORED = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
)


def original_topic(message: MessageExt) -> str:
    """The topic a message was first sent to."""
    return message.properties.get("RETRY_TOPIC") or message.topic


async def send_message_back(
    instance: ClientInstance,
    group: str,
    message: MessageExt,
    delay_level: int,
    max_reconsume_times: int,
    broker_name: str | None = None,
    timeout: float = 5.0,
) -> None:
    """Have the broker that holds a message deliver it to the group again, later.

    :param delay_level: -1 dead letters, 0 the broker decides, over 0 that level.
    :param max_reconsume_times: then it goes to the dead letters.
    :raises RMQError: it did not work.
    """
    name = broker_name or message.broker_name
    topic = instance.namespace.wrap(message.topic)
    try:
        address = await instance.find_master(MessageQueue(topic, name, message.queue_id))
    except RMQError:
        address = f"{_bracket(message.store_host[0])}:{message.store_host[1]}"
    header = ConsumerSendMsgBackRequest(
        offset=message.commit_log_offset,
        group=group,
        delay_level=delay_level,
        origin_msg_id=message.msg_id,
        origin_topic=topic,
        unit_mode=instance.settings.unit_mode,
        max_reconsume_times=max_reconsume_times,
        bname=name,
    )
    await instance.call(address, RequestCode.CONSUMER_SEND_MSG_BACK, header, timeout=timeout)


async def send_to_retry_topic(
    instance: ClientInstance, group: str, message: MessageExt, delay_level: int, *, dead: bool, timeout: float = 3.0
) -> None:
    """Send a copy of a failed message to the group's retry topic: what is left when 36 does not work.

    :param delay_level: over 0 that level; else the one that its tries so far give.
    :param dead: it has had its tries: the broker makes it a dead letter.
    :raises RMQError: no broker of the retry topic stored it.
    """
    topic = retry_topic(group)
    properties = {name: text for name, text in message.properties.items() if name not in ("MIN_OFFSET", "MAX_OFFSET")}
    for name in ("TRAN_MSG", "CONSUME_START_TIME", "WAIT", "CLUSTER", "DELAY", POP_CK):
        properties.pop(name, None)
    properties["RETRY_TOPIC"] = instance.namespace.wrap(original_topic(message))
    properties.setdefault("ORIGIN_MESSAGE_ID", message.msg_id)
    times = message.reconsume_times + 1
    if not dead:  # on its way to the dead letters a delay level would only make it late (field case B048)
        properties["DELAY"] = str(delay_level if delay_level > 0 else 3 + message.reconsume_times)
    if topic not in instance.routes.publish:
        await instance.refresh_route(topic, timeout, ("TBW102", 1))
    info = instance.routes.publish.get(topic)
    if info is None or not info.queues:
        raise ClientError(f"the retry topic {topic} has no queue")
    error: RMQError | None = None
    for _ in range(3):
        queue = info.next_queue()
        header = SendMessageV2Request(
            producer_group="CLIENT_INNER_PRODUCER",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue.queue_id,
            sys_flag=0,
            born_timestamp=instance.world.clock.now_ms(),
            flag=message.flag,
            properties=property_string.encode(properties),
            reconsume_times=times,
            # Whether it comes again is settled here: with the try that failed counted in, brokers of 4.9 bury what has
            # reached the limit, those of 5.x what is over it.
            max_reconsume_times=0 if dead else times + 1,
            bname=queue.broker_name,
        )
        try:
            address = await instance.find_master(queue)
            await instance.call(
                address, RequestCode.SEND_MESSAGE_V2, header, message.body, timeout=timeout, accept=_STORED
            )
            return
        except RMQError as failed:
            error = failed
    assert error is not None
    raise error


async def give_back(
    instance: ClientInstance, group: str, message: MessageExt, delay_level: int, max_reconsume_times: int
) -> bool:
    """Send a failed message back by either way; whether one of them worked."""
    dead = delay_level < 0 or message.reconsume_times >= max_reconsume_times
    try:
        await send_message_back(instance, group, message, delay_level, max_reconsume_times)
        _note(group, message, dead)
        return True
    except RMQError as error:
        if isinstance(error, ResponseError) and error.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            log.warning("group %s: send-back of %r refused: %s", group, message, error)
        first = error
    try:
        await send_to_retry_topic(instance, group, message, delay_level, dead=dead)
        _note(group, message, dead)
        return True
    except RMQError as error:
        log.warning(
            "group %s: %r can be sent neither back (%s) nor to the retry topic (%s): kept and tried again here",
            group,
            message,
            first,
            error,
        )
        return False


async def bury(instance: ClientInstance, group: str, message: MessageExt) -> bool:
    """Make a message that an orderly listener has failed at too often a dead letter; whether that worked."""
    try:
        await send_to_retry_topic(instance, group, message, 0, dead=True)
    except RMQError as error:
        log.warning("group %s: %r cannot be sent to the dead letters: %s", group, message, error)
        return False
    _note(group, message, dead=True)
    return True


def _note(group: str, message: MessageExt, dead: bool) -> None:
    if dead:
        log.warning("group %s: %r goes to the dead letters, %s", group, message, dlq_topic(group))


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host else host
