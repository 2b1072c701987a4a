"""The tool `python`: runs code in an interpreter that keeps its state between calls.

The law: the interpreter is a command of the shell, in the same sandbox, and ends with its run, its
time-out, its cancel and the runtime. When its state is lost, the next result says so.
"""

import asyncio
import base64
import os
import secrets
import shutil
import stat
import weakref
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, final

import msgspec
from msgspec import Meta

from windlass.core.errors import ConfigError, ModelRetry
from windlass.core.messages import ContentPart, ImagePart, TextPart, ToolResult
from windlass.tools.function import Tool, tool
from windlass.tools.helper_programs import build_program, find_program
from windlass.tools.run_context import RunContext, discard_report
from windlass.tools.shell import python_worker
from windlass.tools.shell.jobs import JobLimits, ShellJob
from windlass.tools.shell.sandbox import DEFAULT_PATH, Sandbox
from windlass.tools.shell.tools import HasRoot, WorkspaceShell, open_shell

FOLDER = Path(".windlass") / "python"
"""Where an interpreter gets its requests, in the workspace."""
POLL_S = 0.02
WATCH_S = 0.3
"""How often an idle interpreter looks whether its run goes on."""
REPLY_BYTES_MAX = 32 * 2**20
IMAGE_BYTES_MAX = 5 * 2**20
NEW_NOTE = "[a new interpreter: nothing from earlier calls is defined in it]"


_WORKER = build_program(python_worker.__name__)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PythonLimits:
    """What the interpreter may use."""

    timeout_s: float = 60.0
    """Of a call, unless the model asks for another."""
    timeout_s_max: float = 600.0
    memory_bytes: int = 2 * 2**30
    """Address space of the interpreter."""


class WorkerReply(msgspec.Struct, frozen=True):
    """What the worker says about one piece of code."""

    output: str
    failed: bool
    images: tuple[str, ...] = ()


class Interpreter:
    """One process that runs the code of one run of a session."""

    def __init__(self, shell: WorkspaceShell, program: str) -> None:
        parent = shell.sandbox.root / FOLDER
        parent.mkdir(parents=True, exist_ok=True)
        if parent.resolve() != parent:
            # A repository may hold a link of that name, which leads to files of the user.
            raise ModelRetry(f"{FOLDER} is a link, so that no interpreter can be started here.")
        self._folder = parent / secrets.token_hex(8)
        self._folder.mkdir()
        # Code can move and link what is in the workspace, but not change what is open here.
        self._folder_fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        os.mkfifo("requests", 0o600, dir_fd=self._folder_fd)
        limits = JobLimits(timeout_s=None, grace_s=0.2, output_bytes_max=64 * 1024)
        argv = [program, "-c", _WORKER, str(self._folder)]
        self.job = ShellJob(
            argv, shell.sandbox, shell.reaper, limits, discard_report, command="python (state)"
        )
        self.is_new = True
        self._requests = 0

    async def run(self, code: str, timeout_s: float) -> WorkerReply | None:
        """Run a piece of code; None if its time is up or the process has died."""
        self._requests += 1
        name = f"{self._requests}.json"
        request = msgspec.json.encode({"code": code, "reply": name}) + b"\n"
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        sent = False
        while self.job.is_running and loop.time() < until:
            if not sent:
                sent = self._send(request)
            elif (reply := self._read_reply(name)) is not None:
                return reply
            await asyncio.sleep(POLL_S)
        return None

    def _send(self, request: bytes) -> bool:
        """Write a request into the pipe; False if the worker does not read yet."""
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW
        try:
            pipe = os.open("requests", flags, dir_fd=self._folder_fd)
        except OSError:
            return False
        with os.fdopen(pipe, "wb") as file:
            if not stat.S_ISFIFO(os.fstat(pipe).st_mode):
                return False
            os.set_blocking(pipe, True)
            file.write(request)
        return True

    def _read_reply(self, name: str) -> WorkerReply | None:
        """Return a reply once it is there. It is read like anything from outside."""
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW
        try:
            reply = os.open(name, flags, dir_fd=self._folder_fd)
        except OSError:
            return None
        with os.fdopen(reply, "rb") as file:
            if not stat.S_ISREG(os.fstat(reply).st_mode):
                return None
            data = file.read(REPLY_BYTES_MAX)
        with suppress(OSError):
            os.unlink(name, dir_fd=self._folder_fd)
        try:
            return msgspec.json.decode(data, type=WorkerReply)
        except msgspec.MsgspecError:
            return WorkerReply("The reply of the interpreter could not be read.", failed=True)

    async def stop(self) -> None:
        """End the process with all that it started, and remove its folder."""
        self.job.stop()
        await asyncio.shield(asyncio.wrap_future(self.job.end_future))
        if self._folder_fd >= 0:
            os.close(self._folder_fd)
            self._folder_fd = -1
            shutil.rmtree(self._folder, ignore_errors=True)


