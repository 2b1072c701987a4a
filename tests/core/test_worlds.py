"""Any world: what holds for every session that `decide` and `apply` can come to."""

from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import reduce
from random import Random
from typing import get_args

import msgspec
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from facts import SESSION
from play import RandomSession, calls_of, draw_setup, request_faults
from windlass.core.decide.reserving import own_spending, remaining_amount, tightest_amount
from windlass.core.events import (
    AnswerCounted,
    AnswerForwarded,
    AttemptFailed,
    AttemptStarted,
    BudgetAllotted,
    CallFinished,
    CallWaiting,
    ContextCompacted,
    EntryKept,
    Fact,
    KnowledgeRecalled,
    LookupsPlanned,
    Outcome,
    PromptWithdrawn,
    ReleaseAsked,
    RunEnded,
    RunQueued,
    RunResumed,
    RunStarted,
    SessionImported,
    SteeringGiven,
    StepProposed,
)
from windlass.core.fold.run import fold
from windlass.core.limits import Amount
from windlass.core.messages import AssistantMessage, Charge, Ledger, ToolResults, Usage, UserMessage
from windlass.core.moves import Move, RequestReply, RunCalls, Summarize
from windlass.core.setup import CompactionMethod, Setup
from windlass.core.state import RunState, State
from windlass.core.transcript import message_tokens_max
from windlass.testing.prompts import PromptChecker


def played(random: Random) -> RandomSession:
    return RandomSession(random, draw_setup(random)).play_runs(3)


PLAYS = st.randoms(use_true_random=True).map(played)
_journal = msgspec.json.Decoder(list[Fact])


def told(play: RandomSession) -> Iterator[tuple[State, Fact, State]]:
    """Each fact between the state before it and the state after it."""
    return zip([State(SESSION), *play.states], play.facts, play.states, strict=False)


def run_of(state: State) -> RunState:
    assert state.run is not None
    return state.run


def setup_of(state: State) -> Setup:
    assert state.setup is not None
    return state.setup


# ── the worlds themselves ────────────────────────────────────────────────────


@pytest.mark.slow
def test_the_worlds_come_to_every_move_and_every_fact() -> None:
    """V2: what no world does, no property can find."""
    plays = [played(Random(seed)) for seed in range(450)]
    facts = [fact for play in plays for fact in play.facts]
    moves = Counter(type(move) for play in plays for _, move in play.moves)
    kinds = Counter(map(type, facts))
    hows = Counter(fact.how for fact in facts if isinstance(fact, ContextCompacted))
    ends = {fact.outcome for fact in facts if isinstance(fact, RunEnded)}
    assert set(moves) == set(get_args(Move))
    # A session is imported from outside of any world: tests/adversary/test_hostile_exports.py.
    # A call waits for its sub-agent only where there is one: proof/simulate.
    # A run is moved only where another driver can come: proof/simulate.
    # Entries are no part of a session: tests/journals/test_completing.py.
    # Runs wait in a queue only where another process accepts them: proof/simulate.
    # Several people answer only through a service: tests/server/test_approvals_by_people.py.
    outside = {SessionImported, CallWaiting, AnswerForwarded, EntryKept, ReleaseAsked}
    outside |= {RunQueued, PromptWithdrawn, AnswerCounted}
    assert set(kinds) == set(get_args(Fact)) - outside
    assert set(hows) == set(get_args(CompactionMethod))
    assert min(moves.values()) >= 10
    assert min(hows.values()) >= 10
    assert set(get_args(Outcome)) - ends <= {
        *("suspended", "paused", "released", "timed_out", "policy_denied")
    }
    assert any(isinstance(fact, BudgetAllotted) and fact.dry for fact in facts)
    assert any(isinstance(fact, RunStarted) and fact.pinned for fact in facts)


# ── ends and requests ────────────────────────────────────────────────────────


@given(PLAYS)
def test_any_world_comes_to_an_end_and_every_request_is_valid(play: RandomSession) -> None:
    """L3, X1, T6: `decide` never raises in an open run, and every run ends once.

    Valid: each call is answered exactly once, in order, and its arguments are a JSON object,
    whatever was masked, summed up or left out.
    """
    ends = [fact for fact in play.facts if isinstance(fact, RunEnded)]
    for end in ends:
        event(end.outcome)
    assert len(ends) == sum(isinstance(fact, RunStarted) for fact in play.facts) >= 3
    checker = PromptChecker()
    for prompt in (*play.prompts, *play.summaries):
        checker.check(prompt)
        assert request_faults(prompt) == []


