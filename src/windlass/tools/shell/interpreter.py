"""The tool `python`: runs code in an interpreter that keeps its state between calls.

Invariant: the interpreter is a command of the shell, in the same sandbox, and ends with its run,
its time-out, its cancel and the runtime. When its state is lost, the next result says so. Code that
may call tools makes no call itself: it asks the run to, and the run judges and records it, in a
session that begins with the first call. What their results brought along is brought along by the
result of the code.
"""

import asyncio
import base64
import os
import weakref
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, final

import msgspec
from msgspec import Meta

from windlass.core.errors import ConfigError
from windlass.core.messages import (
    CallOutcome,
    ContentPart,
    ImagePart,
    TextPart,
    ToolResult,
)
from windlass.core.text_clip import clip_line
from windlass.ports import CallerRun, NestedCall, NestedCalls, NestingCall
from windlass.tools.function import UNKNOWN, Tool, tool
from windlass.tools.helper_programs import find_program
from windlass.tools.run_context import RunContext
from windlass.tools.shell.python_process import Interpreter, WorkerCall, WorkerReply
from windlass.tools.shell.sandbox import DEFAULT_PATH, Sandbox
from windlass.tools.shell.shell_tools import HasRoot, WorkspaceShell, open_shell

LISTED_MAX = 50
"""Calls that a report about interrupted code lists; the last ones."""
ARGUMENTS_CHARS_MAX = 200
WATCH_S = 0.3
"""How often an idle interpreter checks whether its run continues."""
IMAGE_BYTES_MAX = 5 * 2**20
TOOLS_NOTE = (
    " Your other tools are functions in it, with the same names and arguments: use them to make "
    "many calls, or to work on long results without reading them. Each returns its result as str "
    "(parse JSON with json.loads) and raises ToolError if it fails or is denied."
)
NEW_NOTE = "[a new interpreter: nothing from earlier calls is defined in it]"


class CodeSession:
    """One piece of code, with the calls that it makes."""

    def __init__(
        self, interpreter: Interpreter, nested: NestedCalls | None, calls_max: int
    ) -> None:
        self._interpreter = interpreter
        self._nested = nested
        self._calls_left = calls_max
        self._calls_max = calls_max
        self._reply: WorkerReply | None = None
        self._first_call: WorkerCall | None = None
        self.has_called = False

    async def run(self, code: str) -> WorkerReply | None:
        """Run the code and return its reply; None if the process died."""
        tools = self._nested.specs if self._nested else ()
        await self._interpreter.send_code(code, tools)
        message = await self._interpreter.read_message()
        if not isinstance(message, WorkerCall):
            return message
        if self._nested is None:
            # Only code that was not given tools can get here, by a file that it wrote itself.
            return WorkerReply("This code may not call tools.", failed=True)
        # The session of the calls begins with the first one: most code makes none.
        self._first_call = message
        self.has_called = True
        await self._nested.run(self)
        return self._reply

    async def next_call(self, last: ToolResult | None) -> NestedCall | None:
        """Give the code the result of its last call; return its next one, or None at its end."""
        message = self._first_call
        self._first_call = None
        if last is not None:
            message = await self._exchange(last)
        while isinstance(message, WorkerCall) and (refusal := self._refuse_call(message)):
            message = await self._exchange(ToolResult.from_text("error", refusal))
        if isinstance(message, WorkerCall):
            self._calls_left -= 1
            return NestedCall(message.name, bytes(message.arguments).decode(errors="replace"))
        self._reply = message
        return None

    def _refuse_call(self, call: WorkerCall) -> str:
        """Return why a call is not even judged; empty if it is."""
        if not call.name:
            return "The call cannot be read, or its arguments are too long."
        if self._calls_left <= 0:
            return f"This code has made {self._calls_max} calls, and no more are allowed."
        return ""

    async def _exchange(self, result: ToolResult) -> WorkerReply | WorkerCall | None:
        await self._interpreter.send_result(result)
        return await self._interpreter.read_message()


def nest_calls(run: CallerRun, context: RunContext, code: str) -> NestedCalls | None:
    if run.world.nest_calls is None or context.call is None:
        return None
    nesting = NestingCall(context.call, context.call_id, context.tool_name, code)
    return run.world.nest_calls(run, nesting)


