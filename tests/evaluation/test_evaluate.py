"""Evaluations: every trial is a session, is found again, and never overruns the budget."""

import asyncio
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from evaluated import PRICED, Shop, answer_order, model_of, question_of, results_of, shop_agent
from windlass import Agent, Allow, Budget, Deny, Limits, RunStarted, replay
from windlass.core.errors import ConfigError
from windlass.evaluation import (
    Case,
    EvaluationProgress,
    ForkPoint,
    Report,
    Scorer,
    Trial,
    asked_before,
    ended_as,
    evaluate,
    file_contains,
    never,
    output_contains,
    output_equals,
    rescore,
    steps_at_most,
    used,
)
from windlass.evaluation.stored_reports import list_evaluations, read_evaluation
from windlass.gates import ask
from windlass.journals import MemoryJournal
from windlass.testing import PowerCut, PowerCutJournal, call, fail, say

pytestmark = pytest.mark.contract("Q1")
ORDERS = [Case(id=f"order-{number}", prompt=f"Refund order {number}.") for number in (1, 2, 3)]


def statuses(report: Report) -> dict[str, list[str]]:
    return {case.id: [trial.status for trial in case.trials] for case in report.cases}


async def test_every_trial_is_a_session_that_is_scored() -> None:
    """Q1: `eval/NAME/CASE/N`, with its own run, that can be replayed like any other."""
    journal = MemoryJournal()
    shop = Shop()
    report = await evaluate(
        shop_agent(shop, journal),
        ORDERS,
        name="refunds",
        repeat=2,
        scorers=[used("refund", times=1), output_contains("refunded"), never("delete")],
    )
    assert (report.passes.passed, report.passes.trials) == (6, 6)
    assert sorted(shop.refunds) == [1, 1, 2, 2, 3, 3]
    names = {summary.session for summary in await journal.sessions()}
    assert names == {f"eval/refunds/order-{order}/{nth}" for order in (1, 2, 3) for nth in (1, 2)}
    for name in names:
        assert replay(name, await journal.read(name)).is_same
    first = report.cases[0].trials[0]
    assert (first.steps, first.outcome) == (3, "completed")
    assert first.usd is not None
    assert first.usd > 0


async def test_the_same_name_runs_nothing_again() -> None:
    """Q1: what was paid for is scored again, with other scorers, and not run again."""
    journal = MemoryJournal()
    shop = Shop()
    agent = shop_agent(shop, journal, model=model_of(answer_order, requests=9))
    await evaluate(agent, ORDERS, name="refunds")
    again = await evaluate(agent, ORDERS, name="refunds", scorers=[never("refund")])
    assert again.passes.passed == 0
    assert sorted(shop.refunds) == [1, 2, 3]
    scored = await rescore(journal, ORDERS, name="refunds", scorers=[used("refund", times=1)])
    assert scored.passes.passed == 3


@pytest.mark.contract("Q6")
async def test_every_recorded_trial_is_scored_again() -> None:
    """Q6: one of five passes, however few repeats the caller thinks of; and nothing is silent."""
    journal = MemoryJournal()
    texts = iter(["yes", "no", "no", "no", "no"])
    agent = Agent(model_of(lambda _prompt: say(next(texts, "no"))), journal=journal)
    cases = [Case(id="a", prompt="Yes?"), Case(id="b", prompt="No?")]
    scorers = [output_equals("yes")]
    await evaluate(agent, cases[:1], name="n", repeat=5, at_once=1, scorers=scorers, caller="ann")
    found = await rescore(journal, cases[:1], name="n", scorers=scorers)
    assert (found.passes.passed, found.passes.trials, found.repeat) == (1, 5, 5)
    assert found.warnings == ()
    stored = await read_evaluation(journal, "n")
    assert stored is not None
    assert stored.caller == "ann", "the owner of the trials stays their owner"
    first = await rescore(journal, cases[:1], name="n", repeat=1, scorers=scorers)
    assert (first.passes.passed, first.passes.trials) == (1, 1)
    both = await rescore(journal, cases, name="n", scorers=scorers)
    assert statuses(both)["b"] == ["not_run"] * 5
    other = await rescore(journal, cases[1:], name="n", scorers=scorers)
    assert other.warnings == ("The trials of cases that were not given are left out: a.",)
    with pytest.raises(ConfigError, match="no trial of an evaluation 'm'"):
        await rescore(journal, cases, name="m")
    await agent.aclose()


