"""The simulator: what it plays holds, it plays what there is, and each of its rules can fail."""

from collections import Counter
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from typing import get_args

import pytest
from msgspec.structs import replace as with_fields

from proof.simulate import PlayedSession, RuleBroken, __main__, check_rules, draw_plan, play_plan
from proof.simulate.outside import ToolEffect
from proof.simulate.people import SimApprover
from windlass.core.errors import Fault
from windlass.core.events import (
    AttemptFailed,
    CallAnswered,
    CallFinished,
    CallJudged,
    CallStarted,
    ContextCompacted,
    Fact,
    ReplyJudged,
    RunEnded,
    SteeringGiven,
    StepProposed,
    UndoPlanned,
)
from windlass.core.fold.run import fold
from windlass.core.messages import Charge, Usage
from windlass.core.question import Question
from windlass.core.verdicts import Allow, Ask, Deny

pytestmark = pytest.mark.slow

SEEDS = 1_000
CHUNK = 100
SEARCHED = 500
"""Seeds in which anything that can happen happens."""


@pytest.mark.slow
@pytest.mark.contract("V2")
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_session_holds_to_the_rules(first: int) -> None:
    for seed in range(first, first + CHUNK):
        check_rules(_session(seed) if seed < SEARCHED else play_plan(draw_plan(seed)))


@pytest.mark.contract("V2")
def test_a_seed_plays_the_same_session_each_time() -> None:
    for seed in range(30):
        once, again = play_plan(draw_plan(seed)), play_plan(draw_plan(seed))
        assert once.facts == again.facts
        assert once.outside.effects == again.outside.effects
        assert [one.facts for one in once.beside] == [one.facts for one in again.beside]


@pytest.mark.contract("V2")
def test_only_approvers_that_are_broken_on_purpose_break_in_silence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert __main__.main(["--seeds", "0:30"]) == 0
    assert caplog.messages == []

    async def fail(approver: SimApprover, question: Question) -> None:
        raise ValueError("not planned")

    monkeypatch.setattr(SimApprover, "__call__", fail)
    __main__.main(["--seeds", "0:30"])
    assert "ValueError: not planned" in caplog.text


@pytest.mark.contract("V2")
def test_a_seed_that_breaks_a_rule_is_told_in_one_line_that_plays_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(played: PlayedSession) -> None:
        if played.plan.seed == 2:
            raise RuleBroken("X9: a line\nand another")

    monkeypatch.setattr(__main__, "check_rules", broken)
    assert __main__.main(["--seeds", "0:4"]) == 1
    line, total = capsys.readouterr().out.splitlines()
    again = "python -m proof.simulate --seeds 2:3"
    assert line == f"{again}  # RuleBroken: X9: a line and another"
    assert total.endswith("1 broke a rule")


@pytest.mark.contract("V2")
@pytest.mark.slow
def test_all_that_a_run_can_do_is_played() -> None:
    """Else a rule holds because nothing ever puts it to the test."""
    seen = Counter[str]()
    for played in _played():
        for one in (played, *played.beside):
            seen.update(_features(one))
    facts = {kind.__name__ for part in get_args(Fact) for kind in (get_args(part) or (part,))}
    # No plan imports a session: tests/adversary/test_hostile_exports.py does, at every record.
    # Entries are in no session: the plan with a store of facts has them in its streams.
    # Several people answer only through a service: tests/server/test_approvals_by_people.py.
    # No person of a plan withdraws a prompt: tests/agent/test_queued_runs.py.
    outside = {"SessionImported", "EntryKept", "AnswerCounted", "PromptWithdrawn"}
    assert facts - seen.keys() == outside
    wanted = {
        *(f"Compacted {how}" for how in ("mask", "summary", "window")),
        *(f"answered {by}" for by in ("a later process", "apart", "approver")),
        *("grant for one", "grant for a tool", "denied reply", "policy_denied", "expired"),
        *("a helper", "a helper interrupted", "beside", "refused", "steered", "overflow"),
        *("context_overflow", "budget_exceeded", "granted", "summary failed", "pinned"),
        *("undone after a failure", "a helper undone", "a helper's undo interrupted"),
    }
    assert wanted - seen.keys() == set()


