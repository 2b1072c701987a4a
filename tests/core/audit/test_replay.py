"""A session run again from its journal: the same moves, and the first difference in words."""

from collections.abc import Callable, Sequence
from functools import cache

import pytest
from msgspec.structs import replace

from facts import MODEL, SESSION, Story, failed_attempt, make_call, value_result
from proof.simulate import draw_plan, play_plan
from windlass.core.audit.differences import OtherRules, ReplayDifference
from windlass.core.audit.replay import replay
from windlass.core.decide.next_move import decide
from windlass.core.decide.scheduling import REPEAT_NOTE
from windlass.core.errors import Fault
from windlass.core.events import (
    RULES_VERSION,
    AttemptStarted,
    BudgetAllotted,
    CallAnswered,
    CallFinished,
    CallJudged,
    CallLate,
    CallStarted,
    ContextCompacted,
    Fact,
    KnowledgeRecalled,
    LimitsRaised,
    LookupsPlanned,
    MailRefused,
    NoteGiven,
    ReplyJudged,
    Reservation,
    RunContinued,
    RunEnded,
    RunPaused,
    RunReleased,
    RunResumed,
    RunStarted,
    SteeringGiven,
    SteeringTaken,
    StepProposed,
)
from windlass.core.fold.run import fold
from windlass.core.limits import Amount, Budget, Limits
from windlass.core.messages import AssistantMessage, TextPart, ToolResult
from windlass.core.moves import LookUp, RecallKnowledge, Summarize
from windlass.core.setup import Compaction, Hydration, LoopPolicy, Reference, digest
from windlass.core.verdicts import Allow, Ask, Deny, Modify, Verdict

SEEDS = 300
CHUNK = 50


def facts_of(story: Story) -> Sequence[Fact]:
    """The story, with each request as the rules would make it."""
    told: list[Fact] = []
    for fact in story.facts:
        if isinstance(fact, AttemptStarted):
            decided = told[:-1] if isinstance(told[-1], SteeringGiven) else told
            reserved = getattr(decide(fold(SESSION, decided)), "reserved", fact.reserved)
            told.append(replace(fact, reserved=reserved))
        else:
            told.append(fact)
    return told


def difference(facts: Sequence[Fact]) -> ReplayDifference | None:
    """The first difference, in a journal whose records are numbered one by one."""
    numbered = [replace(fact, seq=at) for at, fact in enumerate(facts, 1)]
    return replay(SESSION, numbered).difference


def same(story: Story) -> bool:
    found = difference(facts_of(story))
    assert found is None, str(found)
    return True


@pytest.mark.contract("J8")
@pytest.mark.parametrize(
    "first",
    [0, *(pytest.param(first, marks=pytest.mark.slow) for first in range(CHUNK, SEEDS, CHUNK))],
)
def test_every_simulated_session_replays_without_a_difference(first: int) -> None:
    """With crashes, cancels, faults, questions and limits in it; none of it asked or run again."""
    for seed in range(first, first + CHUNK):
        played = play_plan(draw_plan(seed))
        replayed = replay("sim", played.facts)
        assert replayed.difference is None, f"seed {seed}: {replayed.difference}"
        assert replayed.state.seq == len(played.facts)
        opened = [fact for fact in played.facts if isinstance(fact, RunStarted | RunResumed)]
        assert {fact.rules for fact in opened} == {RULES_VERSION}


Tampering = Callable[[Fact], Fact | None]


@cache
def recorded_facts(seed: int) -> Sequence[Fact]:
    """What a simulated session left behind, played once for all the ways to tamper with it."""
    return play_plan(draw_plan(seed)).facts


def ended_otherwise(fact: Fact) -> Fact | None:
    if not isinstance(fact, RunEnded) or fact.outcome in ("cancelled", "timed_out"):
        return fact
    return replace(fact, outcome="stuck" if fact.outcome == "completed" else "completed")


def verdict_dropped(fact: Fact) -> Fact | None:
    return None if isinstance(fact, CallJudged) else fact


def other_model(fact: Fact) -> Fact | None:
    return replace(fact, model="sim:other") if isinstance(fact, AttemptStarted) else fact


def cheaper(fact: Fact) -> Fact | None:
    less = Reservation(1, 1)
    return replace(fact, reserved=less) if isinstance(fact, AttemptStarted) else fact