async def reconcile_code(
    run: CallerRun, context: RunContext, code: str, timeout_s: float | None = None
) -> object:
    """Say what the code of an interrupted call had called, and close the session of its calls.

    If it had done something by then, no person is asked whether to repeat all of it.
    """
    del timeout_s
    nested = nest_calls(run, context, code)
    if nested is None:
        return UNKNOWN
    await nested.end()
    outcome = await nested.read_outcome()
    effects = {spec.name for spec in nested.specs if spec.effect != "read"}
    if not any(one.call.name in effects for one in outcome.calls if one.call.id in outcome.started):
        return UNKNOWN
    text = "Interrupted: the code was running. It is not known what it did besides its calls."
    return await add_nested(ToolResult.from_text("unknown", text), nested, lists_calls=True)


async def add_nested(
    result: ToolResult, nested: NestedCalls | None, *, lists_calls: bool = False
) -> ToolResult:
    """Return the result of code with what its calls brought along, and with what they did."""
    if nested is None:
        return result
    outcome = await nested.read_outcome()
    content = result.content
    if lists_calls or result.kind == "timed_out":
        lines = [_describe_call(one, outcome.started) for one in outcome.calls[-LISTED_MAX:]]
        note = "\n".join([f"Calls that it had made ({len(outcome.calls)} in all):", *lines])
        content = (*content, TextPart(f"\n{note}"))
    labels = tuple(sorted(outcome.labels))
    return msgspec.structs.replace(result, content=content, labels=labels)


def _describe_call(one: CallOutcome, started: Collection[str]) -> str:
    done = {"value": "done", "cancelled": "unknown whether it took effect"}
    what = done.get(one.result.kind, one.result.kind)
    if one.result.kind == "cancelled" and one.call.id not in started:
        what = "not started"
    return f"- {one.call.name}({clip_line(one.call.arguments, ARGUMENTS_CHARS_MAX)}): {what}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PythonLimits:
    """What the interpreter may use."""

    timeout_s: float = 60.0
    """Of a call, unless the model asks for another."""
    timeout_s_max: float = 600.0
    memory_bytes: int = 2 * 2**30
    """Address space of the interpreter."""
    calls_max: int = 1_000
    """Calls of tools that the code of one call may make."""


class PythonInterpreters:
    """The interpreters of one workspace: one for each run."""

    def __init__(self, shell: WorkspaceShell, limits: PythonLimits, program: str) -> None:
        self.shell = shell
        self.limits = limits
        self._program = program
        self._running: dict[tuple[str, int], Interpreter] = {}
        self._watchers: set[asyncio.Task[None]] = set()

    async def run(
        self, context: RunContext, code: str, timeout_s: float, nested: NestedCalls | None = None
    ) -> ToolResult:
        """Run a piece of code in the interpreter of the run."""
        interpreter = self._find_interpreter(context)
        session = CodeSession(interpreter, nested, self.limits.calls_max)
        reply = None
        why_lost = "Its calls were ended from outside, so that the code was killed."
        try:
            async with asyncio.timeout(timeout_s):
                reply = await session.run(code)
        except TimeoutError:
            why_lost = f"The code ran for more than {timeout_s:g} s and was killed."
        except asyncio.CancelledError:
            await interpreter.stop()
            raise
        if reply is None:
            result = await self._report_loss(interpreter, why_lost)
        else:
            result = _build_result(interpreter, reply)
            interpreter.is_new = False
        return await add_nested(result, nested) if session.has_called else result

    def _find_interpreter(self, context: RunContext) -> Interpreter:
        key = (context.session_id, context.run)
        interpreter = self._running.get(key)
        if interpreter is None or not interpreter.job.is_running:
            interpreter = self._running[key] = Interpreter(self.shell, self._program)
            watcher = asyncio.create_task(self._end_with_run(context, key, interpreter))
            self._watchers.add(watcher)
            watcher.add_done_callback(self._watchers.discard)
        return interpreter

    async def _report_loss(self, interpreter: Interpreter, why_lost: str) -> ToolResult:
        """Return the result for the model; `why_lost` is why a process that still runs is ended."""
        was_running = interpreter.job.is_running
        await interpreter.stop()
        text = why_lost
        if not was_running:
            output, _ = interpreter.job.output.read_text()
            text = f"The interpreter died: {interpreter.job.state_text}. {output[-2_000:]}"
        text += " All that it had defined is lost; the next call begins with a new interpreter."
        return ToolResult.from_text("timed_out" if was_running else "error", text)

    async def _end_with_run(
        self, context: RunContext, key: tuple[str, int], interpreter: Interpreter
    ) -> None:
        """End an interpreter when its run is over, or continues elsewhere."""
        # A tool is not notified when its run ends.
        while interpreter.job.is_running and await context.still_driving():
            ended = asyncio.wrap_future(interpreter.job.end_future)
            await asyncio.wait({ended}, timeout=WATCH_S)
            ended.cancel()  # This wait only.
        await interpreter.stop()
        if self._running.get(key) is interpreter:
            del self._running[key]


