"""Undo: what sub-agents did is undone with the run that they worked for, the last one first."""

import asyncio
from contextlib import suppress
from typing import Any, Literal

import pytest

from windlass import Agent, Limits, LoopPolicy, NothingToDo, RunFailed, delegate, tool
from windlass.core.events import RunEnded, RunStarted, StepProposed
from windlass.core.fold.run import fold
from windlass.core.verdicts import Allow, Ask
from windlass.journals.memory import MemoryJournal
from windlass.testing import ScriptedModel, call
from windlass.testing.faults import PowerCut, PowerCutJournal
from windlass.testing.gates import FixedGate
from windlass.testing.journals import append_facts
from windlass.tools import RunContext, Tool

Effect = Literal["write", "idempotent"]


class Ledger:
    """Entries that can be made and taken back; taking back twice shows in the log."""

    def __init__(self, effect: Effect = "write") -> None:
        self.entries: list[str] = []
        self.log: list[str] = []
        self.effect: Effect = effect

    def tools(self) -> list[Tool[..., Any]]:
        def take_back(_context: RunContext, entry: str) -> str:
            if self.effect == "write" or entry in self.entries:
                self.entries.remove(entry)
                self.log.append(entry)
            return f"{entry} is gone"

        undo = take_back if self.effect == "write" else tool(take_back, effect="idempotent")

        @tool(undo=undo, effect="idempotent")
        def enter(entry: str) -> str:
            """Make an entry."""
            if entry not in self.entries:
                self.entries.append(entry)
            return entry

        @tool(effect="read")
        def look() -> str:
            """Look at the entries."""
            return " ".join(self.entries)

        @tool
        def shout() -> str:
            """Say something, which cannot be taken back."""
            return "hey"

        return [enter, look, shout]


def enter(entry: str) -> Any:
    return call("enter", {"entry": entry})


def ask_clerk(task: str = "Do it.") -> Any:
    return call("clerk", {"task": task})


def make_clerk(ledger: Ledger, script: list[Any], *more: Tool[..., Any], **options: Any) -> Any:
    tools = [*ledger.tools(), *more]
    return Agent(ScriptedModel(script), name="clerk", tools=tools, **options).as_tool()


def make_chief(ledger: Ledger, clerk: Any, script: list[Any], journal: Any, **options: Any) -> Any:
    tools = [*ledger.tools(), clerk]
    return Agent(ScriptedModel(script), name="chief", tools=tools, journal=journal, **options)


SCRIPT = [enter("a"), ask_clerk(), enter("d"), "Done."]
CLERK_SCRIPT = [enter("b"), enter("c"), "Entered."]


@pytest.mark.contract("T2")
async def test_what_a_sub_agent_did_is_undone_when_the_turn_of_its_call_comes() -> None:
    ledger = Ledger()
    journal = MemoryJournal()
    chief = make_chief(ledger, make_clerk(ledger, CLERK_SCRIPT), SCRIPT, journal)
    await chief.run("Go.", session="s")
    assert ledger.entries == ["a", "b", "c", "d"]
    result = await chief.undo("s")
    assert result.completed
    assert ledger.log == ["d", "c", "b", "a"]
    assert "c2_0 (undo_clerk): undone. These calls were undone" in result.text
    started = [fact for fact in await journal.read("s/c2_0") if isinstance(fact, RunStarted)]
    assert [fact.parent for fact in started] == ["s/c2_0", "s/u2_1"]
    with pytest.raises(NothingToDo):
        await chief.undo("s")


async def test_what_the_agents_of_a_sub_agent_did_is_undone_as_well() -> None:
    ledger = Ledger()
    helper = Agent(ScriptedModel([enter("c"), "Helped."]), tools=ledger.tools())
    team = delegate({"helper": helper}, name="ask_helper")
    inner = [enter("b"), call("ask_helper", {"agent": "helper", "task": "Help."}), "Entered."]
    chief = make_chief(ledger, make_clerk(ledger, inner, team), SCRIPT, MemoryJournal())
    await chief.run("Go.", session="s")
    assert (await chief.undo("s")).completed
    assert ledger.log == ["d", "c", "b", "a"]


async def test_a_sub_agent_that_failed_is_undone_although_its_call_has_an_error() -> None:
    ledger = Ledger()
    clerk = make_clerk(ledger, [enter("b"), enter("c")], limits=Limits(steps=2))
    chief = make_chief(ledger, clerk, [ask_clerk(), "It failed."], MemoryJournal())
    result = await chief.run("Go.", session="s")
    assert "clerk ended as max_steps" in str(result.messages)
    assert (await chief.undo("s")).completed
    assert ledger.log == ["c", "b"]


async def test_a_sub_agent_that_changed_nothing_is_passed_over() -> None:
    """The run before it is the last one that has something to undo."""
    ledger = Ledger()
    clerk = make_clerk(ledger, [call("look", {}), "Seen."])
    script = [enter("a"), "Done.", ask_clerk(), "Looked."]
    chief = make_chief(ledger, clerk, script, MemoryJournal())
    await chief.run("Go.", session="s")
    await chief.run("Look.", session="s")
    await chief.undo("s")
    assert ledger.log == ["a"]


async def test_what_a_sub_agent_cannot_take_back_is_named() -> None:
    ledger = Ledger()
    journal = MemoryJournal()
    clerk = make_clerk(ledger, [call("shout", {}), enter("b"), "Said."])
    chief = make_chief(ledger, clerk, [ask_clerk(), "Done."], journal)
    await chief.run("Go.", session="s")
    await chief.undo("s")
    started = [fact for fact in await journal.read("s") if isinstance(fact, RunStarted)]
    assert "What shout of clerk did cannot be undone." in str(started[-1].prompt)


