"""The admin client: every operation of the modules beside this one."""

from __future__ import annotations

from rmq.client.admin.access import AccessControl
from rmq.client.admin.brokers import Brokers
from rmq.client.admin.connections import Connections
from rmq.client.admin.groups import Groups
from rmq.client.admin.messages import Messages
from rmq.client.admin.nameservers import NameServers
from rmq.client.admin.offsets import Offsets
from rmq.client.admin.replication import Replication
from rmq.client.admin.topics import Topics
from rmq.client.settings import AdminSettings, lists_options

__all__ = ["AdminClient"]


@lists_options(AdminSettings)
class AdminClient(
    Topics, Groups, Offsets, Messages, Connections, Brokers, NameServers, AccessControl, Replication
):  # fmt: skip
    """Asks and changes a cluster; coroutines of one loop may share it.

    :param options: see :class:`~rmq.client.settings.AdminOptions`.

    ::

        async with AdminClient(namesrv="127.0.0.1:9876") as admin:
            print((await admin.topic_list()).topic_list)

    Every call raises ResponseError when the other side refuses, TransportError when it does not answer. What asks
    several brokers asks them side by side, waits for ``mq_client_api_timeout`` at most, and says who is missing.
    """
