"""The story of `docs/page.md`, step by step, in a real browser."""

import pytest
from playwright.sync_api import expect

from page_browser import OpenPage, ServedPage

pytestmark = pytest.mark.slow


@pytest.mark.contract("W1")
def test_the_story_of_the_page(own_service: ServedPage, open_page: OpenPage) -> None:
    # Start a run on the page.
    page = open_page(own_service)
    page.get_by_label("What is to be done?").fill("Fix the rounding in the billing totals")
    page.get_by_role("button", name="Start").click()
    expect(page.locator(".status-line")).to_contain_text("Waits for your answer")
    session = page.url.rpartition("/")[2]
    # Kill the service, and start it again: the page finds it by itself.
    own_service.kill()
    expect(page.locator(".connection")).to_contain_text("reconnecting")
    own_service.start()
    expect(page.locator(".connection")).to_contain_text("live")
    # Answer on a phone.
    phone = open_page(own_service, "#/questions", width=360, height=740)
    expect(phone.locator(".question .command")).to_contain_text("pytest -q")
    phone.get_by_role("button", name="Allow once").click()
    expect(phone.locator(".question .diff-added").first).to_be_visible()
    phone.get_by_role("button", name="Allow once").click()
    expect(phone.locator(".empty")).to_be_visible()
    # Watch it finish.
    expect(page.locator(".entry.end")).to_contain_text("Run 1 completed")
    # Ask why.
    page.locator(".entry.reply .record-link").nth(1).click()
    why = page.get_by_label("Why", exact=True)
    expect(why).to_contain_text("pytest -q")
    expect(why).to_contain_text("chain verified")
    # Fork it there, and compare.
    why.get_by_role("button", name="Fork from here").click()
    page.wait_for_url(lambda url: f"/{session}~" in url)
    fork = page.url.rpartition("/")[2]
    expect(page.locator(".status-line")).to_contain_text("Waits for your answer")
    page.goto(f"{own_service.address}/#/compare/{session}/{fork}")
    expect(page.locator(".compare-verdict")).to_contain_text("They differ from record")
    expect(page.locator(".first-difference")).to_have_count(2)
