"""The real file tree keeps the port's promises."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from rmq.runtime import files as files_module
from rmq.runtime.files import RealFile, RealFiles
from rmq.runtime.world import World


@pytest.fixture
def tree() -> RealFiles:
    return RealFiles()


def test_reads_writes_and_sizes(tree: RealFiles, tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    with pytest.raises(FileNotFoundError):
        tree.open(path)
    file = tree.open(path, create=True)
    file.pwrite(b"hello", 3)
    file.pwrite(bytearray(b"x"), 0)
    file.pwrite(memoryview(b"yz"), 1)
    assert file.pread(100, 0) == b"xyzhello"
    assert file.pread(3, 100) == b""
    file.allocate(1 << 20)
    file.allocate(10)
    assert file.size() == tree.size(path) == 1 << 20
    assert os.stat(path).st_blocks * 512 < 1 << 20  # sparse
    assert file.pread(10, (1 << 20) - 4) == b"\0\0\0\0"
    file.truncate(4)
    file.datasync()
    assert tree.read(path) == b"xyzh"
    file.close()
    file.close()
    reader = tree.open(path, readonly=True)
    with pytest.raises(OSError, match="Bad file descriptor"):
        reader.pwrite(b"x", 0)
    reader.close()


def test_hot_reads_agree_with_cold_ones(tree: RealFiles, tmp_path: Path) -> None:
    file = tree.open(str(tmp_path / "f"), create=True)
    data = random.Random(1).randbytes(300_000)
    file.pwrite(data, 0)
    for size, offset in ((10, 0), (100_000, 5), (100, 299_950), (10, 300_000), (10, 1 << 30)):
        hot = file.pread_hot(size, offset)
        assert hot is None or hot == data[offset : offset + size]
    assert file.pread_hot(1000, 299_000) == data[299_000:]  # just written: nobody evicted it
    file.close()


def test_what_was_never_written_is_skipped_when_the_file_system_knows_it(tree: RealFiles, tmp_path: Path) -> None:
    file = tree.open(str(tmp_path / "f"), create=True)
    file.allocate(1 << 20)
    file.pwrite(b"x" * 10, 0)
    file.pwrite(b"y" * 10, 600_000)
    assert file.data_from(5) == 5
    assert 5 < file.data_from(100_000) <= 600_000 or file.data_from(100_000) == 100_000
    assert file.pread(file.data_from(100_000) - 100_000, 100_000).count(0) == file.data_from(100_000) - 100_000
    assert file.data_from(900_000) in (900_000, 1 << 20)
    assert file.data_from(2 << 20) == 1 << 20
    file.close()


def test_a_whole_tree_is_forced(tree: RealFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tree.open(str(tmp_path / "f"), create=True)
    file.pwrite(b"x", 0)
    tree.sync_tree(str(tmp_path))
    monkeypatch.setattr(files_module, "_syncfs", lambda fd: -1)
    with pytest.raises(OSError, match=str(tmp_path)):
        tree.sync_tree(str(tmp_path))
    monkeypatch.setattr(files_module, "_syncfs", None)
    tree.sync_tree(str(tmp_path))
    file.close()


def test_without_the_flag_only_the_newest_part_is_hot(
    tree: RealFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "_NOWAIT", 0)
    path = str(tmp_path / "f")
    file = tree.open(path, create=True)
    file.pwrite(b"x" * 100, 0)
    assert file.pread_hot(10, 0) == b"x" * 10
    file.pwrite(b"y" * 100, 20 << 20)
    assert file.pread_hot(10, 0) is None
    assert file.pread_hot(10, 20 << 20) == b"y" * 10
    other = tree.open(path)
    assert other.pread_hot(10, 20 << 20) is None  # written by another handle: unknown
    file.close()
    other.close()


def test_short_writes_are_finished(tree: RealFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = os.pwrite, []

    def short(fd: int, data: bytes | memoryview, offset: int) -> int:
        calls.append(offset)
        return real(fd, data[:3], offset)

    monkeypatch.setattr(os, "pwrite", short)
    file = tree.open(str(tmp_path / "f"), create=True)
    file.pwrite(b"abcdefgh", 0)
    assert calls == [0, 3, 6]
    assert file.pread(8, 0) == b"abcdefgh"
    file.close()


def test_names(tree: RealFiles, tmp_path: Path) -> None:
    root = str(tmp_path)
    tree.mkdir(f"{root}/a/b")
    tree.mkdir(f"{root}/a/b")
    assert tree.list(f"{root}/nowhere") == []
    tree.open(f"{root}/a/2", create=True).close()
    tree.open(f"{root}/a/1", create=True).close()
    assert tree.list(f"{root}/a") == ["1", "2", "b"]
    tree.rename(f"{root}/a/1", f"{root}/a/2")
    tree.sync_dir(f"{root}/a")
    assert (tree.exists(f"{root}/a/1"), tree.is_dir(f"{root}/a/b"), tree.is_dir(f"{root}/a/2")) == (False, True, False)
    assert tree.mtime_ms(f"{root}/a/2") > 1_700_000_000_000
    tree.unlink(f"{root}/a/2")
    tree.rmdir(f"{root}/a/b")
    assert tree.list(f"{root}/a") == []
    usage = tree.usage(f"{root}/not/made/yet")
    assert usage.total > 0
    assert 0.0 <= usage.ratio <= 1.0


def test_an_atomic_write_keeps_mode_and_backup(tree: RealFiles, tmp_path: Path) -> None:
    """Field case B007."""
    path = str(tmp_path / "topics.json")
    tree.write_atomic(path, b"1, and longer than what follows", backup=True)
    assert tree.list(str(tmp_path)) == ["topics.json"]
    os.chmod(path, 0o600)
    tree.write_atomic(path, b"2", backup=True)
    tree.write_atomic(path, b"3", backup=True)
    assert (tree.read(path), tree.read(path + ".bak")) == (b"3", b"2")
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert tree.list(str(tmp_path)) == ["topics.json", "topics.json.bak"]


def test_the_lock_excludes_this_process_and_others(tree: RealFiles, tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    program = (
        "import sys; from rmq.runtime.files import RealFiles\n"
        "try: RealFiles().lock(sys.argv[1])\n"
        "except BlockingIOError: print('held')\n"
        "else: print('free')\n"
    )

    def other() -> str:
        run = subprocess.run(
            [sys.executable, "-c", program, path], capture_output=True, text=True, check=True, cwd=os.getcwd()
        )
        return run.stdout.strip()

    lock = tree.lock(path)
    with pytest.raises(BlockingIOError):
        RealFiles().lock(path)
    assert other() == "held"  # the failed attempt here did not drop the lock
    lock.release()
    lock.release()
    assert other() == "free"
    tree.lock(path).release()


def test_a_forked_child_has_none_of_its_parents_locks(tmp_path: Path) -> None:
    program = (
        "import os, sys; from rmq.runtime.files import RealFiles\n"
        "lock = RealFiles().lock(sys.argv[1])\n"
        "read, write = os.pipe()\n"
        "if child := os.fork():\n"
        "    lock.release(); os.write(write, b'x'); os.waitpid(child, 0)\n"
        "else:\n"
        "    os.read(read, 1); RealFiles().lock(sys.argv[1]); print('free')\n"
    )
    run = subprocess.run([sys.executable, "-c", program, str(tmp_path / "lock")], capture_output=True, text=True)
    assert (run.stdout.strip(), run.stderr) == ("free", "")


def test_a_locked_directory_is_kept_whatever_becomes_of_its_files(tree: RealFiles, tmp_path: Path) -> None:
    program = (
        "import sys; from rmq.runtime.files import RealFiles\n"
        "try: RealFiles().lock_directory(sys.argv[1], shared=len(sys.argv) > 2); print('free')\n"
        "except BlockingIOError: print('held')\n"
    )

    def other(path: Path, *more: str) -> str:
        command = [sys.executable, "-c", program, str(path), *more]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=os.getcwd()).stdout.strip()

    folder, moved = tmp_path / "store", tmp_path / "moved"
    folder.mkdir()
    lock = tree.lock_directory(str(folder))
    assert lock is not None
    with pytest.raises(BlockingIOError):
        tree.lock_directory(str(folder))
    if not (child := os.fork()):
        os._exit(0)  # its descriptors are closed: the lock is not given back with them
    os.waitpid(child, 0)
    folder.rename(moved)
    assert other(moved, "shared") == "held"
    lock.release()
    lock.release()
    shared = tree.lock_directory(str(moved), shared=True)
    assert (other(moved), other(moved, "shared")) == ("held", "free")
    assert shared is not None
    shared.release()
    assert other(moved) == "free"


def test_a_child_does_not_keep_its_parents_directory_locked(tmp_path: Path) -> None:
    program = (
        "import os, sys, time; from rmq.runtime.files import RealFiles\n"
        "lock = RealFiles().lock_directory(sys.argv[1])\n"
        "if os.fork(): print('locked', flush=True); os._exit(0)\n"
        "os.close(1); os.close(2); sys.stdin.read()\n"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with run:
        assert run.stdout is not None
        assert run.stdout.read() == "locked\n"
        assert run.wait() == 0
        lock = RealFiles().lock_directory(str(tmp_path))
        assert lock is not None
        lock.release()


@pytest.mark.parametrize("what", ["removed", "renamed", "replaced", "its folder is"])
def test_a_file_knows_whether_its_name_is_still_its_own(tree: RealFiles, tmp_path: Path, what: str) -> None:
    path = tmp_path / "folder" / "file"
    path.parent.mkdir()
    file = tree.open(str(path), create=True)
    assert file.named()
    if what == "removed":
        path.unlink()
    elif what == "renamed":
        path.rename(path.with_name("other"))
    elif what == "replaced":
        (tmp_path / "other").write_bytes(b"")
        (tmp_path / "other").rename(path)
    else:
        path.parent.rename(tmp_path / "moved")
    assert not file.named()
    file.close()


def test_a_shared_lock_keeps_writers_out_and_changes_nothing(tree: RealFiles, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with pytest.raises(FileNotFoundError):
        tree.lock(str(path), shared=True)
    path.write_bytes(b"lock")
    path.chmod(0o444)
    before = path.stat()
    lock = tree.lock(str(path), shared=True)
    program = (
        "import fcntl, os, sys\n"
        "try: fcntl.lockf(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB, 1)\n"
        "except OSError: print('held')\n"
        "else: print('free')\n"
    )
    path.chmod(0o644)
    words = [sys.executable, "-c", program, str(path)]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "held\n"
    lock.release()
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "free\n"
    assert path.stat().st_mtime_ns == before.st_mtime_ns


async def test_offload_runs_elsewhere_and_passes_errors(tmp_path: Path) -> None:
    world = World.real()
    here = os.getpid()
    assert await world.offload(os.getpid) == here
    with pytest.raises(FileNotFoundError):
        await world.offload(world.files.read, str(tmp_path / "missing"))
    world.offload.close()  # type: ignore[attr-defined]
    assert await world.offload(os.getpid) == here
    world.offload.close()  # type: ignore[attr-defined]


def test_the_clocks() -> None:
    clock = World.real().clock
    assert clock.now_ms() > 1_700_000_000_000
    assert clock.monotonic() <= clock.monotonic()


def test_a_real_file_is_a_file(tree: RealFiles, tmp_path: Path) -> None:
    file = tree.open(str(tmp_path / "f"), create=True)
    assert isinstance(file, RealFile)
    assert file.path == str(tmp_path / "f")
    file.close()


def test_what_is_read_aside_does_not_stay_in_the_page_cache(tmp_path: Path) -> None:
    path = tmp_path / "f"
    data = bytes(range(256)) * 4096
    path.write_bytes(data)
    file = RealFiles().open(str(path))

    def cold(*offsets: int) -> bool:
        return all(file.pread_hot(4096, offset) is None for offset in offsets)

    def left_nothing() -> bool:
        with path.open("rb") as other:
            os.posix_fadvise(other.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert file.pread_aside(128 << 10, 0) == data[: 128 << 10]
        assert file.pread_aside(500_000, 1_000_000) == data[1_000_000:]
        return cold(0, 64 << 10, 256 << 10, 1_010_000)

    try:
        assert file.pread_aside(5000, 100) == data[100:5100]
        file.datasync()
        with path.open("rb") as other:
            os.posix_fadvise(other.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if not cold(0):
            pytest.skip("this file system keeps everything in memory")
        # The kernel drops what it can: pages that another processor is about to put on its lists stay, now and then.
        assert any(left_nothing() for _ in range(50))
    finally:
        file.close()
