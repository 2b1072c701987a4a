"""What a request gave to its response, as their client lists it: `responses.input_items`."""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from windlass.core.messages import (
    AssistantMessage,
    ContentPart,
    FilePart,
    ImagePart,
    Message,
    TextPart,
    ToolResults,
    UserMessage,
)
from windlass.core.projection.entries import EarlierEntry, PromptEntry
from windlass.core.projection.view import Projection
from windlass.server.client_run import find_run
from windlass.server.openai.objects import make_id

JsonDict = dict[str, Any]


class InputItemsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which items are listed, and in which order."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"
    after: str = ""
    """The id of the last item of the page before."""
    include: tuple[str, ...] = msgspec.field(default=(), name="include[]")


class InputItemList(msgspec.Struct, frozen=True):
    """A page of items."""

    data: list[JsonDict]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: Literal["list"] = "list"


def list_input_items(view: Projection, number: int, query: InputItemsQuery) -> InputItemList:
    """Return the items that a request gave to a run, without those of the runs before it."""
    items = list(_items_of_run(view, number))
    for at, item in enumerate(items):
        # Messages of a conversation from elsewhere come with one fact.
        item["id"] = f"item{at}_{item['id']}"
    if query.order == "desc":
        items.reverse()
    places = [at for at, item in enumerate(items, 1) if item["id"] == query.after]
    rest = items[places[0] :] if places else items
    page = rest[: query.limit]
    first, last = (page[0]["id"], page[-1]["id"]) if page else (None, None)
    return InputItemList(page, first, last, len(rest) > len(page))


def _items_of_run(view: Projection, number: int) -> Iterator[JsonDict]:
    run = find_run(view, number)
    if run is None or run.queued:
        return
    for entry in view.entries[: run.first_entry + 1]:
        if isinstance(entry, EarlierEntry) and number == 1:
            item_id = make_id("msg", view.session, entry.seq)
            yield from _items_of_message(entry.message, item_id)
    prompt = view.entries[run.first_entry]
    if isinstance(prompt, PromptEntry):
        parts = [part for part in prompt.parts if not _is_of_program(part)]
        yield _message_item(make_id("msg", view.session, prompt.seq), "user", _content(parts))


def _is_of_program(part: ContentPart) -> bool:
    return isinstance(part, TextPart) and part.by_program


def _items_of_message(message: Message, item_id: str) -> Iterator[JsonDict]:
    match message:
        case UserMessage(parts):
            yield _message_item(item_id, "user", _content(parts))
        case AssistantMessage():
            if message.text:
                text: JsonDict = {"type": "output_text", "text": message.text, "annotations": []}
                yield _message_item(item_id, "assistant", [text])
            for call in message.calls:
                fields = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
                yield {"id": item_id, "type": "function_call", "status": "completed", **fields}
        case ToolResults(items):
            for made in items:
                fields = {"call_id": made.call.id, "output": made.result.text}
                yield {
                    "id": item_id,
                    "type": "function_call_output",
                    "status": "completed",
                    **fields,
                }


def _message_item(item_id: str, role: str, content: list[JsonDict]) -> JsonDict:
    return {
        "id": item_id,
        "type": "message",
        "role": role,
        "status": "completed",
        "content": content,
    }


def _content(parts: Sequence[ContentPart]) -> list[JsonDict]:
    content: list[JsonDict] = []
    for part in parts:
        match part:
            case TextPart(text):
                content.append({"type": "input_text", "text": text})
            case ImagePart():
                content.append(
                    {"type": "input_image", "detail": "auto", "image_url": _address(part)}
                )
            case FilePart(name=name):
                content.append(
                    {"type": "input_file", "filename": name, "file_data": _address(part)}
                )
    return content


def _address(part: ImagePart | FilePart) -> str | None:
    if part.data is None:
        return part.url
    return f"data:{part.media_type};base64,{b64encode(part.data).decode()}"
