"""The keys that bound what strangers' connections may cost a daemon, in force as soon as they are changed."""

from __future__ import annotations

from rmq.config.settings import INT_MAX, setting
from rmq.remoting.limits import Limits
from rmq.remoting.tls_settings import TlsSettings

__all__ = ["LimitSettings"]


class LimitSettings(TlsSettings):
    """Base of a daemon's settings: how many connections, and how long they may take for what they began."""

    server_max_connections: int = setting(
        60_000,
        key="serverMaxConnections",
        lowest=1,
        highest=INT_MAX,
        live=True,
        doc="Open connections; one more is closed at once.",
    )
    server_max_connections_per_address: int = setting(
        20_000,
        key="serverMaxConnectionsPerAddress",
        lowest=0,
        highest=INT_MAX,
        live=True,
        doc="The same of one address, of IPv6 one /64; 0 = no limit.",
    )
    server_partial_frame_seconds: int = setting(
        10,
        key="serverPartialFrameSeconds",
        unit="s",
        lowest=1,
        highest=INT_MAX,
        live=True,
        doc="A request that was begun has to be whole within this time, and a second more for each 16 KiB of it that "
        "have come; else its connection is closed.",
    )
    server_tls_handshake_seconds: int = setting(
        10,
        key="serverTlsHandshakeSeconds",
        unit="s",
        lowest=1,
        highest=INT_MAX,
        live=True,
        doc="A TLS handshake has to be done within this time.",
    )

    def bound(self, limits: Limits) -> None:
        """Put them in force."""
        limits.connections = self.server_max_connections
        limits.per_address = self.server_max_connections_per_address
        limits.partial_seconds = float(self.server_partial_frame_seconds)
        limits.handshake_seconds = float(self.server_tls_handshake_seconds)
