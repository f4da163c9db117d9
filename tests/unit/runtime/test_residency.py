"""Views of the page cache: the file's bytes, only while they are in memory, safe after the file is closed."""

import ctypes
import mmap
import os
from pathlib import Path

import pytest

from rmq.runtime import residency
from rmq.runtime.files import RealFiles

PAGE = mmap.PAGESIZE
DATA = os.urandom(8 * PAGE)


@pytest.fixture
def path(tmp_path: Path) -> str:
    made = tmp_path / "log"
    made.write_bytes(DATA)
    return str(made)


def test_a_view_shows_the_bytes_of_the_file(path: str) -> None:
    file = RealFiles().open(path)
    for offset, size in ((0, 8 * PAGE), (10, 20), (PAGE - 5, 10), (3 * PAGE, PAGE), (8 * PAGE - 1, 1)):
        view = file.hot_view(size, offset)
        assert view is not None
        assert view.readonly
        assert bytes(view[offset : offset + size]) == DATA[offset : offset + size]
    file.close()


def test_there_is_no_view_beyond_the_file(path: str) -> None:
    file = RealFiles().open(path)
    assert file.hot_view(2, 8 * PAGE - 1) is None
    assert file.hot_view(1, 8 * PAGE) is None
    assert file.hot_view(0, 0) is None
    file.close()


def test_pages_that_are_not_in_memory_are_not_touched(path: str) -> None:
    fd = os.open(path, os.O_RDWR)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    file = RealFiles().open(path)
    # Asked first: a refused read may start to fetch what it did not find.
    view = file.hot_view(10, 0)
    if view is not None and file.pread_hot(10, 0) is not None:
        file.close()
        pytest.skip("this file system keeps its pages in memory")
    assert view is None
    file.pread(8 * PAGE, 0)
    view = file.hot_view(8 * PAGE, 0)
    assert view is not None
    assert bytes(view) == DATA
    file.close()


def test_a_block_is_asked_about_once_in_a_while(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    now = [100.0]
    ask = residency._mincore
    monkeypatch.setattr(residency, "_mincore", lambda *where: asked.append(where[1]) or ask(*where))
    monkeypatch.setattr(residency, "monotonic", lambda: now[0])
    file = RealFiles().open(path)
    assert file.hot_view(10, 0) is not None
    assert file.hot_view(PAGE, 3 * PAGE) is not None
    assert asked == [8 * PAGE]
    assert file.hot_view(1, 8 * PAGE) is None  # a block that is known does not reach beyond the file
    now[0] += residency._TRUSTED
    assert file.hot_view(10, 0) is not None
    assert asked == [8 * PAGE] * 2
    file.close()


def test_what_reaches_over_many_blocks_is_asked_about_once_too(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    ask = residency._mincore
    monkeypatch.setattr(residency, "_mincore", lambda *where: asked.append(where[1]) or ask(*where))
    monkeypatch.setattr(residency, "monotonic", lambda: 100.0)
    monkeypatch.setattr(residency, "_BLOCK", 2 * PAGE)
    file = RealFiles().open(path)
    for offset in (0, 6 * PAGE):
        assert file.hot_view(10, offset) is not None
    assert file.hot_view(8 * PAGE, 0) is not None
    assert asked == [2 * PAGE, 2 * PAGE, 8 * PAGE], "both ends are known, what is between is not"
    assert file.hot_view(8 * PAGE, 0) is not None
    assert len(asked) == 3
    file.close()


def test_a_block_with_a_page_missing_is_not_remembered(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def only_the_first(address: int, size: int, answer: ctypes.Array[ctypes.c_char]) -> int:
        pages = -(-size // PAGE)
        answer[:pages] = b"\1" + bytes(pages - 1)
        return 0

    monkeypatch.setattr(residency, "_mincore", only_the_first)
    file = RealFiles().open(path)
    assert file.hot_view(PAGE, 0) is not None
    assert file.hot_view(PAGE + 1, 0) is None
    assert file.hot_view(PAGE, 0) is not None
    file.close()


def test_what_is_written_later_shows(path: str) -> None:
    file = RealFiles().open(path)
    view = file.hot_view(4, PAGE)
    assert view is not None
    file.pwrite(b"news", PAGE)
    assert bytes(view[PAGE : PAGE + 4]) == b"news"
    file.close()


def test_a_view_outlives_its_file(path: str) -> None:
    files = RealFiles()
    file = files.open(path)
    view = file.hot_view(100, 7)
    assert view is not None
    file.close()
    files.unlink(path)
    assert bytes(view[7:107]) == DATA[7:107]


def test_an_empty_file_has_no_views(tmp_path: Path) -> None:
    file = RealFiles().open(str(tmp_path / "empty"), create=True)
    assert file.hot_view(1, 0) is None
    file.close()
