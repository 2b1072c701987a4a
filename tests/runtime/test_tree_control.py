"""Control of a tree of agents: questions from below, pauses and raised limits from above."""

import asyncio
from contextlib import nullcontext
from decimal import Decimal
from typing import Any

import pytest
from typing_extensions import override

import windlass
from windlass import (
    Agent,
    Allow,
    Ask,
    Deny,
    Limits,
    LoopPolicy,
    ModelInfo,
    NothingToDo,
    Price,
    Question,
    RunEnded,
    answer,
    tool,
)
from windlass.agent.working import SessionWorker
from windlass.core.errors import ConfigError
from windlass.core.events import (
    AnswerForwarded,
    AttemptStarted,
    CallAnswered,
    CallWaiting,
    LimitsRaised,
    MailRefused,
    RunContinued,
    RunPaused,
    RunReleased,
    RunResumed,
    SteeringGiven,
)
from windlass.core.fold.run import fold
from windlass.core.limits import RaisedLimits
from windlass.core.mail import (
    AnswerMail,
    CancelMail,
    ContinueMail,
    PauseMail,
    RaiseLimitsMail,
    SteerMail,
)
from windlass.core.messages import TextPart
from windlass.core.verdicts import Verdict
from windlass.journals.memory import MemoryJournal
from windlass.ports import GateRequest, ProvenAnswers
from windlass.testing import FixedGate, ScriptedModel, VirtualClock, call, pause, say, usage

SESSION = "s"
BELOW = "s/c1_0"
sent: list[str] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    sent.clear()


@tool
async def send(to: str) -> str:
    """Send something."""
    await asyncio.sleep(1)
    sent.append(to)
    return f"sent to {to}"


class AskAboutSending(FixedGate):
    """Asks about one tool."""

    def __init__(self, expires_at: float | None = None) -> None:
        super().__init__(Allow())
        self._expires_at = expires_at

    @override
    async def judge(self, request: GateRequest) -> Verdict:
        if request.tool.name == "send":
            return Ask("May I send?", "house rule", self._expires_at)
        return Allow()


class Tree:
    """A boss, a clerk and a runner, each in a process of its own that ends with each drive."""

    def __init__(
        self, clock: VirtualClock, *, depth: int = 1, expires_at: float | None = None
    ) -> None:
        self.clock = clock
        self.journal = MemoryJournal(now=clock.now)
        self.depth = depth
        self.gate = AskAboutSending(expires_at)

    def boss(self, *scripts: list[Any], **options: Any) -> Agent[str]:
        """Make the tree; the scripts are those of the boss, then of each one below."""
        names = ["clerk", "runner"][: self.depth]
        tools: list[Any] = [send]
        for name, script in reversed(list(zip(names, scripts[1:], strict=True))):
            info = ModelInfo(f"scripted:{name}")
            model = ScriptedModel(script, info=info)
            helper = Agent(model, name=name, tools=tools, gate=self.gate, clock=self.clock)
            tools = [helper.as_tool()]
        return Agent(
            ScriptedModel(scripts[0]),
            name="boss",
            tools=[*tools, send],
            journal=self.journal,
            clock=self.clock,
            **options,
        )

    async def facts(self, session: str, kind: Any) -> list[Any]:
        return [fact for fact in await self.journal.read(session) if isinstance(fact, kind)]


DELEGATE = [call("clerk", {"task": "Write to ann."})]
DELEGATE_DEEP = [call("runner", {"task": "Bring it to ann."})]
SEND = [call("send", {"to": "ann"})]


