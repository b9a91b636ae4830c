"""Defects of other queues and of early versions of this one, and the tests that prevent them here.

Each row is one defect in one line, with the names of the tests that would fail if it returned. A test whose name
begins with `regression_` was written for that defect.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
TRAPS = {
    # -- time -----------------------------------------------------------------------------------------------------
    "interval schedules drift with late ticks": [
        "intervals_never_drift",
        "an_interval_keeps_its_fire_times_through_an_outage",
    ],
    "a fire time fires twice, or on every process": [
        "many_processes_that_upsert_and_fire_add_each_job_once",
        "a_firing_whose_reply_was_lost_is_not_repeated",
    ],
    "a scheduler stops when the worker that ran it dies": [
        "a_second_process_takes_over_when_the_first_one_dies",
        "a_queue_without_a_worker_fires",
    ],
    "a schedule waits for ever after a run that was revoked, expired or stalled": [
        "fire_times_are_skipped_while_the_last_job_runs",
        "a_failed_run_is_retried_and_does_not_disturb_the_schedule",
    ],
    "an unchanged upsert restarts the schedule": ["an_unchanged_upsert_changes_nothing"],
    "cron takes */0, reversed ranges, and searches its next fire time by brute force": [
        "invalid_cron_expressions_are_refused",
        "the_29th_of_february_is_found_across_a_century_without_one",
    ],
    "day of month and day of week are joined by AND": ["a_day_must_match_one_of_two_restricted_day_fields"],
    "a later due time of one kind masks an earlier one of another": [
        "regression_a_later_due_time_does_not_mask_an_earlier_one"
    ],
    "jobs with equal due times start in the order of their ids as text": ["regression_equal_due_times_sort_by_arrival"],
    "delays go by the client's clock": ["the_clients_clock_decides_nothing", "never_early_by_the_servers_clock"],
    "promotion stops at expired jobs or is unbounded": [
        "expired_jobs_do_not_block_delayed_ones",
        "more_jobs_can_be_due_than_one_call_promotes",
    ],
    # -- order ----------------------------------------------------------------------------------------------------
    "priority 0 runs after all others": ["priority_zero_goes_first_every_time"],
    "priorities are inverted across batches of promotion": [
        "regression_priority_inversion_across_promotion_batches",
        "regression_priority_inversion_inside_a_large_promotion",
    ],
    "a source that is refilled starves another one": [
        "a_source_that_is_always_refilled_starves_no_other",
        "no_key_starves",
    ],
    "a changed job and a copy of it both run": ["regression_a_changed_job_runs_once"],
    "an explanation stops at the first key whose jobs have all expired": [
        "regression_keys_whose_jobs_have_all_expired_give_their_turn_to_other_keys",
    ],
    "an explanation lets a bucket pay for an expired job only": [
        "regression_a_bucket_must_pay_for_the_first_job_that_has_not_expired",
    ],
    "a retried or released job loses its position in its key's line": [
        "a_retry_keeps_its_position_and_the_key_waits_for_it",
        "a_released_job_goes_first",
    ],
    "a gap in the sequence of a key stops the key for ever": [
        "regression_a_gap_in_the_sequence_does_not_block_a_key",
        "regression_debounce_in_the_line_of_a_key_does_not_block_the_key",
        "regression_draining_leaves_no_key_stuck",
    ],
    "a slot of a key leaks while its job waits for a retry": [
        "regression_no_slot_leaks_while_a_job_waits_for_its_retry"
    ],
    "a pause of a key has no effect": ["regression_a_pause_stops_its_key"],
    "a retry runs next to the active job of its key": ["regression_a_retry_does_not_run_next_to_the_active_job"],
    "a key's concurrency is not used completely": ["regression_the_concurrency_is_used_completely"],
    "a stale outcome frees the slot of another run": ["regression_a_stale_outcome_frees_no_slot_of_another_run"],
    # -- limits ---------------------------------------------------------------------------------------------------
    "a window permits twice its number at its edge": ["regression_no_window_has_twice_the_permitted_starts"],
    "limits apply only to some kinds of jobs": [
        "regression_the_limit_applies_to_every_kind",
        "runs_of_both_streams_count",
    ],
    "ordinary costs put a bucket into debt": ["regression_an_ordinary_cost_leaves_no_debt"],
    "an add without limits erases the limits of its key": ["regression_an_add_never_changes_limits"],
    "a rate-limited run uses an attempt": ["regression_rate_limited_uses_no_attempt_and_blocks_the_key"],
    "no worker wakes for a limit after the waiting worker stopped": [
        "the_gate_of_a_worker_that_leaves_opens_for_the_others"
    ],
    # -- leases and ends ------------------------------------------------------------------------------------------
    "a stalled worker's late outcome wins": [
        "a_stale_outcome_does_not_win_over_the_run_that_has_the_job",
        "a_stale_outcome_does_not_end_a_job_that_waits_for_its_retry",
    ],
    "a job is both completed and failed": ["a_job_is_never_in_both_final_sets"],
    "a write to a missing record creates an incomplete record": [
        "settling_a_job_with_a_deleted_record_creates_none",
        "settling_a_removed_job_creates_no_record",
        "writing_to_a_removed_job_raises",
    ],
    "the sweep restores a removed job": ["reclaiming_does_not_restore_a_removed_job"],
    "a crash between claim and start loses the job": ["a_worker_that_dies_after_its_claim_loses_nothing"],
    "a job that was just claimed is reclaimed": ["a_job_just_claimed_is_not_reclaimed"],
    "long jobs of a live worker stall": [
        "long_jobs_of_a_living_worker_do_not_stall",
        "a_blocked_loop_does_not_lose_its_job",
    ],
    "the sweep ends a job's long lease early": [
        "a_long_lease_is_not_shortened",
        "the_lease_of_a_job_overrides_the_default",
    ],
    "several sweepers count one stall more than once": ["several_sweepers_count_one_stall"],
    "a job below the threshold of stalls waits for ever": ["jobs_of_a_dead_worker_are_reclaimed_one_by_one"],
    "a worker never learns that it lost its job": ["a_worker_learns_that_it_lost_its_job"],
    "an outage ends the leases of healthy jobs": ["an_outage_does_not_end_valid_leases"],
    "active counts leak or go below zero": ["the_counts_stay_correct"],
    "an entry without a record leaves others pending": ["reclaiming_drops_an_entry_without_a_record"],
    "a damaged record blocks its batch": ["jobs_next_to_a_damaged_record_run"],
    # -- ids and deduplication ------------------------------------------------------------------------------------
    "a generated id overwrites a job with that id": ["generated_ids_avoid_custom_ones_of_the_same_call"],
    "an id that looks like a number disturbs the counter": ["custom_ids_do_not_disturb_the_counter"],
    "a job with a reused id runs twice": ["regression_an_id_that_is_free_again_runs_once"],
    "debounce deletes a job that has already run": ["regression_debounce_leaves_a_job_that_has_run"],
    "deduplication ids stay for ever": ["throttle_leaves_no_permanent_key", "every_end_frees_the_id"],
    # -- batches --------------------------------------------------------------------------------------------------
    "a batch fetches more than it runs": ["no_job_is_claimed_beyond_the_running_batch"],
    "a batch fails every prioritized job": ["jobs_from_every_location_reach_the_processor_as_lists"],
    "control exceptions do not work in a batch": ["control_exceptions_work_inside_a_batch"],
    "a timeout of one job aborts its whole batch": ["the_timeout_of_a_job_ends_only_its_own_run"],
    "a timeout is reported as a revocation": ["a_timeout_is_not_mistaken_for_a_revocation"],
    # -- workers --------------------------------------------------------------------------------------------------
    "workers continue during a pause": ["a_paused_queue_starts_nothing"],
    "closing strands a job that was just claimed": ["closing_strands_no_job_that_was_just_claimed"],
    "a revocation does not reach a running job": ["revoking_reaches_an_active_job"],
    "add_and_wait waits its whole time when events are off": ["a_waiting_client_gets_its_reply_without_polling"],
    "two concurrent opens create two clients": [
        "many_concurrent_calls_open_a_queue_once",
        "concurrent_starts_get_one_server",
    ],
    "an absurd lease is accepted": ["bad_options_of_a_worker_are_refused"],
    "a typo in an option is ignored": ["unknown_options_are_refused_with_the_nearest_name"],
    "an older client replaces a newer library": ["an_older_library_is_replaced_and_a_newer_one_kept"],
    # -- reading and cleaning -------------------------------------------------------------------------------------
    "events are repeated after a listener raised": ["events_are_not_repeated_after_a_listener_raised"],
    "events carry whole results and grow without a bound": [
        "events_carry_no_payloads",
        "events_are_capped_by_bytes_and_the_loss_is_reported",
    ],
    "listings skip entries of one millisecond": [
        "long_lists_of_every_other_state_are_complete",
        "a_long_list_is_read_in_pages",
    ],
    "retrying leaves a job in two sets and keeps its attempts": [
        "retrying_leaves_a_job_in_one_set_and_gives_it_all_its_attempts"
    ],
    "large records are deleted in the foreground": ["large_records_are_unlinked_not_deleted"],
    "obliterating leaves keys and restarts ids": [
        "reused_ids_find_no_data_of_earlier_jobs",
        "obliterating_removes_every_kind_of_job_and_limit",
    ],
    "logs stay after their job": ["draining_removes_logs", "a_sweep_removes_an_ended_result_with_all_its_data"],
    "wildcards in a queue's name match other queues or nothing": [
        "wildcards_in_a_name_are_literal",
        "a_name_with_wildcards_is_checked_literally",
    ],
    "foreign store keys are counted": ["foreign_keys_next_to_the_queue_are_ignored"],
    "queues see each other's dead letters": ["queues_share_a_dead_letter_queue_and_their_ids"],
    "a dead letter is a second write that may be lost": ["the_failure_and_the_move_are_one_write"],
    "the sweep is too narrow for many stalled jobs": ["many_stalled_jobs_are_reclaimed_together_and_in_order"],
}


@cache
def names() -> frozenset[str]:
    """Return the names of all test functions."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py"))
    return frozenset(re.findall(r"^ *(?:async )?def test_(\w+)", text, flags=re.MULTILINE))


