"""Undo: the effects of a run are taken back by a run of its own, the last one first."""

import asyncio
import shutil
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec.structs import replace
from typing_extensions import override

from windlass import Agent, Limits, LoopPolicy, NothingToDo, RunFailed, RunUnfinished, tool
from windlass.core.errors import ConfigError, QuestionDecided
from windlass.core.events import (
    CallAnswered,
    CallFinished,
    CallStarted,
    Fact,
    RunEnded,
    RunStarted,
    StepProposed,
    UndoPlanned,
)
from windlass.core.fold.run import fold
from windlass.core.messages import UserMessage
from windlass.core.session_summary import SessionSummary
from windlass.core.verdicts import Allow, Ask, Deny
from windlass.gates import ask
from windlass.journals import SqliteJournal, fork
from windlass.journals.memory import MemoryJournal
from windlass.testing import ScriptedModel, call
from windlass.testing.faults import PowerCut, PowerCutJournal
from windlass.testing.gates import FixedGate
from windlass.testing.journals import append_facts
from windlass.tools import RunContext, Toolbox, Workspace, file_tools


class Hotel:
    """A service with rooms that can be booked and given back."""

    def __init__(self) -> None:
        self.booked: list[str] = []
        self.log: list[str] = []

    def tools(self, **traits: object) -> Toolbox:
        def give_back(context: RunContext, room: str) -> str:
            undone = context.undoes
            assert undone is not None
            self.log.append(f"{room}: {undone.kind} {undone.result} {undone.snapshot}")
            self.booked.remove(room)
            return f"{room} is free"

        def remember(_context: RunContext, room: str) -> str:
            return f"before {room}: {len(self.booked)}"

        @tool(undo=give_back, snapshot=remember, **traits)  # type: ignore[call-overload]
        def book(room: str) -> str:
            """Book a room."""
            self.booked.append(room)
            return f"booking of {room}"

        @tool
        def shout(word: str) -> str:
            """Say a word, which cannot be taken back."""
            return word

        return Toolbox([book, shout])


BOOKINGS = [call("book", {"room": "a"}), call("book", {"room": "b"}), "Booked."]


@pytest.mark.contract("T2")
async def test_calls_are_undone_in_reverse_order_with_what_is_known_of_them() -> None:
    hotel = Hotel()
    agent = Agent(ScriptedModel(BOOKINGS), tools=hotel.tools(), journal=MemoryJournal())
    await agent.run("Book.", session="s")
    result = await agent.undo("s")
    assert result.completed
    assert result.model_calls == 0
    assert hotel.booked == []
    assert hotel.log == ["b: value booking of b before b: 1", "a: value booking of a before a: 0"]
    assert "c2_0 (undo_book): undone. b is free" in result.text


async def test_each_undo_goes_one_run_further_back_and_nothing_is_undone_twice() -> None:
    hotel = Hotel()
    script = [call("book", {"room": "a"}), "One.", call("book", {"room": "b"}), "Two."]
    agent = Agent(ScriptedModel(script), tools=hotel.tools(), journal=MemoryJournal())
    await agent.run("First.", session="s")
    await agent.run("Second.", session="s")
    await agent.undo("s")
    assert hotel.booked == ["a"]
    await agent.undo("s")
    assert hotel.booked == []
    with pytest.raises(NothingToDo, match="no run with calls that can be undone"):
        await agent.undo("s")


async def test_a_run_can_be_named_and_the_others_stay() -> None:
    hotel = Hotel()
    script = [call("book", {"room": "a"}), "One.", call("book", {"room": "b"}), "Two."]
    agent = Agent(ScriptedModel(script), tools=hotel.tools(), journal=MemoryJournal())
    await agent.run("First.", session="s")
    await agent.run("Second.", session="s")
    await agent.undo("s", run=1)
    assert hotel.booked == ["b"]
    with pytest.raises(NothingToDo, match="no run 9"):
        await agent.undo("s", run=9)


