"""One request to a model, as a span and its metrics. Pure."""

from collections.abc import Iterator
from decimal import Decimal
from typing import final

from windlass.core.events import AttemptStarted
from windlass.core.messages import Charge, Usage
from windlass.telemetry.conventions import Words
from windlass.telemetry.operations import Attributes, Close, Key, Measure, Op, Open


def provider_and_model(name: str) -> tuple[str, str]:
    """The two halves of `provider:model`, as the conventions call them."""
    vendor, colon, model = name.partition(":")
    return (Words.PROVIDERS.get(vendor, vendor), model) if colon else ("unknown", name)


def asked(name: str) -> dict[str, str]:
    """Who is asked."""
    provider, model = provider_and_model(name)
    return {Words.PROVIDER: provider, Words.REQUEST_MODEL: model}


def spent(usage: Usage | None, usd: Decimal | None) -> dict[str, int | float | bool]:
    """What was used, as far as it is known."""
    told: dict[str, int | float | bool] = {}
    if usage is not None:
        told = {Words.INPUT_TOKENS: usage.input, Words.OUTPUT_TOKENS: usage.output}
        more = {
            Words.CACHE_READ_TOKENS: usage.cache_read,
            Words.CACHE_WRITE_TOKENS: usage.cache_write,
            Words.REASONING_TOKENS: usage.reasoning,
            Words.ESTIMATED: usage.estimated,
        }
        told |= {name: value for name, value in more.items() if value}
    if usd is not None:
        told[Words.COST] = float(usd)
    return told


@final
class Chat:
    """A request under way."""

    def __init__(self, session: str, started: AttemptStarted) -> None:
        self.key: Key = (session, f"chat:{started.seq}")
        self.purpose = started.purpose
        self._started = started
        self._common = {Words.OPERATION: Words.CHAT, **asked(started.model)}
        self._first_s: float | None = None

    def open(self, parent: Key, more: Attributes) -> Open:
        started = self._started
        attributes = {
            **self._common,
            Words.REQUEST_STREAM: True,
            Words.STEP: started.step,
            Words.ATTEMPT: started.attempt,
            Words.PURPOSE: started.purpose,
            **more,
        }
        name = f"{Words.CHAT} {provider_and_model(started.model)[1]}"
        return Open(self.key, parent, name, "client", started.at, attributes)

    @property
    def heard(self) -> bool:
        return self._first_s is not None

    def hear(self, at: float) -> None:
        """The first piece of the reply is there."""
        self._first_s = max(0.0, at - self._started.at)

    def close(
        self,
        at: float,
        charge: Charge | None,
        more: Attributes,
        *,
        error: str = "",
        words: str = "",
    ) -> Iterator[Op]:
        usage = charge.usage if charge else None
        common: dict[str, str] = dict(self._common)
        if not error:
            common[Words.RESPONSE_MODEL] = common[Words.REQUEST_MODEL]
        failed = {**common, Words.ERROR: error} if error else common
        yield Measure(self.key, Words.CHAT_DURATION, max(0.0, at - self._started.at), failed)
        told = {**common, **spent(usage, charge.usd if charge else None), **more}
        if self._first_s is not None:
            told[Words.FIRST_CHUNK] = self._first_s
            yield Measure(self.key, Words.TIME_TO_FIRST_CHUNK, self._first_s, common)
        # What is only estimated would make a metric of billed tokens wrong.
        if usage is not None and not usage.estimated:
            for kind, count in (("input", usage.input), ("output", usage.output)):
                yield Measure(
                    self.key, Words.TOKEN_USAGE, count, {**common, Words.TOKEN_TYPE: kind}
                )
        yield Close(self.key, at, told, error, words)
