"""Sessions told in words, whole and as they are printed."""

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from msgspec.structs import replace

from facts import MODEL, PRICE, SESSION, Story, broken, call, fault, paid, value
from proof.simulate import plan_of, play
from windlass.core.audit.explain import explain
from windlass.core.events import (
    Allotted,
    AttemptFailed,
    AttemptStarted,
    CallAnswered,
    CallFinished,
    CallJudged,
    CallLate,
    Compacted,
    Heeded,
    Hydrated,
    NoteGiven,
    Recalled,
    ReplyJudged,
    Reservation,
    RunEnded,
    RunResumed,
    RunStarted,
    Steered,
)
from windlass.core.limits import Amount, Budget, Limits
from windlass.core.messages import Change, Charge, Image, Result, Text, Usage
from windlass.core.setup import ModelInfo, Rules, digest
from windlass.core.verdicts import Allow, Ask, Deny, Grant, Invalid, Misfit, Modify
from windlass.testing.samples import one_of_each


def told(story: Story) -> str:
    return "\n".join(explain(SESSION, story.facts))


def crashed() -> Story:
    """A stall, a retry, a crash while a write was under way, a resume with drift."""
    story = Story(model=ModelInfo(MODEL, PRICE), gate="team@1f", limits=Limits(usd=Decimal(1)))
    story.asked("Pay Ann back.")
    stalled = AttemptFailed(
        replace(fault("stalled"), message="the model fell silent"),
        charge=Charge(MODEL, usage=Usage(90, 4, estimated=True), usd=Decimal("0.00033")),
        visible=True,
        partial="I will p",
        wait_s=0.8,
    )
    story.trying(Reservation(100, 400, Decimal("0.0063"))).tell(stalled, after_s=30)
    story.replied(
        "I will pay.", call("c1", "send", '{"to": "ann"}'), charge=paid(90, 12, "0.00045")
    )
    story.tell(CallJudged("c1", Allow("allow send(*)"))).began("c1")
    story.tell(RunResumed(("tool send changed",), reaped=("sleep 600",)), after_s=3600)
    unknown = Result.say("unknown", "Interrupted: it had started, and whether it took effect…")
    story.tell(CallFinished("c1", unknown))
    story.trying(Reservation(140, 400)).tell(RunResumed(), after_s=60)
    return story.replied("I cannot tell.", charge=paid(150, 9)).ended("completed")


def judged() -> Story:
    """Repairs, denials, a question and its answer, changed arguments, a call that is none."""
    story = Story().asked("Tidy up.")
    calls = [call("c1", "look", "{'path': 1,}"), call("c2", "send"), call("c3", "touch", "{}")]
    story.called(*calls, call("c4", "lok"))
    repaired = (Change("", "single quotes"), Change("path", "number to text"))
    story.tell(
        CallJudged("c1", Allow("@read"), {"path": "1"}, repaired),
        CallJudged("c2", Deny("nobody is to be written to", "deny send(*)")),
        CallJudged("c3", Ask("Touch it?", "ask *")),
        CallJudged("c4", Invalid("unknown_tool", "There is no tool 'lok'. Did you mean look?")),
    )
    grant = Grant("touch", pattern="touch(*)")
    story.tell(CallAnswered("c3", Allow("always"), digest({}), "ann", grant), after_s=7200)
    story.began("c1").finished("c1", text="one\ntwo\x1b[31m")
    story.began("c3")
    helper = Charge("m:small", "subagent", Usage(1_000, 50), Decimal("0.001"))
    story.tell(CallFinished("c3", Result.say("timed_out", "no word for 60 s"), (helper,)))
    story.called(call("c5", "send")).tell(CallJudged("c5", Modify({"to": "b"}, "safer", "r")))
    story.began("c5").ended("cancelled", reason="by a person")
    return story.tell(CallLate("c5", value("sent after all")), after_s=5)


def spent() -> Story:
    """A second run, and an end for want of money."""
    shared, limits = (Budget("team", usd=Decimal(1)),), Limits(usd=Decimal("0.01"), seconds=60)
    story = Story(model=ModelInfo(MODEL, PRICE), limits=limits, budgets=shared)
    story.asked("Hello").replied("Hi.", charge=paid(10, 3, "0.00007")).ended("completed")
    story.asked("More!").tell(Allotted("team", Amount(usd=Decimal("0.004")), dry=True))
    story.failing(broken("rate_limit", wait_s=2.0)).failing(broken("server"))
    return story.ended("budget_exceeded", reason="the next request does not fit into what is left")


@pytest.mark.contract("O2")
@pytest.mark.parametrize("story", [crashed, judged, spent], ids=["crashed", "judged", "spent"])
def test_a_session_is_told_in_words(story: Callable[[], Story]) -> None:
    page = Path(__file__).parent / "explained" / f"{story.__name__}.txt"
    assert told(story()) + "\n" == page.read_text("utf-8")