async def test_the_model_is_told_what_was_undone_and_what_could_not_be() -> None:
    hotel = Hotel()
    script = [call("shout", {"word": "hey"}), call("book", {"room": "a"}), "Done.", "I see."]
    model = ScriptedModel(script)
    agent = Agent(model, tools=hotel.tools(), journal=MemoryJournal())
    await agent.run("Go.", session="s")
    await agent.undo("s")
    await agent.run("And now?", session="s")
    said = [
        message.text for message in model.prompts[-1].messages if isinstance(message, UserMessage)
    ]
    assert "Undo what run 1 did. What shout did cannot be undone." in said
    assert any("These calls were undone, the last one first" in text for text in said)


async def test_a_call_that_failed_or_was_denied_has_nothing_to_undo() -> None:
    hotel = Hotel()
    gate = FixedGate(lambda _: Deny("no"))
    script = [call("book", {"room": "a"}), call("nothing", {}), "No."]
    agent = Agent(ScriptedModel(script), tools=hotel.tools(), gate=gate, journal=MemoryJournal())
    await agent.run("Go.", session="s")
    with pytest.raises(NothingToDo):
        await agent.undo("s")


@pytest.mark.contract("G1")
async def test_the_gate_judges_each_undo_and_a_question_waits_for_a_person() -> None:
    hotel = Hotel()
    judged: list[str] = []

    def judge(request: object) -> Allow | Ask:
        name = request.tool.name  # type: ignore[attr-defined]
        judged.append(name)
        return Ask("Take it back?") if name == "undo_book" else Allow()

    agent = Agent(
        ScriptedModel(BOOKINGS), tools=hotel.tools(), gate=FixedGate(judge), journal=MemoryJournal()
    )
    await agent.run("Book.", session="s")
    waiting = await agent.undo("s")
    assert judged[-2:] == ["undo_book", "undo_book"]
    assert waiting.outcome == "suspended"
    assert hotel.booked == ["a", "b"]
    with pytest.raises(RunUnfinished):
        await agent.run("More.", session="s")
    first, second = waiting.questions
    await agent.answer("s", first.call_id, Allow())
    result = await agent.answer("s", second.call_id, Allow())
    assert result.completed
    assert hotel.booked == []


async def test_a_model_is_never_offered_the_tools_that_undo() -> None:
    hotel = Hotel()
    model = ScriptedModel([call("undo_book", {"room": "a"}), "No."])
    agent = Agent(model, tools=hotel.tools(), journal=MemoryJournal())
    result = await agent.run("Go.", session="s")
    assert "undo_book" not in [spec.name for spec in model.prompts[0].tools]
    assert "There is no tool 'undo_book'" in str(result.messages)


async def test_what_cannot_be_undone_makes_the_run_fail_and_is_tried_again() -> None:
    hotel = Hotel()
    agent = Agent(ScriptedModel(BOOKINGS), tools=hotel.tools(), journal=MemoryJournal())
    await agent.run("Book.", session="s")
    hotel.booked = ["a"]
    with pytest.raises(RunFailed, match="1 of 2 calls could not be undone"):
        await agent.undo("s")
    hotel.booked = ["b"]
    assert (await agent.undo("s")).completed
    assert hotel.booked == []


# ── after a failure ──────────────────────────────────────────────────────────


async def test_a_run_that_fails_is_undone_if_its_rules_say_so() -> None:
    hotel = Hotel()
    script = [call("book", {"room": "a"}), call("book", {"room": "b"}), "Too late."]
    journal = MemoryJournal()
    agent = Agent(
        ScriptedModel(script[:2]),
        tools=hotel.tools(),
        journal=journal,
        limits=Limits(steps=2),
        rules=LoopPolicy(on_failure="undo"),
    )
    result = await agent.run("Book.", session="s")
    assert result.outcome == "max_steps"
    assert result.undo_due
    assert hotel.booked == []
    facts = await journal.read("s")
    ends = [fact for fact in facts if isinstance(fact, RunEnded)]
    assert [(end.outcome, end.undo) for end in ends] == [("max_steps", True), ("completed", False)]


async def test_a_completed_run_is_kept() -> None:
    hotel = Hotel()
    rules = LoopPolicy(on_failure="undo")
    agent = Agent(
        ScriptedModel(BOOKINGS), tools=hotel.tools(), journal=MemoryJournal(), rules=rules
    )
    result = await agent.run("Book.", session="s")
    assert not result.undo_due
    assert hotel.booked == ["a", "b"]


