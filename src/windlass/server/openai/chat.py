"""The events of a response in, a chat completion out: whole, or chunk by chunk.

Invariant: text that was sent cannot be taken back. If an attempt breaks off after some of its text
was sent, the stream ends with an error, and never continues as if nothing had happened.
"""

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from windlass.server.openai.ids import make_id
from windlass.server.openai.objects import (
    CompletionUsage,
    ResponseFault,
    ResponseObject,
    RunDetails,
    chat_usage,
)
from windlass.server.openai.openai_errors import OpenAIError
from windlass.server.openai.stream_events import (
    ItemEvent,
    LifecycleEvent,
    ResponseEvent,
    TextPieceEvent,
)

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
                fault.code,
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
