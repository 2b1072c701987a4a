"""A simulated tool whose code makes the calls that are planned for it, one after another."""

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

from proof.simulate.outside import OutsideWorld, ProcessPower
from proof.simulate.people import call_number
from proof.simulate.plan import CODE
from windlass.core.messages import ToolResult
from windlass.ports import CallerRun, NestedCall
from windlass.tools.function import Tool
from windlass.tools.run_context import RunContext
from windlass.tools.shell.interpreter import add_nested, nest_calls, reconcile_code

SCHEMA = {
    "type": "object",
    "properties": {"code": {"type": "string"}},
    "required": ["code"],
    "additionalProperties": False,
}


class PlannedCode:
    """Code that calls what is planned, whatever the results are."""

    def __init__(self, outside: OutsideWorld, power: ProcessPower, code: str) -> None:
        planned = outside.calls[call_number({"code": code})]
        self._calls = [call for reply in planned.task for call in reply.calls]
        self._power = power

    async def next_call(self, last: ToolResult | None) -> NestedCall | None:
        del last
        await asyncio.sleep(0.02)
        self._power.check_on()
        if not self._calls:
            return None
        call = self._calls.pop(0)
        return NestedCall(call.tool, call.arguments)


def build_code_tool(outside: OutsideWorld, power: ProcessPower) -> Tool[..., Any]:
    """Build the tool. It is a write, as the interpreter is."""

    def bind_run(run: CallerRun) -> Any:  # noqa: ANN401 - a function of a tool
        async def run_code(context: RunContext, code: str) -> ToolResult:
            nested = nest_calls(run, context, code)
            if nested is None:
                raise AssertionError("code runs outside of a run")
            await nested.run(PlannedCode(outside, power, code))
            return await add_nested(ToolResult.from_text("value", f"{code} ran"), nested)

        return run_code

    async def unbound(context: RunContext, code: str) -> str:
        raise AssertionError((context, code))

    built = Tool[..., Any].from_schema(CODE, "Runs code.", SCHEMA, unbound, timeout=None)
    return replace(built, bind_run=bind_run, bind_reconcile=_bind_reconcile)


def _bind_reconcile(run: CallerRun) -> Any:  # noqa: ANN401 - as above
    return partial(reconcile_code, run)
