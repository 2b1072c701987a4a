"""A run as a client follows it: from its beginning or from what it has seen, to its end.

Invariant: the run belongs to the service. Only one kind of client ends it by going away: that of a
plain chat completion, whose answer no other client waits for.

A chat completion is made of the events of a response, whole or chunk by chunk. Text that was sent
cannot be taken back. If an attempt breaks off after some of its text
was sent, the stream ends with an error, and never continues as if nothing had happened.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Literal
from urllib.parse import quote

import msgspec
from typing_extensions import override

from windlass.core.projection.project import apply_event
from windlass.core.projection.view import Projection
from windlass.core.question import Question
from windlass.server.client_run import ClientRun
from windlass.server.errors import ApiError
from windlass.server.messages import HttpRequest
from windlass.server.openai.objects import (
    FINAL_CODE_END,
    CompletionUsage,
    OpenAIError,
    ResponseFault,
    ResponseObject,
    RunDetails,
    chat_usage,
    make_id,
    read_id,
)
from windlass.server.openai.response_encoder import (
    ItemEvent,
    LifecycleEvent,
    ResponseEncoder,
    ResponseEvent,
    TextPieceEvent,
)
from windlass.server.service import Service

FinishReason = Literal["stop", "length", "content_filter"]
SEPARATOR = "\n\n"
"""Between the texts of two replies of one run."""


class ChatDelta(msgspec.Struct, frozen=True, omit_defaults=True):
    role: Literal["assistant"] | None = None
    content: str | None = None


class ChunkChoice(msgspec.Struct, frozen=True):
    delta: ChatDelta = ChatDelta()
    finish_reason: FinishReason | None = None
    index: int = 0
    logprobs: None = None


class ChatChunk(msgspec.Struct, frozen=True):
    id: str
    created: int
    model: str
    choices: tuple[ChunkChoice, ...]
    usage: CompletionUsage | None = None
    windlass: RunDetails | None = None
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"


class ChatReplyMessage(msgspec.Struct, frozen=True):
    content: str
    role: Literal["assistant"] = "assistant"
    refusal: None = None


class ChatChoice(msgspec.Struct, frozen=True):
    message: ChatReplyMessage
    finish_reason: FinishReason
    index: int = 0
    logprobs: None = None


class ChatCompletion(msgspec.Struct, frozen=True):
    """The whole answer of a run."""

    id: str
    created: int
    model: str
    choices: tuple[ChatChoice, ...]
    windlass: RunDetails
    usage: CompletionUsage | None = None
    object: Literal["chat.completion"] = "chat.completion"


def find_end_error(response: ResponseObject) -> OpenAIError | None:
    """Return the error of a run that ended without an answer, or None."""
    match response.status:
        case "failed":
            # Only what may go better next time has a status that clients repeat by themselves.
            fault = response.error or ResponseFault("run_failed", "The run failed.")
            return OpenAIError(
                502 if fault.retryable else 424,
                fault.code.removesuffix(FINAL_CODE_END),
                fault.message,
                f"What it did and paid for is kept: GET /v1/responses/{response.id}",
                details=response.windlass,
            )
        case "cancelled":
            return OpenAIError(
                400,
                "run_cancelled",
                "The run was cancelled.",
                "Send the request again to start another.",
                details=response.windlass,
            )
        case _:
            return None


def find_wait_error(details: RunDetails) -> OpenAIError:
    """Return the error of a run that continues only when a person has acted."""
    retrieve = f"Then read the answer with GET /v1/responses/{details.response_id}."
    if details.state == "paused":
        return OpenAIError(
            403, "run_paused", "The run is paused.", f"Resume it. {retrieve}", details=details
        )
    asked = "; ".join(f"{link.tool}: {link.question} ({link.url})" for link in details.questions)
    return OpenAIError(
        403,
        "approval_required",
        f"The run waits for a person's answer. {asked}".rstrip(),
        f"Answer there. {retrieve}",
        details=details,
    )


def make_completion(response: ResponseObject) -> ChatCompletion:
    """Return the answer of a run that has ended. Raises OpenAIError if it has none."""
    error = find_end_error(response)
    if error is not None:
        raise error
    message = ChatReplyMessage(SEPARATOR.join(item.text for item in response.output if item.text))
    details = response.windlass
    return ChatCompletion(
        make_id("chatcmpl", details.session, details.run),
        response.created_at,
        response.model,
        (ChatChoice(message, finish_reason(details.state)),),
        details,
        chat_usage(response.usage),
    )


def finish_reason(outcome: str) -> FinishReason:
    """Return why an answer is over, in their words."""
    match outcome:
        case "completed":
            return "stop"
        case "refused" | "policy_denied":
            return "content_filter"
        case _:
            return "length"


class ChatChunks:
    """Makes the chunks of one chat completion."""

    def __init__(self, *, include_usage: bool = False) -> None:
        self._include_usage = include_usage
        self._response: ResponseObject | None = None
        self._last_item = -1
        """The item that the text sent last belongs to."""

    def translate(self, events: Iterable[ResponseEvent]) -> Iterator[ChatChunk]:
        """Yield the chunks that follow from the events of one fact or delta.

        Raises OpenAIError if the stream has to end with an error.
        """
        broken = False
        for event in events:
            match event:
                case LifecycleEvent(type="response.created"):
                    self._response = event.response
                    yield self._make_chunk(ChatDelta("assistant", ""))
                case TextPieceEvent(output_index=index, delta=text):
                    if index != self._last_item and self._last_item >= 0:
                        text = SEPARATOR + text
                    self._last_item = index
                    yield self._make_chunk(ChatDelta(content=text))
                case ItemEvent(type="response.output_item.done", output_index=index):
                    is_sent = index == self._last_item
                    broken = is_sent and event.item.status == "incomplete"
                case LifecycleEvent(response=response) if response.completed_at is not None:
                    # The end says why the last reply is incomplete.
                    broken = False
                    yield from self._end(response)
                case _:
                    pass
        if broken:
            raise OpenAIError(
                502,
                "reply_broken",
                "The model broke off after some of its answer had been sent.",
                "Ask again, or use /v1/responses, where a new message replaces the broken one.",
            )

    def _end(self, response: ResponseObject) -> Iterator[ChatChunk]:
        error = find_end_error(response)
        if error is not None:
            raise error
        details = response.windlass
        choice = ChunkChoice(finish_reason=finish_reason(details.state))
        yield self._make_chunk(choice, windlass=details)
        if self._include_usage:
            usage = chat_usage(response.usage)
            yield msgspec.structs.replace(self._make_chunk(), usage=usage)

    def _make_chunk(
        self, content: ChatDelta | ChunkChoice | None = None, windlass: RunDetails | None = None
    ) -> ChatChunk:
        response = self._response
        if response is None:
            raise RuntimeError("a run begins with response.created")
        if isinstance(content, ChatDelta):
            content = ChunkChoice(content)
        return ChatChunk(
            make_id("chatcmpl", response.windlass.session, response.windlass.run),
            response.created_at,
            response.model,
            () if content is None else (content,),
            windlass=windlass,
        )


def question_linker(request: HttpRequest) -> Callable[[Question], str]:
    """Return what makes the address of a question: the public one, or that of this request."""

    def link(question: Question) -> str:
        session = quote(question.session, safe="")
        return f"{request.base_url}/#/questions/{session}/{quote(question.call_id, safe='')}"

    return link


async def find_response(service: Service, request: HttpRequest, text: str) -> "ResponseFollower":
    """Return the run of a response, if the caller owns it.

    Raises OpenAIError 404 otherwise, whether or not there is such a run.
    """
    reference = read_id(text)
    if reference is not None and reference.kind == "resp":
        with suppress(ApiError):
            session, number = reference.session, reference.number
            run = await ClientRun.find(service, request.caller, session, number)
            if run is not None:
                return ResponseFollower(run, request)
    raise not_found("response", text)


def not_found(noun: str, text: str) -> OpenAIError:
    """Return the error for an id that leads to nothing of the caller's."""
    return OpenAIError(
        404,
        f"{noun}_not_found",
        f"There is no {noun} {text[:200]!r} of yours.",
        "Check the id, and that the token belongs to the caller that began it.",
    )


