"""Questions and their answers: by a callback, by another process, for the session, and in time."""

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from windlass import (
    Agent,
    Allow,
    AllowAlways,
    Ask,
    ConfigError,
    Deny,
    Limits,
    Modify,
    NothingToDo,
    Question,
    answer,
    tool,
)
from windlass.core.events import CallAnswered, CallJudged, CallStarted
from windlass.gates.presets import allow_all, ask, read_only
from windlass.gates.rules import Rule, RuleGate
from windlass.journals.memory import MemoryJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.ports import Gate
from windlass.testing import FixedGate, ScriptedModel, VirtualClock, call

sent: list[str] = []


@tool
def send(to: str) -> str:
    """Send something."""
    sent.append(to)
    return f"sent to {to}"


@tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"


@pytest.fixture(autouse=True)
def _forget() -> None:
    sent.clear()


def three_letters() -> ScriptedModel:
    return ScriptedModel([[call("send", {"to": one})] for one in ("ann", "bob", "ann")] + ["Done."])


async def test_an_approver_is_asked_and_the_run_goes_on(clock: VirtualClock) -> None:
    """G5, G6: with an approver and no gate, what changes something is asked about."""
    asked: list[Question] = []

    async def approver(question: Question) -> Allow | Deny:
        asked.append(question)
        await asyncio.sleep(3_600)
        return Allow() if question.arguments["to"] == "ann" else Deny("not to him")

    script = [[call("look", {}), call("send", {"to": "ann"}), call("send", {"to": "bob"})], "Done."]
    agent = Agent(ScriptedModel(script), tools=[send, look], approver=approver, clock=clock)
    result = await agent.run("Write to them.")
    assert (result.outcome, result.gated) == ("completed", True)
    assert sent == ["ann"]
    assert [one.tool for one in asked] == ["send", "send"]
    assert result.duration_s < 1, "the run's clock stands still while a person thinks"
    assert clock.elapsed_s >= 3_600


async def test_an_approver_that_breaks_has_said_no(clock: VirtualClock) -> None:
    """G1: no answer, or an exception, is a no."""

    async def broken(question: Question) -> Allow:
        raise OSError(question.digest)

    async def nonsense(question: Question) -> Allow:
        return "yes"  # type: ignore[return-value]

    async def for_everything(question: Question) -> AllowAlways:
        return AllowAlways("bash(rm *)")

    for approver in (broken, nonsense, for_everything):
        model = ScriptedModel([[call("send", {"to": "ann"})], "I may not."])
        agent = Agent(model, tools=[send], approver=approver, clock=clock)
        assert (await agent.run("Write.")).completed
    assert sent == []


@pytest.mark.contract("G5")
@pytest.mark.realtime
async def test_an_approver_that_is_not_async_is_asked_one_question_after_the_other() -> None:
    """Two threads at one terminal would mix their lines. An async one may be asked all at once."""
    asked = list[str]()

    def ask_person(question: Question) -> bool:
        asked.append(f"begin {question.call_id}")
        time.sleep(0.05)
        asked.append(f"end {question.call_id}")
        return True

    calls = [call("send", {"to": name}) for name in ("ada", "bob", "eve")]
    agent = Agent(ScriptedModel([calls, "Sent."]), tools=[send], approver=ask_person)
    assert (await agent.run("Go.")).outcome == "completed"
    pairs = list(zip(asked[::2], asked[1::2], strict=True))
    assert len(pairs) == 3
    assert all(end == begin.replace("begin", "end") for begin, end in pairs)


@pytest.mark.contract("A3")
@pytest.mark.realtime
def test_an_approver_that_waits_for_ever_does_not_keep_the_program_from_ending() -> None:
    """As `input` does while nobody types: a service must still end when it is told to."""
    is_asked = threading.Event()
    is_over = threading.Event()

    def wait_for_ever(_: Question) -> bool:
        is_asked.set()
        return is_over.wait()

    async def main() -> None:
        agent = Agent(
            ScriptedModel([call("send", {"to": "ada"})]), tools=[send], approver=wait_for_ever
        )
        running = asyncio.create_task(agent.run("Go."))
        await asyncio.to_thread(is_asked.wait)
        running.cancel()

    program = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    program.start()
    program.join(10)
    has_ended = not program.is_alive()
    is_over.set()
    assert has_ended


