"""A process of the soak: many sessions at once, and what people do to them meanwhile.

Any process may continue any session. The first process that looks resumes what a killed process
left, and the first that finds a question answers it.
"""

import asyncio
import os
import random
import sys
import traceback
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from plan import MARKS, roll_plan

from windlass import (
    NOT_DONE,
    Agent,
    Allow,
    Deny,
    LoopPolicy,
    NothingToDo,
    Question,
    RetryPolicy,
    RunContext,
    RunFailed,
    RunResult,
    SessionBusy,
    Timeouts,
    Tool,
    tool,
)
from windlass.core.fold.run import fold
from windlass.core.result import open_questions
from windlass.core.session_summary import UNFINISHED_STATES
from windlass.gates.rules import Rule, RuleGate
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.models.resolve import resolve_model
from windlass.tools.mcp.config import McpStdio
from windlass.tools.mcp.servers import McpServer
from windlass.tools.shell.shell_tools import WorkspaceShell, open_shell

EFFECT_S = 0.003
LOOK_S = 2.0
"""Seconds between two looks for abandoned sessions."""
AGENT_RUNS_MAX = 40
"""A new agent is made after so many sessions, as in a program with one for each user."""
EXPECTED = (RunFailed, SessionBusy, NothingToDo)
"""Wire faults that no retry can fix, and people who come too late."""
_GATE = RuleGate([Rule("ask", "send")], default="allow", name="soak")
_RETRIES = RetryPolicy(
    establish_max=8, attempts_max=10, wait_base_s=0.05, wait_max_s=0.4, retry_after_max_s=5.0
)
_TIMEOUTS = Timeouts(first_byte_s=4.0, idle_s=2.0)
_RULES = LoopPolicy(on_partial="restart")


class WorkPlace(NamedTuple):
    """The folder of the soak, its provider, and the share of the process."""

    folder: Path
    url: str
    seed: int
    at_once: int


