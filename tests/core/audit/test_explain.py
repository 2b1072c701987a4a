"""Sessions told in words, whole and as they are printed."""

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from msgspec.structs import replace

from facts import (
    MODEL,
    PRICE,
    SESSION,
    Story,
    failed_attempt,
    make_call,
    make_charge,
    make_fault,
    value_result,
)
from proof.simulate import draw_plan, play_plan
from windlass.core.audit.explain import explain
from windlass.core.events import (
    AttemptFailed,
    AttemptStarted,
    BudgetAllotted,
    CallAnswered,
    CallFinished,
    CallJudged,
    CallLate,
    ContextCompacted,
    KnowledgeRecalled,
    LookupsPlanned,
    NoteGiven,
    ReplyJudged,
    Reservation,
    RunEnded,
    RunResumed,
    RunStarted,
    SteeringGiven,
    SteeringTaken,
)
from windlass.core.limits import Amount, Budget, Limits
from windlass.core.messages import ArgumentChange, Charge, ImagePart, TextPart, ToolResult, Usage
from windlass.core.setup import LoopPolicy, ModelInfo, digest
from windlass.core.verdicts import Allow, Ask, Deny, Grant, InvalidCall, Modify, OutputMismatch
from windlass.testing.samples import facts_of_every_kind


def told(story: Story) -> str:
    return "\n".join(explain(SESSION, story.facts))


def crashed() -> Story:
    """A stall, a retry, a crash while a write was under way, a resume with drift."""
    story = Story(model=ModelInfo(MODEL, PRICE), gate="team@1f", limits=Limits(usd=Decimal(1)))
    story.start_run("Pay Ann back.")
    stalled = AttemptFailed(
        replace(make_fault("stalled"), message="the model fell silent"),
        charge=Charge(MODEL, usage=Usage(90, 4, estimated=True), usd=Decimal("0.00033")),
        visible=True,
        partial="I will p",
        wait_s=0.8,
    )
    story.start_attempt(Reservation(100, 400, Decimal("0.0063"))).add(stalled, after_s=30)
    story.take_reply(
        "I will pay.",
        make_call("c1", "send", '{"to": "ann"}'),
        charge=make_charge(90, 12, "0.00045"),
    )
    story.add(CallJudged("c1", Allow("allow send(*)"))).start_calls("c1")
    story.add(RunResumed(("tool send changed",), reaped=("sleep 600",)), after_s=3600)
    unknown = ToolResult.from_text(
        "unknown", "Interrupted: it had started, and whether it took effect…"
    )
    story.add(CallFinished("c1", unknown))
    story.start_attempt(Reservation(140, 400)).add(RunResumed(), after_s=60)
    return story.take_reply("I cannot tell.", charge=make_charge(150, 9)).end_run("completed")


def judged() -> Story:
    """Repairs, denials, a question and its answer, changed arguments, a call that is none."""
    story = Story().start_run("Tidy up.")
    calls = [
        make_call("c1", "look", "{'path': 1,}"),
        make_call("c2", "send"),
        make_call("c3", "touch", "{}"),
    ]
    story.take_calls(*calls, make_call("c4", "lok"))
    repaired = (ArgumentChange("", "single quotes"), ArgumentChange("path", "number to text"))
    story.add(
        CallJudged("c1", Allow("@read"), {"path": "1"}, repaired),
        CallJudged("c2", Deny("nobody is to be written to", "deny send(*)")),
        CallJudged("c3", Ask("Touch it?", "ask *")),
        CallJudged("c4", InvalidCall("unknown_tool", "There is no tool 'lok'. Did you mean look?")),
    )
    grant = Grant("touch", pattern="touch(*)")
    story.add(CallAnswered("c3", Allow("always"), digest({}), "ann", grant), after_s=7200)
    story.start_calls("c1").finish_calls("c1", text="one\ntwo\x1b[31m")
    story.start_calls("c3")
    helper = Charge("m:small", "subagent", Usage(1_000, 50), Decimal("0.001"))
    story.add(CallFinished("c3", ToolResult.from_text("timed_out", "no word for 60 s"), (helper,)))
    story.take_calls(make_call("c5", "send")).add(
        CallJudged("c5", Modify({"to": "b"}, "safer", "r"))
    )
    story.start_calls("c5").end_run("cancelled", reason="by a person")
    return story.add(CallLate("c5", value_result("sent after all")), after_s=5)


def spent() -> Story:
    """A second run, and an end for want of money."""
    shared, limits = (Budget("team", usd=Decimal(1)),), Limits(usd=Decimal("0.01"), seconds=60)
    story = Story(model=ModelInfo(MODEL, PRICE), limits=limits, budgets=shared)
    story.start_run("Hello").take_reply("Hi.", charge=make_charge(10, 3, "0.00007")).end_run(
        "completed"
    )
    story.start_run("More!").add(BudgetAllotted("team", Amount(usd=Decimal("0.004")), dry=True))
    story.fail_attempt(failed_attempt("rate_limit", wait_s=2.0)).fail_attempt(
        failed_attempt("server")
    )
    return story.end_run(
        "budget_exceeded", reason="the next request does not fit into what is left of the limits"
    )


@pytest.mark.contract("O2")
@pytest.mark.parametrize("story", [crashed, judged, spent], ids=["crashed", "judged", "spent"])
def test_a_session_is_told_in_words(story: Callable[[], Story]) -> None:
    page = Path(__file__).parent / "explained" / f"{story.__name__}.txt"
    assert told(story()) + "\n" == page.read_text("utf-8")


