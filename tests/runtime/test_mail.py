"""Mail: a run is spoken to through its journal, while it is driven and while it is not."""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from msgspec.structs import replace
from typing_extensions import override

from windlass import (
    Agent,
    Allow,
    AllowAlways,
    Ask,
    Deny,
    Event,
    Limits,
    LoopPolicy,
    Modify,
    Question,
    RunEnded,
    RunFailed,
    RunResult,
    SteeringGiven,
    tool,
)
from windlass.agent import control
from windlass.core.errors import ConfigError, JournalFailed, NothingToDo, QuestionDecided
from windlass.core.events import (
    CallAnswered,
    Fact,
    LimitsRaised,
    MailRefused,
    ReleaseAsked,
    RunContinued,
    RunPaused,
    RunReleased,
    RunResumed,
)
from windlass.core.fold.run import apply_fact, fold
from windlass.core.limits import RaisedLimits
from windlass.core.mail import (
    AnswerMail,
    CancelMail,
    ContinueMail,
    Letter,
    MailLane,
    PauseMail,
    RaiseLimitsMail,
    ReleaseMail,
    SteerMail,
)
from windlass.core.messages import TextPart
from windlass.journals.completing import complete_journal
from windlass.journals.memory import MemoryJournal
from windlass.testing import (
    BareJournal,
    FixedGate,
    PowerCut,
    PowerCutJournal,
    ScriptedModel,
    VirtualClock,
    call,
    check_trace,
    pause,
    say,
    usage,
)

SESSION = "s"


@tool
async def send(number: int) -> str:
    """Send something."""
    await asyncio.sleep(1)
    return f"sent {number}"


def steer(text: str, run: int = 1) -> SteerMail:
    return SteerMail(run=run, prompt=(TextPart(text),))


async def facts_of(journal: MemoryJournal, kind: type[Fact]) -> list[Any]:
    return [fact for fact in await journal.read(SESSION) if isinstance(fact, kind)]


async def until(holds: Callable[[], object]) -> None:
    while not holds():  # noqa: ASYNC110 - a model tells nobody
        await asyncio.sleep(0.01)


class Scene:
    """An agent on a memory journal, and a run of it that takes its time."""

    def __init__(self, clock: VirtualClock, *replies: Any, **options: Any) -> None:
        self.journal = MemoryJournal(now=clock.now)
        self.model = ScriptedModel(replies)
        self.events: list[Event] = []
        self.agent = Agent(
            self.model,
            tools=[send],
            journal=options.pop("journal", self.journal),
            clock=clock,
            **options,
        )

    def start(self) -> "asyncio.Task[RunResult[str]]":
        return asyncio.create_task(
            self.agent.run("Go.", session=SESSION, on_event=self.events.append)
        )

    async def post(self, message: Any, by: str = "ann") -> int:
        return (await self.journal.post_mail(SESSION, message, by=by)).number


LONG = [say("Let me "), pause(5), say("see."), call("send", {"number": 1})]


@pytest.mark.contract("D3", "D4")
async def test_steering_by_mail_becomes_a_fact_and_is_removed(clock: VirtualClock) -> None:
    scene = Scene(clock, LONG, "Blue.")
    running = scene.start()
    await until(lambda: scene.model.prompts)
    assert await scene.post(steer("Make it blue.")) == 1
    await scene.post(steer("And large."))
    result = await running
    assert result.completed
    given = await facts_of(scene.journal, SteeringGiven)
    assert [(fact.prompt[0].text, fact.by, fact.mail) for fact in given] == [
        ("Make it blue.", "ann", 1),
        ("And large.", "ann", 2),
    ]
    await asyncio.sleep(0.01)
    assert not await scene.journal.read_mail(SESSION, "control")
    check_trace(scene.events)


@pytest.mark.contract("D3", "C1")
async def test_a_cancel_by_mail_ends_the_run_at_once(clock: VirtualClock) -> None:
    """The end carries the letter and its author, and comes within 100 ms."""
    scene = Scene(clock, LONG)
    running = scene.start()
    await until(lambda: scene.model.prompts)
    began = clock.now()
    await scene.post(CancelMail(run=1, reason="not needed"))
    result = await running
    assert clock.now() - began <= 0.1
    assert (result.outcome, result.reason) == ("cancelled", "not needed")
    (end,) = await facts_of(scene.journal, RunEnded)
    assert (end.by, end.mail) == ("ann", 1)
    check_trace(scene.events)


