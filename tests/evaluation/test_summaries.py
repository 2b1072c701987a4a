"""Graded scores, groups and labels: summed up, compared, shown, and a gate of their own."""

import random
from typing import Any

import pytest
from scipy import stats

from evaluated import model_of, question_of
from windlass import Agent
from windlass.core.errors import ConfigError
from windlass.evaluation import (
    Case,
    CaseReport,
    Report,
    Score,
    TrialRecord,
    TrialReport,
    compare_reports,
    count_labels,
    evaluate,
    group_cases,
    label,
    render_report,
    similar,
    summarize_scores,
)
from windlass.evaluation.comparison import describe_comparison
from windlass.evaluation.scores import score_trial
from windlass.evaluation.statistics import student_quantile
from windlass.evaluation.wording import format_summary
from windlass.journals import MemoryJournal
from windlass.testing import say

pytestmark = pytest.mark.contract("Q5")


def graded_report(name: str, values: list[list[float]], **more: Any) -> Report:
    cases = tuple(
        CaseReport(
            id=f"c{at}",
            digest="d",
            trials=tuple(
                TrialReport(
                    session=f"eval/{name}/c{at}/{nth}",
                    status="passed",
                    outcome="completed",
                    scores=(Score(scorer="quality", value=value, **more),),
                )
                for nth, value in enumerate(of_case, 1)
            ),
        )
        for at, of_case in enumerate(values)
    )
    return Report(name=name, repeat=len(values[0]), cases=cases)


@pytest.mark.parametrize("share", [0.025, 0.6, 0.975, 0.9995])
@pytest.mark.parametrize("freedom", [1, 2, 3.7, 30, 400])
def test_students_quantiles_are_those_of_scipy(share: float, freedom: float) -> None:
    assert student_quantile(share, freedom) == pytest.approx(stats.t.ppf(share, freedom), abs=1e-9)


def test_one_case_has_the_interval_of_scipys_mean() -> None:
    values = [0.2, 0.5, 0.9, 0.4]
    (found,) = summarize_scores(graded_report("r", [values]).cases)
    expected = stats.ttest_1samp(values, 0).confidence_interval()
    assert found.interval is not None
    assert (found.mean, found.values.median, found.over) == (0.5, 0.45, "trials")
    assert (found.interval.low, found.interval.high) == pytest.approx(tuple(expected))


def test_one_trial_a_case_has_an_interval_about_cases_like_these() -> None:
    values = [0.2, 0.5, 0.9, 0.4]
    (found,) = summarize_scores(graded_report("r", [[value] for value in values]).cases)
    expected = stats.ttest_1samp(values, 0).confidence_interval()
    assert found.interval is not None
    assert found.over == "cases"
    assert (found.interval.low, found.interval.high) == pytest.approx(tuple(expected))
    (single,) = summarize_scores(graded_report("r", [[0.5]]).cases)
    assert (single.interval, single.over) == (None, "")
    (flags,) = summarize_scores(graded_report("r", [[1.0, 1.0, 1.0]]).cases)
    assert flags.interval is not None
    assert flags.interval.low == pytest.approx(0.4385, abs=1e-4)


def test_the_interval_of_a_mean_holds_the_true_one() -> None:
    """95 %, in 400 simulations of 5 cases with other means and spreads, 4 trials each."""
    source = random.Random(5)
    held = 0
    for _ in range(400):
        values = [[source.gauss(at, 0.1 + at) for _ in range(4)] for at in range(5)]
        (found,) = summarize_scores(graded_report("r", values).cases)
        assert found.interval is not None
        held += found.interval.low <= 2 <= found.interval.high
    assert 368 <= held <= 396


def test_trials_of_a_case_can_be_reduced() -> None:
    cases = graded_report("r", [[0.0, 0.2, 1.0], [0.5, 0.5, 0.8]]).cases
    means = {
        reducer: summarize_scores(cases, reducer)[0].mean
        for reducer in ("mean", "median", "max", "min", "mode")
    }
    assert means == pytest.approx(
        {"mean": 0.5, "median": 0.35, "max": 0.9, "min": 0.25, "mode": 0.25}
    )


async def test_a_scorer_may_pass_measure_label_or_do_several_things() -> None:
    trial = TrialRecord(Case(id="a", prompt="x", expected="refund"), "s", ())

    async def read(verdict: Any) -> list[tuple[Any, ...]]:
        scores = await score_trial(lambda _trial: verdict, trial)
        return [(one.scorer, one.passed, one.value, one.label, one.missing) for one in scores]

    assert await read(True) == [("<lambda>", True, None, None, False)]
    assert await read(0.25) == [("<lambda>", None, 0.25, None, False)]
    assert await read(3) == [("<lambda>", None, 3.0, None, False)]
    assert await read("refund") == [("<lambda>", True, None, "refund", False)]
    assert await read("other") == [("<lambda>", False, None, "other", False)]
    assert await read({"a": 1.0, "b": False}) == [
        ("<lambda>.a", None, 1.0, None, False),
        ("<lambda>.b", False, None, None, False),
    ]
    both = [Score(scorer="x", value=1), Score(scorer="y", passed=True)]
    assert [one[0] for one in await read(both)] == ["x", "y"]
    for wrong in (float("nan"), object(), [1, 2], None):
        assert (await read(wrong))[0][-1], wrong


