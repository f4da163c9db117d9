"""The keys of access control, for every daemon."""

from __future__ import annotations

from rmq.config.settings import INT_MAX, LONG_MAX, setting
from rmq.remoting.health import ObserverSettings

__all__ = ["AclSettings"]


class AclSettings(ObserverSettings):
    """Base of a daemon's settings: whether and by which files requests are checked (docs/acl.md)."""

    acl_enable: bool = setting(
        False, key="aclEnable", doc="Check who sends each request, and what he may do: accounts are in plain_acl.yml."
    )
    rocketmq_home: str = setting(
        "",
        key="rocketmqHome",
        env=("ROCKETMQ_HOME",),
        unit="path",
        doc="Installation folder: accounts are in its conf/plain_acl.yml and conf/acl/; needed with aclEnable alone.",
    )
    acl_plain_file: str = setting(
        "conf/plain_acl.yml",
        key="rocketmq.acl.plain.file",
        unit="path",
        doc="The file of accounts, below rocketmqHome (Java: a system property).",
    )
    acl_credentials_file: str = setting(
        "",
        key="aclCredentialsFile",
        unit="path",
        doc="YAML with accessKey and secretKey: the account that this daemon signs its own calls with.",
    )
    acl_white_list_skips_checks: bool = setting(
        False,
        key="aclWhiteListSkipsChecks",
        doc="As Java: white-listed addresses need no signature and no permission. Otherwise white lists only narrow.",
    )
    acl_trace_topic_open: bool = setting(
        False, key="aclTraceTopicOpen", doc="As Java: every account may send to the topic of message traces."
    )
    acl_unchecked_codes: bool = setting(
        False,
        key="aclUncheckedCodes",
        doc="As Java: a signature is enough for batches, locks, offsets and other requests that Java does not check.",
    )

    account_max_requests_per_second: int = setting(
        0,
        key="accountMaxRequestsPerSecond",
        lowest=0,
        highest=INT_MAX,
        live=True,
        doc="Requests of one account, with aclEnable; one more is answered with SYSTEM_BUSY (2). 0 = no limit. "
        "Administrators and brokers have none.",
    )
    account_max_bytes_per_second: int = setting(
        0,
        key="accountMaxBytesPerSecond",
        unit="bytes",
        lowest=0,
        highest=LONG_MAX,
        live=True,
        doc="The same of the bytes that it sends and is sent.",
    )
    account_max_connections: int = setting(
        0,
        key="accountMaxConnections",
        lowest=0,
        highest=INT_MAX,
        live=True,
        doc="The same of connections: requests on one more are refused.",
    )

    def check_acl(self) -> None:
        """:raises ConfigError: keys that contradict each other."""
        if self.acl_enable and not self.rocketmq_home:
            raise self.refused(
                "aclEnable", "needs rocketmqHome (or ROCKETMQ_HOME): its conf/plain_acl.yml says who may do what"
            )
        if not self.acl_enable:
            for key in ("aclWhiteListSkipsChecks", "aclTraceTopicOpen", "aclUncheckedCodes"):
                if self.get(key):
                    raise self.refused(key, "loosens access control, which is off: set aclEnable, or not this")
