"""Names that only look like those of a store are none: what has them is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq.broker.store.log.files import offset_of
from rmq.broker.store.queues.files import QueueDisk
from rmq.protocol.errors import StoreError
from rmq.runtime.files import RealFiles


@pytest.mark.parametrize(
    ("name", "offset"),
    [
        ("00000000000000000000", 0),
        ("00000000001073741824", 1 << 30),
        ("09223372036854775807", (1 << 63) - 1),
        ("09223372036854775808", -1),
        ("99999999999999999999", -1),
        ("0000000000000000000", -1),
        ("٣٣٣٣٣٣٣٣٣٣٣٣٣٣٣٣٣٣٣٣", -1),
        ("-0000000000000000001", -1),
    ],
)
def test_offsets(name: str, offset: int) -> None:
    assert offset_of(name) == offset


def test_queue_ids(tmp_path: Path) -> None:
    for name in ("0", "7", "00", "٣", "2147483648", "9" * 200, "-1", "x"):
        (tmp_path / "consumequeue/T" / name).mkdir(parents=True)
    disk = QueueDisk(RealFiles(), str(tmp_path), 800)
    assert [found[:2] for found in disk.list_queues(["T"])] == [("T", 0), ("T", 7)]


def test_one_file_of_another_size_is_told_with_what_mends_it(tmp_path: Path) -> None:
    folder = tmp_path / "consumequeue/T/0"
    folder.mkdir(parents=True)
    (folder / "00000000000000000000").write_bytes(bytes(820))
    with pytest.raises(
        StoreError, match=rf"{folder}/0+ has 820 bytes.*make its queues anew with mqadmin store rebuild"
    ):
        QueueDisk(RealFiles(), str(tmp_path), 800).read_files([(str(folder), 0)])
