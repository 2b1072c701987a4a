"""Runs what a manifest declares: one program without a shell, or one HTTP request.

Invariant: a call that is cancelled or times out leaves no program behind. A secret is in the
request or in the variables of the program, and in no result. What a program or a server answers is
bounded.
"""

import asyncio
import ctypes
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlencode

import msgspec

from windlass.core.errors import ModelRetry
from windlass.core.text_clip import printable_line
from windlass.environ import read_process_environment
from windlass.tools.breaker import ToolUnavailable
from windlass.tools.declared.templates import (
    SECRET,
    Arguments,
    MissingArgument,
    fill_command,
    fill_fields,
    fill_text,
    fill_url,
)
from windlass.tools.process_calls import close_pipes, wait_for_exit
from windlass.tools.web.guarded_http import open_checked, parse_web_url, resolve_host

COMMAND_OUTPUT_BYTES_MAX = 1_000_000
ANSWER_BYTES_MAX = 1_000_000
KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR")
"""What every program gets of our environment. Keys and tokens are not among it."""
END_S = 2.0
"""How long a program that was killed may take to be gone."""
MASK = "****"
_PR_SET_PDEATHSIG = 1
_SERVER_ERROR = 500
_CLIENT_ERROR = 400
_REDIRECT = 300

SecretLookup = Callable[[str], str | None]


class HttpAction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One HTTP request."""

    url: str
    """Arguments are allowed in the path only: `https://host/items/{id}`."""
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    query: dict[str, Any] = {}
    headers: dict[str, str] = {}
    """May hold secrets: `${NAME}`."""
    body: dict[str, Any] | None = None
    """Sent as JSON."""


class CommandAction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One program, run without a shell."""

    argv: list[str]
    """Its name and its words. `{name}` is an argument; a list becomes several words."""
    stdin: str = ""
    folder: str = "."
    """Where it runs, from the folder of the manifest."""
    environ: dict[str, str] = {}
    """Variables that it gets besides PATH, HOME and LANG; may hold secrets: `${NAME}`."""
    output_bytes_max: int = COMMAND_OUTPUT_BYTES_MAX


async def run_command(
    action: CommandAction, arguments: Arguments, secrets: SecretLookup, base: Path
) -> str:
    """Run the program and return what it wrote. Raises ModelRetry if it fails."""
    words = fill_command(action.argv, arguments)
    used: list[str] = []
    added = {name: _fill_secrets(text, secrets, used) for name, text in action.environ.items()}
    ours = read_process_environment()
    environ = {name: ours[name] for name in KEPT_VARIABLES if name in ours} | added
    try:
        stdin = fill_text(action.stdin, arguments).encode()
    except MissingArgument:
        stdin = b""
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            cwd=base / action.folder,
            env=environ,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
    except OSError as error:
        raise ToolUnavailable(f"{words[0]} cannot be started: {error.strerror}") from error
    try:
        output = await _communicate(process, stdin, action.output_bytes_max)
        code = await process.wait()
    finally:
        await _end_group(process)
    text = _mask(output.decode("utf-8", "replace"), used)
    if code:
        raise ModelRetry(f"{words[0]} failed with exit code {code}.\n{text}".rstrip())
    return text


async def _end_group(process: asyncio.subprocess.Process) -> None:
    """Kill the program and what it left behind: a group lives as long as one of its processes."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await wait_for_exit(process, END_S)
    close_pipes(process)


def _die_with_parent() -> None:
    """Have the kernel kill the program if this process dies; runs in the new process."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


async def _communicate(process: asyncio.subprocess.Process, stdin: bytes, limit: int) -> bytes:
    """Return the beginning of what a program writes; it is read to the end, so that it can end."""
    assert process.stdin is not None  # noqa: S101 - made with pipes
    assert process.stdout is not None  # noqa: S101 - made with pipes
    feeding = asyncio.create_task(_feed(process.stdin, stdin))
    output = bytearray()
    try:
        while chunk := await process.stdout.read(65_536):
            output += chunk[: max(0, limit - len(output))]
        await feeding
    finally:
        feeding.cancel()
    return bytes(output)


async def _feed(stream: asyncio.StreamWriter, data: bytes) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):
        stream.write(data)
        await stream.drain()
    stream.close()


async def send_request(action: HttpAction, arguments: Arguments, secrets: SecretLookup) -> str:
    """Send the request and return the text of its answer.

    A redirect is not an error, because the server may have done what it was asked; the text says
    where it leads. Raises ModelRetry if the server refuses, and ToolUnavailable if it fails.
    """
    used: list[str] = []
    headers = {name: _fill_secrets(text, secrets, used) for name, text in action.headers.items()}
    try:
        address = fill_url(action.url, arguments)
    except MissingArgument as error:
        raise ModelRetry(f"{error} is missing.") from None
    query = fill_fields(action.query, arguments)
    if query:
        address += "?" + urlencode({name: _as_query(value) for name, value in query.items()})
    data = None
    if action.body is not None:
        data = msgspec.json.encode(fill_fields(action.body, arguments))
        headers = {"Content-Type": "application/json", **headers}
    url = parse_web_url(address)
    try:
        # The host is the manifest's own, so it may be one of this network.
        addresses = await resolve_host(url.host, url.port)
    except OSError:
        raise ToolUnavailable(f"there is no host {url.host}") from None
    async with open_checked(url, addresses, headers, method=action.method, data=data) as response:
        body = await response.read_up_to(ANSWER_BYTES_MAX)
        status, target = response.status, response.headers.get("location", "")
    text = _mask(body.decode("utf-8", "replace"), used)
    if status >= _SERVER_ERROR:
        raise ToolUnavailable(f"the server failed ({status}): {text[:500]}")
    if status >= _CLIENT_ERROR:
        raise ModelRetry(f"The server refused the request ({status}): {text[:2000]}")
    if status >= _REDIRECT:
        return f"{_describe_redirect(status, _mask(target, used))}\n{text}".rstrip()
    return text


def _describe_redirect(status: int, target: str) -> str:
    """Say where a redirect leads. It is not followed: the manifest alone names who is asked."""
    where = f" to {printable_line(target, 500)}" if target else ""
    return f"The server answered with a redirect ({status}){where}. It was not followed."


def _as_query(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _fill_secrets(template: str, secrets: SecretLookup, used: list[str]) -> str:
    """Return a text with the secrets in it, and note them in `used`."""

    def insert(found: Any) -> str:  # noqa: ANN401 - a match
        value = secrets(found[1])
        if not value:
            raise ToolUnavailable(f"the secret {found[1]} is not set")
        used.append(value)
        return value

    return SECRET.sub(insert, template)


def _mask(text: str, used: list[str]) -> str:
    for value in used:
        text = text.replace(value, MASK)
    return text
