"""Tests of settings that take effect while running: each sees what its keys do, or it fails."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine

import pytest

from rmq.auth.credentials import Credentials, Signer
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.message import decode_records
from rmq.remoting.client import RemotingClient
from rmq.remoting.conn import Conn
from rmq.remoting.router import handles
from rmq.testing import simloop
from tests.support.accounts import ACCOUNTS, SECRET
from tests.support.raw_peer import pull
from tests.support.scenes.pop import PopScene

__all__ = ["SEEN", "LiveScene", "Told", "live"]

#: The keys that some test sees the effect of.
SEEN: set[str] = set()


class Told:
    """A client that notes what the broker tells it of its own."""

    def __init__(self, scene: PopScene) -> None:
        self.commands: list[Command] = []
        self.client = RemotingClient(scene.outside)
        self.client.router.add(self)
        self._scene = scene

    async def ask(self, command: Command) -> Command:
        return await self.client.request(self._scene.addr, command, 120.0)

    @handles(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, RequestCode.CHECK_TRANSACTION_STATE)
    def told(self, conn: Conn, request: Command) -> None:
        self.commands.append(request)


class LiveScene(PopScene):
    """A broker whose settings are changed by request, and a client.

    :param unheard: a key whose changes the broker only says that it takes.
    """

    def __init__(self, settings: dict[str, str], unheard: str | None) -> None:
        super().__init__(1, settings)
        self._unheard = unheard
        #: The keys that were changed.
        self.changed: set[str] = set()

    async def update(self, **values: object) -> None:
        self.changed |= values.keys()
        heard = {key: value for key, value in values.items() if key != self._unheard}
        if heard:
            body = "\n".join(
                f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in heard.items()
            )
            answer = await self.ask(RequestCode.UPDATE_BROKER_CONFIG, None, body.encode())
            assert answer.code == 0, answer.remark

    async def tell(self, command: Command) -> Command:
        return await self.client.request(self.addr, command, 120.0)

    async def code(self, command: Command) -> int:
        return (await self.tell(command)).code

    async def pulled(self, group: str = "G", topic: str = "T", offset: int = 0) -> list[str]:
        """The bodies that one pull gets."""
        answer = await self.tell(pull(group, topic, offset))
        return [record.body.decode() for record in decode_records(answer.body)] if answer.code == 0 else []

    async def took(self, what: Coroutine[object, object, object]) -> float:
        """Seconds that something took."""
        began = asyncio.get_running_loop().time()
        await what
        return asyncio.get_running_loop().time() - began


Case = Callable[[LiveScene], Coroutine[object, object, None]]


def live(*keys: str, **settings: str) -> Callable[[Case], Callable[[str | None], None]]:
    """A test that changes these keys and sees what each of them does.

    It passes, and for each key it fails with a broker that says that it takes the key and does not: so that a test that
    sees nothing is one that fails.

    :param settings: what the broker is begun with; with ``aclEnable`` there are the usual accounts, and the scene's
        client is the operator.
    """
    SEEN.update(keys)

    def mark(case: Case) -> Callable[[str | None], None]:
        @pytest.mark.parametrize("unheard", [None, *keys])
        @functools.wraps(case)
        def test(unheard: str | None) -> None:
            simloop.run(_run(case, keys, settings, unheard))

        del test.__wrapped__  # type: ignore[attr-defined]  # or pytest asks it for the names of fixtures
        return test

    return mark


async def _run(case: Case, keys: tuple[str, ...], settings: dict[str, str], unheard: str | None) -> None:
    scene = LiveScene(settings, unheard)
    if settings.get("aclEnable"):
        scene.node.files.mkdir("/home/conf")
        scene.node.files.write_atomic("/home/conf/plain_acl.yml", ACCOUNTS.encode())
        scene.client.hooks.append(Signer(Credentials("operator", SECRET)))
    await scene.start()
    try:
        await scene.topic()
        if unheard is None:
            await case(scene)
            assert scene.changed >= set(keys)
        else:
            with pytest.raises(AssertionError):
                await case(scene)
    finally:
        await scene.client.close()
        await scene.app.stop()
