"""What an MCP server asks its client for while a call runs: a person's answer, a model's reply.

Invariant: a server is answered only within a call, and by the person and the model of that call's
run. If it is unclear which call asks, neither of them is asked. Nothing outlives the call, whose
time-out covers all of it. What a server says is shown as its words, and an address is shown and
never opened.
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, final
from urllib.parse import urlsplit

from msgspec.structs import replace

from windlass.core.messages import TextPart, ToolResult, ToolSpec
from windlass.core.question import Question
from windlass.core.setup import digest
from windlass.core.text_clip import printable_chars, printable_line
from windlass.core.verdicts import Deny, Modify, PersonAnswer
from windlass.ports import ModelRequest
from windlass.tools.mcp.config import McpSettings
from windlass.tools.mcp.forms import FormRefused, complete_values, default_values, read_form
from windlass.tools.mcp.lists import clip_text
from windlass.tools.run_context import RunContext

if TYPE_CHECKING:
    from mcp.client.session import ClientRequestContext, IncomingMessage
    from mcp_types import (
        CreateMessageRequestParams,
        CreateMessageResult,
        ElicitRequestFormParams,
        ElicitRequestURLParams,
        ElicitResult,
        ErrorData,
        ListRootsResult,
        SamplingMessage,
    )

QUESTIONS_MAX = 10
"""Questions to a person in one call, so that a server cannot keep a person busy."""
MESSAGE_CHARS_MAX = 2_000
NOTE_CHARS_MAX = 200
PROMPT_CHARS_MAX = 100_000
"""Of everything that a server wants a model to read."""
REPLY_TOKENS_MAX = 4_096
USER_REJECTED = -1
"""The error code of the protocol for a request that a person has not allowed."""
QUESTION_TOOL = "mcp_elicitation"
SAMPLING_SPEC = ToolSpec(
    "mcp_sampling",
    "Lets an MCP server use the model of the run.",
    {
        "type": "object",
        "properties": {
            "server": {"type": "string"},
            "prompt": {"type": "string", "maxLength": PROMPT_CHARS_MAX},
            "instructions": {"type": "string", "maxLength": PROMPT_CHARS_MAX},
            "max_tokens": {"type": "integer", "minimum": 1, "maximum": REPLY_TOKENS_MAX},
        },
        "required": ["server", "prompt", "max_tokens"],
        "additionalProperties": False,
    },
    labels=("untrusted", "external"),
)
"""What a gate judges when a server asks for a reply of the model."""

T = TypeVar("T")
_current_call: ContextVar["OpenCall | None"] = ContextVar("_current_call", default=None)
"""The call in whose context a message of the server came, where the transport can tell."""


def forget_current_call() -> None:
    """Say that what comes in this context belongs to no call: a connection serves many."""
    _current_call.set(None)


@final
class OpenCall:
    """A running call, as far as its server may ask for something in it."""

    def __init__(self, server: str, context: RunContext[object]) -> None:
        self.context = context
        self._server = server
        self._jobs: set[asyncio.Task[Any]] = set()
        self._questions = 0
        self._asked: Counter[str] = Counter()
        self._notes: list[str] = []

    async def run_job(self, work: Coroutine[Any, Any, T], otherwise: T) -> T:
        """Do something for the server; `otherwise` is the answer if the call ends before."""
        job = asyncio.create_task(work)
        self._jobs.add(job)
        try:
            # Not awaited itself: the end of the call must not look like a cancel to the SDK.
            await asyncio.wait({job})
        finally:
            job.cancel()
            self._jobs.discard(job)
        return otherwise if job.cancelled() else job.result()

    def end(self) -> None:
        for job in self._jobs:
            job.cancel()

    def add_notes(self, result: ToolResult) -> ToolResult:
        """Return the result of the call with a line about each thing that the server asked for."""
        if not self._notes:
            return result
        text = "".join(f"\n[{note}]" for note in self._notes)
        return replace(result, content=(*result.content, TextPart(text)))

    async def fill_form(self, params: "ElicitRequestFormParams") -> "ElicitResult | ErrorData":
        """Have the person fill in a form."""
        from mcp_types import (  # noqa: PLC0415 - of the extra
            INVALID_PARAMS,
            ElicitResult,
            ErrorData,
        )

        try:
            form = read_form(params.requested_schema)
        except FormRefused as refusal:
            self._note(params.message, f"refused: {refusal}")
            return ErrorData(code=INVALID_PARAMS, message=str(refusal))
        suggested = default_values(form)
        question = f"{self._quote(params.message)}\nGive it no passwords and no keys."
        answer = await self._ask_person(question, suggested, dict(form.node))
        content = answer.arguments if isinstance(answer, Modify) else suggested
        action, note = _describe_answer(answer)
        try:
            content = complete_values(form, content) if action == "accept" else None
        except FormRefused as refusal:
            action, note, content = "cancel", f"the answer does not fit: {refusal}", None
        self._note(params.message, note)
        return ElicitResult(action=action, content=content)

    async def show_address(self, params: "ElicitRequestURLParams") -> "ElicitResult | ErrorData":
        """Show the person an address that they may open themselves."""
        from mcp_types import (  # noqa: PLC0415 - of the extra
            INVALID_PARAMS,
            ElicitResult,
            ErrorData,
        )

        host = _find_host(params.url)
        if not host:
            self._note(params.message, "refused: its address is not one of http or https")
            return ErrorData(code=INVALID_PARAMS, message="the address is not one of http or https")
        question = (
            f"{self._quote(params.message)}\nIt wants you to open an address at {host}. Windlass "
            "does not open it: do so yourself if you trust it. May the call go on?"
        )
        answer = await self._ask_person(question, {"host": host, "address": params.url})
        action, note = _describe_answer(answer)
        self._note(params.message, note)
        return ElicitResult(action=action)

    async def use_model(
        self, params: "CreateMessageRequestParams"
    ) -> "CreateMessageResult | ErrorData":
        """Have the model of the run write something for the server."""
        from mcp_types import (  # noqa: PLC0415 - of the extra
            INVALID_PARAMS,
            CreateMessageResult,
            ErrorData,
            TextContent,
        )

        arguments = _sampling_arguments(self._server, params)
        fault = _find_sampling_fault(params, arguments)
        if fault:
            self._note("for the model", f"refused: {fault}")
            return ErrorData(code=INVALID_PARAMS, message=fault)
        key = digest(arguments)
        self._asked[key] += 1
        name = f"MCP server {self._server!r}"
        request = ModelRequest(
            tool=replace(SAMPLING_SPEC, notice=f"{name} asks for it, in its own words."),
            arguments=arguments,
            question=f"May {name} have the model of this run write a reply?",
            occurrence=self._asked[key],
        )
        if self.context.call is None:
            return ErrorData(code=USER_REJECTED, message="the call is not part of a run")
        reply = await self.context.call.ask_model(request)
        if reply.refusal:
            self._note("for the model", f"refused: {reply.refusal}")
            return ErrorData(code=USER_REJECTED, message=reply.refusal)
        self._note("for the model", f"{reply.model} wrote {len(reply.text)} characters for it")
        content = TextContent(text=reply.text)
        return CreateMessageResult(
            role="assistant", content=content, model=reply.model, stop_reason="endTurn"
        )

    async def _ask_person(
        self, text: str, arguments: dict[str, Any], form: dict[str, Any] | None = None
    ) -> PersonAnswer | None:
        """Return the person's answer; None without one, or if they were asked too often."""
        self._questions += 1
        context = self.context
        if context.call is None or self._questions > QUESTIONS_MAX:
            return None
        call_id = f"{context.call_id}.question{self._questions}"
        context.report(f"MCP server {self._server!r} asks a question")
        return await context.call.ask_person(
            Question(
                context.session_id,
                call_id,
                QUESTION_TOOL,
                arguments,
                text,
                digest(arguments),
                form=form,
                is_live=True,
            )
        )

    def _quote(self, message: str) -> str:
        shown = printable_chars(clip_text(message, MESSAGE_CHARS_MAX), keep="\n")
        return f"MCP server {self._server!r} asks during {self.context.tool_name}: {shown}"

    def _note(self, message: str, outcome: str) -> None:
        asked = clip_text(printable_line(message), NOTE_CHARS_MAX)
        self._notes.append(f"The server asked: {asked} - {outcome}")