class ResponseFollower:
    """Shows one run as a response, on behalf of one request."""

    def __init__(self, run: ClientRun, request: HttpRequest) -> None:
        self.run = run
        self._request = request
        self._needs_client = True

    def keep_run(self) -> None:
        """Record that the run has ended, or continues without its client."""
        self._needs_client = False

    async def read(self) -> ResponseObject:
        """Return the response as it is on record now."""
        view = Projection(self.run.session.name)
        encoder = self._make_encoder(view)
        for fact in await self.run.service.read_facts(self.run.session):
            view = apply_event(view, fact)
            for _ in encoder.encode(fact, view):
                pass
            if encoder.has_ended:
                break
        return encoder.read_response(view)

    async def follow(self, *, on_question: str) -> AsyncGenerator[list[ResponseEvent]]:
        """Yield what each event of the run means for its response, up to its end.

        Raises OpenAIError if the run waits for a person, unless `on_question` is `wait`.
        """
        await self.run.rewind()
        encoder = self._make_encoder(self.run.view)
        async with aclosing(self.run.follow()) as events:
            async for event in events:
                view = self.run.view
                yield list(encoder.encode(event, view))
                waits = on_question == "fail" and encoder.waits(view)
                if waits and await self.run.is_caught_up():
                    raise find_wait_error(encoder.read_details(view))

    async def finish(self, *, on_question: str) -> None:
        """Return when the run has ended. Raises what `follow` raises."""
        async with aclosing(self.follow(on_question=on_question)) as steps:
            async for _ in steps:
                pass

    def cancel_soon(self) -> None:
        """End a run whose client has gone away, unless it went because the service is stopping."""
        service = self.run.service
        if self._needs_client and service.is_ready:
            self._needs_client = False
            cancel = partial(self.run.cancel, "the client went away")
            service.background.start(f"cancel {self.run.session.name}", cancel)

    async def finish_with_client(self, *, on_question: str) -> None:
        """Do what `finish` does. If the client goes away in the meantime, the run is cancelled."""
        try:
            if await self._request.outlast(self.finish(on_question=on_question)):
                return
        except asyncio.CancelledError:
            self.cancel_soon()
            raise
        self.cancel_soon()
        raise OpenAIError(499, "client_gone", "The client went away.", "Ask again.")

    def _make_encoder(self, view: Projection) -> ResponseEncoder:
        link = question_linker(self._request)
        return ResponseEncoder(self.run.number, link, view)


class CancellingFrames(AsyncGenerator[bytes]):
    """Frames of a stream whose run is cancelled if they are closed before it has settled.

    A generator that was never begun does nothing when it is closed, and a client can be that fast.
    """

    def __init__(self, frames: AsyncGenerator[bytes], follower: ResponseFollower) -> None:
        self._frames = frames
        self._follower = follower

    @override
    async def asend(self, value: None) -> bytes:
        return await self._frames.asend(value)

    @override
    async def athrow(self, *error: Any) -> bytes:
        return await self._frames.athrow(*error)

    @override
    async def aclose(self) -> None:
        try:
            await self._frames.aclose()
        finally:
            self._follower.cancel_soon()
