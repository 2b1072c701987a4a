"""Chooses how tools are offered over chat completions: natively, in the text, or by a grammar."""

import re
from dataclasses import replace

from typing_extensions import override

from windlass.core.view import Prompt
from windlass.models.dialect import Dialect, ReplyReader, WireRequest
from windlass.models.options import ModelOptions, ToolProtocol
from windlass.models.text_protocols.grammar_calls import GrammarCalls
from windlass.models.text_protocols.labelled_calls import QwenCalls, ReactCalls
from windlass.models.text_protocols.plain_calls import NativeCalls
from windlass.models.text_protocols.text_calls import TextCalls, WordyNativeCalls
from windlass.models.vendors import ChatQuirks

_MODEL_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)([bBmM])(?![a-zA-Z0-9])")
"""A number of weights in the name of a model."""


def build_chat_dialect(
    quirks: ChatQuirks,
    vendor: str,
    protocol: ToolProtocol | None = None,
    *,
    model_size: float | None = None,
) -> Dialect:
    """Build the dialect for a server. The caller's protocol wins over the server's default.

    `model_size` is the size of the model in billions of weights, if it is known.
    """
    is_small = model_size is not None and model_size < quirks.grammar_below
    if protocol is None and is_small:
        return GrammarFallback(quirks, vendor)
    match protocol or quirks.tool_protocol:
        case "native" if quirks.calls_in_words:
            return WordyNativeCalls(quirks, vendor)
        case "native":
            return NativeCalls(quirks, vendor)
        case "text":
            return TextCalls(quirks, vendor)
        case "qwen":
            return QwenCalls(quirks, vendor)
        case "react":
            return ReactCalls(quirks, vendor)
        case "grammar":
            return GrammarCalls(quirks, vendor)


def read_model_size(text: str) -> float | None:
    """Return the billions of weights in a name such as `qwen2.5-coder:1.5b` or in a label."""
    sizes = [
        float(number) / (1_000 if unit in "mM" else 1) for number, unit in _MODEL_SIZE.findall(text)
    ]
    return max(sizes, default=None)


class GrammarFallback(Dialect):
    """For a model that cannot call tools by itself: a grammar forces its calls.

    A prompt without tools goes out natively, so that the answer is free text. With tools, such a
    model gets temperature 0 unless the caller says otherwise: at the usual temperature of a server,
    chance decides which function it calls.
    """

    def __init__(self, quirks: ChatQuirks, vendor: str) -> None:
        self._native = build_chat_dialect(quirks, vendor, "native")
        self._grammar = build_chat_dialect(quirks, vendor, "grammar")

    @override
    def encode_request(self, prompt: Prompt, model: str, options: ModelOptions) -> WireRequest:
        if prompt.tools and options.temperature is None and options.top_p is None:
            options = replace(options, temperature=0)
        return self._dialect_for(prompt).encode_request(prompt, model, options)

    @override
    def new_reader(self, prompt: Prompt) -> ReplyReader:
        return self._dialect_for(prompt).new_reader(prompt)

    def _dialect_for(self, prompt: Prompt) -> Dialect:
        return self._grammar if prompt.tools else self._native
