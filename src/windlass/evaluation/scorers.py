"""Scorers: whether a trial did what it should, from its facts and the files that it left.

    scorers = [used("refund", times=1), never("delete"), output_contains("refunded")]

Those here ask no model. What else a scorer may be is in `scores.py`.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from difflib import SequenceMatcher
from typing import Any

from windlass.core.errors import ConfigError
from windlass.core.events import Outcome
from windlass.core.limits import Money
from windlass.core.phrases import format_count
from windlass.core.schema import JsonSchema
from windlass.core.text_clip import clip_line
from windlass.evaluation.cases import Case
from windlass.evaluation.records import TrialCall, TrialRecord
from windlass.evaluation.scores import SHOWN_CHARS, Score, Scorer

_EXPECTED: Any = object()
"""Refers to the field `expected` of the case."""


@dataclass(frozen=True, slots=True)
class FactScorer:
    """A scorer that was built from arguments: its name says which."""

    scorer_name: str
    check: Callable[[TrialRecord], "str | Awaitable[str | None] | None"]
    """Returns what is wrong, in words; None if nothing is."""
    reads_expected: bool = False
    """Whether it compares with the field `expected` of the case."""

    async def __call__(self, trial: TrialRecord) -> Score:
        found = self.check(trial)
        problem = await found if isinstance(found, Awaitable) else found
        return Score(scorer=self.scorer_name, passed=problem is None, reason=problem or "")


def describe_unscored(scored: Sequence[tuple[Case, Sequence[Scorer]]]) -> list[str]:
    """Return warnings, in words, about cases that pass more easily than their author may think.

    Each case is paired with all scorers of its trials.
    """
    warnings: list[str] = []
    bare = sum(not scorers for _, scorers in scored)
    if bare:
        which = "There is no scorer" if bare == len(scored) else _say_cases(bare, "no scorer")
        warnings.append(f"{which}: a trial passes if its run completes, whatever it answers.")
    unread = sum(
        case.expected is not None and not any(map(_may_read_expected, scorers))
        for case, scorers in scored
    )
    if unread:
        which = _say_cases(unread, '"expected"')
        warnings.append(
            f"{which}, and no scorer looks at it: add --check output_contains "
            "(in Python, output_contains() among the scorers)."
        )
    return warnings


def _say_cases(number: int, what: str) -> str:
    verb = "has" if number == 1 else "have"
    return f"{format_count(number, 'case')} {verb} {what}"


def _may_read_expected(scorer: Scorer) -> bool:
    """Whether a scorer may compare with `expected`. For a user's own function this is not known."""
    if isinstance(scorer, FactScorer | GradedScorer):
        return scorer.reads_expected
    return not isinstance(scorer, AmountScorer)


def _describe(function: str, *values: object, **options: object) -> str:
    """Return the name of a scorer as it is written, without what was left out."""
    words = [repr(value) for value in values]
    words += [f"{name}={value!r}" for name, value in options.items() if value not in (None, False)]
    return clip_line(f"{function}({', '.join(words)})", SHOWN_CHARS)


# ── calls ────────────────────────────────────────────────────────────────────


def used(
    tool: str,
    *,
    times: int | None = None,
    at_least: int = 1,
    with_arguments: Mapping[str, Any] | None = None,
) -> FactScorer:
    """The tool ran: `times` times exactly, or at least once.

    With `with_arguments`, only calls count that have these arguments, and maybe others.
    """

    def check(trial: TrialRecord) -> str | None:
        count = len(_find_calls(trial.calls, tool, with_arguments))
        if times is None:
            is_right = count >= at_least
            wanted = f"at least {at_least}"
        else:
            is_right = count == times
            wanted = str(times)
        return None if is_right else f"{tool} ran {format_count(count, 'time')} instead of {wanted}"

    shown = at_least if at_least != 1 else None
    name = _describe("used", tool, times=times, at_least=shown, with_arguments=with_arguments)
    return FactScorer(name, check)


def never(
    tool: str, *, tried: bool = False, with_arguments: Mapping[str, Any] | None = None
) -> FactScorer:
    """The tool never ran. With `tried`, the model did not even make such a call."""

    def check(trial: TrialRecord) -> str | None:
        calls = _find_calls(trial.calls, tool, with_arguments, tried=tried)
        return f"{tool} was called in {_name_record(calls[0])}" if calls else None

    return FactScorer(_describe("never", tool, tried=tried, with_arguments=with_arguments), check)


