"""Tool calls in labelled sections of the text: ReAct, and the format that Qwen had before Hermes.

Invariant: for the model everything is text, and for the loop none of it is, as in `text_calls.py`.
The prompts are those that such models were trained on, byte by byte.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from typing_extensions import override

from windlass.core.messages import (
    AssistantMessage,
    CallOutcome,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResults,
    ToolSpec,
)
from windlass.core.view import Prompt
from windlass.models.dialect import Dialect, ReplyReader, WireRequest
from windlass.models.encoding import JsonObject
from windlass.models.options import ModelOptions
from windlass.models.text_protocols.labelled_scan import (
    THOUGHT_SIGNATURE,
    LabelFormat,
    LabelScan,
)
from windlass.models.text_protocols.scanning import ScanningReader
from windlass.models.text_protocols.text_calls import (
    TextHistoryChat,
    TextHistoryEncoder,
    append_block,
    dump_json,
    tool_choice_text,
)
from windlass.models.text_protocols.text_scan import INLINE_SIGNATURE, THINK_END, THINK_START
from windlass.models.vendors import ChatQuirks

_NAME, _ARGS, _RESULT, _EXIT = "✿FUNCTION✿", "✿ARGS✿", "✿RESULT✿", "✿RETURN✿"
QWEN_LABELS = LabelFormat(
    {_NAME: "name", _ARGS: "arguments", _RESULT: "result", _EXIT: "text"},
    at_line_start=False,
    results_end_in_label=True,
)
REACT_LABELS = LabelFormat(
    {
        "Thought:": "thought",
        "Action:": "name",
        "Action Input:": "arguments",
        "Observation:": "result",
        "Final Answer:": "text",
    },
    at_line_start=True,
    begins_with="thought",
)
_QWEN_PROMPT = """\
# Tools

## You have access to the following tools:

{tools}

"""
_QWEN_ONE = f"""\
## When you need to call a tool, please insert the following command in your reply, which can be \
called zero or multiple times according to your needs:

{_NAME}: The tool to use, should be one of [{{names}}]
{_ARGS}: The input of the tool
{_RESULT}: Tool results
{_EXIT}: Reply based on tool results. Images need to be rendered as ![](url)"""
_QWEN_MANY = f"""\
## Insert the following command in your reply when you need to call N tools in parallel:

{_NAME}: The name of tool 1, should be one of [{{names}}]
{_ARGS}: The input of tool 1
{_NAME}: The name of tool 2
{_ARGS}: The input of tool 2
...
{_NAME}: The name of tool N
{_ARGS}: The input of tool N
{_RESULT}: The result of tool 1
{_RESULT}: The result of tool 2
...
{_RESULT}: The result of tool N
{_EXIT}: Reply based on tool results. Images need to be rendered as ![](url)"""
_REACT_PROMPT = """\
Answer the following questions as best you can. You have access to the following tools:

{tools}

Use the following format:

Question: the input question you must answer
Thought: you should always think about what to do
Action: the action to take, should be one of [{names}]
Action Input: the input to the action
Observation: the result of the action
... (this Thought/Action/Action Input/Observation can be repeated zero or more times)
Thought: I now know the final answer
Final Answer: the final answer to the original input question

