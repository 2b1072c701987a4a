"""Qualities of the page: accessible, by keyboard, at 360 px, offline, fast when it is long."""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from long_session import write_long_session
from node_clients import require_packages
from page_browser import OpenPage, ServedPage

pytestmark = pytest.mark.slow

VIEWS = (
    "#/",
    "#/questions",
    "#/run/{waiting}",
    "#/run/{done}/3",
    "#/compare/{done}/{waiting}",
    "#/costs",
    "#/fleet",
    "#/agents/builder",
)


@pytest.fixture(scope="module")
def filled(shared_service: ServedPage) -> dict[str, str]:
    """A service with a session that is done, one that waits, and one that failed."""
    done = shared_service.run("steps 3", "reader")
    waiting = shared_service.run("report the totals")
    shared_service.run("fail once", "reader")
    shared_service.wait_for(done, "completed")
    shared_service.wait_for(waiting, "waiting")
    return {"done": done, "waiting": waiting}


@pytest.mark.contract("W2")
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing(
    shared_service: ServedPage,
    open_page: OpenPage,
    filled: dict[str, str],
    view: str,
    theme: str,
) -> None:
    folder = require_packages("page")
    page = open_page(shared_service, view.format(**filled), theme=theme)
    page.wait_for_timeout(1200)
    axe = (folder / "node_modules/axe-core/axe.min.js").read_text("utf-8")
    # The page's own policy forbids such a script, so it is evaluated from outside.
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    violations = [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found["violations"]
        for node in one["nodes"]
    ]
    assert violations == []


@pytest.mark.contract("W2")
@pytest.mark.parametrize("view", VIEWS)
def test_it_fits_into_360_pixels(
    shared_service: ServedPage, open_page: OpenPage, filled: dict[str, str], view: str
) -> None:
    page = open_page(shared_service, view.format(**filled), width=360, height=740)
    page.wait_for_timeout(1000)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate("document.documentElement.clientWidth") == 360


@pytest.mark.contract("W2")
def test_everything_can_be_done_by_keyboard_alone(
    own_service: ServedPage, open_page: OpenPage
) -> None:
    page = open_page(own_service)
    expect(page.locator(".connection")).to_contain_text("live")
    page.keyboard.press("n")
    page.keyboard.type("report the totals")
    page.keyboard.press("Enter")
    expect(page.locator(".status-line")).to_contain_text("Waits for your answer")
    page.keyboard.press("g")
    page.keyboard.press("q")
    expect(page.locator(".inbox > li.selected")).to_have_count(1)
    page.wait_for_timeout(1000)
    page.keyboard.press("a")
    page.wait_for_timeout(400)
    page.keyboard.press("a")
    expect(page.locator(".empty")).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("s")
    expect(page.locator(".session .words")).to_have_text("completed")
    page.keyboard.press("j")
    expect(page.locator(".session.selected")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.locator(".entry.end")).to_be_visible()
    page.keyboard.press("k")
    page.keyboard.press("k")
    page.keyboard.press("w")
    expect(page.get_by_label("Why", exact=True)).to_contain_text("chain verified")
    page.keyboard.press("Escape")
    expect(page.get_by_label("Why", exact=True)).to_be_hidden()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("these keys")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.locator(".span")).not_to_have_count(0)
    page.locator(".timeline-scroll").focus()
    page.keyboard.press("End")
    page.keyboard.press("+")
    expect(page.locator(".span.chosen")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.get_by_label("Why", exact=True)).to_be_visible()
    page.keyboard.press("c")
    page.keyboard.type("done?")
    page.keyboard.press("Enter")
    expect(page.locator(".entry.prompt").last).to_contain_text("done?")


@pytest.mark.contract("W1")
def test_it_loads_from_the_service_alone_with_one_request_for_data(
    shared_service: ServedPage, open_page: OpenPage, filled: dict[str, str]
) -> None:
    asked: list[str] = []
    page: Page = open_page(shared_service, "#/nothing")
    expect(page.locator(".connection")).to_contain_text("live")
    page.on(
        "request", lambda request: asked.append(request.url.removeprefix(shared_service.address))
    )
    page.goto(f"{shared_service.address}/?again")
    expect(page.locator(".session").first).to_be_visible()
    data = [
        path for path in asked if not re.fullmatch(r"/(\?again|page/[a-z_]+\.(js|css|svg))?", path)
    ]
    assert data == ["/page/feed?"]


@pytest.mark.contract("W2")
def test_markdown_shows_the_same_however_it_was_cut(
    shared_service: ServedPage, open_page: OpenPage
) -> None:
    page = open_page(shared_service)
    differing = page.evaluate((Path(__file__).parent / "markdown_pieces.js").read_text("utf-8"))
    assert differing == []


HEADING_COST = """
async () => {
  const { renderMarkdown } = await import("/page/markdown.js");
  const real = Object.getOwnPropertyDescriptor(HTMLElement.prototype, "dataset");
  let reads = 0;
  Object.defineProperty(HTMLElement.prototype, "dataset", {
    ...real, get() { reads += 1; return real.get.call(this); },
  });
  return [500, 1000].map((count) => {
    reads = 0;
    renderMarkdown(document.createElement("div"), "# a\\n".repeat(count));
    return reads;
  });
}
"""


@pytest.mark.contract("W2")
def test_many_headings_cost_no_more_than_their_number(
    shared_service: ServedPage, open_page: OpenPage
) -> None:
    """A reply is text of a model, which a stranger may have told what to write."""
    few, many = open_page(shared_service).evaluate(HEADING_COST)
    assert 0 < many <= 3 * few


STREAM_COST = """
async () => {
  const frames = [];
  let last = performance.now();
  let open = true;
  const tick = () => {
    const now = performance.now();
    frames.push(now - last);
    last = now;
    if (open) requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
  const end = performance.now() + 20000;
  const ended = () => document.querySelectorAll(".entry.end").length;
  const before = ended();
  while (ended() === before && performance.now() < end) await new Promise((r) => setTimeout(r, 50));
  open = false;
  frames.sort((a, b) => a - b);
  return frames[Math.floor(frames.length * 0.9)];
}
"""


@pytest.mark.contract("W2")
@pytest.mark.timeout(240)
def test_ten_thousand_records_stay_fluid(tmp_path: Path, open_page: OpenPage) -> None:
    """A run streams into a session of 10,000 records about as smoothly as into an empty one."""
    own_service = ServedPage(tmp_path / "sessions.db")
    long = "long"
    with ThreadPoolExecutor(1) as pool:
        written = write_long_session(own_service.journal, long, 2_000)
        assert pool.submit(asyncio.run, written).result() > 10_000
    own_service.start()
    cost: dict[str, float] = {}
    for name in (own_service.run("done", "reader"), long):
        own_service.wait_for(name, "completed")
        page = open_page(own_service, f"#/run/{name}")
        expect(page.locator(".entry.end").last).to_be_visible(timeout=60_000)
        expect(page.locator(".entry.prompt")).to_have_count(1, timeout=60_000)
        own_service.ask("/runs", {"prompt": "write 250 words", "session": name, "agent": "reader"})
        cost[name] = page.evaluate(STREAM_COST)
    empty, full = cost.values()
    # All rows are in the document, so that the browser's own search finds the first one.
    expect(page.locator(".entry.reply")).to_have_count(2002 + 1, timeout=60_000)
    expect(page.get_by_text("Step 1.", exact=True)).to_have_count(1)
    own_service.kill()
    assert full < max(empty, 8.0) * 4
