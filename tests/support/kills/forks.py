"""Broker processes that are forked from one that has imported everything: a start costs no half second of imports.

``python -m tests.support.kills.forks FD`` is that process. It gets requests over a socket (environment and descriptors)
and forks a keeper for each, which forks the broker and tells its process id and how it ended. A broker is a process of
its own as one that was executed: pid, directory, environment, standard streams and the limits of who asks; no thread
or loop is shared.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import gc
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

from tests.support.daemons import ROOT

__all__ = ["Forked", "fork"]

_LONGEST = 1 << 16
#: What a broker inherits of its tests, where one may have changed it.
_LIMITS = (resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)


class _Pipe(asyncio.StreamReaderProtocol):
    """The end of a pipe that is read, and when it is closed for good."""

    def __init__(self) -> None:
        self.reader = asyncio.StreamReader()
        self.closed = asyncio.get_running_loop().create_future()
        super().__init__(self.reader)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self.closed.set_result(None)


class Forked:
    """A process as asyncio's own: its streams, its end, signals to it."""

    def __init__(self, stdout: _Pipe, stderr: _Pipe, news: _Pipe) -> None:
        self.stdout = stdout.reader
        self.stderr = stderr.reader
        self.pid = 0
        self.returncode: int | None = None
        self._pipes = (stdout, stderr, news)
        self._news = news.reader
        self._told: asyncio.Task[None] | None = None

    async def begun(self) -> Forked:
        self.pid = int(await self._news.readline())
        self._told = asyncio.create_task(self._end())
        return self

    async def _end(self) -> None:
        self.returncode = os.waitstatus_to_exitcode(int(await self._news.readline()))
        for pipe in self._pipes:
            await pipe.closed

    async def wait(self) -> int:
        """Wait for its end; the exit code, negative for a signal."""
        assert self._told is not None
        await asyncio.shield(self._told)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Nothing happens when it has ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


async def fork(env: Mapping[str, str]) -> Forked:
    """A broker of :mod:`tests.support.faults.broker` with this environment, in its home."""
    request = {"env": dict(env), "limits": [(limit, resource.getrlimit(limit)) for limit in _LIMITS]}
    ours, theirs = zip(*(os.pipe() for _ in range(3)), strict=True)
    try:
        socket.send_fds(_parent(), [json.dumps(request).encode()], theirs)
    finally:
        for descriptor in theirs:
            os.close(descriptor)
    loop = asyncio.get_running_loop()
    pipes = [(await loop.connect_read_pipe(_Pipe, os.fdopen(descriptor)))[1] for descriptor in ours]
    return await Forked(*pipes).begun()


_here: list[socket.socket] = []


def _parent() -> socket.socket:
    """The socket to the process that forks, which is started when first asked for."""
    if not _here:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            words = [sys.executable, "-m", __spec__.name, str(theirs.fileno())]
            process = subprocess.Popen(words, cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        _here.append(ours)

        def close() -> None:
            ours.close()
            process.wait()

        atexit.register(close)
    return _here[0]


def _serve(requests: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers leave nothing to wait for
    gc.collect()
    gc.freeze()  # pages that no collection writes to stay shared
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, _LONGEST, 3)
        if not data:
            return
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            requests.close()
            _keep(json.loads(data), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _keep(request: dict[str, Any], stdout: int, stderr: int, news: int) -> NoReturn:
    code = 1
    try:
        pid = os.fork()
        if pid == 0:
            os.close(news)
            _become(request, stdout, stderr)
        os.close(stdout)
        os.close(stderr)
        os.write(news, b"%d\n" % pid)
        _, status = os.waitpid(pid, 0)
        os.write(news, b"%d\n" % status)
        code = 0
    finally:
        os._exit(code)


def _become(request: dict[str, Any], stdout: int, stderr: int) -> NoReturn:
    code = 1
    try:
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.close(stdout)
        os.close(stderr)
        os.environ.clear()
        os.environ.update(request["env"])
        os.chdir(os.environ["HOME"])
        for limit, values in request["limits"]:
            resource.setrlimit(limit, values)
        sys.argv = ["mqbroker"]
        try:
            broker.main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


if __name__ == "__main__":
    from tests.support.faults import broker  # with all of rmq; the tests' own process does not need it

    with socket.socket(fileno=int(sys.argv[1])) as asked:
        _serve(asked)
