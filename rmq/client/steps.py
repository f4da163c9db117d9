"""The steps of a send's attempts, made on its producer's loop: written, waited for, asked, called."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from rmq.client.attempts import AskRoute, AskWhy, Attempts, Call, Done, Outcome, Pause, Send, Step
from rmq.client.frames import SendFrames
from rmq.client.sending import next_opaque
from rmq.protocol.errors import ClientError, ConnectFailed, RequestTimeout, ResponseError, RMQError, TransportError
from rmq.remoting.calls import Done as Ended
from rmq.remoting.calls import Reply
from rmq.runtime.aside import logger
from rmq.runtime.patience import Standstill

if TYPE_CHECKING:
    from rmq.client.producer import Producer

__all__ = ["Steps"]

log = logger(__name__)


class Steps:
    """Makes the steps of one producer's sends. On its loop only.

    :param frames: encodes what is written.
    """

    def __init__(self, producer: Producer, frames: SendFrames) -> None:
        self._producer = producer
        self._frames = frames
        self._now = producer._world.clock.monotonic

    async def go_on(self, attempts: Attempts, step: Step) -> Done:
        """Make the attempts from this step on."""
        while not isinstance(step, Done):
            if isinstance(step, Send):
                step = attempts.on(await self.exchange(attempts, step), self._now())
            else:
                step = await self.until_it_leaves(attempts, step)
        return step

    def exchange(self, attempts: Attempts, sent: Send) -> Reply:
        """The answer to an attempt, or why there is none."""
        opaque, instance = next_opaque(), self._producer._joined
        data = self._frames.frame(attempts.send, sent.queue, opaque, instance.account)
        return instance.exchange(sent.address, data, opaque, sent.seconds)

    def refresh_route(self, topic: str, step: AskRoute) -> Coroutine[Any, Any, bool]:
        """Ask what a step asks. :raises RMQError: no name server says."""
        return self._producer._joined.refresh_route(topic, step.seconds, step.template)

    def write(self, attempts: Attempts, sent: Send, ended: Ended) -> None:
        """Make an attempt, and have ``ended`` told its answer, or why there is none."""
        opaque, instance = next_opaque(), self._producer._joined
        data = self._frames.frame(attempts.send, sent.queue, opaque, instance.account)
        instance.submit(sent.address, data, opaque, sent.seconds, ended)

    async def until_it_leaves(self, attempts: Attempts, step: Step) -> Send | Done:
        """Ask and wait for what the attempts need to know before the next one."""
        topic = attempts.send.topic
        while not isinstance(step, (Send, Done)):
            outcome: Outcome = None
            if isinstance(step, Call):
                outcome = await self.called(step)
            elif isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
            elif isinstance(step, AskWhy):
                outcome = await self.why_no_queue(topic, step.seconds)
            else:
                with Standstill() as still:
                    try:
                        await self.refresh_route(topic, step)
                    except RMQError as error:
                        log.debug("route of %s: %s", topic, error)
                        outcome = error
                attempts.stood(still.seconds)
            step = attempts.on(outcome, self._now())
        return step

    async def called(self, call: Call) -> Outcome:
        """What a function of the application's gives, or why it gave nothing."""
        if call.own and not self._producer._shares_loop:
            return call.in_place()
        try:
            return await self._producer._joined.application.call(call.in_place, call.seconds, call.what)
        except RequestTimeout as error:
            log.warning("group %s: %s", self._producer.group, error)
            return error
        except RMQError as error:
            return error

    async def why_no_queue(self, topic: str, seconds: float) -> RMQError:
        """What is the matter with a topic that has no queue to send to: it may be there in a moment, or never."""
        instance = self._producer._joined
        servers = ";".join(instance.name_servers.addresses)
        if away := instance.routes.masters_away(topic):
            return ConnectFailed(
                f"the topic {topic} takes no message now: {', '.join(away)} {'has' if len(away) == 1 else 'have'} no "
                "master, and slaves take none"
            )
        try:
            info = await instance.name_servers.cluster_info(seconds)
            knows_none = not info.broker_addr_table
        except TransportError as error:
            return error
        except ResponseError:  # it does not say
            knows_none = False
        if knows_none:
            return ConnectFailed(
                f"the topic {topic} is not known to {servers}, and no broker is: a name server that has just been "
                "started knows them within 30 s"
            )
        return ClientError(
            f"the topic {topic} has no queue to send to: no broker known to {servers} has it for writing, "
            "and none creates topics by itself (autoCreateTopicEnable): create it with mqadmin updateTopic"
        )

    async def behind_others(self, attempts: Attempts, step: Step) -> Step:
        """The first step, where it is a question: many that come together may take the loop longer than a name server,
        so their time begins behind that."""
        if isinstance(step, AskRoute):
            await asyncio.sleep(0)
            attempts.begin(self._now())
        return step
