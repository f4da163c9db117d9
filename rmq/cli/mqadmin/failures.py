"""How commands fail: an exit code for each kind of failure, and a line that says what to do.

====  ================================================================================================
0     done
1     refused: a server, or the command itself, does not do what was asked
2     the command line is wrong, or a file that it names cannot be used
3     what was asked for is not there: a topic, a group, a broker, a cluster, a message
4     done in part, or shown in part: what is missing is named
5     nobody answered: a name server or a broker cannot be reached, or says nothing in time
6     access denied: the account is missing or wrong, or may not do this
130   interrupted with Ctrl-C
====  ================================================================================================

Java's tool ends with 0 whatever happened, except for a wrong command line (1): ``--classic-exit``, or
MQADMIN_CLASSIC_EXIT=true for every command.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import (
    AccessDenied,
    ClientError,
    ConfigError,
    NotFound,
    ResponseError,
    RMQError,
    TransportError,
)

__all__ = [
    "CODES",
    "DENIED",
    "NOBODY",
    "NOT_FOUND",
    "NOT_THERE",
    "PARTIAL",
    "REFUSED",
    "NotFound",
    "Partial",
    "classic",
    "failure",
    "undone",
]

REFUSED = 1
_USAGE = 2
NOT_FOUND = 3
PARTIAL = 4
NOBODY = 5
DENIED = 6
#: The table above, for ``mqadmin help exit-codes``.
CODES = str(__doc__).split("\n\n", 1)[1].rstrip().replace("``", "")

NOT_THERE = frozenset({
    ResponseCode.TOPIC_NOT_EXIST, ResponseCode.QUERY_NOT_FOUND, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.NO_MESSAGE, ResponseCode.CONTROLLER_BROKER_ID_INVALID,
    ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST,
})  # fmt: skip
#: What to do about an answer, where its text does not say it.
_REMEDIES = {
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "this server does not know the request: is it the right kind of server, "
    "and of a release that has it? mqadmin clusterList shows them",
    ResponseCode.SYSTEM_BUSY: "the broker is busy: try again, and see mqadmin brokerStatus",
}


class Partial(ClientError):
    """Some of it was done, and some was not: the text names both."""


def undone(what: str, done: Iterable[str], failed: Mapping[str, RMQError]) -> RMQError:
    """The failure of a change at several servers: who has it, who has not, and why.

    :param failed: what servers said; one at least.
    """
    has = ", ".join(done)
    if not has:
        return next(iter(failed.values()))
    reasons: dict[str, list[str]] = {}
    for name, error in failed.items():
        reasons.setdefault(str(error), []).append(name)
    not_at = "; ".join(f"{', '.join(names)}: {why}" for why, names in reasons.items())
    return Partial(f"{what}: done at {has}; not at {not_at}")


def failure(error: RMQError) -> tuple[str, int]:
    """The line for standard error, and the exit code."""
    text = str(error)
    code = REFUSED
    remedy = None
    if isinstance(error, AccessDenied):
        code = DENIED
        remedy = (
            "give an account that may: ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY, or $ROCKETMQ_HOME/conf/tools.yml"
        )
    elif isinstance(error, TransportError):
        code = NOBODY
        remedy = "is it running, and is this its address? mqadmin clusterList shows the brokers that are registered"
        if "no name server answered" in text:
            remedy = "is it running, and is this its address? -n or NAMESRV_ADDR says which is asked"
    elif isinstance(error, ConfigError):
        code = _USAGE
    elif isinstance(error, Partial):
        code = PARTIAL
    elif isinstance(error, NotFound):
        code = NOT_FOUND
    elif isinstance(error, ResponseError):
        code = NOT_FOUND if error.code in NOT_THERE else REFUSED
        remedy = _REMEDIES.get(ResponseCode(error.code)) if error.code in ResponseCode.__members__.values() else None
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            remedy = "mqadmin topicList shows what there is"
            if error.topic is not None and not text.count(error.topic):
                remedy = f"mqadmin topicRoute -t {shlex.quote(error.topic)} shows where it is"
    return (f"{text.rstrip('. ')}; {remedy}" if remedy else text), code


def classic(code: int) -> int:
    """The exit code of Java's tool."""
    return 1 if code == _USAGE else 0
