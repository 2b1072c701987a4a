"""The vendors of models: each is a provider that `provider:model` can name.

They are read from `vendors.toml` when they are first needed. A new one is an entry there.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

_VENDORS_PATH = Path(__file__).with_name("vendors.toml")
DialectName = Literal["openai_chat", "openai_responses", "anthropic", "gemini", "bedrock"]
CloudName = Literal["", "aws", "azure", "google"]


class ChatQuirks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one server of chat completions expects. The defaults suit most servers."""

    system_role: Literal["system", "developer"] = "system"
    output_cap: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The name of the field that limits the output."""
    stream_usage: bool = True
    """Accepts `stream_options.include_usage`, without which many servers report no usage."""
    effort: Literal[
        "none", "reasoning_effort", "reasoning", "enable_thinking", "thinking", "template"
    ] = "none"
    """How a request sets the amount of thinking; with `none` it cannot."""
    effort_off: str = "none"
    """The value of `reasoning_effort` that switches thinking off; empty if nothing does."""
    thinking_back: Literal["", "reasoning_content", "reasoning"] = ""
    """The field in which a model's thinking goes back beside its calls; empty if it must not."""
    call_id: str = r"[\w.:-]{1,64}"
    """The pattern of call ids that the server accepts."""
    required_choice: Literal["required", "any", "auto"] = "required"
    """The server's word for "call some tool"; `auto` if it has none."""
    named_choice: bool = True
    """Accepts the name of the tool to call."""
    parallel_choice: bool = True
    """Accepts `parallel_tool_calls`."""
    json_schema: Literal["always", "without_tools", "never"] = "without_tools"
    """When the output schema may be enforced: on many servers it would rule out tool calls."""
    seed: str = "seed"
    """The name of the field for the seed."""
    images: bool = True
    files: bool = False
    """Accepts documents such as PDF. Plain text files are sent as text to every server."""
    tool_images: bool = False
    """Accepts images in tool results; otherwise they follow in a user message."""
    tool_protocol: Literal["native", "text", "qwen", "react", "grammar"] = "native"
    """How tools are offered to the server's models, unless the caller says."""
    grammar_below: float = 0.0
    """Models of fewer billions of weights get the `grammar` protocol, unless the caller says.

    Only for servers that enforce a schema. The size of a model comes from its name or its file.
    """
    calls_in_words: bool = False
    """Calls that its models write as text count anywhere in a reply.

    For servers of small models, whose calls cannot be distinguished from their words. Elsewhere
    such text counts only if it is the whole reply: a large model may write it as an example.
    """
    bridge: str = ""
    """What the model is made to say between tool results and a user message.

    For servers that do not accept a user message right after tool results; empty for all others.
    """


class VendorConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A vendor that serves models, and how to talk to it."""

    dialect: DialectName
    url: str = ""
    """The base URL; if it is empty, the caller must give one."""
    url_env: str | None = None
    """The environment variable that may name another base URL."""
    key_env: str | None = None
    """The environment variable that holds the key."""
    cloud: CloudName = ""
    """The cloud that it belongs to: without a key, its credentials are used."""
    sign_in: str = ""
    """How to get in without a key, as the end of a sentence for people."""
    url_example: str = "http://localhost:8000/v1"
    """What an address looks like, if the caller must give one."""
    keyless: bool = False
    """Works without a key."""
    key_header: str = "Authorization"
    """The header that carries the key; `Authorization` carries it as a bearer token."""
    headers: dict[str, str] = {}
    """Sent with each request."""
    hint: str = ""
    """What to do when the server refuses connections."""
    reasons: tuple[str, ...] = ()
    """Name patterns of the models that take an effort, for which `choose_effort` may choose one."""
    quirks: ChatQuirks = ChatQuirks()


@cache
def load_vendors() -> Mapping[str, VendorConfig]:
    """Return all vendors by name."""
    import tomllib  # noqa: PLC0415 - costs 1.5 ms

    return msgspec.convert(tomllib.loads(_VENDORS_PATH.read_text("utf-8")), dict[str, VendorConfig])