@pytest.mark.contract("D13")
async def test_a_question_below_suspends_the_tree_and_is_asked_at_the_top(
    clock: VirtualClock,
) -> None:
    tree = Tree(clock)
    result = await tree.boss([DELEGATE], [SEND]).run("Go.", session=SESSION)
    assert result.outcome == "suspended"
    (question,) = result.questions
    assert (question.session, question.chain) == (BELOW, ("boss", "clerk"))
    assert (question.arguments, question.rule) == ({"to": "ann"}, "house rule")
    (waiting,) = await tree.facts(SESSION, CallWaiting)
    assert waiting.session == BELOW
    for session in (SESSION, BELOW):
        assert not await tree.journal.is_leased(session)
    assert not await tree.journal.list_abandoned()
    await asyncio.sleep(300_000)
    left = await answer(
        tree.journal, SESSION, question.call_id, Allow(), digest=question.digest, by="ann"
    )
    assert left == ()
    result = await tree.boss(["Done."], ["Sent."]).resume(SESSION)
    assert (result.outcome, sent) == ("completed", ["ann"])
    (forwarded,) = await tree.facts(SESSION, AnswerForwarded)
    assert (forwarded.session, forwarded.by, forwarded.mail) == (BELOW, "ann", 1)
    (answered,) = await tree.facts(BELOW, CallAnswered)
    assert (answered.by, answered.mail) == ("ann", 1)
    assert result.duration_s < 100


@pytest.mark.contract("D13")
async def test_an_answer_that_waits_in_the_mailbox_counts_as_given(clock: VirtualClock) -> None:
    """Or whoever answers one question after the other would never come to an end."""
    tree = Tree(clock)
    letters = [[call("send", {"to": "ann"}), call("send", {"to": "bob"})]]
    result = await tree.boss([DELEGATE], letters).run("Go.", session=SESSION)
    first, second = result.questions
    left = await answer(tree.journal, SESSION, first.call_id, Allow(), digest=first.digest)
    assert [question.call_id for question in left] == [second.call_id]
    assert await answer(tree.journal, SESSION, second.call_id, Allow(), digest=second.digest) == ()


@pytest.mark.contract("D13")
@pytest.mark.parametrize("named", ["root", "child"])
async def test_a_question_two_levels_down_is_answered_by_either_name(
    clock: VirtualClock, named: str
) -> None:
    tree = Tree(clock, depth=2)
    first = tree.boss([DELEGATE], [DELEGATE_DEEP], [SEND])
    (question,) = (await first.run("Go.", session=SESSION)).questions
    assert question.chain == ("boss", "clerk", "runner")
    assert question.session == "s/c1_0/c1_0"
    session = SESSION if named == "root" else question.session
    boss = tree.boss(["Done."], ["Told."], ["Sent."])
    result = await boss.answer(session, question.call_id, Allow(), digest=question.digest)
    assert (result.outcome, sent) == ("completed", ["ann"])


@pytest.mark.contract("D13", "G6")
async def test_nobody_answers_in_time(clock: VirtualClock) -> None:
    tree = Tree(clock, expires_at=clock.now() + 60)
    await tree.boss([DELEGATE], [SEND]).run("Go.", session=SESSION)
    await asyncio.sleep(100)
    result = await tree.boss(["Done."], ["I may not."]).resume(SESSION)
    assert (result.outcome, sent) == ("completed", [])


@pytest.mark.contract("D13", "G6")
async def test_an_answer_at_the_top_counts_by_when_it_was_accepted_there(
    clock: VirtualClock,
) -> None:
    """It is passed on only days later, when somebody drives the tree; without it, that denies."""
    for answered in (True, False):
        tree = Tree(clock, expires_at=clock.now() + 60)
        boss = tree.boss([DELEGATE], [SEND])
        (question,) = (await boss.run("Go.", session=SESSION)).questions
        assert (await boss.drive(SESSION)) is not None
        assert (await tree.facts(SESSION, CallWaiting))[1:] == []
        if answered:
            await answer(tree.journal, SESSION, question.call_id, Allow(), digest=question.digest)
        await asyncio.sleep(300_000)
        result = await tree.boss(["Done."], ["So be it."]).drive(SESSION)
        assert result is not None
        assert result.completed
        assert bool(sent) == answered
        sent.clear()