class PythonInterpreters:
    """The interpreters of one workspace: one for each run."""

    def __init__(self, shell: WorkspaceShell, limits: PythonLimits, program: str) -> None:
        self.shell = shell
        self.limits = limits
        self._program = program
        self._running: dict[tuple[str, int], Interpreter] = {}
        self._watchers: set[asyncio.Task[None]] = set()

    async def run(self, context: RunContext, code: str, timeout_s: float) -> ToolResult:
        """Run a piece of code in the interpreter of the run."""
        key = (context.session_id, context.run)
        interpreter = self._running.get(key)
        if interpreter is None or not interpreter.job.is_running:
            interpreter = self._running[key] = Interpreter(self.shell, self._program)
            watcher = asyncio.create_task(self._end_with_run(context, key, interpreter))
            self._watchers.add(watcher)
            watcher.add_done_callback(self._watchers.discard)
        try:
            reply = await interpreter.run(code, timeout_s)
        except asyncio.CancelledError:
            await interpreter.stop()
            raise
        if reply is None:
            return await self._report_loss(interpreter, timeout_s)
        note = f"\n{NEW_NOTE}" if interpreter.is_new else ""
        interpreter.is_new = False
        text = f"{reply.output.rstrip() or '(no output)'}{note}"
        content: list[ContentPart] = [TextPart(text), *_decode_images(reply.images)]
        return ToolResult("error" if reply.failed else "value", tuple(content))

    async def _report_loss(self, interpreter: Interpreter, timeout_s: float) -> ToolResult:
        was_running = interpreter.job.is_running
        await interpreter.stop()
        if was_running:
            text = f"The code ran for more than {timeout_s:g} s and was killed."
        else:
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
) -> Tool[..., Any]:
    """Build the tool `python` for a workspace: code in an interpreter that keeps its state.

    Args:
        root: The folder in which code runs.
        sandbox: How it is confined; by default as well as this machine can.
        environ: The environment of which it inherits what `Sandbox.pass_env` names.
        limits: Time and memory.
        program: The Python that is used, as the sandbox sees it; by default `python3` there.

    Raises:
        ConfigError: There is no Python, or the sandbox that is required does not work here.
    """
    limits = limits or PythonLimits()
    chosen = sandbox or Sandbox()
    env = {"MPLBACKEND": "Agg", **chosen.env}
    confined = replace(chosen, memory_bytes=limits.memory_bytes, env=env)
    shell = open_shell(root, sandbox=confined, environ=environ)
    places = os.pathsep.join((shell.sandbox.build_environment()["PATH"], DEFAULT_PATH))
    found = program or find_program("python3", shell.sandbox.root, places)
    if found is None:
        raise ConfigError("no python3 was found for the tool `python`: give program=")
    interpreters = PythonInterpreters(shell, limits, found)
    built = _build_python(interpreters)
    weakref.finalize(built, shell.close)
    spec = msgspec.structs.replace(built.spec, notice=shell.sandbox.notice)
    return replace(built, spec=spec, recover=shell.recover)


def _build_python(interpreters: PythonInterpreters) -> Tool[..., Any]:
    limits = interpreters.limits
    has_network = interpreters.shell.sandbox.has_network
    network = "" if has_network else " There is no network."

    @tool(
        description=(
            "Run Python code in the workspace folder. Variables, functions and imports stay for "
            "the next call. The value of the last expression is shown, and plots of matplotlib are "
            f"returned as pictures.{network}"
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
