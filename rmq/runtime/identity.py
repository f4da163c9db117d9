"""Who this process is on this machine, and which of its addresses others can reach."""

from __future__ import annotations

import array
import ipaddress
import os
import socket
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Advertised", "RealIdentity", "choose_address"]

#: Interfaces that exist on this machine only: nobody else reaches them (field case B096).
_LOCAL_INTERFACES = ("lo", "docker", "virbr", "br-", "veth", "cni", "flannel", "cali", "podman", "vmnet", "vboxnet")
_SIOCGIFCONF = 0x8912
#: Drawn anew by Linux at every boot; nothing alike elsewhere.
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True, slots=True)
class Advertised:
    """An address to tell others, and why it may not do: ``hint`` is "" or a sentence for the log."""

    interface: str
    address: str
    hint: str = ""


def choose_address(addresses: Sequence[tuple[str, str]]) -> Advertised:
    """The address to advertise when none is configured (brokerIP1; field case B096, store-and-broker.md 10.2).

    Loopback, link-local and the bridges of container engines are skipped; among the rest a public or 10.x/172.x IPv4
    address goes before 192.168.x.x, IPv4 before IPv6.

    :param addresses: (interface, address) pairs, such as ``Identity.addresses()`` gives.
    """
    usable: list[tuple[int, int, str, str]] = []
    bridged: list[tuple[str, str]] = []
    for order, (interface, text) in enumerate(addresses):
        try:
            ip = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            continue
        if ip.is_loopback or ip.is_link_local or ip.is_unspecified or ip.is_multicast:
            continue
        if interface.startswith(_LOCAL_INTERFACES):
            bridged.append((interface, text))
            continue
        rank = 2 if ip.version == 6 else 1 if text.startswith("192.168.") else 0
        usable.append((rank, order, interface, text))
    if usable:
        _, _, interface, text = min(usable)
        return Advertised(interface, text)
    if bridged:
        interface, text = bridged[0]
        hint = (
            f"{text} belongs to {interface}, which only this machine reaches: set brokerIP1 to an address clients reach"
        )
        return Advertised(interface, text, hint)
    hint = "no address but loopback was found: clients on other machines need brokerIP1 to be set"
    return Advertised("lo", "127.0.0.1", hint)


class RealIdentity:
    """This process on this machine."""

    __slots__ = ()

    @property
    def hostname(self) -> str:
        return socket.gethostname()

    @property
    def pid(self) -> int:
        return os.getpid()  # asked each time: a forked child is another process

    def addresses(self) -> Sequence[tuple[str, str]]:
        found = [*_ipv4_interfaces(), *_ipv6_interfaces()]
        return found or _resolved(self.hostname)

    def physical_memory(self) -> int:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def processors(self) -> int:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    def boot_id(self) -> str:
        try:
            with open(_BOOT_ID, encoding="ascii") as file:
                return file.read(64).strip()
        except (OSError, ValueError):
            return ""


def _ipv4_interfaces() -> list[tuple[str, str]]:
    """Every IPv4 address by the interface list of the kernel (Linux); empty elsewhere."""
    if not sys.platform.startswith("linux"):
        return []
    try:
        import fcntl
    except ImportError:
        return []
    entry = 40 if sys.maxsize > 2**32 else 32
    room = array.array("B", bytes(entry * 256))
    address, _ = room.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFCONF, struct.pack("iL", len(room), address))
        except OSError:
            return []
    used = struct.unpack("iL", answer)[0]
    data = room.tobytes()[:used]
    return [
        (data[at : at + 16].split(b"\0", 1)[0].decode(errors="replace"), socket.inet_ntoa(data[at + 20 : at + 24]))
        for at in range(0, used, entry)
    ]


def _ipv6_interfaces() -> list[tuple[str, str]]:
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as table:
            rows = [line.split() for line in table]
    except OSError:
        return []
    return [(row[5], str(ipaddress.IPv6Address(bytes.fromhex(row[0])))) for row in rows if len(row) >= 6]


def _resolved(hostname: str) -> list[tuple[str, str]]:
    try:
        found = socket.getaddrinfo(hostname, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    unique = dict.fromkeys((family, str(where[0])) for family, _, _, _, where in found)
    ordered = sorted(unique, key=lambda pair: pair[0] != socket.AF_INET)
    return [("?", address) for _, address in ordered]
