"""All accounts of a daemon, and what each of them may do (Java: PlainPermissionManager)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rmq.auth.addresses import AddressPattern
from rmq.auth.plain_acl import Account, PlainFile
from rmq.protocol.errors import ConfigError
from rmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX, TRACE_DATA_PREFIX, TRACE_TOPIC, is_broker_topic
from rmq.protocol.permissions import ANY, DENY, PUB, SUB, Need, permission_text, use_group

__all__ = ["Rules", "missing"]


@dataclass(frozen=True, slots=True)
class Rules:
    """What the files say together; never changed, made anew."""

    accounts: Mapping[str, Account] = field(default_factory=dict)
    white: tuple[AddressPattern, ...] = ()

    @classmethod
    def of(cls, files: Iterable[PlainFile]) -> Rules:
        """:raises ConfigError: an access key stands twice."""
        accounts: dict[str, Account] = {}
        white: list[AddressPattern] = []
        for file in files:
            for account in file.accounts:
                before = accounts.get(account.access_key)
                if before is not None:
                    raise ConfigError(
                        f"{account.place}: the accessKey {account.access_key} is in {before.place} already: remove one"
                    )
                accounts[account.access_key] = account
            white += [pattern for pattern in file.white if not pattern.empty]
        return cls(accounts, tuple(white))

    def lists(self, host: str) -> bool:
        """Whether an address is in the global white list."""
        return any(pattern.matches(host) for pattern in self.white)


def missing(account: Account, need: Need, trace_topic: str = TRACE_TOPIC) -> str | None:
    """Why an account may not do something; None when it may.

    What is derived from a group belongs to it, whatever a request calls the group: who may use the group may use its
    retry and its dead-letter topic, and nobody else. Topics that brokers write, and traces, are given by name alone.
    """
    if account.disabled:
        return f"accessKey={account.access_key} is disabled"
    if account.admin and not account.listed:
        return None
    if need.kind == "topic":
        for prefix in (RETRY_PREFIX, DLQ_PREFIX):
            if need.name.startswith(prefix):
                need = use_group(need.name.removeprefix(prefix))
                break
    if need.kind == "topic":
        given = account.topics.get(need.name)
        if given is None:
            by_name = is_broker_topic(need.name) or need.name in (TRACE_TOPIC, trace_topic)
            given = DENY if by_name or need.name.startswith(TRACE_DATA_PREFIX) else account.default_topic
    else:
        given = account.groups.get(need.name, account.default_group)
    wanted = PUB | SUB if need.permission & ANY else need.permission
    if not given & DENY and given & wanted:
        return None
    return (
        f"No default permission for {need.kind}:{need.name[:255]}, "
        f"accessKey={account.access_key} needs {permission_text(need.permission)}"
    )
