"""Whether the next request can be paid for, and by whom."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from facts import MODEL, PRICE, Story, make_call, make_charge, make_setup, value_result
from windlass.core.decide.reserving import (
    BudgetDrawNeeded,
    remaining_amount,
    reserve_request,
    spent_amount,
    total_needed,
)
from windlass.core.events import BudgetAllotted, CallFinished, Reservation, RunEnded
from windlass.core.limits import Amount, Budget, Limits, SessionLimits
from windlass.core.messages import Charge, Ledger, Usage
from windlass.core.moves import DrawBudget, EndRun, RequestReply, RunCalls
from windlass.core.setup import ModelInfo
from windlass.core.state import RunState, State

INFO = ModelInfo(MODEL, PRICE, output_max=1_000)
TEAM = Budget("team", tokens=10**6)
HOUSE = Budget("house", usd=Decimal(5))


def story_of(**settings: Any) -> Story:
    return Story(model=INFO, **settings).start_run()


# ── of a session ─────────────────────────────────────────────────────────────


def test_a_session_has_limits_of_its_own_over_all_its_runs() -> None:
    """B1, B2."""
    story = story_of(session_limits=SessionLimits(tokens=3_000))
    first = story.expect_move(RequestReply).reserved
    assert first.output == 1_000
    story.take_reply("Hi.", charge=make_charge(500, 1_500)).end_run("completed").start_run("More.")
    room = story.expect_move(RequestReply).reserved
    assert room.input + room.output <= 1_000
    story.take_reply("Hi.", charge=make_charge(500, 500)).end_run("completed").start_run("More.")
    end = story.expect_move(EndRun)
    assert (end.outcome, end.reason) == (
        "budget_exceeded",
        "the next request does not fit into what is left of the limits",
    )


def test_the_tighter_of_two_limits_counts() -> None:
    """B1."""
    for run, session in [(1_500, 10**6), (10**6, 1_500)]:
        story = story_of(limits=Limits(tokens=run), session_limits=SessionLimits(tokens=session))
        reserved = story.expect_move(RequestReply).reserved
        assert reserved.input + reserved.output <= 1_500


def test_a_session_has_a_cap_of_steps() -> None:
    """B1, L7."""
    story = (
        story_of(session_limits=SessionLimits(steps=2))
        .do_step(make_call("a"))
        .end_run()
        .start_run()
    )
    assert story.do_step(make_call("b")).outcome == "max_steps"
    assert story.end_run("max_steps").start_run().outcome == "max_steps"


# ── shared budgets ───────────────────────────────────────────────────────────


def test_a_budget_is_asked_before_a_request_for_what_that_may_cost() -> None:
    """B1, B2."""
    story = story_of(budgets=(TEAM, HOUSE))
    first = story.expect_move(DrawBudget)
    assert (first.budget, first.total_wanted.usd) == (TEAM, None)
    second = story.draw_budget().expect_move(DrawBudget)
    assert (second.budget, second.total_wanted.tokens) == (HOUSE, None)
    reserved = story.draw_budget().expect_move(RequestReply).reserved
    assert first.total_wanted.tokens == reserved.input + reserved.output
    assert second.total_wanted.usd == reserved.usd


def test_a_budget_is_asked_for_all_that_the_run_spends() -> None:
    """B1: what it gave before is in it."""
    story = story_of(budgets=(TEAM,)).draw_budget().do_step(make_call("a"))
    story.draw_budget().take_reply(
        "Look:", make_call("b"), charge=make_charge(400, 100)
    ).allow_calls("b").start_calls("b")
    wanted_now = story.finish_calls("b").expect_move(DrawBudget).total_wanted
    reserved = story.draw_budget().expect_move(RequestReply).reserved
    assert wanted_now.tokens == 500 + reserved.input + reserved.output


def test_a_budget_with_enough_is_not_asked_again() -> None:
    story = story_of(budgets=(TEAM,)).draw_budget(Amount(tokens=10**6)).do_step(make_call("a"))
    story.expect_move(RequestReply)


def test_a_budget_that_is_short_lowers_the_output() -> None:
    """B2: the output cap is lowered to what is left."""
    story = story_of(budgets=(TEAM,))
    need = story.expect_move(DrawBudget).total_wanted.tokens or 0
    story.draw_budget(Amount(tokens=need - 300))
    assert story.run.allotments[0].dry
    assert story.expect_move(RequestReply).reserved.output == 700


def test_a_budget_that_is_dry_ends_the_run_and_is_named() -> None:
    """B2: a call that cannot fit is not made."""
    end = story_of(budgets=(TEAM,)).draw_budget(Amount(tokens=10)).expect_move(EndRun)
    assert (end.outcome, end.reason) == (
        "budget_exceeded",
        "the budget team has no room for the next request",
    )


def test_a_dry_budget_is_asked_once_for_each_request() -> None:
    """B1: others may have given back meanwhile."""
    story = story_of(budgets=(TEAM,))
    need = story.expect_move(DrawBudget).total_wanted.tokens or 0
    story.draw_budget(Amount(tokens=need - 300)).expect_move(RequestReply)
    story.do_step(make_call("a"))
    assert not story.run.allotments[0].dry
    story.expect_move(DrawBudget)


def test_what_a_budget_promised_does_not_outlive_its_driver() -> None:
    """B1: it may have gone back meanwhile."""
    story = story_of(budgets=(TEAM,)).draw_budget(Amount(tokens=10**6))
    story.expect_move(RequestReply)
    assert story.resume().run.allotments == ()
    story.expect_move(DrawBudget)


def test_what_others_spent_for_the_run_they_drew_themselves() -> None:
    """B1, M1: it counts for the run's own limits, and not twice for a shared budget."""
    story = (
        story_of(budgets=(TEAM,))
        .draw_budget(Amount(tokens=5_000))
        .take_calls(make_call("a"))
        .allow_calls("a")
    )
    bill = Charge("test:helper", "subagent", Usage(4_900))
    story.start_calls("a").add(CallFinished("a", value_result(), (bill,)))
    assert story.run.ledger.usage == bill.usage
    story.expect_move(RequestReply)


