"""One request to a model, as a span and its metrics. Pure."""

from collections.abc import Iterator
from decimal import Decimal
from typing import final

from windlass.core.events import AttemptStarted
from windlass.core.messages import Charge, Usage
from windlass.telemetry.conventions import TelemetryNames
from windlass.telemetry.operations import (
    CloseSpan,
    MetricPoint,
    OpenSpan,
    SpanAttributes,
    SpanKey,
    SpanOperation,
)


def split_model_name(name: str) -> tuple[str, str]:
    """The two halves of `provider:model`, as the conventions call them."""
    vendor, colon, model = name.partition(":")
    return (
        (TelemetryNames.PROVIDER_BY_VENDOR.get(vendor, vendor), model)
        if colon
        else ("unknown", name)
    )


def model_attributes(name: str) -> dict[str, str]:
    """Who is asked."""
    provider, model = split_model_name(name)
    return {TelemetryNames.PROVIDER: provider, TelemetryNames.REQUEST_MODEL: model}


def usage_attributes(usage: Usage | None, usd: Decimal | None) -> dict[str, int | float | bool]:
    """What was used, as far as it is known."""
    told: dict[str, int | float | bool] = {}
    if usage is not None:
        told = {
            TelemetryNames.INPUT_TOKENS: usage.input,
            TelemetryNames.OUTPUT_TOKENS: usage.output,
        }
        more = {
            TelemetryNames.CACHE_READ_TOKENS: usage.cache_read,
            TelemetryNames.CACHE_WRITE_TOKENS: usage.cache_write,
            TelemetryNames.REASONING_TOKENS: usage.reasoning,
            TelemetryNames.ESTIMATED: usage.estimated,
        }
        told |= {name: value for name, value in more.items() if value}
    if usd is not None:
        told[TelemetryNames.COST] = float(usd)
    return told


@final
class ChatSpan:
    """A request under way."""

    def __init__(self, session: str, started: AttemptStarted) -> None:
        self.key: SpanKey = (session, f"chat:{started.seq}")
        self.purpose = started.purpose
        self._started = started
        self._common = {
            TelemetryNames.OPERATION: TelemetryNames.CHAT,
            **model_attributes(started.model),
        }
        self._first_chunk_s: float | None = None

    def open_span(self, parent: SpanKey, more: SpanAttributes) -> OpenSpan:
        started = self._started
        attributes = {
            **self._common,
            TelemetryNames.REQUEST_STREAM: True,
            TelemetryNames.STEP: started.step,
            TelemetryNames.ATTEMPT: started.attempt,
            TelemetryNames.PURPOSE: started.purpose,
            **more,
        }
        name = f"{TelemetryNames.CHAT} {split_model_name(started.model)[1]}"
        return OpenSpan(self.key, parent, name, "client", started.at, attributes)

    @property
    def has_first_chunk(self) -> bool:
        return self._first_chunk_s is not None

    def mark_first_chunk(self, at: float) -> None:
        """The first piece of the reply is there."""
        self._first_chunk_s = max(0.0, at - self._started.at)

    def close_span(
        self,
        at: float,
        charge: Charge | None,
        more: SpanAttributes,
        *,
        error: str = "",
        error_message: str = "",
    ) -> Iterator[SpanOperation]:
        usage = charge.usage if charge else None
        common: dict[str, str] = dict(self._common)
        if not error:
            common[TelemetryNames.RESPONSE_MODEL] = common[TelemetryNames.REQUEST_MODEL]
        failed = {**common, TelemetryNames.ERROR: error} if error else common
        yield MetricPoint(
            self.key, TelemetryNames.CHAT_DURATION, max(0.0, at - self._started.at), failed
        )
        told = {**common, **usage_attributes(usage, charge.usd if charge else None), **more}
        if self._first_chunk_s is not None:
            told[TelemetryNames.FIRST_CHUNK] = self._first_chunk_s
            yield MetricPoint(
                self.key, TelemetryNames.TIME_TO_FIRST_CHUNK, self._first_chunk_s, common
            )
        # What is only estimated would make a metric of billed tokens wrong.
        if usage is not None and not usage.estimated:
            for kind, count in (("input", usage.input), ("output", usage.output)):
                yield MetricPoint(
                    self.key,
                    TelemetryNames.TOKEN_USAGE,
                    count,
                    {**common, TelemetryNames.TOKEN_TYPE: kind},
                )
        yield CloseSpan(self.key, at, told, error, error_message)
