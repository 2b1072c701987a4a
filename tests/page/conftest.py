"""A real browser and a real service, for tests of the page.

Every page of a test collects what must not happen: violations of the content policy, errors, and
requests to other hosts. A test that leaves one behind fails.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Page,
    Playwright,
    expect,
    sync_playwright,
)

from page_browser import FLAGS, WAIT_MS, WATCH_POLICY, OpenPage, ServedPage, find_browser

expect.set_options(timeout=WAIT_MS)


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    """The driver of browsers. Its event loop runs until it ends, so it must end before others."""
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="module")
def browser(playwright: Playwright) -> Iterator[Browser]:
    started = playwright.chromium.launch(executable_path=find_browser(), args=FLAGS)
    yield started
    started.close()


@pytest.fixture(scope="session")
def shared_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedPage]:
    """A service that tests share: each has sessions of its own in it."""
    served = ServedPage(tmp_path_factory.mktemp("page") / "sessions.db")
    served.start()
    yield served
    served.kill()


@pytest.fixture
def own_service(tmp_path: Path) -> Iterator[ServedPage]:
    """A service for one test, with no sessions in it."""
    served = ServedPage(tmp_path / "sessions.db")
    served.start()
    yield served
    if served.process is not None and served.process.poll() is None:
        served.kill()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Return a function that opens a page of a service in a context of its own."""
    contexts: list[BrowserContext] = []
    pages: list[Page] = []
    faults: list[str] = []

    def open_one(
        served: ServedPage,
        place: str = "",
        *,
        width: int = 1280,
        height: int = 860,
        theme: str = "light",
        context: BrowserContext | None = None,
    ) -> Page:
        if context is None:
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme="dark" if theme == "dark" else "light",
                storage_state=served.browser,
            )
            contexts.append(context)
            context.add_init_script(WATCH_POLICY)
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.on("pageerror", lambda error: faults.append(f"error: {error}"))
        page.on("request", lambda request: _check_host(request.url, served, faults))
        pages.append(page)
        page.goto(f"{served.address}/{place}")
        return page

    yield open_one
    for page in pages:
        if not page.is_closed():
            faults += page.evaluate("window.policyViolations")
    for context in contexts:
        context.close()
    assert faults == []


def _check_host(url: str, served: ServedPage, faults: list[str]) -> None:
    if not url.startswith((served.address, "data:", f"blob:{served.address}")):
        faults.append(f"a request to another host: {url}")