def other_key(fact: Fact) -> Fact | None:
    return replace(fact, key="sim/other") if isinstance(fact, CallStarted) else fact


def never_started(fact: Fact) -> Fact | None:
    return None if isinstance(fact, CallStarted) else fact


UNPLANNED = (
    *(CallFinished, CallLate, SteeringGiven, MailRefused, LimitsRaised, RunPaused, RunContinued),
)
"""Facts that may come at any moment: messages, and results of calls that run already."""


def request_dropped(fact: Fact) -> Fact | None:
    return None if isinstance(fact, AttemptStarted) else fact


@pytest.mark.contract("J8")
@pytest.mark.parametrize(
    "tamper",
    [
        ended_otherwise,
        verdict_dropped,
        other_model,
        cheaper,
        other_key,
        never_started,
        request_dropped,
    ],
)
@pytest.mark.parametrize(
    "seeds",
    [range(15), pytest.param(range(60), marks=pytest.mark.slow)],
    ids=["a few", "many"],
)
def test_what_was_tampered_with_is_found_where_it_is(tamper: Tampering, seeds: range) -> None:
    """One fact at a time, in every place of every session, with the numbers put right again."""
    tried = 0
    for seed in seeds:
        facts = recorded_facts(seed)
        for at, fact in enumerate(facts):
            other = tamper(fact)
            if other is fact:
                continue
            tried += 1
            kept = [*facts[:at], *([other] if other else []), *facts[at + 1 :]]
            numbered = [replace(one, seq=place) for place, one in enumerate(kept, 1)]
            found = replay("sim", numbered).difference
            # What is missing at the very end, or where the next driver begins anew, is not missed.
            follows = next((one for one in kept[at:] if not isinstance(one, UNPLANNED)), None)
            missed = other is None and _from_outside(follows)
            assert found is not None or missed, f"seed {seed}, record {at + 1}"
            assert found is None or found.seq >= at + 1
    assert tried > len(seeds) // 3


def _from_outside(fact: Fact | None) -> bool:
    ended = isinstance(fact, RunEnded) and fact.outcome in ("cancelled", "timed_out")
    return fact is None or ended or isinstance(fact, RunResumed | RunReleased)


def test_a_difference_says_what_is_recorded_and_what_the_rules_would_do() -> None:
    story = (
        Story()
        .start_run()
        .do_step(make_call("c1"), make_call("c2"))
        .take_reply("Done.")
        .end_run("completed")
    )
    facts = list(facts_of(story))
    facts[-1] = replace(facts[-1], outcome="max_steps")
    assert str(difference(facts)) == (
        f"record {len(facts)} is RunEnded(outcome=max_steps); "
        "the rules would end the run as completed ()"
    )
    del facts[4]
    found = difference(facts)
    assert found is not None
    assert (found.seq, found.rules) == (5, "judge call c2")


def made_by(version: int, facts: Sequence[Fact]) -> list[Fact]:
    opening = (RunStarted, RunResumed)
    return [replace(one, rules=version) if isinstance(one, opening) else one for one in facts]


@pytest.mark.parametrize(("version", "age"), [(0, "older"), (RULES_VERSION + 1, "newer")])
def test_what_other_rules_made_is_compared_as_far_as_it_goes(version: int, age: str) -> None:
    """It is neither the same nor tampered with; without a difference, it is the same."""
    facts = list(facts_of(Story().start_run().take_reply("Done.").end_run("completed")))
    assert replay(SESSION, made_by(version, facts)).is_same
    facts[-1] = replace(facts[-1], outcome="max_steps")
    again = replay(SESSION, made_by(version, facts))
    assert (again.is_same, again.difference) == (False, None)
    assert again.other_rules == OtherRules(len(facts), version)
    assert again.state.seq == len(facts) - 1
    assert str(again.other_rules) == (
        f"record {len(facts)} was made by {age} rules (version {version}, this Windlass has "
        f"{RULES_VERSION}): it cannot be compared from there on"
    )


