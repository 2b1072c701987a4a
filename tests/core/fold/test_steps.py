"""How a step comes about: attempts, replies, what is said of them, what they cost."""

from decimal import Decimal

from facts import MODEL, Story, broken, call, paid
from windlass.core.context import Compaction
from windlass.core.events import (
    Allotted,
    AttemptStarted,
    NoteGiven,
    ReplyJudged,
    Reservation,
    StepProposed,
)
from windlass.core.limits import Amount, Budget
from windlass.core.messages import Assistant, Text, Usage, User
from windlass.core.moves import Reason
from windlass.core.setup import ModelInfo
from windlass.core.verdicts import Allow, Deny, Misfit

RESERVED = Reservation(100, 50, Decimal("0.25"))
SUMMARY = AttemptStarted(1, 1, "test:small", RESERVED, purpose="compaction")


def summing_up() -> Story:
    return Story(compaction=Compaction(cool_down=3)).asked().did(call("a")).tell(SUMMARY)


def test_a_request_for_a_summary_is_no_attempt_at_the_step() -> None:
    """X2, S3: it uses up no retries, and moves to no other model."""
    story = Story().asked().did(call("a")).failing(broken("server"))
    failures, model = story.run.failures, story.run.model
    story.tell(SUMMARY).tell(broken("server"))
    assert (story.run.failures, story.run.model) == (failures, model)
    assert story.go(Reason).attempt == 2


def test_a_reply_cannot_come_to_a_request_for_a_summary() -> None:
    """J1: nor is a summary ever taken for a reply."""
    reply = StepProposed(Assistant((Text("Goals: none."),), MODEL), "end")
    assert "no attempt is open" in summing_up().refuses(reply)


def test_a_failed_summary_cools_down_for_so_many_steps() -> None:
    """X2."""
    story = summing_up().tell(broken("server", charge=paid(9, 1, model="test:small")))
    assert story.state.no_summary_before == story.state.steps + 3
    assert story.run.compacted == ("summary",)
    assert story.run.partial == ""
    assert story.did(call("b")).run.compacted == ()
    assert story.state.no_summary_before == 1 + 3


def test_a_summary_that_a_crash_interrupted_counts_as_reserved_in_its_bucket() -> None:
    """B2, X2."""
    story = summing_up().resumed()
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
    story = Story(budgets=(Budget("team", tokens=9),)).asked()
    story.tell(Allotted("team", Amount(tokens=5), dry=True)).trying()
    assert story.run.allotments[0].dry is False
    assert story.run.allotments[0].amount == Amount(tokens=5)


def test_the_last_word_of_a_budget_counts() -> None:
    """B1."""
    story = Story(budgets=(Budget("team", tokens=9), Budget("house", tokens=9))).asked()
    for name, tokens in [("team", 5), ("house", 6), ("team", 7)]:
        story.tell(Allotted(name, Amount(tokens=tokens)))
    held = {one.budget: one.amount.tokens for one in story.run.allotments}
    assert held == {"team": 7, "house": 6}


def test_each_model_is_calibrated_by_its_own_reports() -> None:
    """X6: the last report of a model counts, and no other model's."""
    other = "test:other"
    story = Story(fallbacks=(ModelInfo(other),)).asked("Hello " * 50)
    size = story.state.fixed + story.state.size
    story.replied("One.", charge=paid(size // 2, 1)).ended("completed").asked("More.")
    later = story.state.fixed + story.state.size
    story.replied("Two.", charge=paid(later // 3, 1, model=other)).ended("completed").asked()
    rates = dict(story.state.calibration)
    assert round(rates[MODEL]) == 2
    assert round(rates[other]) == 3
    newest = story.state.fixed + story.state.size
    story.replied("Three.", charge=paid(newest // 5, 1))
    assert round(dict(story.state.calibration)[MODEL]) == 5
    assert len(story.state.calibration) == 2


def test_a_new_step_may_be_compacted_and_forced_anew() -> None:
    """S13, X2: what was done for one step does not count for the next."""
    story = summing_up().tell(broken("server"))
    assert story.run.compacted == ("summary",)
    story.did(call("b"))
    assert (story.run.compacted, story.run.forced) == ((), False)


# ── replies, and what is said of them ────────────────────────────────────────


def test_a_reply_with_calls_opens_a_step_and_one_without_waits_to_be_settled() -> None:
    story = Story().asked().replied("Look:", call("a"))
    assert (story.phase("a"), story.run.reply) == ("proposed", None)
    assert "two calls have one id" in Story().asked().trying().refuses(
        StepProposed(Assistant((call("a"), call("a"))), "calls")
    )
    assert Story().asked().replied("Hi.").run.reply == Assistant((Text("Hi."),), MODEL)


def test_a_reply_is_judged_once_and_what_is_wrong_with_it_is_told() -> None:
    """G3, G1."""
    story = Story(judge_replies=True).asked().replied("Hi.").tell(ReplyJudged(Allow()))
    assert story.run.passed
    assert "no reply waits" in story.refuses(ReplyJudged(Deny("no")))
    denied = Story(judge_replies=True).asked().replied("Rude.").tell(ReplyJudged(Deny("rude")))
    assert (denied.run.denials, denied.run.text) == (1, "")
    assert "withheld: rude" in denied.shown[-1].text  # pyright: ignore[reportAttributeAccessIssue]
    unfit = (
        Story(judge_replies=True).asked().replied("three").tell(ReplyJudged(Misfit("no number")))
    )
    assert (unfit.run.misfits, unfit.run.text) == (1, "three")


def test_a_note_is_said_once_for_a_streak() -> None:
    """L11."""
    story = Story().asked()
    for at in range(3):
        story.did(call(f"c{at}"))
    story.tell(NoteGiven("You go round in circles.", "same_call"))
    assert story.run.streak.noted_at == 3
    assert story.shown[-1] == User((Text("You go round in circles."),), note=True)


def test_nothing_begins_while_something_is_open() -> None:
    """J1."""
    for story in (
        Story().asked().trying(),
        Story().asked().called(call("a")),
        Story().asked().replied("Hi."),
    ):
        assert "is open" in story.refuses(SUMMARY)
    assert "no attempt is open" in Story().asked().refuses(broken())


def test_what_was_paid_is_the_runs_and_the_sessions() -> None:
    """S12."""
    story = Story().asked().failing(broken(charge=paid(5, 1))).replied("Hi.", charge=paid(7, 2))
    assert story.run.ledger == story.state.ledger
    assert story.run.ledger.usage == Usage(12, 3)


def test_a_budget_that_nobody_set_up_is_not_believed() -> None:
    """J1."""
    fact = Allotted("team", Amount(tokens=5))
    assert "no budget team is set" in Story().asked().refuses(fact)