def in_order(*tools: str) -> FactScorer:
    """These tools ran in this order; others may have run between them."""

    def check(trial: TrialRecord) -> str | None:
        ran = [call.name for call in trial.calls if call.ran]
        rest = iter(ran)
        missing = next((tool for tool in tools if tool not in rest), None)
        if missing is None:
            return None
        return f"{missing} did not run in its place; the order was {', '.join(ran) or 'empty'}"

    return FactScorer(_describe("in_order", *tools), check)


def asked_before(tool: str) -> FactScorer:
    """A person was asked before each call of the tool that ran, and there was such a call."""

    def check(trial: TrialRecord) -> str | None:
        calls = [call for call in trial.calls if call.name == tool]
        unasked = [call for call in calls if call.ran and not (call.asked and call.approved)]
        if unasked:
            return f"{tool} ran in {_name_record(unasked[0])}, and nobody had been asked"
        return None if any(call.asked for call in calls) else f"nobody was asked about {tool}"

    return FactScorer(_describe("asked_before", tool), check)


def _name_record(call: TrialCall) -> str:
    """Return where a call was made: the record, and whose if it is a sub-agent's."""
    place = f" of {call.session}" if call.session else ""
    return f"record {call.seq}{place}"


def _find_calls(
    calls: Sequence[TrialCall],
    tool: str,
    with_arguments: Mapping[str, Any] | None,
    *,
    tried: bool = False,
) -> list[TrialCall]:
    wanted = with_arguments or {}
    return [
        call
        for call in calls
        if call.name == tool
        if call.ran or tried
        if all(name in call.arguments and call.arguments[name] == wanted[name] for name in wanted)
    ]


# ── what it took ─────────────────────────────────────────────────────────────


def ended_as(*outcomes: Outcome) -> FactScorer:
    """The run ended in one of these ways; `completed` without any."""
    wanted = outcomes or ("completed",)

    def check(trial: TrialRecord) -> str | None:
        if trial.outcome in wanted:
            return None
        return f"it ended as {trial.outcome}{f': {trial.reason}' if trial.reason else ''}"

    return FactScorer(_describe("ended_as", *wanted), check)


@dataclass(frozen=True, slots=True)
class AmountScorer:
    """A scorer that measures something, and compares it with the most that it may be."""

    scorer_name: str
    measure: Callable[[TrialRecord], float | None]
    most: float

    def __call__(self, trial: TrialRecord) -> Score:
        value = self.measure(trial)
        if value is None:
            reason = "it is not known"
        else:
            reason = f"it was {value:g}"
        passed = value is not None and value <= self.most
        return Score(
            scorer=self.scorer_name, passed=passed, reason=reason, value=value, lower_is_better=True
        )


def cost_at_most(usd: Money) -> AmountScorer:
    """The trial cost at most this many US dollars. It fails if the price is not known."""

    def measure(trial: TrialRecord) -> float | None:
        return None if trial.usd is None else float(trial.usd)

    return AmountScorer(_describe("cost_at_most", str(usd)), measure, float(Decimal(str(usd))))


def steps_at_most(steps: int) -> AmountScorer:
    """The model replied at most this many times."""
    return AmountScorer(_describe("steps_at_most", steps), lambda trial: trial.steps, steps)


def seconds_at_most(seconds: float) -> AmountScorer:
    """The trial worked for at most this many seconds."""
    return AmountScorer(_describe("seconds_at_most", seconds), lambda trial: trial.seconds, seconds)


# ── the output ───────────────────────────────────────────────────────────────


def output_equals(expected: Any = _EXPECTED) -> FactScorer:  # noqa: ANN401 - text or JSON
    """The last reply is this text, or this JSON; without an argument, what the case expects."""

    def check(trial: TrialRecord) -> str | None:
        wanted = _find_expected(trial, expected)
        found = trial.text.strip() if isinstance(wanted, str) else trial.output
        if found == (wanted.strip() if isinstance(wanted, str) else wanted):
            return None
        return f"it was {clip_line(repr(found), SHOWN_CHARS)}"

    return _make_expecting("output_equals", expected, check)