async def test_recorded_trials_are_told_apart_from_those_that_were_run() -> None:
    """Q1: who watches knows that nothing was run, or how much of it."""
    journal = MemoryJournal()
    agent = shop_agent(Shop(), journal, name="clerk")
    watched: list[EvaluationProgress] = []
    first = await evaluate(agent, ORDERS, name="refunds", on_progress=watched.append)
    assert (watched[-1].recorded, watched[-1].last_was_recorded) == (0, False)
    assert first.agent == "clerk"
    await evaluate(agent, ORDERS, name="refunds", repeat=2, on_progress=watched.append)
    assert watched[-1].recorded == 3
    ended = (await journal.read("eval/refunds/order-1/1"))[-1].at
    assert watched[-1].recorded_at >= ended > 0
    await evaluate(agent, ORDERS, name="refunds", repeat=2, on_progress=watched.append)
    assert (watched[-1].recorded, watched[-1].total) == (6, 6)
    assert watched[-1].last_was_recorded


@pytest.mark.parametrize(
    ("scorers", "warnings"),
    [
        ([], ["There is no scorer: a trial passes", '2 cases have "expected", and no scorer']),
        ([ended_as(), steps_at_most(9)], ['2 cases have "expected", and no scorer']),
        ([output_contains("refunded")], ['2 cases have "expected", and no scorer']),
        ([output_contains()], []),
        ([output_equals()], []),
        ([lambda trial: trial.case.expected in trial.text], []),
    ],
)
async def test_what_is_expected_and_never_compared_is_warned_about(
    scorers: list[Scorer], warnings: list[str]
) -> None:
    """A scorer of one's own may look at `expected`, and is believed to."""
    agent = shop_agent(Shop(), MemoryJournal())
    cases = [Case(id=f"o{n}", prompt=f"Refund order {n}.", expected="refunded") for n in (1, 2)]
    report = await evaluate(agent, cases, name="refunds", scorers=scorers)
    assert len(report.warnings) == len(warnings)
    for found, begins in zip(report.warnings, warnings, strict=True):
        assert found.startswith(begins)


async def test_a_case_that_is_warned_about_may_stand_beside_scored_ones() -> None:
    agent = shop_agent(Shop(), MemoryJournal())
    checked = Case(
        id="a", prompt="Refund order 1.", expected="x", checks=({"output_equals": None},)
    )
    report = await evaluate(agent, [checked, ORDERS[1]], name="refunds")
    assert report.warnings == (
        "1 case has no scorer: a trial passes if its run completes, whatever it answers.",
    )


@pytest.mark.parametrize("cut_at", [3, 8, 11, 19, 26])
async def test_a_crash_in_the_middle_costs_no_effect_and_no_trial(cut_at: int) -> None:
    """Q1: the process dies at an append; the next call goes on, and no refund is made twice."""
    store = MemoryJournal()
    shop = Shop()
    cut = PowerCutJournal(store, cut_at)
    with pytest.raises(PowerCut):
        await evaluate(shop_agent(shop, cut), ORDERS, name="refunds", at_once=1)
    done_before = len(shop.refunds)
    report = await evaluate(
        shop_agent(shop, store), ORDERS, name="refunds", scorers=[ended_as("completed")]
    )
    assert report.passes.passed == 3
    assert len(shop.refunds) == len(set(shop.refunds))
    assert len(shop.refunds) >= done_before


async def test_another_agent_needs_another_name() -> None:
    """Q1: trials of two agents are never mixed into one report."""
    journal = MemoryJournal()
    await evaluate(shop_agent(Shop(), journal), ORDERS, name="refunds")
    other = shop_agent(Shop(), journal, instructions="Be quick.")
    with pytest.raises(ConfigError, match=r"another agent.*instructions"):
        await evaluate(other, ORDERS, name="refunds")
    named = shop_agent(Shop(), journal, name="clerk")
    with pytest.raises(ConfigError, match=r"another agent \(agent \(unnamed\) became clerk\)"):
        await evaluate(named, ORDERS, name="refunds")
    stored = await read_evaluation(journal, "refunds")
    assert stored is not None
    assert stored.report is not None, "a refused call must not take the report away"
    assert stored.report.passes.passed == 3
    changed = [Case(id="order-1", prompt="Refund order 9.")]
    with pytest.raises(ConfigError, match="another prompt"):
        await evaluate(shop_agent(Shop(), journal), changed, name="refunds")