@pytest.mark.contract("D13", "D4")
async def test_answers_that_do_not_fit_are_refused_at_the_top(clock: VirtualClock) -> None:
    tree = Tree(clock)
    (question,) = (await tree.boss([DELEGATE], [SEND]).run("Go.", session=SESSION)).questions
    # A root of its own, which asks the same and is only named like a sub-agent of this one.
    apart = f"{SESSION}/apart"
    asking = Agent(ScriptedModel([SEND]), tools=[send], gate=tree.gate, journal=tree.journal)
    await asking.run("Go.", session=apart)
    strangers = (("elsewhere", question.digest), (apart, question.digest))
    expected = (ConfigError, NothingToDo, None)
    for (session, digest), error in zip(((BELOW, "0" * 32), *strangers), expected, strict=True):
        message = AnswerMail(
            run=1, call_id=question.call_id, digest=digest, verdict=Allow(), session=session
        )
        with pytest.raises(error) if error else nullcontext():
            await tree.journal.post_mail(SESSION, message)
    result = await tree.boss([], []).resume(SESSION)
    assert (result.outcome, sent) == ("suspended", [])
    assert len(result.questions) == 1
    # The store knows the question of the other root, but not whom it works for.
    assert len(await tree.facts(SESSION, MailRefused)) == 1
    assert not await tree.journal.read_mail(apart, "control")


@pytest.mark.contract("D13")
async def test_an_answer_is_taken_while_another_call_still_runs(clock: VirtualClock) -> None:
    """The call goes on at once, in the same process: nothing is recorded as waiting."""
    tree = Tree(clock)
    clerk = Agent(
        ScriptedModel([SEND, "Sent."], info=ModelInfo("scripted:clerk")),
        name="clerk",
        tools=[send],
        gate=tree.gate,
        clock=clock,
    )
    slow = Agent(
        ScriptedModel([[pause(1000), say("Slept.")]], info=ModelInfo("scripted:slow")),
        name="slow",
        clock=clock,
    )
    script = [[*DELEGATE, call("slow", {"task": "Sleep."})], "Done."]
    tools = [clerk.as_tool(), slow.as_tool()]
    boss = Agent(ScriptedModel(script), tools=tools, journal=tree.journal, clock=clock)
    running = asyncio.create_task(boss.run("Go.", session=SESSION))
    await asyncio.sleep(10)
    state = fold(BELOW, await tree.journal.read(BELOW))
    (asking,) = [one for one in state.step_calls if one.question]
    await answer(tree.journal, BELOW, asking.id, Allow())
    await asyncio.sleep(10)
    assert sent == ["ann"]
    assert (await running).completed
    assert not await tree.facts(SESSION, CallWaiting)


@pytest.mark.contract("D5")
async def test_a_pause_reaches_those_below_and_so_does_its_end(clock: VirtualClock) -> None:
    tree = Tree(clock)
    tree.gate = AskAboutSending()
    slow: list[Any] = [say("Let me "), pause(5), say("see."), call("look", {})]

    @tool(effect="read")
    async def look() -> str:
        """Look."""
        return "seen"

    def make_boss(above: list[Any], below: list[Any]) -> Agent[str]:
        model = ScriptedModel(below, info=ModelInfo("scripted:clerk"))
        clerk = Agent(model, name="clerk", tools=[look], clock=clock)
        tools = [clerk.as_tool()]
        return Agent(ScriptedModel(above), tools=tools, journal=tree.journal, clock=clock)

    running = asyncio.create_task(make_boss([DELEGATE], [slow]).run("Go.", session=SESSION))
    await asyncio.sleep(1)
    await tree.journal.post_mail(SESSION, PauseMail(run=1, reason="lunch"), by="ann")
    result = await running
    assert result.outcome == "paused"
    for session in (SESSION, BELOW):
        (paused,) = await tree.facts(session, RunPaused)
        assert (paused.reason, paused.by) == ("lunch", "ann")
        assert len(await tree.facts(session, RunReleased)) == 1
        assert fold(session, await tree.journal.read(session)).is_paused
    assert not await tree.journal.list_abandoned()
    result = await make_boss(["Done."], ["Seen."]).resume(SESSION)
    assert result.completed
    for session in (SESSION, BELOW):
        assert len(await tree.facts(session, RunContinued)) == 1
    assert len(await tree.facts(BELOW, AttemptStarted)) == 2