async def test_what_could_not_be_undone_in_a_sub_agent_is_tried_again() -> None:
    ledger = Ledger()
    chief = make_chief(ledger, make_clerk(ledger, CLERK_SCRIPT), SCRIPT, MemoryJournal())
    await chief.run("Go.", session="s")
    ledger.entries.remove("b")
    with pytest.raises(RunFailed, match="1 of 3 calls could not be undone"):
        await chief.undo("s")
    assert ledger.log == ["d", "c", "a"]
    ledger.entries.append("b")
    assert (await chief.undo("s")).completed
    assert ledger.log == ["d", "c", "a", "b"]


@pytest.mark.contract("G1")
async def test_a_question_of_a_sub_agents_undo_waits_and_is_answered_through_the_caller() -> None:
    ledger = Ledger()

    def judge(request: Any) -> Allow | Ask:
        return Ask("Take it back?") if request.tool.name == "undo_enter" else Allow()

    clerk = make_clerk(ledger, CLERK_SCRIPT, gate=FixedGate(judge))
    journal = MemoryJournal()
    chief = make_chief(ledger, clerk, [ask_clerk(), "Done."], journal)
    await chief.run("Go.", session="s")
    waiting = await chief.undo("s")
    assert waiting.outcome == "suspended"
    assert [(each.session, each.tool) for each in waiting.questions] == [
        ("s/c1_0", "undo_enter"),
        ("s/c1_0", "undo_enter"),
    ]
    assert ledger.log == []
    first, second = waiting.questions
    await chief.answer("s/c1_0", first.call_id, Allow())
    result = await chief.answer("s/c1_0", second.call_id, Allow())
    assert result.completed
    assert ledger.log == ["c", "b"]


async def test_an_undo_that_is_given_up_ends_that_of_its_sub_agent() -> None:
    ledger = Ledger()
    gate = FixedGate(lambda request: Ask("?") if request.tool.name == "undo_enter" else Allow())
    journal = MemoryJournal()
    clerk = make_clerk(ledger, CLERK_SCRIPT, gate=gate)
    chief = make_chief(ledger, clerk, [ask_clerk(), "Done."], journal)
    await chief.run("Go.", session="s")
    await chief.undo("s")
    await chief.abandon("s")
    assert not fold("s/c1_0", await journal.read("s/c1_0")).is_active


async def test_a_cancelled_run_is_undone_with_its_sub_agent() -> None:
    ledger = Ledger()
    chief: Any = None

    @tool
    async def wait() -> str:
        """Wait for ever."""
        chief.cancel("s")
        await asyncio.sleep(3600)
        return "never"

    clerk = make_clerk(ledger, [enter("b"), call("wait", {})], wait)
    script = [enter("a"), ask_clerk()]
    rules = LoopPolicy(on_failure="undo")
    chief = make_chief(ledger, clerk, script, MemoryJournal(), rules=rules)
    result = await chief.run("Go.", session="s")
    assert result.outcome == "cancelled"
    assert ledger.log == ["b", "a"]


@pytest.mark.contract("J2", "J4")
@pytest.mark.parametrize("effect", ["write", "idempotent"])
async def test_killed_at_any_record_nothing_is_undone_twice(effect: Effect) -> None:
    """With an undo that may be repeated, all is undone in the end, in one and the same order."""
    for at in range(1, 22):
        ledger = Ledger(effect)
        journal = MemoryJournal()
        chief = make_chief(ledger, make_clerk(ledger, CLERK_SCRIPT), SCRIPT, journal)
        await chief.run("Go.", session="s")
        with suppress(PowerCut, RunFailed):
            await chief.with_journal(PowerCutJournal(journal, at)).undo("s")
        with suppress(RunFailed, NothingToDo):
            is_open = fold("s", await journal.read("s")).is_active
            await (chief.resume("s") if is_open else chief.undo("s"))
        assert len(ledger.log) == len(set(ledger.log)), at
        if effect == "idempotent":
            assert ledger.log == ["d", "c", "b", "a"], at
        assert not fold("s/c2_0", await journal.read("s/c2_0")).is_active, at


async def test_killed_before_the_undo_a_sweep_undoes_the_sub_agent_too() -> None:
    """The end of the run says that it is due; no model is asked again."""
    ledger = Ledger("idempotent")
    journal = MemoryJournal()
    rules = LoopPolicy(on_failure="undo")
    clerk = make_clerk(ledger, CLERK_SCRIPT)
    limits = Limits(steps=3)
    chief = make_chief(ledger, clerk, SCRIPT[:3], journal, rules=rules, limits=limits)
    whole = MemoryJournal()
    await chief.with_journal(whole).run("Go.", session="s")
    facts = await whole.read("s")
    ended = next(at for at, fact in enumerate(facts, 1) if isinstance(fact, RunEnded))
    child = await whole.read("s/c2_0")
    child_ended = next(at for at, fact in enumerate(child, 1) if isinstance(fact, RunEnded))
    await append_facts(journal, "s/c2_0", child[:child_ended])
    await append_facts(journal, "s", facts[:ended])
    ledger.entries = ["a", "b", "c", "d"]
    ledger.log = []
    assert sum(isinstance(fact, StepProposed) for fact in facts) == 3
    assert (await chief.sweep()).driven == ("s",)
    assert ledger.log == ["d", "c", "b", "a"]
