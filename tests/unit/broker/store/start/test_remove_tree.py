"""Deleting a queue's directory goes no further than the directory, whatever links are in it."""

from __future__ import annotations

from pathlib import Path

from rmq.broker.store.queues.files import QueueDisk
from rmq.runtime.files import RealFiles


def test_links_go_and_what_they_lead_to_stays(tmp_path: Path) -> None:
    kept = tmp_path / "elsewhere"
    kept.mkdir()
    (kept / "file").write_text("mine")
    queue = tmp_path / "store/consumequeue/T/0"
    queue.mkdir(parents=True)
    for name, target in (("file", kept / "file"), ("folder", kept), ("nowhere", tmp_path / "nowhere")):
        (queue / name).symlink_to(target)
    disk = QueueDisk(RealFiles(), str(tmp_path / "store"), 800)
    disk.remove_tree(str(queue.parent))
    assert list((tmp_path / "store/consumequeue").iterdir()) == []
    (queue.parent).symlink_to(kept)
    disk.remove_tree(str(queue.parent))
    assert list((tmp_path / "store/consumequeue").iterdir()) == []
    assert (kept / "file").read_text() == "mine"