@pytest.mark.contract("D4")
async def test_a_stale_cancel_never_stops_the_next_run(clock: VirtualClock) -> None:
    scene = Scene(clock, "One.", "Two.")
    await scene.agent.run("Go.", session=SESSION)
    await scene.post(CancelMail(run=1))
    result = await scene.agent.run("Again.", session=SESSION)
    assert result.completed
    (refused,) = await facts_of(scene.journal, MailRefused)
    assert (refused.mail, refused.kind, refused.by) == (1, "cancel", "ann")
    assert "run 1" in refused.reason


@pytest.mark.contract("D3", "D5")
async def test_a_pause_waits_for_the_reply_and_its_calls(clock: VirtualClock) -> None:
    """Then the driver lets go; a resume continues, and no request is made twice."""
    scene = Scene(clock, LONG, "Done.")
    running = scene.start()
    await until(lambda: scene.model.prompts)
    await scene.post(PauseMail(run=1, reason="lunch"))
    result = await running
    assert (result.outcome, result.reason) == ("paused", "lunch")
    paused = await facts_of(scene.journal, RunPaused)
    assert [(fact.mail, fact.by) for fact in paused] == [(1, "ann")]
    assert len(scene.model.prompts) == 1
    assert fold(SESSION, await scene.journal.read(SESSION)).is_paused
    assert not await scene.journal.list_abandoned()
    assert not await scene.journal.is_leased(SESSION)
    result = await scene.agent.resume(SESSION)
    assert result.completed
    assert len(scene.model.prompts) == 2


@pytest.mark.contract("D2", "D3")
async def test_a_run_is_moved_to_another_driver(clock: VirtualClock) -> None:
    """D2, D3: the reply under way is finished and not paid for twice; the other driver resumes."""
    scene = Scene(clock, LONG, name="clerk")
    running = scene.start()
    await until(lambda: scene.model.prompts)
    receipt = await control.release(scene.journal, SESSION, "drain", by="ann")
    assert isinstance(await receipt.taken(), ReleaseAsked)
    assert (await running).outcome == "released"
    (released,) = await facts_of(scene.journal, RunReleased)
    assert released.reason == "moved: drain"
    # The one that released it leaves it to others, for a while.
    assert (await scene.agent.sweep()).skipped == (SESSION,)
    other = Agent(
        ScriptedModel(["Done."]), tools=[send], journal=scene.journal, clock=clock, name="clerk"
    )
    assert (await other.sweep()).driven == (SESSION,)
    (end,) = await facts_of(scene.journal, RunEnded)
    assert end.outcome == "completed"


@pytest.mark.contract("D8")
async def test_a_run_that_no_other_driver_takes_comes_back(clock: VirtualClock) -> None:
    """D8: a fleet of one worker loses nothing when a run is moved."""
    scene = Scene(clock, LONG, "Done.", name="clerk")
    running = scene.start()
    await until(lambda: scene.model.prompts)
    await control.release(scene.journal, SESSION)
    await running
    await asyncio.sleep(10)
    assert (await scene.agent.sweep()).driven == (SESSION,)


@pytest.mark.contract("D4")
async def test_a_move_is_refused_once_another_driver_has_the_run(clock: VirtualClock) -> None:
    """D4: the message names the driver that it is for, so a run is not moved twice by one."""
    scene = Scene(clock, LONG, LONG, "Done.")
    running = scene.start()
    await until(lambda: scene.model.prompts)
    stale = ReleaseMail(run=1, opening=1)
    await scene.post(stale)
    await running
    await scene.post(stale)
    assert (await scene.agent.resume(SESSION)).completed
    (refused,) = await facts_of(scene.journal, MailRefused)
    assert refused.reason == "another driver has taken the run already"


async def test_a_run_without_a_driver_is_not_moved(clock: VirtualClock) -> None:
    scene = Scene(clock, LONG)
    running = scene.start()
    await until(lambda: scene.model.prompts)
    await scene.post(PauseMail(run=1))
    await running
    with pytest.raises(NothingToDo, match="has no driver"):
        await control.release(scene.journal, SESSION)


