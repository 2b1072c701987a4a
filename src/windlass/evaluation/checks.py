"""Scorers that are named in a file of cases: `{"used": {"tool": "refund", "times": 1}}`.

A check has one key, the name of the scorer. Its value is a mapping of arguments, a list of them, or
the only one; `null` for none.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from windlass.core.errors import ConfigError
from windlass.core.suggestions import suggest_names
from windlass.evaluation.cases import Case
from windlass.evaluation.file_scorers import (
    command_passes,
    file_contains,
    file_equals,
    no_file,
    only_changed,
)
from windlass.evaluation.scorers import (
    asked_before,
    cost_at_most,
    ended_as,
    in_order,
    label,
    never,
    output_contains,
    output_equals,
    output_fits,
    output_matches,
    says_nothing_of,
    seconds_at_most,
    similar,
    steps_at_most,
    used,
)
from windlass.evaluation.scores import Scorer

CHECKS: Mapping[str, Callable[..., Scorer]] = {
    "asked_before": asked_before,
    "command_passes": command_passes,
    "cost_at_most": cost_at_most,
    "ended_as": ended_as,
    "file_contains": file_contains,
    "file_equals": file_equals,
    "in_order": in_order,
    "label": label,
    "never": never,
    "no_file": no_file,
    "only_changed": only_changed,
    "output_contains": output_contains,
    "output_equals": output_equals,
    "output_fits": output_fits,
    "output_matches": output_matches,
    "says_nothing_of": says_nothing_of,
    "seconds_at_most": seconds_at_most,
    "similar": similar,
    "steps_at_most": steps_at_most,
    "used": used,
}
"""The scorers that a check can name. A judge needs a model, so it is given in Python."""
WHOLE_VALUES = {"output_equals", "output_fits", "says_nothing_of"}
"""Scorers whose one argument may itself be a list or a mapping."""


def build_scorers(case: Case) -> list[Scorer]:
    """Return the scorers of a case's own checks. Raises ConfigError if one of them is wrong."""
    return [build_check(check, f"case {case.id}") for check in case.checks]


def build_check(check: Mapping[str, Any], place: str) -> Scorer:
    """Return the scorer that a check names. Raises ConfigError, with the place, if it is wrong."""
    if len(check) != 1:
        raise ConfigError(f"{place}: a check has one key, the name of a scorer: {dict(check)}")
    name, given = next(iter(check.items()))
    builder = CHECKS.get(name)
    if builder is None:
        raise ConfigError(f"{place}: there is no scorer {name!r}.{suggest_names(name, CHECKS)}")
    positional: Sequence[Any] = ()
    named: Mapping[str, Any] = {}
    if name in WHOLE_VALUES and given is not None:
        positional = (given,)
    elif isinstance(given, Mapping):
        named = cast("Mapping[str, Any]", given)
    elif isinstance(given, list):
        positional = cast("list[Any]", given)
    elif given is not None:
        positional = (given,)
    try:
        inspect.signature(builder).bind(*positional, **named)
    except TypeError as error:
        raise ConfigError(f"{place}: {name}: {error}") from None
    return builder(*positional, **named)


def parse_check(text: str) -> Scorer:
    """Return the scorer that a command line names: `used:refund`, `steps_at_most:5`, `ended_as`.

    Raises ConfigError if there is no such scorer.
    """
    name, colon, words = text.partition(":")
    value: Any = None
    if colon and name in ("steps_at_most", "seconds_at_most"):
        value = _parse_number(text, words)
    elif colon and name == "similar":
        value = {"at_least": _parse_number(text, words)}
    elif colon and name in ("in_order", "ended_as", "label", "only_changed", "says_nothing_of"):
        value = words.split(",")
    elif colon:
        value = words
    return build_check({name: value}, f"--check {text}")


def _parse_number(text: str, words: str) -> float:
    try:
        return float(words)
    except ValueError:
        raise ConfigError(f"--check {text}: {words!r} is not a number") from None