async def test_values_are_kept_averaged_and_shown() -> None:
    """Q5: a value alone fails no trial; from `at_least` on, it decides."""
    agent = Agent(model_of(lambda prompt: say(question_of(prompt)[:4])), journal=MemoryJournal())
    cases = [Case(id=text, prompt=text, expected="abcd") for text in ("abcd", "abxx", "zzzz")]
    report = await evaluate(agent, cases, name="g", scorers=[similar()], repeat=2)
    assert report.passes.passed == 6
    (found,) = summarize_scores(report.cases)
    assert (found.scorer, found.mean) == ("similar()", pytest.approx(0.5))
    page = render_report(report)
    assert "similar(): mean 0.5" in page
    assert "similar(): 1" in page
    assert "median 0.5, from 0 to 1" in format_summary(found)
    strict = await evaluate(agent, cases, name="g", scorers=[similar(at_least=0.4)], repeat=2)
    assert strict.passes.passed == 4
    assert strict.warnings == ()
    await agent.aclose()


def test_a_score_that_fell_beyond_chance_closes_the_gate() -> None:
    """Q5: though all trials pass, before and after."""
    source = random.Random(2)
    before = graded_report("a", [[source.gauss(0.8, 0.05) for _ in range(5)] for _ in range(8)])
    after = graded_report("b", [[source.gauss(0.6, 0.05) for _ in range(5)] for _ in range(8)])
    found = compare_reports(before, after)
    assert (found.verdict, found.scores_worse) == ("worse", ["quality"])
    assert "Worse beyond chance by their score: quality. All together: 100 %" in str(found)
    assert "  quality: 0.782" in str(found)
    assert "quality: 0.782" in render_report(after, found)
    assert compare_reports(after, before).verdict == "better"
    assert compare_reports(before, before).verdict == "same"
    general = compare_reports(before, after, generalize=True)
    assert general.scores[0].difference.interval.high < 0
    assert "Worse" in describe_comparison(general)


def test_a_lower_cost_is_no_loss() -> None:
    values = [[5.0, 6.0, 5.5, 6.5]] * 4
    before = graded_report("a", values, lower_is_better=True)
    after = graded_report("b", [[v - 3 for v in case] for case in values], lower_is_better=True)
    assert compare_reports(before, after).verdict == "better"
    assert compare_reports(after, before).verdict == "worse"


@pytest.mark.slow
def test_false_alarms_stay_rare_with_graded_scores() -> None:
    """At most 5 % of 200 comparisons of the same agent are called worse."""
    source = random.Random(3)
    alarms = 0
    for _ in range(200):
        sides = [
            graded_report(name, [[source.betavariate(2, 1) for _ in range(3)] for _ in range(5)])
            for name in ("a", "b")
        ]
        alarms += compare_reports(*sides).verdict == "worse"
    assert alarms <= 10


# ── groups and labels ────────────────────────────────────────────────────────


async def test_cases_are_grouped_by_tags_and_metadata() -> None:
    agent = Agent(model_of(lambda prompt: say(question_of(prompt))), journal=MemoryJournal())
    cases = [
        Case(id="a", prompt="yes", tags=("x", "y"), metadata={"difficulty": "easy"}),
        Case(id="b", prompt="no", tags=("y",), metadata={"difficulty": "hard"}),
        Case(id="c", prompt="no"),
    ]

    def is_yes(trial: TrialRecord) -> dict[str, float | bool]:
        return {"is": trial.text == "yes", "chars": float(len(trial.text))}

    report = await evaluate(agent, cases, name="g", repeat=2, scorers=[is_yes])
    tags = {group.name: (group.cases, group.passes.passed) for group in group_cases(report, "tag")}
    assert tags == {"x": (1, 2), "y": (2, 2), "(none)": (1, 0)}
    (none, easy, hard) = group_cases(report, "difficulty")
    assert [group.name for group in (none, easy, hard)] == ["(none)", "easy", "hard"]
    assert (easy.passes.rate, easy.scores[0].mean, hard.scores[0].mean) == (1.0, 3.0, 2.0)
    assert easy.interval.low == pytest.approx(0.342, abs=1e-3)
    page = render_report(report)
    assert "By difficulty" in page
    assert "By tag" in page
    with pytest.raises(ConfigError, match=r"no case has 'dificulty'.*difficulty"):
        group_cases(report, "dificulty")
    await agent.aclose()


async def test_labels_are_counted_beside_the_right_ones() -> None:
    answers = {"1": "It is a refund.", "2": "Refund-late", "3": "refund", "4": "No idea."}
    agent = Agent(
        model_of(lambda prompt: say(answers[question_of(prompt)])), journal=MemoryJournal()
    )
    right = {"1": "refund", "2": "refund-late", "3": "refund-late", "4": "refund"}
    cases = [Case(id=f"c{key}", prompt=key, expected=right[key]) for key in right]
    scorers = [label("refund", "refund-late")]
    report = await evaluate(agent, cases, name="g", scorers=scorers)
    (matrix,) = count_labels(report)
    assert matrix.labels == ["none", "refund", "refund-late"]
    assert matrix.counts == [[0, 0, 0], [1, 1, 0], [0, 1, 1]]
    assert report.passes.passed == 2
    assert "refund instead of refund-late" in report.trials[2].problems[0]
    assert "right, given" in render_report(report)
    with pytest.raises(ConfigError, match="needs the labels"):
        label()
    await agent.aclose()