Begin!"""


class QwenCalls(Dialect):
    """Chat completions with calls as `✿FUNCTION✿` and `✿ARGS✿` in the text."""

    labels = QWEN_LABELS
    stop = (_RESULT,)
    """Where the server must stop: what follows would be a result that the model makes up."""

    def __init__(self, quirks: ChatQuirks, vendor: str) -> None:
        self._chat = TextHistoryChat(quirks, vendor, self._encoder())

    def _encoder(self) -> type["LabelledEncoder"]:
        return QwenEncoder

    def _tools_prompt(self, prompt: Prompt) -> str:
        form = _QWEN_MANY if prompt.parallel_tool_calls else _QWEN_ONE
        return (_QWEN_PROMPT + form).format(
            tools=_describe_tools(prompt.tools), names=_list_names(prompt.tools)
        )

    @override
    def encode_request(self, prompt: Prompt, model: str, options: ModelOptions) -> WireRequest:
        if not prompt.tools:
            return self._chat.encode_request(prompt, model, options)
        block = self._tools_prompt(prompt) + tool_choice_text(prompt.tool_choice)
        system = append_block(prompt.system, block)
        # An enforced schema would rule out the calls, because they are text.
        text_prompt = replace(prompt, system=system, tools=(), output_schema=None)
        options = replace(options, stop=(*options.stop, *self.stop))
        return self._chat.encode_request(text_prompt, model, options)

    @override
    def new_reader(self, prompt: Prompt) -> ReplyReader:
        chat = self._chat.new_reader(prompt)
        if not prompt.tools:
            return chat
        follows_results = bool(prompt.messages) and isinstance(prompt.messages[-1], ToolResults)
        return ScanningReader(chat, LabelScan(self.labels, follows_results=follows_results))


class ReactCalls(QwenCalls):
    """Chat completions with the sections of ReAct: thought, action, observation, answer."""

    labels = REACT_LABELS
    stop = ("Observation:",)

    @override
    def _encoder(self) -> type["LabelledEncoder"]:
        return ReactEncoder

    @override
    def _tools_prompt(self, prompt: Prompt) -> str:
        names = _list_names(prompt.tools)
        return _REACT_PROMPT.format(tools=_describe_tools(prompt.tools), names=names)


def _list_names(tools: Sequence[ToolSpec]) -> str:
    return ",".join(spec.name for spec in tools)


def _describe_tools(tools: Sequence[ToolSpec]) -> str:
    return "\n\n".join(
        f"### {spec.name}\n\n{spec.name}: {spec.description} "
        f"Parameters: {dump_json(spec.parameters)} Format the arguments as a JSON object."
        for spec in tools
    )


class LabelledEncoder(TextHistoryEncoder):
    """Encodes one history for one model, in labelled sections."""

    result_label = ""
    answer_label = ""
    """Follows the last result, where a model was trained to continue behind it."""

    @override
    def _response_blocks(self, items: Sequence[CallOutcome]) -> Iterator[JsonObject]:
        text = ""
        for number, item in enumerate(items):
            text += f"\n{self.result_label}: " if number else f"{self.result_label}: "
            for block in self._content.encode_result(item.result.content):
                if block["type"] == "text":
                    text += block["text"]
                    continue
                yield {"type": "text", "text": text}
                yield block
                text = ""
        text += self.answer_label
        if text:
            yield {"type": "text", "text": text}

    @override
    def _reply_text(self, reply: AssistantMessage, *, native: bool) -> str:
        lines: list[str] = []
        for part in reply.parts:
            match part:
                case TextPart(text):
                    lines.append(self._format_text(text, is_answer=not reply.calls))
                case ThinkingPart(text, signature) if native:
                    lines += _format_thinking(text, signature)
                case ThinkingPart():
                    pass
                case ToolCall(name=name, arguments=arguments):
                    lines.append(self._format_call(name, arguments or "{}"))
        return "\n".join(lines)

    def _format_text(self, text: str, *, is_answer: bool) -> str:  # noqa: ARG002 - only ReAct labels its answers
        return text

    def _format_call(self, name: str, arguments: str) -> str:
        raise NotImplementedError


class QwenEncoder(LabelledEncoder):
    """Encodes a history with calls as `✿FUNCTION✿` and `✿ARGS✿`."""

    result_label = _RESULT
    answer_label = f"\n{_EXIT}"

    @override
    def _format_call(self, name: str, arguments: str) -> str:
        return f"{_NAME}: {name}\n{_ARGS}: {arguments}"


class ReactEncoder(LabelledEncoder):
    """Encodes a history in the sections of ReAct."""

    result_label = "Observation"

    @override
    def _format_text(self, text: str, *, is_answer: bool) -> str:
        return f"Final Answer: {text}" if is_answer else text

    @override
    def _format_call(self, name: str, arguments: str) -> str:
        return f"Action: {name}\nAction Input: {arguments}"


def _format_thinking(text: str, signature: str | None) -> list[str]:
    if signature == INLINE_SIGNATURE:
        return [THINK_START + text + THINK_END]
    return [f"Thought: {text}"] if signature == THOUGHT_SIGNATURE else []
