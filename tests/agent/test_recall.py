"""Recall: what is known is shown beside the prompt of one run, and not kept in the conversation."""

import asyncio
import logging
from pathlib import Path
from typing import Any, cast

import pytest

from windlass import (
    Agent,
    Compaction,
    KnowledgeRecalled,
    ModelInfo,
    RunFailed,
    ToolResults,
    UserMessage,
    knowledge_tools,
    project_instructions,
    recaller,
    skill_tool,
    tool,
)
from windlass.core.fold.run import fold
from windlass.core.view import Prompt
from windlass.journals.memory import MemoryJournal
from windlass.knowledge.memory import Memory
from windlass.knowledge.skills import Skills
from windlass.knowledge.sqlite import SqliteKnowledge
from windlass.knowledge.store import Note, Scope, Source
from windlass.testing import (
    PowerCut,
    PowerCutJournal,
    ScriptedModel,
    ScriptedReply,
    VirtualClock,
    call,
    check_prompt,
)

CRANE = Scope("project", "crane")


class Known:
    """Counts how often it is asked."""

    def __init__(self, *told: str) -> None:
        self.asked: list[str] = []
        self._told = list(told)

    async def __call__(self, prompt: str) -> KnowledgeRecalled:
        self.asked.append(prompt)
        return KnowledgeRecalled(self._told.pop(0) if self._told else "", ("private",))


def notes(prompt: Prompt) -> list[str]:
    return [one.text for one in prompt.messages if isinstance(one, UserMessage) and one.note]


@tool(effect="read")
def look(number: int) -> str:
    """Look at something large."""
    return f"{number}: " + "much to see " * 100


@pytest.mark.contract("K1")
async def test_it_is_shown_once_in_its_run_and_gone_in_the_next(clock: VirtualClock) -> None:
    journal, known = MemoryJournal(), Known("The hoist lifts two tonnes.", "It is red.")
    script: list[ScriptedReply] = [
        call("look", {"number": 1}),
        "Two.",
        call("look", {"number": 2}),
        "Red.",
    ]
    with ScriptedModel(script) as model:
        agent = Agent(model, tools=[look], knowledge=known, journal=journal, clock=clock)
        first = await agent.run("How much?", session="s")
        second = await agent.run("Which colour?", session="s")
    assert known.asked == ["How much?", "Which colour?"]
    assert [notes(prompt) for prompt in model.prompts] == [
        ["The hoist lifts two tonnes."],
        ["The hoist lifts two tonnes."],
        ["It is red."],
        ["It is red."],
    ]
    # The prompt cache holds within the run: each request begins with the one before.
    for before, after in ((0, 1), (2, 3)):
        shown = list(model.prompts[before].messages)
        assert list(model.prompts[after].messages)[: len(shown)] == shown
    assert not any(isinstance(one, UserMessage) and one.note for one in second.messages)
    assert first.completed
    facts = await journal.read("s")
    assert [one.text for one in facts if isinstance(one, KnowledgeRecalled)] == [
        "The hoist lifts two tonnes.",
        "It is red.",
    ]
    assert fold("s", facts).labels == {"private"}


@pytest.mark.contract("K1")
async def test_it_stays_beside_its_prompt_when_the_view_is_shortened(clock: VirtualClock) -> None:
    known = Known("The hoist lifts two tonnes.")
    info = ModelInfo("scripted:model", window=2_000)
    rules = Compaction(strategies=("window",))
    script: list[ScriptedReply] = [call("look", {"number": at}) for at in range(12)]
    with ScriptedModel([*script, "Two."], info=info) as model:
        agent = Agent(model, tools=[look], knowledge=known, compaction=rules, clock=clock)
        await agent.run("How much?", session="s")
    for prompt in model.prompts:
        check_prompt(prompt)
        assert notes(prompt).count("The hoist lifts two tonnes.") == 1
    assert len(notes(model.prompts[-1])) == 2


