"""What a caller may ask of a provider besides the prompt, and the default for how much to think."""

from dataclasses import dataclass, field
from typing import Any, Literal

from windlass.core.messages import UserMessage
from windlass.core.suggestions import SettingsMeta
from windlass.core.view import Prompt

Effort = Literal["off", "low", "medium", "high"]
"""How long a model may think before it replies."""
ToolProtocol = Literal["native", "text", "qwen", "react", "grammar"]
"""How calls are written: by the provider's own interface, in the text, or in a text that a grammar
forces into the right form."""

SHORT_PROMPT_CHARS = 400
LONG_PROMPT_CHARS = 8_000
FEW_TOOLS = 3
MANY_TOOLS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions(metaclass=SettingsMeta):
    """Options of one model. An option that is None is not sent; the provider's default applies.

    An option that the provider's API does not have, such as a seed at Anthropic, is not sent
    either.
    """

    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    effort: Effort | None = None
    """How much to think. With None, `choose_effort` decides for models that take an effort."""
    service_tier: str | None = None
    tool_protocol: ToolProtocol | None = None
    """How tools are offered: by the API's own fields, in the text, or by a grammar.

    With None, the vendor's setting applies. Only servers of chat completions have a choice.
    """
    extra_body: dict[str, Any] = field(default_factory=dict[str, Any])
    """Merged into the body of each request; wins over the fields that Windlass sets."""
    extra_headers: dict[str, str] = field(default_factory=dict[str, str])
    """Sent with each request."""


def choose_effort(prompt: Prompt) -> Effort:
    """Choose how much a model should think when the caller does not say.

    A short request with few tools needs little thinking; a long one, or one with many tools, needs
    a lot. Only the last request of the user counts, so that all steps of a run get the same effort.
    """
    chars = _prompt_chars(prompt)
    # A tool that joins in the middle of a run does not count: the effort would change with it.
    tool_count = sum(not spec.needs_artifact for spec in prompt.tools)
    if chars > LONG_PROMPT_CHARS or tool_count > MANY_TOOLS:
        return "high"
    if chars <= SHORT_PROMPT_CHARS and tool_count <= FEW_TOOLS:
        return "low"
    return "medium"


def _prompt_chars(prompt: Prompt) -> int:
    for message in reversed(prompt.messages):
        # Notes are user messages that the runtime adds during a run.
        if isinstance(message, UserMessage) and not message.note:
            return len(message.text)
    return 0