@pytest.mark.contract("D3", "D5")
async def test_a_pause_can_be_ended_by_mail(clock: VirtualClock) -> None:
    """Before it took effect, and while nobody drives the run."""
    scene = Scene(clock, LONG, LONG, "Done.")
    running = scene.start()
    await until(lambda: scene.model.prompts)
    await scene.post(PauseMail(run=1))
    await scene.post(ContinueMail(run=1))
    await scene.post(ContinueMail(run=1))
    await until(lambda: len(scene.model.prompts) == 2)
    await scene.post(PauseMail(run=1))
    await scene.post(PauseMail(run=1))
    assert (await running).outcome == "paused"
    await scene.post(ContinueMail(run=1), by="ben")
    # Any driver that comes takes the letter first; that it comes is not what ends the pause.
    driver = scene.agent._runs.make_driver(
        SESSION,
        lambda state: scene.agent._openings.open_resumed(state, consent=False),
    )
    result = await scene.agent._runs.drive_to_end(driver)
    assert result.completed
    assert [fact.by for fact in await facts_of(scene.journal, RunContinued)] == ["ann", "ben"]
    refused = await facts_of(scene.journal, MailRefused)
    assert [fact.reason for fact in refused] == [
        "the run is not paused",
        "the run is paused already",
    ]


@pytest.mark.contract("D5")
async def test_a_driver_that_only_recovers_leaves_a_pause_in_force(clock: VirtualClock) -> None:
    scene = Scene(clock, LONG, "Done.")
    running = scene.start()
    await until(lambda: scene.model.prompts)
    await scene.post(PauseMail(run=1))
    await running
    driver = scene.agent._runs.make_driver(
        SESSION,
        lambda state: scene.agent._openings.open_resumed(state, consent=False),
    )
    assert (await scene.agent._runs.drive_to_end(driver)).outcome == "paused"
    assert len(scene.model.prompts) == 1
    assert (await scene.agent.resume(SESSION)).completed


@pytest.mark.contract("D3")
async def test_raised_limits_move_the_deadline_of_a_run(clock: VirtualClock) -> None:
    scene = Scene(clock, LONG, "Done.", limits=Limits(seconds=3))
    running = scene.start()
    await until(lambda: scene.model.prompts)
    await scene.post(RaiseLimitsMail(run=1, limits=RaisedLimits(seconds=30)))
    await scene.post(RaiseLimitsMail(run=1, limits=RaisedLimits(seconds=20)))
    assert (await running).completed
    raised = await facts_of(scene.journal, LimitsRaised)
    assert [(fact.mail, fact.by) for fact in raised] == [(1, "ann")]
    (refused,) = await facts_of(scene.journal, MailRefused)
    assert "raises no limit" in refused.reason


@pytest.mark.contract("D6")
async def test_a_run_out_of_tokens_pauses_and_goes_on_with_more(clock: VirtualClock) -> None:
    """What was raised also counts for a driver that brings a setup of its own after a crash."""
    spent = [call("send", {"number": 1}), usage(input=900, output=90)]
    rules = LoopPolicy(on_budget="pause")
    scene = Scene(clock, spent, "Done.", limits=Limits(tokens=1_000), rules=rules)
    assert (await scene.start()).outcome == "paused"
    state = fold(SESSION, await scene.journal.read(SESSION))
    more = RaisedLimits(tokens=50_000)
    for fact in (RunResumed(), LimitsRaised(more), RunResumed(setup=state.recorded_setup)):
        state = apply_fact(state, replace(fact, seq=state.seq + 1, at=state.at))
    assert state.setup is not None
    assert (state.setup.limits.tokens, state.is_paused) == (50_000, False)
    await scene.post(RaiseLimitsMail(run=1, limits=more))
    assert (await scene.agent.resume(SESSION)).completed
    assert len(scene.model.prompts) == 2


def make_asking_scene(clock: VirtualClock, *replies: Any, **options: Any) -> Scene:
    expires_at = options.pop("expires_at", None)
    gate = FixedGate(Ask("May I?", expires_at=expires_at))
    return Scene(clock, *replies, gate=gate, **options)


async def question_of(scene: Scene) -> Question:
    state = fold(SESSION, await scene.journal.read(SESSION))
    from windlass.core.result import open_questions  # noqa: PLC0415

    return open_questions(state)[0]


