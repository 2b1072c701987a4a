"""Reports: rates, comparisons with significance, one HTML file, and the gate."""

import re
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from typing_extensions import override

from evaluated import lucky_reply, model_of
from windlass import Agent
from windlass.core.errors import ConfigError
from windlass.evaluation import (
    Case,
    CaseReport,
    Comparison,
    Report,
    Score,
    TrialReport,
    compare_reports,
    evaluate,
    load_report,
    output_equals,
    render_report,
    save_report,
)
from windlass.evaluation.comparison import describe_comparison, format_measure
from windlass.evaluation.statistics import Interval
from windlass.evaluation.stored_reports import (
    StoredEvaluation,
    read_evaluation,
    store_evaluation,
)
from windlass.evaluation.wording import format_usd
from windlass.journals import MemoryJournal

pytestmark = pytest.mark.contract("Q2")


def make_trial(case: str, nth: int, *, passed: bool, **more: Any) -> TrialReport:
    score = Score(scorer="check", passed=passed, reason="" if passed else "it was <wrong>")
    fields: dict[str, Any] = {"usd": Decimal("0.01"), "steps": 2, "seconds": 1.5, "tokens": 10}
    return TrialReport(
        session=f"eval/r/{case}/{nth}",
        status="passed" if passed else "failed",
        outcome="completed",
        scores=(score,),
        **{**fields, **more},
    )


def make_report(name: str, passes: dict[str, tuple[int, int]], **more: Any) -> Report:
    cases = tuple(
        CaseReport(
            id=case,
            digest="d",
            trials=tuple(
                make_trial(case, nth, passed=nth <= passed, **more) for nth in range(1, trials + 1)
            ),
        )
        for case, (passed, trials) in passes.items()
    )
    return Report(name=name, repeat=5, cases=cases, model="test:model", created=1.8e9)


MIXED = make_report("mixed", {"a": (5, 5), "b": (3, 5), "c": (0, 5)})


def test_a_report_adds_up() -> None:
    assert (MIXED.passes.passed, MIXED.passes.trials) == (8, 15)
    assert MIXED.flaky_cases == ["b"]
    assert MIXED.pass_at(5) == pytest.approx(2 / 3)
    assert MIXED.pass_hat(5) == pytest.approx(1 / 3)
    assert MIXED.pass_at(1) == MIXED.pass_hat(1) == pytest.approx(8 / 15)
    assert MIXED.pass_at(6) is None
    assert MIXED.usd == Decimal("0.15")
    spread = MIXED.spread_of("steps")
    assert spread is not None
    assert (spread.mean, spread.count) == (2.0, 15)
    assert MIXED.is_complete
    assert MIXED.judge_usd == 0


def test_an_unknown_price_is_not_zero() -> None:
    report = make_report("r", {"a": (1, 2)}, usd=None)
    assert report.usd is None
    assert report.spread_of("usd") is None
    assert format_usd(report.usd) == "an unknown amount"
    reason = format_usd(report.usd, ["scripted:model"])
    assert reason == "an unknown amount (no price is known for scripted:model)"


def test_a_report_is_kept_whole(tmp_path: Path) -> None:
    save_report(MIXED, str(tmp_path / "deep" / "r.json"))
    assert load_report(str(tmp_path / "deep" / "r.json")) == MIXED
    assert load_report(tmp_path / "deep" / "r.json") == MIXED
    (tmp_path / "x.json").write_text('{"name": 1}')
    with pytest.raises(ConfigError, match="not a report"):
        load_report(tmp_path / "x.json")
    (tmp_path / "y.json").write_text('{"name": "y", "repeat": 1, "cases": [], "version": 99}')
    with pytest.raises(ConfigError, match="newer"):
        load_report(tmp_path / "y.json")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_report(tmp_path / "missing.json")


def test_reports_are_compared_pairwise() -> None:
    after = make_report("after", {"a": (0, 5), "b": (3, 5), "c": (0, 5)}, seconds=3.0)
    found = compare_reports(MIXED, after)
    assert found.verdict == "worse"
    assert found.surely_worse == ["a"]
    assert [case.id for case in found.changed] == ["a"]
    assert found.difference == pytest.approx(-1 / 3)
    assert found.interval.low <= found.difference <= found.interval.high
    seconds = next(measure for measure in found.measures if measure.name == "seconds")
    assert seconds.is_clear
    assert (seconds.interval.low, seconds.interval.high) == pytest.approx((1.5, 1.5))
    assert "Worse beyond chance in single cases: a" in describe_comparison(found)
    assert str(found).startswith(describe_comparison(found))
    assert "  a: 5/5 became 0/5 (p 0.024)" in str(found).splitlines()
    assert "1.5 became 3" in format_measure(seconds)
    assert compare_reports(after, MIXED).verdict == "better"
    assert compare_reports(MIXED, MIXED).verdict == "same"