@pytest.mark.contract("K2")
@pytest.mark.parametrize("given", [None, "just text", 7], ids=repr)
async def test_what_is_no_answer_is_a_warning(
    given: object, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def odd(_: str) -> KnowledgeRecalled:
        return cast("KnowledgeRecalled", given)

    with ScriptedModel(["Two."]) as model, caplog.at_level(logging.WARNING):
        result = await Agent(model, knowledge=odd, clock=clock).run("How much?")
    assert result.completed
    assert notes(model.prompts[0]) == []
    assert any("knowledge lookup failed" in record.message for record in caplog.records)


@pytest.mark.contract("K2")
async def test_a_failure_is_a_warning(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(_: str) -> KnowledgeRecalled:
        raise OSError("no such file")

    async def hung(_: str) -> KnowledgeRecalled:
        await asyncio.sleep(10_000)
        return KnowledgeRecalled("late")

    with caplog.at_level(logging.WARNING):
        for known in (broken, hung):
            with ScriptedModel(["Two."]) as model:
                result = await Agent(model, knowledge=known, clock=clock).run("How much?")
            assert result.completed
            assert notes(model.prompts[0]) == []
    assert clock.elapsed_s < 60
    assert sum("knowledge lookup failed" in record.message for record in caplog.records) == 2


@pytest.mark.contract("C1")
async def test_a_cancel_does_not_wait_for_it(clock: VirtualClock) -> None:
    async def slow(_: str) -> KnowledgeRecalled:
        await asyncio.sleep(5)
        return KnowledgeRecalled("late")

    agent = Agent(ScriptedModel([]), knowledge=slow, clock=clock)
    running = asyncio.create_task(agent.run("How much?", session="s"))
    await asyncio.sleep(1)
    agent.cancel("s")
    assert (await running).outcome == "cancelled"
    assert clock.elapsed_s < 1.2


async def test_what_is_on_record_is_not_recalled_again(clock: VirtualClock) -> None:
    """J1: a resumed run sees what it saw."""
    store, known = MemoryJournal(), Known("The hoist lifts two tonnes.", "Another thing.")
    agent = Agent(
        ScriptedModel(["Two."]), knowledge=known, journal=PowerCutJournal(store, 3), clock=clock
    )
    with pytest.raises((PowerCut, RunFailed)):
        await agent.run("How much?", session="s")
    with ScriptedModel(["Two."]) as model:
        await Agent(model, knowledge=known, journal=store, clock=clock).resume("s")
    assert known.asked == ["How much?"]
    assert notes(model.prompts[0]) == ["The hoist lifts two tonnes."]


@pytest.mark.realtime
@pytest.mark.contract("K1")
async def test_recall_and_remember_are_ordinary_tools(tmp_path: Path) -> None:
    """K2: with provenance, scope and taint."""
    with SqliteKnowledge(tmp_path / "k.db") as store:
        memory = Memory(store, user="ann", project="crane")
        journal = MemoryJournal()
        script: list[ScriptedReply] = [
            call("remember", {"text": "The hoist lifts two tonnes.", "title": "Hoist"}),
            call("recall", {"query": "hoist"}),
            "Two.",
        ]
        with ScriptedModel(script) as model:
            agent = Agent(model, tools=knowledge_tools(memory), journal=journal)
            result = await agent.run("Remember it.", session="s")
        told = [one.items[0].result.text for one in result.messages if isinstance(one, ToolResults)]
        assert told[0].startswith("Kept for this project")
        assert "session s, call c1_0" in told[1]
        (found,) = await store.recall("hoist", [CRANE])
        # The session held nothing from outside, so what it wrote is no hearsay.
        assert found.labels == frozenset()
        assert found.sources == (Source(session="s", call="c1_0"),)
        specs = {spec.name: spec for spec in model.prompts[0].tools}
        assert (specs["recall"].effect, specs["remember"].effect) == ("read", "idempotent")
        assert set(specs["recall"].labels) == {"untrusted", "private"}
        assert specs["remember"].labels == ()
        assert "look for" in str(specs["recall"].parameters)
        assert "Keep a note for later runs" in specs["remember"].description


@pytest.mark.realtime
@pytest.mark.contract("K2")
async def test_what_a_doubtful_session_writes_is_doubtful(tmp_path: Path) -> None:
    @tool(effect="read", untrusted=True)
    def web() -> str:
        """Read what anyone wrote."""
        return "The hoist lifts nine tonnes."

    with SqliteKnowledge(tmp_path / "k.db") as store:
        memory = Memory(store, project="crane")
        keep = call("remember", {"text": "The hoist lifts nine tonnes."})
        with ScriptedModel([call("web"), keep, "Kept."]) as model:
            await Agent(model, tools=[web, *knowledge_tools(memory)]).run("Look.")
        (found,) = await store.recall("hoist", [CRANE])
        assert found.labels == {"untrusted"}
        # And whoever recalls it holds it from then on.
        journal = MemoryJournal()
        with ScriptedModel(["Nine."]) as model:
            agent = Agent(model, knowledge=recaller(memory), journal=journal)
            await agent.run("What does the hoist lift?", session="s")
        assert fold("s", await journal.read("s")).labels == {"untrusted"}
        (shown,) = notes(model.prompts[0])
        assert "nine tonnes" in shown
        assert shown.endswith("</knowledge>")


@pytest.mark.realtime
async def test_a_crash_does_not_remember_twice(tmp_path: Path) -> None:
    """J2: the same call keeps the same note once."""
    with SqliteKnowledge(tmp_path / "k.db") as store:
        memory = Memory(store, project="crane")
        keep = call("remember", {"text": "The hoist lifts two tonnes."})
        journal = MemoryJournal()
        cut = PowerCutJournal(journal, 6, "before")
        agent = Agent(ScriptedModel([keep]), tools=knowledge_tools(memory), journal=cut)
        with pytest.raises(BaseException):  # noqa: B017, PT011 - as a process dies
            await agent.run("Keep it.", session="s")
        assert len(await store.recall("hoist", [CRANE])) == 1
        with ScriptedModel(["Kept."]) as model:
            agent = Agent(model, tools=knowledge_tools(memory), journal=journal)
            assert (await agent.resume("s")).completed
        (found,) = await store.recall("hoist", [CRANE])
        assert len(found.sources) == 1


@pytest.mark.realtime
async def test_what_a_memory_may_bring_is_known_beforehand(tmp_path: Path) -> None:
    """G7: also to whoever an agent with this knowledge works for."""
    with SqliteKnowledge(tmp_path / "k.db") as store:
        await store.remember(Note("The hoist is red.", CRANE, Source("manual.md")))
        public = Memory(store, project="crane", labels=["untrusted"])
        clerk = Agent(ScriptedModel([]), name="clerk", knowledge=recaller(public))
        assert clerk.as_tool().spec.labels == ("untrusted",)
        assert (await recaller(public)("What colour is the hoist?")).labels == ()
        assert (await recaller(public)("Nothing of that kind.")).text == ""


@pytest.mark.contract("X5")
async def test_a_project_tells_its_agents_what_to_do(tmp_path: Path, clock: VirtualClock) -> None:
    (tmp_path / "AGENTS.md").write_text("Use metres.\n")
    (tmp_path / "jib").mkdir()
    (tmp_path / "jib" / "AGENTS.md").write_text("Paint it red.\n")
    for name in ("weld", "paint"):
        folder = tmp_path / "skills" / name
        folder.mkdir(parents=True)
        head = f"---\nname: {name}\ndescription: How to {name}.\n---\n"
        (folder / "SKILL.md").write_text(f"{head}\nFirst clean it, then {name} it.\n")
    skills = Skills.from_project(tmp_path)
    told = project_instructions(
        tmp_path, skills=skills, folder=tmp_path / "jib", before="Be brief."
    )
    assert told == project_instructions(
        tmp_path, skills=Skills.from_project(tmp_path), folder=tmp_path / "jib", before="Be brief."
    )
    order = ["Be brief.", "Use metres.", "Paint it red.", "- paint: ", "- weld: "]
    assert sorted(order, key=told.index) == order
    assert project_instructions(tmp_path / "skills") == ""
    script: list[ScriptedReply] = [
        call("skill", {"name": "weld"}),
        call("skill", {"name": "wled"}),
        "Ok.",
    ]
    with ScriptedModel(script) as model:
        agent = Agent(model, instructions=told, tools=[skill_tool(skills)], clock=clock)
        result = await agent.run("Weld it.")
    items: list[Any] = [
        one.items[0].result for one in result.messages if isinstance(one, ToolResults)
    ]
    assert items[0].text.startswith("First clean it, then weld it.")
    assert "weld" in items[1].text
    assert items[1].kind == "error"
    assert model.prompts[0].system == told
