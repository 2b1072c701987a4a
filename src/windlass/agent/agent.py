"""Agent: where the parts become a whole."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any, Generic, Protocol, TypedDict, runtime_checkable
from weakref import finalize

import msgspec

from windlass.agent.background import Background
from windlass.agent.clock import RealClock
from windlass.agent.driver import Driver, Opening
from windlass.agent.output import Output
from windlass.agent.runs import Runs, new_session, see_out
from windlass.agent.watch import Events
from windlass.config import environment
from windlass.core.errors import ConfigError, failure
from windlass.core.events import Event, Fact
from windlass.core.faults import Fault
from windlass.core.messages import Content, Text
from windlass.core.result import OutputT, RunResult
from windlass.core.schema import Schema
from windlass.core.setup import Limits, Price, Retries, Rules, Setup
from windlass.core.state import State
from windlass.core.verdicts import Answer
from windlass.journals.memory import MemoryJournal
from windlass.models.dialect import Options
from windlass.ports import Clock, Gate, Journal, Model, Timeouts, Tools, Watcher, World
from windlass.tools.toolbox import Toolbox

Prompt = str | Sequence[Content]
Resolve = Callable[..., Model]


class Named(TypedDict):
    """What may be said about a model that is given by its name."""

    key: str | None
    base_url: str | None
    options: Options | None
    price: Price | None


@runtime_checkable
class Choosy(Protocol):
    """A model that knows beforehand what it cannot take."""

    def refusal(self, parts: Sequence[Content]) -> str | None: ...


class Agent(Generic[OutputT]):
    """A model with instructions, tools, a gate, limits and a journal.

    An agent holds no conversation: sessions live in the journal, and any agent with the same
    set-up can go on with them, in any process.
    """

    def __init__(  # noqa: PLR0913 - each part has a default, and its name
        self,
        model: Model | str,
        *,
        fallbacks: Sequence[Model | str] = (),
        key: str | None = None,
        base_url: str | None = None,
        options: Options | None = None,
        price: Price | None = None,
        instructions: str = "",
        tools: Tools | Sequence[Callable[..., Any]] = (),
        gate: Gate | None = None,
        limits: Limits | None = None,
        journal: Journal | None = None,
        output_type: type[OutputT] = str,
        rules: Rules | None = None,
        retries: Retries | None = None,
        timeouts: Timeouts | None = None,
        clock: Clock | None = None,
    ) -> None:
        timeouts = timeouts or Timeouts()
        named = Named(key=key, base_url=base_url, options=options, price=price)
        models = _all_resolved(model, fallbacks, timeouts, named)
        self._asked = models[0]
        toolbox = Toolbox(tools) if isinstance(tools, Sequence) else tools
        self._output = Output(output_type)
        world = World(
            models={one.info.name: one for one in models},
            tools=toolbox,
            gate=gate,
            journal=journal or MemoryJournal(),
            clock=clock or RealClock(),
            timeouts=timeouts,
            schemas={spec.name: Schema(spec.parameters) for spec in toolbox.specs},
            fit=None if self._output.plain else self._output.misfit,
        )
        setup = _setup(world, instructions, self._output.schema, limits, retries, rules)
        self._runs = Runs(world, setup)
        self._background = Background()
        finalize(self, self._background.stop)

    async def run(
        self, prompt: Prompt, *, session: str | None = None, on_event: Watcher | None = None
    ) -> RunResult[OutputT]:
        """Run a prompt to its end. Raises RunFailed if it fails, which carries the result.

        `on_event` is called with each event and must return at once; `stream` is for the rest.
        """
        opening = self._begin(prompt)
        return self._checked(await self._drive(session or new_session(), opening, on_event))

    def run_sync(
        self, prompt: Prompt, *, session: str | None = None, on_event: Watcher | None = None
    ) -> RunResult[OutputT]:
        """Do the same for code that is not async; works inside a running event loop too.

        Ctrl-C stops the run; it ends and is recorded before KeyboardInterrupt goes on.
        """
        session = session or new_session()
        run = self._background.submit(self.run(prompt, session=session, on_event=on_event))
        try:
            return run.result()
        except KeyboardInterrupt:
            self._background.call(self.cancel, session, "interrupted")
            with suppress(Exception):
                run.result()
            raise

    @asynccontextmanager
    async def stream(
        self, prompt: Prompt, *, session: str | None = None
    ) -> AsyncGenerator[Events[OutputT]]:
        """Run a prompt and watch it: events first, then `events.result`.

        Leaving the block early does not stop the run: it is waited for. An error in the block
        stops it. Raises RunFailed on leaving if the run failed.
        """
        events: Events[OutputT] = Events()
        driver = self._runs.driver(session or new_session(), self._begin(prompt), events.push)
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
        opening = partial(self._runs.take_over, consent=consent)
        return self._checked(await self._drive(session, opening, on_event))

    async def answer(
        self,
        session: str,
        call_id: str,
        verdict: Answer,
        *,
        by: str = "",
        consent: bool = False,
        on_event: Watcher | None = None,
    ) -> RunResult[OutputT]:
        """Answer a question that a run waits for, and go on with the run."""

        def opening(state: State) -> Sequence[Fact]:
            return self._runs.answer(state, call_id, verdict, by=by, consent=consent)

        return self._checked(await self._drive(session, opening, on_event))

    def cancel(self, session: str, reason: str = "cancelled") -> bool:
        """Stop the run that this agent drives in a session; from any thread. Whether it had one."""
        return self._runs.cancel(session, reason)

    async def abandon(self, session: str, reason: str = "abandoned") -> RunResult[OutputT]:
        """End a run that nobody drives any more, without going on with it."""
        return await self._runs.write(session, partial(self._runs.abandon, reason=reason))

    def watch(self, session: str, *, after: int = 0) -> AsyncGenerator[Event]:
        """The events of a session past a sequence number: the recorded ones, then the live ones."""
        return self._runs.watch(session, after)

    async def aclose(self) -> None:
        """Stop what is running and wait until nothing is left of it."""
        await self._runs.close()
        if self._background.alive:
            await asyncio.wrap_future(self._background.submit(self._runs.close()))
        self._background.stop()

    def _begin(self, prompt: Prompt) -> Opening:
        parts = _presentable((Text(prompt),) if isinstance(prompt, str) else prompt)
        refusal = self._asked.refusal(parts) if isinstance(self._asked, Choosy) else None
        if refusal is not None:
            raise ConfigError(refusal)
        return partial(self._runs.begin, prompt=parts)

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


def _presentable(prompt: Sequence[Content]) -> tuple[Content, ...]:
    """Refuse a prompt that no journal could keep or no model could be shown."""
    try:
        parts = tuple(prompt)
        msgspec.convert(msgspec.to_builtins(parts), type=tuple[Content, ...])
        msgspec.json.encode(parts)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the prompt is neither text nor parts: {error}") from None
    if not any(not isinstance(part, Text) or part.text.strip() for part in parts):
        raise ConfigError("the prompt is empty")
    return parts


def _all_resolved(
    model: Model | str,
    fallbacks: Sequence[Model | str],
    timeouts: Timeouts,
    named: Named,
) -> list[Model]:
    others = [fallbacks] if isinstance(fallbacks, str) else fallbacks
    return [_resolved(model, timeouts, named), *(_resolved(other, timeouts) for other in others)]


def _resolved(model: Model | str, timeouts: Timeouts, named: "Named | None" = None) -> Model:
    if not isinstance(model, str):
        if named and any(named.values()):
            given = ", ".join(f"{name}=" for name, value in named.items() if value)
            raise ConfigError(f"{given} goes with the name of a model, not with a model")
        return model
    # The wire is half of what there is to load, and who brings a model of their own needs none of
    # it: so it is loaded when a model is named.
    resolve: Resolve = import_module("windlass.models.resolve").resolve
    return resolve(model, environ=environment(), timeouts=timeouts, **(named or {}))


def _setup(
    world: World,
    instructions: str,
    output_schema: dict[str, Any] | None,
    limits: Limits | None,
    retries: Retries | None,
    rules: Rules | None,
) -> Setup:
    """What is recorded with each run: all that decides what it may do."""
    gate, (model, *fallbacks) = world.gate, [one.info for one in world.models.values()]
    unknown = [info.name for info in (model, *fallbacks) if info.price is None]
    if limits is not None and limits.usd is not None and unknown:
        raise ConfigError(
            f"Limits(usd=…): the price of {unknown[0]} is not known, so that money cannot be "
            "limited. Give the model a price, or limit tokens."
        )
    setup = Setup(
        model=model,
        fallbacks=tuple(fallbacks),
        tools=world.tools.specs,
        gate=gate.name if gate else "",
        judge_replies=world.fit is not None or bool(gate and gate.judges_replies),
        instructions=instructions,
        output_schema=output_schema,
        limits=limits or Limits(),
        retries=retries or Retries(),
        rules=rules or Rules(),
    )
    try:
        return msgspec.convert(msgspec.to_builtins(setup), type=Setup)
    except msgspec.ValidationError as error:
        raise ConfigError(f"a setting is not what it must be: {error}") from None