async def test_an_approver_may_leave_it_open(clock: VirtualClock) -> None:
    """G6: no answer yet suspends the run durably; the answers that came are kept."""

    async def approver(question: Question) -> Allow | None:
        return Allow() if question.arguments["to"] == "ann" else None

    journal = MemoryJournal()
    script = [[call("send", {"to": "bob"}), call("send", {"to": "ann"})], "Done."]
    agent = Agent(
        ScriptedModel(script), tools=[send], approver=approver, journal=journal, clock=clock
    )
    result = await agent.run("Write.", session="s")
    assert result.outcome == "suspended"
    assert [one.arguments for one in result.questions] == [{"to": "bob"}]
    assert sent == []
    (left,) = result.questions
    result = await agent.answer("s", left.call_id, Allow(), digest=left.digest, by="ann")
    assert (result.outcome, sent) == ("completed", ["bob", "ann"])


async def test_a_cancel_reaches_a_run_whose_approver_thinks(clock: VirtualClock) -> None:
    """C1."""

    async def approver(question: Question) -> None:
        await asyncio.sleep(86_400)

    model = ScriptedModel([[call("send", {"to": "ann"})]])
    agent = Agent(model, tools=[send], approver=approver, clock=clock)
    run = asyncio.create_task(agent.run("Write.", session="s"))
    await asyncio.sleep(5)
    agent.cancel("s")
    result = await run
    assert (result.outcome, sent) == ("cancelled", [])
    assert clock.elapsed_s < 5.1


async def test_always_is_for_the_session_and_for_what_it_says(clock: VirtualClock) -> None:
    """G6: "always allow this" adds a rule for the session, and no other session has it."""
    journal = MemoryJournal()
    agent = Agent(three_letters(), tools=[send], gate=ask(), journal=journal, clock=clock)
    result = await agent.run("Write.", session="s")
    result = await agent.answer("s", result.questions[0].call_id, AllowAlways(), by="ann")
    assert [one.arguments for one in result.questions] == [{"to": "bob"}], "ann was for ann alone"
    result = await agent.answer("s", result.questions[0].call_id, Allow())
    assert result.completed, "the third letter goes to ann again"
    facts = await journal.read("s")
    verdicts = [type(fact.verdict) for fact in facts if isinstance(fact, CallJudged)]
    assert verdicts == [Ask, Ask, Allow]
    assert len([fact for fact in facts if isinstance(fact, CallAnswered)]) == 2
    other = Agent(three_letters(), tools=[send], gate=ask(), journal=journal, clock=clock)
    assert (await other.run("Write.", session="t")).outcome == "suspended"


async def test_always_may_hold_for_a_pattern(clock: VirtualClock) -> None:
    journal = MemoryJournal()
    agent = Agent(three_letters(), tools=[send], gate=ask(), journal=journal, clock=clock)
    result = await agent.run("Write.", session="s")
    call_id = result.questions[0].call_id
    with pytest.raises(ConfigError):
        await agent.answer("s", call_id, AllowAlways("send(bob)"))
    with pytest.raises(ConfigError):
        await agent.answer("s", call_id, AllowAlways("send(("))
    result = await agent.answer("s", call_id, AllowAlways("send(*)"))
    assert (result.completed, sent) == (True, ["ann", "bob", "ann"])


async def test_always_never_lifts_a_denial(clock: VirtualClock) -> None:
    rules = [Rule("deny", "send(bob)"), Rule("ask", "send")]
    agent = Agent(three_letters(), tools=[send], gate=RuleGate(rules), clock=clock)
    result = await agent.run("Write.", session="s")
    result = await agent.answer("s", result.questions[0].call_id, AllowAlways("send(*)"))
    assert (result.completed, sent) == (True, ["ann", "ann"])


async def test_an_answer_is_for_the_arguments_that_were_shown(clock: VirtualClock) -> None:
    """G6: bound to the digest of the exact arguments."""
    agent = Agent(three_letters(), tools=[send], gate=ask(), clock=clock)
    result = await agent.run("Write.", session="s")
    (question,) = result.questions
    with pytest.raises(ConfigError, match="other arguments"):
        await agent.answer("s", question.call_id, Allow(), digest="forged")
    assert sent == []
    result = await agent.answer("s", question.call_id, Allow(), digest=question.digest)
    assert sent == ["ann"]


