"""Makes the pictures of the page in `docs/images`, with a real browser: `make screenshots`.

They are made from what the page shows, so that the documentation stays true.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

from playwright.sync_api import Browser, Page, sync_playwright  # noqa: E402 - as below

from page_browser import FLAGS, ServedPage, find_browser  # noqa: E402 - after the path is set

IMAGES = ROOT / "docs" / "images"
SIZES = {"light": (1180, 780), "dark": (1180, 780), "phone": (360, 740)}
PROMPTS = (
    ("Explain how rates and taxes are applied", "reader"),
    ("Check the exchange rates of yesterday", "reader"),
    ("Fix the rounding in the billing totals", "builder"),
    ("Run the whole test suite and tell me what fails", "reader"),
    ("Report the totals of September to accounting", "builder"),
    ("Fix the totals again, with the new rates", "builder"),
)


@contextmanager
def serve_story() -> Iterator[tuple[ServedPage, dict[str, str]]]:
    """Yield a service with sessions in all states, by the beginning of their prompts."""
    with tempfile.TemporaryDirectory() as folder:
        served = ServedPage(Path(folder) / "sessions.db")
        served.start()
        try:
            names = {prompt: served.run(prompt, agent) for prompt, agent in PROMPTS}
            done = names[PROMPTS[2][0]]
            for call_id in ("c2_0", "c3_0"):
                served.wait_for(done, "waiting")
                body = {"call_id": call_id, "answer": {"verdict": "allow"}}
                served.ask(f"/runs/{done}/answers", body)
                time.sleep(1.5)
            served.wait_for(done, "completed")
            fork = served.ask(f"/runs/{done}/fork", {"at": 14})["session"]
            time.sleep(2)
            yield served, {**names, "done": done, "fork": fork}
        finally:
            served.kill()


def take_pictures(browser: Browser, served: ServedPage, names: dict[str, str]) -> None:
    """Write a picture of each view in each size."""
    asks = names[PROMPTS[4][0]]
    views = {
        "home": "#/",
        "run": f"#/run/{names['done']}",
        "questions": "#/questions",
        "question": f"#/run/{asks}",
        "why": f"#/run/{names['done']}/9",
        "compare": f"#/compare/{names['done']}/{names['fork']}",
        "costs": "#/costs",
        "agents": "#/agents/builder",
    }
    for kind, (width, height) in SIZES.items():
        theme = "dark" if kind == "dark" else "light"
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=theme,
            storage_state=served.browser,
        )
        page = context.new_page()
        for name, place in views.items():
            page.goto(f"{served.address}/{place}")
            page.wait_for_timeout(1500)
            prepare(page, name)
            page.screenshot(path=IMAGES / f"page-{name}-{kind}.png")
        context.close()


def prepare(page: Page, view: str) -> None:
    """Bring what a picture is about onto the screen."""
    if view == "agents":
        page.get_by_role("button", name="Try it").click()
        page.wait_for_timeout(400)
    if view == "run":
        page.locator(".call-result .terminal").scroll_into_view_if_needed()
        page.wait_for_timeout(300)


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with serve_story() as (served, names), sync_playwright() as started:
        browser = started.chromium.launch(executable_path=find_browser(), args=FLAGS)
        take_pictures(browser, served, names)
        browser.close()
    for path in sorted(IMAGES.glob("page-*.png")):
        sys.stdout.write(f"{path.name}: {path.stat().st_size // 1024} kB\n")


if __name__ == "__main__":
    main()
