"""OpenAI's chat completions API, which a dozen other servers speak as well.

Invariant: how servers differ is data (`ChatQuirks`). No vendor is named here.
"""

from functools import partial
from typing import Any

from typing_extensions import override

from windlass.core.setup import ToolChoice
from windlass.core.view import Prompt
from windlass.models.dialect import Dialect, WireRequest
from windlass.models.encoding import JsonObject, build_body, drop_unset
from windlass.models.fragments import EncodedHistories
from windlass.models.openai.chat_history import ChatEncoder, encode_system_message
from windlass.models.openai.chat_reader import ChatReader
from windlass.models.openai.quirks import ChatQuirks
from windlass.models.options import Effort, ModelOptions

_DEFAULT_QUIRKS = ChatQuirks()
# Some servers refuse an empty schema.
_NO_PARAMETERS: JsonObject = {"type": "object", "properties": {}}


class OpenAIChat(Dialect):
    """The dialect of `POST /chat/completions`."""

    def __init__(self, quirks: ChatQuirks = _DEFAULT_QUIRKS, vendor: str = "the server") -> None:
        self._quirks = quirks
        self._histories = EncodedHistories(partial(ChatEncoder, quirks, vendor))

    @override
    def encode_request(self, prompt: Prompt, model: str, options: ModelOptions) -> WireRequest:
        quirks = self._quirks
        head: JsonObject = {"model": model, "stream": True}
        if quirks.stream_usage:  # Many servers report no usage in a stream unless asked to.
            head["stream_options"] = {"include_usage": True}
        head[quirks.output_cap] = prompt.output_max
        head |= _sampling_settings(options, quirks)
        if options.effort is not None:
            head |= _effort_settings(options.effort, quirks)
        if prompt.tools:
            head |= _tool_settings(prompt, quirks)
        if prompt.output_schema is not None and _can_enforce_schema(prompt, quirks):
            schema = {"name": "output", "schema": prompt.output_schema}
            head["response_format"] = {"type": "json_schema", "json_schema": schema}
        messages = self._histories.encode_messages(prompt.messages, prompt.model)
        if prompt.system:
            messages = encode_system_message(quirks.system_role, prompt.system) + b"," + messages
        body = build_body(head, options.extra_body, "messages", messages)
        return WireRequest("/chat/completions", body, dict(options.extra_headers))

    @override
    def new_reader(self, prompt: Prompt) -> ChatReader:
        return ChatReader()


def _sampling_settings(options: ModelOptions, quirks: ChatQuirks) -> JsonObject:
    return drop_unset(
        {
            "temperature": options.temperature,
            "top_p": options.top_p,
            quirks.seed: options.seed,
            "stop": options.stop or None,
            "service_tier": options.service_tier,
        }
    )


def _effort_settings(effort: Effort, quirks: ChatQuirks) -> JsonObject:
    """Return how much to think, in the server's own fields."""
    on = effort != "off"
    match quirks.effort:
        case "none":
            return {}
        case "reasoning_effort":
            level = effort if on else quirks.effort_off
            return {"reasoning_effort": level} if level else {}
        case "reasoning":
            return {"reasoning": {"effort": effort} if on else {"enabled": False}}
        case "enable_thinking":
            return {"enable_thinking": on}
        case "thinking":
            if on:
                return {"thinking": {"type": "enabled"}, "reasoning_effort": effort}
            return {"thinking": {"type": "disabled"}}
        case "template":
            level = effort if on else None
            arguments = drop_unset({"enable_thinking": on, "reasoning_effort": level})
            return {"chat_template_kwargs": arguments}


def _tool_settings(prompt: Prompt, quirks: ChatQuirks) -> JsonObject:
    tools = [
        {
            "type": "function",
            "function": {
                "name": spec.name,
                "description": spec.description,
                "parameters": spec.parameters or _NO_PARAMETERS,
            },
        }
        for spec in prompt.tools
    ]
    settings: JsonObject = {"tools": tools}
    choice = _encode_tool_choice(prompt.tool_choice, quirks)
    if choice != "auto":
        settings["tool_choice"] = choice
    if not prompt.parallel_tool_calls and quirks.parallel_choice:
        settings["parallel_tool_calls"] = False
    return settings


def _encode_tool_choice(choice: ToolChoice, quirks: ChatQuirks) -> Any:  # noqa: ANN401 - a word or an object
    match choice:
        case "auto" | "none":
            return choice
        case "required":
            return quirks.required_choice
        case name if quirks.named_choice:
            return {"type": "function", "function": {"name": name}}
        case _:
            return quirks.required_choice


def _can_enforce_schema(prompt: Prompt, quirks: ChatQuirks) -> bool:
    match quirks.json_schema:
        case "always":
            return True
        case "without_tools":
            return not prompt.tools
        case "never":
            return False
