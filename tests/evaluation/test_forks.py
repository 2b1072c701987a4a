"""Cases from recorded sessions: forks go on with another agent, and repeat no effect."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evaluated import Shop, answer_order, model_of, results_of, shop_agent
from windlass import Agent, AllowAlways, Budget, CallFinished, CallStarted, StepProposed, fold
from windlass.core.errors import ConfigError, NothingToDo
from windlass.evaluation import (
    Case,
    ForkPoint,
    Report,
    Trial,
    asked_before,
    cases_from_sessions,
    evaluate,
    never,
    used,
)
from windlass.gates import ask
from windlass.journals import MemoryJournal
from windlass.testing import PowerCut, PowerCutJournal, call, say

pytestmark = pytest.mark.contract("Q3")


async def record_session(journal: Any, session: str = "sold", **options: Any) -> Shop:
    """Run a session of production: order 7 is looked up and refunded."""
    shop = Shop()
    agent = shop_agent(shop, journal, **options)
    result = await agent.run("Refund order 7.", session=session)
    while result.questions:
        question = result.questions[0]
        result = await agent.answer(session, question.call_id, AllowAlways())
    await agent.aclose()
    assert result.completed
    return shop


def texts(facts: Any) -> list[str]:
    return [fact.result.text for fact in facts if isinstance(fact, CallFinished)]


async def test_a_recorded_session_is_a_case_for_another_model_and_prompt() -> None:
    """Q3: all results come from the record, so that nothing is looked up or refunded again."""
    journal = MemoryJournal()
    await record_session(journal)
    cases = await cases_from_sessions(journal, query="Refund")
    assert [case.fork for case in cases] == [ForkPoint(session="sold", at=1)]
    shop = Shop()
    agent = shop_agent(shop, journal, instructions="Be brief.")
    report = await evaluate(agent, cases, name="again", repeat=2, scorers=[used("refund", times=1)])
    assert report.passes.passed == 2
    assert (shop.looked, shop.refunds) == ([], [])
    facts = await journal.read("eval/again/sold@1/1")
    assert texts(facts) == ["Order 7 cost 70 dollars.", "Order 7 was refunded."]
    setup = fold("s", facts).setup
    assert setup is not None
    assert setup.instructions == "Be brief."


async def test_a_fork_goes_on_from_exactly_the_record_that_was_chosen() -> None:
    """Q3: what came before is on record, and is not asked again."""
    journal = MemoryJournal()
    await record_session(journal)
    source = await journal.read("sold")
    at = next(fact.seq for fact in source if isinstance(fact, CallFinished))
    cases = await cases_from_sessions(journal, ["sold"], at=at)
    model = model_of(answer_order)
    agent = shop_agent(Shop(), journal, model=model)
    report = await evaluate(agent, cases, name="rest", scorers=[used("refund"), never("look_up")])
    assert report.passes.passed == 1
    assert model.requests == 2
    assert (await journal.read(report.trials[0].session))[:at] == source[:at]
    assert report.trials[0].steps == 2
    assert report.trials[0].usd is not None
    whole = fold("sold", source).ledger.usd
    assert whole is not None
    assert report.trials[0].usd < whole


def other_order(prompt: Any) -> Any:
    """Refund another order than the one on record."""
    return say("Done.") if results_of(prompt) else call("refund", {"order": 8})


@pytest.mark.parametrize("mode", ["replay", "refuse"])
async def test_a_call_that_is_not_on_record_is_refused(mode: Any) -> None:
    """Q3: a replayed result is used only if tool and arguments match."""
    journal = MemoryJournal()
    await record_session(journal)
    cases = await cases_from_sessions(journal, ["sold"], tools=mode)
    shop = Shop()
    await evaluate(shop_agent(shop, journal, other_order), cases, name="other")
    assert shop.refunds == []
    results = texts(await journal.read("eval/other/sold@1/1"))
    assert len(results) == 1
    assert "not made" in results[0]


async def test_nothing_is_answered_if_all_calls_are_refused() -> None:
    journal = MemoryJournal()
    await record_session(journal)
    cases = await cases_from_sessions(journal, ["sold"], tools="refuse")
    shop = Shop()
    await evaluate(shop_agent(shop, journal), cases, name="none")
    assert all("not made" in text for text in texts(await journal.read("eval/none/sold@1/1")))
    assert (shop.looked, shop.refunds) == ([], [])


def refund_twice(prompt: Any) -> Any:
    if len(results_of(prompt)) < 3:
        return [call("look_up", {"order": 7}), call("refund", {"order": 7})]
    return say("Done.")


async def test_a_write_that_was_made_once_is_not_replayed_twice() -> None:
    """Q3: looking again shows the same; refunding again would be a second effect."""
    journal = MemoryJournal()
    await record_session(journal)
    cases = await cases_from_sessions(journal, ["sold"])
    await evaluate(shop_agent(Shop(), journal, refund_twice), cases, name="twice")
    found = texts(await journal.read("eval/twice/sold@1/1"))
    assert found.count("Order 7 cost 70 dollars.") == 2
    assert found.count("Order 7 was refunded.") == 1
    assert sum("not made" in text for text in found) == 1


def make_maker(shop: Shop, reply: Any = answer_order, **options: Any) -> Callable[[Trial], Any]:
    def make(trial: Trial) -> Agent[str]:
        return shop_agent(shop, MemoryJournal(), reply, **options)

    return make


async def run_live(tmp_path: Path, shop: Shop, reply: Any = answer_order, **fork: Any) -> Report:
    journal = MemoryJournal()
    await record_session(journal)
    workspace = tmp_path / "snapshot"
    workspace.mkdir()
    point = ForkPoint(session="sold", at=1, tools="live", **fork)
    return await evaluate(
        make_maker(shop, reply),
        [Case(id="live", fork=point, workspace=str(workspace))],
        name="live",
        journal=journal,
        folder=tmp_path / "copies",
    )


async def test_a_live_fork_reads_for_real_and_writes_from_the_record(tmp_path: Path) -> None:
    """Q3: writes are replayed or refused unless they are allowed by name."""
    shop = Shop()
    report = await run_live(tmp_path, shop)
    assert report.passes.passed == 1
    assert (shop.looked, shop.refunds) == ([7], [])


async def test_a_live_fork_refuses_a_write_that_is_not_on_record(tmp_path: Path) -> None:
    shop = Shop()
    await run_live(tmp_path, shop, other_order)
    assert shop.refunds == []


async def test_a_write_that_is_allowed_runs(tmp_path: Path) -> None:
    shop = Shop()
    await run_live(tmp_path, shop, allow=("refund",))
    assert shop.refunds == [7]


async def test_a_live_fork_needs_a_snapshot_of_the_workspace() -> None:
    journal = MemoryJournal()
    await record_session(journal)
    cases = await cases_from_sessions(journal, ["sold"], tools="live")
    with pytest.raises(ConfigError, match="snapshot of the workspace"):
        await evaluate(shop_agent(Shop(), journal), cases, name="live")


async def test_what_a_person_allowed_is_void_in_a_fork() -> None:
    """Q3: a grant for the rest of the session does not count in a trial."""
    journal = MemoryJournal()
    await record_session(journal, gate=ask())
    source = await journal.read("sold")
    assert fold("sold", source).grants
    at = source[-3].seq
    cases = await cases_from_sessions(journal, ["sold"], at=at)

    def again(prompt: Any) -> Any:
        return say("Done.") if len(results_of(prompt)) > 2 else call("refund", {"order": 7})

    agent = shop_agent(Shop(), journal, again, gate=ask())
    report = await evaluate(agent, cases, name="void", scorers=[asked_before("refund")])
    assert [trial.status for trial in report.trials] == ["waiting"]


async def test_a_call_that_was_under_way_is_not_made_again() -> None:
    """Q3: forked between the start of a refund and its end, the refund counts as unknown."""
    journal = MemoryJournal()
    await record_session(journal)
    source = await journal.read("sold")
    started = [fact.seq for fact in source if isinstance(fact, CallStarted)]
    cases = await cases_from_sessions(journal, ["sold"], at=started[-1])
    shop = Shop()
    await evaluate(shop_agent(shop, journal), cases, name="middle")
    assert shop.refunds == []
    own = (await journal.read(f"eval/middle/sold@{started[-1]}/1"))[started[-1] :]
    kinds = [fact.result.kind for fact in own if isinstance(fact, CallFinished)]
    assert kinds == ["unknown"]


@pytest.mark.parametrize("cut_at", range(3, 10))
async def test_a_crash_in_a_fork_hands_no_result_out_twice(cut_at: int) -> None:
    """Q3: killed at any append, the trial ends with the same results as one that was not."""
    store = MemoryJournal()
    await record_session(store)
    cases = await cases_from_sessions(store, ["sold"])
    shop = Shop()
    with pytest.raises(PowerCut):
        await evaluate(shop_agent(shop, PowerCutJournal(store, cut_at)), cases, name="cut")
    report = await evaluate(shop_agent(shop, store), cases, name="cut", scorers=[used("refund")])
    assert report.passes.passed == 1
    assert (shop.looked, shop.refunds) == ([], [])
    found = texts(await store.read("eval/cut/sold@1/1"))
    assert found == ["Order 7 cost 70 dollars.", "Order 7 was refunded."]


def refund_again(prompt: Any) -> Any:
    return say("Done.") if len(results_of(prompt)) > 1 else call("refund", {"order": 7})


@pytest.mark.parametrize("cut_at", [7, 8, 9])
async def test_a_crash_does_not_forget_which_results_were_taken(cut_at: int) -> None:
    """Q3: a write that is on record once is replayed once, also by the next process."""
    store = MemoryJournal()
    await record_session(store)
    cases = await cases_from_sessions(store, ["sold"])
    cut = PowerCutJournal(store, cut_at)
    with pytest.raises(PowerCut):
        await evaluate(shop_agent(Shop(), cut, refund_again), cases, name="cut")
    await evaluate(shop_agent(Shop(), store, refund_again), cases, name="cut")
    found = texts(await store.read("eval/cut/sold@1/1"))
    assert found.count("Order 7 was refunded.") == 1
    assert len(found) == 2


async def test_a_trial_draws_on_the_budget_of_the_evaluation_alone() -> None:
    """What the run of production was given stays there."""
    journal = MemoryJournal()
    customer = Budget("customer", usd=5)
    agent = shop_agent(Shop(), journal)
    await agent.run("Refund order 7.", session="sold", budgets=[customer], key="k")
    await agent.aclose()
    before = await journal.read_spending(customer)
    cases = await cases_from_sessions(journal, ["sold"])
    await evaluate(shop_agent(Shop(), journal), cases, name="paid", budget="1")
    assert await journal.read_spending(customer) == before
    spent = (await journal.read_spending(Budget("eval/paid", usd=1))).usd
    assert spent is not None
    assert 0 < spent < 1


async def test_two_processes_may_run_the_same_forks() -> None:
    journal = MemoryJournal()
    await record_session(journal)
    cases = await cases_from_sessions(journal)
    model = model_of(answer_order, pace_s=0.1)
    agents = [shop_agent(Shop(), journal, model=model) for _ in range(2)]
    both = [evaluate(agent, cases, name="both", scorers=[used("refund")]) for agent in agents]
    reports = await asyncio.gather(*both)
    assert [report.passes.passed for report in reports] == [1, 1]
    assert model.requests == 3


async def test_trials_are_not_taken_for_production() -> None:
    journal = MemoryJournal()
    await record_session(journal)
    await evaluate(shop_agent(Shop(), journal), await cases_from_sessions(journal), name="x")
    assert [case.id for case in await cases_from_sessions(journal)] == ["sold@1"]


async def test_the_last_run_of_a_conversation_is_the_case() -> None:
    journal = MemoryJournal()
    shop = await record_session(journal)
    agent = shop_agent(shop, journal, lambda _prompt: say("You are welcome."))
    await agent.run("Thank you.", session="sold")
    await agent.aclose()
    cases = await cases_from_sessions(journal)
    assert cases[0].fork is not None
    assert cases[0].fork.at > 1
    model = model_of(lambda _prompt: say("Any time."))
    report = await evaluate(Agent(model, tools=shop.tools, journal=journal), cases, name="thanks")
    assert report.passes.passed == 1
    assert len(results_of(model.prompts[0])) == 2


async def test_a_fork_needs_a_record_with_an_open_run() -> None:
    journal = MemoryJournal()
    await record_session(journal)
    end = len(await journal.read("sold"))
    for at, problem in ((end, "no run is open"), (99, "no record 99")):
        with pytest.raises(ConfigError, match=problem):
            await cases_from_sessions(journal, ["sold"], at=at)
    with pytest.raises(ConfigError, match="no session 'nobody'"):
        await cases_from_sessions(journal, ["nobody"])
    with pytest.raises(NothingToDo):
        await cases_from_sessions(journal, query="no such words")


@pytest.mark.parametrize(
    ("fork", "problem"),
    [({"allow": ("refund",)}, "no tool runs"), ({"allow": ("refnd",)}, "no such tool.*refund")],
)
async def test_what_is_allowed_must_fit(fork: dict[str, Any], problem: str) -> None:
    journal = MemoryJournal()
    await record_session(journal)
    case = Case(id="x", fork=ForkPoint(session="sold", at=1, **fork))
    with pytest.raises(ConfigError, match=problem):
        await evaluate(shop_agent(Shop(), journal), [case], name="x")


async def test_a_reply_with_calls_is_forked_before_its_calls() -> None:
    """The record in which the model made a call: the trial makes it, from the record."""
    journal = MemoryJournal()
    await record_session(journal)
    source = await journal.read("sold")
    at = next(fact.seq for fact in source if isinstance(fact, StepProposed))
    cases = await cases_from_sessions(journal, ["sold"], at=at)
    shop = Shop()
    report = await evaluate(
        shop_agent(shop, journal), cases, name="calls", scorers=[used("look_up", times=1)]
    )
    assert report.passes.passed == 1
    assert shop.looked == []
