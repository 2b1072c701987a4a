"""A Windlass agent as a solver of Inspect: its datasets, scorers, epochs and logs, and our journal.

    from inspect_ai import Task, eval
    from windlass.evaluation import inspect_solver

    eval(Task(dataset, solver=inspect_solver(agent), scorer=includes()), model="openai/gpt-5")

Invariant: the model is Inspect's. Each request of the agent is one of Inspect's own, so that its
log, its limits and its cache see it; the loop, the gate, the tools and the facts are ours. Needs
the extra `inspect`, which is imported here at the first use.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace as replace_struct

from windlass.agent.agent import Agent, with_parts
from windlass.agent.options import parts_of
from windlass.core.deltas import (
    CallDelta,
    ReplyEnd,
    StopReason,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.errors import ConfigError, ModelError
from windlass.core.events import ReplyPiece
from windlass.core.messages import (
    AssistantMessage,
    Message,
    ToolResults,
    ToolSpec,
    Usage,
    UserMessage,
)
from windlass.core.result import RunFailed, RunResult
from windlass.core.setup import ModelInfo
from windlass.core.view import Prompt
from windlass.evaluation.reports import AGENT_FAULTS

if TYPE_CHECKING:
    from inspect_ai.model import ChatMessage, ModelOutput
    from inspect_ai.solver import Generate, Solver, TaskState
    from inspect_ai.tool import ToolInfo

STOP_REASONS: Mapping[str, StopReason] = {
    "stop": "end",
    "tool_calls": "calls",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "refusal",
}


class InspectModel:
    """A model that asks whichever model Inspect evaluates."""

    def __init__(self, info: ModelInfo) -> None:
        self.info = info

    async def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:
        """Yield the reply of Inspect's model, in one piece for each part."""
        _require_inspect()
        from inspect_ai.model import GenerateConfig, get_model  # noqa: PLC0415 - an extra

        config = GenerateConfig(
            max_tokens=prompt.output_max, parallel_tool_calls=prompt.parallel_tool_calls
        )
        try:
            output = await get_model().generate(
                list(encode_messages(prompt)),
                tools=[encode_tool(spec) for spec in prompt.tools],
                tool_choice=_encode_choice(prompt.tool_choice),
                config=config,
            )
        except OSError as error:
            raise ModelError("network", str(error)) from error
        for piece in read_output(output):
            yield piece


def inspect_solver(agent: Agent[Any], *, prefix: str = "inspect") -> "Solver":
    """Return a solver that gives each sample to the agent.

    Each sample and epoch is a session of the agent's journal, `PREFIX/TASK/SAMPLE/EPOCH`, whose
    name is in the log as `windlass_session`. Raises ConfigError if Inspect is not installed.
    """
    _require_inspect()
    from inspect_ai.model import ModelOutput  # noqa: PLC0415 - an extra
    from inspect_ai.solver import solver  # noqa: PLC0415 - as above

    own = use_inspect_model(agent)

    @solver(name="windlass_agent")
    def windlass_agent() -> "Solver":
        async def solve(state: "TaskState", generate: "Generate") -> "TaskState":  # noqa: ARG001 - the port of Inspect
            session = f"{prefix}/{state.uuid}"
            try:
                result = await own.run(state.input_text, session=session)
            except RunFailed as failed:
                if failed.fault.kind not in AGENT_FAULTS:
                    # Inspect counts it as an error of the sample, and not as a wrong answer.
                    raise
                result = failed.result
            state.messages.extend(decode_transcript(result))
            state.output = ModelOutput.from_content(str(state.model), result.text)
            state.metadata["windlass_session"] = session
            state.metadata["windlass_outcome"] = result.outcome
            state.metadata["windlass_steps"] = result.steps
            return state

        return solve

    return windlass_agent()


def use_inspect_model(agent: Agent[Any]) -> Agent[Any]:
    """Return the same agent with Inspect's model in place of its own."""
    parts = parts_of(agent)
    info = parts.setup.model
    world = replace_struct(parts.world, models={info.name: InspectModel(info)})
    setup = replace_struct(parts.setup, fallbacks=(), summariser=None)
    return with_parts(agent, replace_struct(parts, world=world, setup=setup))


