"""What the facts of a session add up to, and which facts cannot follow which."""

from collections.abc import Callable
from decimal import Decimal

import pytest
from msgspec.structs import replace

from facts import (
    MODEL,
    SESSION,
    Story,
    failed_attempt,
    make_call,
    make_charge,
    make_fault,
    make_setup,
    make_spec,
    value_result,
)
from windlass.core.errors import IllegalFact
from windlass.core.events import (
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
    LookupsPlanned,
    NoteGiven,
    Outcome,
    ReplyJudged,
    Reservation,
    RunEnded,
    RunResumed,
    RunStarted,
    SteeringGiven,
    SteeringTaken,
    StepProposed,
    TextDelta,
)
from windlass.core.fold.run import apply_fact, fold
from windlass.core.limits import Amount, Budget
from windlass.core.messages import (
    AssistantMessage,
    TextPart,
    ThinkingPart,
    ToolResults,
    Usage,
    UserMessage,
)
from windlass.core.setup import ModelInfo, Setup, digest
from windlass.core.state import State
from windlass.core.verdicts import Allow, Ask, Deny, OutputMismatch

RESERVED = Reservation(100, 100, Decimal("0.5"))
SOME_CALL = make_call("a", "send")


# ── what may follow what ─────────────────────────────────────────────────────


def new() -> Story:
    return Story(budgets=(Budget("team", tokens=10**9),))


def opened() -> Story:
    return new().start_run()


def asking() -> Story:
    return opened().start_attempt()


def failed() -> Story:
    return opened().fail_attempt(failed_attempt())


def summing_up() -> Story:
    compaction = AttemptStarted(1, 1, MODEL, RESERVED, purpose="compaction")
    return opened().take_reply("Hi.").end_run("completed").start_run().add(compaction)


def steered() -> Story:
    return opened().add(SteeringGiven((TextPart("And more."),)))


def known() -> Story:
    return opened().add(KnowledgeRecalled("It is known."))


def looked_up() -> Story:
    return (
        opened()
        .add(LookupsPlanned((make_call("h"),)))
        .allow_calls("h")
        .start_calls("h")
        .finish_calls("h")
    )


def proposed() -> Story:
    return opened().take_calls(SOME_CALL)


def questioned() -> Story:
    return proposed().add(CallJudged("a", Ask("May I?")))


def cleared() -> Story:
    return proposed().allow_calls("a")


def started() -> Story:
    return cleared().start_calls("a")


def interrupted() -> Story:
    return started().resume()


def observed() -> Story:
    return started().finish_calls("a")


def replied() -> Story:
    return opened().take_reply("Hi.")


def passed() -> Story:
    return replied().add(ReplyJudged(Allow()))


def ended() -> Story:
    return replied().end_run("completed")