async def test_a_cancelled_run_is_undone_after_its_end() -> None:
    hotel = Hotel()
    journal = MemoryJournal()
    agent: Agent[str]

    @tool
    async def wait() -> str:
        """Wait for ever."""
        agent.cancel("s")
        await asyncio.sleep(3600)
        return "never"

    tools = Toolbox([*hotel.tools().tools[:1], wait])
    model = ScriptedModel([call("book", {"room": "a"}), call("wait", {})])
    agent = Agent(model, tools=tools, journal=journal, rules=LoopPolicy(on_failure="undo"))
    result = await agent.run("Go.", session="s")
    assert result.outcome == "cancelled"
    assert hotel.booked == []


@pytest.mark.contract("J4", "D8")
async def test_what_is_due_survives_a_death_between_the_two_runs() -> None:
    """The end of the run says that it is to be undone, so any driver that comes does it."""
    hotel = Hotel()
    rules = LoopPolicy(on_failure="undo")
    journal = MemoryJournal()
    agent = Agent(
        ScriptedModel(BOOKINGS[:2]),
        name="clerk",
        tools=hotel.tools(),
        journal=journal,
        limits=Limits(steps=2),
        rules=rules,
    )
    await agent.run("Book.", session="whole")
    whole = await journal.read("whole")
    ended = next(at for at, fact in enumerate(whole, 1) if isinstance(fact, RunEnded))
    hotel.booked = ["a", "b"]
    await append_facts(journal, "s", [_in_session("s", fact) for fact in whole[:ended]])
    assert {each.session: each.state for each in await journal.sessions()}["s"] == "open"
    with pytest.raises(RunUnfinished, match="to be undone first"):
        await agent.run("More.", session="s")
    report = await agent.sweep()
    assert report.driven == ("s",)
    assert hotel.booked == []
    assert {each.session: each.state for each in await journal.sessions()}["s"] == "completed"


def _in_session(session: str, fact: Fact) -> Fact:
    if isinstance(fact, CallStarted):
        return replace(fact, key=f"{session}/{fact.call_id}")
    return fact


@pytest.mark.contract("J2", "J4")
@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_at_any_record_files_are_restored_all_the_same(
    tmp_path: Path, when: Literal["before", "after"]
) -> None:
    """Also a write that ran again after a crash: its first snapshot counts."""
    folder = tmp_path / "work"
    for at in range(1, 16):
        folder.mkdir()
        (folder / "a.txt").write_text("before")
        journal = MemoryJournal()
        cut = PowerCutJournal(journal, at, when)
        steps = [write("a.txt", "after"), edit("a.txt", "after", "later"), "Done."]
        await _drive_until_undone(journal, cut, folder, steps)
        assert (folder / "a.txt").read_text() == "before", (at, when)
        shutil.rmtree(folder)


async def _drive_until_undone(
    journal: MemoryJournal, cut: PowerCutJournal, folder: Path, steps: list[Any]
) -> None:
    """Run and undo, the first time with a journal that dies, then with one that does not."""
    for store in (cut, journal, journal):
        said = sum(isinstance(fact, StepProposed) for fact in await journal.read("s"))
        agent = Agent(
            ScriptedModel(steps[said:]), tools=file_tools(Workspace(folder)), journal=store
        )
        with suppress(PowerCut, RunFailed):
            state = fold("s", await journal.read("s"))
            if state.is_active:
                await agent.resume("s")
            elif state.run is None:
                await agent.run("Go.", session="s")
            state = fold("s", await journal.read("s"))
            if state.run is not None and not state.run.is_undo:
                await agent.undo("s")


@pytest.mark.contract("J2")
async def test_an_undo_that_a_crash_interrupted_is_not_made_twice() -> None:
    """A plain function counts as a write: after a crash inside it, its outcome is unknown."""
    for at in range(1, 9):
        hotel = Hotel()
        journal = MemoryJournal()
        agent = Agent(ScriptedModel(BOOKINGS), tools=hotel.tools(), journal=journal)
        await agent.run("Book.", session="s")
        with suppress(PowerCut, RunFailed):
            await agent.with_journal(PowerCutJournal(journal, at)).undo("s")
        state = fold("s", await journal.read("s"))
        if state.is_active:
            with suppress(RunFailed):
                await agent.resume("s")
        undone = [line.partition(":")[0] for line in hotel.log]
        assert len(undone) == len(set(undone)), at