def python_tool(
    root: Path | HasRoot,
    *,
    sandbox: Sandbox | None = None,
    environ: Mapping[str, str] | None = None,
    limits: PythonLimits | None = None,
    program: str | None = None,
    call_tools: bool = False,
) -> Tool[..., Any]:
    """Build the tool `python` for a workspace: code in an interpreter that keeps its state.

    Args:
        root: The folder in which code runs.
        sandbox: How it is confined; by default as well as this machine can.
        environ: The environment of which it inherits what `Sandbox.pass_env` names.
        limits: Time and memory.
        program: The Python that is used, as the sandbox sees it; by default `python3` there.
        call_tools: Whether the code may call the other tools of the agent as functions.

    Raises:
        ConfigError: There is no Python, or the sandbox that is required does not work here.
    """
    limits = limits or PythonLimits()
    chosen = sandbox or Sandbox()
    env = {"MPLBACKEND": "Agg", **chosen.env}
    confined = replace(chosen, memory_bytes=limits.memory_bytes, env=env)
    shell = open_shell(root, sandbox=confined, environ=environ)
    interpreters = PythonInterpreters(shell, limits, program or _find_python(shell))
    # Not with the tool, of which the agent may keep only copies.
    weakref.finalize(interpreters, shell.close)
    built = _build_python(interpreters, call_tools=call_tools)
    # The calls of its code run in this process.
    is_isolated = not call_tools
    spec = msgspec.structs.replace(built.spec, notice=shell.sandbox.notice, isolated=is_isolated)
    built = replace(built, spec=spec, recover=shell.recover, only_by_model=True)
    if not call_tools:
        return built
    bind_run = partial(_bind_run, interpreters)
    return replace(built, bind_run=bind_run, bind_reconcile=_bind_reconcile)


def _find_python(shell: WorkspaceShell) -> str:
    """Return the first Python that the sandbox shows: one in a home folder is hidden from it."""
    sandbox = shell.sandbox
    places = os.pathsep.join((sandbox.build_environment()["PATH"], DEFAULT_PATH))
    found = (find_program("python3", sandbox.root, place) for place in places.split(os.pathsep))
    shown = (program for program in found if program and sandbox.shows(Path(program)))
    program = next(shown, None)
    if program is None:
        raise ConfigError(
            "no python3 was found that the tool `python` could use: pass program=, and "
            "Sandbox(readable=…) if it is in a home folder"
        )
    return program


def _bind_run(interpreters: PythonInterpreters, run: CallerRun) -> Callable[..., Any]:
    async def python(context: RunContext, code: str, timeout_s: float | None = None) -> ToolResult:
        nested = nest_calls(run, context, code)
        seconds = timeout_s or interpreters.limits.timeout_s
        return await interpreters.run(context, code, seconds, nested)

    return python


def _bind_reconcile(run: CallerRun) -> Callable[..., Any]:
    return partial(reconcile_code, run)


def _build_result(interpreter: Interpreter, reply: WorkerReply) -> ToolResult:
    note = f"\n{NEW_NOTE}" if interpreter.is_new else ""
    text = f"{reply.output.rstrip() or '(no output)'}{note}"
    content: list[ContentPart] = [TextPart(text)]
    for image in reply.images:
        data = base64.b64decode(image)
        if len(data) <= IMAGE_BYTES_MAX:
            content.append(ImagePart("image/png", data))
    return ToolResult("error" if reply.failed else "value", tuple(content))


def _build_python(interpreters: PythonInterpreters, *, call_tools: bool) -> Tool[..., Any]:
    limits = interpreters.limits
    has_network = interpreters.shell.sandbox.has_network
    network = "" if has_network else " There is no network."

    @tool(
        description=(
            "Run Python code in the workspace folder. Variables, functions and imports stay for "
            "the next call. The value of the last expression is shown, and plots of matplotlib are "
            f"returned as pictures.{network}{TOOLS_NOTE if call_tools else ''}"
        ),
        timeout=limits.timeout_s_max + 20,
        untrusted=has_network,
        external=has_network,
    )
    async def python(
        context: RunContext,
        code: Annotated[str, "The code."],
        timeout_s: Annotated[
            Annotated[float, Meta(gt=0, le=limits.timeout_s_max)] | None,
            f"Seconds until it is killed, and its state lost; {limits.timeout_s:g} by default.",
        ] = None,
    ) -> ToolResult:
        return await interpreters.run(context, code, timeout_s or limits.timeout_s)

    return python
