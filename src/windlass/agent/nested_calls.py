"""Calls that the code of a call makes, such as the code of the interpreter.

The law: such a call is judged, recorded and run like any other, in a session of its own that works
for the run. Instead of a model, the code says what is called next. Nobody can be asked there: the
code would have to wait for days. What would be asked is denied, with the advice to call the tool
directly. After a crash the session is closed and never continued, because the code is gone.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Protocol

from msgspec.structs import replace

from windlass.agent.child_sessions import UndrivenRuns, find_own_session
from windlass.agent.openings import RunOpenings, RunTask
from windlass.core.events import (
    CallDelta,
    CallStarted,
    Event,
    Fact,
    NestedEvent,
    ReplyEnd,
    ReplyPiece,
    TextDelta,
    UsageDelta,
)
from windlass.core.limits import Limits
from windlass.core.messages import CallOutcome, TextPart, ToolResult, ToolResults, ToolSpec, Usage
from windlass.core.result import RunResult
from windlass.core.secrets.mask import Mask
from windlass.core.setup import LoopPolicy, ModelInfo, Price, Setup, fill_loop_defaults
from windlass.core.state import State
from windlass.core.verdicts import Allow, Ask, Deny, Verdict
from windlass.core.view import Prompt
from windlass.ports import (
    CallerRun,
    CallScript,
    Gate,
    GateRequest,
    NestableTools,
    NestedOutcome,
    NestingCall,
    Timeouts,
    Watcher,
    World,
)
from windlass.runtime.driver import Opening, RunDriver
from windlass.runtime.run_control import RunControl

NEVER = 10**9
WHOLE_BYTES_MAX = 8 * 2**20
"""A clipped result up to this size is given to the code as a whole."""
OUTPUT_TOKENS_MAX = 1_000_000
"""Code may pass long arguments."""
ASKED_RULE = "asked-in-code"
UNFINISHED = ("suspended", "paused", "released")
_ENDED = "The code has ended."
_RULES = fill_loop_defaults(
    LoopPolicy(
        parallel_tool_calls=False,
        tools_offered_max=0,
        # Code repeats calls for its own reasons, and no service is asked in between.
        same_call_note=NEVER,
        same_call_stop=NEVER,
        outages_max=NEVER,
    )
)


class DrivesRuns(Protocol):
    """What drives the runs of some sessions."""

    undriven: UndrivenRuns

    def make_driver(
        self, session: str, opening: Opening, watcher: Watcher | None = None
    ) -> RunDriver: ...

    async def drive_to_end(self, driver: RunDriver) -> RunResult[Any]: ...

    async def read_state(self, session: str) -> State: ...


MakeRuns = Callable[[World, Setup, Mask], DrivesRuns]


class ScriptModel:
    """Stands in for a model: each reply is the next call that the code makes. It costs nothing."""

    def __init__(self, name: str, script: CallScript, read_whole: "ReadWhole") -> None:
        self.info = _script_info(name)
        self._script = script
        self._read_whole = read_whole
        self._has_called = False
        self._has_ended = False

    async def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:
        call = None
        # Somebody may have steered the session: then it is asked once more after its end.
        if not self._has_ended:
            result = await self._find_result(prompt) if self._has_called else None
            call = await self._script.next_call(result)
        yield UsageDelta(Usage())
        if call is None:
            self._has_ended = True
            yield TextDelta(_ENDED)
            yield ReplyEnd("end")
            return
        self._has_called = True
        yield CallDelta(0, name=call.name, arguments=call.arguments)
        yield ReplyEnd("calls")

    async def _find_result(self, prompt: Prompt) -> ToolResult | None:
        """Return the result of the last call; what people say to the session stands behind it."""
        for message in reversed(prompt.messages):
            if isinstance(message, ToolResults):
                return await self._read_whole(message.items[-1].result)
        return None


def _script_info(name: str) -> ModelInfo:
    return ModelInfo(f"code:{name}", Price(Decimal(0), Decimal(0)), output_max=OUTPUT_TOKENS_MAX)


class ReadWhole(Protocol):
    """Returns a result that was clipped as it was before."""

    async def __call__(self, result: ToolResult) -> ToolResult: ...


class UnaskedGate:
    """The gate of the run, where nobody can be asked. What a person has granted the run counts."""

    def __init__(self, gate: Gate, tool: str, read_caller: Callable[[], State]) -> None:
        self.gate = gate
        self.name = gate.name
        self.judges_replies = False
        self._tool = tool
        self._read_caller = read_caller

    async def judge(self, request: GateRequest) -> Verdict:
        grants = self._read_caller().grants
        verdict = await self.gate.judge(replace(request, grants=grants))
        if not isinstance(verdict, Ask):
            return verdict
        name = request.tool.name
        reason = (
            f"A person must be asked about this call, which cannot be done from code. Call {name} "
            f"directly, not from {self._tool}."
        )
        return Deny(reason, f"{ASKED_RULE}: {verdict.rule or self.name}")

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:
        raise NotImplementedError((session, text))  # The end of the code is not a reply.


class NestedCallSession:
    """The calls that the code of one call makes."""

    def __init__(self, make_runs: MakeRuns, run: CallerRun, nesting: NestingCall) -> None:
        self._make_runs = make_runs
        self._run = run
        self._nesting = nesting
        self._parent_call = f"{nesting.context.session}/{nesting.call_id}"
        self.specs = self._find_specs()

    def _find_specs(self) -> tuple[ToolSpec, ...]:
        tools = self._run.world.tools
        specs = tools.nested_specs if isinstance(tools, NestableTools) else tools.specs
        setup = self._run.read_state().setup
        # What the run may not call, its code may not call either.
        offered = {spec.name for spec in setup.tools} if setup else set[str]()
        own = self._nesting.name
        return tuple(spec for spec in specs if spec.name in offered and spec.name != own)

    async def run(self, script: CallScript) -> None:
        """Judge, record and run the calls of a script until its end. A cancel ends them, too."""
        state = await self._find_state()
        session = state.session
        name = self._nesting.name
        model = ScriptModel(name, script, partial(self._read_whole, session))
        world = self._make_world(model)
        setup = self._make_setup(world)
        runs = self._make_runs(world, setup, self._run.mask)
        openings = RunOpenings(setup, world, self._run.mask)
        driver = runs.make_driver(
            session, partial(self._open, openings), partial(self._show_nested, session)
        )
        # Code pays for nothing. This says that its session is driven here, and ends with the call.
        self._nesting.context.report_charges(())
        # The run must not let go of its session before this one is free.
        self._nesting.context.keep_leftover(driver.session_freed)
        nest = partial(NestedEvent, self._nesting.call_id, name, session)
        child = WatchedChild(driver.control, nest)
        self._run.add_child(child)
        try:
            result = await runs.drive_to_end(driver)
        finally:
            self._run.remove_child(child)
        if result.outcome in UNFINISHED:
            # Somebody paused it from outside. Code cannot be continued later.
            await self.end()

    def _make_world(self, model: ScriptModel) -> World:
        caller = self._run.world
        gate = caller.gate
        if gate is not None:
            gate = UnaskedGate(gate, self._nesting.name, self._run.read_state)
        return replace(
            caller,
            models={model.info.name: model},
            gate=gate,
            approver=None,
            recall=None,
            check_output=None,
            governor=None,
            # Code may compute for as long as its call may take.
            timeouts=Timeouts(connect_s=None, first_byte_s=None, idle_s=None),
        )

    def _make_setup(self, world: World) -> Setup:
        setup = Setup(
            model=next(iter(world.models.values())).info,
            tools=self.specs,
            gate=world.gate.name if world.gate else "",
            limits=Limits(steps=None),
            rules=_RULES,
        )
        return self._run.mask.mask_setup(setup)

    def _open(self, openings: RunOpenings, state: State) -> Sequence[Fact]:
        """Open a run, in a session that has none or whose last one has ended."""
        state_of_caller = self._run.read_state()
        caller = state_of_caller.run
        task = RunTask(
            prompt=(TextPart(self._nesting.code),),
            caller=caller.caller if caller else "",
            context=caller.context if caller else {},
            parent=self._parent_call,
            labels=tuple(sorted(self._nesting.context.labels)),
            folder=state_of_caller.folder,
        )
        return openings.open_new(state, task)

    def _show_nested(self, session: str, event: Event) -> None:
        nesting = self._nesting
        self._run.show_delta(NestedEvent(nesting.call_id, nesting.name, session, event))

    async def _find_state(self) -> State:
        # The journal holds the code with its secrets masked.
        code = self._run.mask.mask_text(self._nesting.code)
        return await find_own_session(self._run.world.journal, self._parent_call, code)

    async def read_outcome(self) -> NestedOutcome:
        """Return what was called so far."""
        state = await self._find_state()
        facts = await self._run.world.journal.read(state.session)
        results = (one for one in state.transcript if isinstance(one, ToolResults))
        calls: list[CallOutcome] = [item for result in results for item in result.items]
        began = frozenset(fact.call_id for fact in facts if isinstance(fact, CallStarted))
        return NestedOutcome(tuple(calls), began, state.labels - self._nesting.context.labels)

    async def end(self) -> None:
        """End what another driver left open. It is never continued: the code is gone."""
        world = self._run.world
        undriven = UndrivenRuns(world.journal, world.clock, self._run.mask)
        await undriven.end_child(await self._find_state())

    async def _read_whole(self, session: str, result: ToolResult) -> ToolResult:
        """Return a result as it was before it was clipped for a model, if that was stored."""
        blobs = self._run.world.blobs
        texts = [part for part in result.content if isinstance(part, TextPart)]
        if blobs is None or len(result.artifacts) != 1 or len(texts) != 1:
            return result
        data = await blobs.get_blob(session, result.artifacts[0])
        if data is None or len(data) > WHOLE_BYTES_MAX:
            return result
        return replace(result, content=(TextPart(data.decode(errors="replace")),), artifacts=())


class WatchedChild:
    """The run of a script, as its caller sees it: it ends with its call, and only then."""

    def __init__(self, control: RunControl, nest: Callable[[Any], NestedEvent]) -> None:
        self._control = control
        self._nest = nest

    def release(self, reason: str, grace_s: float) -> None:
        """Do nothing: the call is waited for, and then cancelled."""

    def pause(self, reason: str, by: str) -> None:
        """Do nothing: a pause begins when the call is over."""

    def end_pause(self, by: str) -> None:
        """Do nothing, as above."""

    def raise_limits(self, by: str) -> None:
        """Do nothing: code spends no money."""

    def take_snapshot(self) -> Iterable[NestedEvent]:
        return map(self._nest, self._control.take_snapshot())
