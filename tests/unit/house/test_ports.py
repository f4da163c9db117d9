"""Tests of several processes choose ports for their servers, and never the same ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.peers.ports import broker_port, free_port

_OTHER = """
import sys
from tests.support.peers.ports import broker_port
print(*(broker_port() for _ in range(100)), flush=True)
sys.stdin.read()
"""
#: Ports that a server has beside the first.
_BESIDE = (1033, 1035, 1036)


def around(ports: list[int]) -> set[int]:
    return {port + beside for port in ports for beside in (-2, 0, 1)}


def test_two_processes_choose_different_ports() -> None:
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", _OTHER], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = [int(word) for word in other.stdout.readline().split()]
        ours = around([broker_port() for _ in range(100)])
        ours |= {port + beside for port in [free_port(*_BESIDE) for _ in range(20)] for beside in (0, *_BESIDE)}
        other.communicate()
    assert len(around(theirs)) == 300
    assert not around(theirs) & ours
