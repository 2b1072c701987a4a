"""The most tokens that a provider can count for what it is sent.

The law: a bound is never below what a provider counts. No token is shorter than a byte, so the
bytes of a text are a bound; what a provider adds around messages and calls is counted on top.
"""

import msgspec

from windlass.core.messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResults,
    UserMessage,
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
    match message:
        case UserMessage(parts) | AssistantMessage(parts):
            return MESSAGE_OVERHEAD + sum(map(_part_tokens_max, parts))
        case ToolResults(items):
            return sum(
                MESSAGE_OVERHEAD + sum(map(_part_tokens_max, item.result.content)) for item in items
            )


def framing_tokens_max(message: Message) -> int:
    """Return the most tokens that a provider may add around the calls of a message.

    A call and its result are in the view together, so both are counted with the result. Each
    carries an id, ours or the provider's; a dialect without ids repeats the name of the tool.
    """
    if not isinstance(message, ToolResults):
        return 0
    return sum(CALL_FRAMING + 2 * _name_bytes_max(item.call) for item in message.items)


def _name_bytes_max(call: ToolCall) -> int:
    return max(map(len, map(str.encode, (call.id, call.provider_id or "", call.name))))


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
