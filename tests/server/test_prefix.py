"""A service under a path prefix: which path is meant, and the addresses that clients are given."""

from typing import Any

import pytest

from service import DirectClient, RunningService, run_service
from windlass import Agent
from windlass.core.errors import ConfigError
from windlass.server.access import LOCAL_OWNER
from windlass.server.background import OutsideSettings
from windlass.server.guard import AccessRules
from windlass.server.serving import ServeOptions
from windlass.testing import ScriptedModel

pytestmark = pytest.mark.contract("A12")
PUBLIC = "https://ai.example:8443/team/ai"
PROXY = AccessRules(proxies=("127.0.0.1",))


def helper(*replies: str) -> Agent[str]:
    return Agent(ScriptedModel(list(replies)), name="helper")


async def start(running: RunningService, path: str, headers: dict[str, str]) -> Any:
    client = await running.make_client()
    return await client.post(path, {"prompt": "Hi"}, headers)


@pytest.mark.parametrize("path", ["/team/ai/runs", "/runs"])
async def test_the_prefix_of_the_public_address_may_be_passed_on_or_taken_away(path: str) -> None:
    """A12: what a proxy does with the prefix makes no difference."""
    outside = OutsideSettings(public_url=PUBLIC)
    async with run_service(helper("Done."), outside=outside) as running:
        started = await start(running, path, {"Host": "ai.example"})
        assert started.status == 202
        address = f"/team/ai/runs/{started.data['session'].replace('/', '%2F')}"
        assert started.headers["Location"] == address
        assert started.data["links"] == {"self": address, "events": f"{address}/events"}
        reader = await running.make_client()
        assert (await reader.get(address, {"Host": "ai.example"})).status == 200
        card = await reader.get("/.well-known/agent-card.json", {"Host": "ai.example"})
        assert card.data["supportedInterfaces"][0]["url"] == f"{PUBLIC}/a2a/helper"
        document = await reader.get("/team/ai/openapi.json")
        assert document.data["servers"] == [{"url": "/team/ai"}]


async def test_a_path_that_only_begins_like_the_prefix_is_not_changed() -> None:
    async with run_service(helper(), outside=OutsideSettings(public_url=PUBLIC)) as running:
        client = await running.make_client()
        assert (await client.get("/team/airuns")).status == 404


async def test_the_prefix_of_a_trusted_proxy_is_used_and_that_of_a_client_is_not() -> None:
    """A12: `X-Forwarded-Prefix` counts from a trusted proxy alone."""
    forwarded = {"X-Forwarded-Prefix": "/ai/"}
    async with run_service(helper("Done."), rules=PROXY) as running:
        started = await start(running, "/runs", forwarded)
        assert started.headers["Location"].startswith("/ai/runs/")
        card = await DirectClient(running.dispatcher, await running.make_token()).get(
            "/.well-known/agent-card.json", forwarded
        )
        assert card.data["supportedInterfaces"][0]["url"] == "http://localhost/ai/a2a/helper"
    async with run_service(helper("Done.")) as running:
        started = await start(running, "/runs", forwarded)
        assert started.headers["Location"].startswith("/runs/")


@pytest.mark.parametrize(
    "prefix", ["//evil.example", "/a/../b", "/..", "/%2e%2e/x", "ai", '/a"; Path=/', "/"]
)
async def test_a_prefix_that_could_lead_elsewhere_is_ignored(prefix: str) -> None:
    async with run_service(helper("Done."), rules=PROXY) as running:
        started = await start(running, "/runs", {"X-Forwarded-Prefix": prefix})
        assert started.headers["Location"].startswith("/runs/")


async def test_the_cookie_of_a_sign_in_belongs_to_the_prefix() -> None:
    """A12: two services on one origin neither get nor replace each other's cookies."""
    outside = OutsideSettings(public_url=PUBLIC)
    async with run_service(helper(), outside=outside) as running:
        browser = DirectClient(running.dispatcher)
        code = await running.service.tokens.create_login(LOCAL_OWNER)
        home = {"Host": "ai.example", "Origin": "https://ai.example:8443"}
        signed_in = await browser.post("/team/ai/login", {"code": code}, home)
        cookie = signed_in.headers["Set-Cookie"]
        assert cookie.startswith("windlass_80.team.ai=")
        assert "; Path=/team/ai/;" in cookie
        sent = {
            **home,
            "Cookie": f"windlass_80=another; {cookie.partition(';')[0]}",
            "Windlass-Page-Key": signed_in.data["page_key"],
        }
        assert (await browser.get("/team/ai/me", sent)).status == 200


async def test_the_page_opens_at_an_address_that_ends_with_a_slash() -> None:
    async with run_service(helper(), outside=OutsideSettings(public_url=PUBLIC)) as running:
        browser = DirectClient(running.dispatcher)
        moved = await browser.get("/team/ai")
        assert (moved.status, moved.headers["Location"]) == (308, "/team/ai/")
        page = await browser.get("/team/ai/")
        assert page.status == 200
        assert b'src="page/app.js"' in page.data
        assert (await browser.get("/team/ai/page/app.js")).status == 200


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("https://ai.example/runs", "begins with /runs, which is a path of the service itself"),
        ("https://ai.example/v1/x", "begins with /v1, which"),
        ("https://ai.example/a b", "has a path that cannot be a prefix"),
        ("https://ai.example/../x", "has a path that cannot be a prefix"),
    ],
)
async def test_a_prefix_with_two_meanings_or_none_is_refused(url: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        async with run_service(helper(), outside=OutsideSettings(public_url=url)):
            raise AssertionError("it began")


def test_the_login_link_has_the_prefix() -> None:
    options = ServeOptions(public_url=f"{PUBLIC}/")
    options.check()
    assert options.page_url("http://127.0.0.1:8420") == PUBLIC
