"""The list of sessions, the box that starts runs, the timeline, and what tells of questions."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from page_browser import OpenPage, ServedPage
from page_service import PIXEL

pytestmark = pytest.mark.slow


@pytest.mark.contract("W1")
def test_sessions_are_filtered_searched_and_paged_and_the_list_is_live(
    own_service: ServedPage, open_page: OpenPage
) -> None:
    first = own_service.run("fail once", "reader")
    own_service.wait_for(first, "completed")
    for number in range(52):
        own_service.run(f"done {number}", "reader")
    waiting = own_service.run("report the totals")
    own_service.wait_for(waiting, "waiting")
    page = open_page(own_service)
    rows = page.locator(".session")
    expect(rows).to_have_count(50)
    page.get_by_role("button", name="Older sessions").click()
    expect(rows).to_have_count(54)
    page.get_by_role("button", name="Waiting").click()
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("report the totals")
    expect(rows).to_contain_text("builder")
    expect(rows.locator(".session-cost")).to_have_text(re.compile(r"\$0\.\d+"))
    page.get_by_role("button", name="All").click()
    page.get_by_label("Search sessions").fill("FAIL on")
    expect(rows).to_have_count(1)
    page.get_by_label("Search sessions").fill("nothing like it")
    expect(page.locator(".empty")).to_contain_text("No session fits")
    page.get_by_label("Search sessions").fill("")
    own_service.run("a new one", "reader")
    expect(rows.first).to_contain_text("a new one")
    expect(rows.first).to_contain_text("completed")
    # The browser remembers the filter and its sign-in, and nothing else of this.
    page.get_by_role("button", name="Failed").click()
    page.reload()
    expect(page.get_by_role("button", name="Failed")).to_have_attribute("aria-pressed", "true")
    kept = page.evaluate("Object.keys(localStorage)")
    assert set(kept) <= {
        f"windlass.{name}" for name in ("filter", "mine", "theme", "agent", "page_key")
    }


@pytest.mark.contract("W1")
def test_files_are_attached_to_a_prompt(
    own_service: ServedPage, open_page: OpenPage, tmp_path: Path
) -> None:
    (tmp_path / "chart.png").write_bytes(PIXEL)
    page = open_page(own_service)
    page.locator("input[type=file]").set_input_files(tmp_path / "chart.png")
    expect(page.locator(".attachments")).to_contain_text("chart.png")
    page.get_by_label("What is to be done?").fill("done with this picture")
    page.get_by_role("button", name="Start").click()
    expect(page.locator(".entry.prompt img.picture")).to_have_js_property("naturalWidth", 1)


@pytest.mark.contract("W1")
def test_the_timeline_has_lanes_and_zooms_and_leads_to_records(
    own_service: ServedPage, open_page: OpenPage
) -> None:
    session = own_service.run("report the totals")
    own_service.wait_for(session, "waiting")
    page = open_page(own_service, f"#/run/{session}")
    for lane in ("model", "agents", "waiting"):
        expect(page.locator(f".span.{lane}").first).to_be_visible()
    widths = page.locator(".span").evaluate_all("all => all.map(s => +s.getAttribute('width'))")
    # What took a millisecond can be seen and clicked too.
    assert min(widths) >= 3
    page.locator(".timeline-scroll").hover()
    page.mouse.wheel(0, -300)
    expect(page.locator(".timeline-foot")).to_contain_text("2.7")
    page.get_by_role("button", name="Cost").click()
    expect(page.get_by_role("button", name="Cost")).to_have_attribute("aria-pressed", "true")
    page.locator(".span.agents").first.click()
    expect(page.get_by_label("Why", exact=True)).to_contain_text("Record 3")


@pytest.mark.contract("W1")
def test_a_question_notifies_a_page_in_the_background(
    own_service: ServedPage, open_page: OpenPage
) -> None:
    page = open_page(own_service, "#/questions")
    page.evaluate(
        """() => {
            window.told = [];
            const Told = function (title, more) { window.told.push([title, more.body]); };
            Told.permission = "granted";
            Object.defineProperty(window, "Notification", { value: Told });
            Object.defineProperty(document, "hidden", { get: () => true });
        }"""
    )
    session = own_service.run("report the totals")
    own_service.wait_for(session, "waiting")
    expect(page).to_have_title("(1) Windlass")
    [[title, body]] = page.evaluate("window.told")
    assert title == "builder asks"
    assert body.startswith("send_mail: Send mail to accounts@example.com?")
    expect(page.locator("#favicon")).to_have_attribute("href", re.compile("^data:image/png"))
