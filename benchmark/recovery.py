"""How long a broker takes to serve again, both brokers on one big store: ``python -m benchmark.recovery``.

The store is made with our own append (7.8 million messages of 1 KB, 9 GB; ``--messages``), opened by both brokers in
turn with the same settings, and measured from the start of the process to its ready line and to the first acknowledged
message: after a clean stop, after kill -9 under load, the same as if the machine had been booted since, and (ours,
unless ``--java-bare``) with consume queues, index and checkpoint gone. While the index is built behind the running
broker, what a key query says is shown, and how long sends take meanwhile. Exit code 1 when we are slower than Java
after a clean stop or kill -9, or serve later than 40 s with everything derived gone.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmark.big_store import TOPIC, fill, unique_key
from benchmark.program import BenchmarkError, compile_load, run_load
from benchmark.servers import JAVA, OURS, PROPERTIES, check_java
from rmq.broker.store.start.checkpoint import Checkpoint
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.runtime.world import World
from tests.support.peers import Cluster, start_cluster
from tests.support.peers.process import Daemon, ProcessFailed
from tests.support.raw_peer import RawPeer, pull

PARTS = ("clean", "kill", "boot", "bare")
_DERIVED = ("consumequeue", "index", "checkpoint")
_BARE_BOUND = 40.0
_PATIENCE = 600.0


class Starts:
    """The starts of one broker on the store."""

    def __init__(self, kind: str, store: Path, program: Path, *, heap: str) -> None:
        self.kind = kind
        self.store = store
        self._program = program
        properties = {**PROPERTIES, "storePathRootDir": str(store), "storePathCommitLog": str(store / "commitlog")}
        # Made without messages, so that nothing of the store is read before the first measurement.
        self._waiting = store.with_name("waiting")
        store.rename(self._waiting)
        try:
            self.cluster: Cluster = start_cluster(kind, properties=properties, java_options=(f"-Xmx{heap}",))
            self._stop()
        finally:
            shutil.rmtree(store, ignore_errors=True)
            self._waiting.rename(store)

    @property
    def daemon(self) -> Daemon:
        return self.cluster.brokers[0].daemon

    @property
    def addr(self) -> str:
        return self.cluster.broker_addr

    def _stop(self) -> None:
        self.daemon.stop(60)

    def close(self) -> None:
        self.cluster.stop()

    def start(self, what: str) -> float:
        """Start the broker; seconds to the first acknowledged message."""
        begun = time.monotonic()
        self.daemon.start(timeout=_PATIENCE)
        ready = time.monotonic() - begun
        self._send_one()
        acknowledged = time.monotonic() - begun
        print(f"{what:28}{self.kind:12} ready {ready:6.1f} s   first ack {acknowledged:6.1f} s", flush=True)
        return acknowledged

    def _send_one(self) -> None:
        deadline = time.monotonic() + 30
        while True:
            try:
                if not run_load(self._program, "send", self.addr, messages=1, seconds=10, topic=TOPIC).problem:
                    return
            except BenchmarkError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.02)

    def clean(self) -> float:
        """After a clean stop."""
        self.daemon.start(timeout=_PATIENCE)
        self._send_one()
        if self.kind == OURS:
            # The other broker may have stopped last: its index is checked behind ours, and a stop before that is
            # done is not a clean one.
            asyncio.run(self._index_built())
        self._stop()
        took = self.start("after a clean stop")
        self._stop()
        return took

    def kill(self, *, booted: bool = False) -> float:
        """After kill -9 while it was sent to.

        :param booted: our broker finds no note of this boot, as after a power cut; to Java all boots are alike.
        """
        self.daemon.start(timeout=_PATIENCE)
        load = run_load(self._program, "send", self.addr, connections=4, in_flight=8, seconds=2, topic=TOPIC)
        self.daemon.kill()
        if booted and self.kind == OURS:
            checkpoint = Checkpoint(World.real().files, str(self.store / "checkpoint"))
            checkpoint.load()
            checkpoint.forget_forced()
            checkpoint.save()
        took = self.start(f"{'as after a boot' if booted else 'after kill -9'} ({load.acknowledged} sends)")
        self._stop()
        return took

    def bare(self, number: int) -> float:
        """With everything derived gone, after kill -9."""
        self.daemon.start(timeout=_PATIENCE)
        self.daemon.kill()
        for name in _DERIVED:
            path = self.store / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        took = self.start("nothing but the log")
        asyncio.run(self._served(number))
        if self.kind == OURS:
            asyncio.run(self._key_query(number))
        self._stop()
        return took

    async def _index_built(self) -> None:
        host, _, port = self.addr.rpartition(":")
        async with RawPeer(host, int(port)) as peer:
            while b"indexBuild" in (await peer.ask(Command(RequestCode.GET_BROKER_RUNTIME_INFO))).body:  # noqa: ASYNC110
                await asyncio.sleep(0.5)

    async def _served(self, number: int) -> None:
        host, _, port = self.addr.rpartition(":")
        async with RawPeer(host, int(port)) as peer:
            answer = await peer.ask(pull(topic=TOPIC, offset=number // 8))
            if answer.code != ResponseCode.SUCCESS or not answer.body:
                raise BenchmarkError(f"benchmark: a pull after the start got code {answer.code}: {answer.remark}")

    async def _key_query(self, number: int) -> None:
        """Ask for one of the last keys until it is found; how long sends take meanwhile."""
        begun = time.monotonic()
        host, _, port = self.addr.rpartition(":")
        ext = {"topic": TOPIC, "key": unique_key(number).decode(), "maxNum": "32", "beginTimestamp": "0"}
        ext |= {"endTimestamp": str(1 << 62), "_UNIQUE_KEY_QUERY": "true"}
        told = ""
        async with RawPeer(host, int(port)) as peer:
            while True:
                answer = await peer.ask(Command(RequestCode.QUERY_MESSAGE, ext=dict(ext)))
                if answer.code == ResponseCode.SUCCESS and not answer.remark:
                    break
                if (answer.remark or "") != told:
                    told = answer.remark or ""
                    print(f"  key query: {told}", flush=True)
                load = await asyncio.to_thread(
                    run_load, self._program, "send", self.addr, seconds=3.0, topic=TOPIC, warm=0.1
                )
                print(f"  meanwhile a send takes p50 {load.p50_us:.0f} us, p99 {load.p99_us / 1000:.1f} ms, "
                      f"at most {load.max_us / 1000:.0f} ms", flush=True)  # fmt: skip
        print(f"  keys are found {time.monotonic() - begun:.1f} s after the first acknowledged message", flush=True)


def warm(store: Path) -> None:
    """Have the log in the page cache, for both brokers alike."""
    for path in sorted((store / "commitlog").iterdir()):
        with path.open("rb", buffering=0) as file:
            while file.read(8 << 20):
                continue


def run(options: argparse.Namespace) -> int:
    kinds = [OURS] if options.quick else [JAVA, OURS]
    if not options.quick:
        check_java()
    program = compile_load()
    folder = Path(tempfile.mkdtemp(prefix="rmq-recovery-", dir=options.folder))
    store = options.store or folder / "store"
    broken: list[str] = []
    starts: dict[str, Starts] = {}
    try:
        if not store.exists():
            took = fill(store, options.messages, options.body)
            print(f"made a store of {options.messages} messages of {options.body} bytes in {took:.0f} s", flush=True)
        for kind in kinds:
            starts[kind] = Starts(kind, store, program, heap=options.heap)
        warm(store)
        for part in options.parts or PARTS:
            best: dict[str, float] = {}
            for kind in kinds:
                if part == "bare":
                    if kind == OURS or options.java_bare:
                        best[kind] = starts[kind].bare(options.messages - 1)
                    continue
                one = starts[kind]
                measure = one.clean if part == "clean" else functools.partial(one.kill, booted=part == "boot")
                best[kind] = min(measure() for _ in range(options.rounds))
            if JAVA in best and OURS in best:
                print(f"{part}: ours takes {best[OURS] / best[JAVA]:.2f} of Java's time", flush=True)
                if best[OURS] > best[JAVA] and part != "boot":
                    broken.append(f"{part}: ours {best[OURS]:.1f} s, Java {best[JAVA]:.1f} s")
            if part == "bare" and best[OURS] > _BARE_BOUND:
                broken.append(f"{part}: {best[OURS]:.1f} s, at most {_BARE_BOUND:.0f} s")
    finally:
        for one in starts.values():
            one.close()
        if options.store is None:
            shutil.rmtree(folder, ignore_errors=True)
    for line in broken:
        print(f"too slow: {line}")
    return 1 if broken else 0


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmark.recovery", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help=", ".join(PARTS))
    parser.add_argument("--messages", type=int, default=7_800_000)
    parser.add_argument("--body", type=int, default=1024, help="bytes of a message's body (1024)")
    parser.add_argument("--rounds", type=int, default=1, help="starts of each kind, of which the best counts (1)")
    parser.add_argument("--quick", action="store_true", help="our broker only")
    parser.add_argument("--java-bare", action="store_true", help="start Java with everything derived gone, too")
    parser.add_argument("--heap", default="2g", help="the JVM's heap (2g)")
    parser.add_argument("--folder", help="where the store is made (the temporary folder)")
    parser.add_argument("--store", type=Path, metavar="DIR", help="use this store, or make it there, and keep it")
    try:
        return run(parser.parse_args(words))
    except (BenchmarkError, ProcessFailed) as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
