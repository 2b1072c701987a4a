"""Agent: the class that programs use to run, resume, answer, steer and watch."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import PurePath
from typing import Any, Generic
from weakref import finalize

from typing_extensions import Unpack

from windlass.agent import control, lazy_features
from windlass.agent.build import OutputType, build_parts, replace_journal
from windlass.agent.driving import SessionDriver
from windlass.agent.event_stream import EventStream, StreamBlock
from windlass.agent.handles import RunHandle, RunStarter
from windlass.agent.openings import RunOpenings
from windlass.agent.options import (
    OTHER_METHODS,
    AgentOptions,
    AgentParts,
    BuiltAgent,
    PromptInput,
    RunOptions,
    check_agent_options,
)
from windlass.agent.runs import RELEASE_GRACE_S, LiveRuns
from windlass.agent.sync import BackgroundLoop
from windlass.core.errors import ConfigError, NothingToDo, SessionBusy
from windlass.core.events import Event, SteeringGiven
from windlass.core.limits import Limits
from windlass.core.result import OutputT, RunResult, raise_if_failed
from windlass.core.session_summary import check_session, check_text
from windlass.core.suggestions import ForeignNames
from windlass.core.verdicts import PersonAnswer
from windlass.ports import GivenJournal, Model, Watcher
from windlass.runtime.driver import Opening
from windlass.tools.function import Tool


class Agent(BuiltAgent, ForeignNames, Generic[OutputT]):
    """A model with instructions, tools, a gate, limits and a journal.

    An agent holds no conversation: sessions live in the journal, and any agent with the same setup
    can continue them, in any process.
    """

    foreign_names = OTHER_METHODS

    def __init__(
        self,
        model: Model | str,
        *,
        output_type: type[OutputT] = str,
        **options: Unpack[AgentOptions],
    ) -> None:
        """Make an agent of a model, or of a name such as `openai:gpt-5`. See AgentOptions.

        `output_type` is what a final reply must be: text, or any type with a JSON schema, such as
        a dataclass, a TypedDict or a pydantic model. Raises ConfigError.
        """
        check_agent_options(options)
        self._output = OutputType(output_type)
        parts = build_parts(model, self._output, options)
        self._set_up(parts, owns_journal=isinstance(options.get("journal"), str | PurePath))

    def _set_up(self, parts: AgentParts, *, owns_journal: bool) -> None:
        self._parts = parts
        self._owns_journal = owns_journal
        self._openings = RunOpenings(parts)
        self._runs = LiveRuns(parts)
        self._sessions = SessionDriver(self._runs, self._openings)
        self._starter: RunStarter[OutputT] = RunStarter(
            self._runs, self._openings, self._sessions, self._parse_output
        )
        self._background = BackgroundLoop()
        finalize(self, self._background.stop)

    def with_journal(self, journal: GivenJournal) -> "Agent[OutputT]":
        """Return the same agent with another journal. The caller closes the journal itself."""
        return self._with_parts(replace_journal(self._parts, journal))

    def _with_parts(self, parts: AgentParts) -> "Agent[OutputT]":
        copy = object.__new__(type(self))
        copy._output = self._output
        copy._set_up(parts, owns_journal=False)
        return copy

    def as_tool(self, name: str = "", description: str = "") -> Tool[..., Any]:
        """Return a tool that gives a task to this agent: other agents can then use it.

        The tool has the agent's name by default. Raises ConfigError if there is no name.
        """
        tool_name = name or self._parts.world.agent
        if not tool_name:
            raise ConfigError("as_tool(): the agent has no name, so pass one: as_tool(name=…)")
        return lazy_features.make_agent_tool(self._parts, tool_name, description)

    async def run(
        self,
        prompt: PromptInput,
        *,
        session: str | None = None,
        on_event: Watcher | None = None,
        **options: Unpack[RunOptions],
    ) -> RunResult[OutputT]:
        """Run a prompt to its end, or to a question that must wait for a person.

        `session` continues a conversation; a new one is begun by default. `on_event` is called with
        each event and must return at once; to do more with events, use `stream`. `caller` and
        `context` are for the gate: no model can write them. `messages` begins a new session with a
        conversation from elsewhere (see RunOptions). Raises RunFailed, which carries the
        result, if the run fails; SessionBusy if the session is driven already; RunUnfinished if its
        last run is still open.
        """
        handle = await self._starter.start(prompt, session, options, on_event, is_tied=True)
        return raise_if_failed(await handle.wait(is_tied=True))

    async def start(
        self, prompt: PromptInput, *, session: str | None = None, **options: Unpack[RunOptions]
    ) -> RunHandle[OutputT]:
        """Start a run, and return a handle on it as soon as its first record is durable.

        The run is a task of this agent: it continues until it ends or the agent is closed, even if
        no caller waits for it. The same `key` gives the same run again, in any process that shares
        the journal; without `session`, the session's name follows from the agent, the caller and
        the key. Raises what `run` raises before a run begins, and ConfigError if the key was used
        for another prompt.
        """
        return await self._starter.start(prompt, session, options)

    async def drive(
        self, session: str, *, consent: bool = False, on_event: Watcher | None = None
    ) -> RunResult[OutputT] | None:
        """Do whatever a session needs now, and return the result of its last run.

        Takes the waiting messages, resumes an open run unless it is paused or waits for an answer,
        and starts the queued prompts one after the other. Returns when the session has ended,
        waits, is paused or was released. A failed run is a result like any other, and None means
        that the session never had a run. Any process may call it, any number of times. Raises
        SessionBusy if another driver has the session, SetupDrifted if the configuration differs,
        unless `consent` is given, and NothingToDo if the session does not exist. If the caller is
        cancelled, the run is released, not cancelled.
        """
        name = check_session(session)
        result = await self._sessions.drive(name, consent=consent, watcher=on_event)
        return None if result is None else self._parse_output(result)

    async def sweep(
        self, **options: "Unpack[lazy_features.SweepOptions]"
    ) -> "lazy_features.SweepReport":
        """Drive the sessions of this agent that need a driver, and return what was done.

        These are root sessions without a driver whose open run is neither paused nor waiting, and
        those with untaken messages. At most `limit` sessions are inspected, and at most `at_once`
        are driven at a time. A session that was driven `tries_max` times without progress is
        parked: its run is paused, with the reason, until it is resumed. Call this repeatedly, from
        any number of processes; `jitter_s` spreads out processes that wake together. See
        SweepOptions.
        """
        return await self.sweeper.sweep(**options)

    @cached_property
    def sweeper(self) -> "lazy_features.Sweeper":
        """Finds the sessions of this agent that need a driver, and drives them."""
        return lazy_features.Sweeper(self._runs, self._sessions)

    def run_sync(
        self,
        prompt: PromptInput,
        *,
        session: str | None = None,
        on_event: Watcher | None = None,
        **options: Unpack[RunOptions],
    ) -> RunResult[OutputT]:
        """Do the same as `run` for code that is not async; works inside a running event loop too.

        Ctrl-C stops the run, which ends and is recorded before KeyboardInterrupt is raised.
        """
        session = self._openings.name_session(session, options)
        work = self.run(prompt, session=session, on_event=on_event, **options)
        run = self._background.submit(work)
        try:
            return run.result()
        except KeyboardInterrupt:
            self._background.call_soon(self.cancel, session, "interrupted")
            with suppress(Exception):
                run.result()
            raise

    def stream(
        self,
        prompt: PromptInput,
        *,
        session: str | None = None,
        **options: Unpack[RunOptions],
    ) -> StreamBlock[OutputT]:
        """Run a prompt and watch it, in an `async with` block.

        Iterate over the events, or over `events.text()`, then read `events.result`. Leaving the
        block early does not stop the run: it is waited for. An error in the block stops it. Raises
        RunFailed on leaving the block if the run failed.
        """
        return StreamBlock(self._stream(prompt, session, options))

    @asynccontextmanager
    async def _stream(
        self, prompt: PromptInput, session: str | None, options: RunOptions
    ) -> AsyncGenerator[EventStream[OutputT]]:
        events: EventStream[OutputT] = EventStream()
        handle = await self._starter.start(prompt, session, options, events.push, is_tied=True)
        async with handle.stream_into(events):
            yield events

    async def resume(
        self, session: str, *, consent: bool = False, on_event: Watcher | None = None
    ) -> RunResult[OutputT]:
        """Resume a run that a crash, a restart, a release, a pause or a question left open.

        The limits of this agent replace those that the run was started with; what the run has spent
        so far counts against them. A pause that was not taken yet is withdrawn. Raises NothingToDo
        if no run is open, and SetupDrifted if this agent's configuration differs from the one the
        run was started with, unless `consent` is given.
        """
        await control.withdraw_pause(self._parts.world.journal, check_session(session))
        if await self._sessions.is_undo_due(session):
            return await self.undo(session, on_event=on_event)
        if await self._sessions.unpause_queued(session):
            begun = await self.drive(session, consent=consent, on_event=on_event)
            if begun is not None:
                return begun
        opening = partial(self._openings.open_continued, consent=consent)
        return await self._go_on(session, opening, on_event)

    async def answer(
        self,
        session: str,
        call_id: str,
        verdict: PersonAnswer,
        *,
        digest: str | None = None,
        by: str = "",
        consent: bool = False,
        on_event: Watcher | None = None,
    ) -> RunResult[OutputT]:
        """Answer a question that a run waits for, and resume the run.

        `session` is that of the run, or of the sub-agent that asks. Give the digest that the
        question showed, and the answer cannot be for other arguments. The run keeps waiting while
        other questions are open. To answer without resuming the run, use `windlass.answer`. Raises
        what `resume` raises, ConfigError if the answer does not fit, and QuestionDecided if another
        answer was accepted first.
        """
        world = self._parts.world
        asked = await lazy_features.find_question(world.journal, check_session(session), call_id)
        root = asked.root.session
        resumed = partial(self._openings.open_resumed, consent=consent)
        # What would keep the run from resuming is found before the answer counts.
        await self._runs.check_undriven(root)
        resumed(asked.root)
        mask = self._parts.mask
        with lazy_features.accept_expiry():
            await lazy_features.post_answer(
                world.journal, asked, call_id, verdict, digest=digest, by=by, mask=mask
            )
        return await self._go_on(root, resumed, on_event)

    async def undo(
        self,
        session: str,
        *,
        run: int | None = None,
        caller: str = "",
        limits: Limits | None = None,
        on_event: Watcher | None = None,
    ) -> RunResult[OutputT]:
        """Undo what a run did, the last call first; by default the last run that can be undone.

        Undoing is its own run, with its own `limits`: no model is asked, and the gate judges
        each call. Raises NothingToDo if there is nothing to undo, RunUnfinished if the last run is
        open, and RunFailed, which carries the result, if a call could not be undone.
        """
        opening = await self._sessions.plan_undo(check_session(session), run, caller, limits)
        return await self._drive(session, opening, on_event)

    def cancel(self, session: str, reason: str = "cancelled") -> bool:
        """Stop the run of a session, from any thread. Returns whether this agent drives one."""
        return self._runs.cancel(check_session(session), reason)

    async def abandon(self, session: str, reason: str = "abandoned") -> RunResult[OutputT]:
        """End a run without a driver, together with its sub-agents, without resuming it.

        Raises NothingToDo if no run is open, SessionBusy if it is still driven.
        """
        return await self._runs.abandon(check_session(session), str(reason))

    def watch(self, session: str, *, after: int = 0) -> AsyncGenerator[Event]:
        """Yield the events of a session after a sequence number: recorded ones, then live ones.

        Raises NothingToDo if there is no such session.
        """
        return self._runs.watch(check_session(session), after)

    def release(
        self,
        session: str,
        reason: str = "released",
        grace_s: float = RELEASE_GRACE_S,
        *,
        reply_s: float = 0.0,
    ) -> bool:
        """Release the run of a session without ending it, from any thread.

        No further request or call starts; running calls get `grace_s` seconds to finish, and a
        reply that is being written gets `reply_s`: cut off, it would be paid for again. Then any
        process can `resume` the run. Returns whether this agent was driving one.
        """
        return self._runs.release(session, reason, grace_s, reply_s)

    async def wait_until_idle(self) -> None:
        """Wait until all runs of this agent that are driven now have ended, wait or are released.

        It stops none of them; runs that start meanwhile are not waited for.
        """
        await self._runs.wait_until_idle()

    def driven_sessions(self) -> list[str]:
        """Return the sessions whose runs this agent drives now."""
        return self._runs.live_sessions()

    async def aclose(self, *, cancel: bool = False) -> None:
        """Release all runs of this agent, and wait until none of their tasks is left.

        Any process with the journal can resume them. Runs in memory are cancelled, because no other
        process could resume them; `cancel=True` cancels all runs.
        """
        self._sessions.close()
        journal = self._parts.world.journal
        cancel = cancel or not journal.is_kept
        await self._runs.close(cancel=cancel)
        if self._background.is_running:
            closing = self._background.submit(self._runs.close(cancel=cancel))
            await asyncio.wrap_future(closing)
        self._background.stop()
        if self._owns_journal:
            await journal.aclose()

    async def steer(self, session: str, prompt: PromptInput, *, by: str = "") -> None:
        """Say something to a run while it is running; it is taken up before the next step.

        Returns once it is recorded, so that a crash does not lose it. Raises NothingToDo if the
        session has no open run, or one that undoes an earlier run.
        """
        parts, by = self._openings.check_prompt(prompt), check_text("by", str(by))
        try:
            await self._runs.steer(check_session(session), SteeringGiven(parts, by))
        except SessionBusy:
            await control.steer(self._parts.world.journal, session, parts, by=by)

    async def _go_on(
        self, session: str, opening: Opening, on_event: Watcher | None
    ) -> RunResult[OutputT]:
        """Resume a session that should have an open run."""
        try:
            return await self._drive(check_session(session), opening, on_event)
        except NothingToDo:
            if (await self._runs.read_state(session)).seq:
                raise
        raise await self._runs.unknown_session(session)

    async def _drive(
        self, session: str, opening: Opening, on_event: Watcher | None
    ) -> RunResult[OutputT]:
        """Drive a run until it ends. If it has to be undone, wait for the undo to finish."""
        launched = await self._runs.begin(
            session, opening, on_event, is_tied=True, waits_for_writer=True
        )
        handle = RunHandle(
            self._runs, session, self._parse_output, run=launched.number, launched=launched
        )
        return raise_if_failed(await handle.wait(is_tied=True))

    def _parse_output(self, result: RunResult[Any]) -> RunResult[OutputT]:
        if not result.completed or result.is_undo:
            return result
        return replace(result, output_or_none=self._output.parse(result.text))


def with_parts(agent: Agent[OutputT], parts: AgentParts) -> Agent[OutputT]:
    """Return an agent with other parts and the same output type; it closes no journal.

    For the packages above this one, as `parts_of` is.
    """
    return agent._with_parts(parts)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - as above
