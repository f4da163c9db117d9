"""A SYNC_MASTER and its slaves under random kills and cuts: what is acknowledged is at a slave, and logs stay equal."""

from __future__ import annotations

import os

import pytest

from tests.support.scenes.pair_faults import a_pair_under_faults, two_of_one_slave

#: Ten thousand pairs, in four forms: some 20 minutes of one core.
SEEDS = range(2500 if os.environ.get("RMQ_TORTURE") else 4)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_slave(seed: int) -> None:
    a_pair_under_faults(100 + seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_slave_that_acknowledges_what_is_on_its_disk_and_loses_power(seed: int) -> None:
    a_pair_under_faults(200 + seed, after_flush=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_two_of_three_slaves(seed: int) -> None:
    a_pair_under_faults(300 + seed, slaves=3, needed=2)


@pytest.mark.parametrize("seed", SEEDS)
def test_clocks_jump_disks_and_links_are_slow_and_slaves_take_their_masters_place(seed: int) -> None:
    a_pair_under_faults(400 + seed, rough=True)


def test_a_slave_that_is_connected_twice_is_one() -> None:
    two_of_one_slave()
