"""One long session with everything in it, that may be cut at any record.

The script, the tools, the world that they change, and the processes that work on it in turn.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from windlass import Agent, Budget, Compaction, Hydration, Limits, ModelInfo, RetryPolicy, tool
from windlass.core.errors import ModelError, QuestionDecided
from windlass.core.events import Fact, ReplyPiece, StepProposed
from windlass.core.fold.run import fold
from windlass.core.messages import AssistantMessage, CallOutcome, Message, ToolResult, ToolResults
from windlass.core.result import RunFailed, RunResult, build_result, open_questions
from windlass.core.setup import Reference
from windlass.core.state import State
from windlass.core.verdicts import Allow, Ask, Deny, Verdict
from windlass.core.view import Prompt
from windlass.journals.completing import complete_journal
from windlass.ports import GateRequest, GivenJournal
from windlass.testing import (
    FixedGate,
    PowerCut,
    PowerCutJournal,
    ScriptedModel,
    ScriptedReply,
    call,
    say,
    think,
)
from windlass.tools.function import NOT_DONE
from windlass.tools.run_context import RunContext

SESSION = "story"
HELPER = "story/c8_0"
PROMPT = "Work through ticket #17."
PROCESSES_MAX = 40
LONG = "It says a good deal about the matter, none of which is news to anybody here. " * 10

Open = Callable[[], AbstractAsyncContextManager[GivenJournal]]
"""Opens the journal as a process would that has just started."""
When = Literal["before", "after"]

SCRIPT: dict[int, ScriptedReply] = {
    1: [think("Let me see."), say("I look."), call("look", {"step": 1, "what": "door"})],
    2: [call("look", {"step": 2, "what": what}) for what in ("roof", "wall", "floor")],
    3: [call("tag", {"step": 3, "what": "box"}), call("look", {"step": 3, "what": "box"})],
    4: call("note", {"step": 4, "what": "measured"}),
    5: [call("send", {"step": 5, "what": "ann"}), call("look", {"step": 5, "what": "post"})],
    6: [call("pay", {"step": 6, "what": "ten"}), call("look", {"step": 6, "what": "till"})],
    7: [call("wipe", {"step": 7, "what": "all"}), call("tag", {"step": 7, "what": "till"})],
    8: call("helper", {"task": "Look into the cellar. [step 8]"}),
    9: call("listen", {"step": 9, "what": "person"}),
    10: [call("note", {"step": 10, "what": "left"}), call("note", {"step": 10, "what": "right"})],
    11: [call("send", {"step": 11, "what": "bob"}), call("send", {"step": 11, "what": "cat"})],
    12: call("tag", {"step": 12, "what": "shelf"}),
    13: [call("look", {"step": 13, "what": "door"}), call("note", {"step": 13, "what": "shut"})],
    14: "All is done.",
}
HELPS: dict[int, ScriptedReply] = {
    1: call("look", {"step": 1, "what": "cellar"}),
    2: call("note", {"step": 2, "what": "cellar"}),
    3: "The cellar is dry.",
}
BUDGET = Budget("team", tokens=10_000_000)
BREAKS_AT = 4
"""The provider breaks down in the middle of its first reply to this step."""


@dataclass(slots=True)
class StoryWorld:
    """What no crash undoes: what the tools did, and what the provider was asked."""

    done: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Effects: which tool, under which key."""
    keys: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """By call: all the keys that it ever ran under."""
    asked: list[str] = field(default_factory=list[str])
    paid_twice: list[str] = field(default_factory=list[str])
    broke: bool = False

    def times(self, name: str) -> Counter[str]:
        return Counter(key for tool, key in self.done if tool == name)


class StoryProcess:
    """One life: its tools and models stop when it is dead."""

    def __init__(self, outside: StoryWorld, store: GivenJournal, at: int, when: When) -> None:
        self.outside = outside
        self.store = store
        self.journal = PowerCutJournal(store, at, when)

    async def check_alive(self) -> None:
        await asyncio.sleep(0)
        if self.journal.dead:
            raise PowerCut("a dead process does nothing")

    async def act(self, context: RunContext[Any]) -> None:
        """Change the world, with a moment before and after in which the process may die."""
        await self.check_alive()
        self.outside.done.append((context.tool_name, context.idempotency_key))
        await self.check_alive()


