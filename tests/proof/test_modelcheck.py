"""The model checker: the protocol holds in every state, and each planted bug is found."""

import random
from pathlib import Path
from typing import get_args

import pytest

from proof.modelcheck import (
    GAPS,
    PLANTED,
    SCENARIOS,
    LeaseProtocol,
    Scenario,
    __main__,
    explore,
    replay,
)
from proof.modelcheck.letters import LaneState, make_answer_mail
from proof.modelcheck.plants import PlantedBug
from proof.modelcheck.world import WorldState
from windlass.core.errors import NothingToDo
from windlass.core.mail import (
    CancelMail,
    ContinueMail,
    Mail,
    MailLane,
    PauseMail,
    PromptMail,
    SteerMail,
)
from windlass.core.messages import TextPart
from windlass.journals.memory import MemoryJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing.journals import append_facts

SMALL = (
    "take-over",
    "stop",
    "stop in a call",
    "outage",
    "lost tail",
    "lost tail and cut",
    "file",
    "poison",
    "fork",
    "queued",
    "budget in a file",
    "answers and a cancel",
    "forged answer",
)
"""Scenarios that take a second."""
DEPTH = 14
"""How far the others are explored here; `make modelcheck` explores all of them to the end."""
STEPS_MAX = 19
"""The longest counterexample of a planted bug."""
WALKS = 40
WALK_STEPS = 60
TEXT = (TextPart("Go."),)
FINDINGS = [
    ("numbers_by_max", "a message got the number 1, which was used before"),
    ("fork_counts_from_one", "a message got the number 1, which was used before"),
    ("take_without_cursor", "message 1 was taken twice"),
    ("remove_before_fact", "a message is never taken"),
    ("release_before_calls_ended", "the effect of one call happened twice"),
    ("no_fence", "facts were accepted from a driver that had lost the session"),
    ("epoch_unchecked", "facts were accepted from a process that the row does not name"),
    ("first_one_back_takes_all", "a session was taken before its process could come back"),
    ("confirm_skipped", "the effect of one call happened twice"),
    ("sweep_drives_paused", "a paused run is driven, although no message came for it"),
    ("sweep_ignores_mail_of_paused", "a message is never taken"),
    ("cancel_any_run", "a cancel of run 1 stopped another run"),
    ("poison_not_parked", "a call took a third driver down, and nobody had continued the run"),
    ("second_answer_counts", "one person was told allow, another one deny"),
    ("answer_not_passed_by_mail", "a message is never taken"),
    ("forged_answer_believed", "no person has allowed"),
    ("accepted_beside_a_driver", "a run was queued beside the driver that has the session"),
    ("prompt_left_behind", "a message is never taken"),
    ("rewound_run_resumed", "the effect of one call happened twice"),
    ("rewound_run_not_paused", "the effect of one call happened twice"),
    ("no_work_for_mail_of_waiting", "a message is never taken"),
    ("freed_budget_unnoticed", "the session never comes to its end"),
    ("freed_before_the_wait", "the session never comes to its end"),
]
"""The planted bugs, and the rule that each of them breaks."""


@pytest.mark.contract("D4", "D5", "D8", "F3", "F9", "J2", "L14")
@pytest.mark.parametrize("name", SMALL)
def test_every_state_of_a_small_scenario_keeps_the_rules(name: str) -> None:
    found = explore(LeaseProtocol(SCENARIOS[name]))
    assert found.counterexample is None
    assert found.is_complete


@pytest.mark.slow
@pytest.mark.contract("D2", "D4", "D5", "D8", "F3", "J2", "L14")
@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in SMALL])
def test_every_state_up_to_a_depth_keeps_the_rules(name: str) -> None:
    found = explore(LeaseProtocol(SCENARIOS[name]), depth_max=DEPTH)
    assert found.counterexample is None
    assert found.states > 1_000


@pytest.mark.contract("V3", "D4", "F3")
@pytest.mark.parametrize(("bug", "rule"), FINDINGS)
def test_a_planted_bug_is_found_by_a_short_way(bug: str, rule: str) -> None:
    """The way can be taken again, and leads to the same end."""
    scenario = next(planted for name, planted in PLANTED.items() if name == bug)
    found = explore(LeaseProtocol(scenario))
    assert found.counterexample is not None
    assert rule in found.counterexample.rule
    assert len(found.counterexample.steps) <= STEPS_MAX
    taken = [text for text, _ in replay(LeaseProtocol(scenario), found.counterexample.choices)]
    assert tuple(taken) == found.counterexample.steps


def test_every_planted_bug_is_tried() -> None:
    assert {bug for bug, _ in FINDINGS} == set(PLANTED) == set(get_args(PlantedBug))


