"""Where a message goes, and where it goes when that fails: all attempts of one send. Pure: times and answers come in.

Whoever sends drives this::

    step = attempts.first(now)
    while not isinstance(step, Done):
        outcome = ...                       # do what the step says
        step = attempts.on(outcome, now)
    return step.result()

The queue is chosen when the message leaves, by what is known of routes and brokers then.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from rmq.client.checks import check_queue
from rmq.client.cluster.route import PublishInfo
from rmq.client.cluster.routes import Routes, no_such_topic
from rmq.client.fault import LatencyFault
from rmq.client.hooks import Hooks, SendHookContext
from rmq.client.message import MessageQueue
from rmq.client.namespace import Namespace
from rmq.client.results import SendResult, SendStatus
from rmq.client.selectors import MessageQueueSelector
from rmq.client.sending import PreparedSend, send_result
from rmq.client.settings import ProducerSettings
from rmq.client.shown import shown
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import (
    AccessDenied,
    ClientError,
    ConnectFailed,
    RequestTimeout,
    ResponseError,
    RMQError,
    TransportError,
)
from rmq.protocol.sysflags import TRANSACTION_MASK, TRANSACTION_PREPARED

__all__ = ["AskRoute", "AskWhy", "Attempts", "Call", "Done", "Pause", "Send", "Step", "send_address"]

#: Seconds between two looks for a topic that may be there in a moment.
_LOOK_AGAIN = 0.5
#: A new topic reaches the name servers within this time.
_REGISTERED_SOON = 0.1
#: A broker that hands its lead over is named as the master for so long yet.
_HANDED_OVER = 0.1
#: Seconds a name server has to answer while a message waits for a better route than the one there is.
_ROUTE_SECONDS = 3.0
#: Seconds that hooks have at least to hear how an attempt ended.
_TOLD_SECONDS = 1.0


class Send(NamedTuple):
    """Write the message to this queue; its answer, or the error there was instead, comes next."""

    queue: MessageQueue
    address: str
    #: How long the answer is waited for.
    seconds: float


class AskRoute(NamedTuple):
    """Ask for the topic's route; None comes next, or the error that kept it from being known."""

    seconds: float
    #: (topic whose route serves when there is none, most queues).
    template: tuple[str, int] | None = None


class AskWhy(NamedTuple):
    """Ask what is the matter with a topic that has no queue to send to; an error that says it comes next."""

    seconds: float


class Pause(NamedTuple):
    """Wait; None comes next."""

    seconds: float


class Call(NamedTuple):
    """Call a function of the application's, which may take its time; what it gives comes next, or an error."""

    function: Callable[[], object]
    #: How long it is waited for.
    seconds: float
    #: What it is, for the error when it does not return.
    what: str
    #: It was given with the send, by whoever waits for it: where that is a coroutine, it may be called in it.
    own: bool = False
    #: Whether a broker has said something before.
    answered: bool = False

    def in_place(self) -> Outcome:
        """Call it here."""
        try:
            return self.function()  # type: ignore[return-value]  # looked at by the step after it
        except Exception as error:
            return error


class Done(NamedTuple):
    """The end: a result, or why there is none."""

    outcome: SendResult | Exception

    @property
    def answered(self) -> bool:
        """Whether a broker said something, be it that it refuses."""
        return isinstance(self.outcome, (SendResult, ResponseError))

    def result(self) -> SendResult:
        """The result. :raises Exception: there is none."""
        outcome = self.outcome
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


Step = Send | AskRoute | AskWhy | Pause | Call | Done
Outcome = Command | SendHookContext | MessageQueue | Exception | None