FACTS: dict[str, Fact] = {
    "RunStarted": RunStarted(2, (TextPart("More"),)),
    "RunResumed": RunResumed(),
    "AttemptStarted": AttemptStarted(2, 1, MODEL, RESERVED),
    "AttemptFailed": failed_attempt(),
    "StepProposed": StepProposed(AssistantMessage((TextPart("Hi."),), MODEL), "end"),
    "CallJudged": CallJudged("a", Allow()),
    "CallAnswered": CallAnswered("a", Allow(), digest({})),
    "CallStarted": CallStarted("a", f"{SESSION}/a"),
    "CallFinished": CallFinished("a", value_result()),
    "CallLate": CallLate("a", value_result()),
    "ReplyJudged": ReplyJudged(Allow()),
    "NoteGiven": NoteGiven("You go round in circles.", "same_call"),
    "Allotted": BudgetAllotted("team", Amount(tokens=1_000)),
    "Compacted": ContextCompacted(1, "[…]"),
    "Compacted by a summary": ContextCompacted(1, "Goals: none.", "summary"),
    "Compacted by masks": ContextCompacted(1, how="mask"),
    "Steered": SteeringGiven((TextPart("And more."),)),
    "Heeded": SteeringTaken(),
    "Hydrated": LookupsPlanned((make_call("h"),)),
    "Recalled": KnowledgeRecalled("It is known."),
    "RunEnded": RunEnded("cancelled"),
}
ALWAYS = {"RunResumed", "RunEnded", "CallLate", "Steered"}
FREE = {*ALWAYS, "AttemptStarted", "NoteGiven", "Allotted"}
"""What may come whenever nothing is under way."""
LEGAL: dict[Callable[[], Story], set[str]] = {
    new: {"CallLate"},
    opened: {*FREE, "Hydrated", "Recalled"},
    asking: {*ALWAYS, "AttemptFailed", "StepProposed"},
    summing_up: {*ALWAYS, "AttemptFailed", "Compacted by a summary"},
    steered: {*FREE, "Heeded", "Hydrated", "Recalled"},
    known: {*FREE, "Hydrated"},
    looked_up: {*FREE, "Recalled", "Compacted", "Compacted by masks"},
    failed: {*FREE, "Hydrated", "Recalled"},
    proposed: {*ALWAYS, "CallJudged"},
    questioned: {*ALWAYS, "CallAnswered"},
    cleared: {*ALWAYS, "CallStarted"},
    started: {*ALWAYS, "CallFinished"},
    interrupted: {*ALWAYS, "CallFinished", "CallJudged"},
    observed: {*FREE, "Compacted", "Compacted by masks"},
    replied: {*ALWAYS, "ReplyJudged"},
    passed: {*ALWAYS},
    ended: {"RunStarted", "CallLate"},
}
TABLE = [
    pytest.param(point, name, id=f"{point.__name__}-{name}")
    for point, legal in LEGAL.items()
    for name in FACTS
    if name not in legal
]


@pytest.mark.parametrize(("point", "name"), TABLE)
def test_an_illegal_fact_is_refused(point: Callable[[], Story], name: str) -> None:
    """L1: check, write, advance; the refusal names the fact and its place."""
    story = point()
    kind = type(FACTS[name]).__name__
    assert f"{kind} cannot be record {story.state.seq + 1}" in story.check_refused(FACTS[name])


@pytest.mark.parametrize(
    ("point", "name"),
    [(point, name) for point, legal in LEGAL.items() for name in sorted(legal)],
    ids=lambda part: part if isinstance(part, str) else part.__name__,
)
def test_a_legal_fact_is_taken(point: Callable[[], Story], name: str) -> None:
    story = point()
    assert story.add(FACTS[name]).state.seq == len(story.facts)


@pytest.mark.parametrize("seq", [0, 1, 3, -1], ids=["unset", "taken", "gap", "negative"])
def test_a_gap_in_the_sequence_is_refused(seq: int) -> None:
    """J1: the numbers of a session's records have no gap and no repeat."""
    story = opened()
    with pytest.raises(IllegalFact, match="record 2 was expected"):
        apply_fact(story.state, replace(FACTS["AttemptStarted"], seq=seq))


def test_the_first_run_needs_a_setup() -> None:
    assert "needs a setup" in Story().check_refused(RunStarted(1, (TextPart("Hi"),)))


def test_two_calls_of_a_reply_with_one_id_are_refused() -> None:
    """S9: our own call ids are unique."""
    reply = AssistantMessage((make_call("a"), make_call("a")), MODEL)
    assert "two calls have one id" in asking().check_refused(StepProposed(reply, "calls"))


def test_a_call_id_of_an_earlier_step_is_refused() -> None:
    """S9: our own call ids are unique in a session; the key of an effect is made from them."""
    observed().start_attempt().check_refused(
        StepProposed(AssistantMessage((SOME_CALL,), MODEL), "calls")
    )


def test_a_pause_is_not_an_end() -> None:
    """L4: `suspended` is no way to end."""
    opened().check_refused(RunEnded("suspended"))


