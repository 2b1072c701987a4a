"""Scorers over the facts, the files and commands; checks that a file of cases names."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evaluated import Shop, answer_order, model_of, shop_agent
from windlass import Agent, Allow, Deny
from windlass.core.errors import ConfigError
from windlass.evaluation import (
    Case,
    Scorer,
    TrialRecord,
    asked_before,
    command_passes,
    cost_at_most,
    ended_as,
    evaluate,
    file_contains,
    file_equals,
    in_order,
    never,
    no_file,
    only_changed,
    output_contains,
    output_equals,
    output_fits,
    output_matches,
    render_report,
    rescore,
    says_nothing_of,
    seconds_at_most,
    steps_at_most,
    used,
)
from windlass.evaluation.checks import CHECKS, build_check, build_scorers, parse_check
from windlass.evaluation.scores import name_scorer, score_trial
from windlass.gates import ask
from windlass.journals import MemoryJournal
from windlass.testing import ScriptedModel, call, say

pytestmark = pytest.mark.contract("Q2")
CASE = Case(id="order", prompt="Refund order 7.", expected="Order 7 is refunded.")


async def record_of(reply: Any = answer_order, case: Case = CASE, **options: Any) -> TrialRecord:
    journal = MemoryJournal()
    answer = options.pop("answer", None)
    agent: Agent[Any] = shop_agent(Shop(), journal, reply, **options)
    result = await agent.run(case.prompt, session="s")
    while result.questions and answer is not None:
        question = result.questions[0]
        result = await agent.answer("s", question.call_id, answer)
    await agent.aclose()
    return TrialRecord(case, "s", await journal.read("s"))


def name_value(value: Any) -> str:
    return str(value) if isinstance(value, bool) else name_scorer(value)


async def passes(scorer: Scorer, trial: TrialRecord) -> bool:
    (score,) = await score_trial(scorer, trial)
    return score.passed is True


@pytest.mark.parametrize(
    ("scorer", "passed"),
    [
        (used("refund"), True),
        (used("refund", times=1), True),
        (used("refund", times=2), False),
        (used("refund", at_least=2), False),
        (used("refund", with_arguments={"order": 7}), True),
        (used("refund", with_arguments={"order": 8}), False),
        (used("refund", with_arguments={"other": None}), False),
        (never("delete"), True),
        (never("refund"), False),
        (never("refund", with_arguments={"order": 8}), True),
        (in_order("look_up", "refund"), True),
        (in_order("refund", "look_up"), False),
        (in_order("look_up", "look_up"), False),
        (asked_before("refund"), False),
        (ended_as(), True),
        (ended_as("max_steps", "stuck"), False),
        (cost_at_most("0.01"), True),
        (cost_at_most("0.000001"), False),
        (steps_at_most(3), True),
        (steps_at_most(2), False),
        (seconds_at_most(1), True),
        (output_equals(), True),
        (output_equals("Order 7 is refunded"), False),
        (output_contains("REFUNDED"), True),
        (output_contains("REFUNDED", ignore_case=False), False),
        (output_contains(), True),
        (output_matches(r"Order \d+"), True),
        (output_matches(r"^\d+"), False),
        (says_nothing_of(["password"]), True),
        (says_nothing_of(["Refunded"]), False),
        (output_fits({"type": "object"}), False),
    ],
    ids=name_value,
)
async def test_scorers_read_the_facts(scorer: Scorer, passed: bool) -> None:  # noqa: FBT001
    """Q2: no model is asked."""
    assert await passes(scorer, await record_of()) is passed


async def test_a_call_that_was_denied_did_not_run() -> None:
    trial = await record_of(gate=ask(), answer=Deny("no"))
    assert await passes(never("refund"), trial)
    assert not await passes(never("refund", tried=True), trial)
    assert not await passes(used("refund"), trial)
    assert await passes(asked_before("refund"), trial)


async def test_a_call_that_was_approved_was_asked_about_before() -> None:
    trial = await record_of(gate=ask(), answer=Allow())
    assert await passes(asked_before("refund"), trial)
    assert await passes(used("refund", times=1), trial)


@pytest.mark.contract("Q1")
async def test_what_sub_agents_do_counts_too() -> None:
    """A tool that must never run must not run below the agent either, however deep."""
    journal = MemoryJournal()
    shop = Shop()
    models = [
        model_of(answer_order),
        ScriptedModel([call("clerk", {"task": "Refund order 1."}), "Done."], truthful=True),
        ScriptedModel([call("desk", {"task": "Refund order 1."}), "Refunded."], truthful=True),
    ]
    deepest = Agent(models[0], tools=shop.tools)
    middle = Agent(models[1], tools=[deepest.as_tool("clerk")])
    agent = Agent(
        models[2],
        tools=[middle.as_tool("desk")],
        journal=journal,
    )
    scorers = [used("refund", times=1), never("refund"), in_order("desk", "clerk", "refund")]
    case = Case(id="o1", prompt="Refund order 1.")
    for _ in range(2):  # Once as it is run, and once from what is on record.
        report = await evaluate(agent, [case], name="deep", scorers=scorers, journal=journal)
        (trial,) = report.trials
        assert [score.passed for score in trial.scores] == [True, False, True]
        assert "of eval/deep/o1/1/" in trial.scores[1].reason
        assert trial.tokens == sum(model.billed_usage.total for model in models)
    await agent.aclose()


async def test_json_is_compared_as_json() -> None:
    trial = await record_of(lambda _prompt: say('{"b": [1, 2], "a": null}'))
    assert await passes(output_equals({"a": None, "b": [1, 2]}), trial)
    schema = {"type": "object", "required": ["b"]}
    assert await passes(output_fits(schema), trial)


@pytest.mark.contract("Q6")
async def test_a_scorer_that_breaks_is_apart_from_the_failures_of_the_agent() -> None:
    """Q6: the trial counts for nothing until it is scored again, also if another scorer failed."""

    def broken(trial: TrialRecord) -> bool:
        if "order 7" in trial.case.prompt:
            raise KeyError("oh")
        return True

    (score,) = await score_trial(broken, await record_of())
    assert (score.scorer, score.passed, score.missing) == ("broken", False, True)
    assert "KeyError" in score.reason
    journal = MemoryJournal()
    cases = [Case(id=f"o{number}", prompt=f"Refund order {number}.") for number in (6, 7)]
    agent = shop_agent(Shop(), journal)
    for others, passed in (([], 1), ([never("refund")], 0)):
        scorers = [broken, *others]
        report = await evaluate(agent, cases, name="r", scorers=scorers, journal=journal)
        assert [trial.status for trial in report.trials][1] == "unscored"
        assert (report.passes.passed, report.passes.trials) == (passed, 1)
        assert report.scorer_errors == {"broken": ["eval/r/o7/1"]}
    assert "The scorer broken gave no verdict on 1 of them" in render_report(report)
    again = await rescore(journal, cases, name="r", scorers=[used("refund")])
    assert (again.passes.passed, again.scorer_errors) == (2, {})
    await agent.aclose()


@pytest.mark.contract("Q2")
@pytest.mark.parametrize(
    ("scorer", "said"),
    [
        (says_nothing_of("password"), []),
        (says_nothing_of("refunded"), ["refunded"]),
        (says_nothing_of("xyz", "Order"), ["Order"]),
        (says_nothing_of(["xyz", "7"]), ["7"]),
        (parse_check("says_nothing_of:password"), []),
        (build_check({"says_nothing_of": "password"}, "here"), []),
    ],
)
async def test_one_word_is_not_taken_for_its_letters(scorer: Scorer, said: list[str]) -> None:
    (score,) = await score_trial(scorer, await record_of())
    assert (score.passed, score.reason) == (not said, f"it says {said[0]!r}" if said else "")


async def test_a_plain_scorer_is_a_function() -> None:
    (plain,) = await score_trial(lambda trial: trial.steps == 3, await record_of())
    assert plain.passed


async def test_a_case_must_expect_something() -> None:
    trial = await record_of(case=Case(id="x", prompt="Refund order 7."))
    assert "expected" in (await score_trial(output_equals(), trial))[0].reason


def folders(tmp_path: Path) -> TrialRecord:
    before = tmp_path / "before"
    after = tmp_path / "after"
    for folder in (before, after):
        folder.mkdir()
        (folder / "kept.txt").write_text("same")
        (folder / "changed.txt").write_text(folder.name)
    (after / "new.py").write_text("print(3 * 14)")
    (after / "outside").symlink_to("/etc")
    return TrialRecord(Case(id="f", prompt="x", workspace=str(before)), "s", (), 0, after)


@pytest.mark.parametrize(
    ("scorer", "passed"),
    [
        (file_contains("changed.txt", "aft"), True),
        (file_contains("missing.txt", "aft"), False),
        (file_equals("kept.txt", "same"), True),
        (file_equals("kept.txt", "other"), False),
        (no_file("missing.txt"), True),
        (no_file("new.py"), False),
        (only_changed("*.py", "changed.txt", "outside"), True),
        (only_changed("*.py"), False),
        (file_contains("outside/hostname", ""), False),
        (file_contains("../before/kept.txt", "same"), False),
    ],
    ids=name_value,
)
async def test_files_afterwards(tmp_path: Path, scorer: Scorer, passed: bool) -> None:  # noqa: FBT001
    """Q2: and no link leads out of the workspace."""
    assert await passes(scorer, folders(tmp_path)) is passed


@pytest.mark.slow
@pytest.mark.realtime
async def test_a_command_says_what_the_files_are_worth(tmp_path: Path) -> None:
    """In the sandbox: it runs what the agent wrote."""
    trial = folders(tmp_path)
    assert await passes(command_passes("test $(python3 new.py) = 42"), trial)
    (failed,) = await score_trial(command_passes("echo oh no; exit 3"), trial)
    assert not failed.passed
    assert "3" in failed.reason
    assert "oh no" in failed.reason
    assert await passes(command_passes("exit 3", code=3), trial)
    assert (
        not await passes(command_passes("touch ../escaped", timeout_s=5), trial)
        or not (tmp_path / "escaped").exists()
    )


async def test_checks_are_named_in_files_of_cases() -> None:
    checks: tuple[dict[str, Any], ...] = (
        {"used": {"tool": "refund", "times": 1}},
        {"in_order": ["look_up", "refund"]},
        {"never": "delete"},
        {"ended_as": None},
        {"output_equals": None},
        {"says_nothing_of": ["password"]},
    )
    case = Case(id="x", prompt="Refund order 7.", expected="Order 7 is refunded.", checks=checks)
    trial = await record_of(case=case)
    assert [await passes(scorer, trial) for scorer in build_scorers(case)] == [True] * 6


@pytest.mark.parametrize(
    ("check", "problem"),
    [
        ({"usd": 1}, "no scorer 'usd'"),
        ({"used": "a", "never": "b"}, "one key"),
        ({"used": {"tol": "x"}}, "used:"),
        ({"steps_at_most": None}, "steps_at_most:"),
    ],
)
def test_a_check_that_is_wrong_is_refused_with_its_place(
    check: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError, match=f"case x: .*{problem}"):
        build_scorers(Case(id="x", prompt="y", checks=(check,)))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("used:refund", "used('refund')"),
        ("steps_at_most:5", "steps_at_most(5.0)"),
        ("ended_as", "ended_as('completed')"),
        ("in_order:a,b", "in_order('a', 'b')"),
        ("output_contains:a:b", "output_contains('a:b')"),
    ],
)
def test_checks_of_the_command_line(text: str, name: str) -> None:
    assert name_scorer(parse_check(text)) == name


def test_a_number_must_be_one() -> None:
    with pytest.raises(ConfigError, match="not a number"):
        parse_check("steps_at_most:many")


def test_every_named_scorer_is_public() -> None:
    import windlass.evaluation as public  # noqa: PLC0415

    builders: dict[str, Callable[..., Any]] = {name: getattr(public, name) for name in CHECKS}
    assert builders == dict(CHECKS)


async def test_scores_of_an_unfinished_trial_do_not_break() -> None:
    trial = TrialRecord(CASE, "s", ())
    for scorer in (used("a"), never("a"), ended_as(), output_contains("a"), steps_at_most(1)):
        await score_trial(scorer, trial)
    assert trial.outcome == "working"
    assert model_of(answer_order).info.name == "test:model"
