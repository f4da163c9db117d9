"""A broker or a nameserver with access control, and requests of this or that account."""

from __future__ import annotations

from pathlib import Path

from rmq.protocol.command import Command
from rmq.protocol.signature import signed_fields
from rmq.testing.simcluster import SimCluster

__all__ = ["ACCOUNTS", "SECRET", "by", "home", "in_simulation"]

SECRET = "12345678"
ACCOUNTS = f"""\
# who may what
accounts:
  - accessKey: operator
    secretKey: {SECRET}
    admin: true
  - accessKey: a-broker
    secretKey: {SECRET}
    broker: true
  # owns the topic T and the group G
  - accessKey: owner-of-T
    secretKey: {SECRET}
    topicPerms:
      - T=PUB|SUB
      - DefaultCluster_REPLY_TOPIC=PUB
    groupPerms:
      - G=SUB
  - accessKey: unprivileged
    secretKey: {SECRET}
  - accessKey: disabled-one
    secretKey: {SECRET}
    admin: true
    disabled: true
"""


def home(folder: Path, accounts: str = ACCOUNTS) -> dict[str, str]:
    """Write plain_acl.yml; the settings of a daemon that follows it."""
    (folder / "conf").mkdir(parents=True, exist_ok=True)
    (folder / "conf" / "plain_acl.yml").write_text(accounts)
    return {"aclEnable": "true", "rocketmqHome": str(folder)}


def by(key: str | None, request: Command, secret: str = SECRET) -> Command:
    """The request, signed by an account; as it is for None."""
    if key is not None:
        request.ext = signed_fields(request.ext, request.body, key, secret)
    return request


def in_simulation(cluster: SimCluster, brokers: int, accounts: str = ACCOUNTS) -> None:
    """Put plain_acl.yml on the disks of a cluster that is not started, and have its brokers follow it."""
    cluster.settings |= {"aclEnable": "true", "rocketmqHome": "/home"}
    for number in range(brokers):
        files = cluster.simulation.node(f"broker-{number}").world.files
        for folder in ("/home", "/home/conf"):
            files.mkdir(folder)
        files.write_atomic("/home/conf/plain_acl.yml", accounts.encode())
