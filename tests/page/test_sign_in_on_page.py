"""Signing in to the page, and what a server on another port of the same host can do with it."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect
from typing_extensions import override

from page_browser import WAIT_MS, OpenPage, ServedPage

pytestmark = [pytest.mark.slow, pytest.mark.contract("A4")]
LIVE = ".connection"


class CookieCatcher(ThreadingHTTPServer):
    """Another server on this host, such as one that an agent wrote. It keeps what it is sent."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.sent: list[Mapping[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, CookieCatcher)
        self.server.sent.append(dict(self.headers))
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<h1>A preview</h1>")

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@contextmanager
def serve_preview() -> Iterator[CookieCatcher]:
    server = CookieCatcher()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A browser that is not signed in anywhere."""
    opened = browser.new_context()
    opened.set_default_timeout(WAIT_MS)
    yield opened
    opened.close()


def sign_in(context: BrowserContext, served: ServedPage) -> Page:
    page = context.new_page()
    page.goto(served.make_login_link())
    expect(page.locator(LIVE)).to_contain_text("live")
    return page


def status_of(
    served: ServedPage, path: str, headers: Mapping[str, str], body: object = None
) -> int:
    data = None if body is None else json.dumps(body).encode()
    sent = {"Content-Type": "application/json", **headers}
    request = urllib.request.Request(served.address + path, data, sent)
    try:
        with urllib.request.urlopen(request, timeout=20) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code


def test_a_login_link_signs_in_for_reloads_and_new_tabs(
    shared_service: ServedPage, context: BrowserContext
) -> None:
    """A4: and neither the code nor the key is ever in an address."""
    session = shared_service.run("done", "reader")
    shared_service.wait_for(session, "completed")
    asked: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    page = context.new_page()
    page.goto(shared_service.address)
    expect(page.locator(".empty")).to_contain_text("Sign in")
    link = shared_service.make_login_link()
    page.goto(link)
    expect(page.locator(LIVE)).to_contain_text("live")
    assert page.url == f"{shared_service.address}/#/"
    page.reload()
    expect(page.locator(LIVE)).to_contain_text("live")
    tab = context.new_page()
    tab.goto(f"{shared_service.address}/#/run/{session}")
    expect(tab.locator(".entry.end")).to_be_visible()
    key = page.evaluate("localStorage.getItem('windlass.page_key')")
    secrets = [link.partition("=")[2], key, *(each.get("value", "") for each in context.cookies())]
    # A fragment is not sent: only the link itself may have the code, and no other address.
    addresses = [url.partition("#")[0] for url in asked] + [page.url, tab.url]
    assert all(secrets)
    assert not [url for url in addresses for secret in secrets if secret in url]


def test_two_services_on_one_host_do_not_sign_each_other_out(
    shared_service: ServedPage, own_service: ServedPage, context: BrowserContext
) -> None:
    """A4: a host has one jar of cookies for all ports."""
    first = sign_in(context, shared_service)
    second = sign_in(context, own_service)
    for page in (first, second, first):
        page.reload()
        expect(page.locator(LIVE)).to_contain_text("live")
    assert len({cookie.get("name") for cookie in context.cookies()}) == 2


def test_another_port_gets_the_cookie_and_can_do_nothing_with_it(
    shared_service: ServedPage, context: BrowserContext
) -> None:
    """A4: it reads nothing, answers no question and makes no token, whatever it forges."""
    session = shared_service.run("fix the rounding")
    waiting = shared_service.wait_for(session, "waiting")
    sign_in(context, shared_service)
    with serve_preview() as preview:
        page = context.new_page()
        page.goto(preview.url)
        cookie = preview.sent[0]["Cookie"]
        assert f"windlass_{shared_service.port}=wb_" in cookie
        assert page.evaluate("localStorage.length") == 0
        answer = {"call_id": waiting["questions"][0]["call_id"], "answer": {"verdict": "allow"}}
        tries: list[tuple[str, object]] = [
            ("/me", None),
            ("/page/feed", None),
            (f"/runs/{session}", None),
            (f"/runs/{session}/answers", answer),
            ("/tokens", {"caller": "", "roles": ["admin"]}),
        ]
        secret = cookie.partition("=")[2].partition(";")[0]
        forged: list[dict[str, str]] = [
            {"Cookie": cookie, "Origin": shared_service.address},
            {"Cookie": cookie, "Origin": shared_service.address, "Windlass-Page-Key": secret},
            {"Authorization": f"Bearer {secret}"},
        ]
        for headers in forged:
            statuses = [status_of(shared_service, path, headers, body) for path, body in tries]
            assert statuses == [401] * len(tries), headers
        # Nor can a script of its page make the browser do it.
        script = """async (address) => {
          const plain = { credentials: "include" };
          const keyed = { ...plain, headers: { "Windlass-Page-Key": "x" } };
          const tries = [fetch(`${address}/me`, plain), fetch(`${address}/me`, keyed)];
          return (await Promise.allSettled(tries)).map((each) => each.status);
        }"""
        assert page.evaluate(script, shared_service.address) == ["rejected", "rejected"]
    still = shared_service.wait_for(session, "waiting")
    assert still["questions"] == waiting["questions"]


def test_the_stream_comes_back_after_the_service_was_killed(
    own_service: ServedPage, context: BrowserContext
) -> None:
    """A4, W2: with the secrets that the browser has, and with what happened meanwhile."""
    page = sign_in(context, own_service)
    own_service.kill()
    expect(page.locator(LIVE)).to_contain_text("reconnecting")
    own_service.start()
    expect(page.locator(LIVE)).to_contain_text("live")
    session = own_service.run("done", "reader")
    expect(page.locator(f"a[href='#/run/{session}']")).to_be_visible()


@pytest.mark.parametrize("place", ["this tab", "another tab"])
def test_an_ended_sign_in_asks_for_a_new_one_and_keeps_the_address(
    own_service: ServedPage, context: BrowserContext, place: str
) -> None:
    """A4: the tab shows what it showed before, wherever the person signs in again."""
    session = own_service.run("done", "reader")
    own_service.wait_for(session, "completed")
    page = sign_in(context, own_service)
    page.goto(f"{own_service.address}/#/run/{session}")
    expect(page.locator(".entry.end")).to_be_visible()
    own_service.sign_browsers_out()
    page.reload()
    expect(page.locator(".empty")).to_contain_text("Sign in")
    assert page.url.endswith(f"/#/run/{session}")
    if place == "this tab":
        page.goto(own_service.make_login_link())
    else:
        sign_in(context, own_service)
    expect(page.locator(".entry.end")).to_be_visible()
    expect(page.locator(LIVE)).to_contain_text("live")
    assert page.url.endswith(f"/#/run/{session}")


def test_an_open_page_notices_that_it_was_signed_out(
    own_service: ServedPage, open_page: OpenPage
) -> None:
    """A4: by the next request, although its stream is still open."""
    page = open_page(own_service)
    expect(page.locator(LIVE)).to_contain_text("live")
    own_service.sign_browsers_out()
    page.goto(f"{own_service.address}/#/costs")
    expect(page.locator(".empty")).to_contain_text("Sign in")
    expect(page.locator(LIVE)).to_contain_text("signed out")


def test_a_wrong_login_link_does_not_sign_a_browser_out(
    shared_service: ServedPage, open_page: OpenPage
) -> None:
    page = open_page(shared_service, "#/costs")
    expect(page.locator(LIVE)).to_contain_text("live")
    page.goto(f"{shared_service.address}/#login=wrong")
    expect(page.locator(".toast")).to_contain_text("login link")
    expect(page.locator(LIVE)).to_contain_text("live")
    assert page.url.endswith("/#/costs")


@pytest.mark.contract("W5")
def test_a_reviewer_signs_in_with_a_token_and_answers_by_name(
    own_service: ServedPage, browser: Browser
) -> None:
    session = own_service.run("fix the totals")
    own_service.wait_for(session, "waiting")
    made = own_service.ask(
        "/tokens",
        {"caller": "ann", "person": "ann", "grants": [{"role": "reviewer", "agents": ["builder"]}]},
    )
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{own_service.address}/#/questions")
    page.get_by_label("With your token").fill(made["secret"])
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator(".bar .person")).to_contain_text("ann")
    page.get_by_role("button", name="Allow once").click()
    # The next question of the same run.
    expect(page.locator(".question-tool")).to_have_text("edit")
    own_service.wait_for(session, "waiting", "completed")
    page.goto(f"{own_service.address}/#/run/{session}")
    expect(page.get_by_role("heading", name="There is no such session")).to_be_visible()
    found = own_service.ask(f"/runs/{session}/explain")["lines"]
    assert any("ann" in line for line in found)
    context.close()
