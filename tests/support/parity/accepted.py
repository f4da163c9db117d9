"""Where what Java's mqadmin prints of our cluster may differ from what it prints of Java's, each with the reason."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import unified_diff
from typing import NamedTuple

from tests.support.parity.commands import BOTH, NEW, OLD, Asked

__all__ = ["ACCEPTED", "unaccepted"]


class Accepted(NamedTuple):
    """Lines of Java's and of ours, as normal() leaves them, that may stand on one side alone.

    :param words: begin the command line. :param lines: a regular expression for the whole of each line.
    """

    words: str
    lines: str
    reason: str
    tools: frozenset[str] = BOTH


_VERSION = "ours says that it is 4.9.8, whatever the generation of the tools"
_REFUSED = "what changes nothing is refused, where Java says that it was done"
_ACL_OFF = "Java ends with a null pointer, or in silence, where access control is off: ours says that it is off"
_SPOKEN = r"org\.apache.*(SubCommandException|MQ\w+Exception).*|Caused by: .*|For more information.*"
_TOPICS_OF_5 = (
    r"(RMQ_SYS_TRANS_(OP_)?HALF_TOPIC|rmq_sys_(REVIVE_LOG_DefaultCluster|SYNC_BROKER_MEMBER_broker-a|wheel_timer))"
)
_TOPIC_AS_GROUP = "5.3.3 takes a topic that an admin client has asked of for a group"
_TRACK_OF_T = r"MessageTrack .*|See <url> for further details.*"
_RESET = r"(start )?reset consumer offset by specified.*|#brokerName #queueId.*|broker-a \d \d.*"

ACCEPTED = (
    Accepted("clusterList", r"DefaultCluster broker-a 0 <b> V\d_\d_\d .*", _VERSION),
    Accepted("brokerStatus", r"(<b> )?brokerVersion(Desc)? ?: .*", _VERSION),
    Accepted("brokerStatus", r"(<b> )?(brokerRole|commitLogScrub) ?: .*", "ours tells more"),
    Accepted(
        "brokerStatus", r"(<b> )?(remainHowManyDataToFlush|runtime|putMessageDistributeTime) ?: .*", "a moment's figure"
    ),
    Accepted(
        "brokerStatus",
        r"(<b> )?(dispatchBehindBytes|pageCacheLockTimeMills|timer(Read|Offset)Behind|\w+QueueSize|\w+HeadWait\w+)"
        r" ?: \d\d?",
        "a moment's figure",
    ),
    Accepted(
        "brokerStatus", r"(<b> )?earliestMessageTimeStamp ?: .*",
        "Java says -1 as long as there is one file; ours says what it has",
    ),
    Accepted("sendMessage -t Sent -p hello -k", r"broker-a \d SEND_OK <id>", "the producer begins with any queue"),
    Accepted("producer -b", r"producer group \(CLIENT_INNER_PRODUCER\).*", "the tools' own clients come and go"),
    Accepted("checkMsgSendRT", r"broker-a \d true \d+|Avg RT: .*", "times"),
    Accepted("statsAll -a", r".*", "which topics are active is found out every ten seconds"),
    Accepted("consumer", r"%RETRY%g broker-a 0 .*", "a new queue has an offset once it was pulled from"),
    Accepted("consumerStatus -g g -i {client} -s", r".*", "the threads of this process at that moment"),
    Accepted("getNamesrvConfig", r"[\w.]+ = ?.*", "settings are each side's own"),
    Accepted("getBrokerConfig", r"[\w./]+ = ?.*", "settings are each side's own"),
    Accepted(
        "updateNamesrvConfig -k unknownKey", rf"{_SPOKEN}|update name server config success!|unknownKey : 1", _REFUSED
    ),
    Accepted(
        "queryCq -t T -q 0 -i 0 -c 3 -b {b} -g g", r"ConsumeQueueData\{.*eval=(true|false).*",
        "ours says whether the tag lets the entry through; Java looks at entries with an extension alone",
    ),
    Accepted(
        "consumeMessage -t T -b {bn} -i 0 -s", r"MSGID: .* queueOffset=2, .*",
        "a search by time of ours finds the first message from then on, 4.9's the nearest (docs/differences.md)", OLD,
    ),
    Accepted("clusterAclConfigVersion", _SPOKEN, _ACL_OFF, OLD),
    Accepted("updateAclConfig", _SPOKEN, _ACL_OFF, OLD),
    Accepted("deleteAclConfig", _SPOKEN, _ACL_OFF, OLD),
    Accepted("getAclConfig", _SPOKEN, _ACL_OFF, OLD),
    Accepted("updateGlobalWhiteAddr", _SPOKEN, _ACL_OFF, OLD),
    # Tools of 5.3.3 against a broker of 5.3.3: ours is one of 4.9 that knows some of 5.x.
    Accepted("updateTopic -b {b} -t Broken", r"Caused by: .*CODE: (29|1) .*", "the code of 4.9", NEW),
    Accepted("topicList", rf"(DefaultCluster )?{_TOPICS_OF_5}", "topics that services of 5.x make", NEW),
    Accepted("topicList -c", r"DefaultCluster T T", _TOPIC_AS_GROUP, NEW),
    Accepted("statsAll", rf"{_TOPICS_OF_5} 0 <rate> <n> NO_CONSUMER", "topics that services of 5.x make", NEW),
    Accepted("statsAll", r"T T 12 <rate> <rate> <n> <n>", _TOPIC_AS_GROUP, NEW),
    Accepted("statsAll", r"T cloned .*", "offsets were cloned to the group, see cloneGroupOffset", NEW),
    Accepted("clusterList -m", r"DefaultCluster broker-a 0 0 1\d 34", "5.3.3 does not count the trace at once", NEW),
    Accepted("brokerStatus", r"(<b> )?msgPutTotalTodayNow ?: 1\d", "5.3.3 does not count the trace at once", NEW),
    Accepted("brokerStatus", r"(<b> )?getTransferedTps ?:.*", "the name that 4.9's tools read", NEW),
    Accepted("brokerStatus", r"(<b> )?timer(En|De)queueTps ?: .*", "no such rate is kept: see the metrics", NEW),
    Accepted("queryMsgBy", rf"{_TRACK_OF_T}", _TOPIC_AS_GROUP, NEW),
    Accepted("cloneGroupOffset", rf"{_SPOKEN}|clone group .*", "as 4.9: a group need not exist", NEW),
    Accepted("consumerProgress -g cloned", r".*", "see cloneGroupOffset", NEW),
    Accepted("wipeWritePerm", r"wipe write perm .* OK, \d+", "topics that services of 5.x make", NEW),
    Accepted("addWritePerm", r"add write perm .* OK, \d+", "topics that services of 5.x make", NEW),
    Accepted("resetOffsetByTime", _RESET, "the tool's older form, which every broker of 4.9 is asked in", NEW),
    Accepted("resetOffsetByTime -g nobody", r"Caused by: .*CODE: (26|1) .*", "the code of 4.9", NEW),
    Accepted("skipAccumulatedMessage", _RESET, "the tool's older form, which every broker of 4.9 is asked in", NEW),
    Accepted("exportConfigs", r'"(filterServerNums|useTLS)":.*', "5.3.3 has lost one of them", NEW),
    Accepted("exportMetrics", r'"(rocketmqVersion|topicSize|\w*OneDay\w*|normalOneDayInNum)":.*', _VERSION, NEW),
    Accepted("getBrokerEpoch", r"Caused by: .*", "there is no controller", NEW),
)  # fmt: skip


def unaccepted(asked: Asked, version: str, java: Iterable[str], ours: Iterable[str]) -> list[str]:
    """Lines that differ and may not, as a diff has them: ``-`` Java's, ``+`` ours.

    :param java: lines of Java's cluster, as normal() leaves them; ``ours``, of ours.
    """
    allowed = [re.compile(one.lines) for one in ACCEPTED if version in one.tools and asked.words.startswith(one.words)]
    found = unified_diff(list(java), list(ours), "java", "ours", n=0, lineterm="")
    return [
        line
        for line in list(found)[2:]
        if line[0] in "-+" and not any(pattern.fullmatch(line[1:]) for pattern in allowed)
    ]
