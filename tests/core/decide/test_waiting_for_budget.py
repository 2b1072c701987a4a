"""A shared budget that has too little only because other runs hold reserves of it."""

from decimal import Decimal

import pytest

from facts import MODEL, PRICE, Story
from windlass.core.decide.next_move import decide
from windlass.core.driver_needs import needs_driver
from windlass.core.errors import IllegalFact
from windlass.core.events import (
    BudgetAllotted,
    BudgetAwaited,
    BudgetWaitEnded,
    RunPaused,
    RunReleased,
)
from windlass.core.limits import Amount, Budget
from windlass.core.moves import (
    AwaitBudget,
    DrawBudget,
    EndRun,
    PauseRun,
    RequestReply,
    StayPaused,
    StayWaiting,
)
from windlass.core.session_summary import row_of
from windlass.core.setup import LoopPolicy, ModelInfo

INFO = ModelInfo(MODEL, PRICE, output_max=1_000)
TEAM = Budget("team", tokens=10**6)
HELD = Amount(tokens=10**6)


def story_of(rules: LoopPolicy | None = None) -> Story:
    return Story(model=INFO, budgets=(TEAM,), rules=rules or LoopPolicy()).start_run()


def draw_dry(story: Story, tokens: int = 10, held: Amount | None = HELD) -> Story:
    story.expect_move(DrawBudget)
    return story.add(BudgetAllotted("team", Amount(tokens=tokens), dry=True, held=held))


def wait(story: Story) -> Story:
    move = story.expect_move(AwaitBudget)
    return story.add(BudgetAwaited(move.budget, move.held, move.wait_s))


@pytest.mark.contract("B2")
@pytest.mark.contract("L4")
def test_a_run_waits_for_what_others_hold() -> None:
    """L4, B2: waiting for a budget is not an end, nor is it a request."""
    story = wait(draw_dry(story_of()))
    assert story.expect_move(StayWaiting).wait.budget == "team"
    row = row_of(story.state)
    assert (row.state, row.outcome) == ("awaiting_budget", None)
    assert row.due == story.state.at + 2.0
    story.add(BudgetWaitEnded("team"), after_s=2.0)
    assert row_of(story.state).state == "open"
    story.expect_move(DrawBudget)
    story.draw_budget().expect_move(RequestReply)


@pytest.mark.contract("B1")
def test_a_run_does_not_wait_for_what_no_run_can_give_back() -> None:
    """B1: what is spent is spent, and a reserve that is too small helps nothing."""
    for held in (None, Amount(tokens=5)):
        story = draw_dry(story_of(), held=held)
        assert story.expect_move(EndRun).outcome == "budget_exceeded"


def test_a_reply_of_a_few_tokens_is_not_worth_its_request() -> None:
    """L4: it would end as truncated, while others are about to give back what they hold."""
    room = story_of().expect_move(DrawBudget).total_wanted.tokens
    assert room is not None
    draw_dry(story_of(), room - 1_000 + 255).expect_move(AwaitBudget)
    reserved = draw_dry(story_of(), room - 1_000 + 256).expect_move(RequestReply).reserved
    assert reserved.output == 256


@pytest.mark.contract("L4")
def test_the_wait_has_a_limit_and_then_an_honest_end() -> None:
    story = story_of(LoopPolicy(budget_wait_s=9.0))
    waits: list[float] = []
    since: float | None = None
    while True:
        draw_dry(story)
        if not isinstance(decide(story.state), AwaitBudget):
            break
        waits.append(story.expect_move(AwaitBudget).wait_s)
        since = since or story.state.at + 1.0
        wait(story).add(BudgetWaitEnded("team"), after_s=waits[-1])
    assert waits[:2] == [2.0, 4.0], "twice as long each time"
    assert since is not None
    assert since + 9.0 <= story.state.at <= since + 9.0 + 2.0
    end = story.expect_move(EndRun)
    assert end.outcome == "budget_exceeded"
    assert "although the run waited" in end.reason


def test_a_run_that_may_pause_pauses_after_the_wait() -> None:
    """D6: `on_budget` applies once the wait is over; 0 s is no wait."""
    story = draw_dry(story_of(LoopPolicy(on_budget="pause", budget_wait_s=0.0)))
    story.expect_move(PauseRun)


@pytest.mark.contract("L7")
def test_the_wait_is_not_time_at_work() -> None:
    story = draw_dry(story_of())
    before = story.state.elapsed_s
    wait(story)
    worked = story.state.elapsed_s
    story.add(BudgetWaitEnded("team"), after_s=500.0)
    assert story.state.elapsed_s == worked
    assert worked - before <= 2.0


def test_a_waiting_run_needs_a_driver_when_it_is_due_or_has_mail() -> None:
    """D14: it gives its place away, and is not forgotten."""
    story = wait(draw_dry(story_of())).add(RunReleased("waits"))
    due = row_of(story.state).due
    assert due is not None

    def needs(now: float, *, mail: bool = False) -> bool:
        return needs_driver(story.state, has_control_mail=mail, has_prompts=False, now=now)

    assert not needs(due - 0.1)
    assert needs(due)
    assert needs(due - 0.1, mail=True)
    story.resume().expect_move(DrawBudget)


def test_a_pause_holds_over_the_wait() -> None:
    story = wait(draw_dry(story_of())).add(RunPaused("lunch", by="ann"))
    story.expect_move(StayPaused)
    assert row_of(story.add(RunReleased("paused")).state).state == "paused"


def test_no_request_and_no_second_wait_while_a_run_waits() -> None:
    """J1: what it had drawn is given back, so nothing may be spent before it draws again."""
    story = wait(draw_dry(story_of()))
    granted = draw_dry(story_of()).state.run
    assert granted is not None
    with pytest.raises(IllegalFact, match="nothing shows"):
        story.add(BudgetAwaited("team", HELD, 2.0))
    with pytest.raises(IllegalFact, match="nothing shows"):
        draw_dry(story_of(), held=None).add(BudgetAwaited("team", HELD, 2.0))


def test_what_is_given_back_before_the_wait_is_on_record_is_asked_for() -> None:
    """D14: no wake-up is lost, whenever it comes."""
    story = draw_dry(story_of()).add(BudgetWaitEnded("team", mail=1))
    story.expect_move(DrawBudget)


def test_a_late_message_about_a_budget_changes_nothing() -> None:
    story = story_of().draw_budget()
    before = story.state.run
    assert before is not None
    story.add(BudgetWaitEnded("team", mail=1))
    assert story.state.run is not None
    assert story.state.run.allotments == before.allotments
    story.expect_move(RequestReply)
    elsewhere = wait(draw_dry(story_of())).add(BudgetWaitEnded("house", mail=1))
    elsewhere.expect_move(StayWaiting)


@pytest.mark.parametrize("usd", ["0.5", "0.000001"])
def test_money_is_waited_for_exactly(usd: str) -> None:
    """B4: what others hold must cover the whole next request."""
    house = Budget("house", usd=Decimal(5))
    story = Story(model=INFO, budgets=(house,)).start_run()
    wanted = story.expect_move(DrawBudget).total_wanted.usd
    assert wanted is not None
    held = Amount(usd=Decimal(usd))
    story.add(BudgetAllotted("house", Amount(usd=Decimal(0)), dry=True, held=held))
    story.expect_move(AwaitBudget if held.usd and held.usd >= wanted / 2 else EndRun)