class DeadAtResult(PowerCutJournal):
    """Dies before the first result of a call is recorded."""

    def __init__(self, journal: MemoryJournal) -> None:
        super().__init__(journal, at=0)

    @override
    def append(self, session: str, facts: Sequence[Fact], row: SessionSummary) -> Awaitable[None]:
        if any(isinstance(fact, CallFinished) for fact in facts):
            self._at = self.appends + 1
        return super().append(session, facts, row)


ASKING = LoopPolicy(on_unknown="ask")


@pytest.mark.contract("J2")
async def test_an_interrupted_undo_that_a_person_does_not_repeat_is_never_made_again() -> None:
    hotel = Hotel()
    journal = MemoryJournal()
    script = ScriptedModel([call("book", {"room": "a"}), "Booked."])
    agent = Agent(script, tools=hotel.tools(), journal=journal, rules=ASKING)
    await agent.run("Book.", session="s")
    with suppress(PowerCut, RunFailed):
        await agent.with_journal(DeadAtResult(journal)).undo("s")
    waiting = await agent.resume("s")
    assert [question.tool for question in waiting.questions] == ["undo_book"]
    with pytest.raises(RunFailed, match="1 of 1 calls could not be undone"):
        await agent.answer("s", "u2_0", Deny("I looked: the room is free"))
    with pytest.raises(NothingToDo):
        await agent.undo("s")
    assert len(hotel.log) == 1


@pytest.mark.contract("D4")
async def test_an_answer_that_was_accepted_before_its_process_died_lets_the_undoing_resume() -> (
    None
):
    """The next process gives no answer of its own: a second one is refused, and changes nothing."""
    hotel = Hotel()
    journal = MemoryJournal()
    script = ScriptedModel([call("book", {"room": "a"}), "Booked."])
    agent = Agent(script, tools=hotel.tools(), journal=journal, rules=ASKING)
    await agent.run("Book.", session="s")
    with suppress(PowerCut, RunFailed):
        await agent.with_journal(DeadAtResult(journal)).undo("s")
    [question] = (await agent.resume("s")).questions
    with pytest.raises(PowerCut):  # The store has the answer, and the driver does not open the run.
        await agent.with_journal(PowerCutJournal(journal, at=1)).answer(
            "s", question.call_id, Deny("I looked: the room is free")
        )
    with pytest.raises(QuestionDecided):
        await agent.answer("s", question.call_id, Allow())
    with pytest.raises(RunFailed, match="1 of 1 calls could not be undone"):
        await agent.resume("s")
    answers = [fact for fact in await journal.read("s") if isinstance(fact, CallAnswered)]
    assert [answer.mail for answer in answers] == [1]
    assert len(hotel.log) == 1


@pytest.mark.contract("T2")
async def test_an_interrupted_call_that_a_person_does_not_repeat_is_undone() -> None:
    """It started, so it may have had its effect, although its result says that it was denied."""
    hotel = Hotel()
    journal = MemoryJournal()
    script = ScriptedModel([call("book", {"room": "a"}), "Booked."])
    agent = Agent(script, tools=hotel.tools(), journal=journal, rules=ASKING)
    with suppress(PowerCut, RunFailed):
        await agent.with_journal(DeadAtResult(journal)).run("Book.", session="s")
    await agent.resume("s")
    await agent.answer("s", "c1_0", Deny("I looked: it is booked"))
    assert hotel.booked == ["a"]
    assert (await agent.undo("s")).completed
    assert hotel.log == ["a: denied Denied: I looked: it is booked before a: 0"]
    assert hotel.booked == []


# ── files ────────────────────────────────────────────────────────────────────


def write(path: str, content: str) -> object:
    return call("write", {"path": path, "content": content})


def edit(path: str, old: str, new: str) -> object:
    return call("edit", {"path": path, "edits": [{"old": old, "new": new}]})


