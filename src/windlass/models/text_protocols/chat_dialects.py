"""Chooses how tools are offered over chat completions: natively, in the text, or by a grammar."""

from typing_extensions import override

from windlass.core.view import Prompt
from windlass.models.dialect import Dialect, ReplyReader, WireRequest
from windlass.models.openai.quirks import ChatQuirks
from windlass.models.options import ModelOptions, ToolProtocol
from windlass.models.text_protocols.grammar_calls import GrammarCalls
from windlass.models.text_protocols.plain_calls import NativeCalls
from windlass.models.text_protocols.text_calls import TextCalls


def build_chat_dialect(
    quirks: ChatQuirks, vendor: str, protocol: ToolProtocol | None = None
) -> Dialect:
    """Build the dialect for a server. The caller's protocol wins over the server's default."""
    match protocol or quirks.tool_protocol:
        case "native":
            return NativeCalls(quirks, vendor)
        case "text":
            return TextCalls(quirks, vendor)
        case "grammar":
            return GrammarCalls(quirks, vendor)


class GrammarFallback(Dialect):
    """For a model that was not trained to call tools: a grammar forces its calls.

    A prompt without tools goes out natively, so that the answer is free text.
    """

    def __init__(self, quirks: ChatQuirks, vendor: str) -> None:
        self._native = build_chat_dialect(quirks, vendor, "native")
        self._grammar = build_chat_dialect(quirks, vendor, "grammar")

    @override
    def encode_request(self, prompt: Prompt, model: str, options: ModelOptions) -> WireRequest:
        return self._dialect_for(prompt).encode_request(prompt, model, options)

    @override
    def new_reader(self, prompt: Prompt) -> ReplyReader:
        return self._dialect_for(prompt).new_reader(prompt)

    def _dialect_for(self, prompt: Prompt) -> Dialect:
        return self._grammar if prompt.tools else self._native
