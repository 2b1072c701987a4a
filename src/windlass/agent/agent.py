"""Agent: where the parts become a whole."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Generic
from weakref import finalize

from typing_extensions import Unpack

from windlass.agent.build import assembled
from windlass.agent.driver import Driver, Opening
from windlass.agent.events import Events
from windlass.agent.openings import Task
from windlass.agent.options import AgentOptions, check_options
from windlass.agent.output import Output
from windlass.agent.run_options import Choosy, Prompt, RunOptions, checked, presentable
from windlass.agent.runs import new_session
from windlass.agent.subagents import as_tool, owed
from windlass.agent.sync import Background
from windlass.core.errors import ConfigError, failure
from windlass.core.events import Event, Fact, Steered
from windlass.core.faults import Fault
from windlass.core.messages import Content, Text
from windlass.core.result import OutputT, RunResult
from windlass.core.state import State
from windlass.core.verdicts import Reply
from windlass.ports import Model, Watcher
from windlass.runtime.waiting import see_out
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
        check_options(options)
        self._output = Output(output_type)
        self.parts = assembled(model, self._output, options)
        self._asked = self.parts.world.models[self.parts.setup.model.name]
        self._openings = self.parts.openings
        self._runs = self.parts.runs
        self._background = Background()
        finalize(self, self._background.stop)

    def as_tool(self, name: str = "", description: str = "") -> Tool[..., Any]:
        """A tool that gives a task to this agent, for an agent that this one works for."""
        called = name or self.parts.world.agent
        if not called:
            raise ConfigError("as_tool(): an agent without a name needs one: as_tool(name=…)")
        return as_tool(self.parts, called, description)

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
        opening = self._begin(prompt, options)
        return self._checked(await self._drive(session or new_session(), opening, on_event))

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
            self._background.call(self.cancel, session, "interrupted")
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
    ) -> AsyncGenerator[Events[OutputT]]:
        """Run a prompt and watch it: events first, then `events.result`.

        Leaving the block early does not stop the run: it is waited for. An error in the block
        stops it. Raises RunFailed on leaving if the run failed.
        """
        events: Events[OutputT] = Events()
        opening = self._begin(prompt, options)
        driver = self._runs.driver(session or new_session(), opening, events.push)
        events.on_cancel(driver.cancel)
        task = asyncio.create_task(self._seen(driver))
        task.add_done_callback(events.end)
        try:
            yield events
        except BaseException:
            driver.cancel("the watcher failed")
            await see_out(task)
            raise
        self._checked(await task)

    async def resume(
        self, session: str, *, consent: bool = False, on_event: Watcher | None = None
    ) -> RunResult[OutputT]:
        """Go on with a run that a crash, a restart or a pause left open.

        Raises SetupDrifted if this agent is set up otherwise than the run was, unless `consent`.
        Its limits are the ones that count from here on.
        """
        opening = partial(self._openings.resume, consent=consent)
        return self._checked(await self._drive(session, opening, on_event))

    async def answer(
        self,
        session: str,
        call_id: str,
        verdict: Reply,
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
            return self._openings.answer(
                state, call_id, verdict, digest=digest, by=by, consent=consent
            )

        return self._checked(await self._drive(session, opening, on_event))

    def cancel(self, session: str, reason: str = "cancelled") -> bool:
        """Stop the run that this agent drives in a session; from any thread. Whether it had one."""
        return self._runs.cancel(session, reason)

    async def abandon(self, session: str, reason: str = "abandoned") -> RunResult[OutputT]:
        """End a run that nobody drives any more, without going on with it."""
        spent = await owed(self.parts.world.journal, await self._runs.state(session))
        opening = partial(self._openings.abandon, reason=reason, charges=spent)
        return await self._runs.write(session, opening)

    def watch(self, session: str, *, after: int = 0) -> AsyncGenerator[Event]:
        """The events of a session past a sequence number: the recorded ones, then the live ones."""
        return self._runs.watch(session, after)

    async def aclose(self) -> None:
        """Stop what is running and wait until nothing is left of it."""
        await self._runs.close()
        if self._background.alive:
            await asyncio.wrap_future(self._background.submit(self._runs.close()))
        self._background.stop()

    async def steer(self, session: str, prompt: Prompt, *, by: str = "") -> None:
        """Say something to a run that is under way; it is heeded before the next step.

        Returns once it is on record, so that a crash does not lose it.
        """
        await self._runs.steer(session, Steered(self._presentable(prompt), str(by)))

    def _begin(self, prompt: Prompt, options: RunOptions) -> Opening:
        task = Task(prompt=self._presentable(prompt), **checked(options))
        return partial(self._openings.begin, task=task)

    def _presentable(self, prompt: Prompt) -> tuple[Content, ...]:
        parts = presentable((Text(prompt),) if isinstance(prompt, str) else prompt)
        refusal = self._asked.refusal(parts) if isinstance(self._asked, Choosy) else None
        if refusal is not None:
            raise ConfigError(refusal)
        return parts

    async def _drive(
        self, session: str, opening: Opening, watcher: Watcher | None
    ) -> RunResult[OutputT]:
        return await self._seen(self._runs.driver(session, opening, watcher))

    async def _seen(self, driver: Driver) -> RunResult[OutputT]:
        """The result of a run, with its output parsed."""
        result = await self._runs.see_through(driver)
        return (
            replace(result, output=self._output.parse(result.text)) if result.completed else result
        )

    def _checked(self, result: RunResult[OutputT]) -> RunResult[OutputT]:
        if result.outcome == "failed":
            raise failure(result.error or Fault("bug", result.reason), result)
        return result