def answer_to(question: Question, verdict: Any, digest: str = "") -> AnswerMail:
    return AnswerMail(
        run=1, call_id=question.call_id, digest=digest or question.digest, verdict=verdict
    )


@pytest.mark.contract("D3", "D4", "G6")
async def test_an_answer_by_mail_is_taken_when_a_driver_comes(clock: VirtualClock) -> None:
    """The first fitting answer counts; what does not fit, or comes second, is not accepted."""
    scene = make_asking_scene(clock, [call("send", {"number": 1})], "Done.")
    assert (await scene.start()).outcome == "suspended"
    question = await question_of(scene)
    with pytest.raises(ConfigError, match="other arguments"):
        await scene.post(answer_to(question, Allow(), digest="0" * 32))
    await scene.post(answer_to(question, AllowAlways()))
    with pytest.raises(QuestionDecided, match="allowed by ann") as refusal:
        await scene.post(answer_to(question, Deny("no")))
    assert refusal.value.decision.is_allowed
    result = await scene.agent.resume(SESSION)
    assert result.completed
    (answered,) = await facts_of(scene.journal, CallAnswered)
    assert (answered.mail, answered.by, answered.grant.tool) == (1, "ann", "send")
    assert answered.accepted_at > 0
    assert await facts_of(scene.journal, MailRefused) == []


@pytest.mark.contract("D4", "G6")
async def test_a_question_whose_answer_the_driver_cannot_take_is_open_again(
    clock: VirtualClock,
) -> None:
    """The store cannot know that new arguments do not fit the tool; a fact says so."""
    scene = make_asking_scene(clock, [call("send", {"number": 1})], "Done.")
    await scene.start()
    question = await question_of(scene)
    await scene.post(answer_to(question, Modify({"unknown": 1}, "rather")))
    assert (await scene.agent.resume(SESSION)).outcome == "suspended"
    (refused,) = await facts_of(scene.journal, MailRefused)
    assert "do not fit" in refused.reason
    await scene.post(answer_to(question, Allow()))
    assert (await scene.agent.resume(SESSION)).completed


@pytest.mark.contract("D4", "G6")
async def test_an_answer_counts_by_when_the_store_accepted_it(clock: VirtualClock) -> None:
    """Posted in time and taken days later it counts; posted too late it is not accepted."""
    for late, outcome in ((False, "value"), (True, "denied")):
        scene = make_asking_scene(
            clock, [call("send", {"number": 1})], "Done.", expires_at=clock.now() + 60
        )
        await scene.start()
        question = await question_of(scene)
        if late:
            await asyncio.sleep(100)
        with pytest.raises(QuestionDecided, match="expired") if late else nullcontext():
            await scene.post(answer_to(question, Allow()))
        await asyncio.sleep(300_000)
        result = await scene.agent.resume(SESSION)
        outcomes = [
            item.result.kind
            for message in result.messages
            for item in getattr(message, "items", ())
        ]
        assert outcomes == [outcome]


@pytest.mark.contract("D3")
async def test_an_answer_by_mail_goes_before_an_approver_that_is_still_asked(
    clock: VirtualClock,
) -> None:
    """The first answer counts, and the approver's task is cancelled."""
    told: list[str] = []

    async def approve(question: Question) -> Deny:
        told.append(f"asked {question.call_id}")
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            told.append("cancelled")
            raise
        return Deny("too late")

    scene = make_asking_scene(clock, [call("send", {"number": 1})], "Done.", approver=approve)
    running = scene.start()
    await until(lambda: told)
    await scene.post(answer_to(await question_of(scene), Allow("by mail")))
    result = await running
    assert result.completed
    assert clock.elapsed_s < 100
    assert told == ["asked c1_0", "cancelled"]
    (answered,) = await facts_of(scene.journal, CallAnswered)
    assert (answered.by, answered.mail) == ("ann", 1)


class SlowMailbox(MemoryJournal):
    """Tells of new messages much too late, as a store may whose notifications were lost."""

    @override
    async def wait_for_mail(self, session: str, lane: MailLane, after: int) -> None:
        await asyncio.sleep(1000)