def _require_inspect() -> None:
    try:
        import inspect_ai  # noqa: F401, PLC0415 - an extra  # pyright: ignore[reportUnusedImport]
    except ModuleNotFoundError:
        raise ConfigError("Inspect is not installed: pip install 'windlass[inspect]'") from None


# ── requests ─────────────────────────────────────────────────────────────────


def encode_messages(prompt: Prompt) -> "Sequence[ChatMessage]":
    """Return a request of ours as Inspect's messages."""
    from inspect_ai.model import ChatMessageSystem  # noqa: PLC0415 - an extra

    messages: list[ChatMessage] = []
    if prompt.system:
        messages.append(ChatMessageSystem(content=prompt.system))
    for message in prompt.messages:
        messages += _encode_message(message)
    return messages


def _encode_message(message: Message) -> "list[ChatMessage]":
    from inspect_ai.model import (  # noqa: PLC0415 - an extra
        ChatMessageAssistant,
        ChatMessageTool,
        ChatMessageUser,
    )
    from inspect_ai.tool import ToolCall  # noqa: PLC0415 - as above

    match message:
        case UserMessage():
            return [ChatMessageUser(content=message.text)]
        case AssistantMessage():
            calls = [
                ToolCall(
                    id=call.id, function=call.name, arguments=_decode_arguments(call.arguments)
                )
                for call in message.calls
            ]
            return [ChatMessageAssistant(content=message.text, tool_calls=calls or None)]
        case ToolResults(items):
            return [
                ChatMessageTool(
                    content=item.result.text, tool_call_id=item.call.id, function=item.call.name
                )
                for item in items
            ]


def _decode_arguments(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, Any])
    except msgspec.DecodeError:
        return {}


def encode_tool(spec: ToolSpec) -> "ToolInfo":
    """Return a tool of ours as Inspect describes it to a model."""
    from inspect_ai.tool import ToolInfo, ToolParams  # noqa: PLC0415 - an extra

    parameters = ToolParams.model_validate(
        {
            "properties": spec.parameters.get("properties", {}),
            "required": spec.parameters.get("required", []),
        }
    )
    return ToolInfo(name=spec.name, description=spec.description, parameters=parameters)


def _encode_choice(choice: str) -> Any:  # noqa: ANN401 - a union of Inspect
    from inspect_ai.tool import ToolFunction  # noqa: PLC0415 - an extra

    if choice in ("auto", "none"):
        return choice
    return "any" if choice == "required" else ToolFunction(name=choice)


# ── replies ──────────────────────────────────────────────────────────────────


def read_output(output: "ModelOutput") -> list[ReplyPiece]:
    """Return a reply of Inspect's model as pieces. Raises ModelError if it is an error."""
    if output.error is not None:
        raise ModelError("other", output.error)
    message = output.message
    pieces: list[ReplyPiece] = []
    if isinstance(message.content, str):
        pieces += [TextDelta(message.content)] if message.content else []
    else:
        for part in message.content:
            if part.type == "reasoning":
                pieces.append(ThinkingDelta(part.reasoning))
            elif part.type == "text":
                pieces.append(TextDelta(part.text))
    for index, call in enumerate(message.tool_calls or ()):
        arguments = msgspec.json.encode(call.arguments).decode()
        pieces.append(CallDelta(index, call.id, call.function, arguments))
    if output.usage is not None:
        used = output.usage
        cached = used.input_tokens_cache_read or 0
        written = used.input_tokens_cache_write or 0
        # Inspect counts what came from a cache apart from the input; we count it with it.
        pieces.append(
            UsageDelta(
                Usage(used.input_tokens + cached + written, used.output_tokens, cached, written)
            )
        )
    default: StopReason = "calls" if message.tool_calls else "end"
    pieces.append(ReplyEnd(STOP_REASONS.get(str(output.stop_reason), default)))
    return pieces


def decode_transcript(result: RunResult[Any]) -> "list[ChatMessage]":
    """Return what the agent did as Inspect's messages, for its log. The prompt is there already."""
    new = result.new_messages()[1:]
    return [encoded for message in new for encoded in _encode_message(message)]