async def test_a_question_may_be_about_other_arguments(clock: VirtualClock) -> None:
    """G2, G6: what a gate would change, a person is asked about as changed."""
    gate = FixedGate(Ask("May I?", arguments={"to": "the team"}))
    model = ScriptedModel([[call("send", {"to": "ann"})], "Done."])
    agent = Agent(model, tools=[send], gate=gate, clock=clock)
    result = await agent.run("Write.", session="s")
    (question,) = result.questions
    assert question.arguments == {"to": "the team"}
    await agent.answer("s", question.call_id, Allow(), digest=question.digest)
    assert sent == ["the team"]


async def test_what_nobody_answered_in_time_is_denied(clock: VirtualClock) -> None:
    """G6: expiry denies, whoever comes after it."""
    gate = FixedGate(lambda _: Ask("May I?", expires_at=clock.now() + 60))
    model = ScriptedModel([[call("send", {"to": "ann"})], "I may not."])
    agent = Agent(model, tools=[send], gate=gate, clock=clock)
    result = await agent.run("Write.", session="s")
    assert result.outcome == "suspended"
    await asyncio.sleep(61)
    result = await agent.resume("s")
    assert (result.completed, sent) == (True, [])


async def test_an_approver_has_only_so_long(clock: VirtualClock) -> None:
    """G6."""

    async def approver(question: Question) -> Allow:
        await asyncio.sleep(100)
        return Allow()

    gate = FixedGate(lambda _: Ask("May I?", expires_at=clock.now() + 60))
    model = ScriptedModel([[call("send", {"to": "ann"})], "I may not."])
    agent = Agent(model, tools=[send], gate=gate, approver=approver, clock=clock)
    assert (await agent.run("Write.")).completed
    assert (sent, round(clock.elapsed_s)) == ([], 60)


async def test_the_journal_alone_is_enough_to_answer(clock: VirtualClock) -> None:
    """G6: any process with the journal can answer; the call runs once, when the run goes on."""
    journal = MemoryJournal()
    script = [[call("send", {"to": "bob"}), call("send", {"to": "ann"})], "Done."]
    agent = Agent(ScriptedModel(script), tools=[send], gate=ask(), journal=journal, clock=clock)
    first, second = (await agent.run("Write.", session="s")).questions
    left = await answer(journal, "s", first.call_id, Deny("no"), by="ann")
    assert [one.call_id for one in left] == [second.call_id]
    assert await answer(journal, "s", second.call_id, Allow(), digest=second.digest) == ()
    assert sent == []
    with pytest.raises(NothingToDo):
        await answer(journal, "s", second.call_id, Allow())
    result = await agent.resume("s")
    assert (result.completed, sent) == (True, ["ann"])


@pytest.mark.contract("D3", "L14")
async def test_a_run_that_is_driven_is_answered_by_mail(clock: VirtualClock) -> None:
    """The driver alone writes."""

    async def approver(question: Question) -> Allow:
        await asyncio.sleep(1000)
        return Allow()

    journal = MemoryJournal(now=clock.now)
    model = ScriptedModel([[call("send", {"to": "ann"})], "Done."])
    agent = Agent(model, tools=[send], approver=approver, journal=journal, clock=clock)
    run = asyncio.create_task(agent.run("Write.", session="s"))
    await asyncio.sleep(5)
    assert await answer(journal, "s", "c1_0", Allow(), by="ben") == ()
    assert (await run).completed
    assert (sent, clock.elapsed_s < 10) == (["ann"], True)


async def test_a_person_may_change_the_arguments(clock: VirtualClock) -> None:
    agent = Agent(three_letters(), tools=[send], gate=ask(), clock=clock)
    result = await agent.run("Write.", session="s")
    call_id = result.questions[0].call_id
    with pytest.raises(ConfigError, match="do not fit"):
        await agent.answer("s", call_id, Modify({"to": 7}, "?"))
    await agent.answer("s", call_id, Modify({"to": "carl"}, "to carl instead"))
    assert sent == ["carl"]


ANSWERING = """
import asyncio, sys
from windlass import Allow, answer
from windlass.journals.sqlite.journal import SqliteJournal

async def main():
    journal = SqliteJournal(sys.argv[1])
    await answer(journal, "s", sys.argv[2], Allow(), digest=sys.argv[3], by="another process")
    journal.close()

asyncio.run(main())
"""