def test_rules_count_from_the_run_or_the_resume_that_records_them() -> None:
    story = Story().start_run().take_calls(make_call("c1")).allow_calls("c1").start_calls("c1")
    facts = list(facts_of(story.resume()))
    wrong = replace(facts[1], seq=len(facts) + 1, at=facts[-1].at)
    assert replay(SESSION, [*made_by(0, facts[:-1]), facts[-1], wrong]).difference is not None
    assert replay(SESSION, [*facts[:-1], *made_by(0, facts[-1:]), wrong]).other_rules is not None
    done = list(
        facts_of(Story().start_run().take_reply("Done.").end_run("completed").start_run("More."))
    )
    wrong = RunEnded("stuck", seq=len(done) + 1, at=done[-1].at)
    assert replay(SESSION, [*made_by(0, done[:-1]), done[-1], wrong]).difference is not None


def test_no_rules_excuse_a_journal_that_contradicts_itself() -> None:
    facts = made_by(0, facts_of(Story().start_run().take_reply("Done.").end_run("completed")))
    again = replay(SESSION, [*facts, replace(facts[1], seq=len(facts) + 1)])
    assert again.difference is not None
    assert "no run is open" in again.difference.rules


def test_a_journal_that_contradicts_itself_is_a_difference() -> None:
    facts = facts_of(Story().start_run().take_reply("Done.").end_run("completed"))
    found = difference([*facts, facts[1]])
    assert found is not None
    assert "no run is open" in found.rules
    found = replay(SESSION, facts[1:]).difference
    assert found is not None
    assert "record 1 was expected" in found.rules


def test_a_clock_that_was_set_is_no_difference() -> None:
    """J8: the rules say what a fact is, and a clock how long the work before it took."""
    facts = facts_of(Story().start_run().do_step(make_call("a")))
    assert any(isinstance(fact, AttemptStarted) for fact in facts)
    assert difference([replace(fact, worked_s=0.5) for fact in facts]) is None


def test_a_run_that_has_not_ended_is_followed_as_far_as_it_goes() -> None:
    facts = facts_of(
        Story().start_run().do_step(make_call("c1")).take_calls(make_call("c2")).allow_calls("c2")
    )
    for end in range(len(facts) + 1):
        replayed = replay(SESSION, facts[:end])
        assert (replayed.is_same, replayed.state.seq) == (True, end)


def test_runs_are_numbered_one_by_one() -> None:
    facts = list(facts_of(Story().start_run()))
    found = difference([replace(facts[0], run=2)])
    assert found == ReplayDifference(1, "run 2", "begin run 1")


def test_a_wave_starts_in_the_order_of_the_model_and_not_too_many_at_once() -> None:
    rules = LoopPolicy(calls_at_once_max=2)
    calls = [make_call(f"c{at}") for at in range(3)]
    story = Story(rules=rules).start_run().take_calls(*calls).allow_calls("c0", "c1", "c2")
    facts = facts_of(story)
    started = [CallStarted(one.id, f"{SESSION}/{one.id}", at=99.0) for one in calls]
    assert difference([*facts, *started[:2], CallFinished("c1", value_result(), at=99.0)]) is None
    too_many = difference([*facts, *started])
    assert too_many is not None
    assert too_many.rules == "wait for c0, c1"
    out_of_order = difference([*facts, started[1]])
    assert out_of_order is not None
    assert out_of_order.rules == "start session/c0"


def test_a_write_that_a_crash_interrupted_is_settled_and_never_just_started() -> None:
    story = (
        Story()
        .start_run()
        .take_calls(make_call("c1", "send"))
        .allow_calls("c1")
        .start_calls("c1")
        .resume()
    )
    facts = facts_of(story)
    found = difference([*facts, CallStarted("c1", f"{SESSION}/c1", at=99.0)])
    assert found is not None
    assert found.rules == "find out what became of c1"
    unknown = CallFinished("c1", ToolResult.from_text("unknown", "?"), at=99.0)
    not_done = CallJudged("c1", Allow("reconcile"), at=99.0)
    assert difference([*facts, unknown]) is None
    assert difference([*facts, not_done]) is None
    assert difference([*facts, CallJudged("c1", Ask("Again?"), at=99.0)]) is not None
    assert difference([*facts, CallJudged("c1", Deny("no"), at=99.0)]) is not None