@pytest.mark.contract("D5", "D13")
@pytest.mark.parametrize("mail", ["answer", "steer"])
async def test_a_driver_that_takes_mail_starts_no_call_of_a_paused_tree(
    clock: VirtualClock, mail: str
) -> None:
    """The answer is handed down all the same, and counts once the run is resumed."""
    tree = Tree(clock)
    running = asyncio.create_task(
        tree.boss([DELEGATE], [[pause(5), *SEND]]).run("Go.", session=SESSION)
    )
    await asyncio.sleep(1)
    await tree.journal.post_mail(SESSION, PauseMail(run=1, reason="lunch"), by="ann")
    result = await running
    (question,) = result.questions
    assert result.outcome == "paused"
    if mail == "answer":
        await answer(tree.journal, SESSION, question.call_id, Allow(), digest=question.digest)
    else:
        await tree.journal.post_mail(SESSION, SteerMail(run=1, prompt=(TextPart("Be quick."),)))
    before = await tree.journal.read(SESSION)
    swept = await tree.boss([], []).drive(SESSION)
    assert (swept is not None, swept and swept.outcome) == (True, "paused")
    taken = (await tree.journal.read(SESSION))[len(before) :]
    assert [type(fact) for fact in taken] == [
        RunResumed,
        AnswerForwarded if mail == "answer" else SteeringGiven,
        RunReleased,
    ]
    result = await tree.boss(["Done."], ["Sent."]).resume(SESSION)
    if mail == "steer":
        (question,) = result.questions
        await answer(tree.journal, SESSION, question.call_id, Allow(), digest=question.digest)
        result = await tree.boss(["Done."], ["Sent."]).resume(SESSION)
    assert (result.outcome, sent) == ("completed", ["ann"])


PRICED = ModelInfo("scripted:model", output_max=100, price=Price(Decimal(1000), Decimal(1000)))


@pytest.mark.contract("D6")
async def test_a_run_without_money_pauses_and_goes_on_with_more(clock: VirtualClock) -> None:
    """No request that is on record is made again, and the raised limit survives the process."""
    journal = MemoryJournal(now=clock.now)

    def make_agent(*replies: Any) -> Agent[str]:
        return Agent(
            ScriptedModel(replies, info=PRICED),
            tools=[send],
            limits=Limits(usd="1"),
            rules=LoopPolicy(on_budget="pause"),
            journal=journal,
            clock=clock,
        )

    first = make_agent([usage(input=400, output=90), call("send", {"to": "ann"})])
    result = await first.run("Go.", session=SESSION)
    assert (result.outcome, sent) == ("paused", ["ann"])
    (paused,) = [fact for fact in await journal.read(SESSION) if isinstance(fact, RunPaused)]
    assert paused.cause == "budget"
    assert paused.needed is not None
    await journal.post_mail(SESSION, RaiseLimitsMail(run=1, limits=RaisedLimits(usd=5)))
    result = await make_agent("Done.").resume(SESSION)
    assert (result.outcome, result.model_calls, sent) == ("completed", 2, ["ann"])


@pytest.mark.contract("D6", "B2")
async def test_raising_the_limit_at_the_top_reaches_those_below(clock: VirtualClock) -> None:
    journal = MemoryJournal(now=clock.now)

    def make_boss(above: list[Any], below: list[Any]) -> Agent[str]:
        rules = LoopPolicy(on_budget="pause")
        info = ModelInfo("scripted:clerk", output_max=100, price=PRICED.price)
        model = ScriptedModel(below, info=info)
        clerk = Agent(model, name="clerk", tools=[send], rules=rules, clock=clock)
        return Agent(
            ScriptedModel(above, info=PRICED),
            tools=[clerk.as_tool()],
            limits=Limits(usd="2"),
            rules=rules,
            journal=journal,
            clock=clock,
        )

    above = [[usage(input=100, output=50), *DELEGATE]]
    below = [[usage(input=900, output=90), call("send", {"to": "ann"})]]
    result = await make_boss(above, below).run("Go.", session=SESSION)
    assert (result.outcome, result.questions) == ("suspended", ())
    assert fold(BELOW, await journal.read(BELOW)).is_paused
    assert not await journal.list_abandoned()
    await journal.post_mail(SESSION, RaiseLimitsMail(run=1, limits=RaisedLimits(usd=20)))
    result = await make_boss(["Done."], ["Sent."]).resume(SESSION)
    assert (result.outcome, sent) == ("completed", ["ann"])
    end = (await journal.read(BELOW))[-1]
    assert isinstance(end, RunEnded)
    assert end.outcome == "completed"


