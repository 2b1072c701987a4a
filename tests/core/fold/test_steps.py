"""How a step comes about: attempts, replies, what is said of them, what they cost."""

from decimal import Decimal

from facts import MODEL, Story, failed_attempt, make_call, make_charge
from windlass.core.events import (
    AttemptStarted,
    BudgetAllotted,
    NoteGiven,
    ReplyJudged,
    Reservation,
    StepProposed,
)
from windlass.core.limits import Amount, Budget
from windlass.core.messages import AssistantMessage, TextPart, Usage, UserMessage
from windlass.core.moves import RequestReply
from windlass.core.setup import Compaction, ModelInfo
from windlass.core.verdicts import Allow, Deny, OutputMismatch

RESERVED = Reservation(100, 50, Decimal("0.25"))
SUMMARY = AttemptStarted(1, 1, "test:small", RESERVED, purpose="compaction")


def summing_up() -> Story:
    return (
        Story(compaction=Compaction(cool_down=3)).start_run().do_step(make_call("a")).add(SUMMARY)
    )


def test_a_request_for_a_summary_is_no_attempt_at_the_step() -> None:
    """X2, S3: it uses up no retries, and moves to no other model."""
    story = Story().start_run().do_step(make_call("a")).fail_attempt(failed_attempt("server"))
    failures, model = story.run.failures, story.run.model
    story.add(SUMMARY).add(failed_attempt("server"))
    assert (story.run.failures, story.run.model) == (failures, model)
    assert story.expect_move(RequestReply).attempt == 2


def test_a_reply_cannot_come_to_a_request_for_a_summary() -> None:
    """J1: nor is a summary ever taken for a reply."""
    reply = StepProposed(AssistantMessage((TextPart("Goals: none."),), MODEL), "end")
    assert "no attempt is open" in summing_up().check_refused(reply)


def test_a_failed_summary_cools_down_for_so_many_steps() -> None:
    """X2."""
    story = summing_up().add(failed_attempt("server", charge=make_charge(9, 1, model="test:small")))
    assert story.state.no_summary_before == story.state.steps + 3
    assert story.run.compacted == ("summary",)
    assert story.run.partial == ""
    assert story.do_step(make_call("b")).run.compacted == ()
    assert story.state.no_summary_before == 1 + 3


def test_a_summary_that_a_crash_interrupted_counts_as_reserved_in_its_bucket() -> None:
    """B2, X2."""
    story = summing_up().resume()
    (charge,) = story.run.ledger.charges
    assert (charge.model, charge.purpose, charge.usd) == (
        "test:small",
        "compaction",
        Decimal("0.25"),
    )
    assert charge.usage is not None
    assert (charge.usage.total, charge.usage.estimated) == (150, True)
    assert story.run.attempt is None


def test_a_request_makes_dry_budgets_worth_asking_again() -> None:
    """B1."""
    story = Story(budgets=(Budget("team", tokens=9),)).start_run()
    story.add(BudgetAllotted("team", Amount(tokens=5), dry=True)).start_attempt()
    assert story.run.allotments[0].dry is False
    assert story.run.allotments[0].amount == Amount(tokens=5)


def test_the_last_word_of_a_budget_counts() -> None:
    """B1."""
    story = Story(budgets=(Budget("team", tokens=9), Budget("house", tokens=9))).start_run()
    for name, tokens in [("team", 5), ("house", 6), ("team", 7)]:
        story.add(BudgetAllotted(name, Amount(tokens=tokens)))
    held = {one.budget: one.amount.tokens for one in story.run.allotments}
    assert held == {"team": 7, "house": 6}