@pytest.mark.parametrize("verdict", [Allow(), Modify({}, "safer"), Ask("May I?"), Deny("no")])
def test_a_doubted_write_that_was_not_done_is_judged_by_the_gate(verdict: Verdict) -> None:
    """D3, J8: whatever the gate says of it."""
    story = Story().start_run().take_calls(make_call("c1", "send")).allow_calls("c1")
    facts = facts_of(story.start_calls("c1").add(RunResumed(rules=RULES_VERSION, doubted=("c1",))))
    assert difference([*facts, CallJudged("c1", verdict, {}, at=99.0)]) is None
    assert difference([*facts, CallStarted("c1", f"{SESSION}/c1", at=99.0)]) is not None


def test_only_a_run_that_asks_may_ask_about_what_a_crash_interrupted() -> None:
    story = Story(rules=LoopPolicy(on_unknown="ask"))
    story.start_run().take_calls(make_call("c1", "send")).allow_calls("c1").start_calls(
        "c1"
    ).resume()
    asked = CallJudged("c1", Ask("Again?"), at=99.0)
    answered = CallAnswered("c1", Allow(), digest({}), at=100.0)
    again = CallStarted("c1", f"{SESSION}/c1", at=100.0)
    assert difference([*facts_of(story), asked, answered, again]) is None
    waits = difference([*facts_of(story), asked, again])
    assert waits is not None
    assert waits.rules == "wait for an answer about c1"


def test_the_keys_of_another_session_come_before_its_own_and_never_after() -> None:
    """What began as another session holds that one's keys; from then on they are its own."""
    story = Story().start_run().take_calls(make_call("c1")).allow_calls("c1")
    story.add(CallStarted("c1", "parent/c1")).finish_calls("c1")
    story.take_calls(make_call("c2")).allow_calls("c2").start_calls("c2").finish_calls("c2")
    assert same(story)
    story.take_calls(make_call("c3")).allow_calls("c3").add(CallStarted("c3", "parent/c3"))
    found = difference(facts_of(story))
    assert found is not None
    assert found.rules == "start session/c3"


def test_notes_limits_verdicts_and_views_are_as_the_rules_have_them() -> None:
    story = Story().start_run()
    for at in range(3):
        story.do_step(make_call(f"c{at}"), text="same")
    move = decide(story.state)
    note = NoteGiven(getattr(move, "text", ""), "same_call")
    assert same(story.add(note))
    facts = facts_of(story)
    other = difference([*facts[:-1], replace(facts[-1], text="Hush.")])
    assert other is not None
    assert other.rules.startswith(f"tell the model: {REPEAT_NOTE[:40]}")
    heard = Story(judge_replies=True).start_run().take_reply("Hi").add(ReplyJudged(Allow()))
    assert same(heard)
    unheard = difference(
        facts_of(Story(judge_replies=True).start_run().take_reply("Hi").end_run("stuck"))
    )
    assert unheard is not None
    assert unheard.rules == "judge the reply"


def test_a_view_shrinks_where_the_rules_shrink_it() -> None:
    story = Story(compaction=Compaction(strategies=("window",))).start_run()
    story.do_step(make_call("c1"), text="x" * 500).do_step(make_call("c2"), text="y" * 500)
    story.fail_attempt(failed_attempt("context_overflow", retryable=False))
    move = decide(story.state)
    upto, note = getattr(move, "upto", 0), getattr(move, "note", "")
    assert difference([*facts_of(story), ContextCompacted(upto, note, at=99.0)]) is None
    found = difference([*facts_of(story), ContextCompacted(upto - 1, note, at=99.0)])
    assert found is not None
    assert found.rules == f"shorten the view before message {upto} (window)"


def test_a_shared_budget_is_drawn_on_as_the_rules_would() -> None:
    budget = Budget("team", tokens=1_000_000)
    facts = facts_of(Story(budgets=(budget,)).start_run())
    plenty, nothing = Amount(tokens=10**9), Amount(tokens=0)
    assert difference([*facts, BudgetAllotted("team", plenty, at=9.0)]) is None
    assert difference([*facts, BudgetAllotted("team", nothing, dry=True, at=9.0)]) is None
    for wrong in (BudgetAllotted("other", plenty), BudgetAllotted("team", plenty, dry=True)):
        found = difference([*facts, replace(wrong, at=9.0)])
        assert found is not None
        assert found.rules.endswith("in all from team")


