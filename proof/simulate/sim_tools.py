"""Simulated tools. Their effects are recorded in the outside world, by idempotency key."""

import asyncio
from collections.abc import Mapping
from typing import Any

from proof.simulate.outside import OutsideWorld, ProcessPower, ToolEffect
from proof.simulate.plan import CODE, EFFECTS, HELPER
from windlass.core.decide.undoing import undo_tool_name
from windlass.core.messages import ToolResult, ToolSpec
from windlass.core.moves import ClearedCall
from windlass.core.tool_search import CALL_SPEC, SEARCH_SPEC
from windlass.ports import (
    CallContext,
    CallerRun,
    ReconcileOutcome,
    RunBoundTools,
    Tools,
    UndoableTools,
)

SCHEMA = {
    "type": "object",
    "properties": {"number": {"type": "integer"}},
    "required": ["number"],
}
SPECS = tuple(
    ToolSpec(name, name, SCHEMA, effect, undo="" if effect == "read" else effect)
    for name, effect in EFFECTS.items()
)
UNDO_SPECS = tuple(
    ToolSpec(undo_tool_name(spec.name), "undo", SCHEMA, spec.undo) for spec in SPECS if spec.undo
)
WITH_SESSIONS = (HELPER, CODE)
UNDO_HELPER = undo_tool_name(HELPER)
LONG = " and so on" * 40
"""Padding that makes a result long enough to be compacted later."""


class SimTools:
    """The tools of an agent. Others may be a helper, and code that makes calls."""

    def __init__(
        self,
        outside: OutsideWorld,
        power: ProcessPower,
        others: Tools | None = None,
        *,
        searched: bool = False,
    ) -> None:
        self._outside = outside
        self._power = power
        self._others = others
        offered = others.specs if others is not None else ()
        self._searched = searched
        search = (SEARCH_SPEC, CALL_SPEC) if searched else ()
        self.specs = (*SPECS, *(spec for spec in offered if spec.name in WITH_SESSIONS), *search)

    def bind_run(self, run: CallerRun) -> "SimTools":
        """Return the same tools for one run: a helper must know the run that it works for."""
        others = self._others
        if isinstance(others, RunBoundTools):
            others = others.bind_run(run)
        return SimTools(self._outside, self._power, others, searched=self._searched)

    @property
    def nested_specs(self) -> tuple[ToolSpec, ...]:
        return SPECS

    @property
    def undo_specs(self) -> tuple[ToolSpec, ...]:
        own = self._others.undo_specs if isinstance(self._others, UndoableTools) else ()
        return (*UNDO_SPECS, *(spec for spec in own if spec.name == UNDO_HELPER))

    async def take_snapshot(self, cleared: ClearedCall, context: CallContext) -> str:
        if cleared.call.name in WITH_SESSIONS:
            return ""
        context.report("looking before it runs")
        await asyncio.sleep(0.004)
        self._power.check_on()
        if cleared.key in self._outside.started:
            self._outside.problems.append(f"J2: a snapshot of {cleared.key} after its start")
        return f"before {cleared.key}, {len(self._outside.effects)}"

    def resource_of(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        if name in WITH_SESSIONS and self._others is not None:
            return self._others.resource_of(name, arguments)
        # Payments to different accounts may go side by side.
        return f"account-{arguments['number'] % 3}" if name == "pay" else None

    async def run(self, cleared: ClearedCall, context: CallContext) -> ToolResult:
        self._power.check_on()
        outside = self._outside
        if cleared.key not in outside.started:
            outside.problems.append(f"J1: {cleared.key} runs before its start is recorded")
        if cleared.call.name in (*WITH_SESSIONS, UNDO_HELPER) and self._others is not None:
            return await self._others.run(cleared, context)
        number = int(cleared.arguments["number"])
        manner = outside.call_plan(number).manner
        context.report("at work")
        await asyncio.sleep(0.01 * (1 + number % 3))
        self._power.check_on()
        if context.undoes is not None:
            target = f"{context.session}/{context.undoes.call_id}"
            return await self._undo(cleared, target)
        if outside.takes_dose(number):
            self._power.turn_off()
            self._power.check_on()
        if manner == "raise":
            raise OSError("the tool failed")
        self._do_effect(cleared, number)
        if manner == "slow":
            await asyncio.sleep(2.0)
        elif manner == "stubborn":
            await _sleep_ignoring_cancel(3.0)
        self._power.check_on()
        return tool_result(cleared.call.name, number)

    async def _undo(self, cleared: ClearedCall, target: str) -> ToolResult:
        effect = ToolEffect(cleared.key, target, int(cleared.arguments["number"]))
        targets = [each.tool for each in self._outside.undone]
        if cleared.spec.effect == "write" or target not in targets:
            self._outside.undone.append(effect)
        await asyncio.sleep(0.01)
        self._power.check_on()
        return ToolResult.from_text("value", f"{target} is undone")

    def _do_effect(self, cleared: ClearedCall, number: int) -> None:
        effect = cleared.spec.effect
        key = cleared.key
        if effect == "read" or (effect == "idempotent" and self._outside.is_done(key)):
            return
        self._outside.effects.append(ToolEffect(key, cleared.call.name, number))

    async def reconcile(self, cleared: ClearedCall, context: CallContext) -> ReconcileOutcome:
        context.report("looking it up")
        await asyncio.sleep(0.02)
        self._power.check_on()
        if cleared.call.name in WITH_SESSIONS and self._others is not None:
            return await self._others.reconcile(cleared, context)
        if not self._outside.plan.reconciles:
            return "unknown"
        number = int(cleared.arguments["number"])
        if context.undoes is not None:
            undone = any(effect.key == cleared.key for effect in self._outside.undone)
            return ToolResult.from_text("value", "it is undone") if undone else "not_done"
        done = self._outside.is_done(cleared.key)
        return tool_result(cleared.call.name, number) if done else "not_done"


def tool_result(tool: str, number: int) -> ToolResult:
    """Return the result of a tool for a number: different for every tool and number."""
    return ToolResult.from_text("value", f"{tool} {number}{'' if number % 3 else LONG}")


async def _sleep_ignoring_cancel(seconds: float) -> None:
    """Sleep, even if cancelled meanwhile."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds
    while (left := ends - loop.time()) > 1e-6:  # noqa: PLR2004 - finer than a clock can tell
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            continue
