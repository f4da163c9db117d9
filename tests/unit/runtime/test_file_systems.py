"""Which file systems' word counts."""

from pathlib import Path

import pytest

from rmq.runtime.file_systems import is_local

MOUNTS = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
22 21 0:30 / /data rw shared:2 - nfs4 server:/export rw
23 22 8:2 / /data/fast rw - xfs /dev/sdb1 rw
24 21 0:31 / /with\\040blank rw - fuse.sshfs other:/ rw
25 21 0:40 / /over rw - nfs server:/a rw
26 21 8:3 / /over rw - btrfs /dev/sdc rw
"""


@pytest.mark.parametrize(
    ("path", "local"),
    [
        ("/", True), ("/store", True), ("/data", False), ("/data/store", False), ("/data/fast/store", True),
        ("/database", True), ("/with blank/store", False), ("/over/store", True),
    ],
)  # fmt: skip
def test_the_mount_that_is_seen_tells(tmp_path: Path, path: str, local: bool) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert is_local(path, str(mounts)) is local


def test_where_nothing_tells_nothing_is_believed(tmp_path: Path) -> None:
    assert not is_local("/store", str(tmp_path / "none"))
    (tmp_path / "strange").write_text("what is this\n")
    assert not is_local("/store", str(tmp_path / "strange"))
