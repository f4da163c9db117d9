"""A group of brokers as processes, for tests that kill them, cut them off, and make their disks and clocks wrong."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path

from rmq.aio import AdminClient
from rmq.config.sources import environment_name
from rmq.protocol.errors import RMQError
from rmq.runtime import patience
from tests.support.daemons import environment, running
from tests.support.faults.sickness import Sickness
from tests.support.kills.killer import BrokerProcess, OsTree
from tests.support.kills.power import PoweredBroker
from tests.support.peers.ports import broker_port, free_port
from tests.support.raft.wires import Line
from tests.support.store_scan import Record, scan_log

__all__ = ["FILE_SIZE", "NAMES", "ProcessGroup"]

#: Of the commit log, bytes.
FILE_SIZE = 1 << 20
NAMES = ("n0", "n1", "n2")
#: Calls of a test at the leader: while it is asked another one may lead, on a machine that stands still now and then.
_TRIES = 5
_LEADS = re.compile(r"this member leads the group in term (\d+)")


class ProcessGroup:
    """A name server, and a group on this machine.

    :param size: members.
    :param lines: members reach each other over lines that a test may silence.
    :param sick: :attr:`sickness` of each makes its disk and its clock wrong.
    :param power: what members do to their disks is written down, so that :meth:`cut_power` can take it back.
    :param bug: of ``tests/fault/test_planted_bugs.py``, to plant in every member.
    :param settings: of every member, by their Java names.
    """

    def __init__(
        self,
        folder: Path,
        *,
        size: int = 3,
        lines: bool = False,
        sick: bool = False,
        power: bool = False,
        bug: str = "",
        settings: dict[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.names = tuple(f"n{number}" for number in range(size))
        self.namesrv = f"127.0.0.1:{free_port()}"
        self.ports = {name: broker_port() for name in self.names}
        self._at = {name: free_port() for name in self.names}
        self._settings = settings or {}
        #: From one member to another.
        self.lines = {(one, to): Line(self._at[to]) for one in self.names for to in self.names if lines and one != to}
        self.sickness: dict[str, Sickness] = {}
        for name in self.names if sick else ():
            (folder / name).mkdir(parents=True)
            self.sickness[name] = Sickness(folder / name / "sickness")
        self._power = power
        self._bug = bug
        self._members: dict[str, BrokerProcess] = {}
        self._stack = AsyncExitStack()
        #: Members that stand still, and are not waited for.
        self._asking = AdminClient(namesrv=self.namesrv, mq_client_api_timeout=1.0)

    @property
    def up(self) -> list[str]:
        """Members whose processes run."""
        return [name for name, member in self._members.items() if member.running]

    def address(self, name: str) -> str:
        """Where clients reach a member."""
        return f"127.0.0.1:{self.ports[name]}"

    def store(self, name: str) -> Path:
        return self.folder / name / "store"

    async def __aenter__(self) -> ProcessGroup:
        for line in self.lines.values():
            await line.open()
            self._stack.push_async_callback(line.close)
        home = self.folder / "namesrv"
        home.mkdir()
        port = self.namesrv.rpartition(":")[2]
        env = environment(home, RMQ_LISTEN_PORT=port)
        await self._stack.enter_async_context(running("mqnamesrv", env=env))
        await self._stack.enter_async_context(self._asking)
        self._members = {name: self._member(name) for name in self.names}
        for member in self._members.values():
            await self._stack.enter_async_context(member)
        await self.begin(*self.names)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def _member(self, name: str) -> BrokerProcess:
        settings = {
            "brokerName": "group",
            "namesrvAddr": self.namesrv,
            "listenPort": str(self.ports[name]),
            "mappedFileSizeCommitLog": str(FILE_SIZE),
            "mappedFileSizeConsumeQueue": "80000",
            "enableDLegerCommitLog": "true",
            "dLegerGroup": "group",
            "dLegerPeers": self._peers(name),
            "dLegerSelfId": name,
            **self._settings,
        }
        made = {environment_name("RMQ_", key): value for key, value in settings.items()}
        if name in self.sickness:
            made["RMQTEST_SICKNESS"] = str(self.folder / name / "sickness")
        if self._bug:
            made["RMQTEST_BUG"] = self._bug
        kind = PoweredBroker if self._power else BrokerProcess
        return kind(self.folder / name, **made)

    def _peers(self, name: str) -> str:
        at = {to: self._at[to] if (line := self.lines.get((name, to))) is None else line.port for to in self.names}
        return ";".join(f"{one}-127.0.0.1:{port}" for one, port in at.items())

    async def begin(self, *names: str) -> None:
        """Start members as processes, side by side."""
        await asyncio.gather(*(self._members[name].start() for name in names))

    def signal(self, name: str, number: int) -> None:
        """SIGSTOP, SIGCONT."""
        self._members[name].signal(number)

    async def kill(self, *names: str) -> None:
        """kill -9, all at once."""
        for name in names:
            self._members[name].signal(9)
        for name in names:
            await self._members[name].wait()

    def wipe(self, name: str) -> None:
        """A member that is dead gets an empty disk."""
        shutil.rmtree(self.store(name))

    def has_returned(self, name: str) -> bool:
        """Whether a member that has lost its disk is counted again, by its own word."""
        folder = self.store(name) / "raft"
        if not (folder / "vote").exists() or not (folder / "members").exists():
            return False
        vote, members = (json.loads((folder / file).read_bytes()) for file in ("vote", "members"))
        return bool(members["returned"] and not vote["returning"])

    def cut_power(self, name: str, seed: int) -> int:
        """The power of a member that was killed goes, too: what was not forced is lost, kept or torn, as it falls.

        :return: forcing calls that had ended in its life.
        """
        member = self._members[name]
        assert isinstance(member, PoweredBroker)
        return member.cut_power(seed)

    async def stop(self, *names: str) -> None:
        """Stop members cleanly, one after the other; without a name, all that run."""
        for name in names or self.up:
            code = await self._members[name].stop()
            assert code == 0, (name, code, self._members[name].errors)

    async def leader(self, *but: str, among: Iterable[str] | None = None) -> str:
        """Wait until a member leads that is none of those; its name."""
        async with patience.timeout(90):
            while True:
                for name in self.names if among is None else among:
                    if name in self.up and name not in but and (await self._told(name)).get("brokerRole") == "master":
                        return name
                await asyncio.sleep(0.1)

    async def asked(self, ask: Callable[[str], Awaitable[object]]) -> str:
        """Ask whoever leads for something, again where that fails; the name of the member that has done it.

        :param ask: gets the leader's address; what it asks for may have been done before.
        """
        for left in reversed(range(_TRIES)):
            name = await self.leader()
            try:
                await ask(self.address(name))
            except RMQError:
                if not left:
                    raise
            else:
                break
        return name

    async def alike(self, within: float = 90.0) -> None:
        """Wait until all members that run have the same log, and show all of it."""
        async with patience.timeout(within):
            while True:
                found = [await self._told(name) for name in self.up]
                if len({told.get("commitLogMaxOffset") for told in found}) == 1 and all(
                    told.get("dispatchBehindBytes") == "0" for told in found
                ):
                    return
                await asyncio.sleep(0.1)

    async def _told(self, name: str) -> dict[str, str]:
        """What a member says of itself; nothing, if it does not answer at once."""
        try:
            return await self._asking.broker_runtime_stats(self.address(name))
        except RMQError:
            return {}

    def logs(self) -> dict[str, list[Record]]:
        """What every member has, read without code of the product; they are the same as far as they go."""
        found = {
            name: scan_log(OsTree(), str(self.store(name) / "commitlog"), FILE_SIZE).records for name in self.names
        }
        starts = [records[0].offset for records in found.values() if records]
        for records in found.values():
            del records[: next((at for at, one in enumerate(records) if one.offset >= max(starts)), len(records))]
        shortest = min(len(records) for records in found.values())
        raw = {name: [record.raw for record in records[:shortest]] for name, records in found.items()}
        assert len({tuple(one) for one in raw.values()}) == 1, "the logs of the members differ"
        return found

    def terms(self) -> dict[int, set[str]]:
        """Who led in each term, by the members' own words."""
        found: dict[int, set[str]] = {}
        for name in self.names:
            for term in _LEADS.findall(self._said(name)):
                found.setdefault(int(term), set()).add(name)
        return found

    def stalls(self) -> int:
        """How often members have said that they stood still for longer than loopStallWarnMills."""
        return sum(self._said(name).count("the event loop stood still for") for name in self.names)

    def _said(self, name: str) -> str:
        """All that a member has logged."""
        paths = (self.folder / name / "logs").glob("broker.log*")
        return "".join(path.read_text(encoding="utf-8", errors="replace") for path in paths)