def test_a_case_that_collapsed_is_worse_though_another_became_better() -> None:
    before = make_report("before", {"a": (8, 8), "b": (0, 8)})
    after = make_report("after", {"a": (0, 8), "b": (8, 8)})
    found = compare_reports(before, after)
    assert (found.difference, found.verdict) == (0, "worse")


@pytest.mark.contract("Q5")
def test_the_sentence_says_which_cases_it_is_about() -> None:
    """Q5: a verdict by one case alone does not borrow the interval of all cases together."""
    before = make_report("before", {"a": (9, 9), "b": (5, 9), "c": (4, 9)})
    after = make_report("after", {"a": (0, 9), "b": (9, 9), "c": (9, 9)})
    found = compare_reports(before, after)
    assert found.interval.low < 0 < found.interval.high
    words = describe_comparison(found)
    assert words.startswith("Worse beyond chance in single cases: a. All together: 67 % became 67")
    assert "difference on these cases" in words
    general = compare_reports(before, after, generalize=True)
    assert "difference on cases like these -100 to +100 points" in describe_comparison(general)
    near = Comparison(
        before="a",
        after="b",
        verdict="worse",
        alpha=0.05,
        rate_before=1,
        rate_after=0.9,
        interval=Interval(-0.2, -0.001),
        worse_chance=0.02,
        better_chance=1,
        cases=(),
    )
    assert "-20 to -0.1 points" in describe_comparison(near)


def test_a_case_that_expects_another_answer_is_not_compared() -> None:
    """Its passes mean another thing now. Reports of earlier versions do not say."""
    first, second, third = MIXED.cases

    def expect(*digests: str) -> Report:
        cases = zip(MIXED.cases, digests, strict=True)
        return replace(MIXED, cases=tuple(replace(c, expected_digest=d) for c, d in cases))

    found = compare_reports(expect("1", "1", ""), expect("2", "1", "1"))
    assert found.left_out == found.expecting_anew == (first.id,)
    assert [case.id for case in found.cases] == [second.id, third.id]
    assert f"`expected` is another than before: {first.id}" in str(found)
    assert Case(id="a", prompt="p", expected=1).expected_digest != (
        Case(id="a", prompt="p", expected=2).expected_digest
    )


def test_cases_that_differ_are_left_out_and_named() -> None:
    other = make_report("other", {"b": (3, 5), "c": (0, 5), "new": (1, 5)})
    assert compare_reports(MIXED, other).left_out == ("a", "new")
    with pytest.raises(ConfigError, match="no case in common"):
        compare_reports(MIXED, make_report("none", {"z": (1, 1)}))
    with pytest.raises(ConfigError, match="alpha=2"):
        compare_reports(MIXED, MIXED, alpha=2)


@pytest.mark.contract("Q4")
def test_reports_that_were_scored_differently_are_not_compared() -> None:
    """Q4: a stricter or a missing scorer is not a change of the agent."""
    base = make_report("base", {"a": (5, 5)})
    trials = tuple(
        replace(trial, scores=(Score(scorer="used('refund')", passed=True),))
        for trial in base.trials
    )
    other = replace(base, name="other", cases=(replace(base.cases[0], trials=trials),))
    with pytest.raises(ConfigError) as raised:
        compare_reports(base, other)
    message = str(raised.value)
    assert "only in base: check; only in other: used('refund')" in message
    assert "windlass eval report base --cases" in message
    unscored = tuple(replace(trial, scores=()) for trial in base.trials)
    bare = replace(base, name="bare", cases=(replace(base.cases[0], trials=unscored),))
    with pytest.raises(ConfigError, match=r"\(only in base: check\)"):
        compare_reports(base, bare)


@pytest.mark.contract("Q4")
@pytest.mark.parametrize(("cases", "needed"), [(1, 4), (5, 5), (6, 5), (7, 6), (23, 6), (24, 7)])
def test_a_case_that_fell_is_named_where_the_repeats_cannot_show_it(
    cases: int, needed: int
) -> None:
    """Q4: from the repeats that are named on, it is worse, whatever the other cases do."""

    def compare(repeat: int) -> Comparison:
        # The others pass more often than before: the sum of all cases does not show the fall.
        others = [f"other-{number}" for number in range(cases - 1)]
        before = {"fallen": (repeat, repeat)} | dict.fromkeys(others, (0, repeat))
        after = {"fallen": (0, repeat)} | dict.fromkeys(others, (1, repeat))
        return compare_reports(make_report("before", before), make_report("after", after))

    enough = compare(needed)
    assert (enough.verdict, enough.surely_worse) == ("worse", ["fallen"])
    assert enough.fallen_unproven == []
    few = compare(needed - 1)
    assert [case.id for case in few.fallen_unproven] == ["fallen"]
    assert f"With --repeat {needed} in both reports" in str(few)
    assert "--fail-under" in str(few)
    assert f"With --repeat {needed}" in render_report(make_report("r", {"a": (1, 1)}), few)


