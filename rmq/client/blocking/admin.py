"""The admin client for threads."""

from __future__ import annotations

from typing import Unpack

from rmq.client.admin import AdminClient as AioAdminClient
from rmq.client.blocking.mirror import AdminClientMirror
from rmq.client.settings import AdminOptions, AdminSettings, lists_options
from rmq.runtime.world import World

__all__ = ["AdminClient"]


@lists_options(AdminSettings)
class AdminClient(AdminClientMirror):
    """Asks and changes a cluster; any thread may use it (Java: DefaultMQAdminExt).

    :param world: the ports it touches the world through; the real ones by default.
    :param options: see :class:`~rmq.client.settings.AdminOptions`.
    """

    def __init__(self, *, world: World | None = None, **options: Unpack[AdminOptions]) -> None:
        super().__init__(AioAdminClient(world=world, **options))
