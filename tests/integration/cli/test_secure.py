"""``rmq secure init``, and the commands that it prints, run as they stand there; then those who do not belong."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from rmq.aio import AccessDenied, AdminClient, Message, Producer, TransportError
from tests.support.certificates import make_certificate
from tests.support.daemons import PATIENCE, ROOT, environment, run, running
from tests.support.peers.ports import broker_port, free_port

PAGE = (ROOT / "docs/securing.md").read_text()
#: The folder that the page has.
HOME = "/srv/rmq/secured"
COMMANDS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[1].splitlines()
PROGRAM = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[0]


def on_the_page(line: str, folder: Path, ports: tuple[str, ...]) -> str:
    """A command as it stands there, with the folder and the port of the page."""
    words = [
        word.replace(str(folder), HOME).replace(f"127.0.0.1:{ports[1]}", "127.0.0.1:9876") for word in shlex.split(line)
    ]
    return " ".join(word if word == "&" else shlex.quote(word) for word in words)


async def ended(words: list[str], env: dict[str, str]) -> str:
    """What a program prints, which ends well."""
    if words[0] != "python":
        found = await run(words[0], *words[1:], env=env)
        assert found.code == 0, found
        return found.out
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words[1:], env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(PATIENCE):
        out, err = await process.communicate()
    assert (process.returncode, err.decode()) == (0, "")
    return out.decode()


async def test_its_commands_start_a_cluster_that_takes_nobody_else(tmp_path: Path) -> None:
    folder = tmp_path / "it's secured"
    env = environment(tmp_path)
    del env["RMQ_BIND_ADDRESS"]
    namesrv = free_port()
    ports = ("--namesrv-port", str(namesrv), "--broker-port", str(broker_port()))
    made = await run("rmq", "secure", "init", str(folder), *ports, env=env)
    assert made.code == 0, made
    lines = re.findall(r"^  (.*)$", made.out, re.MULTILINE)
    assert [on_the_page(line, folder, ports) for line in lines] == COMMANDS
    commands = [shlex.split(line) for line in lines]
    assert [words[0] for words in commands] == [
        "mqnamesrv", "mqbroker", "export", "mqadmin", "mqadmin", "python", "rmq",
    ]  # fmt: skip
    said: list[str] = []
    async with AsyncExitStack() as stack:
        for words in commands:
            if words[-1] == "&":
                await stack.enter_async_context(running(words[0], *words[1:-1], env=env))
            elif words[0] == "export":
                env |= dict(word.split("=", 1) for word in words[1:])
            else:
                said.append(await ended(words, env))
        assert "broker-a" in said[0]
        assert "TopicTest" in said[1]
        assert said[2:] == ["SEND_OK\n", "nothing that rmq secure check knows of is open\n"]
        await _who_does_not_belong_is_refused(f"127.0.0.1:{namesrv}", folder, tmp_path)
        program = PROGRAM.replace(HOME, str(folder)).replace("127.0.0.1:9876", f"127.0.0.1:{namesrv}")
        assert await ended(["python", "-c", program], env) == "SEND_OK\n"
        await _certificates_are_renewed_while_they_serve(f"127.0.0.1:{namesrv}", folder, env)


async def _who_does_not_belong_is_refused(namesrv: str, folder: Path, elsewhere: Path) -> None:
    trusts: Any = {"namesrv": namesrv, "tls": True, "tls_ca_file": str(folder / "ca.pem")}
    async with Producer("p", **trusts) as producer:
        with pytest.raises(AccessDenied, match="No accessKey"):
            await producer.send(Message("TopicTest", b"x"))
    async with AdminClient(**trusts, access_key="application", secret_key="not the secret") as admin:
        with pytest.raises(AccessDenied, match="signature"):
            await admin.cluster_info()
    async with AdminClient(namesrv=namesrv) as admin:
        with pytest.raises(TransportError, match="perhaps it takes TLS only"):
            await admin.cluster_info()
    stranger = make_certificate(elsewhere, "stranger")
    async with AdminClient(namesrv=namesrv, tls=True, tls_ca_file=stranger.cert) as admin:
        with pytest.raises(TransportError, match="its TLS certificate is not trusted"):
            await admin.cluster_info()
    shows: Any = {"tls_cert_file": stranger.cert, "tls_key_file": stranger.key}
    async with AdminClient(**trusts, **shows) as admin:
        with pytest.raises(TransportError, match="it does not trust our TLS certificate"):
            await admin.cluster_info()


async def _certificates_are_renewed_while_they_serve(namesrv: str, folder: Path, env: dict[str, str]) -> None:
    renewed = await run("rmq", "secure", "renew", str(folder), "--days", "20", env=env)
    assert renewed.code == 0, renewed
    found = await run("rmq", "secure", "check", "-n", namesrv, env=env)
    assert found.code == 1
    assert [line.partition(": it ends on")[1] for line in found.out.splitlines()] == [": it ends on"] * 2, found.out
    with contextlib.chdir(folder):  # a file says where others are, from its own place
        async with Producer("p", namesrv=namesrv, credentials_file="client.yml") as producer:
            assert (await producer.send(Message("TopicTest", b"x"))).ok
