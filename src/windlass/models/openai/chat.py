"""OpenAI chat completions, as OpenAI and some dozen other servers speak it (P2).

The law: how servers differ is data (`Quirks`), and no vendor has a name here.
"""

from functools import partial
from typing import Any

from typing_extensions import override

from windlass.core.setup import ToolChoice
from windlass.core.view import Prompt
from windlass.models.dialect import Dialect, Effort, ModelOptions, WireRequest
from windlass.models.fragments import EncodedHistories
from windlass.models.openai.chat_history import ChatEncoder, encode_system_message
from windlass.models.openai.chat_reader import ChatReader
from windlass.models.openai.quirks import ChatQuirks
from windlass.models.turns import build_body

_DEFAULT_QUIRKS = ChatQuirks()
_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}


class OpenAIChat(Dialect):
    """The dialect of `POST /chat/completions`."""

    def __init__(self, quirks: ChatQuirks = _DEFAULT_QUIRKS, vendor: str = "the server") -> None:
        self._quirks = quirks
        self._history = EncodedHistories(partial(ChatEncoder, quirks, vendor))

    @override
    def encode_request(self, prompt: Prompt, model: str, options: ModelOptions) -> WireRequest:
        quirks = self._quirks
        head: dict[str, Any] = {"model": model, "stream": True}
        if quirks.stream_usage:
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
        messages = self._history.encode_messages(prompt.messages, prompt.model)
        if prompt.system:
            messages = encode_system_message(quirks.system_role, prompt.system) + b"," + messages
        encoded = build_body(head, options.extra_body, "messages", messages)
        return WireRequest("/chat/completions", encoded, dict(options.extra_headers))

    @override
    def new_reader(self, prompt: Prompt) -> ChatReader:
        return ChatReader()


def _sampling_settings(options: ModelOptions, quirks: ChatQuirks) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "temperature": options.temperature,
        "top_p": options.top_p,
        quirks.seed: options.seed,
        "stop": options.stop or None,
        "service_tier": options.service_tier,
    }
    return {name: value for name, value in asked.items() if value is not None}


def _effort_settings(effort: Effort, quirks: ChatQuirks) -> dict[str, Any]:
    """How much to think, in the server's own words (S14)."""
    on = effort != "off"
    level = effort if on else quirks.effort_off
    match quirks.effort:
        case "none":
            return {}
        case "reasoning_effort":
            return {"reasoning_effort": level} if level else {}
        case "reasoning":
            return {"reasoning": {"effort": effort} if on else {"enabled": False}}
        case "enable_thinking":
            return {"enable_thinking": on}
        case "thinking":
            switch = {"thinking": {"type": "enabled" if on else "disabled"}}
            return switch | ({"reasoning_effort": effort} if on else {})
        case "template":
            told: dict[str, Any] = {"enable_thinking": on}
            if on:
                told["reasoning_effort"] = effort
            return {"chat_template_kwargs": told}


def _tool_settings(prompt: Prompt, quirks: ChatQuirks) -> dict[str, Any]:
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
    choice = _encode_tool_choice(prompt.tool_choice, quirks)
    return {"tools": tools} if choice == "auto" else {"tools": tools, "tool_choice": choice}


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
