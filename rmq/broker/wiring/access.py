"""Wires access control: what is checked, and the account that the broker itself signs with."""

from __future__ import annotations

import logging
from collections.abc import Callable

from rmq.auth.control import AccessControl
from rmq.auth.credentials import Signer, read_credentials
from rmq.broker.access import BROKER_ACCESS
from rmq.broker.parts import Ground
from rmq.broker.wiring.front import Front
from rmq.protocol.codes import RequestCode
from rmq.remoting.client import RemotingClient
from rmq.remoting.router import Router

__all__ = ["make_access", "sign"]

log = logging.getLogger(__name__)

#: Requests whose body is a message, or several.
_MESSAGES = (
    RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2,
)  # fmt: skip


def make_access(ground: Ground, router: Router, front: Front, let_go: Callable[[], None]) -> AccessControl | None:
    """None where it is off.

    :param let_go: answers POP requests that wait.
    """
    settings = ground.settings
    if not settings.acl_enable:
        return None
    bodies: dict[int, Callable[[], int]] = dict.fromkeys(_MESSAGES, lambda: settings.max_message_size)
    access = AccessControl(ground.world, settings, BROKER_ACCESS, settings.msg_trace_topic_name, bodies)
    router.guard = access.guard
    # Whoever waits for messages asks anew, and is looked at anew.
    access.on_change += [lambda: front.delivery.holds.release(lambda hold: True), let_go]
    return access


def sign(ground: Ground, *clients: RemotingClient) -> None:
    """Have the broker's own calls signed, when it has an account.

    :raises ConfigError: the account cannot be read.
    """
    settings = ground.settings
    path = settings.acl_credentials_file
    if path:
        signer = Signer(read_credentials(ground.world.files, path))
        for client in clients:
            client.hooks.append(signer)
    elif settings.acl_enable and (settings.enable_dleger_commit_log or settings.broker_role == "SLAVE"):
        log.warning(
            "aclEnable without aclCredentialsFile: this broker signs none of its calls, and a master with accounts "
            "tells it of no topics, groups and offsets; give it a file with an account that has broker: true"
        )
