"""Bugs that can be planted into the protocol, to show that the exploration finds them."""

from typing import Literal

PlantedBug = Literal[
    "numbers_by_max",
    "fork_counts_from_one",
    "take_without_cursor",
    "remove_before_fact",
    "release_before_calls_ended",
    "no_fence",
    "epoch_unchecked",
    "first_one_back_takes_all",
    "confirm_skipped",
    "sweep_drives_paused",
    "sweep_ignores_mail_of_paused",
    "cancel_any_run",
    "poison_not_parked",
    "second_answer_counts",
    "answer_not_passed_by_mail",
    "forged_answer_believed",
    "accepted_beside_a_driver",
    "prompt_left_behind",
    "rewound_run_resumed",
    "rewound_run_not_paused",
    "no_work_for_mail_of_waiting",
    "freed_budget_unnoticed",
    "freed_before_the_wait",
]