def test_a_new_run_draws_anew() -> None:
    story = (
        story_of(budgets=(TEAM,)).draw_budget(Amount(tokens=10**6)).end_run("cancelled").start_run()
    )
    story.expect_move(DrawBudget)


def test_a_budget_that_is_not_set_up_gives_nothing() -> None:
    """J1."""
    assert "no budget team is set" in story_of().check_refused(
        BudgetAllotted("team", Amount(tokens=1))
    )


AMOUNTS = st.one_of(st.none(), st.integers(0, 5_000))
MONEY = st.one_of(st.none(), st.integers(0, 60_000).map(lambda micro: Decimal(micro) / 10**6))


@given(
    st.integers(1, 4_000),
    st.tuples(AMOUNTS, AMOUNTS, AMOUNTS),
    st.tuples(MONEY, MONEY, MONEY),
    st.integers(0, 2_000),
    st.booleans(),
)
def test_no_request_is_funded_beyond_any_limit(
    tokens: int,
    caps: tuple[int | None, ...],
    money: tuple[Decimal | None, ...],
    used: int,
    dry: bool,  # noqa: FBT001
) -> None:
    """B2: neither the run's, nor the session's, nor a budget's; in tokens and in money."""
    charge = Charge(MODEL, usage=Usage(used, 0), usd=Decimal(used) * 3 / 10**6)
    ledger = Ledger((charge,))
    budget = Budget("team", tokens=1, usd=Decimal(1))
    setup = make_setup(
        model=INFO,
        limits=Limits(tokens=caps[0] or None, usd=money[0] or None),
        session_limits=SessionLimits(tokens=caps[1] or None, usd=money[1] or None),
        budgets=(budget,),
    )
    held = Amount(money[2], caps[2])
    run = RunState(1, 0, ledger=ledger, allotments=(BudgetAllotted("team", held, dry=dry),))
    state = State("s", setup=setup, run=run, ledger=ledger)
    rooms = (
        remaining_amount(setup.limits, ledger),
        remaining_amount(setup.session_limits, ledger),
        remaining_amount(held, ledger),
    )
    match reserve_request(state, setup, run, INFO, tokens):
        case Reservation() as reserved:
            assert reserved.input == tokens
            for room in rooms:
                assert room.tokens is None or reserved.input + reserved.output <= room.tokens
                assert room.usd is None or (reserved.usd or Decimal(0)) <= room.usd
        case BudgetDrawNeeded(_, need):
            assert not dry
            assert need != held
        case None:
            least = Amount(Decimal(tokens * 3 + 15) / 10**6, tokens + 1)
            assert any(
                (room.tokens is not None and room.tokens < (least.tokens or 0))
                or (room.usd is not None and room.usd < (least.usd or 0))
                for room in rooms
            )