def append_mark(path: Path, line: str) -> None:
    """Append one line to a file in a single write."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, f"{line}\n".encode())
    finally:
        os.close(handle)


def make_tools(folder: Path) -> list[Tool[..., Any]]:
    """Return a read, a write that can be reconciled, and one that cannot and asks a person."""
    marks = folder / MARKS

    @tool(effect="read")
    async def look(what: str) -> str:
        """Look at something."""
        await asyncio.sleep(EFFECT_S)
        return f"{what}: as it was"

    def find_note(context: RunContext[Any], what: str) -> Any:  # noqa: ANN401 - a value, or NOT_DONE
        done = marks.read_text("utf-8").split() if marks.exists() else ()
        if context.idempotency_key in done:
            return f"{what}: noted"
        return NOT_DONE

    @tool(effect="write", resource="{what}", reconcile=find_note)
    async def note(context: RunContext[Any], what: str) -> str:
        """Write a line down."""
        await asyncio.sleep(EFFECT_S)
        append_mark(marks, context.idempotency_key)
        context.report("written")
        await asyncio.sleep(EFFECT_S)
        return f"{what}: noted"

    @tool(effect="write", resource="{what}")
    async def send(context: RunContext[Any], what: str) -> str:
        """Send a letter. It cannot be looked up later whether it was sent."""
        await asyncio.sleep(EFFECT_S)
        append_mark(marks, context.idempotency_key)
        await asyncio.sleep(EFFECT_S)
        return f"{what}: sent"

    return [look, note, send]


class WorkerLife:
    """The share of the work of one process."""

    def __init__(self, place: WorkPlace, peer: list[Tool[..., Any]], shell: WorkspaceShell) -> None:
        self.journal = SqliteJournal(place.folder / "sessions.db", durability="relaxed")
        self.count: Counter[str] = Counter()
        self.trouble: list[str] = []
        self._url = place.url
        self._at_once = place.at_once
        self._rolls = random.Random(f"{place.seed}/{os.getpid()}")
        self._own = make_tools(place.folder)
        self._more = [*peer, *shell.tools]
        self._agent = self.agent()
        self._runs = 0
        self.runs = 0
        """Runs of this process."""
        self._ended: list[str] = []
        """A few finished sessions, for another prompt."""

    def agent(self) -> Agent[str]:
        model = resolve_model("openai-compatible:soak", base_url=self._url, environ={})
        with_all: dict[str, Any] = {
            "journal": self.journal,
            "retries": _RETRIES,
            "timeouts": _TIMEOUTS,
            "rules": _RULES,
        }
        helper = Agent(model, name="helper", tools=self._own[:2], **with_all)
        tools = [*self._own, *self._more, helper.as_tool()]
        return Agent(model, name="chief", tools=tools, gate=_GATE, **with_all)

    async def work(self, resting: Callable[[], bool]) -> None:
        """Run `at_once` sessions side by side until it is time to rest, and wait for them."""
        async with asyncio.TaskGroup() as slots:
            slots.create_task(self._adopt_abandoned(resting))
            for _ in range(self._at_once):
                slots.create_task(self._work_slot(resting))

    async def resume_all(self, *, helpers: bool = False) -> int:
        """Resume what a dead process left open, and return how many sessions that were."""
        found = [summary.session for summary in await self.journal.list_abandoned()]
        own = [name for name in found if helpers or "/" not in name]
        await asyncio.gather(*(self._resume_session(name) for name in own))
        return len(own)

    async def _resume_session(self, session: str) -> None:
        agent = self._agent
        await self._try_act("resumed", agent.abandon if "/" in session else agent.resume, session)

    async def _adopt_abandoned(self, resting: Callable[[], bool]) -> None:
        while not resting():
            await self.resume_all()
            await asyncio.sleep(LOOK_S)

    async def _work_slot(self, resting: Callable[[], bool]) -> None:
        await asyncio.sleep(self._rolls.random())
        while not resting():
            roll = self._rolls.random()
            if roll < 0.12:
                await self._answer_one()
            elif roll < 0.2 and self._ended:
                await self._run_session(self._ended.pop(0), "followed up")
            else:
                await self._run_session(f"s-{os.urandom(6).hex()}", "begun")

    async def _answer_one(self) -> None:
        some = await self.journal.sessions(state=UNFINISHED_STATES, limit=30)
        waiting = [
            summary.session
            for summary in some
            if summary.state == "waiting" and "/" not in summary.session
        ]
        if not waiting:
            await asyncio.sleep(0.1)
            return
        session = self._rolls.choice(waiting)
        agent = self._agent
        if self._rolls.random() < 0.1:
            await self._try_act("given up", agent.abandon, session)
            return
        calls = [question.call_id for question in await self._open_questions(session)]
        if calls:
            verdict = Allow() if self._rolls.random() < 0.7 else Deny("not today")
            await self._try_act("answered", agent.answer, session, calls[0], verdict)

    async def _open_questions(self, session: str) -> tuple[Question, ...]:
        return open_questions(fold(session, await self.journal.read(session)))

    async def _run_session(self, session: str, how: str) -> None:
        if self._runs >= AGENT_RUNS_MAX:
            self._agent = self.agent()
            self._runs = 0
        self._runs += 1
        self.runs += 1
        agent = self._agent
        prompt = roll_plan(self._rolls).prompt
        manner = self._rolls.random()
        async with self._run_with_meddling(agent, session):
            if manner < 0.2:
                await self._try_act(how, self._stream_run, agent, session, prompt)
            elif manner < 0.4:
                await self._try_act(how, agent.run, prompt, session=session, on_event=_ignore_event)
            else:
                await self._try_act(how, agent.run, prompt, session=session)

    async def _stream_run(self, agent: Agent[str], session: str, prompt: str) -> RunResult[str]:
        """Watch a run to its end, or leave in the middle."""
        leave = self._rolls.random() < 0.3
        async with agent.stream(prompt, session=session) as events:
            async for _ in events:
                if leave and self._rolls.random() < 0.1:
                    break
        return events.result

    @asynccontextmanager
    async def _run_with_meddling(self, agent: Agent[str], session: str) -> AsyncGenerator[None]:
        """Sometimes cancel, steer or watch a run from outside while it is active."""
        roll = self._rolls.random()
        task = None
        if roll < 0.15:
            task = asyncio.create_task(self._cancel_later(agent, session))
        elif roll < 0.3:
            task = asyncio.create_task(self._steer_later(agent, session))
        elif roll < 0.4:
            task = asyncio.create_task(_watch_session(agent, session))
        try:
            yield
        finally:
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def _cancel_later(self, agent: Agent[str], session: str) -> None:
        await asyncio.sleep(self._rolls.random())
        self.count["cancels"] += agent.cancel(session)

    async def _steer_later(self, agent: Agent[str], session: str) -> None:
        await asyncio.sleep(self._rolls.random() / 2)
        with suppress(*EXPECTED):
            await agent.steer(session, "By the way: hurry.")
            self.count["steered"] += 1

    async def _try_act(self, how: str, act: Callable[..., Any], *given: Any, **named: Any) -> None:  # noqa: ANN401
        try:
            result: RunResult[str] = await act(*given, **named)
        except RunFailed as failed:
            self.count["failed"] += 1
            if failed.result.error is not None and failed.result.error.kind in ("bug", "journal"):
                self._note_error(failed)
            return
        except EXPECTED:
            self.count["too late"] += 1
            return
        except Exception as error:  # noqa: BLE001 - that is what the soak is for
            self._note_error(error)
            return
        self.count[how] += 1
        self.count[result.outcome] += 1
        if result.completed and "/" not in result.session_id and len(self._ended) < 20:
            self._ended.append(result.session_id)

    def _note_error(self, error: BaseException) -> None:
        self.trouble.append("".join(traceback.format_exception(error)))


def _ignore_event(_event: object) -> None:
    """A watcher, so that the text is published."""


async def _watch_session(agent: Agent[str], session: str) -> None:
    await asyncio.sleep(0.05)
    async for _ in agent.watch(session):
        pass


@asynccontextmanager
async def open_life(place: WorkPlace) -> AsyncGenerator[WorkerLife]:
    """Open the life of a process, with its shell and its MCP server."""
    peer = Path(__file__).with_name("mcp_peer.py")
    settings = McpStdio(name="peer", command=sys.executable, args=("-I", "-S", str(peer)))
    async with McpServer(settings) as server:
        shell = open_shell(place.folder)
        life = WorkerLife(place, await server.tools(), shell)
        try:
            yield life
        finally:
            await asyncio.to_thread(shell.close)
            life.journal.close()