@pytest.mark.contract("Q4")
def test_with_constant_other_cases_four_repeats_show_a_broken_case() -> None:
    """Q4: as the documentation says: 3 are too few, and 4 are enough, for any number of cases."""
    for repeat, verdict in ((3, "same"), (4, "worse")):
        before = {f"c{number}": (repeat, repeat) for number in range(30)}
        after = {**before, "c0": (0, repeat)}
        found = compare_reports(make_report("before", before), make_report("after", after))
        assert found.verdict == verdict, repeat


class Tags(HTMLParser):
    """Checks that a page is well formed, and collects what it has."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.links: list[str] = []
        self.text = ""

    @override
    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)
        self.links += [value for name, value in attrs if name == "href"]
        if tag != "meta":
            self.open.append(tag)

    @override
    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)

    @override
    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    @override
    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.contract("Q4")
def test_a_report_is_one_html_file_with_plots_and_links() -> None:
    """Q4: whatever a model wrote is escaped, and the page loads and runs nothing."""
    comparison = compare_reports(make_report("before", {"a": (5, 5), "b": (5, 5)}), MIXED)
    page = render_report(MIXED, comparison, sessions_url="http://127.0.0.1:8080/")
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert tags.seen.count("svg") == 3
    assert "script" not in tags.seen
    assert "http://127.0.0.1:8080/#/run/eval%2Fr%2Fa%2F1" in tags.links
    assert "it was <wrong>" in tags.text
    assert "Flaky: b" in tags.text
    assert "pass^5" in tags.text
    assert not re.search(r'(src|url)\s*[=(]\s*["\']?http', page)
    plain = Tags()
    plain.feed(render_report(MIXED))
    assert plain.links == []
    assert "eval/r/a/1" in plain.text


@pytest.mark.contract("Q4")
def test_a_report_without_an_ended_trial_is_shown_too() -> None:
    left = TrialReport(session="eval/r/a/1", status="not_run")
    case = CaseReport(id="a", digest="d", trials=(left,))
    page = render_report(Report(name="r", repeat=1, cases=(case,)))
    assert "1 trials say nothing" in page


@pytest.mark.contract("Q1")
async def test_a_report_that_is_too_long_for_a_record_is_shortened() -> None:
    journal = MemoryJournal()
    scores = (Score(scorer="s", passed=False, reason="x" * 2_000),)
    trials = tuple(
        TrialReport(session=f"eval/big/a/{nth}", status="failed", scores=scores)
        for nth in range(1_000)
    )
    report = Report(name="big", repeat=1, cases=(CaseReport(id="a", digest="d", trials=trials),))
    await store_evaluation(journal, StoredEvaluation(name="big", trials=1_000, report=report))
    stored = await read_evaluation(journal, "big")
    assert stored is not None
    assert stored.report is not None
    assert len(stored.report.trials) == 1_000
    assert stored.report.trials[0].scores[0].reason == ""
    assert await read_evaluation(journal, "other") is None


# ── the gate ─────────────────────────────────────────────────────────────────

QUESTIONS = [Case(id=f"q{number}", prompt=f"Question {number}?") for number in range(8)]


async def measure(name: str, rate: float, seed: int) -> Report:
    """Evaluate an agent whose prompt makes it say yes at a rate."""
    agent = Agent(model_of(lucky_reply(rate, seed)), journal=MemoryJournal())
    return await evaluate(
        agent, QUESTIONS, name=name, repeat=5, at_once=1, scorers=[output_equals("yes")]
    )


@pytest.mark.contract("Q4")
async def test_the_gate_catches_a_prompt_that_was_made_worse() -> None:
    """Q4: from 90 to 50 %, in 40 trials: found every time in three."""
    for seed in range(3):
        before = await measure("before", 0.9, seed)
        after = await measure("after", 0.5, seed + 1_000)
        assert compare_reports(before, after).verdict == "worse", seed


@pytest.mark.contract("Q4")
async def test_the_gate_does_not_cry_about_noise() -> None:
    """Q4: the same agent twice, three times: no alarm."""
    for seed in range(3):
        before = await measure("before", 0.8, seed)
        after = await measure("after", 0.8, seed + 1_000)
        assert compare_reports(before, after).verdict == "same", seed
