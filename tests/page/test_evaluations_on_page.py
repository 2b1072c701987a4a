"""Evaluations in a browser: the list, the cases of one, and the way to a trial's session."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import expect

from evaluated import Shop, shop_agent
from page_browser import OpenPage, ServedPage
from windlass.evaluation import Case, Report, evaluate, similar, used
from windlass.journals import SqliteJournal
from windlass.testing import say

pytestmark = [pytest.mark.slow, pytest.mark.contract("Q4")]


async def fill_journal(served: ServedPage) -> Report:
    journal = SqliteJournal(served.journal)
    cases = [Case(id="refund", prompt="Refund order 7.", expected="No!", tags=("money",))]
    agent = shop_agent(Shop(), journal, lambda _prompt: say("No."))
    try:
        return await evaluate(
            agent, cases, name="shop", repeat=2, scorers=[used("refund"), similar()]
        )
    finally:
        journal.close()


def test_a_report_leads_to_the_sessions_of_its_trials(
    shared_service: ServedPage, open_page: OpenPage
) -> None:
    with ThreadPoolExecutor() as pool:
        pool.submit(asyncio.run, fill_journal(shared_service)).result()
    page = open_page(shared_service, "#/evaluations", width=360, height=740)
    page.get_by_role("link", name="shop").click()
    expect(page.get_by_role("main")).to_contain_text("0 of 2 trials passed: 0 %, 0 % to 66 %")
    expect(page.get_by_role("main")).to_contain_text("refund ran 0 times instead of at least 1")
    expect(page.get_by_role("group", name="Scores")).to_contain_text("similar()")
    expect(page.get_by_role("group", name="By tag")).to_contain_text("money")
    expect(page.get_by_role("group", name="Trials of refund")).to_contain_text("similar() 0.667")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.get_by_role("link", name="2", exact=True).click()
    expect(page.get_by_role("main")).to_contain_text("Refund order 7.")