@final
class ServerRequests:
    """Answers the requests of one server, and remembers that it has changed its lists."""

    def __init__(self, settings: McpSettings) -> None:
        self.has_changed_lists = False
        self._settings = settings
        self._open_calls: list[OpenCall] = []

    @contextmanager
    def open_call(self, context: RunContext[object]) -> Generator[OpenCall]:
        """Let the server ask for something until the end of the block."""
        call = OpenCall(self._settings.name, context)
        self._open_calls.append(call)
        token = _current_call.set(call)
        try:
            yield call
        finally:
            _current_call.reset(token)
            self._open_calls.remove(call)
            call.end()

    def client_options(self) -> dict[str, Any]:
        """Return the callbacks for the SDK's client, which tell the server what it may ask for."""
        options: dict[str, Any] = {"message_handler": self.take_message}
        if self._settings.elicitation:
            options["elicitation_callback"] = self.elicit
        if self._settings.sampling:
            options["sampling_callback"] = self.sample
        if self._settings.roots:
            # Links stay as they are written: a server may know the folder by that name.
            options["list_roots_callback"] = partial(
                _list_roots, [Path(root).expanduser().absolute() for root in self._settings.roots]
            )
        return options

    async def take_message(self, message: "IncomingMessage") -> None:
        from mcp_types import (  # noqa: PLC0415 - of the extra
            PromptListChangedNotification,
            ResourceListChangedNotification,
            ToolListChangedNotification,
        )

        if isinstance(
            message,
            ToolListChangedNotification
            | PromptListChangedNotification
            | ResourceListChangedNotification,
        ):
            self.note_change()

    def note_change(self) -> None:
        """Say that the server may have other tools now: they count from the next list on."""
        self.has_changed_lists = True

    async def elicit(
        self,
        _: "ClientRequestContext",
        params: "ElicitRequestFormParams | ElicitRequestURLParams",
    ) -> "ElicitResult | ErrorData":
        from mcp_types import ElicitRequestURLParams, ElicitResult  # noqa: PLC0415 - of the extra

        call = self._find_call()
        cancelled = ElicitResult(action="cancel")
        if call is None:
            return cancelled
        if isinstance(params, ElicitRequestURLParams):
            return await call.run_job(call.show_address(params), cancelled)
        return await call.run_job(call.fill_form(params), cancelled)

    async def sample(
        self, _: "ClientRequestContext", params: "CreateMessageRequestParams"
    ) -> "CreateMessageResult | ErrorData":
        from mcp_types import ErrorData  # noqa: PLC0415 - of the extra

        call = self._find_call()
        if call is None:
            return ErrorData(code=USER_REJECTED, message="it is not known which call asks")
        ended = ErrorData(code=USER_REJECTED, message="the call has ended")
        return await call.run_job(call.use_model(params), ended)

    def _find_call(self) -> OpenCall | None:
        """Return the call that the server asks in; None if that is not known.

        Over standard input and output, a request does not say which call it is for. If all open
        calls are of one session, it is that session's person who is asked.
        """
        current = _current_call.get()
        if current in self._open_calls:
            return current
        sessions = {call.context.session_id for call in self._open_calls}
        return self._open_calls[-1] if len(sessions) == 1 else None


