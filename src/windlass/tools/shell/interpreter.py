"""The tool `python`: runs code in an interpreter that keeps its state between calls.

The law: the interpreter is a command of the shell, in the same sandbox, and ends with its run, its
time-out, its cancel and the runtime. When its state is lost, the next result says so. Code that may
call tools makes no call itself: it asks the run to, and the run judges and records it.
"""

import asyncio
import base64
import os
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, final

import msgspec
from msgspec import Meta

from windlass.core.errors import ConfigError
from windlass.core.messages import (
    ContentPart,
    ImagePart,
    TextPart,
    ToolResult,
)
from windlass.ports import CallerRun, NestedCalls
from windlass.tools.function import Tool, tool
from windlass.tools.helper_programs import find_program
from windlass.tools.run_context import RunContext
from windlass.tools.shell.code_calls import CodeSession, add_nested, nest_calls, reconcile_code
from windlass.tools.shell.python_process import Interpreter, WorkerReply
from windlass.tools.shell.sandbox import DEFAULT_PATH, Sandbox
from windlass.tools.shell.tools import HasRoot, WorkspaceShell, open_shell

WATCH_S = 0.3
"""How often an idle interpreter looks whether its run goes on."""
IMAGE_BYTES_MAX = 5 * 2**20
TOOLS_NOTE = (
    " Your other tools are functions in it, with the same names and arguments: use them to make "
    "many calls, or to work on long results without reading them. Each returns its result as str "
    "(parse JSON with json.loads) and raises ToolError if it fails or is denied."
)
NEW_NOTE = "[a new interpreter: nothing from earlier calls is defined in it]"


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
        """Return what the model is told; `why_lost` is why a process that still runs is ended."""
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
        """End an interpreter when its run is over, or goes on elsewhere."""
        # Nobody tells a tool that its run has ended.
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
            "no python3 was found that the tool `python` could use: give program=, and "
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
    content: list[ContentPart] = [TextPart(text), *_decode_images(reply.images)]
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


def _decode_images(images: tuple[str, ...]) -> list[ImagePart]:
    decoded = [base64.b64decode(image) for image in images]
    return [ImagePart("image/png", data) for data in decoded if len(data) <= IMAGE_BYTES_MAX]
