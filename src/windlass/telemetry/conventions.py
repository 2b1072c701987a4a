"""The names of the OpenTelemetry conventions for generative AI, and our own where there are none.

See https://opentelemetry.io/docs/specs/semconv/gen-ai/.

Invariant: no other module spells out such a name, so that a change of the conventions changes one
line here. Dashboards depend on all of them, those that begin with `windlass.` included.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from windlass.core.deltas import StopReason


@dataclass(frozen=True, slots=True)
class HistogramMetric:
    """A metric that is a histogram, with the upper bounds of its buckets."""

    name: str
    unit: str
    description: str
    bounds: tuple[float, ...]


SECONDS_BUCKETS = tuple(2**power / 100 for power in range(14))
"""From 10 ms to about 82 s, as the conventions recommend."""
LONG_SECONDS_BUCKETS = tuple(2**power / 100 for power in range(18))
"""The same, up to about 22 minutes."""
TOKEN_BUCKETS = tuple(float(4**power) for power in range(14))


@final
class OtelNames:
    """Operations, attributes, events and metrics, in this order."""

    INVOKE_AGENT = "invoke_agent"
    CHAT = "chat"
    EXECUTE_TOOL = "execute_tool"

    OPERATION = "gen_ai.operation.name"
    PROVIDER = "gen_ai.provider.name"
    REQUEST_MODEL = "gen_ai.request.model"
    REQUEST_STREAM = "gen_ai.request.stream"
    RESPONSE_MODEL = "gen_ai.response.model"
    FINISH_REASONS = "gen_ai.response.finish_reasons"
    FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
    CONVERSATION = "gen_ai.conversation.id"
    AGENT = "gen_ai.agent.name"
    TOOL = "gen_ai.tool.name"
    TOOL_TYPE = "gen_ai.tool.type"
    TOOL_CALL = "gen_ai.tool.call.id"
    INPUT_TOKENS = "gen_ai.usage.input_tokens"
    OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
    CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
    CACHE_WRITE_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
    REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
    TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105 - a kind of token, not a secret
    ERROR = "error.type"
    COST = "operation.cost"
    """US dollars. The conventions have no name for money; other libraries use this one."""

    INSTRUCTIONS = "gen_ai.system_instructions"
    INPUT_MESSAGES = "gen_ai.input.messages"
    OUTPUT_MESSAGES = "gen_ai.output.messages"
    TOOL_DEFINITIONS = "gen_ai.tool.definitions"
    TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
    TOOL_RESULT = "gen_ai.tool.call.result"

    PURPOSE = "windlass.purpose"
    STEP = "windlass.step"
    ATTEMPT = "windlass.attempt"
    OUTCOME = "windlass.outcome"
    ESTIMATED = "windlass.usage.estimated"
    VERDICT = "windlass.verdict"
    RULE = "windlass.rule"
    RESULT_KIND = "windlass.result"
    HOW = "windlass.how"

    CALL_JUDGED = "windlass.call.judged"
    CALL_ANSWERED = "windlass.call.answered"
    CALL_SETTLED = "windlass.call.settled"
    COMPACTED = "windlass.compacted"

    FUNCTION = "function"
    """The type of a tool that the client runs, not the provider."""

    FINISH_REASON_BY_STOP: ClassVar[Mapping[StopReason, str]] = {
        "end": "stop",
        "calls": "tool_call",
        "length": "length",
        "refusal": "content_filter",
    }
    PROVIDER_BY_VENDOR: ClassVar[Mapping[str, str]] = {
        "google": "gcp.gemini",
        "mistral": "mistral_ai",
        "openai-chat": "openai",
        "xai": "x_ai",
    }
    """The names of vendors that the conventions spell differently."""

    CHAT_DURATION = HistogramMetric(
        "gen_ai.client.operation.duration",
        "s",
        "How long a request to a model took.",
        SECONDS_BUCKETS,
    )
    TIME_TO_FIRST_CHUNK = HistogramMetric(
        "gen_ai.client.operation.time_to_first_chunk",
        "s",
        "From a request to the first piece of its reply.",
        SECONDS_BUCKETS,
    )
    TOKEN_USAGE = HistogramMetric(
        "gen_ai.client.token.usage", "{token}", "Tokens of a request to a model.", TOKEN_BUCKETS
    )
    AGENT_DURATION = HistogramMetric(
        "gen_ai.invoke_agent.duration",
        "s",
        "How long a run of an agent took.",
        LONG_SECONDS_BUCKETS,
    )
    TOOL_DURATION = HistogramMetric(
        "gen_ai.execute_tool.duration", "s", "How long a call of a tool took.", LONG_SECONDS_BUCKETS
    )
    METRICS = (CHAT_DURATION, TIME_TO_FIRST_CHUNK, TOKEN_USAGE, AGENT_DURATION, TOOL_DURATION)