async def test_the_budget_of_the_whole_evaluation_is_never_overrun() -> None:
    """Q1: trials that could not be paid for are left out of the rates, and are named."""
    journal = MemoryJournal()
    model = model_of(answer_order)
    report = await evaluate(
        shop_agent(Shop(), journal, model=model),
        ORDERS,
        name="refunds",
        repeat=10,
        at_once=5,
        budget="0.012",
    )
    assert model.billed_usd is not None
    assert 0 < model.billed_usd <= Decimal("0.012")
    assert not report.is_complete
    assert 0 < report.passes.trials < 30
    assert report.passes.rate == 1
    left = [trial for trial in report.trials if not trial.counts]
    assert {trial.status for trial in left} == {"not_run"}


async def test_each_trial_has_limits_beside_those_of_the_agent() -> None:
    """Running out of them is the agent's failure; the tighter limit holds."""
    journal = MemoryJournal()
    agent = shop_agent(Shop(), journal)
    short = await evaluate(agent, ORDERS[:1], name="short", limits=Limits(steps=2))
    assert [(trial.status, trial.outcome) for trial in short.trials] == [("failed", "max_steps")]
    enough = await evaluate(agent, ORDERS[:1], name="enough", limits=Limits(steps=3))
    assert enough.passes.passed == 1
    fork = Case(id="f", fork=ForkPoint(session="eval/enough/order-1/1", at=1))
    with pytest.raises(ConfigError, match="the limits of its agent"):
        await evaluate(agent, [fork], name="fork", limits=Limits(steps=3))


async def test_more_money_runs_what_was_left() -> None:
    journal = MemoryJournal()
    shop = Shop()
    agent = shop_agent(shop, journal)
    first = await evaluate(agent, ORDERS, name="refunds", repeat=4, at_once=1, budget="0.004")
    assert not first.is_complete
    scored = await rescore(journal, ORDERS, name="refunds", repeat=4)
    assert (scored.passes, scored.is_complete) == (first.passes, False)
    second = await evaluate(agent, ORDERS, name="refunds", repeat=4, budget="1")
    assert second.is_complete
    assert second.passes.rate == 1


async def test_a_failure_of_the_provider_is_not_one_of_the_agent() -> None:
    """It is left out of the rates, and tried again by the next call."""
    journal = MemoryJournal()
    broken = shop_agent(Shop(), journal, lambda _prompt: fail("auth"))
    report = await evaluate(broken, ORDERS[:1], name="refunds")
    assert statuses(report) == {"order-1": ["error"]}
    assert report.passes.trials == 0
    again = await evaluate(shop_agent(Shop(), journal), ORDERS[:1], name="refunds")
    assert [trial.session for trial in again.trials] == ["eval/refunds/order-1/1.2"]
    assert again.passes.passed == 1


async def test_questions_wait_or_are_answered() -> None:
    """A trial that waits for a person says nothing yet; an answer lets it go on."""
    journal = MemoryJournal()
    shop = Shop()
    agent = shop_agent(shop, journal, gate=ask())
    waiting = await evaluate(agent, ORDERS[:1], name="asks", scorers=[asked_before("refund")])
    assert statuses(waiting) == {"order-1": ["waiting"]}
    assert shop.refunds == []
    answered = await evaluate(
        agent,
        ORDERS[:1],
        name="asks",
        scorers=[asked_before("refund")],
        answer=lambda question: Allow() if question.tool == "refund" else Deny("no"),
    )
    assert statuses(answered) == {"order-1": ["passed"]}
    assert shop.refunds == [1]


