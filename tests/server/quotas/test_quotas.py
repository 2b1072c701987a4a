"""Quotas hold for each caller and agent, across replicas; costs are told by who caused them."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from typing_extensions import override

from service import DirectClient, RunningService, run_service
from windlass import Agent
from windlass.core.limits import Amount
from windlass.core.session_summary import SessionPage
from windlass.core.setup import ModelInfo, Price
from windlass.journals.memory import MemoryJournal
from windlass.ports import SharedRecord
from windlass.server.errors import ApiError
from windlass.server.owned_records import record_name
from windlass.server.quotas.admission import Quota, QuotaBook, QuotaStore
from windlass.server.webhooks.store import NewWebhook, WebhookStore
from windlass.testing import ScriptedModel, VirtualClock, pause, say, usage

pytestmark = pytest.mark.contract("A4")
PRICED = ModelInfo("test:model", price=Price(Decimal(1), Decimal(1)))


def make_agent(name: str, *replies: Any) -> Agent[str]:
    return Agent(ScriptedModel([*replies], info=PRICED), name=name)


def reply(seconds: float = 0.0) -> list[Any]:
    return [pause(seconds), say("Done."), usage(input=1_000_000, output=500_000)]


class CountingJournal(MemoryJournal):
    """Notes what lists have read."""

    def __init__(self) -> None:
        super().__init__()
        self.listed: Counter[str] = Counter()
        """Records, by kind."""
        self.sessions_listed: list[str] = []

    @override
    async def list_records(
        self, kind: str, after: str = "", limit: int = 100
    ) -> Sequence[SharedRecord]:
        found = await super().list_records(kind, after, limit)
        self.listed[kind] += len(found)
        return found

    @override
    async def sessions(self, query: str | None = None, **filters: Any) -> SessionPage:
        page = await super().sessions(query, **filters)
        self.sessions_listed += [summary.session for summary in page]
        return page


async def start(client: DirectClient, **body: Any) -> Any:
    return await client.post("/runs", {"prompt": "Go.", **body})


async def set_quota(service: RunningService, **body: Any) -> None:
    admin = await service.make_client("root", ["admin"])
    answer = await admin.ask("PUT", "/quotas/q", body)
    assert answer.status == 200, answer.data


async def test_runs_at_once_are_counted_for_each_caller() -> None:
    agent = make_agent("a", *[reply(100)] * 9)
    async with run_service(agent) as service:
        await set_quota(service, runs_at_once=2)
        ann = await service.make_client("ann")
        bob = await service.make_client("bob")
        for _ in range(2):
            assert (await start(ann)).status == 202
        refused = await start(ann)
        assert (refused.status, refused.data["error"]["code"]) == (429, "quota_runs")
        assert int(refused.headers["Retry-After"]) >= 1
        assert (await start(bob)).status == 202
        await asyncio.sleep(150)
        assert (await start(ann)).status == 202
        await asyncio.sleep(150)


async def test_the_same_start_asked_for_twice_counts_once() -> None:
    agent = make_agent("a", *[reply(100)] * 9)
    async with run_service(agent) as service:
        await set_quota(service, runs_at_once=1)
        ann = await service.make_client("ann")
        key = {"Idempotency-Key": "k1"}
        body = {"prompt": "Go."}
        first = await ann.post("/runs", body, key)
        again = await ann.post("/runs", body, key)
        assert (first.status, again.status) == (202, 202)
        assert first.data["session"] == again.data["session"]
        await asyncio.sleep(150)


async def test_starts_a_minute_are_counted(clock: VirtualClock) -> None:
    """Three in any sixty seconds, and Retry-After says when there is room again."""
    journal = MemoryJournal(now=clock.now)
    await QuotaStore(journal).put(Quota(name="q", starts_per_min=3))
    book = QuotaBook(journal, never_begun, clock.now)
    begun: list[float] = []
    waits: list[float] = []
    beginning = clock.now()
    for number in range(8):
        while (wait_s := await find_wait(book, f"s{number}")) is not None:
            waits.append(wait_s)
            await asyncio.sleep(wait_s + 0.001)
        begun.append(clock.now() - beginning)
        await asyncio.sleep(10)
    assert len(waits) == 2
    for at in begun:
        assert sum(at <= other < at + 60 for other in begun) <= 3


async def find_wait(book: QuotaBook, session: str) -> float | None:
    """Ask for a run; returns how long to wait if there is no room."""
    try:
        await book.admit("ann", "a", session)
    except ApiError as error:
        return error.retry_after
    return None


async def never_begun(_session: str) -> None:
    return None


class RemoteJournal(MemoryJournal):
    """A journal that others can write to between reading and writing."""

    @override
    async def put_record(self, kind: str, name: str, data: bytes, version: int) -> SharedRecord:
        await asyncio.sleep(0.01)
        return await super().put_record(kind, name, data, version)


async def test_replicas_that_ask_at_once_do_not_exceed_it_together(clock: VirtualClock) -> None:
    journal = RemoteJournal(now=clock.now)
    await QuotaStore(journal).put(Quota(name="q", runs_at_once=4))
    books = [QuotaBook(journal, never_begun, clock.now) for _ in range(3)]
    asked = (books[at % 3].admit("ann", "a", f"s{at}") for at in range(20))
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(not isinstance(result, Exception) for result in results) == 4


async def test_money_for_a_model_without_a_price_says_who_must_act() -> None:
    async with run_service(
        Agent(ScriptedModel(["Fine."], info=ModelInfo("a:b")), name="a")
    ) as service:
        await set_quota(service, usd_per_day="2.5", caller="*")
        refused = await start(await service.make_client("ann"))
        assert (refused.status, refused.data["error"]["code"]) == (422, "quota_without_price")
        assert refused.data["error"]["hint"].startswith("Ask the operator")
        assert not (await service.service.journal.sessions())


async def test_money_a_day_is_a_shared_budget_of_the_caller() -> None:
    """A run that is at work ends within it; the next one is refused until midnight."""
    agent = make_agent("a", *[reply()] * 9)
    async with run_service(agent) as service:
        await set_quota(service, usd_per_day="2.5", caller="*")
        ann = await service.make_client("ann")
        session = (await start(ann)).data["session"]
        await asyncio.sleep(1)
        first = await ann.get(f"/runs/{session}")
        assert first.data["summary"]["state"] == "completed"
        (listed,) = (await ann.get("/quotas")).data["quotas"]
        assert Decimal(listed["usd_today"]) == Decimal("1.5")
        quota = Quota(name="q", usd_per_day=Decimal("2.5"))
        budget = quota.make_budget("ann")
        assert budget is not None
        journal = service.service.journal
        assert isinstance(journal, MemoryJournal)
        await journal.settle_budget(budget, "elsewhere", 1, Amount(Decimal(1)))
        refused = await start(ann)
        assert (refused.status, refused.data["error"]["code"]) == (429, "quota_money")
        assert 0 < int(refused.headers["Retry-After"]) <= 86_400
        bob = await service.make_client("bob")
        assert (await start(bob)).status == 202
        await asyncio.sleep(1)


async def test_a_quota_is_for_its_caller_and_agent_only() -> None:
    async with run_service([make_agent("a", *[reply(100)] * 9), make_agent("b", reply())]) as it:
        await set_quota(it, caller="ann", agent="a", runs_at_once=1)
        ann = await it.make_client("ann")
        assert (await start(ann, agent="a")).status == 202
        assert (await start(ann, agent="a")).status == 429
        assert (await start(ann, agent="b")).status == 202
        bob = await it.make_client("bob")
        for _ in range(2):
            assert (await start(bob, agent="a")).status == 202
        await asyncio.sleep(300)


async def test_only_an_admin_changes_quotas() -> None:
    async with run_service(make_agent("a")) as service:
        ann = await service.make_client("ann")
        assert (await ann.ask("PUT", "/quotas/q", {"runs_at_once": 1})).status == 403
        assert (await ann.ask("DELETE", "/quotas/q")).status == 403
        await set_quota(service, caller="bob", runs_at_once=1)
        assert (await ann.get("/quotas")).data["quotas"] == []
        bob = await service.make_client("bob")
        assert [one["name"] for one in (await bob.get("/quotas")).data["quotas"]] == ["q"]
        admin = await service.make_client("root", ["admin"])
        assert (await admin.ask("DELETE", "/quotas/q")).status == 204
        assert (await admin.ask("DELETE", "/quotas/q")).status == 404
        for wrong in ({"runs_at_once": 0}, {"usd_per_day": "-1"}, {"usd_per_day": "NaN"}, {"x": 1}):
            assert (await admin.ask("PUT", "/quotas/q", wrong)).status == 422


async def test_a_list_of_quotas_tells_nothing_of_other_callers() -> None:
    """A4: also not by its cursor, and a page is not shorter for what it leaves out."""
    journal = CountingJournal()
    store = QuotaStore(journal)
    for number in range(6):
        await store.put(Quota(name=f"a{number}-of-bob", caller="bob", runs_at_once=1))
        await store.put(Quota(name=f"b{number}-of-ann", caller="ann", runs_at_once=1))
    await store.put(Quota(name="c-of-all", runs_at_once=1))
    async with run_service(make_agent("a"), journal=journal) as service:
        ann = await service.make_client("ann")
        names: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            page = (await ann.get(f"/quotas?limit=3&cursor={cursor}")).data
            cursor = page["cursor"]
            assert "bob" not in str(page)
            assert len(page["quotas"]) == 3 or cursor is None
            names += [quota["name"] for quota in page["quotas"]]
        assert names == [*(f"b{number}-of-ann" for number in range(6)), "c-of-all"]
        assert journal.listed["quota"] == 13


async def test_costs_of_a_caller_do_not_read_the_sessions_of_others() -> None:
    """A4: else one caller's question costs as much as all callers have done."""
    journal = CountingJournal()
    async with run_service(make_agent("a", *[reply()] * 9), journal=journal) as service:
        for name in ("ann", "bob", "bob", "bob"):
            await start(await service.make_client(name))
            await asyncio.sleep(1)
        ann = await service.make_client("ann")
        journal.sessions_listed.clear()
        assert (await ann.get("/costs")).data["usd"] == "1.5"
        assert len(journal.sessions_listed) == 1