def test_a_second_finish_is_refused() -> None:
    """T6: every call gets exactly one result, also while a sibling is still open."""
    story = (
        opened()
        .take_calls(make_call("a"), make_call("b"))
        .allow_calls("a", "b")
        .start_calls("a", "b")
        .finish_calls("a")
    )
    assert "the call is closed" in story.check_refused(CallFinished("a", value_result("again")))


def test_an_unknown_call_is_refused() -> None:
    assert "no call z is open" in proposed().check_refused(CallJudged("z", Allow()))


def test_folding_all_is_applying_one_by_one() -> None:
    """L1: state is a fold over records."""
    story = (
        observed()
        .take_reply("Bye.", charge=make_charge(3, 1))
        .end_run("completed")
        .start_run("Again")
    )
    assert fold(SESSION, story.facts) == story.state


def test_a_journal_adds_up_however_deep_the_caller_is() -> None:
    """L1, J4: what was legal when it was written is legal when it is read back."""
    nested = '{"a":' * 700 + "1" + "}" * 700
    try:
        facts = opened().take_calls(make_call("a", "look", nested)).allow_calls("a").facts
    except IllegalFact:
        return  # Refused at once, by a bound of its own: that is fine as well.

    def deeper(levels: int) -> State:
        return deeper(levels - 1) if levels else fold(SESSION, facts)

    assert deeper(400).seq == len(facts)


def test_nothing_adds_up_to_an_empty_session() -> None:
    assert fold(SESSION, []) == State(SESSION)
    assert not State(SESSION).is_active


def test_every_event_has_a_place_of_its_own() -> None:
    """E1: a delta counts on from the fact before it."""
    deltas = [TextDelta("Hi", seq=2, nth=1), TextDelta("Hi", seq=2, nth=11)]
    places = [fact.place for fact in asking().facts] + [delta.place for delta in deltas]
    assert places == ["1", "2", "2.1", "2.11"]


# ── a run and its replies ────────────────────────────────────────────────────


def test_a_prompt_opens_a_run() -> None:
    story = Story().start_run("Hello")
    assert story.state.is_active
    assert list(story.state.transcript) == [UserMessage((TextPart("Hello"),))]
    assert (story.run.number, story.run.new_from, story.run.steps) == (1, 0, 0)


def test_a_next_run_keeps_the_transcript_and_starts_new_counters() -> None:
    story = (
        observed()
        .take_reply("Done.", charge=make_charge(5, 5))
        .end_run("completed")
        .start_run("More")
    )
    assert [type(message).__name__ for message in story.state.transcript] == [
        "UserMessage",
        "AssistantMessage",
        "ToolResults",
        "AssistantMessage",
        "UserMessage",
    ]
    assert (story.run.number, story.run.new_from) == (2, 4)
    assert (story.run.steps, story.run.ledger.usage, story.run.text) == (0, None, "")
    assert (story.state.steps, story.state.ledger.usage) == (2, Usage(5, 5))


def test_a_run_without_a_setup_goes_on_with_the_last_one() -> None:
    """L13: tools offered are fixed for a run; a changed list counts from the next run."""
    story = ended()
    assert story.start_run().state.setup == story.setup
    other = make_setup(tools=(make_spec("other"),))
    assert story.end_run().start_run(setup=other).state.setup == other


def test_a_step_is_in_the_transcript_only_when_all_its_calls_have_results() -> None:
    """X1: every call paired with its result."""
    story = opened().take_reply("Look:", make_call("a"), make_call("b"), stop="calls")
    story.allow_calls("a", "b").start_calls("b", "a").finish_calls("b", text="second")
    assert len(story.state.transcript) == 1
    story.finish_calls("a", text="first")
    *_, reply, results = story.state.transcript
    assert reply == AssistantMessage((TextPart("Look:"), make_call("a"), make_call("b")), MODEL)
    assert isinstance(results, ToolResults)
    assert [(item.call.id, item.result.text) for item in results.items] == [
        ("a", "first"),
        ("b", "second"),
    ]