def _describe_answer(
    answer: PersonAnswer | None,
) -> tuple[Literal["accept", "decline", "cancel"], str]:
    """Return the answer to the server, and the text for the record."""
    if answer is None:
        return "cancel", "nobody answered"
    if isinstance(answer, Deny):
        return "decline", "declined"
    return "accept", "answered"


def _find_host(address: str) -> str:
    """Return the host of an address, as the network spells it; empty if it is not a web address."""
    try:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not address.isprintable():
            return ""
        return (parts.hostname or "").encode("idna").decode()
    except ValueError:
        return ""


def _format_messages(messages: "list[SamplingMessage]") -> str | None:
    """Return messages as one prompt; None if they have parts other than text."""
    from mcp_types import TextContent  # noqa: PLC0415 - of the extra

    texts: list[str] = []
    for message in messages:
        parts = message.content if isinstance(message.content, list) else [message.content]
        words = [part.text for part in parts if isinstance(part, TextContent)]
        if len(words) < len(parts):
            return None
        texts.append("\n".join(words))
    if len(messages) == 1:
        return texts[0]
    roles = [message.role for message in messages]
    return "\n\n".join(f"{role}: {text}" for role, text in zip(roles, texts, strict=True))


def _sampling_arguments(server: str, params: "CreateMessageRequestParams") -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "server": server,
        "prompt": _format_messages(params.messages) or "",
        "max_tokens": max(1, min(params.max_tokens, REPLY_TOKENS_MAX)),
    }
    if params.system_prompt:
        arguments["instructions"] = params.system_prompt
    return arguments


def _find_sampling_fault(
    params: "CreateMessageRequestParams", arguments: dict[str, Any]
) -> str | None:
    """Return why a model cannot be asked for this; None if it can."""
    if params.tools:
        return "the model is given no tools"
    if not arguments["prompt"]:
        return "only messages of text are possible"
    if len(arguments["prompt"]) + len(params.system_prompt or "") > PROMPT_CHARS_MAX:
        return f"the messages have more than {PROMPT_CHARS_MAX} characters"
    return None


async def _list_roots(
    folders: Sequence[Path], _context: "ClientRequestContext"
) -> "ListRootsResult":
    """Tell a server which folders it is to work in."""
    from mcp_types import ListRootsResult, Root  # noqa: PLC0415 - of the extra

    return ListRootsResult(
        roots=[Root.model_validate({"uri": one.as_uri(), "name": one.name}) for one in folders]
    )
