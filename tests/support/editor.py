"""An editor that talks to `windlass acp`, message by message, as its process.

It is written by hand, so that a test sees every message; each update is checked with the models of
the protocol's own SDK.
"""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from acp.schema import RequestPermissionRequest, SessionNotification

WINDLASS = (sys.executable, "-m", "windlass.cli")
WAIT_S = 60.0
LINE_BYTES_MAX = 2**24

JsonObject = dict[str, Any]
Answer = Callable[[JsonObject], str | None]
"""Chooses the option of a question; None leaves it open."""


class EditorError(Exception):
    """The agent answered a request with an error."""

    def __init__(self, error: JsonObject) -> None:
        super().__init__(error["message"])
        self.code = error["code"]
        self.data = error.get("data") or {}


def choose(kind: str) -> Answer:
    """Answer each question with the first option of a kind."""

    def answer(params: JsonObject) -> str:
        return next(one["optionId"] for one in params["options"] if one["kind"] == kind)

    return answer


def leave_open(_: JsonObject) -> None:
    """Answer no question: somebody else does."""


class Editor:
    """One connection to an agent."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.updates: list[JsonObject] = []
        self.questions: list[JsonObject] = []
        """The requests for permission, whole."""
        self.withdrawn: list[Any] = []
        """The ids of the requests that were taken back."""
        self.answer: Answer = choose("allow_once")
        self.failures: list[BaseException] = []
        self._next_id = 0
        self._open: dict[Any, asyncio.Future[Any]] = {}
        self._changed = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def request(self, method: str, **params: Any) -> Any:
        """Make a request and return its result. Raises EditorError."""
        return await self.begin(method, **params)

    def begin(self, method: str, **params: Any) -> "asyncio.Future[Any]":
        """Make a request, and return what will be its result."""
        self._next_id += 1
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._open[self._next_id] = done
        self.send(id=self._next_id, method=method, params=params)
        return done

    def notify(self, method: str, **params: Any) -> None:
        self.send(method=method, params=params)

    def send(self, **message: Any) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    async def open(self, folder: Path, **more: Any) -> str:
        """Introduce the editor and begin a session; returns its name."""
        await self.greet()
        return (await self.request("session/new", cwd=str(folder), mcpServers=[], **more))[
            "sessionId"
        ]

    async def greet(self) -> JsonObject:
        return await self.request(
            "initialize", protocolVersion=1, clientCapabilities={}, clientInfo=None
        )

    def prompt(self, session: str, text: str) -> "asyncio.Future[Any]":
        blocks = [{"type": "text", "text": text}]
        return self.begin("session/prompt", sessionId=session, prompt=blocks)

    async def wait_until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    def said(self, kind: str = "agent_message_chunk") -> str:
        """The text of all updates of a kind."""
        chunks = [one["content"] for one in self.updates if one["sessionUpdate"] == kind]
        return "".join(chunk.get("text", "") for chunk in chunks)

    def states(self, tool: str) -> list[str]:
        """The states that a call of a tool went through."""
        ids = [
            one["toolCallId"]
            for one in self.updates
            if one["sessionUpdate"] == "tool_call" and one["title"].startswith(tool)
        ]
        return [
            one["status"]
            for one in self.updates
            if one.get("toolCallId") in ids and "status" in one
        ]

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            try:
                self._take(json.loads(line))
            except Exception as error:  # noqa: BLE001 - told at the end of the test
                self.failures.append(error)
            self._changed.set()
        for done in self._open.values():
            if not done.done():
                done.set_exception(ConnectionError("the agent is gone"))
        self._changed.set()

    def _take(self, message: JsonObject) -> None:
        method = message.get("method")
        if method == "session/update":
            SessionNotification.model_validate(message["params"])
            self.updates.append(message["params"]["update"])
        elif method == "session/request_permission":
            RequestPermissionRequest.model_validate(message["params"])
            self.questions.append(message)
            option = self.answer(message["params"])
            if option is not None:
                self.reply(message, option)
        elif method == "$/cancel_request":
            self.withdrawn.append(message["params"]["requestId"])
        elif message.get("id") in self._open:
            done = self._open.pop(message["id"])
            if "error" in message:
                done.set_exception(EditorError(message["error"]))
            else:
                done.set_result(message["result"])
        else:
            self.updates.append({"sessionUpdate": "stray", **message})

    def reply(self, question: JsonObject, option: str | None) -> None:
        """Answer a question; None says that it was dismissed."""
        outcome = {"outcome": "cancelled"}
        if option is not None:
            outcome = {"outcome": "selected", "optionId": option}
        self.send(id=question["id"], result={"outcome": outcome})

    async def close(self) -> int:
        """Go away, as an editor that is closed does; returns the exit code of the agent."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        async with asyncio.timeout(WAIT_S):
            code = await self.process.wait()
            await self._reading
        assert self.failures == []
        return code

    async def kill(self) -> None:
        """Kill the agent, as a crash does."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self._reading


def make_environment(home: Path, url: str) -> dict[str, str]:
    """The environment of a newcomer, whose model is a server of the test."""
    hidden = re.compile(".*COLOR.*|COLUMNS|LINES|.*_API_KEY|WINDLASS_.*")
    env = {key: value for key, value in os.environ.items() if not hidden.fullmatch(key)}
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        env[name] = str(home)
    return env | {
        "OPENAI_API_KEY": "sk-test-0123456789abcdef",
        "OPENAI_BASE_URL": url,
        "WINDLASS_MODEL": "openai-chat:m",
    }


@asynccontextmanager
async def start_editor(folder: Path, env: dict[str, str], *options: str) -> AsyncIterator[Editor]:
    """Start `windlass acp` in a folder, and end it with the block."""
    process = await asyncio.create_subprocess_exec(
        *WINDLASS,
        "acp",
        *options,
        cwd=folder,
        env=env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LINE_BYTES_MAX,
    )
    editor = Editor(process)
    try:
        yield editor
        if process.returncode is None:
            await editor.close()
    finally:
        await editor.kill()