@pytest.mark.realtime
@pytest.mark.slow
async def test_another_process_answers_and_the_call_runs_once(tmp_path: Path) -> None:
    """G6, J2: the process that asked is gone; the answer lands once, and so does the effect."""
    path = tmp_path / "journal.db"
    with SqliteJournal(path) as journal:
        agent = Agent(three_letters(), tools=[send], gate=ask(), journal=journal)
        (question,) = (await agent.run("Write.", session="s")).questions
    asked = [str(path), question.call_id, question.digest]
    program = [sys.executable, "-c", ANSWERING, *asked]
    assert (await asyncio.to_thread(subprocess.run, program, check=False)).returncode == 0
    again = await asyncio.to_thread(subprocess.run, program, check=False, capture_output=True)
    assert (
        b"QuestionDecided: the question about call c1_0 is closed: the call was allowed by "
        in again.stderr
    )
    with SqliteJournal(path) as journal:
        model = ScriptedModel([[call("send", {"to": "bob"})]])
        agent = Agent(model, tools=[send], gate=ask(), journal=journal)
        result = await agent.resume("s")
        assert (result.outcome, sent) == ("suspended", ["ann"])
        starts = [fact for fact in await journal.read("s") if isinstance(fact, CallStarted)]
        assert len(starts) == 1


@pytest.mark.contract("D4", "G6")
async def test_the_answer_of_an_approver_is_mail_like_any_other(clock: VirtualClock) -> None:
    """D4: the store decides between it and those that come from elsewhere."""
    journal = MemoryJournal(now=clock.now)

    async def approve(question: Question) -> Deny:
        await answer(journal, "s", question.call_id, Allow(), by="ann")
        return Deny("rather not")

    model = ScriptedModel([[call("send", {"to": "bob"})], "Done."])
    agent = Agent(model, tools=[send], gate=ask(), approver=approve, journal=journal, clock=clock)
    assert (await agent.run("Write.", session="s")).completed
    (fact,) = [fact for fact in await journal.read("s") if isinstance(fact, CallAnswered)]
    assert (fact.by, fact.mail, type(fact.verdict)) == ("ann", 1, Allow)
    alone = Agent(
        ScriptedModel([[call("send", {"to": "bob"})], "Done."]),
        tools=[send],
        gate=ask(),
        approver=lambda _: Allow(),
        journal=journal,
        clock=clock,
    )
    assert (await alone.run("Write.", session="t")).completed
    (fact,) = [fact for fact in await journal.read("t") if isinstance(fact, CallAnswered)]
    assert (fact.by, fact.mail) == ("approver", 1)


@pytest.mark.contract("G6")
@pytest.mark.parametrize("gate", [None, allow_all()], ids=["no gate", "allow_all"])
async def test_a_tool_that_asks_is_asked_about_whatever_the_gate_allows(gate: Gate | None) -> None:
    sent: list[str] = []

    @tool(ask=True, question="Send it to {to}?")
    def send(to: str) -> str:
        sent.append(to)
        return "sent"

    @tool
    def note(text: str) -> str:
        return text

    calls = [call("note", {"text": "a"}), call("send", {"to": "ann"})]
    again = [call("send", {"to": "ann"}), call("send", {"to": "bob"})]
    with ScriptedModel([calls, again, "Done."]) as model:
        agent = Agent(model, tools=[send, note], gate=gate, limits=Limits(usd=1))
        result = await agent.run("Go.", session="s")
        [question] = result.questions
        assert (question.tool, question.question, sent) == ("send", "Send it to ann?", [])
        # What a person allows for the rest of the session is not asked again.
        result = await agent.answer("s", question.call_id, AllowAlways("send(*)"))
    assert (result.outcome, sent, result.cost) == ("completed", ["ann", "ann", "bob"], 0)


async def test_a_tool_that_asks_lifts_no_denial() -> None:
    @tool(ask=True)
    def send(to: str) -> str:
        return "sent"

    with ScriptedModel([call("send", {"to": "ann"}), "Done."]) as model:
        result = await Agent(model, tools=[send], gate=read_only()).run("Go.")
    assert (result.outcome, result.questions) == ("completed", ())
