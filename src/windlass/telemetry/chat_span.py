"""One request to a model, as a span and its metrics. Pure."""

from collections.abc import Iterator
from decimal import Decimal
from typing import final

from windlass.core.events import AttemptStarted
from windlass.core.messages import Charge, Usage
from windlass.telemetry.conventions import OtelNames
from windlass.telemetry.operations import (
    CloseSpan,
    MetricPoint,
    OpenSpan,
    SpanAttributes,
    SpanKey,
    SpanOperation,
)


def split_model_name(name: str) -> tuple[str, str]:
    """Return the two halves of `provider:model`, with the provider as the conventions name it."""
    vendor, colon, model = name.partition(":")
    if not colon:
        return "unknown", name
    return OtelNames.PROVIDER_BY_VENDOR.get(vendor, vendor), model


def model_attributes(name: str) -> dict[str, str]:
    """Return the attributes that say which model is asked."""
    provider, model = split_model_name(name)
    return {OtelNames.PROVIDER: provider, OtelNames.REQUEST_MODEL: model}


def usage_attributes(usage: Usage | None, usd: Decimal | None) -> dict[str, int | float | bool]:
    """Return the attributes of tokens and cost, as far as they are known."""
    attributes: dict[str, int | float | bool] = {}
    if usage is not None:
        attributes[OtelNames.INPUT_TOKENS] = usage.input
        attributes[OtelNames.OUTPUT_TOKENS] = usage.output
        optional = {
            OtelNames.CACHE_READ_TOKENS: usage.cache_read,
            OtelNames.CACHE_WRITE_TOKENS: usage.cache_write,
            OtelNames.REASONING_TOKENS: usage.reasoning,
            OtelNames.ESTIMATED: usage.estimated,
        }
        attributes |= {name: value for name, value in optional.items() if value}
    if usd is not None:
        attributes[OtelNames.COST] = float(usd)
    return attributes


@final
class ChatSpan:
    """A request that is under way."""

    def __init__(self, session: str, started: AttemptStarted) -> None:
        self.key: SpanKey = (session, f"chat:{started.seq}")
        self._started = started
        self._common = {OtelNames.OPERATION: OtelNames.CHAT, **model_attributes(started.model)}
        self._first_chunk_s: float | None = None

    def open_span(self, parent: SpanKey, attributes: SpanAttributes) -> OpenSpan:
        """Return the beginning of the span, with these attributes besides its own."""
        started = self._started
        all_attributes = {
            **self._common,
            OtelNames.REQUEST_STREAM: True,
            OtelNames.STEP: started.step,
            OtelNames.ATTEMPT: started.attempt,
            OtelNames.PURPOSE: started.purpose,
            **attributes,
        }
        name = f"{OtelNames.CHAT} {split_model_name(started.model)[1]}"
        return OpenSpan(self.key, parent, name, "client", started.at, all_attributes)

    @property
    def has_first_chunk(self) -> bool:
        return self._first_chunk_s is not None

    def mark_first_chunk(self, at: float) -> None:
        """Record that the first piece of the reply came at this time."""
        self._first_chunk_s = max(0.0, at - self._started.at)

    def close_span(
        self,
        at: float,
        charge: Charge | None,
        attributes: SpanAttributes,
        *,
        error: str = "",
        error_message: str = "",
    ) -> Iterator[SpanOperation]:
        """Yield the metrics of the request, then the end of its span."""
        common: dict[str, str] = dict(self._common)
        if not error:
            common[OtelNames.RESPONSE_MODEL] = common[OtelNames.REQUEST_MODEL]
        measured = dict(common)
        if error:
            measured[OtelNames.ERROR] = error
        duration_s = max(0.0, at - self._started.at)
        yield MetricPoint(self.key, OtelNames.CHAT_DURATION, duration_s, measured)
        usage = charge.usage if charge else None
        usd = charge.usd if charge else None
        all_attributes = {**common, **usage_attributes(usage, usd), **attributes}
        if self._first_chunk_s is not None:
            all_attributes[OtelNames.FIRST_CHUNK] = self._first_chunk_s
            yield MetricPoint(self.key, OtelNames.TIME_TO_FIRST_CHUNK, self._first_chunk_s, common)
        # Estimated tokens are left out: the metric is about tokens that were billed.
        if usage is not None and not usage.estimated:
            for kind, count in (("input", usage.input), ("output", usage.output)):
                of_kind = {**common, OtelNames.TOKEN_TYPE: kind}
                yield MetricPoint(self.key, OtelNames.TOKEN_USAGE, count, of_kind)
        yield CloseSpan(self.key, at, all_attributes, error, error_message)
