"""The most tokens that a provider can count for what it is sent.

Invariant: a bound is never below what a provider counts. No token is shorter than a byte, so the
bytes of a text are a bound; what a provider adds around messages and calls is counted on top.
"""

import msgspec

from windlass.core.messages import (
    FilePart,
    ImagePart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResults,
)
from windlass.core.setup import Setup

MESSAGE_OVERHEAD = 16
"""The most tokens that a provider may add around a message."""
CALL_FRAMING = 96
"""The most tokens that a provider may add around a call and its result, beside their ids."""
MEDIA_TOKENS = 2_000
"""Tokens that a picture or a document is counted as."""


def message_tokens_max(message: Message) -> int:
    """Return the most tokens that a message can have."""
    if isinstance(message, ToolResults):
        tokens = 0
        for item in message.items:
            tokens += MESSAGE_OVERHEAD + sum(map(_part_tokens_max, item.result.content))
        return tokens
    return MESSAGE_OVERHEAD + sum(map(_part_tokens_max, message.parts))


def framing_tokens_max(results: ToolResults) -> int:
    """Return the most tokens that a provider may add around the calls of these results.

    A call and its result are in the view together, so both are counted with the result. Each
    carries an id, ours or the provider's; a dialect without ids repeats the name of the tool.
    """
    tokens = 0
    for item in results.items:
        call = item.call
        names = (call.id.encode(), (call.provider_id or "").encode(), call.name.encode())
        tokens += CALL_FRAMING + 2 * max(map(len, names))
    return tokens


def fixed_tokens_max(setup: Setup, *, has_artifacts: bool) -> int:
    """Return the most tokens that the instructions and the tool specs can have."""
    specs = sum(
        MESSAGE_OVERHEAD
        + len(spec.name)
        + len(spec.description.encode())
        + _json_bytes(spec.parameters)
        for spec in setup.offered_tools(has_artifacts=has_artifacts)
    )
    instructions = len(setup.instructions.encode())
    # The prompt says in a sentence or two how to use the schema of the output.
    if setup.output_schema:
        output = 8 * MESSAGE_OVERHEAD + _json_bytes(setup.output_schema)
    else:
        output = 0
    return MESSAGE_OVERHEAD + instructions + specs + output


def _json_bytes(value: object) -> int:
    return len(msgspec.json.encode(value))


def _part_tokens_max(part: TextPart | ThinkingPart | ToolCall | ImagePart | FilePart) -> int:
    match part:
        case TextPart(text):
            return len(text.encode())
        case ThinkingPart(text, signature):
            return len(text.encode()) + len(signature or "")
        case ToolCall():
            words = part.name + part.arguments + (part.signature or "")
            return MESSAGE_OVERHEAD + len(words.encode())
        case ImagePart() | FilePart():
            return MEDIA_TOKENS
