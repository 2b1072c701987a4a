"""Two services under two prefixes of one origin, behind a real nginx, in one real browser."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import expect

from nginx import run_nginx
from page_browser import OpenPage, ServedPage
from service_process import ServiceProcess, free_port, serve_process

pytestmark = [pytest.mark.slow, pytest.mark.contract("A12")]
APP = """
from windlass import Agent
from windlass.testing import ScriptedModel

agents = Agent(ScriptedModel(["Done."] * 20), name="{name}")
"""
LOCATIONS = """
        proxy_http_version 1.1;
        proxy_buffering off;
        # The usual line: it passes the host on without its port.
        proxy_set_header Host $host;
        # The prefix is taken away here …
        location /one/ {{ proxy_pass http://127.0.0.1:{one}/; }}
        # … and passed on here.
        location /two {{ proxy_pass http://127.0.0.1:{two}; }}
"""


@dataclass
class PrefixedService:
    """A service behind the proxy, with what it printed when it began."""

    address: str
    link: str
    token: str

    def ask(self, path: str, body: object = None) -> tuple[str, dict[str, object]]:
        """Ask through the proxy. Returns the header `Location` and the body."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, headers)
        with urllib.request.urlopen(request, timeout=20) as reply:
            return reply.headers.get("Location", ""), json.loads(reply.read())


def read_greeting(started: ServiceProcess, address: str) -> PrefixedService:
    stdout = started.process.stdout
    assert stdout is not None
    link = stdout.readline().rpartition(": ")[2].strip()
    return PrefixedService(address, link, stdout.readline().rpartition(": ")[2].strip())


@pytest.fixture(scope="module")
def prefixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[PrefixedService]]:
    folder = tmp_path_factory.mktemp("nginx")
    port, one, two = free_port(), free_port(), free_port()
    origin = f"http://127.0.0.1:{port}"

    with ExitStack() as stack:
        services: list[PrefixedService] = []
        for name, own_port in (("one", one), ("two", two)):
            place = folder / name
            place.mkdir()
            flags = ("--public-url", f"{origin}/{name}")
            started = serve_process(place, own_port, *flags, app=APP.format(name=name))
            greeting = read_greeting(stack.enter_context(started), f"{origin}/{name}")
            services.append(greeting)
        stack.enter_context(run_nginx(folder, port, LOCATIONS.format(one=one, two=two)))
        yield services


def test_the_links_of_a_service_lead_back_to_it(prefixed: list[PrefixedService]) -> None:
    """A12: `Location`, links and the card have the prefix, whether or not nginx passes it on."""
    for service in prefixed:
        origin, _, name = service.address.rpartition("/")
        location, started = service.ask("/runs", {"prompt": "Hi"})
        assert location.startswith(f"/{name}/runs/")
        assert started["links"] == {"self": location, "events": f"{location}/events"}
        found = service.ask(location.removeprefix(f"/{name}"))[1]
        assert found["session"] == started["session"]
        assert origin + location == service.address + location.removeprefix(f"/{name}")
        card = json.dumps(service.ask("/.well-known/agent-card.json")[1])
        assert f"{service.address}/a2a/{name}" in card


def test_one_browser_is_signed_in_to_both(
    prefixed: list[PrefixedService], open_page: OpenPage, tmp_path: Path
) -> None:
    """A12: login link, cookie, page key, stream and changes, side by side on one origin."""
    origin = prefixed[0].address.rpartition("/")[0]
    place = ServedPage(tmp_path / "unused.db", address=origin)
    first = open_page(place, prefixed[0].link.removeprefix(f"{origin}/"))
    expect(first.locator(".connection")).to_have_text("live")
    second = open_page(place, prefixed[1].link.removeprefix(f"{origin}/"), context=first.context)
    expect(second.locator(".connection")).to_have_text("live")
    for page, name in ((first, "one"), (second, "two")):
        page.goto(f"{origin}/{name}")
        expect(page).to_have_url(f"{origin}/{name}/")
        expect(page.locator(".connection")).to_have_text("live")
        page.get_by_label("What is to be done?").fill(f"Say it for {name}.")
        page.get_by_role("button", name="Start").click()
        expect(page.get_by_text("Done.").first).to_be_visible()