class Attempts:
    """All attempts of one send: :meth:`first` on any thread, with every :class:`Call` before the first other step;
    :meth:`on` after that where the faults are noted.

    :param routes: what is known, read anew at every step. :param faults: brokers to avoid, which learns from answers.
    :param timeout: seconds for all attempts, from :meth:`first` on.
    :param queue: the only one to send to. :param selector: chooses it; either way there is one attempt.
    :param retries: attempts after the first one; ``retry_times_when_send_failed`` by default.
    :param hooks: told of every attempt.
    """

    __slots__ = (
        "_arg",
        "_by_template",
        "_deadline",
        "_error",
        "_faults",
        "_hooked",
        "_hooks",
        "_left_at",
        "_others",
        "_outcome",
        "_queue",
        "_routes",
        "_selector",
        "_sent",
        "_settings",
        "_stored",
        "_then",
        "_timeout",
        "_tried",
        "_tries",
        "send",
    )

    _deadline: float
    _sent: Send
    #: How the attempt ended that hooks are being told of.
    _outcome: SendResult | Exception
    #: What the outcome of the step that is being made means.
    _then: Callable[[Attempts, Outcome, float], Step]

    def __init__(
        self,
        send: PreparedSend,
        routes: Routes,
        faults: LatencyFault,
        settings: ProducerSettings,
        timeout: float,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        arg: object = None,
        retries: int | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        self.send = send
        self._routes = routes
        self._faults = faults
        self._settings = settings
        self._timeout = timeout
        self._queue = queue
        self._selector = selector
        self._arg = arg
        #: 0: the queue is given or selected, and not left for another one.
        self._tries = 0
        if queue is None and selector is None:
            self._tries = 1 + (settings.retry_times_when_send_failed if retries is None else retries)
        #: The brokers of the attempts so far.
        self._tried: tuple[str, ...] = ()
        self._error: RMQError | None = None
        #: Stored, if not as well as was wished: what holds when no other broker does better.
        self._stored: SendResult | None = None
        self._others = False
        self._hooks = hooks
        #: Of the attempt under way.
        self._hooked: SendHookContext | None = None

    def first(self, now: float) -> Step:
        """What to do first; the time for all attempts begins ``now``, in seconds of the monotonic clock."""
        self._deadline = now + self._timeout
        if self.send.topic in self._routes.doubted:
            self._routes.doubted.discard(self.send.topic)
            self._then = Attempts._set_out
            return AskRoute(min(self._timeout / 2, _ROUTE_SECONDS))
        return self._set_out(None, now)

    def _set_out(self, _: Outcome, now: float) -> Step:
        if self._queue is not None:
            try:
                check_queue(self._queue, self.send.topic)
            except ClientError as error:
                return self._end(error)
            return self._leave_for(self._queue, now)
        return self._leave(now)

    def begin(self, now: float) -> None:
        """The time for all attempts begins now, and not with :meth:`first`, after which nothing was done yet."""
        self._deadline = now + self._timeout

    def stood(self, seconds: float) -> None:
        """The loop stood still for so long while a step was made: that was not this send's time."""
        self._deadline += seconds

    def on(self, outcome: Outcome, now: float) -> Step:
        """What to do after the step before.

        :param outcome: what that step says that comes next.
        """
        step = self._then(self, outcome, now)
        if self._stored is not None and isinstance(step, Done) and isinstance(step.outcome, Exception):
            return Done(self._stored)
        return step

    def rest(self, now: float) -> float:
        """Seconds left for all that is to come."""
        return self._deadline - now

    # -- one attempt --------------------------------------------------------------------------------------------------

    def _leave(self, now: float) -> Step:
        """Choose a queue for the next attempt, once one is known."""
        info = self._routes.publish.get(self.send.topic)
        if info is None or not info.queues:
            return self._look_up(now)
        info.used = True
        if self._selector is not None:
            return self._select(self._selector, info, now)
        if self._deadline <= now:
            return self._give_up()
        tried = self._tried
        queue = info.next_queue(tried[-1] if tried else None, self._faults.avoided)
        self._others = len(info.brokers) > 1
        self._tried = (*tried, queue.broker_name)
        return self._leave_for(queue, now)

    def _select(self, selector: MessageQueueSelector, info: PublishInfo, now: float) -> Step:
        self._then = Attempts._selected
        choose = partial(selector, tuple(info.queues), self.send.message, self._arg)  # type: ignore[arg-type]
        return Call(choose, self._patience(now), "the selector", own=True)

    def _selected(self, queue: Outcome, now: float) -> Step:
        if isinstance(queue, Exception):
            return self._end(queue)
        if not isinstance(queue, MessageQueue):
            return self._end(
                ClientError(f"the selector returned {shown(queue)}: it must return one of the queues it was given")
            )
        return self._leave_for(queue, now)

    def _patience(self, now: float) -> float:
        """How long a function of the application's is waited for: the rest of the time is for what comes after it."""
        return max(0.001, (self._deadline - now) / 2)

    def _leave_for(self, queue: MessageQueue, now: float) -> Step:
        address = self._routes.master_addr(queue.broker_name)
        self._queue = queue
        if address is None:
            self._then = Attempts._master_asked
            return AskRoute(min(max(0.001, self._deadline - now), _ROUTE_SECONDS))
        return self._send_to(queue, address, now)

    def _master_asked(self, error: Outcome, now: float) -> Step:
        queue = self._queue
        assert queue is not None
        if isinstance(error, Exception):
            return self._failed(error, now)
        address = self._routes.master_addr(queue.broker_name)
        if address is None:
            if queue.topic not in self._routes.publish:
                return self._end(no_such_topic(queue.topic))
            return self._failed(
                ConnectFailed(f"the broker {queue.broker_name} of {queue.topic} has no master now").about(queue=queue),
                now,
            )
        return self._send_to(queue, address, now)

    def _send_to(self, queue: MessageQueue, address: str, now: float) -> Step:
        rest = self._deadline - now
        if rest <= 0:
            return self._failed(RequestTimeout(f"no time was left to send to {queue}").about(queue=queue), now)
        if self._others:
            # Another broker can only be tried when the first one does not use up the whole time (field case B082);
            # where there is no other one, it gets the time there is.
            rest /= self._tries - len(self._tried) + 1
        if (most := self._settings.send_msg_max_timeout_per_request) is not None:
            rest = min(rest, most)
        self._sent = sent = Send(queue, send_address(address, self._settings), rest)
        if self._hooks is None:
            return self._leaves(sent, now)
        named = self.send.batch or (self.send.message,)
        shown = Namespace(self._settings.namespace).queue(queue)
        half = self.send.sys_flag & TRANSACTION_MASK == TRANSACTION_PREPARED
        begin = partial(self._hooks.begin_send, named, shown, address, half=half)
        if self._hooks.quick:
            return self._begun(begin(), now)
        self._then = Attempts._begun
        return Call(begin, self._patience(now), f"a hook of {self._hooks.who}")

    def _begun(self, context: Outcome, now: float) -> Step:
        if isinstance(context, Exception):
            return self._end(context)
        assert isinstance(context, SendHookContext)
        self._hooked = context
        rest = self._deadline - now
        if rest < self._sent.seconds:  # they have taken their time
            self._sent = self._sent._replace(seconds=max(0.001, rest))
        return self._leaves(self._sent, now)

    def _leaves(self, sent: Send, now: float) -> Send:
        self._left_at = now
        self._then = Attempts._answered
        return sent

    def hurried(self, sent: Send, now: float) -> Send:
        """The same attempt, which has waited since that step was made."""
        self._left_at = now
        return sent._replace(seconds=max(0.001, min(sent.seconds, self._deadline - now)))

    def left(self, error: Exception | None, now: float) -> Call | None:
        """A oneway send has left, or has not: nothing comes back of it.

        :returns: what is to be called yet, the last of it all.
        """
        context, self._hooked = self._hooked, None
        return None if context is None else self._told(context, error, now)

    def _told(self, context: SendHookContext, ended: SendResult | Exception | None, now: float) -> Call | None:
        """Hooks hear how the attempt has ended: at once, or by the step that this gives."""
        assert self._hooks is not None
        end = partial(self._hooks.end_send, context, ended)
        if self._hooks.quick:
            end()
            return None
        answered = isinstance(ended, (SendResult, ResponseError))
        return Call(end, max(_TOLD_SECONDS, self._patience(now)), f"a hook of {self._hooks.who}", answered=answered)

    def _answered(self, outcome: Outcome, now: float) -> Step:
        queue, address, _ = self._sent
        faults = self._faults
        ended: SendResult | Exception
        if isinstance(outcome, Command):
            if faults.enabled or faults.avoided:
                faults.on_answer(queue.broker_name, now - self._left_at, now)
                faults.expire(now)
            try:
                ended = send_result(outcome, self.send, queue, address)
            except Exception as refused:
                ended = refused
            else:
                if self._settings.namespace:
                    ended.message_queue = Namespace(self._settings.namespace).queue(ended.message_queue)
        else:
            assert isinstance(outcome, Exception)
            ended = outcome
            if isinstance(outcome, TransportError):
                faults.on_failure(queue.broker_name, now)
        context, self._hooked = self._hooked, None
        if context is not None and (telling := self._told(context, ended, now)) is not None:
            self._outcome = ended
            self._then = Attempts._hooks_told
            return telling
        return self._ended(ended, now)

    def _hooks_told(self, _: Outcome, now: float) -> Step:
        return self._ended(self._outcome, now)

    def _ended(self, ended: SendResult | Exception, now: float) -> Step:
        if isinstance(ended, Exception):
            return self._failed(ended, now, self._sent.address)
        if (
            ended.send_status is not SendStatus.SEND_OK
            and self._settings.retry_another_broker_when_not_store_ok
            and self._others
            and len(self._tried) < self._tries
        ):
            self._stored = ended
            return self._leave(now)
        return Done(ended)

    # -- after a failure ----------------------------------------------------------------------------------------------

    def _end(self, error: Exception) -> Done:
        """The end of this send, which is said of its topic."""
        return Done(error.about(topic=self.send.topic) if isinstance(error, RMQError) else error)

    def _failed(self, error: Exception, now: float, address: str | None = None) -> Step:
        """Go on when another attempt makes sense; ask for the route where the error says that it changed.

        :param address: of the broker that was asked.
        """
        if isinstance(error, RMQError) and address is not None:
            error.about(queue=self._queue, address=address)
        if not isinstance(error, RMQError):
            return self._end(error)
        self._error = error
        rest = self._deadline - now
        moved = address is not None and (error.refresh_route or (isinstance(error, TransportError) and error.retriable))
        if moved and address is not None:
            self._routes.suspect(address, now)
            if rest <= 0:
                self._routes.doubted.add(self.send.topic)
        if not self._tries:
            # It is not sent again, as with Java; the next one is to find whoever leads by now (docs/failover.md).
            self._then = Attempts._over
            return AskRoute(min(rest / 2, _ROUTE_SECONDS)) if moved and rest > 0 else self._end(error)
        if isinstance(error, ResponseError):
            if error.code not in self._settings.retry_response_codes or isinstance(error, AccessDenied):
                return self._give_up()
        elif not isinstance(error, TransportError) or not error.retriable:
            return self._give_up()
        # Served by the template's route: the topic may just have been created with other queues.
        self._by_template = self.send.topic not in self._routes.own
        if rest > 0 and (error.refresh_route or self._by_template or isinstance(error, TransportError)):
            self._then = Attempts._asked_again
            return AskRoute(min(rest / 2, _ROUTE_SECONDS))
        return self._again(None, now)

    def _over(self, _: Outcome, now: float) -> Step:
        assert self._error is not None
        return self._end(self._error)

    def _asked_again(self, error: Outcome, now: float) -> Step:
        """Where nobody says the route, the one there is has to do."""
        rest = self._deadline - now
        if rest > 0 and self._by_template and self.send.topic not in self._routes.own:
            # Its broker knows the topic before the name servers do.
            self._then = Attempts._again
            return Pause(min(rest / 4, _REGISTERED_SOON))
        if rest > 0 and self._may_hand_over():
            self._then = Attempts._again
            return Pause(min(rest / 4, _HANDED_OVER))
        return self._again(None, now)

    def _may_hand_over(self) -> bool:
        """Whether a broker takes no messages that is still named as the only master: all tries are over in no time."""
        refused = isinstance(self._error, ResponseError) and self._error.code == ResponseCode.SERVICE_NOT_AVAILABLE
        queue = self._queue
        if not refused or self._others or queue is None or len(self._tried) >= self._tries:
            return False
        address = self._routes.master_addr(queue.broker_name)
        return address is not None and send_address(address, self._settings) == self._sent.address

    def _again(self, _: Outcome, now: float) -> Step:
        return self._leave(now) if len(self._tried) < self._tries else self._give_up()

    def _give_up(self) -> Done:
        """The last error, saying how often and where it was tried."""
        error, tried = self._error, self._tried
        how = f"tried {len(tried)} time{'s' if len(tried) != 1 else ''}" + (f": {', '.join(tried)}" if tried else "")
        if error is None:
            return self._end(
                RequestTimeout(f"the message for {self.send.topic} was not sent in {self._timeout:g} s ({how})")
            )
        if isinstance(error, ResponseError):
            made: RMQError = ResponseError(error.code, f"{error.remark or 'no remark'} ({how})", error.address)
        else:
            made = type(error)(f"{error} ({how})")
        made.__cause__ = error.__cause__
        return self._end(made.about(queue=error.queue, address=error.address))

    # -- a topic without queues ---------------------------------------------------------------------------------------

    def _look_up(self, now: float) -> Step:
        rest = self._deadline - now
        if rest <= 0:
            return self._end(RequestTimeout(f"no time was left to look up the route of {self.send.topic}"))
        self._then = Attempts._looked_up
        return AskRoute(rest, (self._settings.create_topic_key, self._settings.default_topic_queue_nums))

    def _looked_up(self, error: Outcome, now: float) -> Step:
        if isinstance(error, Exception):
            return self._end(error)
        info = self._routes.publish.get(self.send.topic)
        if info is not None and info.queues:
            return self._leave(now)
        self._then = Attempts._told_why
        return AskWhy(max(0.001, self._deadline - now))

    def _told_why(self, error: Outcome, now: float) -> Step:
        assert isinstance(error, Exception)
        if not isinstance(error, RMQError) or not error.retriable or self._deadline - now <= _LOOK_AGAIN:
            return self._end(error)
        self._then = Attempts._looks_again
        return Pause(_LOOK_AGAIN)

    def _looks_again(self, _: Outcome, now: float) -> Step:
        return self._look_up(now)


def send_address(address: str, settings: ProducerSettings) -> str:
    """Where sends to a broker go: its VIP port when asked for."""
    if not settings.vip_channel:
        return address
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - 2}"
