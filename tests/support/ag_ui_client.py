"""A client of AG-UI without a socket: every event is checked against the protocol's own models.

Messages are put together as the protocol says, so that a test can compare what a client shows.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
from ag_ui.core import Event
from pydantic import TypeAdapter

from service import Answer, DirectClient
from windlass.server.messages import StreamReply

_events: TypeAdapter[Any] = TypeAdapter(Event)
OPENERS = {
    "TEXT_MESSAGE": ("messageId", ("TEXT_MESSAGE_CONTENT",)),
    "REASONING_MESSAGE": ("messageId", ("REASONING_MESSAGE_CONTENT",)),
    "REASONING": ("messageId", ()),
    "TOOL_CALL": ("toolCallId", ("TOOL_CALL_ARGS",)),
}


@dataclass
class Stream:
    """The events of one run as a client has them."""

    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @property
    def kinds(self) -> list[str]:
        return [event["type"] for event in self.events]

    @property
    def end(self) -> dict[str, Any]:
        return self.events[-1]

    @property
    def interrupts(self) -> list[dict[str, Any]]:
        return self.end["outcome"].get("interrupts", [])

    @property
    def text(self) -> str:
        return "".join(self.values("TEXT_MESSAGE_CONTENT", "delta"))

    def values(self, kind: str, name: str) -> list[Any]:
        return [event[name] for event in self.events if event["type"] == kind]


class AgUiClient:
    """A thread of AG-UI: it keeps the messages as the protocol says."""

    def __init__(self, http: DirectClient, thread: str = "t1", agent: str = "helper") -> None:
        self.http = http
        self.thread = thread
        self.path = f"/ag-ui/{agent}"
        self.messages: list[dict[str, Any]] = []
        self.runs = 0

    def say(self, text: Any, message_id: str = "") -> None:
        """Add a message of the user."""
        number = len(self.messages) + 1
        said = {"id": message_id or f"user-{number}", "role": "user", "content": text}
        self.messages.append(said)

    def make_input(self, **fields: Any) -> dict[str, Any]:
        self.runs += 1
        return {
            "threadId": self.thread,
            "runId": f"run-{self.runs}",
            "protocolVersion": "1.0",
            "messages": self.messages,
            "tools": [],
            "context": [],
            "state": {},
            "forwardedProps": {},
            **fields,
        }

    async def refuse(self, **fields: Any) -> Answer:
        """Send an input that is refused before a stream begins."""
        return await self.http.post(self.path, self.make_input(**fields))

    async def run(self, **fields: Any) -> Stream:
        """Send the input and read the whole stream."""
        stream = Stream()
        async with self.open(**fields) as events:
            async for event in events:
                stream.events.append(event)
        return stream

    @asynccontextmanager
    async def open(self, **fields: Any) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """Send the input; leaving the block closes the connection."""
        run_input = self.make_input(**fields)
        reply = await self.http.send("POST", self.path, run_input)
        assert isinstance(reply, StreamReply), reply.body
        try:
            yield self._read(reply, run_input)
        finally:
            await reply.close()

    async def _read(
        self, reply: StreamReply, run_input: dict[str, Any]
    ) -> AsyncIterator[dict[str, Any]]:
        checker = _OrderChecker(run_input)
        async for chunk in reply.chunks:
            for frame in chunk.decode().split("\n\n"):
                if not frame.startswith("data: "):
                    continue
                event = msgspec.json.decode(frame.removeprefix("data: "))
                _events.validate_python(event)
                checker.check(event)
                self._apply(event)
                yield event

    def _find(self, message_id: str) -> dict[str, Any] | None:
        return next((each for each in self.messages if each["id"] == message_id), None)

    def _apply(self, event: dict[str, Any]) -> None:
        """Change the messages as the reference client does."""
        match event["type"]:
            case "TEXT_MESSAGE_START" if self._find(event["messageId"]) is None:
                opened = {"id": event["messageId"], "role": "assistant", "content": ""}
                self.messages.append(opened)
            case "TEXT_MESSAGE_CONTENT":
                message = self._find(event["messageId"])
                assert message is not None
                message["content"] = (message.get("content") or "") + event["delta"]
            case "TOOL_CALL_START":
                self._add_call(event)
            case "TOOL_CALL_ARGS":
                for message in self.messages:
                    for made in message.get("toolCalls", ()):
                        if made["id"] == event["toolCallId"]:
                            made["function"]["arguments"] += event["delta"]
            case "TOOL_CALL_RESULT":
                self.messages.append(
                    {
                        "id": event["messageId"],
                        "role": "tool",
                        "toolCallId": event["toolCallId"],
                        "content": event["content"],
                    }
                )
            case "MESSAGES_SNAPSHOT":
                self._replace(event["messages"])
            case _:
                pass

    def _add_call(self, event: dict[str, Any]) -> None:
        parent = self._find(event["parentMessageId"])
        if parent is None:
            parent = {"id": event["parentMessageId"], "role": "assistant"}
            self.messages.append(parent)
        made = {
            "id": event["toolCallId"],
            "type": "function",
            "function": {"name": event["toolCallName"], "arguments": ""},
        }
        parent.setdefault("toolCalls", []).append(made)

    def _replace(self, messages: list[dict[str, Any]]) -> None:
        """Keep the places of messages that stay, and add the others in their order."""
        given = {message["id"]: message for message in messages}
        kept = [given[each["id"]] for each in self.messages if each["id"] in given]
        ids = {message["id"] for message in kept}
        self.messages = kept + [message for message in messages if message["id"] not in ids]


class _OrderChecker:
    """Checks what the models cannot: what opens is closed, and a run has two ends."""

    def __init__(self, run_input: dict[str, Any]) -> None:
        self._input = run_input
        self._open: set[tuple[str, str]] = set()
        self._has_begun = False
        self._has_ended = False

    def check(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        assert not self._has_ended, f"{kind} after the end"
        assert self._has_begun == (kind != "RUN_STARTED"), kind
        self._has_begun = True
        if kind in ("RUN_STARTED", "RUN_FINISHED"):
            assert event["threadId"] == self._input["threadId"]
            assert event["runId"] == self._input["runId"]
        if kind in ("RUN_FINISHED", "RUN_ERROR"):
            self._has_ended = True
            assert kind == "RUN_ERROR" or not self._open, self._open
        for name, (field_name, inner) in OPENERS.items():
            entity = (name, event.get(field_name, ""))
            if kind == f"{name}_START":
                assert entity not in self._open
                self._open.add(entity)
            elif kind == f"{name}_END":
                self._open.remove(entity)
            elif kind in inner:
                assert entity in self._open
        self._check_step(event)

    def _check_step(self, event: dict[str, Any]) -> None:
        step = ("STEP", f"{event.get('subagentRunId')}/{event.get('stepName')}")
        agent = ("SUBAGENT", event.get("subagentRunId", ""))
        with suppress(KeyError):
            {
                "STEP_STARTED": lambda: self._open.add(step),
                "STEP_FINISHED": lambda: self._open.remove(step),
                "SUBAGENT_STARTED": lambda: self._open.add(agent),
                "SUBAGENT_FINISHED": lambda: self._open.remove(agent),
                "SUBAGENT_ERROR": lambda: self._open.remove(agent),
            }[event["type"]]()