def _features(played: PlayedSession) -> Iterator[str]:
    more = played.plan.more
    for fact in played.facts:
        yield type(fact).__name__
        match fact:
            case ContextCompacted(how=how):
                yield f"Compacted {how}"
            case CallAnswered(by=by, grant=grant, verdict=verdict):
                yield f"answered {by or 'a later process'}"
                yield "expired" if getattr(verdict, "rule", "") == "expiry" else "in time"
                if grant is not None:
                    yield "grant for a tool" if grant.pattern else "grant for one"
            case CallJudged(verdict=verdict) if "granted" in getattr(verdict, "rule", ""):
                yield "granted"
            case ReplyJudged(verdict=Deny()):
                yield "denied reply"
            case AttemptFailed(fault=fault):
                yield "overflow" if fault.kind == "context_overflow" else "failed"
            case RunEnded(outcome=outcome, fault=fault):
                yield outcome
                yield fault.kind if fault else "no fault"
            case _:
                pass
    if any(one != "good" for one in more.summaries) and more.window:
        yield "summary failed"
    yield from ("a helper" for _ in played.inner)
    resumed = (fact for facts in played.inner.values() for fact in facts)
    yield from ("a helper interrupted" for one in resumed if type(one).__name__ == "RunResumed")
    yield from ("beside" for _ in played.beside)
    yield from ("refused" for _ in range(played.outside.refused))
    yield from ("steered" for _ in played.outside.steered)
    yield from ("pinned" for pinned in more.pinned if pinned)
    planned = (fact for fact in played.undo_facts if isinstance(fact, UndoPlanned))
    yield from (type(fact).__name__ for fact in planned)
    yield from ("undone after a failure" for fact in played.facts if _is_undo_due(fact))
    undoing = [fact for facts in played.inner_undo_facts.values() for fact in facts]
    yield from ("a helper undone" for fact in undoing if isinstance(fact, UndoPlanned))
    resumed = (fact for fact in undoing if type(fact).__name__ == "RunResumed")
    yield from ("a helper's undo interrupted" for _ in resumed)


def _is_undo_due(fact: Fact) -> bool:
    return isinstance(fact, RunEnded) and fact.undo


@cache
def _session(seed: int) -> PlayedSession:
    """Play a session once for all the tests that look at it."""
    return play_plan(draw_plan(seed))


def _copy_session(seed: int) -> PlayedSession:
    """Return a session to tamper with. What it shares with the one that was played is frozen."""
    played = copy(_session(seed))
    played.outside = copy(played.outside)
    played.drives = [copy(drive) for drive in played.drives]
    played.inner_undo_facts = {key: [*facts] for key, facts in played.inner_undo_facts.items()}
    return played


def _played() -> Iterator[PlayedSession]:
    return (_session(seed) for seed in range(SEARCHED))


Tampering = Callable[[PlayedSession], bool]
"""Makes something untrue in a session; whether it has what there is to tamper with."""


def first_of(played: PlayedSession, kind: type[Fact]) -> int | None:
    return next((at for at, fact in enumerate(played.facts) if type(fact) is kind), None)


def done_twice(played: PlayedSession) -> bool:
    effects = played.outside.effects
    played.outside.effects = [*effects, *effects[:1]]
    return bool(effects)


def done_unannounced(played: PlayedSession) -> bool:
    played.outside.effects = [*played.outside.effects, ToolEffect("sim/c9_9", "send", 0)]
    return True


def done_otherwise(played: PlayedSession) -> bool:
    effects = played.outside.effects
    played.outside.effects = [replace(one, number=one.number + 1000) for one in effects]
    return bool(effects)


