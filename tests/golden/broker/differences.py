"""Where our broker answers otherwise than Java 4.9.4 on purpose, with the recorded cases that show it.

``why`` begins a row of docs/differences.md. What is not listed here is compared field by field.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["ACCEPTED", "ANY", "EXCLUDED", "SAMPLED", "Difference"]

ANY: Any = object()


@dataclass(frozen=True)
class Difference:
    """What we answer instead of Java 4.9.4, and why."""

    why: str
    cases: tuple[str, ...]
    code: int | None
    #: A regular expression that the whole remark matches; None means that there is no remark.
    remark: str | None = None
    #: The ext fields, or ANY.
    ext: Any = ANY
    #: Members of a JSON body, or fields of records, that Java has and we have not, or otherwise.
    without: tuple[str, ...] = ()


MISSING_FIELD = "A request without a required field is refused"
OLD_DEFECT = "Settings that name paths, and the black list itself, are refused"
WRONG_VALUE = "A setting's value that does not fit is refused"
NON_ASCII = "Non-ASCII text in updateBrokerConfig arrives as it was sent"
BATCH = "Properties of a batch are not stored twice"
REMOVED = "Offset 0 is no name for the first message that is left"
EMPTIED = "A queue that lost all its messages says so"
UNUSED_CODE = "Codes that 4.9.8 and 5.x differ in are answered as the newer release does"
ACL = "Access control requests say that access control is off"
FILTER_TYPE = "A topic without topicFilterType has the default one"
HALF_DELAY = "A transactional message with a delay level is not lost"
SERIALIZED = "An answer is serialised like its request"
SQL_OFF = "A refused SQL92 subscription names the setting"
AUTO_CREATE = "autoCreateTopicEnable counts at once, and after a restart"
NEGATIVE_OFFSET = "An offset below 0 is refused"
SQL_ZERO = "Zero is a number in SQL92 expressions"
TIME_END = "A time after a queue's last message is its end"
SQL_END = "Text behind a complete SQL92 expression is refused"
UNKNOWN_TYPE = "An unknown expression type is named in the refusal"
DEAD_AT_ONCE = "A dead letter does not wait for the delay of its last retry"
ONE_END = "The first end of a transaction is the only one"
RECALL = "A message that waits for its time can be recalled"
GATE = "The time in a refusal is the local one"

HALF_TOPIC = "The half topic is made with the first transactional message"
UNUSED_FIELD = "A field that a send has no use for is not looked at"

_MISSING = r"\w+Request: the field \w+ is missing"

ACCEPTED = (
    Difference(
        MISSING_FIELD,
        (
            "broker.send.v1.noext",
            "broker.send.v1.no_producerGroup",
            "broker.send.v1.no_topic",
            "broker.send.v1.no_defaultTopicQueueNums",
            "broker.send.v2.noext",
            "broker.reply.noext",
            "broker.tran.end.no_producerGroup",
            "broker.tran.end.no_tranStateTableOffset",
            "broker.offset.query.no_consumerGroup",
            "broker.offset.update.no_consumerGroup",
            "broker.offset.update.no_topic",
            "broker.query.no_key",
            "broker.stats.view.noext",
        ),
        code=1,
        remark=_MISSING,
    ),
    # So nothing is stored under the names "null" and "", nor of a topic that does not exist.
    Difference(MISSING_FIELD, ("broker.offset.all",), 0, without=("PB_PULL@null", "null@PB_OG", "PB_NOPE2@PB_OG")),
    Difference(MISSING_FIELD, ("broker.stats.who",), 0, without=("groupList",)),
    Difference(MISSING_FIELD, ("broker.conns.producers_all",), 0, without=("PB_X",)),
    Difference(HALF_TOPIC, ("broker.topic.all",), 0, without=("RMQ_SYS_TRANS_HALF_TOPIC",)),
    Difference(UNUSED_FIELD, ("broker.send.v2.bad_d",), 0),
    Difference(FILTER_TYPE, ("broker.topic.create.no_topicFilterType",), 0),
    Difference(
        OLD_DEFECT,
        (
            "broker.config.update.black_brokerConfigPath",
            "broker.config.update.black_rocketmqHome",
            "broker.config.update.black_configBlackList",
        ),
        code=16,
        remark=r"Can not update config in black list\.",
    ),
    Difference(
        WRONG_VALUE,
        ("broker.config.update.bad_number",),
        code=1,
        remark="update line 1: defaultQueryMaxNum='zz': a whole number is expected",
    ),
    Difference(NON_ASCII, ("broker.config.non_ascii_effect",), 0),
    Difference(BATCH, ("broker.batch.stored_0", "broker.batch.stored_1"), 0, without=("size",)),
    Difference(REMOVED, ("broker.old.view_removed",), 1, "can not find message by the offset, 0"),
    Difference(EMPTIED, ("broker.old.pull_removed_queue",), 21, "OFFSET_TOO_SMALL"),
    Difference(UNUSED_CODE, ("broker.unserved.301",), 3, " request type 301 not supported"),
    Difference(UNUSED_CODE, ("broker.unserved.343",), 0),
    Difference(UNUSED_CODE, ("broker.unserved.351",), 0),
    Difference(UNUSED_CODE, ("broker.unserved.400", "broker.unserved.401"), 1, "the request has no body"),
    *(
        Difference(ACL, cases, code, r"access control is off \(aclEnable is false\): .*")
        for code, cases in (
            (1, ("broker.acl.version", "broker.acl.config")),
            (209, ("broker.acl.update", "broker.acl.update.noext")),
            (210, ("broker.acl.delete", "broker.acl.delete.noext")),
            (211, ("broker.acl.white", "broker.acl.white.noext")),
        )
    ),
    Difference(SERIALIZED, ("broker.pull.found_no_heap@bin",), 0, "FOUND"),
    Difference(GATE, ("broker.send.gate",), 1, "broker unable to service, until .*"),
    Difference(
        HALF_DELAY,
        ("broker.tran.end.commit_delay",),
        code=1,
        remark="The transaction state table offset wrong",  # the half is in the half topic, not in the schedule
    ),
    Difference(DEAD_AT_ONCE, ("broker.retry.dlq_pull", "broker.back.dlq_pull"), 0, "FOUND"),
    Difference(ONE_END, ("broker.tran.committed_pull",), 0, "FOUND"),
    Difference(RECALL, ("broker.unserved.370",), 1, _MISSING),
    Difference(
        SQL_OFF,
        ("broker.pull.type_unknown", "broker.sql.off_pull", "broker.sql.off_pull_reg"),
        code=1,
        remark=r"The broker does not support consumer to filter message by \w+ \(enablePropertyFilter is false\)",
    ),
    Difference(SQL_ZERO, ("broker.sql.check_4",), 0),
    Difference(AUTO_CREATE, ("broker.send.auto_create_on_again",), 0),
    Difference(
        NEGATIVE_OFFSET,
        ("broker.offset.update.negative",),
        1,
        "commitOffset is -5: an offset is 0 or more; PB_OG stays where it is on PB_PULL",
    ),
    Difference(TIME_END, ("broker.offset.by_time.future",), 0, ext={"offset": "10"}),
    Difference(SQL_END, ("broker.sql.check_12",), 23, "unexpected 'trailing' after a complete expression .*"),
    Difference(
        UNKNOWN_TYPE,
        ("broker.check.type_unknown",),
        code=23,
        remark="unknown expression type ZZ: TAG and SQL92 are known",
    ),
)

#: Cases not asked, with the reason.
EXCLUDED: dict[str, str] = {
    "broker.tran.check_request": "the check loop, which takes ten seconds here, is proved in virtual time",
    "broker.tran.end.from_check_commit": "answers the check request",
}

#: Cases whose recorded answer counts messages of steps that are not in the sample: what we hold is part of it.
SAMPLED = frozenset(
    {
        "broker.pull.moved_event",
        "broker.back.retry_pull",
        "broker.back.dlq_pull",
        "broker.query.batch_key",
        "broker.stats.broker_consume",
        "broker.stats.broker_consume.order",
        "broker.stats.broker_consume.noext",
    }
)
