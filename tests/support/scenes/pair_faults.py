"""A SYNC_MASTER and its slaves under kills and cuts that a seed chooses: I1, I8 and I9 of reliability.md hold."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from rmq.runtime.real import seeded
from rmq.testing.simloop import run
from rmq.testing.simworld import SimOffload
from tests.support.scenes.replication import PUT_OK, Pair, RawSlave, Sender, log_bytes, pair, raw_slave
from tests.support.virtual import eventually

__all__ = ["a_pair_under_faults", "pairs_under_faults", "two_of_one_slave"]

#: ``slaveTimeout`` and a rounding.
_LONGEST = 3.01
_STEPS = 40


class _Judge(Sender):
    """A sender that looks, at each answer, whether it is true."""

    def __init__(self, p: Pair) -> None:
        super().__init__(p)
        self.wrong: list[str] = []
        #: The highest end that was promised.
        self.promised = 0

    def answered(self, end: int, code: int) -> None:
        settings = self.p.settings
        if code == PUT_OK:
            self.promised = max(self.promised, end)
            flushed = settings.ha_ack_after_flush
            having = sum(
                (slave.store.durable_end() if flushed else slave.store.log.end) >= end for slave in self.p.slaves
            )
            if having < settings.ha_ack_slaves:
                self.wrong.append(f"I1: SEND_OK up to {end}, which {having} slaves have")
        elif self.p.master.durability.visible < end:
            self.wrong.append(f"I9: answered with {code}, and kept from consumers: {end}")

    def check(self) -> None:
        """Nothing was wrong, and nobody waited for longer than he should."""
        assert not self.wrong, self.wrong[0]
        slow = max((seconds for _, seconds in self.answers.values()), default=0.0)
        assert slow <= _LONGEST, f"I9: an answer took {slow:.2f} s"


async def _campaign(seed: int, *, after_flush: bool, slaves: int, needed: int, rough: bool) -> None:
    rng = seeded(seed)
    async with pair(
        slaves=slaves, sync=True, ha_ack_after_flush=after_flush, ha_ack_slaves=needed, ha_copy_from_first_file=True,
        ha_transfer_batch_size=rng.choice((100, 5000, 32_768)), ha_check_crc=rng.random() < 0.5,
    ) as p:  # fmt: skip
        judge = _Judge(p)

        async def send() -> None:
            for _ in range(rng.randrange(1, 8)):
                judge.send()

        async def kill_slave() -> None:
            number = rng.randrange(slaves)
            if p.slaves[number].alive:
                await p.kill_slave(number, power=after_flush and rng.random() < 0.5)

        async def start_slave() -> None:
            for number in range(slaves):
                if not p.slaves[number].alive:
                    await p.restart_slave(number)

        async def restart_master() -> None:
            judge.check()
            await p.kill_master()
            await asyncio.sleep(rng.random() * 10)
            await p.start_master()

        async def cut() -> None:
            p.simulation.net.cut("10.0.0.1", f"10.0.0.{2 + rng.randrange(slaves)}")

        async def heal() -> None:
            p.simulation.net.heal()

        async def jump() -> None:
            """A wall clock goes wrong, forward or back."""
            rng.choice(list(p.simulation.nodes.values())).clock.skew_ms = rng.randrange(-7_200_000, 7_200_000)

        async def slow() -> None:
            """A disk or the network is slow from now on, or quick again."""
            if rng.random() < 0.5:
                p.simulation.net.latency = rng.choice((0.0002, 0.01, 0.2))
                return
            offload = rng.choice(list(p.simulation.nodes.values())).world.offload
            assert isinstance(offload, SimOffload)
            offload.delay = rng.choice((0.0005, 0.02, 0.7))

        async def swap() -> None:
            """Both die, and the slave's is the master from now on."""
            judge.check()
            at = await p.swap(0)
            if at < judge.promised:
                judge.wrong.append(f"I1: SEND_OK up to {judge.promised}, and the slave has the log up to {at}")
            judge.promised = 0

        steps: tuple[Callable[[], Awaitable[None]], ...] = (
            send, send, send, send, kill_slave, start_slave, start_slave, restart_master, cut, heal, heal
        )  # fmt: skip
        if rough:
            steps += (jump, slow, slow, swap, send)
        for _ in range(_STEPS):
            await rng.choice(steps)()
            await asyncio.sleep(rng.choice((0.0, 0.0001, 0.001, 0.1, 1.0, 7.0, 25.0)))
        p.simulation.net.heal()
        await start_slave()
        for slave in p.slaves:
            await eventually(lambda: slave.store.log.end == p.master.log.end, within=300)  # noqa: B023
            start = slave.store.log.start
            assert log_bytes(slave.store) == log_bytes(p.master, start), "I8: the logs differ"
        await asyncio.sleep(_LONGEST)
        judge.check()
        assert p.master.durability.visible == p.master.log.end, "I9: what all have is kept from consumers"


def a_pair_under_faults(
    seed: int, *, after_flush: bool = False, slaves: int = 1, needed: int = 1, rough: bool = False
) -> None:
    """One seed.

    :param rough: with clocks that jump, slow disks and links, and masters whose slave takes their place.
    """
    run(_campaign(seed, after_flush=after_flush, slaves=slaves, needed=needed, rough=rough))


def pairs_under_faults() -> None:
    """Some seeds of each kind."""
    for seed in range(4):
        a_pair_under_faults(seed)
        a_pair_under_faults(seed, after_flush=True)
        a_pair_under_faults(seed, slaves=3, needed=2)
        a_pair_under_faults(seed, rough=True)


class _Twin(RawSlave):
    """A second connection of a slave: it acknowledges whatever comes, and keeps nothing."""

    def __init__(self) -> None:
        super().__init__(reads=True)
        self.taken = 0

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        while len(self.got) >= 12:
            size = int.from_bytes(self.got[8:12], "big")
            if len(self.got) < 12 + size:
                return
            self.taken = int.from_bytes(self.got[:8], "big") + size
            self.got = self.got[12 + size :]
            self.report(self.taken)


def two_of_one_slave() -> None:
    """Two slaves are to have a message, and one of them is connected twice."""

    async def main() -> None:
        async with pair(sync=True, ha_ack_slaves=2, ha_copy_from_first_file=True) as p:
            judge = _Judge(p)
            await eventually(lambda: len(p.service.slaves()) == 1)
            twin = await raw_slave(p, "slave1", _Twin())
            twin.report(0)
            await eventually(lambda: len(p.service.slaves()) == 2)
            for _ in range(10):
                judge.send()
                await asyncio.sleep(0.5)
            judge.check()
            assert {code for code, _ in judge.answers.values()} == {11}, "I9: a slave that is there twice is one"

    run(main())