def test_text_thinking_and_calls_keep_their_order() -> None:
    """L9: in the order in which the model sent them."""
    parts = (
        ThinkingPart("Hm", "sig"),
        TextPart("So: "),
        make_call("a"),
        TextPart("and "),
        make_call("b"),
        ThinkingPart("ok"),
    )
    story = (
        opened()
        .take_reply(*parts)
        .allow_calls("a", "b")
        .start_calls("a", "b")
        .finish_calls("a", "b")
    )
    assert story.state.transcript[1] == AssistantMessage(parts, MODEL)


def test_a_reply_without_calls_is_text_at_once() -> None:
    story = replied()
    assert story.run.text == "Hi."
    assert story.state.transcript[-1] == AssistantMessage((TextPart("Hi."),), MODEL)


@pytest.mark.parametrize("parts", [(), (ThinkingPart("Hm."),)], ids=["nothing", "only thinking"])
def test_a_reply_that_says_nothing_is_left_out(parts: tuple[ThinkingPart, ...]) -> None:
    """L10, X1: no provider takes an empty message back."""
    story = opened().take_reply(*parts)
    assert len(story.state.transcript) == 1
    assert (story.run.steps, story.run.empties) == (1, 1)


def test_the_last_text_is_kept_past_a_step_without_text() -> None:
    """L8: the last text is kept."""
    story = (
        opened()
        .take_reply("Let me look.", make_call("a"))
        .allow_calls("a")
        .start_calls("a")
        .finish_calls("a")
    )
    assert story.do_step(make_call("b")).run.text == "Let me look."


def test_the_last_text_is_kept_past_a_step_with_blanks() -> None:
    """L8: many models put a line break before a call."""
    story = (
        opened()
        .take_reply("Let me look.", make_call("a"))
        .allow_calls("a")
        .start_calls("a")
        .finish_calls("a")
    )
    assert story.take_reply("\n\n", make_call("b")).run.text == "Let me look."


def test_a_denied_reply_is_told_to_the_model_and_its_text_is_not_the_result() -> None:
    """G3: a denied final reply is withheld, and told to the model."""
    story = replied().add(ReplyJudged(Deny("too rude")))
    assert story.run.text == ""
    note = story.state.transcript[-1]
    assert isinstance(note, UserMessage)
    assert note.note
    assert "too rude" in note.text


def test_a_misfit_is_told_to_the_model() -> None:
    story = replied().add(ReplyJudged(OutputMismatch("not an integer")))
    assert story.state.transcript[-1] == UserMessage((TextPart("not an integer"),), note=True)
    assert story.run.misfits == 1


def test_a_reply_is_judged_once() -> None:
    assert "no reply waits" in passed().check_refused(ReplyJudged(Deny("changed my mind")))


def test_a_late_result_changes_nothing() -> None:
    """C4: a late result is recorded as late."""
    story = ended()
    before = story.state
    after = story.add(CallLate("a", value_result("too late"))).state
    unplaced = replace(after, seq=before.seq, at=before.at, updated=before.updated)
    assert unplaced == before


# ── the end ──────────────────────────────────────────────────────────────────


def test_the_end_closes_the_open_calls_and_says_whether_they_had_started() -> None:
    """C3, T6: finished siblings keep their results; the others say whether they had started."""
    calls = make_call("done"), make_call("running"), make_call("waiting"), make_call("unjudged")
    story = opened().take_calls(*calls).allow_calls("done", "running", "waiting")
    story.start_calls("done", "running").finish_calls("done").end_run("cancelled")
    results = story.state.transcript[-1]
    assert isinstance(results, ToolResults)
    assert [item.call.id for item in results.items] == ["done", "running", "waiting", "unjudged"]
    assert [item.result.kind for item in results.items] == ["value", *["cancelled"] * 3]
    texts = [item.result.text for item in results.items]
    assert "had started" in texts[1]
    assert all("had not started" in text for text in texts[2:])
    assert story.state.step is None


