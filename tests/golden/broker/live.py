"""Which differences between a running Java server's answer and ours are accepted, by row of docs/differences.md."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rmq.protocol.command import Command
from tests.golden.broker import differences as row
from tests.integration.namesrv.test_java_answers import ACCEPTED as NAMESRV_ACCEPTED

if TYPE_CHECKING:
    from tests.support.answers import Ask

__all__ = ["listed", "listed_of_namesrv"]

_CASES = {case: difference for difference in row.ACCEPTED for case in difference.cases}
_NAMESRV_CASES = {case: difference for difference in NAMESRV_ACCEPTED for case in difference.cases}

#: Our remark, and the row that has it.
_REMARKS = (
    (r"\w+Request: the field \w+ is missing", row.MISSING_FIELD),
    (r"the heartbeat has no clientID|srcGroup and destGroup must be given|\w+: no object but \w+", row.MISSING_FIELD),
    (r"the request names no \w+|the body is no DataVersion: .*|\w+: the body is empty", row.MISSING_FIELD),
    (r"the receipt handle is expired: the message is given out again", row.FIVE_HANDLE),
    (r"invisibleTime is -1: milliseconds are expected", row.NO_NUMBER),
    (r"group .* cannot pop from topic .*", row.FIVE_NAMES),
    (r"No group in this broker.*", row.FIVE_GROUP),
    (r" request type (353|907) not supported", row.FIVE_LATER),
    (r"\w+Request: \w+='.*' is no .*", row.NO_NUMBER),
    (r"maxMsgNums\[-1\] is illegal: ask for at least one message", row.AT_LEAST_ONE),
    (r"topic\[%RETRY%.*\] not exist", row.RETRY_NAME),
    (r" request type (301|50|51|52|53|54) not supported", row.UNUSED_CODE),
    (r"-?\d+@.* is not exist!", row.NO_GHOST),
    (r"can not find message by the offset, 77", row.INSIDE),
)


def listed(ask: Ask, java: Command | None, ours: Command | None, problem: str) -> str | None:
    """Why we may answer so; None when nothing allows it."""
    if ours is None:
        return None
    known = _CASES.get(ask.id)
    if known is not None and ours.code == known.code:
        return known.why
    for pattern, why in _REMARKS:
        if re.fullmatch(pattern, ours.remark or ""):
            return why
    if java is not None and java.code == 1 and ours.code == 0 and ask.spoilt in ("without topicFilterType",):
        return row.FILTER_TYPE
    if ask.code in (310, 320) and ask.spoilt in ("d=zz", "j=zz", "l=zz"):
        return row.UNUSED_FIELD
    if ask.code == 321 and "'eval'" in problem:
        return row.BY_EXPRESSION
    if ask.code == 12 and ask.id.startswith("broker.query.uniq ") and ours.code == 0 and problem.startswith("body"):
        return row.MISSING_FIELD  # sends that were refused here are found in Java
    if any(text in problem for text in ("groupSysFlag", "/attributes is missing", "not 29 (queueId[")):
        return row.FIVE
    if ask.code >= 200050 or ask.code in (345, 361, 400):
        return _listed_of_5(ask, java, ours, problem)
    if ask.id == "broker.query.half_key":
        return row.HALF_DELAY  # one half message more
    if any(text in problem for text in ("'null'", "@null", "ClientChannelInfo.getClientId()")):
        return row.MISSING_FIELD  # what earlier requests without a name left in Java
    return None


def _listed_of_5(ask: Ask, java: Command | None, ours: Command, problem: str) -> str | None:
    if java is None:
        return None
    if java.code == 26 and "does not exist" in (java.remark or "") and ours.code in (0, 19, 210):
        return row.FIVE_NAMES
    if java.code == ours.code and (java.code != 0 or "restNum" in problem) and problem.startswith(("ext", "remark")):
        return row.FIVE_POP
    if "timeout too much" in (java.remark or "") or "maxMsgNums is" in (ours.remark or ""):
        return row.FIVE_POP
    if ask.code == 400 and "messageQueueAssignments is too much" in problem:
        return row.MISSING_FIELD  # no strategy means AVG
    if ask.code in (345, 200151) and ask.spoilt is not None and {java.code, ours.code} <= {0, 1, 208}:
        return row.MISSING_FIELD
    return row.FIVE_HANDLE if ask.code == 200151 and java.code == 0 else None


def listed_of_namesrv(ask: Ask, java: Command | None, ours: Command | None, problem: str) -> str | None:
    """The same for the nameserver."""
    if ours is None:
        return None
    known = _NAMESRV_CASES.get(ask.id)
    if known is not None and (known.code is None or ours.code == known.code):
        return known.why
    for pattern, why in _REMARKS:
        if re.fullmatch(pattern, ours.remark or ""):
            return why
    return None