@pytest.mark.contract("F3")
@pytest.mark.parametrize("name", GAPS)
def test_without_a_token_a_process_that_stops_inside_a_call_can_repeat_it(name: str) -> None:
    """What remains, as the documentation says; with the token on both ways it is zero."""
    found = explore(LeaseProtocol(GAPS[name]))
    assert found.counterexample is not None
    assert found.counterexample.rule == "the effect of one call happened twice"
    assert any("enters the call" in step for step in found.counterexample.steps)


def test_a_failed_append_must_not_free_the_lease_of_a_running_call() -> None:
    """The store fails and the driver gives up: in a file too, the lease outlives the call."""
    bug = Scenario(store="file", cuts=1, bug="release_before_calls_ended")
    found = explore(LeaseProtocol(bug))
    assert found.counterexample is not None
    assert found.counterexample.rule == "the effect of one call happened twice"


def test_the_command_reports_and_replays(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["--show", "no_fence"]) == 0
    told = capsys.readouterr().out
    assert "driver B: resumes the run" in told
    choices = told.rpartition("replay: ")[2].splitlines()[0]
    assert __main__.main(["no_fence", "--replay", choices]) == 0
    assert "had lost the session" in capsys.readouterr().out
    assert __main__.main(["--depth", "5", "take-over"]) == 0
    assert "cut off, 5 deep: every rule holds" in capsys.readouterr().out


class StoreMirror:
    """Does to a real journal what happens to the modelled store, and compares the two."""

    def __init__(self, journal: MemoryJournal | SqliteJournal, model: LeaseProtocol) -> None:
        self._journal = journal
        self._model = model

    async def begin(self, world: WorldState) -> None:
        await append_facts(self._journal, "s", self._model.log[world.log].facts)

    async def follow(self, before: WorldState, after: WorldState) -> None:
        """Repeat one step: an append, a post or a removal."""
        facts = self._model.log[after.log].facts[self._model.log[before.log].seq :]
        if facts:
            await append_facts(self._journal, "s", facts)
        await self._follow_lane("control", before.control, after.control)
        await self._follow_lane("prompts", before.prompts, after.prompts)
        row = after.question
        unsettled = [row.decision is not None] if row is not None and not row.is_settled else []
        rows = await self._journal.read_questions("s")
        assert [one.decision is not None for one in rows] == unsettled
        if after.posted != before.posted and after.control == before.control:
            # An answer that the model refuses is refused here too.
            with pytest.raises(NothingToDo):
                await self._journal.post_mail("s", make_answer_mail("allow", 1))

    async def _follow_lane(self, lane: MailLane, before: LaneState, after: LaneState) -> None:
        if after.last > before.last:
            letter = after.kept[-1]
            receipt = await self._journal.post_mail("s", make_mail(letter.kind))
            assert receipt.number == letter.number
        gone = [letter.number for letter in before.kept if letter not in after.kept]
        if gone:
            await self._journal.remove_mail("s", lane, max(gone))
        numbers = [letter.number for letter in await self._journal.read_mail("s", lane)]
        assert numbers == [letter.number for letter in after.kept]


def make_mail(kind: str) -> Mail:
    messages: dict[str, Mail] = {
        "cancel": CancelMail(run=1),
        "steer": SteerMail(run=1, prompt=TEXT),
        "pause": PauseMail(run=1),
        "continue": ContinueMail(run=1),
        "prompt": PromptMail(prompt=TEXT),
        "allow": make_answer_mail("allow", 1),
        "deny": make_answer_mail("deny", 1),
    }
    return messages[kind]


async def walk(journal: MemoryJournal | SqliteJournal, seed: int, scenario: str) -> None:
    """Take random steps of the model, in the real journal too."""
    draw = random.Random(seed)
    model = LeaseProtocol(SCENARIOS[scenario])
    mirror = StoreMirror(journal, model)
    state, _ = model.canonical(model.first_state())
    await mirror.begin(state)
    for _ in range(WALK_STEPS):
        steps = model.steps(state)
        if not steps:
            return
        after, _ = model.canonical(draw.choice(steps).after())
        await mirror.follow(state, after)
        state = after


@pytest.mark.contract("D4", "G6")
@pytest.mark.parametrize("scenario", ["more mail", "answers"])
async def test_a_journal_in_memory_does_what_the_modelled_store_does(scenario: str) -> None:
    for seed in range(WALKS):
        await walk(MemoryJournal(), seed, scenario)


@pytest.mark.slow
@pytest.mark.contract("D4", "G6")
@pytest.mark.parametrize("scenario", ["more mail", "answers"])
async def test_a_journal_in_a_file_does_what_the_modelled_store_does(
    tmp_path: Path, scenario: str
) -> None:
    for seed in range(WALKS):
        journal = SqliteJournal(tmp_path / f"{seed}.db")
        await walk(journal, seed, scenario)
        journal.close()
