"""D12: one projection of events, the same whenever its watcher came."""

from collections.abc import Iterable, Sequence
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from windlass.core.control_facts import NestedQuestion
from windlass.core.errors import Fault
from windlass.core.events import (
    AttemptDiscarded,
    AttemptFailed,
    AttemptRetrying,
    AttemptStarted,
    CallAnswered,
    CallDelta,
    CallFinished,
    CallJudged,
    CallProgress,
    CallStarted,
    CallWaiting,
    Event,
    Fact,
    LimitsRaised,
    NestedEvent,
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
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.limits import RaisedLimits
from windlass.core.messages import (
    AssistantMessage,
    Charge,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    Usage,
)
from windlass.core.projection.changes import forget_streamed_text
from windlass.core.projection.entries import FailureEntry, FallbackEntry, PromptEntry, SteeringEntry
from windlass.core.projection.project import (
    apply_event,
    nest_events,
    project_events,
    without_live_parts,
)
from windlass.core.projection.view import CallView, Entry, Projection, ReplyEntry
from windlass.core.setup import ModelInfo, Setup, digest
from windlass.core.verdicts import Allow, Ask, Deny, Modify
from windlass.testing.samples import facts_of_every_kind

pytestmark = pytest.mark.contract("D12")

SETUP = Setup(model=ModelInfo("m:x"), gate="g")
RESERVED = Reservation(100, 50, Decimal("0.01"))
LOOK = ToolCall("c1_0", "look", '{"at": 1}')
CHARGE = Charge("m:x", "main", Usage(10, 5), Decimal("0.002"))
STARTED = RunStarted(1, (TextPart("Go."),), SETUP)
ASKED = AttemptStarted(1, 1, "m:x", RESERVED)
CALLED = StepProposed(AssistantMessage((TextPart("Let me look."), LOOK), "m:x"), "calls", CHARGE)
SAID = StepProposed(AssistantMessage((TextPart("Done."),), "m:x"), "end", CHARGE)
BROKEN = AttemptFailed(Fault("server", "503", retryable=True), visible=True, partial="Le", wait_s=4)


def placed(*events: Event) -> list[Event]:
    """The events with their places: facts count up, deltas count on from the last fact."""
    seq = nth = 0
    found = list[Event]()
    for event in events:
        if isinstance(event, Fact):
            seq += 1
            nth = 0
            found.append(replace(event, seq=seq, at=100.0 + seq))
        else:
            nth += 1
            found.append(replace(event, seq=seq, nth=nth))
    return found


def project(*events: Event) -> Projection:
    return project_events(placed(*events), "s")


def only_call(view: Projection) -> CallView:
    [call] = view.step_calls
    return call


def test_text_and_thinking_so_far_are_shown_until_the_reply_is_on_record() -> None:
    view = project(STARTED, ASKED, ThinkingDelta("Hm."), TextDelta("Let "), TextDelta("me"))
    assert view.reply is not None
    assert (view.reply.text, view.reply.thinking, view.reply.model) == ("Let me", "Hm.", "m:x")
    assert view.reply.parts == (ThinkingPart("Hm."), TextPart("Let me"))
    assert view.status.waits_for == "model"
    after = apply_event(view, replace(CALLED, seq=3, at=103.0))
    assert after.reply is None
    assert isinstance(after.entries[-1], ReplyEntry)
    assert after.entries[-1].text == "Let me look."
    assert (after.entries[-1].requested_at, after.entries[-1].at) == (102.0, 103.0)
    assert view.reply.text == "Let me"


def test_a_call_that_is_being_written_is_shown_as_a_draft() -> None:
    view = project(STARTED, ASKED, CallDelta(0, "p", "lo"), CallDelta(0, None, "ok", '{"at'))
    view = apply_event(view, CallDelta(0, None, None, '": 1}'))
    assert view.reply is not None
    [draft] = view.reply.calls
    assert (draft.id, draft.name, draft.arguments) == ("p", "look", '{"at": 1}')


def test_the_text_of_an_attempt_that_failed_is_dropped() -> None:
    """S6: a live watcher is told to drop it; the fact alone says the same."""
    live = [STARTED, ASKED, TextDelta("Le"), BROKEN, AttemptDiscarded(1, 1, "503")]
    seen = project(*live, AttemptRetrying(1, 2, 4.0, "503"))
    late = project(STARTED, ASKED, BROKEN)
    for view in (seen, late):
        assert view.reply is None
        assert (view.status.waits_for, view.status.until) == ("retry", 107.0)
        assert isinstance(view.entries[-1], FailureEntry)
        assert view.entries[-1].fact.partial == "Le"
        assert (view.entries[-1].requested_at, view.entries[-1].at) == (102.0, 103.0)
    assert without_live_parts(seen) == without_live_parts(late)


def test_a_failure_says_that_it_was_tried_again_only_if_an_attempt_follows() -> None:
    """S6: the last failure of a run is not followed by another attempt."""
    again = project(STARTED, ASKED, BROKEN, replace(ASKED, attempt=2))
    [failure] = [entry for entry in again.entries if isinstance(entry, FailureEntry)]
    assert failure.retried
    assert failure.changed == (4, 0)
    for end in ([BROKEN], [BROKEN, RunEnded("failed")]):
        last = project(STARTED, ASKED, *end).entries[1]
        assert isinstance(last, FailureEntry)
        assert not last.retried


def test_a_failure_that_nothing_mends_waits_for_no_retry() -> None:
    refused = AttemptFailed(Fault("auth", "wrong key"), wait_s=4)
    assert project(STARTED, ASKED, refused).status.waits_for != "retry"


def test_text_before_a_late_discard_of_an_older_attempt_stays() -> None:
    again = replace(ASKED, attempt=2)
    view = project(STARTED, ASKED, BROKEN, again, TextDelta("New"), AttemptDiscarded(1, 1, "503"))
    assert view.reply is not None
    assert view.reply.text == "New"


def test_another_model_that_is_asked_instead_is_an_entry() -> None:
    """S15."""
    view = project(STARTED, ASKED, BROKEN, replace(ASKED, model="m:y"))
    assert isinstance(view.entries[-1], FallbackEntry)
    assert (view.entries[-1].model, view.entries[-1].instead_of) == ("m:y", "m:x")
    assert view.run is not None
    assert (view.run.fallbacks, view.run.failures, view.run.model) == (1, 1, "m:y")


def test_a_call_has_its_state_verdict_times_and_result() -> None:
    events: list[Event] = [STARTED, ASKED, CALLED]
    states = list[str]()
    for event in (
        CallJudged("c1_0", Ask("May I?", "rule 1", 500.0)),
        CallAnswered("c1_0", Modify({"at": 2}, "less", "person"), digest({"at": 1}), "ann"),
        CallStarted("c1_0", "s/c1_0", "look"),
        CallProgress("c1_0", "half"),
        CallFinished("c1_0", ToolResult.from_text("value", "page"), (CHARGE,)),
    ):
        events.append(event)
        states.append(only_call(project(*events)).state)
    assert states == ["asked", "cleared", "running", "running", "done"]
    view = project(*events)
    call = only_call(view)
    assert (call.name, call.arguments, call.rule) == ("look", '{"at":2}', "person")
    assert (call.answered_by, call.key, call.starts) == ("ann", "s/c1_0", 1)
    assert (call.asked_at, call.answered_at) == (104.0, 105.0)
    assert (call.started_at, call.ended_at, call.charges) == (106.0, 107.0, (CHARGE,))
    assert call.result is not None
    assert call.result.text == "page"
    assert view.usage == Usage(20, 10)
    assert view.cost == Decimal("0.004")


@pytest.mark.parametrize(
    ("fact", "state"),
    [
        (CallJudged("c1_0", Deny("no")), "denied"),
        (CallFinished("c1_0", ToolResult.from_text("error", "x")), "failed"),
        (CallFinished("c1_0", ToolResult.from_text("timed_out", "x")), "timed_out"),
        (RunEnded("cancelled"), "cancelled"),
    ],
)
def test_what_became_of_a_call_is_its_state(fact: Fact, state: str) -> None:
    assert only_call(project(STARTED, ASKED, CALLED, fact)).state == state


def test_a_call_whose_driver_died_is_interrupted() -> None:
    started = CallStarted("c1_0", "k")
    view = project(STARTED, ASKED, CALLED, CallJudged("c1_0", Allow()), started, RunResumed())
    assert only_call(view).state == "interrupted"
    assert view.status.waits_for == "runtime"


def test_an_open_question_has_its_digest_and_expiry() -> None:
    """G6: an answer is bound to exactly these."""
    view = project(STARTED, ASKED, CALLED, CallJudged("c1_0", Ask("May I?", "r", 500.0)))
    [question] = view.questions
    assert (question.session, question.call_id, question.tool) == ("s", "c1_0", "look")
    assert question.digest == digest({"at": 1})
    assert (question.expires_at, question.rule, question.chain) == (500.0, "r", ())
    assert view.status.waits_for == "person"


def test_a_sub_agent_is_a_projection_under_its_call() -> None:
    """M1, D13: a question in it names who works for whom."""
    inner = placed(STARTED, ASKED, CALLED, CallJudged("c1_0", Ask("May I?")))
    outer = [STARTED, ASKED, CALLED, CallJudged("c1_0", Allow()), CallStarted("c1_0", "s/c1_0")]
    nested = nest_events("c1_0", "helper", "s/c1_0", inner)
    view = project_events([*placed(*outer), *nested], "s")
    [agent] = only_call(view).agents
    assert (agent.agent, agent.session) == ("helper", "s/c1_0")
    assert without_live_parts(agent.projection) == without_live_parts(
        project_events(inner, "s/c1_0")
    )
    [question] = view.questions
    assert (question.session, question.chain) == ("s/c1_0", ("helper",))
    assert view.status.waits_for == "person"
    assert not without_live_parts(view).questions


@pytest.mark.parametrize("last", [RunEnded("timed_out", "3 s"), RunResumed()])
def test_a_sub_agent_streams_nothing_more_once_its_caller_has_stopped(last: Fact) -> None:
    """D12: a live watcher of the caller is shown what a reader of both records is shown."""
    outer = [STARTED, ASKED, CALLED, CallJudged("c1_0", Allow()), CallStarted("c1_0", "s/c1_0")]
    record = placed(*outer, last)
    facts = placed(STARTED, ASKED, CALLED, CallJudged("c1_0", Allow()), CallStarted("c1_0", "k"))
    below = placed(STARTED, ASKED)
    streamed = [*below, TextDelta("Let me", seq=2, nth=1)]

    def watch(innermost: list[Event]) -> Projection:
        inner = [*facts, *nest_events("c1_0", "below", "s/c1_0/c1_0", innermost)]
        nested = nest_events("c1_0", "helper", "s/c1_0", inner)
        return project_events([*record[:-1], *nested, record[-1]], "s")

    [[live], [late]] = [only_call(view).agents for view in (watch(streamed), watch(below))]
    [[live_below], [late_below]] = [only_call(one.projection).agents for one in (live, late)]
    assert live_below.projection.reply == late_below.projection.reply
    assert live_below.projection.reply is not None


@pytest.mark.contract("D13")
def test_a_call_that_waits_for_its_sub_agent_asks_what_is_on_record() -> None:
    """Whoever comes late is asked the same, without the events of the sub-agent."""
    asked = NestedQuestion("s/c1_0", "c1_0", "look", '{"at":1}', "May I?", "d", 500.0, ("helper",))
    waits = CallWaiting("c1_0", "s/c1_0", (asked,))
    allowed = CallJudged("c1_0", Allow())
    view = project(STARTED, ASKED, CALLED, allowed, CallStarted("c1_0", "k"), waits)
    assert only_call(view).state == "waiting"
    assert view.status.waits_for == "person"
    [question] = view.questions
    assert (question.session, question.call_id, question.digest) == ("s/c1_0", "c1_0", "d")
    assert (question.arguments, question.expires_at) == ({"at": 1}, 500.0)
    assert question.chain == ("helper",)
    resumed = apply_event(view, RunResumed(seq=7))
    assert (only_call(resumed).state, resumed.questions) == ("interrupted", ())


@pytest.mark.contract("D5")
def test_a_paused_run_waits_until_somebody_continues_it() -> None:
    paused = RunPaused("lunch", "ann")
    view = project(STARTED, ASKED, paused)
    assert view.run is not None
    assert (view.status.waits_for, view.run.pause is not None) == ("model", True)
    view = project(STARTED, ASKED, TextDelta("Le"), paused, RunReleased(charge=CHARGE))
    assert (view.status.waits_for, view.reply) == ("continue", None)
    assert view.cost == Decimal("0.002")
    view = project(STARTED, ASKED, paused, RunReleased(), RunResumed(), RunContinued("ann"))
    assert view.status.waits_for == "runtime"


@pytest.mark.contract("D2")
def test_a_released_run_waits_for_a_driver() -> None:
    view = project(STARTED, ASKED, RunReleased("the service restarts"))
    assert view.status.waits_for == "driver"
    assert view.run is not None
    assert view.run.is_open


@pytest.mark.contract("D6")
def test_raised_limits_are_shown_and_end_a_pause_for_want_of_money() -> None:
    paused = RunPaused("the money is used up", cause="budget")
    raised = LimitsRaised(RaisedLimits(usd=5), "ann")
    view = project(STARTED, ASKED, SAID, paused, raised, LimitsRaised(RaisedLimits(steps=9)))
    assert view.run is not None
    assert (view.run.pause, view.run.raised) == (None, RaisedLimits(usd=5, steps=9))


def test_an_event_of_a_sub_agent_that_nobody_decoded_changes_nothing() -> None:
    before = project(STARTED, ASKED, CALLED)
    after = apply_event(before, NestedEvent("c1_0", "helper", "s/c1_0", {"type": "TextDelta"}))
    assert only_call(after).agents == ()


def test_a_withheld_reply_is_shown_only_once_it_is_allowed() -> None:
    """G3: also to a reader of the raw record."""
    setup = replace(SETUP, judge_replies=True, withhold_replies=True)
    facts = placed(replace(STARTED, setup=setup), ASKED, SAID)
    waiting = project_events(facts, "s")
    reply = waiting.entries[-1]
    assert isinstance(reply, ReplyEntry)
    assert (reply.withheld, reply.text) == (True, "")
    assert waiting.run is not None
    assert waiting.run.text == ""
    allowed = apply_event(waiting, ReplyJudged(Allow(), seq=4)).entries[1]
    assert isinstance(allowed, ReplyEntry)
    assert (allowed.withheld, allowed.text) == (False, "Done.")
    denied = apply_event(waiting, ReplyJudged(Deny("no"), seq=4))
    assert "Done." not in repr(denied)


def test_a_denied_reply_is_taken_back() -> None:
    """G3: whether or not it had been shown."""
    view = project(STARTED, ASKED, TextDelta("Done."), SAID, ReplyJudged(Deny("no")))
    assert "Done." not in repr(view)


def test_steering_waits_until_the_model_is_told() -> None:
    steered = SteeringGiven((TextPart("Hurry."),), "ann")
    view = project(STARTED, ASKED, steered)
    assert [entry.text for entry in view.pending] == ["Hurry."]
    taken = project(STARTED, ASKED, steered, SAID, SteeringTaken())
    assert not taken.pending
    assert isinstance(taken.entries[-1], SteeringEntry)


def test_runs_have_their_figures_and_their_boundaries() -> None:
    ended = RunEnded("completed")
    view = project(STARTED, ASKED, SAID, ended, replace(STARTED, run=2), ASKED, BROKEN)
    [first] = view.runs
    assert (first.number, first.outcome, first.steps, first.text) == (1, "completed", 1, "Done.")
    assert (first.started_at, first.ended_at, first.first_entry) == (101.0, 104.0, 0)
    assert view.run is not None
    assert isinstance(view.entries[view.run.first_entry], PromptEntry)
    assert (view.run.number, view.run.requests, view.run.failures) == (2, 1, 1)


def test_what_had_come_of_a_reply_is_kept_at_the_end() -> None:
    """C2."""
    view = project(STARTED, ASKED, TextDelta("Half"), RunEnded("cancelled", partial="Half"))
    partial = view.entries[-2]
    assert isinstance(partial, ReplyEntry)
    assert (partial.kind, partial.text) == ("partial", "Half")
    assert view.reply is None
    assert view.status.waits_for == "prompt"


def test_a_watcher_that_comes_back_starts_with_the_text_so_far() -> None:
    view = project(STARTED, ASKED, TextDelta("Le"))
    again = apply_event(forget_streamed_text(view), TextDelta("Let me", seq=2, nth=9))
    assert again.reply is not None
    assert again.reply.text == "Let me"


LIVE: Sequence[Event] = placed(
    STARTED,
    ASKED,
    ThinkingDelta("Hm."),
    TextDelta("Le"),
    BROKEN,
    AttemptDiscarded(1, 1, "503"),
    AttemptRetrying(1, 2, 4.0, "503"),
    replace(ASKED, attempt=2),
    ThinkingDelta("Hm, "),
    ThinkingDelta("well."),
    TextDelta("Let me "),
    TextDelta("look."),
    CallDelta(0, "p", "look", '{"at"'),
    CallDelta(0, None, None, ": 1}"),
    UsageDelta(Usage(10, 5)),
    CALLED,
    CallJudged("c1_0", Allow("r")),
    CallStarted("c1_0", "s/c1_0"),
    CallProgress("c1_0", "half"),
    SteeringGiven((TextPart("Hurry."),)),
    CallFinished("c1_0", ToolResult.from_text("value", "page")),
    SteeringTaken(),
    replace(ASKED, step=2),
    TextDelta("Do"),
    TextDelta("ne."),
    SAID,
    RunEnded("completed"),
)


@given(st.integers(0, len(LIVE)), st.lists(st.integers(0, len(LIVE)), max_size=3))
def test_the_view_does_not_depend_on_when_the_watcher_came(cut: int, again: Sequence[int]) -> None:
    """Facts up to the cut, the text so far, what is live; whatever comes twice counts once."""
    seen = LIVE[:cut]
    facts = [event for event in seen if isinstance(event, Fact)]
    start = max((at for at, event in enumerate(seen) if isinstance(event, Fact)), default=0)
    pieces = [event for event in seen[start:] if not isinstance(event, Fact)]
    late = project_events([*facts, *pieces, *LIVE[cut:]], "s")
    for at in again:
        late = project_events(LIVE[:at], start=late)
    assert without_live_parts(late) == without_live_parts(project_events(LIVE, "s"))
    everything = [event for event in LIVE if isinstance(event, Fact)]
    assert without_live_parts(late) == without_live_parts(project_events(everything, "s"))


@given(st.data())
def test_what_changed_since_a_place_is_all_that_a_client_needs(data: st.DataObject) -> None:
    """A client that patches its list by index has the entries of the projection."""
    client = list[Entry]()
    view = Projection("s")
    sent = (0, 0)
    for event in (*LIVE, *placed(*facts_of_every_kind())):
        view = apply_event(view, event)
        if data.draw(st.booleans()):
            for at, entry in view.changed_since(sent):
                client[at : at + 1] = [entry]
            sent = view.place
            assert _contents(client) == _contents(view.entries)


def _contents(entries: Iterable[Entry]) -> list[Entry]:
    """Entries without the places of their changes, which only tell what to send."""
    return [replace(entry, changed=(0, 0)) for entry in entries]


def test_a_change_is_told_alone() -> None:
    """It costs as much as there is to tell, not as much as the session is long."""
    view = project_events(LIVE[:18], "s")
    place = view.place
    view = project_events(LIVE[18:21], start=view)
    changed = [entry for _, entry in view.changed_since(place)]
    assert [type(entry) for entry in changed] == [ReplyEntry]


@given(st.lists(st.sampled_from([*LIVE, *facts_of_every_kind()]), max_size=30))
def test_no_order_of_events_breaks_it_and_no_snapshot_changes(events: Sequence[Event]) -> None:
    """A watcher may come in the middle; a projection shows what it was given."""
    views = [Projection("s")]
    kept = list[str]()
    for event in events:
        views.append(apply_event(views[-1], replace(event, seq=0, nth=0)))
        kept.append(repr(views[-1]))
        assert views[-1].status.waits_for
    assert [repr(view) for view in views[1:]] == kept


def test_every_kind_of_fact_has_its_place() -> None:
    facts = facts_of_every_kind()
    view = project_events(facts, "s")
    assert view.seq == facts[-1].seq
    assert view.run is not None
    assert len(view.runs) + 1 == sum(isinstance(fact, RunStarted) for fact in facts)