def test_what_is_wanted_of_a_budget_is_what_it_counts() -> None:
    """B4: exactly."""
    ledger = Ledger((make_charge(10, 5, "0.001"),))
    reserved = Reservation(100, 50, Decimal("0.0025"))
    assert total_needed(TEAM, reserved, ledger) == Amount(None, 165)
    assert total_needed(HOUSE, reserved, ledger) == Amount(Decimal("0.0035"), None)
    assert spent_amount(ledger) == Amount(Decimal("0.001"), 15)
    unknown = Reservation(100, 50)
    assert total_needed(HOUSE, unknown, ledger) == Amount(Decimal("0.001"), None)


# ── the shares of calls ──────────────────────────────────────────────────────


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_calls_that_run_together_share_what_is_left(count: int) -> None:
    """B1, M1: all their parts together are no more than that."""
    limits = Limits(tokens=100_000, usd=Decimal("1.00"))
    ids = [f"c{at}" for at in range(count)]
    story = story_of(limits=limits, session_limits=SessionLimits(usd=Decimal("0.50")))
    story.take_calls(*(make_call(one) for one in ids)).allow_calls(*ids)
    parts = [cleared.spending_left for cleared in story.expect_move(RunCalls).calls]
    assert len(parts) == count
    assert len(set(map(str, parts))) == 1
    assert sum(one.tokens or 0 for one in parts) <= 100_000 < (parts[0].tokens or 0) * count + count
    assert Decimal("0.4999") < sum(one.usd or Decimal(0) for one in parts) <= Decimal("0.50")


def test_without_a_limit_a_call_has_none() -> None:
    assert (
        story_of().take_calls(make_call("a")).allow_calls("a").next_call.spending_left == Amount()
    )


def test_what_a_call_paid_is_the_runs_and_the_sessions_to_pay() -> None:
    """B1, S12: usage of a sub-agent is summed up, in its own bucket."""
    story = story_of(limits=Limits(tokens=2_000)).take_calls(make_call("a"), make_call("b", "send"))
    story.allow_calls("a", "b").start_calls("a")
    bill = Charge("test:helper", "subagent", Usage(900, 100), Decimal("0.01"))
    story.add(CallFinished("a", value_result(), (bill, bill)))
    assert story.run.ledger.charges == (
        Charge("test:helper", "subagent", Usage(1_800, 200), Decimal("0.02")),
    )
    assert story.state.ledger == story.run.ledger
    assert story.next_call.spending_left.tokens == 0
    story.start_calls("b").add(CallFinished("b", value_result()))
    assert story.outcome == "budget_exceeded"


def test_what_calls_paid_is_kept_when_the_run_is_stopped() -> None:
    """L5, C2: nothing of it is lost."""
    story = story_of().take_calls(make_call("a")).allow_calls("a").start_calls("a")
    bill = Charge("test:helper", "subagent", Usage(9, 1))
    story.add(RunEnded("cancelled", charges=(bill,)))
    assert story.run.ledger.charges == (bill,)
    assert story.state.ledger.charges == (bill,)
