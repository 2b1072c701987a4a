"""Evaluations on the page: their rates and trials, to their owner only."""

from collections.abc import Sequence

import pytest
from typing_extensions import override

from evaluated import Shop, shop_agent
from service import run_service
from windlass.evaluation import Case, evaluate, used
from windlass.evaluation.stored_reports import (
    RECORD_KIND,
    StoredEvaluation,
    list_evaluations,
    store_evaluation,
)
from windlass.journals import MemoryJournal
from windlass.ports import SharedRecord
from windlass.server.api.session_records import session_address

pytestmark = pytest.mark.contract("Q4")
CASES = [
    Case(id=f"o{number}", prompt=f"Refund order {number}.", tags=("shop",)) for number in (1, 2)
]


async def test_reports_are_on_the_page_for_those_who_may_see_them() -> None:
    """Q4: each trial names its session."""
    journal = MemoryJournal()
    agent = shop_agent(Shop(), journal, name="clerk")
    await evaluate(agent, CASES, name="hers", repeat=2, scorers=[used("refund")], caller="ann")
    await evaluate(agent, CASES, name="other", caller="bob")
    async with run_service(agent, journal=journal) as running:
        ann = await running.make_client("ann")
        listed = (await ann.get("/page/evaluations")).data["evaluations"]
        assert [(one["name"], one["passed"], one["planned"]) for one in listed] == [("hers", 4, 4)]
        read = (await ann.get("/page/evaluation?name=hers")).data
        trial = read["cases"][0]["trials"][0]
        assert (read["pass_hat"], trial["status"], trial["steps"]) == (1.0, "passed", 3)
        assert trial["scores"][0]["scorer"] == "used('refund')"
        assert read["groups"]["tag"][0]["passes"] == {"passed": 4, "trials": 4}
        assert await journal.read(trial["session"])
        # The page's link leads there, for the owner of the evaluation and for nobody else.
        address = session_address(trial["session"])
        assert (await ann.get(address)).status == 200
        assert (await (await running.make_client("bob")).get(address)).status == 404
        for name in ("other", "nothing"):
            refused = await ann.get(f"/page/evaluation?name={name}")
            assert (refused.status, refused.data["error"]["code"]) == (404, "evaluation_not_found")
        bob = await running.make_client("bob")
        (warning,) = (await bob.get("/page/evaluation?name=other")).data["warnings"]
        assert "passes if its run completes" in warning
        admin = await running.make_client("root", ["admin"])
        assert len((await admin.get("/page/evaluations")).data["evaluations"]) == 2
    await agent.aclose()


async def test_a_list_of_one_caller_reads_no_evaluation_of_another() -> None:
    """Q4: the list costs the same however many evaluations others have."""
    journal = ReadingJournal()
    for number in range(120):
        stored = StoredEvaluation(name=f"b{number:03}", trials=1, caller="bob")
        await store_evaluation(journal, stored)
    await store_evaluation(journal, StoredEvaluation(name="hers", trials=1, caller="ann"))
    await store_evaluation(journal, StoredEvaluation(name="b007", trials=2, caller="ann"))
    journal.read_names.clear()
    assert {one.name for one in await list_evaluations(journal, "ann")} == {"hers", "b007"}
    assert sorted(journal.read_names) == ["b007", "hers"]
    bobs = await list_evaluations(journal, "bob")
    assert (len(bobs), len(await list_evaluations(journal, "bo"))) == (119, 0)
    assert len(await list_evaluations(journal)) == 121


class ReadingJournal(MemoryJournal):
    """Notes which evaluations are read."""

    def __init__(self) -> None:
        super().__init__()
        self.read_names: list[str] = []

    @override
    async def get_record(self, kind: str, name: str) -> SharedRecord | None:
        self.read_names += [name] if kind == RECORD_KIND else []
        return await super().get_record(kind, name)

    @override
    async def list_records(
        self, kind: str, after: str = "", limit: int = 100
    ) -> Sequence[SharedRecord]:
        found = await super().list_records(kind, after, limit)
        self.read_names += [one.name for one in found if kind == RECORD_KIND]
        return found