def test_a_summary_is_asked_for_and_taken_as_the_rules_would() -> None:
    rules = Compaction(strategies=("summary",))
    story = (
        Story(compaction=rules)
        .start_run()
        .do_step(make_call("c1"), text="x" * 500)
        .do_step(make_call("c2"))
    )
    story.fail_attempt(failed_attempt("context_overflow", retryable=False))
    move = decide(story.state)
    assert isinstance(move, Summarize)
    asked = AttemptStarted(move.step, 1, move.prompt.model, move.reserved, purpose="compaction")
    asked = replace(asked, at=99.0)
    summed = ContextCompacted(move.upto, "Much was seen.", "summary", at=99.0)
    facts = facts_of(story)
    assert difference([*facts, asked, summed]) is None
    assert difference([*facts, asked, replace(failed_attempt(), at=99.0)]) is None
    otherwise = difference([*facts, replace(asked, purpose="main")])
    assert otherwise is not None
    assert otherwise.rules == f"summarize all before message {move.upto}"
    elsewhere = difference([*facts, asked, replace(summed, upto=move.upto + 2)])
    assert elsewhere is not None
    assert elsewhere.rules == "wait for the model's reply"


def test_what_was_said_meanwhile_is_heeded_when_what_was_decided_before_it_is_done() -> None:
    said = SteeringGiven((TextPart("Hurry."),), "ann")
    story = Story().start_run().add(said)
    assert same(story.add(SteeringTaken()).start_attempt())
    late = (
        Story()
        .start_run()
        .add(said)
        .start_attempt()
        .add(StepProposed(AssistantMessage((TextPart("Hi"),)), "end"))
    )
    assert same(late.add(SteeringTaken()))
    twice = difference([*facts_of(Story().start_run()), SteeringTaken(at=9.0)])
    assert twice is not None
    assert twice.rules.startswith("make the request AttemptStarted(")


def test_what_a_prompt_speaks_of_is_recalled_and_looked_up_first() -> None:
    reference = Reference(r"\w+\.txt", "look", "path")
    story = Story(recalls=True, hydration=Hydration(references=(reference,))).start_run(
        "See notes.txt."
    )
    assert isinstance(decide(story.state), RecallKnowledge)
    unrecalled = difference(
        facts_of(Story(story.setup).start_run("See notes.txt.").start_attempt())
    )
    assert unrecalled is not None
    assert unrecalled.rules == "recall what is known"
    story.add(KnowledgeRecalled("Ann is a dentist."))
    move = decide(story.state)
    assert isinstance(move, LookUp)
    ids = [one.id for one in move.calls]
    facts = facts_of(story)
    assert same(
        story.add(LookupsPlanned(move.calls))
        .allow_calls(*ids)
        .start_calls(*ids)
        .finish_calls(*ids)
        .start_attempt()
    )
    other = difference([*facts, LookupsPlanned((make_call("x"),), at=99.0)])
    assert other is not None
    assert other.rules.startswith("look up ")


@pytest.mark.parametrize(
    "end",
    [
        RunEnded("cancelled", "by a person"),
        RunEnded("timed_out", "the limit"),
        RunEnded("failed", "it broke", Fault("bug", "it broke")),
        RunEnded("failed", "the disk", Fault("journal", "the disk")),
    ],
    ids=lambda end: f"{end.outcome}-{end.fault.kind if end.fault else ''}",
)
def test_the_world_may_end_a_run_anywhere(end: RunEnded) -> None:
    facts = facts_of(
        Story(limits=Limits(seconds=1e9))
        .start_run()
        .do_step(make_call("c1"))
        .take_calls(make_call("c2"))
    )
    for at in range(1, len(facts) + 1):
        assert difference([*facts[:at], replace(end, at=facts[at - 1].at)]) is None


def test_a_model_that_was_not_asked_has_nothing_to_say() -> None:
    reply = StepProposed(AssistantMessage((TextPart("Hi"),), MODEL), "end")
    found = difference([*facts_of(Story().start_run()), replace(reply, at=9.0)])
    assert found is not None
    assert "no attempt is open" in found.rules
    asked = facts_of(Story().start_run().start_attempt())
    waits = difference([*asked, replace(asked[-1], at=9.0)])
    assert waits is not None
    assert waits.rules == "wait for the model's reply"
