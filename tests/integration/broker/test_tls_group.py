"""A group whose members speak TLS to each other: who has none of their certificates hears nothing and gets nothing."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from rmq.aio import Producer
from rmq.broker.app import BrokerApp
from rmq.broker.raft.wire import Hello
from rmq.client.message import Message
from rmq.remoting.certificates import client_context
from rmq.testing.cluster import Cluster
from tests.support.certificates import Certificate, make_certificate
from tests.support.daemons import PATIENCE
from tests.support.peers.ports import free_port
from tests.support.virtual import eventually

SECRET = b"not for everybody"


class Group(Cluster):
    """Three members with certificates of their own."""

    def __init__(self, folder: Path, certificates: dict[str, Certificate], trusted: str) -> None:
        super().__init__(folder, brokers=0, namesrvs=0)
        self.ports = {name: free_port() for name in ("n0", "n1", "n2")}
        self._certificates = certificates
        self._trusted = trusted

    async def start(self) -> None:
        own = self._certificates["n0"]
        await self.start_namesrv(0, **{"tls.server.certPath": own.cert, "tls.server.keyPath": own.key})

    async def member(self, name: str, **more: str) -> BrokerApp:
        own = self._certificates[name]
        return await self._start(name, {
            "brokerName": "group", "enableDLegerCommitLog": "true", "dLegerSelfId": name, "listenPort": "0",
            "dLegerPeers": ";".join(f"{one}-localhost:{port}" for one, port in self.ports.items()),
            "tls.server.mode": "enforcing", "tls.server.certPath": own.cert, "tls.server.keyPath": own.key,
            "tls.server.need.client.auth": "require", "tls.server.trustCertPath": self._trusted, **more,
        })  # fmt: skip


def all_of(folder: Path, made: dict[str, Certificate], names: tuple[str, ...]) -> str:
    """A file of those certificates."""
    path = folder / "trusted"
    path.write_text("".join(Path(made[name].cert).read_text() for name in names))
    return str(path)


def leader(cluster: Group) -> BrokerApp | None:
    for app in cluster.brokers:
        if app.group is not None and app.group.driver is not None and app.group.driver.takes_messages:
            return app
    return None


async def heard(port: int, data: bytes, context: ssl.SSLContext | None) -> bytes:
    """What somebody is told until the connection is closed."""
    reader, writer = await asyncio.open_connection("localhost", port, ssl=context)
    try:
        writer.write(data)
        return await asyncio.wait_for(reader.read(), PATIENCE)
    except (ConnectionError, ssl.SSLError):
        return b""
    finally:
        writer.close()


async def test_members_show_each_other_their_certificates(tmp_path: Path) -> None:
    made = {name: make_certificate(tmp_path, name) for name in ("n0", "n1", "n2", "strange")}
    trusted = all_of(tmp_path, made, ("n0", "n1", "n2"))
    async with Group(tmp_path, made, trusted) as cluster:
        for name in cluster.ports:
            await cluster.member(name)
        await eventually(lambda: leader(cluster), PATIENCE)
        leads = leader(cluster)
        assert leads is not None
        assert leads.group is not None
        me = leads.group.peers.members.me
        async with Producer(
            "p", namesrv=cluster.namesrv_addr, tls=True, tls_ca_file=trusted, tls_cert_file=made["n0"].cert,
            tls_key_file=made["n0"].key, tls_server_name="localhost",
        ) as producer:  # fmt: skip
            result = await producer.send(Message("Topic", SECRET))
            assert result.send_status.name == "SEND_OK"
            await eventually(lambda: len({app.store.log.end for app in cluster.brokers}) == 1, PATIENCE)

            other = next(name for name in cluster.ports if name != me)
            hello = Hello(
                "group", other, me, "guessed", "n0;n1;n2", leads.store.log.file_size, "127.0.0.1:1", "group"
            ).encode()
            plain = await heard(cluster.ports[me], hello, None)
            assert b"TLS, which is enforced here" in plain
            bare = await heard(cluster.ports[me], hello, client_context(verify=False))
            assert bare == b""
            strange = client_context(verify=False, cert=made["strange"].cert, key=made["strange"].key)
            assert await heard(cluster.ports[me], hello, strange) == b""
            # One of them, who does not know what the member was called when it was met.
            known = client_context(verify=False, cert=made["n0"].cert, key=made["n0"].key)
            assert b"another disk" in await heard(cluster.ports[me], hello, known)

            # Somebody with another certificate has a member's address: nothing is said to him.
            away = next(app for app in cluster.brokers if app.group and app.group.peers.members.me == other)
            await cluster.stop_broker(away)
            got: list[bytes] = []

            async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                got.append(await reader.read())
                writer.close()

            tried = asyncio.Event()
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(made["strange"].cert, made["strange"].key)
            context.sni_callback = lambda *_: tried.set()
            server = await asyncio.start_server(take, "127.0.0.1", cluster.ports[other], ssl=context)
            async with server:
                await producer.send(Message("Topic", SECRET))
                await asyncio.wait_for(tried.wait(), PATIENCE)
                await asyncio.sleep(0.5)
            assert b"".join(got) == b""
        assert leader(cluster) is leads


async def test_a_member_with_a_certificate_of_somebody_else_stays_outside(tmp_path: Path) -> None:
    made = {name: make_certificate(tmp_path, name) for name in ("n0", "n1", "n2")}
    trusted = all_of(tmp_path, made, ("n0", "n1"))
    async with Group(tmp_path, made, trusted) as cluster:
        apps = [await cluster.member(name) for name in cluster.ports]
        groups = [app.group for app in apps if app.group is not None]
        await eventually(
            lambda: all(group.member and len(group.member.meetings.met.others) == 1 for group in groups[:2]), PATIENCE
        )
        assert groups[0].view.missing == "the group begins once every member was met: n2 never was"
        assert leader(cluster) is None
        assert groups[2].member is not None
        assert groups[2].member.meetings.met.others == {}
