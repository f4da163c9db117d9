"""What two clusters print of the same, without what cannot be the same: addresses, times, sizes, rates, ids."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["normal"]

#: In this order: what is left of one rule is not what a later one means.
_RULES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.MULTILINE), text)
    for pattern, text in (
        (r"^\d\d:\d\d:\d\d,\d+ \|-.*\n", ""),  # how logging begins, told by the first command of a JVM
        (r"^\tat .*\n", ""),
        (r"^\t\.\.\. \d+ more\n", ""),
        # The record of a trace is longer where the send took longer, and what comes after it lies elsewhere.
        (r"(commitLogMaxOffset|putMessageSizeTotal|CommitLog Offset)(\s*:) *\d+", r"\1\2 <n>"),
        (r"(MasterCommitLogMaxOffset)\s*\d+", r"\1 <n>"),
        (r"(commitLogOffset|physicOffset)=\d+", r"\1=<n>"),
        (r"Mon|Tue|Wed|Thu|Fri|Sat|Sun", "<day>"),
        (r"\b20\d\d-\d\d-\d\d[ #T]\d\d:\d\d:\d\d(?:[,:.]\d+)?", "<time>"),
        (r"127\.0\.0\.1:[1-9]\d{3,4}\b", "<address>"),
        (r"\b\d+(?:\.\d+){3}@[\w#-]+", "<client>"),
        (r"[-+]?\b\d+\.\d+(?:E-?\d+)?\b", "<rate>"),
        (r"\b1\d{12}\b", "<ms>"),
        (r"\b20\d{15}\b", "<time>"),
        (r"\b[0-9A-F]{32,56}\b", "<id>"),
        (r"\b\d+ms\b", "<n>ms"),
        (r'"counter":\d+', '"counter":<n>'),
        (r"\b(\w+EntireTimeMax\s*:) \d+", r"\1 <n>"),
        (r"\bspentTimeMills=\d+", "spentTimeMills=<n>"),
        (r"((?:CLUSTERING|OFFLINE)\s+)\d+(\s+\d+)$", r"\1<n>\2"),  # consumerProgress: messages a second
        (r"\bTHREAD \d+", "THREAD <n>"),
        (r"(<rate>\s+<rate>)\s+\d+\s+\d+\s*$", r"\1 <n> <n>"),  # statsAll: taken every ten seconds
        (r"(<rate>)\s+\d+\s+NO_CONSUMER", r"\1 <n> NO_CONSUMER"),
        (r"/tmp/[\w./-]+", "<path>"),
        (r"\bpid=\d+", "pid=<pid>"),
    )
)

#: Brokers of 5.x add properties to each message, so that records have other sizes.
_SIZES = tuple(
    (re.compile(pattern, re.MULTILINE), text)
    for pattern, text in (
        (r"MSG_REGION=DefaultRegion, |WAIT=true, |, TRACE_ON=true|TRACE_ON=true, |, MSG_REGION=DefaultRegion", ""),
        (r"(storeSize|physicSize)=\d+", r"\1=<n>"),
        (r"https?://rocketmq\.apache\.org/docs/[\w/]+", "<url>"),
    )
)


def normal(printed: str, named: Mapping[str, str], *, sort: bool = False, sizes: bool = True) -> list[str]:
    """The lines to compare, trailing blanks and columns' widths aside.

    :param named: text -> what stands for it: this cluster's addresses and ids, before all rules.
    :param sizes: those of records are compared, and all properties.
    """
    for text, name in sorted(named.items(), key=lambda pair: -len(pair[0])):
        printed = printed.replace(text, f"<{name}>")
    for pattern, text in _RULES if sizes else (*_SIZES, *_RULES):
        printed = pattern.sub(text, printed)
    lines = [re.sub(r"\s+", " ", line).strip() for line in printed.splitlines()]
    lines = [line for line in lines if line]
    return sorted(lines) if sort else lines