@pytest.mark.contract("D4", "G6")
async def test_an_answer_that_was_accepted_in_time_goes_before_the_approvers_expiry(
    clock: VirtualClock,
) -> None:
    """The driver has not heard of the answer when the question expires, and looks for it then."""

    async def think(_question: Question) -> Deny:
        await asyncio.sleep(1000)
        return Deny("too late")

    for posted_s, kind in ((59, "value"), (None, "denied")):
        expires_at = clock.now() + 60
        script = ([call("send", {"number": 1})], "Done.")
        journal = SlowMailbox(now=clock.now)
        scene = make_asking_scene(
            clock, *script, expires_at=expires_at, approver=think, journal=journal
        )
        scene.journal = journal
        running = scene.start()
        await asyncio.sleep(posted_s or 59)
        if posted_s is not None:
            await scene.post(answer_to(await question_of(scene), Allow("by mail")))
        result = await running
        assert clock.now() < expires_at + 10
        kinds = [
            item.result.kind
            for message in result.messages
            for item in getattr(message, "items", ())
        ]
        assert kinds == [kind]


@pytest.mark.contract("D4")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", range(1, 9))
async def test_a_crash_neither_loses_nor_repeats_a_letter(
    clock: VirtualClock, at: int, when: Any
) -> None:
    scene = Scene(clock)
    scene.model = ScriptedModel([LONG, "Done.", "Done.", "Done."])
    journal = PowerCutJournal(scene.journal, at, when)
    agent = Agent(scene.model, tools=[send], journal=journal, clock=clock)
    running = asyncio.create_task(agent.run("Go.", session=SESSION))
    try:
        await until(lambda: running.done() or scene.model.prompts)
        for text in ("One.", "Two."):
            if await scene.journal.read(SESSION):
                await scene.post(steer(text))
        await running
    except (PowerCut, RunFailed):
        pass
    if not await scene.journal.read(SESSION):
        return
    scene.model = ScriptedModel([LONG, "Done.", "Done."])
    agent = Agent(scene.model, tools=[send], journal=scene.journal, clock=clock)
    state = fold(SESSION, await scene.journal.read(SESSION))
    if state.is_active:
        await agent.resume(SESSION)
    given = await facts_of(scene.journal, SteeringGiven)
    assert [fact.mail for fact in given] == list(range(1, len(given) + 1))
    taken = fold(SESSION, await scene.journal.read(SESSION)).mail_taken
    letters: list[Letter] = list(await scene.journal.read_mail(SESSION, "control", taken))
    assert len(given) + len(letters) in (0, 2)


@pytest.mark.contract("G8", "D4")
async def test_the_driver_masks_what_came_by_mail(clock: VirtualClock) -> None:
    scene = Scene(clock, LONG, "Done.", secrets={"TOKEN": "hunter2-hunter2"})
    running = scene.start()
    await until(lambda: scene.model.prompts)
    await scene.post(steer("Use hunter2-hunter2."), by="hunter2-hunter2")
    await running
    (given,) = await facts_of(scene.journal, SteeringGiven)
    assert "hunter2" not in given.prompt[0].text + given.by
    assert not await scene.journal.read_mail(SESSION, "control")


class BrokenMailbox(MemoryJournal):
    """A journal whose disk fails when mail is read."""

    @override
    async def wait_for_mail(self, session: str, lane: MailLane, after: int) -> None:
        await asyncio.sleep(2)
        raise JournalFailed("journal x: the disk is full; make room on it")


async def test_a_mailbox_that_fails_is_told_in_one_line(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The run goes on, and no traceback is written beside its own messages."""
    scene = Scene(clock, LONG, "Done.", journal=BrokenMailbox(now=clock.now))
    assert (await scene.start()).completed
    [first, *_] = [record for record in caplog.records if "mailbox" in record.getMessage()]
    assert first.getMessage() == (
        "session s: its mailbox fails: journal x: the disk is full; make room on it"
    )
    assert not [record for record in caplog.records if record.exc_info or record.exc_text]


async def test_a_store_that_only_reads_and_appends_is_driven(clock: VirtualClock) -> None:
    """D4, J5: its mailbox is a stream in it."""
    store = complete_journal(BareJournal(MemoryJournal(now=clock.now)), clock.now)
    scene = Scene(clock, LONG, "Done.", journal=store)
    assert (await scene.start()).completed