def test_each_model_is_calibrated_by_its_own_reports() -> None:
    """X6: the last report of a model counts, and no other model's."""
    other = "test:other"
    story = Story(fallbacks=(ModelInfo(other),)).start_run("Hello " * 50)
    size = story.state.fixed + story.state.size
    story.take_reply("One.", charge=make_charge(size // 2, 1)).end_run("completed").start_run(
        "More."
    )
    later = story.state.fixed + story.state.size
    story.take_reply("Two.", charge=make_charge(later // 3, 1, model=other)).end_run(
        "completed"
    ).start_run()
    rates = dict(story.state.calibration)
    assert round(rates[MODEL]) == 2
    assert round(rates[other]) == 3
    newest = story.state.fixed + story.state.size
    story.take_reply("Three.", charge=make_charge(newest // 5, 1))
    assert round(dict(story.state.calibration)[MODEL]) == 5
    assert len(story.state.calibration) == 2


def test_a_new_step_may_be_compacted_and_forced_anew() -> None:
    """S13, X2: what was done for one step does not count for the next."""
    story = summing_up().add(failed_attempt("server"))
    assert story.run.compacted == ("summary",)
    story.do_step(make_call("b"))
    assert (story.run.compacted, story.run.forced) == ((), False)


# ── replies, and what is said of them ────────────────────────────────────────


def test_a_reply_with_calls_opens_a_step_and_one_without_waits_to_be_settled() -> None:
    story = Story().start_run().take_reply("Look:", make_call("a"))
    assert (story.call_phase("a"), story.run.reply) == ("proposed", None)
    assert "two calls have one id" in Story().start_run().start_attempt().check_refused(
        StepProposed(AssistantMessage((make_call("a"), make_call("a"))), "calls")
    )
    assert Story().start_run().take_reply("Hi.").run.reply == AssistantMessage(
        (TextPart("Hi."),), MODEL
    )


def test_a_reply_is_judged_once_and_what_is_wrong_with_it_is_told() -> None:
    """G3, G1."""
    story = Story(judge_replies=True).start_run().take_reply("Hi.").add(ReplyJudged(Allow()))
    assert story.run.passed
    assert "no reply waits" in story.check_refused(ReplyJudged(Deny("no")))
    denied = (
        Story(judge_replies=True).start_run().take_reply("Rude.").add(ReplyJudged(Deny("rude")))
    )
    assert (denied.run.denials, denied.run.text) == (1, "")
    assert "withheld: rude" in denied.shown_messages[-1].text  # pyright: ignore[reportAttributeAccessIssue]
    unfit = (
        Story(judge_replies=True)
        .start_run()
        .take_reply("three")
        .add(ReplyJudged(OutputMismatch("no number")))
    )
    assert (unfit.run.misfits, unfit.run.text) == (1, "three")


def test_a_note_is_said_once_for_a_streak() -> None:
    """L11."""
    story = Story().start_run()
    for at in range(3):
        story.do_step(make_call(f"c{at}"))
    story.add(NoteGiven("You go round in circles.", "same_call"))
    assert story.run.streak.noted_at == 3
    assert story.shown_messages[-1] == UserMessage(
        (TextPart("You go round in circles."),), note=True
    )


def test_nothing_begins_while_something_is_open() -> None:
    """J1."""
    for story in (
        Story().start_run().start_attempt(),
        Story().start_run().take_calls(make_call("a")),
        Story().start_run().take_reply("Hi."),
    ):
        assert "is open" in story.check_refused(SUMMARY)
    assert "no attempt is open" in Story().start_run().check_refused(failed_attempt())


def test_what_was_paid_is_the_runs_and_the_sessions() -> None:
    """S12."""
    story = (
        Story()
        .start_run()
        .fail_attempt(failed_attempt(charge=make_charge(5, 1)))
        .take_reply("Hi.", charge=make_charge(7, 2))
    )
    assert story.run.ledger == story.state.ledger
    assert story.run.ledger.usage == Usage(12, 3)


def test_a_budget_that_nobody_set_up_is_not_believed() -> None:
    """J1."""
    fact = BudgetAllotted("team", Amount(tokens=5))
    assert "no budget team is set" in Story().start_run().check_refused(fact)
