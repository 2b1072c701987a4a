"""What is explored: scenarios that keep the rules, bugs that break one, and known gaps."""

from collections.abc import Mapping

from proof.modelcheck.plants import PlantedBug
from proof.modelcheck.world import Scenario

_TALK = ("cancel", "steer", "pause", "continue")
_ANSWER = ("allow", "deny")
_ANY = ("prompt", *_TALK)

SCENARIOS: Mapping[str, Scenario] = {
    # A call, a crash and a partition, on a server. Nothing stops a process inside of the call.
    "take-over": Scenario(crashes=1, cuts=1, can_stop_in_call=False),
    # A process may stop inside of the call: the tool checks the token, or cannot reconcile at all.
    "token": Scenario(crashes=1, cuts=2, checks_token=True),
    "unknown": Scenario(crashes=1, cuts=2, can_reconcile=False),
    # A process that is stopped in any moment until its lease has expired, and wakes up later.
    "stop": Scenario(stops=1, crashes=1, can_stop_in_call=False),
    "stop in a call": Scenario(stops=2, checks_token=True),
    "stop and mail": Scenario(has_call=False, posters=((_TALK,), (_ANY,)), stops=1),
    # The server is away for longer than a lease time; a connection that blinks; both.
    "outage": Scenario(outages=1, cuts=1, crashes=1, can_stop_in_call=False),
    # A standby takes over that lacks any of the last records; the driver lives, or dies with it.
    "lost tail": Scenario(lost_tails=1, crashes=1, can_stop_in_call=False),
    "lost tail and cut": Scenario(lost_tails=1, cuts=1, can_stop_in_call=False),
    # A run that is moved off its driver, at the moment of a crash, a cut or another message.
    "move": Scenario(
        posters=((("release",),), (("release", "cancel"),)), crashes=1, cuts=1, checks_token=True
    ),
    # The same in a file, whose lock no living process loses; with a release, and no token.
    "file": Scenario(store="file", crashes=1, cuts=1, releases=1),
    "file mail": Scenario(store="file", posters=((_TALK,), (_ANY,)), crashes=1, releases=1),
    # Two posters who post what they like, a crash and a partition.
    "mail": Scenario(has_call=False, posters=((_TALK,), (_ANY,)), crashes=1, cuts=1),
    "more mail": Scenario(has_call=False, posters=((_TALK, _TALK), (_ANY,)), crashes=1),
    # A cancel, or a pause and its end; a queued prompt; a call, a crash and a partition.
    "everything": Scenario(
        posters=((("cancel", "pause"), ("continue",)), (("prompt",),)),
        crashes=1,
        cuts=1,
        checks_token=True,
    ),
    # A call that takes its process down whenever it runs; a release, and somebody who continues.
    "poison": Scenario(
        store="file", is_poison=True, crashes=1, releases=1, posters=((("continue",),),)
    ),
    "poison and cut": Scenario(is_poison=True, cuts=1, posters=((("continue", "pause"),),)),
    # Two people who answer as they like, at the same moment as a cancel or a crash.
    "answers": Scenario(
        asks=True, posters=((_ANSWER,), (_ANSWER,)), crashes=1, cuts=1, can_stop_in_call=False
    ),
    "answers and a cancel": Scenario(
        asks=True,
        posters=((_ANSWER,), (_ANSWER,), (("cancel",),)),
        crashes=1,
        can_stop_in_call=False,
    ),
    # An answer that nobody gave is put among the records, beside one that a person gives.
    "forged answer": Scenario(
        asks=True, posters=((_ANSWER,),), forgeries=1, crashes=1, can_stop_in_call=False
    ),
    # A run that waits for its first driver, who crashes; messages to it, and a prompt behind it.
    "queued": Scenario(
        is_queued=True, has_call=False, posters=((("cancel", "pause"), ("continue",)),), crashes=1
    ),
    "queued and more": Scenario(
        is_queued=True, has_call=False, posters=((_TALK,), (("prompt",),)), crashes=1
    ),
    # Another run holds the shared budget, and gives it back at any moment: when the run asks, when
    # it is being released, or later; its driver crashes, and people talk to it meanwhile.
    "budget": Scenario(
        has_budget=True, has_call=False, posters=((("freed",),), (_TALK,)), crashes=1, cuts=1
    ),
    "budget in a file": Scenario(
        store="file",
        has_budget=True,
        has_call=False,
        posters=((("freed",),), (("pause", "cancel"), ("continue",))),
        crashes=1,
        releases=1,
    ),
    # A copy of the session, made at any moment from any of its records, which gets messages.
    "fork": Scenario(has_call=False, posters=((("steer", "cancel"), ("steer",)),), forks=1),
}