def output_contains(expected: Any = _EXPECTED, *, ignore_case: bool = True) -> FactScorer:  # noqa: ANN401 - text
    """The last reply contains this text; without an argument, what the case expects."""

    def check(trial: TrialRecord) -> str | None:
        wanted = str(_find_expected(trial, expected))
        text = trial.text
        if ignore_case:
            wanted, text = wanted.casefold(), text.casefold()
        return None if wanted in text else f"it was {clip_line(repr(trial.text), SHOWN_CHARS)}"

    return _make_expecting("output_contains", expected, check)


def output_matches(pattern: str) -> FactScorer:
    """A regular expression is found in the last reply. Raises ConfigError if it is not one."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"output_matches({pattern!r}): {error}") from None

    def check(trial: TrialRecord) -> str | None:
        if compiled.search(trial.text):
            return None
        return f"it was {clip_line(repr(trial.text), SHOWN_CHARS)}"

    return FactScorer(_describe("output_matches", pattern), check)


def output_fits(schema: Mapping[str, Any]) -> FactScorer:
    """The last reply is JSON that fits a JSON Schema. Raises ConfigError if that is not one."""
    compiled = JsonSchema(dict(schema))

    def check(trial: TrialRecord) -> str | None:
        faults = [str(fault.message) for fault in compiled.iter_errors(trial.output)]
        return clip_line("; ".join(faults), SHOWN_CHARS) if faults else None

    return FactScorer(_describe("output_fits", dict(schema)), check)


def _find_expected(trial: TrialRecord, given: Any) -> Any:  # noqa: ANN401 - text or JSON
    if given is not _EXPECTED:
        return given
    if trial.case.expected is None:
        raise ConfigError(f"case {trial.case.id} has no field `expected`")
    return trial.case.expected


def _make_expecting(
    function: str, given: object, check: Callable[[TrialRecord], str | None]
) -> FactScorer:
    """Return a scorer that compares with what it was given, or else with `expected`."""
    if given is _EXPECTED:
        return FactScorer(f"{function}()", check, reads_expected=True)
    return FactScorer(_describe(function, given), check)


def says_nothing_of(words: str | Collection[str], *more: str) -> FactScorer:
    """The last reply contains none of these words, given one by one or as a list."""
    listed = [words, *more] if isinstance(words, str) else [*words, *more]

    def check(trial: TrialRecord) -> str | None:
        found = [word for word in listed if word.casefold() in trial.text.casefold()]
        return f"it says {', '.join(map(repr, found))}" if found else None

    return FactScorer(_describe("says_nothing_of", listed), check)


# ── graded ───────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class GradedScorer:
    """A scorer that gives a value or a label, and may say from where on it passes."""

    scorer_name: str
    grade: Callable[[TrialRecord], Score]
    reads_expected: bool = True

    def __call__(self, trial: TrialRecord) -> Score:
        return self.grade(trial)


def similar(expected: str = _EXPECTED, *, at_least: float | None = None) -> GradedScorer:
    """How like the last reply is to a text, from 0 to 1; without one, to what the case expects.

    With `at_least`, a trial passes from there on. Without it, the score decides nothing.
    """

    def grade(trial: TrialRecord) -> Score:
        wanted = str(_find_expected(trial, expected))
        value = SequenceMatcher(None, wanted, trial.text, autojunk=False).ratio()
        passed = None if at_least is None else value >= at_least
        return Score(scorer=name, passed=passed, value=value, reason=f"{value:.2f} alike")

    given = () if expected is _EXPECTED else (expected,)
    name = _describe("similar", *given, at_least=at_least)
    return GradedScorer(name, grade, expected is _EXPECTED)


def label(*labels: str) -> GradedScorer:
    """Which of the labels the last reply names, compared with what the case expects.

    The last one that is named as a whole word counts. The report has a confusion matrix of them.
    Raises ConfigError without labels.
    """
    if not labels:
        raise ConfigError("label() needs the labels to choose from")
    # The longest first: `refund-late` is not `refund`.
    ordered = sorted(labels, key=len, reverse=True)
    pattern = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, ordered))})(?!\w)", re.IGNORECASE)

    def grade(trial: TrialRecord) -> Score:
        wanted = str(_find_expected(trial, _EXPECTED))
        named = pattern.findall(trial.text)
        found = next((one for one in labels if named and one.lower() == named[-1].lower()), "none")
        reason = "" if found == wanted else f"{found} instead of {wanted}"
        return Score(scorer=name, passed=found == wanted, reason=reason, label=found, target=wanted)

    name = _describe("label", *labels)
    return GradedScorer(name, grade)