def never_said(played: PlayedSession) -> bool:
    played.outside.steered = [*played.outside.steered, "Not on record"]
    return True


def dearer(played: PlayedSession) -> bool:
    served, limit = played.outside.billed_requests, played.plan.usd_max
    dear = [replace(one, usd=(limit or Decimal(0)) + 1) for one in served]
    played.outside.billed_requests = dear
    return limit is not None and bool(served) and played.plan.usage_reported


def overdrawn(played: PlayedSession) -> bool:
    limit = played.plan.more.budget_usd
    free = all(one.plan.usage_reported for one in (played, *played.beside))
    played.plan = replace(played.plan, more=replace(played.plan.more, budget_usd=Decimal("1e-9")))
    return limit is not None and free and bool(played.outside.billed_requests)


def nobody_said_yes(played: PlayedSession) -> bool:
    said, played.outside.replies = played.outside.replies, []
    answers = (fact for fact in played.facts if isinstance(fact, CallAnswered))
    return bool(said) and any(isinstance(fact.verdict, Allow) for fact in answers)


def asked_and_not_answered(played: PlayedSession) -> bool:
    at = first_of(played, CallStarted)
    if at is None:
        return False
    started = played.facts[at]
    assert isinstance(started, CallStarted)
    question = CallJudged(started.call_id, Ask("May I?"))
    played.facts = [*played.facts[:at], question, *played.facts[at:]]
    return True


def a_bug(played: PlayedSession) -> bool:
    last = played.facts[-1]
    if not isinstance(last, RunEnded):
        return False  # A message came after the end, and was refused.
    played.facts = [*played.facts[:-1], with_fields(last, fault=Fault("bug", "ours"))]
    return True


def shown_and_not_kept(played: PlayedSession) -> bool:
    at = first_of(played, StepProposed)
    for drive in played.drives:
        drive.events = [one for one in drive.events if type(one) is not RunEnded]
    played.facts = [one for one in played.facts if one is not played.facts[at or 0]]
    return at is not None and any(drive.events for drive in played.drives)


def denied_and_shown(played: PlayedSession) -> bool:
    at = first_of(played, ReplyJudged)
    fact = played.facts[at] if at is not None else None
    shown = any(type(one) is ReplyJudged for drive in played.drives for one in drive.events)
    if not isinstance(fact, ReplyJudged) or not isinstance(fact.verdict, Allow) or not shown:
        return False
    denied = with_fields(fact, verdict=Deny("no"))
    played.facts = [denied if one is fact else one for one in played.facts]
    for drive in played.drives:
        drive.events = [denied if one == fact else one for one in drive.events]
    return True


def helper_left_open(played: PlayedSession) -> bool:
    played.inner = {key: facts[:-1] for key, facts in played.inner.items()}
    is_plain = not played.inner_undo_facts and not played.plan.watched
    return bool(played.inner) and not played.has_crashed and is_plain


def helper_unpaid(played: PlayedSession) -> bool:
    paid = any(isinstance(fact, CallFinished) and fact.charges for fact in played.facts)
    played.facts = [
        with_fields(fact, charges=()) if isinstance(fact, CallFinished) else fact
        for fact in played.facts
    ]
    return paid and not played.plan.watched


def summary_as_main(played: PlayedSession) -> bool:
    paid = Charge("sim:model", "main", Usage(1, 1), Decimal(0))
    summed_up = [fact for fact in played.facts if type(fact) is ContextCompacted]
    played.facts = [
        with_fields(fact, charge=paid) if isinstance(fact, ContextCompacted) else fact
        for fact in played.facts
    ]
    return bool(summed_up) and not played.plan.watched