PLANTED: Mapping[PlantedBug, Scenario] = {
    "numbers_by_max": Scenario(
        has_call=False, posters=((("steer",), ("steer",)),), bug="numbers_by_max"
    ),
    "fork_counts_from_one": Scenario(
        has_call=False, posters=((("steer",), ("steer",)),), forks=1, bug="fork_counts_from_one"
    ),
    "take_without_cursor": Scenario(
        has_call=False, posters=((("steer",),),), crashes=1, bug="take_without_cursor"
    ),
    "remove_before_fact": Scenario(
        has_call=False, posters=((("steer",),),), crashes=1, bug="remove_before_fact"
    ),
    "release_before_calls_ended": Scenario(
        store="file", releases=1, bug="release_before_calls_ended"
    ),
    "no_fence": Scenario(cuts=1, bug="no_fence"),
    "epoch_unchecked": Scenario(stops=1, bug="epoch_unchecked"),
    "first_one_back_takes_all": Scenario(outages=1, bug="first_one_back_takes_all"),
    "confirm_skipped": Scenario(cuts=1, can_stop_in_call=False, bug="confirm_skipped"),
    "sweep_drives_paused": Scenario(
        has_call=False, posters=((("pause",),),), bug="sweep_drives_paused"
    ),
    "sweep_ignores_mail_of_paused": Scenario(
        has_call=False,
        posters=((("pause",), ("continue",)),),
        bug="sweep_ignores_mail_of_paused",
    ),
    "cancel_any_run": Scenario(
        has_call=False, posters=((("cancel",),), (("prompt",),)), bug="cancel_any_run"
    ),
    "poison_not_parked": Scenario(store="file", is_poison=True, bug="poison_not_parked"),
    "second_answer_counts": Scenario(
        asks=True, posters=((_ANSWER,), (_ANSWER,)), bug="second_answer_counts"
    ),
    "answer_not_passed_by_mail": Scenario(
        asks=True, posters=((_ANSWER,),), bug="answer_not_passed_by_mail"
    ),
    "forged_answer_believed": Scenario(asks=True, forgeries=1, bug="forged_answer_believed"),
    "accepted_beside_a_driver": Scenario(
        has_call=False, posters=((("prompt",),),), bug="accepted_beside_a_driver"
    ),
    "no_work_for_mail_of_waiting": Scenario(
        asks=True, posters=((("allow",),),), bug="no_work_for_mail_of_waiting"
    ),
    "prompt_left_behind": Scenario(
        is_queued=True, has_call=False, posters=((("cancel",),),), bug="prompt_left_behind"
    ),
    "rewound_run_resumed": Scenario(
        lost_tails=1, crashes=1, can_stop_in_call=False, bug="rewound_run_resumed"
    ),
    "rewound_run_not_paused": Scenario(
        lost_tails=1, crashes=1, can_stop_in_call=False, bug="rewound_run_not_paused"
    ),
    "freed_budget_unnoticed": Scenario(
        has_budget=True, has_call=False, posters=((("freed",),),), bug="freed_budget_unnoticed"
    ),
    "freed_before_the_wait": Scenario(
        has_budget=True, has_call=False, posters=((("freed",),),), bug="freed_before_the_wait"
    ),
}
"""The smallest scenario in which each bug shows."""

GAPS: Mapping[str, Scenario] = {
    "no token": Scenario(cuts=1),
    "no token, and a stop": Scenario(stops=1),
    "token that reconcile does not show": Scenario(
        cuts=1, checks_token=True, reconcile_shows_token=False
    ),
}
"""An effect happens twice if a process stops inside of a call: what the documentation admits."""
