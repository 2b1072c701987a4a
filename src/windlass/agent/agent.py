"""Agent: where the parts become a whole."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Generic
from weakref import finalize

from typing_extensions import Unpack

from windlass.agent.build import build_parts
from windlass.agent.driver import Opening, RunDriver
from windlass.agent.events import EventStream
from windlass.agent.openings import RunTask
from windlass.agent.options import AgentOptions, check_agent_options
from windlass.agent.output import OutputType
from windlass.agent.run_options import (
    Prompt,
    RefusesContent,
    RunOptions,
    check_prompt,
    check_run_options,
)
from windlass.agent.runs import new_session
from windlass.agent.subagents import make_agent_tool, unreported_charges
from windlass.agent.sync import BackgroundLoop
from windlass.core.errors import ConfigError, failure_error
from windlass.core.events import Event, Fact, SteeringGiven
from windlass.core.faults import Fault
from windlass.core.messages import ContentPart, TextPart
from windlass.core.result import OutputT, RunResult
from windlass.core.state import State
from windlass.core.verdicts import PersonAnswer
from windlass.ports import Model, Watcher
from windlass.runtime.waiting import wait_until_done
from windlass.tools.function import Tool


class Agent(Generic[OutputT]):
    """A model with instructions, tools, a gate, limits and a journal.

    An agent holds no conversation: sessions live in the journal, and any agent with the same
    set-up can go on with them, in any process.
    """

    def __init__(
        self,
        model: Model | str,
        *,
        output_type: type[OutputT] = str,
        **options: Unpack[AgentOptions],
    ) -> None:
        """Make an agent of a model, or of a name such as `openai:gpt-5`. See AgentOptions."""
        check_agent_options(options)
        self._output = OutputType(output_type)
        self.parts = build_parts(model, self._output, options)
        self._main_model = self.parts.world.models[self.parts.setup.model.name]
        self._openings = self.parts.openings
        self._runs = self.parts.runs
        self._background = BackgroundLoop()
        finalize(self, self._background.stop)

    def as_tool(self, name: str = "", description: str = "") -> Tool[..., Any]:
        """A tool that gives a task to this agent, for an agent that this one works for."""
        tool_name = name or self.parts.world.agent
        if not tool_name:
            raise ConfigError("as_tool(): an agent without a name needs one: as_tool(name=…)")
        return make_agent_tool(self.parts, tool_name, description)

    async def run(
        self,
        prompt: Prompt,
        *,
        session: str | None = None,
        on_event: Watcher | None = None,
        **options: Unpack[RunOptions],
    ) -> RunResult[OutputT]:
        """Run a prompt to its end. Raises RunFailed if it fails, which carries the result.

        `on_event` is called with each event and must return at once; `stream` is for the rest.
        `caller` and `context` are for the gate, and for it alone: no model can write them.
        """
        opening = self._open_run(prompt, options)
        return self._raise_if_failed(
            await self._drive_session(session or new_session(), opening, on_event)
        )

    def run_sync(
        self,
        prompt: Prompt,
        *,
        session: str | None = None,
        on_event: Watcher | None = None,
        **options: Unpack[RunOptions],
    ) -> RunResult[OutputT]:
        """Do the same for code that is not async; works inside a running event loop too.

        Ctrl-C stops the run; it ends and is recorded before KeyboardInterrupt goes on.
        """
        session = session or new_session()
        work = self.run(prompt, session=session, on_event=on_event, **options)
        run = self._background.submit(work)
        try:
            return run.result()
        except KeyboardInterrupt:
            self._background.call_soon(self.cancel, session, "interrupted")
            with suppress(Exception):
                run.result()
            raise

    @asynccontextmanager
    async def stream(
        self,
        prompt: Prompt,
        *,
        session: str | None = None,
        **options: Unpack[RunOptions],
    ) -> AsyncGenerator[EventStream[OutputT]]:
        """Run a prompt and watch it: events first, then `events.result`.

        Leaving the block early does not stop the run: it is waited for. An error in the block
        stops it. Raises RunFailed on leaving if the run failed.
        """
        events: EventStream[OutputT] = EventStream()
        opening = self._open_run(prompt, options)
        driver = self._runs.make_driver(session or new_session(), opening, events.push)
        events.set_cancel(driver.cancel)
        task = asyncio.create_task(self._parse_result(driver))
        task.add_done_callback(events.finish)
        try:
            yield events
        except BaseException:
            driver.cancel("the watcher failed")
            await wait_until_done(task)
            raise
        self._raise_if_failed(await task)

    async def resume(
        self, session: str, *, consent: bool = False, on_event: Watcher | None = None
    ) -> RunResult[OutputT]:
        """Go on with a run that a crash, a restart or a pause left open.

        Raises SetupDrifted if this agent is set up otherwise than the run was, unless `consent`.
        Its limits are the ones that count from here on.
        """
        opening = partial(self._openings.open_resumed, consent=consent)
        return self._raise_if_failed(await self._drive_session(session, opening, on_event))

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
        """Answer a question that a run waits for, and go on with the run.

        Give the digest that the question showed, and the answer cannot be for anything else. While
        other questions wait, the run does; `windlass.answer` answers without going on.
        """

        def opening(state: State) -> Sequence[Fact]:
            return self._openings.open_answered(
                state, call_id, verdict, digest=digest, by=by, consent=consent
            )

        return self._raise_if_failed(await self._drive_session(session, opening, on_event))

    def cancel(self, session: str, reason: str = "cancelled") -> bool:
        """Stop the run that this agent drives in a session; from any thread. Whether it had one."""
        return self._runs.cancel(session, reason)

    async def abandon(self, session: str, reason: str = "abandoned") -> RunResult[OutputT]:
        """End a run that nobody drives any more, without going on with it."""
        spent = await unreported_charges(
            self.parts.world.journal, await self._runs.read_state(session)
        )
        opening = partial(self._openings.close_abandoned, reason=reason, charges=spent)
        return await self._runs.write_facts(session, opening)

    def watch(self, session: str, *, after: int = 0) -> AsyncGenerator[Event]:
        """The events of a session past a sequence number: the recorded ones, then the live ones."""
        return self._runs.watch(session, after)

    async def aclose(self) -> None:
        """Stop what is running and wait until nothing is left of it."""
        await self._runs.close()
        if self._background.is_running:
            await asyncio.wrap_future(self._background.submit(self._runs.close()))
        self._background.stop()

    async def steer(self, session: str, prompt: Prompt, *, by: str = "") -> None:
        """Say something to a run that is under way; it is heeded before the next step.

        Returns once it is on record, so that a crash does not lose it.
        """
        await self._runs.steer(session, SteeringGiven(self._check_prompt(prompt), str(by)))

    def _open_run(self, prompt: Prompt, options: RunOptions) -> Opening:
        task = RunTask(prompt=self._check_prompt(prompt), **check_run_options(options))
        return partial(self._openings.open_new, task=task)

    def _check_prompt(self, prompt: Prompt) -> tuple[ContentPart, ...]:
        contents = check_prompt((TextPart(prompt),) if isinstance(prompt, str) else prompt)
        refusal = (
            self._main_model.refusal(contents)
            if isinstance(self._main_model, RefusesContent)
            else None
        )
        if refusal is not None:
            raise ConfigError(refusal)
        return contents

    async def _drive_session(
        self, session: str, opening: Opening, watcher: Watcher | None
    ) -> RunResult[OutputT]:
        return await self._parse_result(self._runs.make_driver(session, opening, watcher))

    async def _parse_result(self, driver: RunDriver) -> RunResult[OutputT]:
        """The result of a run, with its output parsed."""
        result = await self._runs.drive_to_end(driver)
        return (
            replace(result, output=self._output.parse(result.text)) if result.completed else result
        )

    def _raise_if_failed(self, result: RunResult[OutputT]) -> RunResult[OutputT]:
        if result.outcome == "failed":
            raise failure_error(result.error or Fault("bug", result.reason), result)
        return result
