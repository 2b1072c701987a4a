"""A call or an answer, forced by a schema, for models too weak to call tools by themselves.

    {"name": "read", "arguments": {"path": "a.txt"}}
    {"name": "answer", "arguments": {"text": "It says hello."}}

Invariant: the model can write nothing else, because the server lets no other token pass. The schema
enforces the tool choice too. An answer is shown as it streams; a call is handled like any other.

To answer is a function like the others, because small models that were trained to call functions
call one in every reply: without this one they repeat the last call for ever.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from msgspec.structs import replace as struct_replace
from typing_extensions import override

from windlass.core.messages import (
    AssistantMessage,
    CallOutcome,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResults,
    ToolSpec,
    UserMessage,
)
from windlass.core.view import Prompt
from windlass.models.dialect import Dialect, ReplyReader, WireRequest
from windlass.models.encoding import JsonObject
from windlass.models.options import ModelOptions
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
from windlass.models.vendors import ChatQuirks

_ANSWER_PROMPT = """\
Reply with one JSON object, and nothing else:
{"answer": <your-answer>}"""
_TOOLS_PROMPT = """\
# Tools

You may call functions, one at a time, to assist with the user query:
<tools>
{tools}
</tools>

Reply with one JSON object, and nothing else, to call a function:
{{"name": <function-name>, "arguments": <args-json-object>}}"""
_ANSWER_NAMES = ("answer", "final_answer", "answer_the_user")
_ANSWER_DESCRIPTION = (
    "Tell the user the final answer. Call it as soon as the results of the other functions are "
    "enough, or if no other function is needed."
)

_OPTIONAL_ARGUMENTS = "Optional arguments, only if they are asked for:"
_EXAMPLE = re.compile(
    r",?\s+(?:such as|for example|e\.g\.|like)\s+\S+?(?=[.;,]?(?:\s|$))", re.IGNORECASE
)
_TOLD_TO_CALL = (
    r"\b(?:use|using|call|with)\s+(?:\w+\s+){{0,3}}(?:tools?|functions?)\b"
    r"|\b(?:use|using|call)\s+(?:the\s+)?`?(?:{names})\b"
)
"""Words that tell the model to use a tool: "use the tools", "with the edit tool", "call read"."""
_DEFINITION_KEYS = ("$defs", "definitions")


class GrammarCalls(Dialect):
    """Chat completions in which each reply is a call or an answer."""

    def __init__(self, quirks: ChatQuirks, vendor: str) -> None:
        self._quirks = quirks
        self._vendor = vendor
        self._chats: dict[str, TextHistoryChat] = {}
        """By the name of the answering function."""

    @override
    def encode_request(self, prompt: Prompt, model: str, options: ModelOptions) -> WireRequest:
        block = _ANSWER_PROMPT
        if prompt.tools:
            functions = [*map(shorten_signature, prompt.tools), answer_spec(prompt)]
            block = _TOOLS_PROMPT.format(tools=format_tools(functions))
        system = append_block(prompt.system, block)
        text_prompt = replace(prompt, system=system, tools=(), output_schema=None)
        schema = {"name": "reply", "schema": reply_schema(prompt)}
        response_format = {"type": "json_schema", "json_schema": schema}
        extra_body = {"response_format": response_format} | options.extra_body
        return self._chat_for(prompt).encode_request(
            text_prompt, model, replace(options, extra_body=extra_body)
        )

    @override
    def new_reader(self, prompt: Prompt) -> ReplyReader:
        scan = GrammarScan(as_text=prompt.output_schema is None, answer_name=answer_name(prompt))
        return ScanningReader(self._chat_for(prompt).new_reader(prompt), scan)

    def _chat_for(self, prompt: Prompt) -> TextHistoryChat:
        name = answer_name(prompt)
        if name not in self._chats:
            new_encoder = partial(GrammarCallEncoder, name)
            self._chats[name] = TextHistoryChat(self._quirks, self._vendor, new_encoder)
        return self._chats[name]


def answer_name(prompt: Prompt) -> str:
    """Return the name of the function that answers: one that no tool has. Empty without tools."""
    if not prompt.tools:
        return ""
    taken = {spec.name for spec in prompt.tools}
    return next((name for name in _ANSWER_NAMES if name not in taken), "_".join(_ANSWER_NAMES))


def answer_spec(prompt: Prompt) -> ToolSpec:
    """Return the function that answers, as it is described to the model."""
    text = {"type": "string", "description": "The answer, in words."}
    parameters = _object_schema({"text": text})
    if prompt.output_schema is not None:
        parameters = _object_schema({"value": {"description": "In the form that is asked for."}})
    return ToolSpec(answer_name(prompt), _ANSWER_DESCRIPTION, parameters)


def shorten_signature(spec: ToolSpec) -> ToolSpec:
    """Return a tool as it is described to a small model; the schema of a reply stays complete.

    Such a model passes every argument that it sees in a signature, with a made-up value, so
    optional parameters are described in words after the description. It also mistakes an example
    for the wanted value, so examples are left out.
    """
    properties: Mapping[str, Any] = spec.parameters.get("properties", {})
    required = spec.parameters.get("required", ())
    kept = {name: _drop_examples(node) for name, node in properties.items() if name in required}
    optional = [name for name in properties if name not in required]
    description = spec.description
    if optional:
        words = "; ".join(_describe_parameter(name, properties[name]) for name in optional)
        description = f"{description} {_OPTIONAL_ARGUMENTS} {words}"
    parameters = {**spec.parameters, "properties": kept} if properties else spec.parameters
    return struct_replace(spec, description=description, parameters=parameters)


def _drop_examples(node: object) -> object:
    """Return the schema of a parameter without the examples in its description."""
    if not isinstance(node, dict):
        return node
    fields = cast("dict[str, Any]", node)
    description = fields.get("description")
    if not isinstance(description, str):
        return fields
    return {**fields, "description": _EXAMPLE.sub("", description)}


def _describe_parameter(name: str, node: object) -> str:
    fields: Mapping[str, Any] = {}
    if isinstance(node, dict):
        fields = cast("dict[str, Any]", node)
    words = _EXAMPLE.sub("", str(fields.get("description", ""))).rstrip(".")
    if fields.get("enum"):
        words = f"{words} ({', '.join(map(str, fields['enum']))})".strip()
    return f"{name}: {words}" if words else name


class GrammarCallEncoder(TextHistoryEncoder):
    """Encodes one history for one model; past replies have the form that is enforced now."""

    def __init__(self, answer_name: str, quirks: ChatQuirks, vendor: str, model: str) -> None:
        super().__init__(quirks, vendor, model)
        self._answer_name = answer_name

    @override
    def _reply_text(self, reply: AssistantMessage, *, native: bool) -> str:
        return "\n".join(self._reply_lines(reply))

    def _reply_lines(self, reply: AssistantMessage) -> Iterator[str]:
        for part in reply.parts:
            match part:
                case TextPart(text) if self._answer_name:
                    yield dump_json({"name": self._answer_name, "arguments": {"text": text}})
                case TextPart(text):
                    yield dump_json({"answer": text})
                case ToolCall():
                    yield format_call(part)
                case ThinkingPart():
                    pass


def reply_schema(prompt: Prompt) -> JsonObject:
    """Return the schema of a reply: a call of a tool that may be called now, or an answer."""
    definitions: JsonObject = {}
    choice = prompt.tool_choice
    any_tool = choice in ("auto", "required")
    if choice == "auto" and repeats_itself(prompt):
        any_tool = False
    callable_now = [spec for spec in prompt.tools if any_tool or spec.name == choice]
    forms = [_call_schema(spec, definitions) for spec in callable_now]
    may_answer = choice == "none" or (choice == "auto" and not needs_call(prompt))
    if may_answer or not forms:
        forms.append(_answer_schema(prompt, definitions))
    schema: JsonObject = forms[0] if len(forms) == 1 else {"anyOf": forms}
    if definitions:
        schema["$defs"] = definitions
    return schema


def needs_call(prompt: Prompt) -> bool:
    """Whether the user asked the model to use a tool, and it has not called one since.

    A small model that may answer does so from imagination.
    """
    if not prompt.tools:
        return False
    for message in reversed(prompt.messages):
        if isinstance(message, ToolResults):
            return False
        if isinstance(message, UserMessage) and not message.note:
            return _tells_to_call(message.text, [spec.name for spec in prompt.tools])
    return False


def repeats_itself(prompt: Prompt) -> bool:
    """Whether the model just made the same call twice, and got the same result.

    It then has to answer. A small model would repeat the call until the run is stuck, or call other
    tools with whatever it has.
    """
    results = [message for message in prompt.messages[-3:] if isinstance(message, ToolResults)]
    if len(results) != 2 or not isinstance(prompt.messages[-1], ToolResults):  # noqa: PLR2004 - a pair
        return False
    before, last = ([_as_made(item) for item in message.items] for message in results)
    return before == last


def _as_made(outcome: CallOutcome) -> tuple[str, str, str]:
    """Return what a call asked for and got, without the ids that tell equal calls apart."""
    return outcome.call.name, "".join(outcome.call.arguments.split()), outcome.result.text


def _tells_to_call(text: str, names: Sequence[str]) -> bool:
    # A name such as get_weather is not a word, so a user who writes it means the tool.
    if any("_" in name and name in text for name in names):
        return True
    pattern = _TOLD_TO_CALL.format(names="|".join(map(re.escape, names)))
    return re.search(pattern, text, re.IGNORECASE) is not None


def _answer_schema(prompt: Prompt, definitions: JsonObject) -> JsonObject:
    name = answer_name(prompt)
    key = "text" if name else "answer"
    answer: JsonObject = {"type": "string"}
    if prompt.output_schema is not None:
        key = "value" if name else "answer"
        answer = hoist_definitions(prompt.output_schema, "answer", definitions)
    form = _object_schema({key: answer})
    if name:
        return _object_schema({"name": {"const": name}, "arguments": form})
    return form


def _call_schema(spec: ToolSpec, definitions: JsonObject) -> JsonObject:
    parameters = hoist_definitions(spec.parameters, f"call.{spec.name}", definitions)
    arguments = {"type": "object"} | parameters
    return _object_schema({"name": {"const": spec.name}, "arguments": arguments})


def _object_schema(properties: JsonObject) -> JsonObject:
    """Return the schema of an object with all of these fields, in this order, and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def hoist_definitions(schema: Mapping[str, Any], owner: str, definitions: JsonObject) -> JsonObject:
    """Return a schema that can be nested in another one.

    References in a schema count from the root, so its definitions move to `definitions`, the ones
    of the outer schema, under names that begin with `owner`.
    """
    own: JsonObject = {}
    for key in _DEFINITION_KEYS:
        own |= {f"#/{key}/{name}": node for name, node in schema.get(key, {}).items()}
    new_names = {path: f"{owner}.{path.rsplit('/', 1)[1]}" for path in own} | {"#": owner}
    body = {key: node for key, node in schema.items() if key not in _DEFINITION_KEYS}
    moved = cast("JsonObject", _rename_refs(body, new_names))
    for path, node in own.items():
        definitions[new_names[path]] = _rename_refs(node, new_names)
    # A recursive schema refers to its own root, which needs a definition then.
    if any(_refers_to(node, f"#/$defs/{owner}") for node in (moved, *definitions.values())):
        definitions[owner] = moved
    return moved


def _rename_refs(node: object, new_names: Mapping[str, str]) -> object:
    match node:
        case dict():
            fields = cast("dict[str, object]", node)
            renamed = {key: _rename_refs(value, new_names) for key, value in fields.items()}
            path = fields.get("$ref")
            if isinstance(path, str) and path in new_names:
                renamed["$ref"] = f"#/$defs/{new_names[path]}"
            return renamed
        case list():
            return [_rename_refs(item, new_names) for item in cast("list[object]", node)]
        case _:
            return node


def _refers_to(node: object, path: str) -> bool:
    match node:
        case {"$ref": str(found)} if found == path:
            return True
        case dict():
            fields = cast("dict[str, object]", node)
            return any(_refers_to(value, path) for value in fields.values())
        case list():
            return any(_refers_to(item, path) for item in cast("list[object]", node))
        case _:
            return False
