"""Scores: what a scorer says about a trial. It passes or fails it, measures it, or labels it.

A scorer is a function of a `TrialRecord`. A trial passes if no score fails it. A value alone and a
label without an expected one decide nothing: they are averaged, counted and compared.
"""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from decimal import Decimal
from typing import Protocol, TypeAlias, cast, runtime_checkable

import msgspec

from windlass.core.text_clip import clip_line
from windlass.evaluation.records import TrialRecord

SHOWN_CHARS = 200


class Score(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a scorer says about a trial."""

    scorer: str
    passed: bool | None = None
    """None if it only measures: such a score fails no trial."""
    reason: str = ""
    """What was found, in words."""
    value: float | None = None
    """A number that the scorer measured."""
    lower_is_better: bool = False
    """Whether a lower value is the better one, as that of a cost."""
    label: str | None = None
    """The class that the trial chose, such as an intent."""
    target: str | None = None
    """The class that it should have chosen."""
    votes: tuple[bool, ...] = ()
    """What each of several judgements said."""
    usd: Decimal | None = None
    """What the judge cost; None for a scorer that asks no model."""
    tokens: int = 0
    """The tokens of the judge."""
    missing: bool = False
    """There is no verdict: the scorer failed, or a judge had no money or no answer. The trial does
    not count until it is scored again."""


@runtime_checkable
class NamedScorer(Protocol):
    """A scorer with its own name in reports."""

    @property
    def scorer_name(self) -> str: ...


Verdict: TypeAlias = Score | bool | float | str
"""A score; whether it passed; a value; or a label, which is compared with `expected`."""
Verdicts: TypeAlias = Verdict | Mapping[str, Verdict] | Sequence[Score]
"""One verdict, several that have names, or scores."""
Scorer: TypeAlias = Callable[[TrialRecord], Verdicts | Awaitable[Verdicts]]
"""Judges what a trial did, from its record."""


async def score_trial(scorer: Scorer, trial: TrialRecord) -> list[Score]:
    """Return the scores that a scorer gives. One that raises has no verdict, and says why."""
    name = name_scorer(scorer)
    try:
        found = scorer(trial)
        verdict = await found if isinstance(found, Awaitable) else found
        return _read_verdict(name, verdict, trial)
    except Exception as error:  # noqa: BLE001 - a broken scorer must not end the other trials
        message = f"the scorer failed: {type(error).__name__}: {error}"
        reason = clip_line(message, SHOWN_CHARS)
        return [Score(scorer=name, passed=False, reason=reason, missing=True)]


def _read_verdict(name: str, verdict: object, trial: TrialRecord) -> list[Score]:
    """Return the scores that a verdict means. Raises TypeError or ValueError if it is none."""
    match verdict:
        case Score(value=value):
            if value is not None and not math.isfinite(value):
                raise ValueError(f"the value {value} is not a finite number")
            return [verdict]
        case bool():
            return [Score(scorer=name, passed=verdict)]
        case int() | float():
            return _read_verdict(name, Score(scorer=name, value=float(verdict)), trial)
        case str():
            target = trial.case.expected if isinstance(trial.case.expected, str) else None
            passed = None if target is None else verdict == target
            reason = f"{verdict} instead of {target}" if passed is False else ""
            return [Score(scorer=name, passed=passed, reason=reason, label=verdict, target=target)]
        case Mapping():
            named = cast("Mapping[str, object]", verdict)
            parts = (_read_verdict(f"{name}.{key}", one, trial) for key, one in named.items())
            return [score for part in parts for score in part]
        case list() | tuple():
            listed = cast("Sequence[object]", verdict)
            if not all(isinstance(one, Score) for one in listed):
                raise TypeError("a list of verdicts must be one of scores")
            return [score for one in listed for score in _read_verdict(name, one, trial)]
        case _:
            raise TypeError(f"{type(verdict).__name__} is not a verdict")


def name_scorer(scorer: Scorer) -> str:
    """Return the name of a scorer in reports."""
    if isinstance(scorer, NamedScorer):
        return scorer.scorer_name
    return str(getattr(scorer, "__name__", type(scorer).__name__))