@pytest.mark.contract("D6", "B2")
async def test_raised_limits_reach_live_sub_agents_at_once(clock: VirtualClock) -> None:
    """Two share what was raised: neither pauses, and together they cannot spend more than it."""
    journal = MemoryJournal(now=clock.now)
    rules = LoopPolicy(on_budget="pause")

    def make_helper(name: str, own: str | None) -> Agent[str]:
        info = ModelInfo(f"scripted:{name}", output_max=100, price=PRICED.price)
        script = [[pause(10), usage(input=900, output=90), call("send", {"to": name})], "Sent."]
        limits = Limits(usd=own)
        model = ScriptedModel(script, info=info)
        return Agent(model, name=name, tools=[send], rules=rules, limits=limits, clock=clock)

    helpers = [make_helper("ann", None), make_helper("bob", "3")]
    calls = [call(name, {"task": "Send."}) for name in ("ann", "bob")]
    boss = Agent(
        ScriptedModel([[usage(input=100, output=50), *calls], "Done."], info=PRICED),
        tools=[helper.as_tool() for helper in helpers],
        limits=Limits(usd="3"),
        rules=rules,
        journal=journal,
        clock=clock,
    )
    running = asyncio.create_task(boss.run("Go.", session=SESSION))
    await asyncio.sleep(5)
    await windlass.raise_limits(journal, SESSION, RaisedLimits(usd=10), by="eve")
    await asyncio.sleep(1)
    raised = [
        (fact.limits.usd, fact.by)
        for session in ("s/c1_0", "s/c1_1")
        for fact in await journal.read(session)
        if isinstance(fact, LimitsRaised)
    ]
    # 10 less what was spent before the two began, in two parts; bob has a limit of his own.
    assert raised == [(Decimal("4.925"), "eve"), (Decimal(3), "eve")]
    assert (await running).completed
    assert sorted(sent) == ["ann", "bob"]
    facts = [fact for session in ("s/c1_0", "s/c1_1") for fact in await journal.read(session)]
    assert not [fact for fact in facts if isinstance(fact, RunPaused)]


@pytest.mark.contract("C6", "D13")
async def test_a_denial_from_above_reaches_the_model_below(clock: VirtualClock) -> None:
    tree = Tree(clock)
    (question,) = (await tree.boss([DELEGATE], [SEND]).run("Go.", session=SESSION)).questions
    boss = tree.boss(["Done."], ["I may not."])
    result = await boss.answer(SESSION, question.call_id, Deny("no"), digest=question.digest)
    assert (result.completed, sent) == (True, [])


@pytest.mark.contract("D3", "C6")
async def test_a_tree_that_nobody_drives_is_cancelled_with_the_journal_alone(
    clock: VirtualClock,
) -> None:
    tree = Tree(clock, depth=2)
    await tree.boss([DELEGATE], [DELEGATE_DEEP], [SEND]).run("Go.", session=SESSION)
    await tree.journal.post_mail(SESSION, ContinueMail(run=7))
    await windlass.cancel(tree.journal, SESSION, by="ann")
    for session in (SESSION, BELOW, "s/c1_0/c1_0"):
        end = (await tree.journal.read(session))[-1]
        assert isinstance(end, RunEnded)
        assert (end.outcome, end.by) == ("cancelled", "ann")
    (refused,) = await tree.facts(SESSION, MailRefused)
    assert (refused.mail, refused.kind) == (1, "resume")
    assert not await tree.journal.list_mailed()
    assert not await tree.journal.list_abandoned()
    with pytest.raises(NothingToDo):
        await windlass.cancel(tree.journal, SESSION)


