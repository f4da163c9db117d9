"""Who a client is: its id (protocol.md 7.2) and the address part of the ids it gives its messages (5.6)."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

from rmq.client.settings import ClientSettings
from rmq.protocol.ids import UniqueIds
from rmq.runtime.world import World

__all__ = ["client_id", "local_address", "message_ids"]


def local_address(world: World) -> str:
    """The address others know this machine by: neither loopback nor link-local, a public one before a private one."""
    private = None
    for _, text in world.identity.addresses():
        address = ipaddress.ip_address(text.split("%", 1)[0])
        if address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast:
            continue
        if not address.is_private:
            return str(address)
        if address.version == 4 and private is None:
            private = str(address)
    return private or "127.0.0.1"


def client_id(world: World, settings: ClientSettings, *, stable: bool = False, stream: bool = False) -> str:
    """``ip@instanceName[@unitName][@STREAM]``.

    :param stable: keep the instance name DEFAULT (broadcasting consumers: the path of their offset file). Otherwise
        DEFAULT becomes ``pid#number``, the number being the time with a random part, so that two containers with the
        same address and pid differ (field case B031).
    """
    name = settings.instance_name
    if name == "DEFAULT" and not stable:
        name = f"{world.identity.pid}#{world.clock.now_ms() * 1_000_000 + world.random.randrange(1_000_000)}"
    text = f"{settings.client_ip or local_address(world)}@{name}"
    if settings.unit_name:
        text += f"@{settings.unit_name}"
    return text + "@STREAM" if stream else text


def _packed(text: str) -> bytes | None:
    """None: the text is no address. ``client_ip`` may be any name, as with Java's clients."""
    try:
        return ipaddress.ip_address(text.split("%", 1)[0]).packed
    except ValueError:
        return None


def message_ids(world: World, settings: ClientSettings) -> Callable[..., str]:
    """What gives each message its unique id, at the milliseconds it is told or now; any thread may call it.

    The seed is random, so that neither a fork nor a container with the same address and pid repeats ids (case B084). A
    forked child, whenever its client was made or started, goes on with a seed of its own.
    """
    ip = _packed(settings.client_ip or "") or _packed(local_address(world)) or b""
    now_ms = world.clock.now_ms
    identity = world.identity

    def begin() -> Callable[[int], str]:
        return UniqueIds(ip, identity.pid, world.random.getrandbits(32), now_ms()).next

    next_id, pid = begin(), identity.pid

    def make(at_ms: int | None = None) -> str:
        nonlocal next_id, pid
        if identity.pid != pid:
            next_id = begin()
            pid = identity.pid  # last: other threads of the child come here, too, until it is set
        return next_id(now_ms() if at_ms is None else at_ms)

    return make