def test_the_end_closes_a_call_that_waits_for_a_person() -> None:
    story = questioned().end_run("cancelled")
    results = story.state.transcript[-1]
    assert isinstance(results, ToolResults)
    assert "had not started" in results.items[0].result.text


def test_a_call_that_started_before_a_crash_says_so_even_when_it_waits_for_a_person() -> None:
    """C3: whether they had started."""
    story = interrupted().add(CallJudged("a", Ask("Run it again?"))).end_run("cancelled")
    results = story.state.transcript[-1]
    assert isinstance(results, ToolResults)
    # C4: nothing waited for its end, and a thread cannot be stopped.
    assert "The call had started and may still be running" in results.items[0].result.text


def test_the_end_keeps_what_was_heard_and_paid() -> None:
    """L5, C2: partial text and usage are not lost."""
    story = asking().end_run(
        "cancelled", reason="by you", partial="Once upon", charge=make_charge(7, 2)
    )
    run = story.run
    assert (run.outcome, run.reason, run.partial) == ("cancelled", "by you", "Once upon")
    assert run.ledger.usage == Usage(7, 2)
    assert story.state.transcript[-1] == AssistantMessage((TextPart("Once upon"),))
    assert run.attempt is None


def test_the_partial_text_of_a_failed_attempt_is_kept_to_the_end() -> None:
    """S6: ends as `failed` with the partial text kept."""
    story = (
        opened()
        .fail_attempt(failed_attempt(visible=True, partial="Once"))
        .end_run("failed", fault=make_fault())
    )
    assert (story.run.partial, story.run.fault) == ("Once", make_fault())


def test_a_whole_reply_forgets_the_partial_one_before_it() -> None:
    """S5: the text is delivered exactly once."""
    story = opened().fail_attempt(failed_attempt(partial="Once")).take_reply("Once upon a time.")
    assert (story.run.partial, story.run.failures) == ("", ())


@pytest.mark.parametrize("outcome", ["completed", "failed", "stuck", "timed_out"])
def test_nothing_but_a_new_run_follows_an_end(outcome: Outcome) -> None:
    """L3: one `RunEnded` record."""
    story = opened().end_run(outcome)
    assert not story.state.is_active
    assert "no run is open" in story.check_refused(RunEnded(outcome))


# ── time ─────────────────────────────────────────────────────────────────────


def test_time_at_work_passes() -> None:
    story = Story().start_run().start_attempt().add(failed_attempt(), after_s=5.0)
    assert story.run.elapsed_s == 6.0


def test_time_between_two_drivers_does_not_pass() -> None:
    """G6: only time at work counts."""
    story = asking().resume(after_s=86_400.0).start_attempt()
    assert story.run.elapsed_s == 2.0


def test_time_while_a_person_is_asked_does_not_pass() -> None:
    """G6: the run's clock does not tick while it waits."""
    story = questioned()
    before = story.run.elapsed_s
    story.add(CallAnswered("a", Allow(), digest({})), after_s=86_400.0)
    assert story.run.elapsed_s == before
    assert story.start_calls("a").run.elapsed_s == before + 1.0


def test_time_passes_while_the_gate_has_not_judged_every_call() -> None:
    story = opened().take_calls(make_call("a"), make_call("b")).add(CallJudged("a", Ask("May I?")))
    before = story.run.elapsed_s
    assert not story.state.is_waiting
    assert story.allow_calls("b").run.elapsed_s == before + 1.0


def test_time_after_the_end_does_not_pass() -> None:
    story = ended()
    before = story.run.elapsed_s
    assert story.add(CallLate("a", value_result()), after_s=100.0).run.elapsed_s == before


def test_time_that_runs_backwards_takes_nothing_away() -> None:
    story = Story().start_run().start_attempt()
    assert story.add(failed_attempt(), after_s=-50.0).run.elapsed_s == 1.0


