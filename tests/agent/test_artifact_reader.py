"""The tool that reads artifacts joins the others once there is something to read (L13, T10)."""

import pytest

from windlass import Agent, Compaction, ConfigError, LoopPolicy, ModelInfo, tool
from windlass.core.audit.explain import explain
from windlass.core.audit.replay import replay
from windlass.core.events import CallFinished, CallJudged, Fact, RunStarted
from windlass.core.fold.run import fold
from windlass.core.setup import Setup
from windlass.core.verdicts import InvalidCall
from windlass.core.view import Prompt
from windlass.journals.memory import MemoryJournal
from windlass.models.options import choose_effort
from windlass.testing import ScriptedModel, ScriptedReply, VirtualClock, call
from windlass.testing.journals import append_facts

READER = "read_artifact"
LONG = "much to see\n" * 10_000


@tool(effect="read")
def report() -> str:
    """Return a long report."""
    return LONG


@tool(effect="read")
def look(number: int) -> str:
    """Look at something."""
    return f"{number}: " + "much to see " * 300


def offered(prompt: Prompt) -> list[str]:
    return [spec.name for spec in prompt.tools]


def last_setup(facts: list[Fact]) -> Setup:
    setups = [fact.setup for fact in facts if isinstance(fact, RunStarted) and fact.setup]
    return setups[-1]


@pytest.mark.contract("L13")
async def test_the_reader_is_offered_once_a_result_is_shortened() -> None:
    """L13: it is on record from the start, and visible from the fact that makes it useful."""
    journal = MemoryJournal()
    script: list[ScriptedReply] = [
        call("look", {"number": 1}),
        call("report"),
        call("look", {"number": 2}),
        "Seen.",
    ]
    with ScriptedModel(script) as model:
        agent = Agent(model, tools=[report, look], journal=journal)
        assert (await agent.run("Look.", session="s")).completed
    assert [READER in offered(prompt) for prompt in model.prompts] == [False, False, True, True]
    facts = list(await journal.read("s"))
    assert last_setup(facts).find_tool(READER) is not None
    shortened = [fact for fact in facts if isinstance(fact, CallFinished) if fact.result.artifacts]
    assert [fact.name for fact in shortened] == ["report"]
    (artifact,) = shortened[0].result.artifacts
    assert f'{READER}(id="{artifact}"' in shortened[0].result.text
    assert replay("s", facts).is_same


@pytest.mark.contract("L13")
async def test_what_is_not_offered_cannot_be_called() -> None:
    """L13: the same set rules what is visible and what may be dispatched."""
    journal = MemoryJournal()
    with ScriptedModel([call(READER, {"id": "anything"}), "I see."]) as model:
        await Agent(model, tools=[look], journal=journal).run("Look.", session="s")
    (judged,) = [fact for fact in await journal.read("s") if isinstance(fact, CallJudged)]
    assert isinstance(judged.verdict, InvalidCall)
    assert judged.verdict.code == "unknown_tool"
    assert READER not in judged.verdict.message.partition("Known:")[2]


@pytest.mark.contract("L13")
async def test_a_later_run_and_a_resumed_one_agree() -> None:
    """J4: the facts decide, and no process has to remember anything."""
    journal = MemoryJournal()
    with ScriptedModel([call("report"), "Long."]) as first:
        await Agent(first, tools=[report], journal=journal).run("Go.", session="s")
    facts = list(await journal.read("s"))
    with ScriptedModel(["Go on."]) as second:
        await Agent(second, tools=[report], journal=journal).run("On.", session="s")
    assert READER in offered(second.prompts[0])
    # A driver that died behind the shortened result, and the one that takes over.
    finished = next(at for at, fact in enumerate(facts) if isinstance(fact, CallFinished))
    await append_facts(journal, "cut", facts[: finished + 1])
    with ScriptedModel(["Long."]) as third:
        await Agent(third, tools=[report], journal=journal).resume("cut")
    assert READER in offered(third.prompts[0])


@pytest.mark.contract("L13")
async def test_removed_results_are_something_to_read_too(clock: VirtualClock) -> None:
    """X3: a result that left the view can be read by the id of its call."""
    info = ModelInfo("scripted:small", window=8_000)
    looks: list[ScriptedReply] = [call("look", {"number": at}) for at in range(8)]
    with ScriptedModel([*looks, "Seen."], info=info) as model:
        rules = Compaction(strategies=("mask",))
        agent = Agent(model, tools=[look], compaction=rules, clock=clock)
        assert (await agent.run("Look.")).completed
    seen = [READER in offered(prompt) for prompt in model.prompts]
    assert (seen[0], seen[-1]) == (False, True)
    assert seen == sorted(seen), "it joins once, and stays"


async def test_the_estimates_follow_the_set_that_is_offered() -> None:
    """B2: what is reserved covers the reader from the moment that it is sent."""
    journal = MemoryJournal()
    with ScriptedModel([call("report"), "Long."]) as model:
        await Agent(model, tools=[report], journal=journal).run("Go.", session="s")
    facts = list(await journal.read("s"))
    before = fold("s", facts[:1]).fixed
    after = fold("s", facts).fixed
    spec = last_setup(facts).find_tool(READER)
    assert spec is not None
    assert after - before > len(spec.description)


def test_the_reader_cannot_be_the_tool_of_the_first_reply() -> None:
    with pytest.raises(ConfigError, match="there is no such tool"):
        Agent(ScriptedModel([]), tools=[look], rules=LoopPolicy(tool_choice=READER))


async def test_the_effort_does_not_change_when_the_reader_joins() -> None:
    """S14: all steps of a run get the same effort."""

    @tool(effect="read")
    def third() -> str:
        """Return a word."""
        return "word"

    with ScriptedModel([call("report"), "Long."]) as model:
        await Agent(model, tools=[report, look, third]).run("Go.")
    first, second = model.prompts
    assert len(second.tools) == len(first.tools) + 1
    assert choose_effort(first) == choose_effort(second) == "low"


async def test_an_explanation_says_when_it_is_offered() -> None:
    """O2."""
    journal = MemoryJournal()
    with ScriptedModel(["Hello."]) as model:
        await Agent(model, tools=[look], journal=journal).run("Hi.", session="s")
    lines = explain("s", await journal.read("s"))
    assert f"{READER} (read, once a result was shortened)" in "\n".join(lines)