@given(PLAYS)
def test_any_session_is_what_its_journal_adds_up_to(play: RandomSession) -> None:
    """L1: resume after a crash is this same path, at any record, also through the bytes on disk."""
    read = _journal.decode(msgspec.json.encode(play.facts))
    assert read == play.facts
    assert fold(SESSION, read) == play.state
    state = fold(SESSION, read[: len(read) // 2])
    assert state == play.states[len(read) // 2 - 1]


@given(PLAYS)
def test_in_any_world_the_transcript_only_grows(play: RandomSession) -> None:
    """X1: the transcript is never rewritten."""
    longest = list(play.state.transcript)
    for state in play.states:
        assert list(state.transcript) == longest[: len(state.transcript)]


@given(PLAYS)
def test_in_any_world_every_call_has_one_result(play: RandomSession) -> None:
    """T6, J2: and what ran, finished at most once."""
    transcript = play.state.transcript
    made = [one.id for message in transcript for one in calls_of(message)]
    results = [message for message in transcript if isinstance(message, ToolResults)]
    answered = [item.call.id for message in results for item in message.items]
    finished = [fact.call_id for fact in play.facts if isinstance(fact, CallFinished)]
    assert made == answered
    assert len(set(made)) == len(made)
    assert len(set(finished)) == len(finished)


# ── limits and money ─────────────────────────────────────────────────────────


@given(PLAYS)
def test_no_world_gets_more_replies_or_money_than_its_limits(play: RandomSession) -> None:
    """L7, B1, B2: neither a run nor a session, whoever spent it, however often a driver died."""
    landing = play.setup.rules.on_limit == "answer"
    cap = play.setup.session_limits.steps
    for state in play.states:
        # Somebody may have raised the limits meanwhile.
        run, setup = run_of(state), setup_of(state)
        assert run.steps <= (setup.limits.steps or 0) + landing
        assert cap is None or state.steps <= cap
        for limit, ledger in ((setup.limits, run.ledger), (setup.session_limits, state.ledger)):
            rest = remaining_amount(limit, ledger)
            assert rest.tokens is None or rest.tokens >= 0
            assert rest.usd is None or rest.usd >= 0


@given(PLAYS)
def test_no_request_reserves_more_than_any_limit_or_budget_leaves(play: RandomSession) -> None:
    """B2: the run's limits, the session's, and every shared budget hold for each request."""
    for before, fact, _ in told(play):
        if not isinstance(fact, AttemptStarted):
            continue
        run, setup = run_of(before), setup_of(before)
        assert {one.budget for one in run.allotments} == {one.name for one in setup.budgets}
        # Those who worked for the run drew on the budgets themselves.
        held = (remaining_amount(one.amount, own_spending(run.ledger)) for one in run.allotments)
        limits = (
            remaining_amount(setup.limits, run.ledger),
            remaining_amount(setup.session_limits, before.ledger),
        )
        need = Amount(fact.reserved.usd, fact.reserved.input + fact.reserved.output)
        for room in (*limits, *held):
            assert room.tokens is None or (need.tokens or 0) <= room.tokens
            assert room.usd is None or (need.usd or Decimal(0)) <= room.usd


@given(PLAYS)
def test_calls_that_run_together_never_get_more_than_is_left(play: RandomSession) -> None:
    """B1: their parts of what is left never sum to more than that."""
    for state, move in play.moves:
        if not isinstance(move, RunCalls):
            continue
        rooms = (
            remaining_amount(setup_of(state).limits, run_of(state).ledger),
            remaining_amount(setup_of(state).session_limits, state.ledger),
        )
        room = tightest_amount(*rooms)
        parts = [cleared.spending_left for cleared in move.calls]
        assert room.tokens is None or sum(one.tokens or 0 for one in parts) <= room.tokens
        assert room.usd is None or sum(one.usd or Decimal(0) for one in parts) <= room.usd


def charges_of(before: State, fact: Fact) -> Iterable[Charge | None]:
    match fact:
        case AttemptFailed(charge=paid) | StepProposed(charge=paid) | ContextCompacted(charge=paid):
            yield paid
        case CallFinished(charges=charges):
            yield from charges
        case RunEnded(charge=paid, charges=charges):
            yield paid
            yield from charges
        case RunResumed() if (attempt := run_of(before).attempt) is not None:
            most = attempt.reserved
            usage = Usage(most.input, most.output, estimated=True)
            yield Charge(attempt.model, attempt.purpose, usage, most.usd)
        case _:
            return


@given(PLAYS)
def test_all_that_was_paid_is_in_the_ledger_by_purpose(play: RandomSession) -> None:
    """S12, X2: summaries count in the total and in their own bucket."""
    paid = [one for before, fact, _ in told(play) for one in charges_of(before, fact) if one]
    assert play.state.ledger == reduce(Ledger.add, paid, Ledger())
    summed_up = sum(one.usage.total for one in paid if one.purpose == "compaction" and one.usage)
    buckets = [one.usage for one in play.state.ledger.charges if one.purpose == "compaction"]
    assert sum(one.total for one in buckets if one) == summed_up


# ── the view ─────────────────────────────────────────────────────────────────


def replies_of(state: State, run: RunState) -> Iterator[int]:
    """Where the run's replies are; it begins with its prompt."""
    yield run.new_from
    for at in range(run.new_from, len(state.transcript)):
        if isinstance(state.transcript[at], AssistantMessage):
            yield at


@given(PLAYS)
def test_what_must_stay_is_in_every_request(play: RandomSession) -> None:
    """X2, K1: the running prompt, pinned messages, what was recalled; whole, what is new."""
    for state, move in play.moves:
        if not isinstance(move, RequestReply):
            continue
        run, shown = run_of(state), list(move.prompt.messages)
        pinned = [one for one in state.transcript if isinstance(one, UserMessage) and one.pinned]
        staying = [state.transcript[run.new_from], *pinned, *([run.known] if run.known else [])]
        fresh = list(state.transcript[max(replies_of(state, run)) :])
        for message in staying:
            assert sum(one is message for one in shown) == 1
        said = [one for one in shown if one is not run.known]
        assert said[-len(fresh) :] == fresh
        assert move.prompt.system == play.setup.instructions


@given(PLAYS)
def test_the_size_of_the_view_is_kept_up_to_date(play: RandomSession) -> None:
    """B2: what is reserved is what is shown."""
    for state in play.states:
        assert state.size == sum(map(message_tokens_max, state.shown))


@given(PLAYS)
def test_no_summary_is_tried_while_it_cools_down_and_none_fails_a_run(play: RandomSession) -> None:
    """X2."""
    for state, move in play.moves:
        if isinstance(move, Summarize):
            assert state.steps >= state.no_summary_before
    for before, fact, after in told(play):
        attempt = run_of(before).attempt if before.run else None
        if isinstance(fact, AttemptFailed) and attempt and attempt.purpose == "compaction":
            assert after.is_active
            assert run_of(after).failures == run_of(before).failures


@given(PLAYS)
def test_a_providers_word_is_followed_once_for_each_step(play: RandomSession) -> None:
    """S13: compact once by force."""
    forced: Counter[tuple[int, int]] = Counter()
    for before, fact, _ in told(play):
        if isinstance(fact, ContextCompacted) and run_of(before).failures:
            forced[run_of(before).number, before.steps] += 1
    assert all(count == 1 for count in forced.values())


# ── what is said, looked up, recalled and held ───────────────────────────────


@given(PLAYS)
def test_what_was_said_meanwhile_is_heard_exactly_once(play: RandomSession) -> None:
    """Nothing said is lost, also not at the end, and no request goes out without it."""
    said = [fact.prompt for fact in play.facts if isinstance(fact, SteeringGiven)]
    heard = Counter(one.parts for one in play.state.transcript if isinstance(one, UserMessage))
    assert [heard[prompt] for prompt in said] == [1] * len(said)
    for state, move in play.moves:
        assert not (isinstance(move, RequestReply) and run_of(state).pending)


@given(PLAYS)
def test_a_prompt_is_looked_up_and_recalled_at_most_once(play: RandomSession) -> None:
    """X4, K1: before the first step, and not again after a crash."""
    seen: Counter[tuple[type, int]] = Counter()
    for before, fact, after in told(play):
        if isinstance(fact, LookupsPlanned | KnowledgeRecalled):
            seen[type(fact), run_of(after).number] += 1
            assert run_of(before).steps == 0
    assert all(count == 1 for count in seen.values())
    for number in range(1, 4):
        calls = [f"h{number}_{at}: look" for at in range(2)]
        texts = [one.text for one in play.state.transcript if isinstance(one, UserMessage)]
        found = [sum(call in text for text in texts) for call in calls]
        assert found == [seen[LookupsPlanned, number]] * 2


@given(PLAYS)
def test_what_a_session_holds_it_never_forgets(play: RandomSession) -> None:
    """G6, G7: labels, their sources and grants survive compaction, resume and new runs."""
    for before, fact, after in told(play):
        assert before.labels <= after.labels
        assert after.sources[: len(before.sources)] == before.sources
        assert after.grants[: len(before.grants)] == before.grants
        assert {label for label, _ in after.sources} == after.labels
        assert not isinstance(fact, RunStarted) or after.labels == before.labels
