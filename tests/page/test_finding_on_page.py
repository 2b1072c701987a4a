"""The page with a real browser: finding things in a run, and what it says when it knows nothing."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import Page, expect

from long_session import write_long_session
from page_browser import OpenPage, ServedPage

pytestmark = pytest.mark.slow


def open_run(open_page: OpenPage, served: ServedPage, session: str) -> Page:
    return open_page(served, f"#/run/{session}")


@pytest.mark.contract("W6")
def test_words_are_found_among_ten_thousand_records(
    own_service: ServedPage, open_page: OpenPage
) -> None:
    own_service.kill()
    with ThreadPoolExecutor(1) as pool:
        written = write_long_session(own_service.journal, "long", 2_000)
        assert pool.submit(asyncio.run, written).result() > 10_000
    own_service.start()
    page = open_run(open_page, own_service, "long")
    expect(page.locator(".entry.end").last).to_be_visible(timeout=60_000)
    page.keyboard.press("/")
    page.keyboard.type("file17.txt")
    # The arguments of the call and its result are in one entry.
    expect(page.locator(".find-count")).to_have_text("1 of 1", timeout=30_000)
    expect(page.locator(".entry.selected")).to_contain_text("Step 17.")
    expect(page.locator(".entry.selected")).to_be_in_viewport()
    page.get_by_label("Find in this run").nth(1).fill("no such words")
    expect(page.locator(".find-count")).to_have_text("nothing found")


@pytest.mark.contract("W6")
def test_entries_are_filtered_by_kind_and_visited_one_by_one(
    shared_service: ServedPage, open_page: OpenPage
) -> None:
    session = shared_service.run("fail once", "reader")
    shared_service.wait_for(session, "completed")
    page = open_run(open_page, shared_service, session)
    expect(page.locator(".entry.end")).to_be_visible()
    page.get_by_role("button", name="Errors").click()
    expect(page.locator(".entries .entry")).to_have_count(1)
    expect(page.locator(".entries .entry .call.is-fail")).to_be_visible()
    page.get_by_role("button", name="Errors").click()
    expect(page.locator(".entry.prompt")).to_be_visible()
    page.get_by_role("heading").first.click()
    page.keyboard.press("e")
    expect(page.locator(".entry.selected .call.is-fail")).to_be_visible()
    # `bash` is a write, so its call is a change, too; there is no question to go to.
    page.keyboard.press("d")
    expect(page.locator(".entry.selected .call.is-fail")).to_be_visible()


@pytest.mark.contract("W6")
def test_the_outline_leads_to_steps_and_into_sub_agents(
    shared_service: ServedPage, open_page: OpenPage
) -> None:
    session = shared_service.run("delegate the tests")
    shared_service.wait_for(session, "waiting")
    page = open_run(open_page, shared_service, session)
    expect(page.locator(".entry.prompt").first).to_be_visible()
    page.get_by_role("button", name="Outline").click()
    outline = page.get_by_label("Outline", exact=True)
    expect(outline).to_contain_text("delegate the tests")
    outline.locator("summary", has_text="research").click()
    expect(outline).to_contain_text("test the totals")
    expect(outline).to_contain_text("pytest -q tests/test_totals.py")
    outline.get_by_role("link", name="delegate the tests").click()
    expect(page.locator(".entry.selected").first).to_contain_text("delegate the tests")


@pytest.mark.contract("W1")
def test_a_shortened_result_can_be_read_whole(
    shared_service: ServedPage, open_page: OpenPage
) -> None:
    session = shared_service.run("log everything", "reader")
    shared_service.wait_for(session, "completed")
    page = open_run(open_page, shared_service, session)
    page.locator(".call summary").click()
    expect(page.locator(".call-result")).not_to_contain_text("line 9876")
    page.get_by_role("button", name="Show the whole result").click()
    expect(page.locator(".whole")).to_contain_text("line 9876")
    expect(page.locator(".whole")).to_contain_text("line 19999")


@pytest.mark.contract("W1")
def test_a_session_that_is_not_there_is_an_error_and_nothing_else(
    shared_service: ServedPage, open_page: OpenPage
) -> None:
    page = open_run(open_page, shared_service, "nothing-of-this-name")
    expect(page.get_by_role("heading", name="There is no such session")).to_be_visible()
    expect(page.locator(".composer")).to_be_hidden()
    expect(page.locator(".timeline")).to_be_hidden()


@pytest.mark.contract("W1")
def test_while_the_service_is_away_the_run_says_so(
    own_service: ServedPage, open_page: OpenPage
) -> None:
    session = own_service.run("slow 600", "reader")
    page = open_run(open_page, own_service, session)
    expect(page.locator(".status-line")).to_contain_text("Runs bash")
    expect(page.locator(".run-facts")).to_contain_text("running")
    own_service.kill()
    expect(page.locator(".run-facts")).to_contain_text("not connected")
    expect(page.locator(".status-line")).to_contain_text("The service cannot be reached")
    expect(page.get_by_role("button", name="Cancel")).to_be_disabled()
    expect(page.get_by_role("button", name="Tell it")).to_be_disabled()
    own_service.start()
    expect(page.locator(".run-facts")).not_to_contain_text("not connected", timeout=30_000)
    expect(page.get_by_role("button", name="Fork")).to_be_enabled()


@pytest.mark.contract("W1")
def test_title_state_and_controls_stay_in_sight(
    shared_service: ServedPage, open_page: OpenPage
) -> None:
    session = shared_service.run("steps 30", "reader")
    shared_service.wait_for(session, "completed")
    page = open_run(open_page, shared_service, session)
    expect(page.locator(".entry.end")).to_be_in_viewport()
    expect(page.get_by_role("heading", name="steps 30")).to_be_in_viewport()
    expect(page.locator(".run-facts")).to_be_in_viewport()
    expect(page.get_by_role("button", name="Fork")).to_be_in_viewport()