@pytest.mark.contract("D3", "C6")
@pytest.mark.parametrize("way", ["cancel", "abandon"])
async def test_a_sub_agent_that_is_driven_by_itself_is_reached_too(
    clock: VirtualClock, way: str
) -> None:
    """D3: its root is free and ends at once; whoever drives the sub-agent is told to end it."""
    tree = Tree(clock)
    await tree.boss([DELEGATE], [SEND]).run("Go.", session=SESSION)

    async def think(_question: Question) -> bool:
        await asyncio.sleep(60)
        return False

    person = Agent(
        ScriptedModel([], info=ModelInfo("scripted:clerk")),
        name="clerk",
        tools=[send],
        gate=tree.gate,
        approver=think,
        journal=tree.journal,
        clock=clock,
    )
    running = asyncio.create_task(person.resume(BELOW, consent=True))
    await asyncio.sleep(1)
    assert await tree.journal.is_leased(BELOW)
    if way == "cancel":
        end = await (await windlass.cancel(tree.journal, SESSION, by="ann")).taken()
        assert isinstance(end, RunEnded)
    else:
        result = await tree.boss([], []).abandon(SESSION)
        assert result.outcome == "cancelled"
    assert (await running).outcome == "cancelled"
    (below,) = await tree.facts(BELOW, RunEnded)
    assert below.reason == "the run that it works for has ended"
    assert not await tree.journal.list_abandoned()


@pytest.mark.contract("C6", "D3")
@pytest.mark.parametrize("way", ["sweep", "worker"])
async def test_a_sub_agent_whose_driver_died_before_it_took_the_cancel_is_ended(
    clock: VirtualClock, way: str
) -> None:
    """The message to end waits for it, but no run comes for it any more: others have to."""
    tree = Tree(clock)
    boss = tree.boss([DELEGATE], [SEND])
    await boss.run("Go.", session=SESSION)
    worker = SessionWorker([boss])

    async def look_for_work() -> None:
        if way == "sweep":
            await boss.sweep()
            return
        await worker.look()
        await asyncio.sleep(5)

    busy = await tree.journal.lease(BELOW)
    await windlass.cancel(tree.journal, SESSION, by="ann")
    await look_for_work()
    assert fold(BELOW, await tree.journal.read(BELOW)).is_active
    busy.release()
    await look_for_work()
    (end,) = await tree.facts(BELOW, RunEnded)
    assert (end.outcome, end.reason) == ("cancelled", "the run that it works for has ended")
    assert not await tree.journal.list_mailed()
    await tree.journal.post_mail(BELOW, ContinueMail(run=1))
    await look_for_work()
    assert (await tree.facts(BELOW, MailRefused))[-1].kind == "resume"
    assert not await tree.journal.list_mailed()
    await worker.stop()


@pytest.mark.contract("D3")
async def test_a_sweep_leaves_a_sub_agent_alone_that_its_caller_will_come_for(
    clock: VirtualClock,
) -> None:
    tree = Tree(clock)
    boss = tree.boss([DELEGATE], [SEND])
    await boss.run("Go.", session=SESSION)
    await tree.journal.post_mail(BELOW, ContinueMail(run=1))
    await boss.sweep()
    assert fold(BELOW, await tree.journal.read(BELOW)).is_active
    assert not await tree.facts(BELOW, MailRefused)


