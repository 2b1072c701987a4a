"""What an editor sends as a prompt, as the parts of a prompt of Windlass.

Invariant: only the text blocks are the person's own words. What comes next to them, as a file, an
image or a selection, may be private, and strangers may have written it; the labels say so.
"""

import base64
import binascii
from collections.abc import Sequence
from typing import assert_never

import msgspec
from acp.schema import (
    AudioContentBlock,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)

from windlass.agent.attachments import attach
from windlass.core.errors import ConfigError
from windlass.core.messages import ContentPart, Label, TextPart

PromptBlock = (
    TextContentBlock
    | ImageContentBlock
    | AudioContentBlock
    | ResourceContentBlock
    | EmbeddedResourceContentBlock
)
BESIDE_LABELS: tuple[Label, ...] = ("untrusted", "private")


class EditorPrompt(msgspec.Struct, frozen=True):
    """A prompt, and how far its words are the person's own."""

    parts: tuple[ContentPart, ...]
    typed: str
    labels: tuple[Label, ...]


def read_prompt(blocks: Sequence[PromptBlock]) -> EditorPrompt:
    """Return the prompt that an editor sent. Raises ConfigError if a block cannot be taken."""
    parts = tuple(_read_block(block) for block in blocks)
    typed = [block.text for block in blocks if isinstance(block, TextContentBlock)]
    brings_more = any(
        not isinstance(block, TextContentBlock | ResourceContentBlock) for block in blocks
    )
    labels = BESIDE_LABELS if brings_more else ()
    return EditorPrompt(parts, "\n".join(typed), labels)


def _read_block(block: PromptBlock) -> ContentPart:
    match block:
        case TextContentBlock():
            return TextPart(block.text)
        case ImageContentBlock():
            data = _decode_base64(block.data, "the image")
            return attach(data, media_type=block.mime_type, name="image")
        case ResourceContentBlock():
            # The model reads the file itself, with its tools, if it needs to.
            return TextPart(f"\n[{block.name}]({block.uri})\n")
        case EmbeddedResourceContentBlock():
            return _read_resource(block)
        case AudioContentBlock():
            raise ConfigError("audio cannot be used in a prompt: send text, images or files")
        case _:
            assert_never(block)


def _read_resource(block: EmbeddedResourceContentBlock) -> ContentPart:
    resource = block.resource
    if isinstance(resource, TextResourceContents):
        # JSON quotes whatever is in the address, so that it cannot end the tag.
        uri = msgspec.json.encode(resource.uri).decode()
        return TextPart(f"\n<resource uri={uri}>\n{resource.text}\n</resource>\n")
    data = _decode_base64(resource.blob, resource.uri)
    name = resource.uri.rsplit("/", 1)[-1] or "file"
    return attach(data, media_type=resource.mime_type, name=name)


def _decode_base64(data: str, what: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (ValueError, binascii.Error):
        raise ConfigError(f"{what} in the prompt is not valid base64") from None
