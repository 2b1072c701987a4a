"""A call or an answer, forced by a schema, for models too weak to call tools by themselves (P9).

    {"name": "read", "arguments": {"path": "a.txt"}}
    {"answer": "It says hello."}

The law: the model can write nothing else, since the server lets no other token pass. What tool
choice asks for, the schema holds. The answer is shown as it streams, and a call goes the way of
all calls.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from typing_extensions import override

from windlass.core.messages import AssistantMessage, TextPart, ThinkingPart, ToolCall, ToolSpec
from windlass.core.view import Prompt
from windlass.models.dialect import Dialect, ModelOptions, ReplyReader, WireRequest
from windlass.models.openai.quirks import ChatQuirks
from windlass.models.text_protocols.grammar_scan import GrammarScan
from windlass.models.text_protocols.scanning import ScanningReader
from windlass.models.text_protocols.text_calls import (
    TextHistoryChat,
    TextHistoryEncoder,
    append_block,
    dump_json,
    format_call,
    format_tools,
)

_ANSWER_PROMPT = """\
Reply with one JSON object, and nothing else:
{"answer": <your-answer>}"""
_TOOLS_PROMPT = """\
# Tools

You may call functions, one at a time, to assist with the user query:
<tools>
{tools}
</tools>

Reply with one JSON object, and nothing else. To call a function:
{{"name": <function-name>, "arguments": <args-json-object>}}
When you have what you need:
{{"answer": <your-answer>}}"""


class GrammarCalls(Dialect):
    """Chat completions in which each reply is a call or an answer."""

    def __init__(self, quirks: ChatQuirks, vendor: str) -> None:
        self._chat = TextHistoryChat(quirks, vendor, GrammarCallEncoder)

    @override
    def encode_request(self, prompt: Prompt, model: str, options: ModelOptions) -> WireRequest:
        block = (
            _TOOLS_PROMPT.format(tools=format_tools(prompt.tools))
            if prompt.tools
            else _ANSWER_PROMPT
        )
        said = replace(
            prompt, system=append_block(prompt.system, block), tools=(), output_schema=None
        )
        forced = {
            "type": "json_schema",
            "json_schema": {"name": "reply", "schema": reply_schema(prompt)},
        }
        extra = {"response_format": forced} | options.extra_body
        return self._chat.encode_request(said, model, replace(options, extra_body=extra))

    @override
    def new_reader(self, prompt: Prompt) -> ReplyReader:
        scan = GrammarScan(as_text=prompt.output_schema is None)
        return ScanningReader(self._chat.new_reader(prompt), scan)


class GrammarCallEncoder(TextHistoryEncoder):
    """Encodes one history for one model: its own past replies have the form that is forced."""

    @override
    def _reply_text(self, reply: AssistantMessage, *, native: bool) -> str:
        return "\n".join(_reply_lines(reply))


def _reply_lines(reply: AssistantMessage) -> Iterator[str]:
    for part in reply.parts:
        match part:
            case TextPart(text):
                yield dump_json({"answer": text})
            case ToolCall():
                yield format_call(part)
            case ThinkingPart():
                pass


def reply_schema(prompt: Prompt) -> dict[str, Any]:
    """The schema of a reply: a call of a tool that may be called now, or an answer."""
    definitions: dict[str, Any] = {}
    choice = prompt.tool_choice
    open_choice = choice in ("auto", "required")
    callable_now = [spec for spec in prompt.tools if open_choice or spec.name == choice]
    kinds = [_call_schema(spec, definitions) for spec in callable_now]
    if choice in ("auto", "none") or not kinds:
        answer: Any = {"type": "string"}
        if prompt.output_schema is not None:
            answer = hoist_definitions(prompt.output_schema, "answer", definitions)
        kinds.append(_object_schema({"answer": answer}))
    schema = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    return schema | ({"$defs": definitions} if definitions else {})


def _call_schema(spec: ToolSpec, definitions: dict[str, Any]) -> dict[str, Any]:
    parameters = hoist_definitions(spec.parameters, f"call.{spec.name}", definitions)
    return _object_schema(
        {"name": {"const": spec.name}, "arguments": {"type": "object"} | parameters}
    )


def _object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    """All of these fields, in this order, and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def hoist_definitions(
    schema: Mapping[str, Any], owner: str, definitions: dict[str, Any]
) -> dict[str, Any]:
    """A schema that may stand inside another one: what it defines moves to the top of that."""
    own: dict[str, Any] = {}
    for key in ("$defs", "definitions"):
        own |= {f"#/{key}/{name}": node for name, node in schema.get(key, {}).items()}
    names = {path: f"{owner}.{path.rsplit('/', 1)[1]}" for path in own}
    body = {key: node for key, node in schema.items() if key not in ("$defs", "definitions")}
    moved = cast("dict[str, Any]", _rename_refs(body, names | {"#": owner}))
    for path, node in own.items():
        definitions[names[path]] = _rename_refs(node, names | {"#": owner})
    if any(_refers_to(node, f"#/$defs/{owner}") for node in (moved, *definitions.values())):
        definitions[owner] = moved
    return moved


def _rename_refs(node: object, names: Mapping[str, str]) -> object:
    match node:
        case dict():
            fields = cast("dict[str, object]", node)
            moved = {key: _rename_refs(value, names) for key, value in fields.items()}
            path = fields.get("$ref")
            if isinstance(path, str) and path in names:
                moved["$ref"] = f"#/$defs/{names[path]}"
            return moved
        case list():
            return [_rename_refs(item, names) for item in cast("list[object]", node)]
        case _:
            return node


def _refers_to(node: object, path: str) -> bool:
    match node:
        case {"$ref": str(found)} if found == path:
            return True
        case dict():
            return any(
                _refers_to(value, path) for value in cast("dict[str, object]", node).values()
            )
        case list():
            return any(_refers_to(item, path) for item in cast("list[object]", node))
        case _:
            return False
