"""One pull: request, answer, tag filter (protocol.md 2.4, 7.4). Push and pull consumers share it."""

from __future__ import annotations

from collections.abc import Sequence

from rmq.client.decode import decode_pulled
from rmq.client.hooks import Hook, Hooks
from rmq.client.instance import ClientInstance
from rmq.client.message import MessageQueue
from rmq.client.results import PullResult, PullStatus
from rmq.protocol.bodies.heartbeat import SubscriptionData
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.errors import ResponseError
from rmq.protocol.headers.pull import PullMessageRequest, PullMessageResponse
from rmq.protocol.sysflags import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from rmq.runtime.aside import logger

__all__ = ["Puller"]

log = logger(__name__)

_STATUS = {
    int(ResponseCode.SUCCESS): PullStatus.FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PullStatus.NO_NEW_MSG,
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): PullStatus.NO_MATCHED_MSG,
    int(ResponseCode.PULL_OFFSET_MOVED): PullStatus.OFFSET_ILLEGAL,
}


class Puller:
    """Pulls for one group; remembers which broker each queue is best read from.

    :param hooks: those that filter see what comes.
    """

    def __init__(self, instance: ClientInstance, group: str, hooks: Sequence[Hook] = ()) -> None:
        self._instance = instance
        self._group = group
        self._hooks = Hooks(hooks, group)
        self._suggested: dict[MessageQueue, int] = {}
        #: Of the queues whose answer is waited for: the broker's id and address.
        self._asked: dict[MessageQueue, tuple[int, str]] = {}

    async def pull(
        self,
        queue: MessageQueue,
        subscription: SubscriptionData,
        offset: int,
        *,
        max_nums: int,
        timeout: float,
        suspend: float = 0.0,
        commit_offset: int = 0,
        post_subscription: bool = False,
        max_bytes: int | None = None,
    ) -> PullResult:
        """Ask for messages from ``offset`` on.

        :param timeout: seconds, of which the question where the queue is now may take half.
        :param suspend: seconds the broker may hold the request when there is nothing; 0 = not at all.
        :param commit_offset: stored for the group by the way when over 0 (masters only).
        :param post_subscription: send the expression along instead of relying on the heartbeat.
        :param max_bytes: about so many at most; brokers of 5.x look at it.
        A record that cannot be read, or is not what was asked for, costs itself alone: the result ends before it, it is
        asked for alone then, and passed over when it comes no better.

        :raises ResponseError: an answer that is none of the four outcomes. :raises TransportError: no answer.
        """
        result, why = await self._ask(
            queue, subscription, offset, max_nums, timeout, suspend, commit_offset, post_subscription, max_bytes
        )
        if why is not None and not result.messages and max_nums > 1:
            result, why = await self._ask(queue, subscription, offset, 1, timeout, 0.0, 0, post_subscription)
        if why is not None:
            if result.messages:
                result.next_begin_offset = result.messages[-1].queue_offset + 1
            else:
                result.status = PullStatus.NO_MATCHED_MSG
                result.next_begin_offset = max(result.next_begin_offset, offset + 1)
                log.error(
                    "%s: the message at offset %d cannot be read and is passed over (%s): "
                    "see the log of the broker, and mqadmin store verify",
                    queue, offset, why,
                )  # fmt: skip
        tags = subscription.tags_set
        if tags and not subscription.class_filter_mode:
            # The broker compares hashes; the exact tag is compared here (protocol.md 5.7).
            result.messages = [message for message in result.messages if message.tags in tags]
        if (names := self._instance.namespace).name:
            for message in result.messages:
                names.message(message)
        if self._hooks.filters:
            threads = self._instance.application
            result.messages = await self._hooks.filtered(threads, names.queue(queue), result.messages)
        return result

    async def _ask(
        self,
        queue: MessageQueue,
        subscription: SubscriptionData,
        offset: int,
        max_nums: int,
        timeout: float,
        suspend: float,
        commit_offset: int,
        post_subscription: bool,
        max_bytes: int | None = None,
    ) -> tuple[PullResult, str | None]:
        """One answer, its messages up to the first that is bad, and what is wrong with that."""
        clock = self._instance.world.clock
        began = clock.monotonic()
        limit = min(timeout / 2, self._instance.settings.mq_client_api_timeout)
        address, broker_id = await self._instance.find_reader(queue, self._suggested.get(queue, 0), timeout=limit)
        timeout -= clock.monotonic() - began
        flag = 0
        if commit_offset > 0 and broker_id == 0:
            flag |= PULL_COMMIT_OFFSET
        if suspend > 0:
            flag |= PULL_SUSPEND
        if post_subscription:
            flag |= PULL_SUBSCRIPTION
        header = PullMessageRequest(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=max_nums,
            sys_flag=flag,
            commit_offset=commit_offset if flag & PULL_COMMIT_OFFSET else 0,
            suspend_timeout_millis=int(suspend * 1000),
            subscription=subscription.sub_string if post_subscription else None,
            sub_version=subscription.sub_version,
            expression_type=subscription.expression_type,
            max_msg_bytes=max_bytes,
            bname=queue.broker_name,
        )
        self._asked[queue] = broker_id, address
        try:
            reply = await self._instance.call(
                address, RequestCode.PULL_MESSAGE, header, timeout=timeout, accept=tuple(_STATUS)
            )
        finally:
            self._asked.pop(queue, None)
        if reply.ext is None:
            raise ResponseError(reply.code, reply.remark, address)
        answer = reply.header(PullMessageResponse)
        self._suggested[queue] = answer.suggest_which_broker_id
        if reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY:
            what = None
            if reply.remark == "FOUND":
                # Java's slave keeps back what it has found; its next offset would pass over that.
                what = "a slave that does not serve reads: slaveReadEnable=false"
            elif answer.next_begin_offset <= offset:
                what = f"a slave that has no message {offset} of {queue}, not yet or no longer"
            if what is not None:
                # Perhaps one that was the master, and is a slave since an election that the route does not tell of yet.
                self._instance.suspect(address)
                raise ResponseError(reply.code, what, address)
        result = PullResult(_STATUS[reply.code], answer.next_begin_offset, answer.min_offset, answer.max_offset)
        if reply.code != ResponseCode.SUCCESS:
            return result, None
        result.messages, why = decode_pulled(reply.body, queue, offset, answer.next_begin_offset)
        if not reply.body:
            raise ResponseError(reply.code, "the answer holds no message", address)
        ends = {"MIN_OFFSET": str(answer.min_offset), "MAX_OFFSET": str(answer.max_offset)}
        for message in result.messages:
            message.properties.update(ends)
        return result, why

    def waits_in_vain(self, queue: MessageQueue) -> bool:
        """Whether the answer is waited for of one whose place another has by now: nothing may come of it."""
        broker_id, address = self._asked.get(queue, (0, None))
        now = self._instance.routes.broker_addrs.get(queue.broker_name, {}).get(broker_id)
        return None not in (address, now) and now != address

    def forget(self, queue: MessageQueue) -> None:
        """Ask the master again: the queue is no longer ours."""
        self._suggested.pop(queue, None)