def test_what_was_said_of_a_reply_is_told() -> None:
    story = Story(judge_replies=True, rules=Rules(on_limit="answer"), limits=Limits(steps=2))
    story.asked().replied("One").tell(ReplyJudged(Misfit("a number is missing")))
    story.replied("Two").tell(ReplyJudged(Deny("too short", "words")))
    story.trying(landing=True).ended("refused", reason="the model refused", partial="No")
    landing = "the tools are switched off, since the cap is reached"
    assert told(story).splitlines()[6:] == [
        '   4      The reply does not fit the output type: "a number is missing"',
        "   5    Step 2: asked test:model; it may take 100 tokens in, 100 out",
        '   6      It replied "Two"',
        '   7      The reply was withheld by the rule "words": "too short"',
        f"   8    Step 3: asked test:model; it may take 100 tokens in, 100 out; {landing}",
        '   9      The reply had come to "No"',
        "   9    Run 1 ended as refused: the model refused",
        "        In all: 2 steps, 3 requests, no usage known, 8 s at work",
    ]


def test_what_comes_into_the_conversation_and_what_leaves_it_is_told() -> None:
    story = Story(recalls=True).tell(
        RunStarted(1, (Text("See notes."),), Story(recalls=True).setup, parent="above/c1_0")
    )
    story.tell(Recalled("Ann is a dentist.")).tell(Hydrated((call("h1_0", "look"),)))
    story.allowed("h1_0").began("h1_0").finished("h1_0").did(call("c1"))
    story.tell(Steered((Text("Hurry."),), "ann"), Steered((Text("!"),)), Heeded())
    story.tell(AttemptStarted(2, 1, "m:small", Reservation(9, 2), purpose="compaction"))
    summed = Charge("m:small", "compaction", Usage(9, 2))
    story.tell(Compacted(2, "Goals: none.", "summary", summed))
    lines = told(story).splitlines()
    assert lines[0] == '   1  Run 1 began for above/c1_0: "See notes."'
    assert lines[4:7] == [
        '   2    What is known about the prompt: "Ann is a dentist."',
        "   3    The prompt speaks of what 1 call can look up",
        "   3        look (h1_0) called with {}",
    ]
    assert lines[-6:-1] == [
        '  12    ann said meanwhile: "Hurry."',
        '  13    Somebody said meanwhile: "!"',
        "  14    What was said meanwhile went into the conversation",
        "  15    Asked m:small for a summary; it may take 9 tokens in, 2 out",
        '  16    The first 2 messages were summed up: "Goals: none." [9 tokens in, 2 out]',
    ]


def test_what_a_run_waits_for_is_told() -> None:
    story = Story().asked().called(call("c1", "send"))
    assert told(story).endswith("Run 1 has not ended: it is under way, or waits to be resumed")
    story.tell(CallJudged("c1", Ask("May I?")))
    assert told(story).endswith('It waits for an answer: "May I?" (c1)')


def test_a_model_that_stands_in_is_told() -> None:
    story = Story(fallbacks=(ModelInfo("test:other"),)).asked().failing(broken())
    story.tell(AttemptStarted(1, 1, "test:other", Reservation(1, 1)))
    assert "asked test:other, since the attempts at test:model are spent" in told(story)
    assert "The model: test:model, then test:other." in told(story)


def test_a_record_that_contradicts_itself_ends_the_story() -> None:
    facts = [*Story().asked().facts, RunEnded("completed", seq=5)]
    assert list(explain(SESSION, facts))[-1] == (
        "   5  The record contradicts itself: RunEnded cannot be record 5: record 2 was expected"
    )


def test_every_line_is_bounded_and_cannot_steer_a_terminal() -> None:
    flood = "x\x1b[2J\u202e\n" * 100_000
    story = Story(instructions=flood, gate=flood).tell(
        RunStarted(1, (Text(flood), Image("image/png", b"")), Story().setup, caller=flood)
    )
    story.tell(NoteGiven(flood, "same_call")).called(call("c1", "look", flood))
    story.tell(CallJudged("c1", Invalid("invalid_arguments", flood)))
    story.ended(reason=flood, partial=flood)
    lines = list(explain(SESSION, story.facts))
    assert max(map(len, lines)) < 700
    assert all(line.isprintable() for line in lines)
    assert "with 1 attachment" in lines[0]


@pytest.mark.contract("O2")
def test_every_fact_has_its_words() -> None:
    facts = one_of_each()
    numbers = {int(line[:4]) for line in explain(SESSION, facts) if line[:4].strip()}
    assert numbers == {fact.seq for fact in facts}
    for seed in range(40):
        facts = play(plan_of(seed)).facts
        told_of = {int(line[:4]) for line in explain("sim", facts) if line[:4].strip()}
        assert told_of == {fact.seq for fact in facts}
