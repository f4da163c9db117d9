"""Which commands change a cluster, and which of them take something away that does not come back by itself."""

from __future__ import annotations

__all__ = ["CHANGING", "DESTROYING"]

#: Commands after which something is gone: messages, topics, groups, offsets, settings of others, rights.
DESTROYING = frozenset({
    "deleteTopic", "deleteSubGroup", "resetOffsetByTime", "skipAccumulatedMessage", "cloneGroupOffset",
    "cleanExpiredCQ", "deleteExpiredCommitLog", "cleanUnusedTopic", "deleteKvConfig", "wipeWritePerm",
    "deleteAclConfig",
})  # fmt: skip
#: Every command that changes something.
CHANGING = DESTROYING | {
    "updateTopic", "updateTopicList", "updateTopicPerm", "updateOrderConf", "updateSubGroup", "updateSubGroupList",
    "setConsumeMode", "updateBrokerConfig", "updateKvConfig", "addWritePerm", "updateNamesrvConfig",
    "updateAclConfig", "updateGlobalWhiteAddr",
}  # fmt: skip