def make_tools(process: StoryProcess, steer: Callable[[], Any]) -> list[Any]:
    outside = process.outside

    def told(context: RunContext[Any], what: str) -> str:
        keys = outside.keys.setdefault(f"{context.session_id} {context.call_id}", set())
        keys.add(context.idempotency_key)
        return f"{context.tool_name} {what}: {LONG if context.tool_name == 'look' else 'ok'}"

    def found(name: str) -> Callable[..., Any]:
        def reconcile(context: RunContext[Any], step: int, what: str) -> Any:
            done = (name, context.idempotency_key) in outside.done
            return f"{name} {what}: ok" if done else NOT_DONE

        return reconcile

    @tool(effect="read")
    async def look(context: RunContext[Any], step: int, what: str) -> str:
        """Look at something."""
        await process.check_alive()
        return told(context, what)

    @tool(effect="read")
    async def ticket(context: RunContext[Any], number: str) -> str:
        """Look a ticket up."""
        await process.check_alive()
        return told(context, number)

    @tool(effect="read")
    async def listen(context: RunContext[Any], step: int, what: str) -> str:
        """Give a person the time to say something."""
        await steer()
        return told(context, what)

    @tool(effect="idempotent")
    async def tag(context: RunContext[Any], step: int, what: str) -> str:
        """Tag something; twice is as good as once."""
        await process.act(context)
        return told(context, what)

    @tool(effect="write", resource="{what}", reconcile=found("note"))
    async def note(context: RunContext[Any], step: int, what: str) -> str:
        """Write something down."""
        await process.act(context)
        return told(context, what)

    @tool(effect="write", reconcile=found("pay"))
    async def pay(context: RunContext[Any], step: int, what: str) -> str:
        """Pay somebody."""
        await process.act(context)
        return told(context, what)

    @tool(effect="write", resource="{what}")
    async def send(context: RunContext[Any], step: int, what: str) -> str:
        """Send somebody a letter, of which nobody keeps a copy."""
        await process.act(context)
        return told(context, what)

    @tool(effect="write")
    async def wipe(context: RunContext[Any], step: int, what: str) -> str:
        """Wipe everything."""
        await process.act(context)
        return told(context, what)

    return [look, ticket, listen, tag, note, pay, send, wipe]


def step_of(reply: AssistantMessage) -> int:
    """Which step of the script a reply is; 0 for what the runtime looked up by itself."""
    for one in reply.calls:
        found = one.arguments.partition('"step":')[2] or one.arguments.partition("[step ")[2]
        digits = found.lstrip()[:2].strip(" ,]}")
        return int("".join(c for c in digits if c.isdigit()) or 0)
    return 0


class StoryModel:
    """Says what the script has after the last step that it is shown."""

    def __init__(
        self, process: StoryProcess, session: str, script: dict[int, ScriptedReply]
    ) -> None:
        self.info = ModelInfo(f"scripted:{session}", output_max=500)
        self._process = process
        self._session = session
        self._script = script

    async def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:
        await self._process.check_alive()
        outside = self._process.outside
        if prompt.system.startswith("You summarize"):
            step = 0
            said = "They looked at a few things."
        else:
            replies = [one for one in prompt.messages if isinstance(one, AssistantMessage)]
            step = 1 + (step_of(replies[-1]) if replies else 0)
            said = self._script[step]
            await self._check(step)
        outside.asked.append(f"{self._session} {step}")
        breaks = step == BREAKS_AT and self._session == SESSION and not outside.broke
        outside.broke = outside.broke or breaks
        async for piece in ScriptedModel([said]).stream(prompt):
            await self._process.check_alive()
            yield piece
            if breaks:
                raise ModelError("server", "the provider broke down")

    async def _check(self, step: int) -> None:
        """J3: a recorded reply is not requested again."""
        facts = await self._process.store.read(self._session)
        kept = [one.reply for one in facts if isinstance(one, StepProposed)]
        if step in map(step_of, kept) or any(not one.calls for one in kept):
            self._process.outside.paid_twice.append(f"{self._session} {step}")


def judge(request: GateRequest) -> Verdict:
    match request.tool.name:
        case "pay":
            return Ask("May I pay?", "money")
        case "wipe":
            return Deny("never", "no wiping")
        case _:
            return Allow("the rest")


def make_agent(process: StoryProcess) -> Agent[str]:
    journal = process.journal

    async def steer() -> None:
        """Steer once, and again if the first time was not confirmed."""
        await process.check_alive()
        facts = await journal.read(SESSION)
        if not any(type(fact).__name__ == "SteeringGiven" for fact in facts):
            await driven.steer(SESSION, "Mind the step.", by="ann")
        await process.check_alive()

    tools = make_tools(process, steer)
    helper = Agent(
        StoryModel(process, HELPER, HELPS), name="helper", tools=[tools[0], tools[4]]
    ).as_tool()
    driven = Agent(
        StoryModel(process, SESSION, SCRIPT),
        name="worker",
        instructions="You work through tickets.",
        tools=[*tools, helper],
        gate=FixedGate(judge),
        journal=journal,
        limits=Limits(steps=30),
        retries=RetryPolicy(wait_base_s=0.001, wait_max_s=0.002),
        budgets=[BUDGET],
        compaction=Compaction(window=3_000, strategies=("summary", "window")),
        hydration=Hydration(references=(Reference(r"#(\d+)", "ticket", "number"),)),
    )
    return driven


