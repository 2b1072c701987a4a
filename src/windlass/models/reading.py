"""What the readers of several dialects share.

Invariant: a kind of event or block that a reader does not know is skipped, whatever is in it,
because providers add new ones without notice. A known one that cannot be parsed is an error.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar, cast

import msgspec

from windlass.core.errors import ModelError
from windlass.core.messages import Usage
from windlass.core.text_clip import clip_line

EventT = TypeVar("EventT")
REFUSED_CHARS_MAX = 500
"""How much of a refused reply is repeated to the model that wrote it."""


class InputTokenDetails(msgspec.Struct):
    """How much of the input came from the prompt cache or was written to it."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class OutputTokenDetails(msgspec.Struct):
    """How much of the output was reasoning."""

    reasoning_tokens: int | None = None


def build_usage(
    input_tokens: int,
    output_tokens: int,
    input_details: InputTokenDetails | None,
    output_details: OutputTokenDetails | None,
) -> Usage:
    """Build the usage of one reply. Details that a server leaves out count as zero."""
    input_details = input_details or InputTokenDetails()
    output_details = output_details or OutputTokenDetails()
    return Usage(
        input=input_tokens,
        output=output_tokens,
        cache_read=input_details.cached_tokens or 0,
        cache_write=input_details.cache_write_tokens or 0,
        reasoning=output_details.reasoning_tokens or 0,
    )


def refused_call_note(problem: str, written: str = "") -> str:
    """Return the note to a model whose reply the provider refused because of a call in it."""
    quoted = f" You wrote: {clip_line(written, REFUSED_CHARS_MAX)}" if written else ""
    return (
        f"The provider refused your last reply, because it called a tool wrongly: {problem}{quoted}"
        "\nCall a tool only by its own name, with arguments that fit its parameters, or answer in "
        "words."
    )


def malformed_stream_error(error: Exception) -> ModelError:
    """Return the error for an event that cannot be parsed."""
    return ModelError(
        "malformed_stream",
        f"the server sent an event that is not the JSON of a reply ({error}). If this happens "
        "again, check base_url and what stands between: a proxy may damage long replies.",
    )


def decode_reply(decode: Callable[[bytes], EventT], body: bytes) -> EventT | None:
    """Decode a reply that came whole; None if it has another shape."""
    try:
        return decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def decode_known_event(
    decode: Callable[[bytes], EventT],
    data: bytes,
    known_kinds: Mapping[str, frozenset[str]],
    *inner_names: str,
) -> EventT | None:
    """Decode one event, or return None if it is of a kind that the reader does not know.

    `known_kinds` maps the types of events that the reader must be able to read to the types of the
    block inside it that it must be able to read; an empty set means any. `inner_names` are the
    fields that may hold that block. Raises ModelError if a known event cannot be parsed.
    """
    try:
        return decode(data)
    except msgspec.ValidationError as error:
        # It is JSON, but not of the shape that we expect. That is fine for new kinds of events.
        if _is_known_event(data, known_kinds, inner_names):
            raise malformed_stream_error(error) from error
        return None
    except msgspec.DecodeError as error:
        raise malformed_stream_error(error) from error


def _is_known_event(
    data: bytes, known_kinds: Mapping[str, frozenset[str]], inner_names: tuple[str, ...]
) -> bool:
    event: object = msgspec.json.decode(data)
    if not isinstance(event, dict):
        return True
    fields = cast("dict[str, object]", event)
    inner_kinds = known_kinds.get(str(fields.get("type")))
    if not inner_kinds:
        return inner_kinds is not None
    inner = next((fields[name] for name in inner_names if fields.get(name) is not None), None)
    if not isinstance(inner, dict):
        return True
    return cast("dict[str, object]", inner).get("type") in inner_kinds
