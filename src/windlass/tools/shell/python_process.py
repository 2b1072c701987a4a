"""The process of a code interpreter, and the messages between it and the runtime.

Invariant: whatever comes from the process is untrusted input, and the event loop never blocks on
it: its code may write anything, stop reading, or put links in place of the pipes.
"""

import asyncio
import os
import secrets
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from windlass.core.errors import ModelRetry
from windlass.core.messages import TextPart, ToolResult, ToolSpec
from windlass.tools.helper_programs import build_program
from windlass.tools.run_context import discard_report
from windlass.tools.shell import python_worker
from windlass.tools.shell.jobs import JobLimits, ShellJob
from windlass.tools.shell.shell_tools import WorkspaceShell

FOLDER = Path(".windlass") / "python"
"""Where an interpreter gets its requests, in the workspace."""
POLL_S = 0.02
BUSY_POLL_S = 0.002
"""Right after something was sent: most answers come at once."""
BUSY_S = 0.2
CALL_BYTES_MAX = 4 * 2**20
"""The arguments of a call that code makes."""
REPLY_BYTES_MAX = 32 * 2**20
_WORKER = build_program(python_worker.__name__)


class WorkerReply(msgspec.Struct, frozen=True):
    """What the worker says about one piece of code."""

    output: str
    failed: bool
    images: tuple[str, ...] = ()

    @classmethod
    def unreadable(cls) -> "WorkerReply":
        return cls("The reply of the interpreter could not be read.", failed=True)


class WorkerCall(msgspec.Struct, frozen=True):
    """A call that the code wants to make. It is judged like a call of a model."""

    name: str
    arguments: msgspec.Raw

    @classmethod
    def unreadable(cls) -> "WorkerCall":
        """Return a call that is refused: the code gets an error and continues."""
        return cls("", msgspec.Raw(b"{}"))


MessageT = TypeVar("MessageT", WorkerReply, WorkerCall)


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
        self._pipes = {name: self._make_pipe(name) for name in ("requests", "results")}
        limits = JobLimits(timeout_s=None, grace_s=0.2, output_bytes_max=64 * 1024)
        argv = [program, "-c", _WORKER, str(self._folder)]
        self.job = ShellJob(
            argv, shell.sandbox, shell.reaper, limits, discard_report, command="python (state)"
        )
        self.is_new = True
        self._requests = 0
        self._calls = 0

    async def send_code(self, code: str, tools: Sequence[ToolSpec] = ()) -> None:
        """Give the worker a piece of code, and the tools if it does not know them yet."""
        self._requests += 1
        specs = tools if self._requests == 1 else ()
        known = [(spec.name, spec.description, spec.parameters) for spec in specs]
        names = ("name", "description", "parameters")
        listed = [dict(zip(names, one, strict=True)) for one in known]
        request = {"code": code, "reply": f"{self._requests}.json", "tools": listed}
        await self._write_line("requests", request)

    async def send_result(self, result: ToolResult) -> None:
        """Give the code the result of its call."""
        await self._write_line("results", {"kind": result.kind, "text": _text_for_code(result)})

    async def read_message(self) -> WorkerReply | WorkerCall | None:
        """Wait for the end of the code, or for a call that it makes; None if the process died."""
        call_name = f"call-{self._calls + 1}.json"
        reply_name = f"{self._requests}.json"
        busy_until = asyncio.get_running_loop().time() + BUSY_S
        while self.job.is_running:
            call = self._read_file(call_name, WorkerCall, CALL_BYTES_MAX)
            if call is not None:
                self._calls += 1
                return call
            reply = self._read_file(reply_name, WorkerReply, REPLY_BYTES_MAX)
            if reply is not None:
                return reply
            await _pause(busy_until)
        return None

    def _make_pipe(self, name: str) -> int:
        """Make a pipe to the worker, and open it before any code runs that could replace it."""
        os.mkfifo(name, 0o600, dir_fd=self._folder_fd)
        # For reading as well: it can then be opened before the worker does, and never breaks.
        flags = os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW
        return os.open(name, flags, dir_fd=self._folder_fd)

    async def _write_line(self, pipe: str, message: object) -> None:
        """Write a line into a pipe. Code that does not read it does not block the event loop."""
        rest = memoryview(msgspec.json.encode(message) + b"\n")
        busy_until = asyncio.get_running_loop().time() + BUSY_S
        while rest and self.job.is_running:
            try:
                rest = rest[os.write(self._pipes[pipe], rest) :]
            except BlockingIOError:
                await _pause(busy_until)

    def _read_file(self, name: str, kind: type[MessageT], bytes_max: int) -> MessageT | None:
        """Return a message once it is there. It is read like anything from outside."""
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW
        try:
            descriptor = os.open(name, flags, dir_fd=self._folder_fd)
        except OSError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            data = file.read(bytes_max)
        with suppress(OSError):
            os.unlink(name, dir_fd=self._folder_fd)
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.MsgspecError:
            return kind.unreadable()

    async def stop(self) -> None:
        """End the process and everything that it started, and remove its folder."""
        self.job.stop()
        await asyncio.shield(asyncio.wrap_future(self.job.end_future))
        if self._pipes:
            for descriptor in (*self._pipes.values(), self._folder_fd):
                os.close(descriptor)
            self._pipes = {}
            shutil.rmtree(self._folder, ignore_errors=True)


def _text_for_code(result: ToolResult) -> str:
    """Return the text of a result, with a mark for each picture and file."""
    parts = (
        part.text if isinstance(part, TextPart) else f"[a part of type {part.media_type}]"
        for part in result.content
    )
    return "".join(parts)


async def _pause(busy_until: float) -> None:
    is_busy = asyncio.get_running_loop().time() < busy_until
    await asyncio.sleep(BUSY_POLL_S if is_busy else POLL_S)
