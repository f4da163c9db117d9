"""OpenSSL's own client against the ports of our name server and broker (protocol.md 6.4)."""

from __future__ import annotations

import asyncio
import re
import struct
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from rmq.namesrv.app import NamesrvApp
from rmq.namesrv.settings import NamesrvSettings
from rmq.runtime.world import World
from rmq.testing.cluster import Cluster
from tests.support.peers import ToolMissing, require, skip_or_fail

VERSIONS = {"-tls1": "TLSv1", "-tls1_1": "TLSv1.1", "-tls1_2": "TLSv1.2", "-tls1_3": "TLSv1.3"}
#: What OpenSSL offers of TLS 1.0 and 1.1 it offers on this level of security alone.
_OLD = ("-cipher", "DEFAULT:@SECLEVEL=0")
#: GET_TOPIC_ROUTE of nothing in particular: both daemons answer it, with whatever code.
_HEADER = b'{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":7,"version":409}'
FRAME = struct.pack(">II", 4 + len(_HEADER), len(_HEADER)) + _HEADER
ANSWER = b'"opaque":7'


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Keys and certificates of a server, of a client and of a stranger, made by openssl."""
    try:
        require("openssl")
    except ToolMissing as missing:
        skip_or_fail(missing)
    folder = tmp_path_factory.mktemp("pems")
    made = {}
    for name in ("server", "client", "stranger"):
        made[f"{name}.key"], made[name] = str(folder / f"{name}.key"), str(folder / f"{name}.pem")
        words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
        subprocess.run([*words, "-keyout", made[f"{name}.key"], "-out", made[name]], check=True, capture_output=True)
    return made


@asynccontextmanager
async def daemons(folder: Path, **settings: str) -> AsyncIterator[dict[str, int]]:
    """Ports by daemon: a name server and a broker with these settings."""
    async with Cluster(folder, settings=settings) as cluster:
        apart = NamesrvSettings.from_sources(
            overrides={
                "bindAddress": "127.0.0.1",
                "listenPort": "0",
                "kvConfigPath": str(folder / "kv.json"),
                "configStorePath": str(folder / "apart.properties"),
                **settings,
            }
        )
        namesrv = NamesrvApp(World.real(), apart)
        await namesrv.start()
        try:
            yield {"namesrv": namesrv.address[1], "broker": cluster.brokers[0].address[1]}
        finally:
            await namesrv.stop()


async def s_client(port: int, *words: str, said: bytes = FRAME) -> str:
    """What openssl prints once it was answered, or gave up: of the session, and what came over it."""
    process = await asyncio.create_subprocess_exec(
        "openssl", "s_client", "-connect", f"127.0.0.1:{port}", *words,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    seen = b""
    try:
        with suppress(BrokenPipeError, ConnectionResetError):  # it gave up before it had read all
            process.stdin.write(said)
            while chunk := await process.stdout.read(1 << 16):
                seen += chunk
                if ANSWER in seen:
                    break
            process.stdin.close()
            seen += await process.stdout.read()
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return seen.decode(errors="replace")


def outcome(printed: str) -> str:
    """The version of the session over which there was an answer; ``refused`` without one."""
    if ANSWER.decode() not in printed:
        return "refused"
    found = re.search(r"Protocol *: (\S+)|New, (TLSv[\d.]+)", printed)
    assert found is not None, printed
    return found[1] or found[2]


async def plain(port: int, said: bytes = FRAME) -> bytes:
    """What a plain connection is answered until it ends, or the answer is there."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    seen = b""
    try:
        writer.write(said)
        while ANSWER not in seen and (chunk := await reader.read(1 << 16)):
            seen += chunk
    except ConnectionResetError:
        return seen
    finally:
        writer.close()
    return seen


@pytest.mark.parametrize("mode", ["disabled", "permissive", "enforcing"])
def test_versions_and_plain_bytes(mode: str, tmp_path: Path, pems: dict[str, str]) -> None:
    async def main() -> None:
        settings = {"tls.server.mode": mode, "tls.server.certPath": pems["server"]}
        async with daemons(tmp_path, **settings, **{"tls.server.keyPath": pems["server.key"]}) as ports:
            for name, port in ports.items():
                found = {
                    version: outcome(await s_client(port, word, *(_OLD if word != "-tls1_3" else ())))
                    for word, version in VERSIONS.items()
                }
                wanted = {version: version if version in ("TLSv1.2", "TLSv1.3") else "refused" for version in found}
                if mode == "disabled":
                    wanted = dict.fromkeys(found, "refused")
                assert found == wanted, name
                assert (ANSWER in await plain(port)) == (mode != "enforcing"), name

    asyncio.run(main())


@pytest.mark.parametrize("demand", ["optional", "require"])
def test_certificates_of_clients(demand: str, tmp_path: Path, pems: dict[str, str]) -> None:
    async def main() -> None:
        settings = {
            "tls.server.certPath": pems["server"],
            "tls.server.keyPath": pems["server.key"],
            "tls.server.need.client.auth": demand,
            "tls.server.trustCertPath": pems["client"],
        }
        async with daemons(tmp_path, **settings) as ports:
            for name, port in ports.items():
                for version in ("-tls1_2", "-tls1_3"):
                    shown = {
                        who: outcome(
                            await s_client(
                                port, version, *(("-cert", pems[who], "-key", pems[f"{who}.key"]) if who else ())
                            )
                        )
                        for who in ("", "client", "stranger")
                    }
                    served = VERSIONS[version]
                    assert shown == {
                        "": served if demand == "optional" else "refused", "client": served, "stranger": "refused",
                    }, (name, version)  # fmt: skip

    asyncio.run(main())


def test_renegotiation_is_refused(tmp_path: Path, pems: dict[str, str]) -> None:
    """A client that asks again and again for the dear part of a handshake."""

    async def main() -> None:
        settings = {"tls.server.certPath": pems["server"], "tls.server.keyPath": pems["server.key"]}
        async with daemons(tmp_path, **settings) as ports:
            for port in ports.values():
                printed = await s_client(port, "-tls1_2", said=b"R\n" + FRAME)
                assert "RENEGOTIATING" in printed
                assert "no renegotiation" in printed
                assert outcome(await s_client(port, "-tls1_2")) == "TLSv1.2"

    asyncio.run(main())
