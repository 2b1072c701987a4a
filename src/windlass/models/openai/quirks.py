"""How servers of chat completions differ from one another, as data. The defaults suit most."""

from typing import Literal

import msgspec


class ChatQuirks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One server's ways."""

    system_role: Literal["system", "developer"] = "system"
    output_cap: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The name of the field that limits the output."""
    stream_usage: bool = True
    """Takes `stream_options.include_usage`, without which many report no usage."""
    effort: Literal[
        "none", "reasoning_effort", "reasoning", "enable_thinking", "thinking", "template"
    ] = "none"
    """How the server is told how much to think; with `none` it cannot be."""
    effort_off: str = "none"
    """What `reasoning_effort` is called when it is off; empty if it cannot be."""
    thinking_back: Literal["", "reasoning_content", "reasoning"] = ""
    """Under which name the model's thinking goes back beside its calls; empty if it must not."""
    call_id: str = r"[\w.:-]{1,64}"
    """What the server takes for the id of a call."""
    required_choice: Literal["required", "any", "auto"] = "required"
    """Its word for "call some tool"; `auto` if it knows none."""
    named_choice: bool = True
    """Can be told which tool to call."""
    json_schema: Literal["always", "without_tools", "never"] = "without_tools"
    """When the output schema may be enforced: a grammar often shuts out the calls of tools."""
    seed: str = "seed"
    images: bool = True
    files: bool = False
    """Takes documents such as PDF. Plain text goes in as text everywhere."""
    tool_images: bool = False
    """Takes images in the results of tools; else they follow in a message of the user."""
    tool_protocol: Literal["native", "text", "grammar"] = "native"
    """How the server's models are offered tools, unless the caller says."""
    bridge: str = ""
    """What the model is made to say between results and a user's message, where none may follow."""