@dataclass(slots=True)
class FinishedStory:
    """A session that came to its end."""

    outside: StoryWorld
    facts: Sequence[Fact]
    messages: tuple[Message, ...]
    text: str
    appends: int
    lives: int
    spent: int
    """What the shared budget counts as spent."""


async def play_story(store: Open, *cuts: tuple[int, When]) -> FinishedStory:
    """The whole session, with the power cut at these appends, counted from the cut before."""
    outside = StoryWorld()
    left = list(cuts)
    appends = since_cut = 0
    for life in range(1, PROCESSES_MAX + 1):
        at, when = left[0] if left else (0, "before")
        async with store() as opened:
            process = StoryProcess(outside, opened, at - since_cut if at else 0, when)
            result = await _run_process(process)
            facts = await opened.read(SESSION)
            spent = (await complete_journal(opened).read_spending(BUDGET)).tokens or 0
        journal = process.journal
        appends += journal.appends
        since_cut = 0 if journal.dead else since_cut + journal.appends
        if journal.dead:
            left.pop(0)
        # A call that two power cuts hit is parked; the next process resumes its run, as people do.
        elif result is not None and result.outcome not in ("suspended", "paused"):
            return FinishedStory(outside, facts, result.messages, result.text, appends, life, spent)
    raise AssertionError(f"the session did not end in {PROCESSES_MAX} processes")


async def _run_process(process: StoryProcess) -> RunResult[str] | None:
    """One process does what there is to do; None if it died of it."""
    agent = make_agent(process)
    try:
        return await _drive_session(agent, fold(SESSION, await process.journal.read(SESSION)))
    except (PowerCut, RunFailed):
        if not process.journal.dead:
            raise
        return None
    finally:
        await agent.aclose()


async def _drive_session(agent: Agent[str], state: State) -> RunResult[str]:
    if state.run is None:
        return await agent.run(PROMPT, session=SESSION)
    if not state.is_active:
        return build_result(state, recorded=True)
    waiting = open_questions(state)
    if waiting:
        with suppress(QuestionDecided):  # It was accepted before the power was cut.
            return await agent.answer(SESSION, waiting[0].call_id, Allow("a person"), by="ann")
    return await agent.resume(SESSION)


def settle_unknown_sends(messages: Sequence[Message], like: Sequence[Message]) -> list[Message]:
    """Replace unknown results of `send` by those of another transcript, so that both compare."""
    known = {
        item.call.id: item.result
        for message in like
        if isinstance(message, ToolResults)
        for item in message.items
    }
    return [
        ToolResults(tuple(_settle_result(item, known) for item in message.items))
        if isinstance(message, ToolResults)
        else message
        for message in messages
    ]


def _settle_result(item: CallOutcome, known: dict[str, ToolResult]) -> CallOutcome:
    if item.call.name != "send" or item.result.kind != "unknown":
        return item
    return CallOutcome(item.call, known[item.call.id])


def check_story(this: FinishedStory, twin: FinishedStory) -> None:
    """J2, J3, J4, B1: the same conversation, nothing twice, nothing lost, nothing paid again."""
    outside = this.outside
    assert settle_unknown_sends(this.messages, twin.messages) == list(twin.messages)
    assert (this.text, outside.paid_twice) == (twin.text, [])
    assert this.spent >= _total_tokens(this) > 0
    for name in ("note", "pay"):
        assert outside.times(name) == twin.outside.times(name)
    assert set(outside.times("tag")) == set(twin.outside.times("tag"))
    assert all(len(keys) == 1 for keys in outside.keys.values())
    assert not outside.times("wipe")
    sent = outside.times("send")
    results = _send_results(this.messages)
    assert all(count == 1 for count in sent.values())
    for call_id, result in results.items():
        if result.kind == "value":
            assert sent[f"{SESSION}/{call_id}"] == 1


def _total_tokens(this: FinishedStory) -> int:
    """The tokens of all requests, the helper's included; a lost one counts as all it might cost."""
    run = fold(SESSION, this.facts).run
    usage = run.ledger.usage if run else None
    return usage.input + usage.output if usage else 0


def _send_results(messages: Sequence[Message]) -> dict[str, ToolResult]:
    """What the letters came to, by call."""
    return {
        item.call.id: item.result
        for message in messages
        if isinstance(message, ToolResults)
        for item in message.items
        if item.call.name == "send"
    }
