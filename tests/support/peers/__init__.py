"""Real RocketMQ software for tests: servers behind one interface, and clients as programs spoken to over JSON lines.

    from tests.support.peers import start_cluster

    with start_cluster("java-4.9.4") as cluster:
        cluster.namesrv        # "127.0.0.1:20310"
        cluster.broker_addr    # "127.0.0.1:20315"

Nothing of Apache is kept in the repository: everything is resolved from the package registries into
`$XDG_CACHE_HOME/rmq-interop` (or `~/.cache/rmq-interop`), once; a second run needs no network.
A missing tool raises `ToolMissing`; the fixtures of tests/conftest.py turn that into a skip, or into a failure in CI.
"""

from .clients import CLIENTS, Client, ClientError, start_client
from .cluster import KINDS, Cluster, start_cluster
from .jars import JAVA_OPENS, java_classpath, resolve_jars
from .tools import ToolMissing, require, skip_or_fail

__all__ = [
    "CLIENTS",
    "JAVA_OPENS",
    "KINDS",
    "Client",
    "ClientError",
    "Cluster",
    "ToolMissing",
    "java_classpath",
    "require",
    "resolve_jars",
    "skip_or_fail",
    "start_client",
    "start_cluster",
]