async def test_costs_are_told_by_caller_agent_model_and_label() -> None:
    agents = [make_agent("a", *[reply()] * 9), make_agent("b", *[reply()] * 9)]
    async with run_service(agents) as service:
        ann = await service.make_client("ann")
        made = await service.service.tokens.create(
            "bob", ["start", "watch"], context={"label": "research"}
        )
        bob = DirectClient(service.dispatcher, made.secret)
        for client, agent in ((ann, "a"), (ann, "b"), (bob, "a")):
            await start(client, agent=agent)
            await asyncio.sleep(1)
        await start(ann, session="twice", agent="a")
        await asyncio.sleep(1)
        await start(ann, session="twice")
        await asyncio.sleep(1)
        admin = await service.make_client("root", ["admin"])
        whole = (await admin.get("/costs")).data
        assert whole["usd"] == "7.5"
        rows = {
            (row["caller"], row["agent"], row["model"], row.get("label", "")): row
            for row in whole["rows"]
        }
        assert rows["ann", "a", "test:model", ""]["usd"] == "4.5"
        assert rows["ann", "a", "test:model", ""]["runs"] == 3
        assert rows["bob", "a", "test:model", "research"]["usd"] == "1.5"
        by_label = (await admin.get("/costs?by=label")).data["rows"]
        assert {row["label"]: row["usd"] for row in by_label} == {"": "6.0", "research": "1.5"}
        own = (await bob.get("/costs?by=caller&owner=ann")).data
        assert [(row["caller"], row["usd"]) for row in own["rows"]] == [("bob", "1.5")]
        assert (await admin.get("/costs?since=1&until=2")).data["rows"] == []
        assert (await admin.get("/costs?since=2&until=1")).status == 422
        assert (await admin.get("/costs?by=colour")).status == 422