def history_rewritten(played: PlayedSession) -> bool:
    at = first_of(played, StepProposed)
    fact = played.facts[at] if at is not None else None
    if not isinstance(fact, StepProposed) or not fact.reply.text.strip() or played.plan.watched:
        return False
    other = with_fields(fact, reply=with_fields(fact.reply, parts=fact.reply.calls))
    changed = [other if one is fact else one for one in played.facts]
    played.state = fold(played.plan.session, changed)
    return True


def a_second_driver(played: PlayedSession) -> bool:
    played.outside.problems = ["a second process wrote"]
    return True


def late_end(played: PlayedSession) -> bool:
    for drive in played.drives:
        drive.ended_at += 0.2
    cancelled = any(one.cancelled_at is not None and one.powered for one in played.drives)
    return cancelled and played.plan.more.on_failure == "keep"


def steered_twice(played: PlayedSession) -> bool:
    said = [fact for fact in played.facts if isinstance(fact, SteeringGiven)]
    played.facts = [*played.facts, *said]
    return bool(said)


def undone_twice(played: PlayedSession) -> bool:
    undone = played.outside.undone
    played.outside.undone = [*undone, *undone[:1]]
    return bool(undone)


def undone_by_two_calls(played: PlayedSession) -> bool:
    undone = played.outside.undone
    played.outside.undone = [*undone, *(replace(one, key="sim/u9_9") for one in undone[:1])]
    return bool(undone)


def undone_in_words_alone(played: PlayedSession) -> bool:
    undone, played.outside.undone = played.outside.undone, []
    finished = (fact for fact in played.undo_facts if isinstance(fact, CallFinished))
    return bool(undone) and any(fact.result.kind == "value" for fact in finished)


def due_and_not_undone(played: PlayedSession) -> bool:
    played.undo_facts = ()
    return any(map(_is_undo_due, played.facts))


def helper_undone_with_another_snapshot(played: PlayedSession) -> bool:
    for facts in played.inner_undo_facts.values():
        for at, fact in enumerate(facts):
            if isinstance(fact, UndoPlanned):
                undone = tuple(with_fields(one, snapshot="other") for one in fact.undone)
                facts[at] = with_fields(fact, undone=undone)
    return bool(played.inner_undo_facts)


@dataclass(frozen=True)
class Case:
    tamper: Tampering
    rule: str


CASES = [
    Case(done_twice, "J2"),
    Case(done_unannounced, "J1"),
    Case(done_otherwise, "G1|T4"),
    Case(never_said, "L8"),
    Case(dearer, "B2"),
    Case(overdrawn, "B2"),
    Case(nobody_said_yes, "G6"),
    Case(asked_and_not_answered, "G2|L2|G6|J1"),
    Case(a_bug, "L3"),
    Case(shown_and_not_kept, "E3|J1"),
    Case(denied_and_shown, "G3|X1"),
    Case(helper_left_open, "C6"),
    Case(helper_unpaid, "M1|S12"),
    Case(summary_as_main, "S12|D12"),
    Case(history_rewritten, "X1"),
    Case(a_second_driver, "second"),
    Case(late_end, "C1"),
    Case(steered_twice, "J1|X1"),
    Case(undone_twice, "J2: .* was undone 2 times"),
    Case(undone_by_two_calls, "J2: .* was undone by 2 calls"),
    Case(undone_in_words_alone, "J2: .* is reported as undone, and was not"),
    Case(due_and_not_undone, "J4: a run that did not complete was not undone"),
    Case(helper_undone_with_another_snapshot, "J2: .* has another snapshot"),
]


@pytest.mark.contract("V2")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.tamper.__name__)
@pytest.mark.slow
def test_a_rule_that_is_broken_is_found(case: Case) -> None:
    """One thing is made untrue in a session that held, and the rule for it says so."""
    for seed in range(SEARCHED):
        if case.tamper(_copy_session(seed)):
            played = _copy_session(seed)
            check_rules(played)
            case.tamper(played)
            with pytest.raises(RuleBroken, match=case.rule):
                check_rules(played)
            return
    pytest.fail("no session has what there is to tamper with")