@pytest.mark.contract("T13")
async def test_files_are_restored_exactly_and_new_ones_deleted(tmp_path: Path) -> None:
    before = b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\n\xff"
    (tmp_path / "old.txt").write_bytes(before)
    script = [
        edit("old.txt", "two", "2"),
        write("new/made.txt", "made"),
        edit("new/made.txt", "made", "remade"),
        write("old.txt", "all new"),
        "Done.",
    ]
    tools = file_tools(Workspace(tmp_path))
    agent = Agent(ScriptedModel(script), tools=tools, journal=MemoryJournal())
    await agent.run("Go.", session="s")
    assert (tmp_path / "old.txt").read_text() == "all new"
    result = await agent.undo("s")
    assert result.completed, result.text
    assert (tmp_path / "old.txt").read_bytes() == before
    assert not (tmp_path / "new/made.txt").exists()


async def test_a_file_that_somebody_changed_since_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("before")
    (tmp_path / "b.txt").write_text("before")
    script = [write("a.txt", "after"), write("b.txt", "after"), "Done."]
    tools = file_tools(Workspace(tmp_path))
    agent = Agent(ScriptedModel(script), tools=tools, journal=MemoryJournal())
    await agent.run("Go.", session="s")
    (tmp_path / "a.txt").write_text("mine")
    with pytest.raises(RunFailed) as failed:
        await agent.undo("s")
    assert "was changed since. It was left as it is." in failed.value.result.text
    assert (tmp_path / "a.txt").read_text() == "mine"
    assert (tmp_path / "b.txt").read_text() == "before"


@pytest.mark.realtime
@pytest.mark.contract("G8")
async def test_a_file_with_a_secret_is_not_kept_and_the_rest_of_it_is_no_matter(
    tmp_path: Path,
) -> None:
    secret = "correct-horse-battery"
    (tmp_path / "a.txt").write_text(f"key {secret}\n")
    (tmp_path / "b.txt").write_text(f"key {secret}\nplain\n")
    script = [write("a.txt", "gone"), edit("b.txt", "plain", "changed"), "Done."]
    with SqliteJournal(tmp_path / "s.db") as journal:
        agent = Agent(
            ScriptedModel(script),
            tools=file_tools(Workspace(tmp_path)),
            journal=journal,
            secrets=[secret],
        )
        await agent.run("Go.", session="s")
        with pytest.raises(RunFailed) as failed:
            await agent.undo("s")
    assert "was not kept" in failed.value.result.text
    assert (tmp_path / "a.txt").read_text() == "gone"
    assert (tmp_path / "b.txt").read_text() == f"key {secret}\nplain\n"
    assert secret.encode() not in (tmp_path / "s.db").read_bytes()


async def test_a_fork_does_not_undo_what_the_other_session_did(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("before")
    journal = MemoryJournal()
    script = [write("a.txt", "after"), "Done."]
    agent = Agent(ScriptedModel(script), tools=file_tools(Workspace(tmp_path)), journal=journal)
    await agent.run("Go.", session="s")
    forked = await fork(journal, "s", len(await journal.read("s")))
    with pytest.raises(NothingToDo):
        await agent.undo(forked)


# ── what cannot be ───────────────────────────────────────────────────────────


def test_options_that_make_no_sense_are_refused() -> None:
    def look(room: str) -> str:
        return room

    def take_back(_context: object, room: str) -> None: ...
    def too_few(_context: object) -> None: ...

    with pytest.raises(ConfigError, match="undo must take"):
        tool(look, undo=too_few)
    with pytest.raises(ConfigError, match="only of use with undo"):
        tool(look, snapshot=take_back)
    with pytest.raises(ConfigError, match="nothing to undo in a read"):
        tool(look, undo=take_back, effect="read")
    with pytest.raises(ConfigError, match="two tools are called 'undo_look'"):
        Toolbox([tool(look, undo=take_back), tool(look, name="undo_look")])


async def test_an_agent_asks_before_it_undoes_as_before_it_writes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("before")
    journal = MemoryJournal()
    script = [write("a.txt", "after"), "Done."]
    tools = file_tools(Workspace(tmp_path))
    await Agent(ScriptedModel(script), tools=tools, journal=journal).run("Go.", session="s")
    asking = Agent(ScriptedModel([]), tools=tools, journal=journal, gate=ask())
    waiting = await asking.undo("s")
    assert [question.tool for question in waiting.questions] == ["undo_write"]
    facts = await journal.read("s")
    opening = [type(fact) for fact in facts if isinstance(fact, RunStarted | UndoPlanned)]
    assert opening == [RunStarted, RunStarted, UndoPlanned]