@pytest.mark.contract("A8")
async def test_costs_are_metrics_for_those_who_may_see_them() -> None:
    async with run_service(make_agent("a", *[reply()] * 3)) as service:
        ann = await service.make_client("ann")
        await start(ann)
        await asyncio.sleep(1)
        labels = '{caller="ann",agent="a",model="test:model",label=""}'
        readers = [("root", "admin", True), ("ann", "watch", True), ("bob", "watch", False)]
        for name, role, sees in readers:
            client = await service.make_client(name, [role])
            text = (await client.get("/metrics")).data.decode()
            assert (f"windlass_cost_today_usd{labels} 1.5" in text) is sees
            assert ("ann" in text) is sees


async def test_a_record_that_cannot_be_read_hides_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    journal = MemoryJournal()
    store = QuotaStore(journal)
    await store.put(Quota(name="after", caller="*", runs_at_once=1))
    hooks = WebhookStore(journal, time.time)
    await hooks.create_webhook(NewWebhook(name="after", url="https://example.com/hook"))
    for kind in ("quota", "webhook"):
        await journal.put_record(kind, record_name("a-broken-one"), b'{"name": 5', 0)
    caplog.set_level("WARNING", logger="windlass")
    assert [quota.name async for quota in store.walk()] == ["after"]
    assert [hook.name async for hook in hooks.walk()] == ["after"]
    assert "the record of the quota 'a-broken-one' cannot be read" in caplog.text
    async with run_service(make_agent("a"), journal=journal) as running:
        boss = await running.make_client("boss", ["admin"])
        for kind in ("quotas", "webhooks"):
            listed = (await boss.get(f"/{kind}")).data[kind]
            assert [each["name"] for each in listed] == ["after"]
        read = await boss.get("/webhooks/a-broken-one")
        assert (read.status, "cannot be read" in read.data["error"]["message"]) == (422, True)
        for kind in ("quotas", "webhooks"):
            assert (await boss.ask("DELETE", f"/{kind}/a-broken-one")).status == 204
            assert (await boss.ask("DELETE", f"/{kind}/a-broken-one")).status == 404