@pytest.mark.contract("C6", "D3")
@pytest.mark.parametrize("moment", ["before the call ran again", "while it waits"])
async def test_a_cancel_ends_a_sub_agent_that_nobody_drives(
    clock: VirtualClock, moment: str
) -> None:
    """C6: the sub-agent is open from an earlier process, or waits; what it cost is not lost."""
    tree = Tree(clock)
    spent = usage(input=40, output=2)
    slow = Agent(
        ScriptedModel([[pause(1000), say("Slept.")]], info=ModelInfo("scripted:slow")),
        name="slow",
        clock=clock,
    )
    clerk_model = ScriptedModel([[spent, *SEND]], info=ModelInfo("scripted:clerk"))
    clerk = Agent(clerk_model, name="clerk", tools=[send], gate=tree.gate, clock=clock)
    script = [[*DELEGATE, call("slow", {"task": "Sleep."})]]
    boss = Agent(
        ScriptedModel(script),
        tools=[clerk.as_tool(), slow.as_tool()],
        journal=tree.journal,
        clock=clock,
    )
    running = asyncio.create_task(boss.run("Go.", session=SESSION))
    await asyncio.sleep(10)
    if moment == "while it waits":
        boss.cancel(SESSION)
        await running
    else:
        boss.release(SESSION, grace_s=0.0)
        await running
        boss.release(SESSION)
        resumed = asyncio.create_task(boss.resume(SESSION))
        await asyncio.sleep(0)
        boss.cancel(SESSION)
        await resumed
    await asyncio.sleep(1)
    for session in (SESSION, BELOW, "s/c1_1"):
        (end,) = await tree.facts(session, RunEnded)
        assert end.outcome == "cancelled"
    state = fold(SESSION, await tree.journal.read(SESSION))
    assert state.run is not None
    below = [one for one in state.run.ledger.charges if one.purpose == "subagent"]
    assert (
        sum(one.usage.total for one in below if one.usage and one.model == "scripted:clerk") == 42
    )


class UnprovenJournal(MemoryJournal):
    """A journal with keys, in which nothing is signed."""

    @override
    async def find_proven(self, session: str) -> ProvenAnswers:
        return ProvenAnswers(frozenset(), ())


@pytest.mark.contract("C6", "D3", "M1")
async def test_a_cancel_ends_a_sub_agent_whose_call_has_to_be_judged_again(
    clock: VirtualClock,
) -> None:
    """C6: its driver does not believe that the call was allowed, and ends before it judges it."""
    tree = Tree(clock)
    tree.journal = UnprovenJournal(now=clock.now)
    spent = usage(input=40, output=2)
    result = await tree.boss([DELEGATE], [[spent, *SEND]]).run("Go.", session=SESSION)
    assert result.outcome == "suspended"
    await tree.journal.post_mail(SESSION, CancelMail(run=1, reason="too late"), by="ann")
    result = await tree.boss([], []).resume(SESSION)
    (resumed,) = await tree.facts(SESSION, RunResumed)
    assert (result.outcome, resumed.doubted) == ("cancelled", ("c1_0",))
    (end,) = await tree.facts(BELOW, RunEnded)
    assert end.outcome == "cancelled"
    below = [one.usage for one in result.ledger.charges if one.purpose == "subagent"]
    assert [one.total for one in below if one] == [42]


@pytest.mark.contract("D3")
async def test_a_run_that_is_driven_is_cancelled_with_the_journal_alone(
    clock: VirtualClock,
) -> None:
    journal = MemoryJournal(now=clock.now)
    agent = Agent(ScriptedModel([[say("Half "), pause(60)]]), journal=journal, clock=clock)
    running = asyncio.create_task(agent.run("Go.", session=SESSION))
    await asyncio.sleep(1)
    await windlass.cancel(journal, SESSION, "enough")
    result = await running
    assert (result.outcome, result.reason, result.partial_text) == ("cancelled", "enough", "Half ")


@pytest.mark.contract("M1", "B2")
async def test_a_sub_agent_ends_with_its_call_when_that_is_judged_again_and_denied(
    clock: VirtualClock,
) -> None:
    """M1: no session is left open that works for nothing, and what it cost is on record."""
    tree = Tree(clock)
    tree.journal = UnprovenJournal(now=clock.now)
    spent = usage(input=40, output=2)
    result = await tree.boss([DELEGATE], [[spent, *SEND]]).run("Go.", session=SESSION)
    assert result.outcome == "suspended"
    stricter = tree.boss(["Then not."], [], gate=FixedGate(Deny("not any more")))
    result = await stricter.resume(SESSION, consent=True)
    assert result.text == "Then not."
    (end,) = await tree.facts(BELOW, RunEnded)
    assert (end.outcome, sent) == ("cancelled", [])
    below = [one.usage for one in result.ledger.charges if one.purpose == "subagent"]
    assert [one.total for one in below if one] == [42]
