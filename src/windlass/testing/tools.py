"""Tools for tests: scripted tools that record their calls, and the conformance suite for tools."""

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from windlass.core.decide.next_move import decide
from windlass.core.events import (
    AttemptStarted,
    CallJudged,
    CallStarted,
    Fact,
    Reservation,
    RunResumed,
    RunStarted,
    StepProposed,
)
from windlass.core.fold.run import apply_fact
from windlass.core.messages import (
    AssistantMessage,
    Effect,
    TextPart,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from windlass.core.moves import ClearedCall, RunCalls
from windlass.core.setup import ModelInfo, Setup
from windlass.core.state import State
from windlass.core.verdicts import Allow
from windlass.ports import CallContext, ReconcileOutcome, Tools
from windlass.tools.results import error_text, to_content


@dataclass(frozen=True, slots=True)
class Delay:
    """Waits, and then shows another behaviour."""

    seconds: float
    then: "Behaviour" = "done"


@dataclass(frozen=True, slots=True)
class Hang:
    """Ends only when it is cancelled."""


@dataclass(frozen=True, slots=True)
class IgnoreCancel:
    """Waits, even if it is cancelled in the meantime, and then shows another behaviour."""

    seconds: float = 60.0
    then: "Behaviour" = "done"


@dataclass(frozen=True, slots=True)
class RaiseFromRun:
    """Raises the error from `Tools.run`, which the port forbids: a failed tool is a result."""

    error: BaseException


Behaviour: TypeAlias = (
    Delay
    | Hang
    | IgnoreCancel
    | RaiseFromRun
    | Exception
    | Callable[[ClearedCall, CallContext], Any]
    | object
)
"""What a call does: one of the classes above, an exception (it becomes an error result), a function
of the call and its context (plain or async), or the value to return."""


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call that was started."""

    call_id: str
    name: str
    key: str
    arguments: Mapping[str, Any]


class RecordingTools:
    """Tools that behave as scripted and record what happened."""

    def __init__(
        self,
        behaviours: Mapping[str, Behaviour] | None = None,
        *,
        effects: Mapping[str, Effect] | None = None,
        resources: Mapping[str, str] | None = None,
        reconciles: Mapping[str, ReconcileOutcome | Exception] | None = None,
        specs: tuple[ToolSpec, ...] = (),
    ) -> None:
        """Make tools.

        Args:
            behaviours: what each tool does, by its name.
            effects: the effect of each tool; `write` by default.
            resources: the resource of a call, as a pattern of its arguments such as "{path}".
            reconciles: what `reconcile` returns or raises for each tool; "unknown" by default.
            specs: specs that replace the generated ones.
        """
        self.calls: list[RecordedCall] = []
        """The calls that were started, in order. A call that ran twice is listed twice."""
        self.finished: list[str] = []
        self.cancelled: list[str] = []
        self.reconciled: list[str] = []
        self.at_once_max = 0
        """The largest number of calls that ran at the same time."""
        self._behaviours = dict(behaviours or {})
        self._resources = dict(resources or {})
        self._reconciles: dict[str, ReconcileOutcome | Exception] = dict(reconciles or {})
        self._running_count = 0
        effects = effects or {}
        given = {spec.name: spec for spec in specs}
        self._specs = tuple(
            given.get(name)
            or ToolSpec(name, f"Does {name}.", {"type": "object"}, effects.get(name, "write"))
            for name in self._behaviours
        )

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools that are offered."""
        return self._specs

    def resource_of(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        pattern = self._resources.get(name)
        return None if pattern is None else pattern.format_map(arguments)

    async def run(self, cleared: ClearedCall, context: CallContext) -> ToolResult:
        """Note the call, and behave as its tool was set up to."""
        call = cleared.call
        self.calls.append(RecordedCall(call.id, call.name, cleared.key, dict(cleared.arguments)))
        self._running_count += 1
        self.at_once_max = max(self.at_once_max, self._running_count)
        try:
            await asyncio.sleep(0)  # So that calls which may run side by side really overlap.
            if call.name not in self._behaviours:
                return ToolResult.from_text("invalid", f"There is no tool {call.name!r}.")
            result = await self._perform_behaviour(self._behaviours[call.name], cleared, context)
            self.finished.append(call.id)
            return result
        except asyncio.CancelledError:
            self.cancelled.append(call.id)
            raise
        finally:
            self._running_count -= 1

    async def _perform_behaviour(
        self, behaviour: Behaviour, cleared: ClearedCall, context: CallContext
    ) -> ToolResult:
        match behaviour:
            case Delay(seconds, then):
                await asyncio.sleep(seconds)
                return await self._perform_behaviour(then, cleared, context)
            case IgnoreCancel(seconds, then):
                await _sleep_ignoring_cancel(seconds)
                return await self._perform_behaviour(then, cleared, context)
            case Hang():
                await asyncio.Event().wait()
                return ToolResult.from_text("error", "never")
            case RaiseFromRun(error):
                raise error
            case Exception():
                return ToolResult.from_text("error", error_text(behaviour))
            case ToolResult():
                return behaviour
            case _ if callable(behaviour):
                return await self._call_function(behaviour, cleared, context)
            case _:
                return ToolResult("value", to_content(behaviour))

    async def _call_function(
        self,
        function: Callable[[ClearedCall, CallContext], Any],
        cleared: ClearedCall,
        context: CallContext,
    ) -> ToolResult:
        try:
            value = function(cleared, context)
            value = await value if inspect.isawaitable(value) else value
        except Exception as error:  # noqa: BLE001 - a failing tool is a result
            return ToolResult.from_text("error", error_text(error))
        return await self._perform_behaviour(value, cleared, context)

    async def reconcile(self, cleared: ClearedCall, context: CallContext) -> ReconcileOutcome:  # noqa: ARG002
        self.reconciled.append(cleared.call.id)
        await asyncio.sleep(0)
        answer = self._reconciles.get(cleared.call.name, "unknown")
        if isinstance(answer, Exception):
            raise answer
        return answer


async def _sleep_ignoring_cancel(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while (left := until - loop.time()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            continue


def cleared_call(
    spec: ToolSpec,
    arguments: Mapping[str, Any] | None = None,
    *,
    call_id: str = "c1",
    session: str = "s",
    started: bool = False,
) -> ClearedCall:
    """Return a call that may run, made from facts as the loop makes it.

    With `started=True` it is a call that a crash interrupted.
    """
    text = msgspec.json.encode(arguments or {}).decode()
    facts: list[Fact] = [
        RunStarted(1, (TextPart("Do it."),), Setup(model=ModelInfo("test:model"), tools=(spec,))),
        AttemptStarted(1, 1, "test:model", Reservation(1, 1)),
        StepProposed(AssistantMessage((ToolCall(call_id, spec.name, text),)), "calls"),
        CallJudged(call_id, Allow()),
    ]
    if started:
        facts += [CallStarted(call_id, f"{session}/{call_id}"), RunResumed()]
    state = State(session)
    for seq, fact in enumerate(facts, 1):
        state = apply_fact(state, msgspec.structs.replace(fact, seq=seq))
    # Only `decide` can make a cleared call: its constructor is sealed.
    move = decide(state)
    assert isinstance(move, RunCalls)
    return move.calls[0]


def call_context(reports: list[str] | None = None, *, session: str = "s") -> CallContext:
    """Return the context of a call that appends its progress and late results to `reports`."""
    received: list[str] = [] if reports is None else reports
    return CallContext(
        session, 1, received.append, on_late_result=lambda result: received.append(result.text)
    )


class ToolsConformance:
    """What all tools must do. A subclass defines the fixture `tools`, which offers three tools.

    `echo` (effect `read`) returns its argument `text`; `fail` fails; `hang` ends only when it is
    cancelled, and has a time-out of an hour or more.
    """

    def run_call(
        self, tools: Tools, name: str, call_id: str = "c1", **arguments: object
    ) -> Awaitable[ToolResult]:
        """Run a tool as the loop would, with a call that was judged."""
        spec = next((spec for spec in tools.specs if spec.name == name), ToolSpec(name, "", {}))
        return tools.run(cleared_call(spec, arguments, call_id=call_id), call_context())

    def test_each_spec_can_be_offered_to_a_model(self, tools: Tools) -> None:
        names = [spec.name for spec in tools.specs]
        assert len(set(names)) == len(names), "two tools have the same name"
        for spec in tools.specs:
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", spec.name)
            assert spec.parameters.get("type") == "object"
            assert msgspec.convert(msgspec.to_builtins(spec), ToolSpec) == spec

    def test_the_specs_do_not_change(self, tools: Tools) -> None:
        assert tools.specs == tools.specs

    async def test_a_call_gives_its_value(self, tools: Tools) -> None:
        result = await self.run_call(tools, "echo", text="hello")
        assert (result.kind, result.text) == ("value", "hello")

    async def test_a_failing_tool_is_a_result(self, tools: Tools) -> None:
        result = await self.run_call(tools, "fail")
        assert result.kind == "error"
        assert result.text
        assert "Traceback" not in result.text

    async def test_an_unknown_tool_is_a_result(self, tools: Tools) -> None:
        result = await self.run_call(tools, "no_such_tool")
        assert result.kind == "invalid"

    async def test_a_failing_call_leaves_its_siblings_alone(self, tools: Tools) -> None:
        calls: list[tuple[str, dict[str, str]]] = [
            ("echo", {"text": "a"}),
            ("fail", {}),
            ("echo", {"text": "b"}),
        ]
        under_way = [
            self.run_call(tools, name, f"c{at}", **given) for at, (name, given) in enumerate(calls)
        ]
        results = await asyncio.gather(*under_way)
        assert [result.kind for result in results] == ["value", "error", "value"]

    async def test_a_cancel_comes_through(self, tools: Tools) -> None:
        running = asyncio.ensure_future(self.run_call(tools, "hang"))
        await asyncio.sleep(1)
        assert not running.done()
        running.cancel()
        done, _ = await asyncio.wait([running], timeout=60)
        assert done, "the tool went on"
        assert running.cancelled()

    def test_a_resource_is_told_or_not_but_never_raises(self, tools: Tools) -> None:
        for name in ("echo", "fail", "hang", "no_such_tool"):
            assert isinstance(tools.resource_of(name, {"text": "x"}), str | None)

    async def test_what_cannot_be_reconciled_is_unknown(self, tools: Tools) -> None:
        for name in ("fail", "no_such_tool"):
            spec = next((spec for spec in tools.specs if spec.name == name), ToolSpec(name, "", {}))
            assert (
                await tools.reconcile(cleared_call(spec, started=True), call_context()) == "unknown"
            )
