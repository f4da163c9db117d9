"""How long requests take, by code and outcome: the histogram ``rocketmq_rpc_latency`` of RocketMQ 5.

A request counts from the loop tick that read it (``conn.read_at``) until its answer is handed to the connection. Who
answers many at once counts them at once. Nothing of this exists while nobody asks for metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import ContextVar

from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.remoting.metrics import Histogram, Sample

__all__ = ["LATENCY_BOUNDS", "RPC_LATENCY", "CallLatency", "polled"]

#: The name that a 5.3.3 broker gives its samples.
RPC_LATENCY = "rocketmq_rpc_latency_milliseconds"
#: Milliseconds: the buckets of RocketMQ 5.
LATENCY_BOUNDS = (1, 3, 5, 7, 10, 100, 1000, 2000, 3000)

#: Set by a handler, in its own task, when its request had to wait for a message.
polled: ContextVar[bool] = ContextVar("polled", default=False)

#: A code with several names has the one of 5.x here.
_RESPONSE_NAMES = {int(code): name.lower() for name, code in ResponseCode.__members__.items()}
#: Any code that nobody knows: strangers must not be able to make series.
_UNKNOWN = -1
#: Request code, response code, result, whether it waited for a message.
_Key = tuple[int, int, str, bool]


class CallLatency:
    """One histogram for each request code, response code and result.

    :param monotonic: the clock that ``conn.read_at`` is told by, seconds.
    """

    __slots__ = ("_monotonic", "_of")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._of: dict[_Key, Histogram] = {}

    def add(
        self,
        request: int,
        response: int,
        began: float,
        times: int = 1,
        *,
        result: str = "success",
        long_polling: bool = False,
    ) -> None:
        """``times`` requests are answered.

        :param began: when they were read, monotonic seconds.
        :param result: ``success``, or ``oneway`` when nobody waits for the answer.
        """
        histogram = self._of.get((request, response, result, long_polling))
        if histogram is None:
            histogram = self._of_new((request, response, result, long_polling))
        histogram.add((self._monotonic() - began) * 1000, times)

    def _of_new(self, key: _Key) -> Histogram:
        if key[0] not in RequestCode.__members__.values():
            key = (_UNKNOWN, *key[1:])
        return self._of.setdefault(key, Histogram(LATENCY_BOUNDS))

    def samples(self) -> Iterator[Sample]:
        """Every histogram, with the labels of RocketMQ 5."""
        for (request, response, result, long_polling), histogram in list(self._of.items()):
            yield from histogram.samples(
                (
                    ("protocol_type", "remoting"),
                    ("is_long_polling", "true" if long_polling else "false"),
                    ("request_code", "unknown" if request == _UNKNOWN else RequestCode(request).name.lower()),
                    ("response_code", _RESPONSE_NAMES.get(response, str(response))),
                    ("result", result),
                )
            )
