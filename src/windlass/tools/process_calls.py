"""Sync tools that can be killed: each call runs in its own process.

A thread cannot be stopped from outside. A process can, with everything that it started: its whole
group is killed when the call is cancelled, times out or is over.

`wait_for_exit` waits for any program that asyncio started.

Invariant: a survivor that holds the pipes of a program keeps nothing waiting. `Process.wait` of
asyncio returns once the pipes are closed at both ends, and a descendant in a session of its own may
hold its end for hours.
"""

import asyncio
import builtins
import inspect
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from windlass.core.errors import ConfigError, ModelRetry

POLL_S = 0.001
"""The first pause. Each one is twice as long as the one before, up to POLL_S_MAX."""
POLL_S_MAX = 0.02


async def wait_for_exit(process: asyncio.subprocess.Process, seconds: float) -> bool:
    """Return whether a program ended in time, whatever still holds its pipes."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    pause = POLL_S
    while process.returncode is None and loop.time() < until:
        await asyncio.sleep(pause)
        pause = min(2 * pause, POLL_S_MAX)
    return process.returncode is not None


def close_pipes(process: asyncio.subprocess.Process) -> None:
    """Close our ends of the pipes of a program that has ended.

    There is no public way to do it. One that still runs is killed by it, and its exit code is lost.
    """
    transport = getattr(process, "_transport", None)
    if isinstance(transport, asyncio.SubprocessTransport):
        with suppress(OSError):
            transport.close()


END_S = 2.0
"""How long a process that ends, or was killed, may take to be gone."""

WORKER_PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from windlass.tools.process_worker import serve_one_call
serve_one_call()
"""


class FunctionAddress(NamedTuple):
    """Where another process finds a function."""

    module: str
    script: str
    """The file of the program, if the function is in its main module; otherwise empty."""
    name: str
    is_plain: bool
    """Whether it gets its arguments as plain JSON, because a schema describes them."""


def locate_function(
    function: Callable[..., Any], tool: str, *, takes_context: bool, is_plain: bool
) -> FunctionAddress:
    """Return where to find a function; raises ConfigError if another process cannot run it."""

    def refuse(reason: str, fix: str) -> NoReturn:
        raise ConfigError(f"tool {tool!r}: executor='process' cannot be used: {reason}; {fix}")

    if inspect.iscoroutinefunction(function):
        refuse("the function is async", "leave executor out, because a cancel stops it anyway")
    if not inspect.isfunction(function) or function.__name__ == "<lambda>":
        refuse("this is not a plain function", "use a function at the top of a module")
    if "<locals>" in function.__qualname__:
        refuse(
            "the function is defined inside another one, where a new process cannot find it",
            "move it to the top of a module",
        )
    if takes_context:
        refuse("a RunContext cannot be sent to another process", "take what it needs as parameters")
    script = ""
    if function.__module__ == "__main__":
        script = getattr(sys.modules["__main__"], "__file__", "") or ""
        if not script:
            refuse("the program has no file (a notebook, or -c)", "move it to a module")
        script = str(Path(script).absolute())
    return FunctionAddress(function.__module__, script, function.__qualname__, is_plain)


async def call_in_process(address: FunctionAddress, arguments: Mapping[str, Any]) -> object:
    """Call a function in a new process, and return its value as plain data; raises its error."""
    request = {**address._asdict(), "arguments": dict(arguments)}
    worker = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-c",
        WORKER_PROGRAM,
        json.dumps(sys.path),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        answer = await _exchange(worker, json.dumps(request).encode())
        if answer is None:
            await wait_for_exit(worker, END_S)
    finally:
        # The worker waits for this, so its id is still its own, and its group is killed with it.
        if worker.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
        await wait_for_exit(worker, END_S)
        close_pipes(worker)
    if answer is None:
        raise RuntimeError(
            f"the process of the tool ended without a result (exit code {worker.returncode})"
        )
    if "error" in answer:
        _raise_error(answer)
    return answer["value"]


async def _exchange(worker: asyncio.subprocess.Process, request: bytes) -> dict[str, Any] | None:
    """Send the request and return the answer; None if the process ended before."""
    if worker.stdin is None or worker.stdout is None:
        return None
    with suppress(BrokenPipeError, ConnectionResetError):
        worker.stdin.write(len(request).to_bytes(8, "big") + request)
        await worker.stdin.drain()
    try:
        size = int.from_bytes(await worker.stdout.readexactly(8), "big")
        return json.loads(await worker.stdout.readexactly(size))
    except asyncio.IncompleteReadError:
        return None


def _raise_error(answer: Mapping[str, Any]) -> NoReturn:
    """Raise an error like the one in the other process: of the same type if it is Python's own."""
    if answer["retry"]:
        raise ModelRetry(answer["text"])
    kind = getattr(builtins, answer["error"], None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            error = kind(answer["text"])
        except TypeError:  # A type that needs more than a text, as UnicodeDecodeError does.
            error = None
        if error is not None:
            raise error
    raise RuntimeError(f"{answer['error']}: {answer['text']}")