def test_a_clock_that_is_set_back_and_forth_counts_no_time_twice() -> None:
    story = Story().start_run().start_attempt()
    story.add(failed_attempt(), after_s=-50.0).add(RunEnded("cancelled"), after_s=0.0)
    assert story.run.elapsed_s == 1.0


def test_a_late_result_before_the_next_driver_moves_no_clock() -> None:
    """G6, C4: a late result changes nothing, also not what the run has used of its time."""
    story = asking().add(CallLate("z", value_result()), after_s=86_400.0).resume(after_s=0.0)
    assert story.run.elapsed_s == 1.0


def test_a_message_before_the_next_driver_moves_no_clock() -> None:
    """G6: a message that is written days after the driver died adds nothing to the time at work."""
    story = asking().add(SteeringGiven((TextPart("Hurry."),)), after_s=86_400.0)
    story.resume(after_s=86_400.0).start_attempt()
    assert story.run.elapsed_s == story.state.elapsed_s == 2.0


def test_an_answer_before_the_next_driver_moves_no_clock() -> None:
    """G6: also if the run did not wait for it, because another call had yet to be judged."""
    story = opened().take_calls(make_call("a"), make_call("b")).add(CallJudged("a", Ask("May I?")))
    before = story.run.elapsed_s
    story.add(CallAnswered("a", Allow(), digest({})), after_s=86_400.0).resume(after_s=86_400.0)
    assert story.run.elapsed_s == before


def test_a_message_to_a_driver_at_work_takes_no_time_away() -> None:
    """The next fact of the driver counts all of the time since its last one."""
    story = asking().add(SteeringGiven((TextPart("Hurry."),)), after_s=5.0)
    story.add(failed_attempt(), after_s=8.0)
    assert story.run.elapsed_s == 1.0 + 8.0


# ── usage and money ──────────────────────────────────────────────────────────


def test_no_usage_at_all_is_none() -> None:
    """S12: no usage at all is None, not zero."""
    run = opened().fail_attempt(failed_attempt()).take_reply("Hi.").run
    assert (run.ledger.usage, run.ledger.usd) == (None, None)


def test_usage_is_the_sum_over_all_attempts() -> None:
    """S12: totals are sums over all attempts, failed ones too."""
    story = (
        opened()
        .fail_attempt(failed_attempt(charge=make_charge(10, 1)))
        .fail_attempt(failed_attempt())
    )
    story.take_reply("Hi.", charge=make_charge(20, 2))
    assert story.run.ledger.usage == Usage(30, 3)


def test_money_is_summed_exactly() -> None:
    """B4: money is exact decimal."""
    story = opened()
    for _ in range(10):
        story.fail_attempt(failed_attempt(charge=make_charge(1, 1, "0.1")))
    assert story.run.ledger.usd == Decimal("1.0")


def test_an_interrupted_attempt_counts_as_all_that_was_reserved() -> None:
    """B2: it may have been paid for, so that the limit holds after a resume."""
    story = opened().start_attempt(RESERVED).resume()
    assert story.run.ledger.usage == Usage(100, 100, estimated=True)
    assert story.run.ledger.usd == Decimal("0.5")
    assert story.run.attempt is None
    assert story.run.model_calls == 1


def test_a_resume_with_no_attempt_under_way_costs_nothing() -> None:
    assert opened().resume().run.ledger.usage is None


def test_a_resume_may_bring_another_setup() -> None:
    """J9: what was consented to counts from here on."""
    other = make_setup(model=ModelInfo("other:model"))
    assert opened().add(RunResumed(("model",), other)).state.setup == other


def test_every_request_is_counted() -> None:
    story = opened().fail_attempt(failed_attempt()).fail_attempt(failed_attempt()).take_reply("Hi.")
    assert (story.run.model_calls, story.run.steps) == (3, 1)


def sized(setup: Setup) -> int:
    return Story(setup).start_run().state.fixed


def test_instructions_and_tools_have_a_size() -> None:
    assert sized(make_setup(instructions="Be brief.")) > sized(make_setup())
    assert sized(make_setup(tools=())) < sized(make_setup())