@pytest.mark.parametrize("trap", TRAPS)
def test_a_known_trap_has_its_tests(trap: str) -> None:
    assert TRAPS[trap]
    missing = set(TRAPS[trap]) - names()
    assert not missing, f"no test of this name: {sorted(missing)}"


def test_every_regression_test_is_in_the_table() -> None:
    known = {name for tests in TRAPS.values() for name in tests}
    assert {name for name in names() if name.startswith("regression_")} - known - SELF_FOUND == set()


SELF_FOUND = frozenset(
    {
        "regression_a_client_that_stayed_open_recreates_the_queue",
        "regression_a_duplicate_of_a_removed_job_is_reported_as_gone",
        "regression_a_job_that_is_retried_by_hand_owns_its_id_again",
        "regression_an_expired_job_does_not_block_an_add",
        "regression_a_longer_window_includes_the_starts_before_it",
        "regression_a_longer_window_of_a_key_includes_the_last_starts",
        "regression_adds_to_a_closed_queue_wake_no_worker",
        "regression_an_add_with_a_taken_id_replaces_no_job",
        "regression_a_worker_whose_subscription_failed_is_started_by_the_next_start",
        "regression_the_end_of_a_lost_run_wakes_a_worker",
        "regression_a_reader_that_missed_events_gets_a_gap",
        "regression_events_of_a_queue_created_in_the_same_millisecond_are_delivered",
    }
)
"""Regressions that occurred only in this library."""
