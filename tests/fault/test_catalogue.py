"""Where each fault of the catalogue (reliability.md B.4) and each field case of the store is tested.

A name that is in no test file fails: what is promised here is there.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

CATALOGUE = {
    "C01": "test_c01_kills_at_random_times_lose_nothing",
    "C02": "test_c02_kills_at_named_points_lose_nothing, test_c02_every_point_in_virtual_time",
    "C03": "test_c03_power_cuts_take_what_was_not_forced, test_every_prefix_of_a_trace_is_recovered, "
    "test_power_cuts_over_and_over, test_c03_asynchronous_flush_loses_half_a_second_at_most",
    "C08": "test_c08_weak_sends_are_no_phantoms_and_records_are_whole",
    "C09": "test_c09_sigterm_under_load_is_clean",
    "C10": "test_c10_b005_b007_metadata_is_the_old_or_the_new_version_after_every_step",
    "C11": "test_c11_transactions_outlive_kills_at_every_write",
    "S01": "test_s01_a_cut_at_every_byte_of_the_last_three_records",
    "S02": "test_s02_a_flipped_bit_is_told_and_never_served",
    "S05": "test_s05_queue_files_are_rebuilt, test_s05_queue_directories_are_rebuilt",
    "S07": "test_s07_index_files_decide_nothing, test_s07_chains_of_the_index_that_lead_in_circles_end, "
    "test_s07_the_checkpoint_decides_nothing",
    "S08": "test_s08_after_one_failed_fsync_nothing_is_acknowledged, "
    "test_s08_only_pulls_of_the_unreadable_region_fail, test_s08_every_page_of_the_commit_log, "
    "test_s08_every_file_of_a_store",
    "S09": "test_s09_what_cannot_be_written_is_refused_until_it_can, "
    "test_s09_a_disk_that_fills_up_is_told_as_full_and_resumes_without_a_restart, "
    "test_s09_messages_are_taken_again_without_a_restart, "
    "test_s09_a_real_broker_takes_messages_again_once_it_may_write",
    "S10": "test_s10_a_limit_that_is_too_low_is_told_at_start, "
    "test_s10_a_limit_that_comes_while_it_runs_loses_nothing, test_s10_a_higher_limit_is_enough, "
    "test_s10_short_writes_are_completed, "
    "test_s10_what_a_failed_write_left_is_cleared_before_the_next",
    "S11": "test_s11_a_slow_disk_is_told_and_loses_nothing, test_s11_a_flush_on_the_loop_is_noticed",
    "S12": "test_s12_b009_three_steps_of_a_filling_disk",
    "S13": "test_s13_one_broker_a_store",
    "H01": "test_h01_pairs_that_are_killed_and_stopped_lose_nothing_and_stay_equal",
    "H02": "test_h02_a_wire_that_cuts_splits_gathers_and_flips_leaves_logs_equal",
    "H04": "test_nothing_acknowledged_is_lost_where_a_slave_has_to_have_it",
    "H05": "test_a_slave_that_is_known_to_be_gone_keeps_nobody_waiting_and_one_that_is_back_counts_at_once, "
    "test_a_slave_that_does_not_answer_is_12_and_then_11, test_a_slave_too_far_behind_is_not_waited_for, "
    "test_two_connections_of_one_slave_are_one, test_a_slave_that_is_connected_twice_is_one",
    "H07": "test_an_empty_slave_begins_with_the_last_file_or_the_first",
    "H08": "test_groups_go_on_where_they_were_when_their_master_is_back",
    "R01": "test_lives",
    "R02": "test_a_leader_that_is_silent_acknowledges_nothing_that_is_lost, test_offsets_of_a_queue_are_linear",
    "R03": "test_whoever_is_with_a_majority_goes_on",
    "R04": "test_a_leader_that_is_silent_acknowledges_nothing_that_is_lost",
    "R05": "test_all_that_are_killed_come_back_in_every_order, test_leaders_that_are_killed_lose_nothing",
    "R07": "test_a_disk_that_is_lost_is_filled_again, "
    "test_a_member_without_its_disk_gets_everything_and_is_counted_again",
    "R09": "test_a_leader_that_is_silent_acknowledges_nothing_that_is_lost",
    "R11": "test_all_lose_their_power_within_a_moment",
    "K01": "test_sick_disks_and_clocks_that_are_set_lose_nothing, "
    "test_clocks_that_are_set_elect_nobody_and_lose_nothing",
    "B002": "test_b002_a_damaged_last_record_moves_no_offset",
    "B005": "test_c10_b005_b007_metadata_is_the_old_or_the_new_version_after_every_step, "
    "test_b005_a_spoilt_file_gives_way_to_its_backup, test_b005_what_the_broker_left_as_backup_is_used, "
    "test_b005_without_a_backup_the_start_is_refused",
    "B007": "test_b007_shorter_offsets_leave_nothing_of_longer_ones",
    "B009": "test_s12_b009_three_steps_of_a_filling_disk, test_b009_the_three_ratios_are_settings, "
    "test_b009_a_store_on_a_full_disk_is_read_and_takes_messages_once_there_is_room",
    "B012": "test_b012_locked_by_another_process, test_s13_one_broker_a_store",
}


@pytest.fixture(scope="module")
def defined() -> set[str]:
    found: set[str] = set()
    for path in TESTS.rglob("test_*.py"):
        found |= set(re.findall(r"^(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))
    return found


@pytest.mark.parametrize("fault", CATALOGUE)
def test_each_fault_has_its_tests(fault: str, defined: set[str]) -> None:
    missing = set(CATALOGUE[fault].split(", ")) - defined
    assert not missing, f"{fault}: no such tests: {sorted(missing)}"


def test_what_replication_promises_has_its_tests(defined: set[str]) -> None:
    text = (TESTS.parent / "docs" / "replication.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| .*`test_.*$", text, re.MULTILINE)
    assert len(rows) > 10
    missing = {name for row in rows for name in re.findall(r"`(test_\w+)`", row)} - defined
    assert not missing, f"docs/replication.md: no such tests: {sorted(missing)}"
