"""How much a model should think when nobody says: a pure policy (S14).

A few words and a few tools need little of it; a long prompt or a large choice of tools needs more.
"""

from windlass.core.messages import UserMessage
from windlass.core.view import Prompt
from windlass.models.dialect import Effort

SHORT_PROMPT_CHARS = 400
LONG_PROMPT_CHARS = 8_000
FEW_TOOLS = 3
MANY_TOOLS = 20


def choose_effort(prompt: Prompt) -> Effort:
    """The effort for the running prompt; the same for all steps of a run."""
    chars, tools = _prompt_chars(prompt), len(prompt.tools)
    if chars > LONG_PROMPT_CHARS or tools > MANY_TOOLS:
        return "high"
    return "low" if chars <= SHORT_PROMPT_CHARS and tools <= FEW_TOOLS else "medium"


def _prompt_chars(prompt: Prompt) -> int:
    for message in reversed(prompt.messages):
        if isinstance(message, UserMessage) and not message.note:
            return len(message.text)
    return 0