async def test_each_trial_has_a_copy_of_the_workspace(tmp_path: Path) -> None:
    """Q1: what one trial writes, no other trial sees, nor the original."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "notes.txt").write_text("start")
    case = Case(id="notes", prompt="Write.", workspace=str(source))
    seen: list[str] = []

    def make_agent(trial: Trial) -> Agent[Any]:
        assert trial.workspace is not None
        notes = trial.workspace / "notes.txt"

        def append() -> str:
            seen.append(notes.read_text())
            notes.write_text(f"{notes.read_text()} {trial.number}")
            return "Done."

        model = model_of(lambda prompt: say("Ok.") if results_of(prompt) else call("append"))
        return Agent(model, tools=[append])

    report = await evaluate(
        make_agent,
        [case],
        name="files",
        repeat=3,
        journal=MemoryJournal(),
        folder=tmp_path / "copies",
        scorers=[file_contains("notes.txt", "start")],
    )
    assert report.passes.passed == 3
    assert seen == ["start"] * 3
    assert (source / "notes.txt").read_text() == "start"
    copies = sorted((tmp_path / "copies").rglob("notes.txt"))
    assert [copy.read_text() for copy in copies] == ["start 1", "start 2", "start 3"]


async def test_two_processes_may_run_the_same_evaluation(tmp_path: Path) -> None:
    """Q1: each trial is run once, by whoever comes first; both get the same report."""
    journal = MemoryJournal()
    shop = Shop()
    source = tmp_path / "source"
    source.mkdir()
    cases = [
        Case(id=f"o{number}", prompt=f"Refund order {number}.", workspace=str(source))
        for number in (1, 2, 3)
    ]

    def make_agent(_trial: Trial) -> Agent[str]:
        return shop_agent(shop, journal, model=model_of(answer_order, pace_s=0.1))

    first, second = await asyncio.gather(
        *(
            evaluate(make_agent, cases, name="both", journal=journal, folder=tmp_path / "copies")
            for _ in range(2)
        )
    )
    assert statuses(first) == statuses(second) == {case.id: ["passed"] for case in cases}
    assert sorted(shop.refunds) == [1, 2, 3]


async def test_an_agent_with_fixed_tools_cannot_have_workspaces(tmp_path: Path) -> None:
    case = Case(id="notes", prompt="Write.", workspace=str(tmp_path))
    with pytest.raises(ConfigError, match="a function that makes the agent"):
        await evaluate(shop_agent(Shop(), MemoryJournal()), [case], name="files")
    with pytest.raises(ConfigError, match="inside of the workspace"):
        await evaluate(shop_agent(Shop(), MemoryJournal()), [case], name="files", folder=tmp_path)


async def test_workers_run_the_trials_if_asked_to() -> None:
    """Q1: with `drive=False` the trials wait in the journal until any worker takes them."""
    journal = MemoryJournal()
    shop = Shop()
    asking = asyncio.create_task(
        evaluate(
            shop_agent(shop, journal, name="clerk"),
            ORDERS,
            name="fleet",
            drive=False,
            scorers=[used("refund")],
        )
    )
    worker = shop_agent(shop, journal, name="clerk")
    while not asking.done():
        await worker.sweep()
        await asyncio.sleep(0.1)
    report = await asking
    await worker.aclose()
    assert report.passes.passed == 3


async def test_workers_cannot_run_what_needs_an_agent_of_its_own(tmp_path: Path) -> None:
    case = Case(id="notes", prompt="Write.", workspace=str(tmp_path / "x"))
    agent = shop_agent(Shop(), MemoryJournal())
    with pytest.raises(ConfigError, match="workers cannot run"):
        await evaluate(agent, [case], name="files", drive=False, folder=tmp_path)


async def test_progress_is_told_and_kept_in_the_journal() -> None:
    journal = MemoryJournal()
    told: list[tuple[int, int]] = []
    await evaluate(
        shop_agent(Shop(), journal),
        ORDERS,
        name="refunds",
        on_progress=lambda progress: told.append((progress.done, progress.total)),
    )
    assert told[-1] == (3, 3)
    stored = await read_evaluation(journal, "refunds")
    assert stored is not None
    assert stored.report is not None
    assert stored.report.passes.passed == 3
    assert [one.name for one in await list_evaluations(journal)] == ["refunds"]


async def test_a_shared_budget_may_limit_tokens() -> None:
    journal = MemoryJournal()
    budget = Budget("team", tokens=3_000)
    model = model_of(answer_order)
    report = await evaluate(
        shop_agent(Shop(), journal, model=model), ORDERS, name="r", repeat=9, budget=budget
    )
    assert not report.is_complete
    assert model.billed_usage.total <= 3_000


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("a/b", {}, "letters"),
        ("", {}, "letters"),
        ("a", {"repeat": 0}, "repeat=0"),
        ("a", {"at_once": 0}, "at_once=0"),
        ("a", {"repeats": 2}, "no option"),
    ],
)
async def test_options_that_do_not_fit_are_refused(
    name: str, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        await evaluate(shop_agent(Shop(), MemoryJournal()), ORDERS, name=name, **options)


async def test_a_case_without_scorers_passes_if_its_run_completes() -> None:
    journal = MemoryJournal()
    agent = Agent(
        model_of(lambda prompt: say("ok") if "1" in question_of(prompt) else call("nothing")),
        journal=journal,
    )
    report = await evaluate(agent, ORDERS, name="plain")
    assert statuses(report) == {
        "order-1": ["passed"],
        "order-2": ["failed"],
        "order-3": ["failed"],
    }
    started = (await journal.read("eval/plain/order-1/1"))[0]
    assert isinstance(started, RunStarted)
    assert PRICED.name in report.model