def test_what_was_said_of_a_reply_is_told() -> None:
    story = Story(judge_replies=True, rules=LoopPolicy(on_limit="answer"), limits=Limits(steps=2))
    story.start_run().take_reply("One").add(ReplyJudged(OutputMismatch("a number is missing")))
    story.take_reply("Two").add(ReplyJudged(Deny("too short", "words")))
    story.start_attempt(landing=True).end_run("refused", reason="the model refused", partial="No")
    landing = "the tools are switched off, since the step limit is reached"
    assert told(story).splitlines()[6:] == [
        '   4      The reply does not fit the output type: "a number is missing"',
        "   5    Step 2: asked test:model; it may take 100 tokens in, 100 out",
        '   6      It replied "Two"',
        '   7      The reply was withheld by the rule "words": "too short"',
        f"   8    Step 3: asked test:model; it may take 100 tokens in, 100 out; {landing}",
        '   9      The reply so far was "No"',
        "   9    Run 1 ended as refused: the model refused",
        "        In all: 2 steps, 3 requests, no usage known, 8 s at work",
    ]


def test_what_comes_into_the_conversation_and_what_leaves_it_is_told() -> None:
    story = Story(recalls=True).add(
        RunStarted(1, (TextPart("See notes."),), Story(recalls=True).setup, parent="above/c1_0")
    )
    story.add(KnowledgeRecalled("Ann is a dentist.")).add(
        LookupsPlanned((make_call("h1_0", "look"),))
    )
    story.allow_calls("h1_0").start_calls("h1_0").finish_calls("h1_0").do_step(make_call("c1"))
    story.add(
        SteeringGiven((TextPart("Hurry."),), "ann"),
        SteeringGiven((TextPart("!"),)),
        SteeringTaken(),
    )
    story.add(AttemptStarted(2, 1, "m:small", Reservation(9, 2), purpose="compaction"))
    summed = Charge("m:small", "compaction", Usage(9, 2))
    story.add(ContextCompacted(2, "Goals: none.", "summary", summed))
    lines = told(story).splitlines()
    assert lines[0] == '   1  Run 1 began for above/c1_0: "See notes."'
    assert lines[4:7] == [
        '   2    Recalled about the prompt: "Ann is a dentist."',
        "   3    The prompt refers to what 1 call can look up",
        "   3        look (h1_0) called with {}",
    ]
    assert lines[-6:-1] == [
        '  12    ann said during the run: "Hurry."',
        '  13    Somebody said during the run: "!"',
        "  14    The messages given during the run entered the conversation",
        "  15    Asked m:small for a summary; it may take 9 tokens in, 2 out",
        '  16    The first 2 messages were summarized: "Goals: none." [9 tokens in, 2 out]',
    ]


def test_what_a_run_waits_for_is_told() -> None:
    story = Story().start_run().take_calls(make_call("c1", "send"))
    assert told(story).endswith("Run 1 has not ended: it is working, or has to be resumed")
    story.add(CallJudged("c1", Ask("May I?")))
    assert told(story).endswith('It waits for an answer: "May I?" (c1)')


def test_a_model_that_stands_in_is_told() -> None:
    story = Story(fallbacks=(ModelInfo("test:other"),)).start_run().fail_attempt(failed_attempt())
    story.add(AttemptStarted(1, 1, "test:other", Reservation(1, 1)))
    assert "asked test:other, since no attempts are left for test:model" in told(story)
    assert "The model: test:model, then test:other." in told(story)


def test_a_call_that_is_judged_again_for_lack_of_proof_is_told() -> None:
    """D3."""
    story = Story().start_run().take_calls(make_call("a", "send")).allow_calls("a")
    text = told(story.add(RunResumed(doubted=("a",))))
    assert "send (a) is judged again: nothing proves who allowed it" in text


def test_a_record_that_contradicts_itself_ends_the_story() -> None:
    facts = [*Story().start_run().facts, RunEnded("completed", seq=5)]
    assert list(explain(SESSION, facts))[-1] == (
        "   5  The record contradicts itself: RunEnded cannot be record 5: record 2 was expected"
    )


def test_every_line_is_bounded_and_cannot_steer_a_terminal() -> None:
    flood = "x\x1b[2J\u202e\n" * 100_000
    story = Story(instructions=flood, gate=flood).add(
        RunStarted(1, (TextPart(flood), ImagePart("image/png", b"")), Story().setup, caller=flood)
    )
    story.add(NoteGiven(flood, "same_call")).take_calls(make_call("c1", "look", flood))
    story.add(CallJudged("c1", InvalidCall("invalid_arguments", flood)))
    story.end_run(reason=flood, partial=flood)
    lines = list(explain(SESSION, story.facts))
    assert max(map(len, lines)) < 700
    assert all(line.isprintable() for line in lines)
    assert "with 1 attachment" in lines[0]


@pytest.mark.contract("O2")
def test_every_fact_has_its_words() -> None:
    facts = facts_of_every_kind()
    numbers = {int(line[:4]) for line in explain(SESSION, facts) if line[:4].strip()}
    assert numbers == {fact.seq for fact in facts}
    for seed in range(40):
        facts = play_plan(draw_plan(seed)).facts
        told_of = {int(line[:4]) for line in explain("sim", facts) if line[:4].strip()}
        assert told_of == {fact.seq for fact in facts}
