"""What a request must pass: host, origin, token, cookie, rate; and what replies say about it."""

import asyncio
import re
from typing import Any

import pytest

from service import DirectClient, run_service
from windlass import Agent
from windlass.core.errors import ConfigError
from windlass.server.access import LOCAL_OWNER, full_session_name, owner_prefix
from windlass.server.guard import AccessRules
from windlass.server.limits import RateLimiter, ServiceLimits
from windlass.server.messages import StreamReply
from windlass.server.serving import ServeOptions
from windlass.testing import ScriptedModel


def idle_agent() -> Agent[str]:
    return Agent(ScriptedModel([]), name="helper")


@pytest.mark.contract("A4")
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "",
        "127.0.0.2",
        "[::1].evil.example",
        "[::1]x",
        "[::1",
        "[::1]:80:80",
        "localhost:80@evil.example",
        "localhost:",
        "localhost:99999999",
        "user@localhost",
        "127.0.0.1:80, evil.example",
        "localhost evil.example",
        "localhost/",
        "localhost\t",
    ],
)
async def test_another_host_name_is_refused(host: str) -> None:
    async with run_service(idle_agent()) as running:
        client = await running.make_client()
        refused = await client.get("/runs", {"Host": host})
        assert (refused.status, refused.data["error"]["code"]) == (421, "wrong_host")


@pytest.mark.contract("A4")
@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:8000", "[::1]:8000"])
async def test_its_own_names_are_answered_with_any_port(host: str) -> None:
    async with run_service(idle_agent()) as running:
        client = await running.make_client()
        assert (await client.get("/runs", {"Host": host})).status == 200


@pytest.mark.contract("A4")
async def test_a_page_of_another_site_can_do_nothing_unless_it_is_named() -> None:
    rules = AccessRules(origins=("https://chat.example",))
    async with run_service(idle_agent(), rules=rules) as running:
        client = await running.make_client()
        for origin in ("https://evil.example", "null", "http://localhost.evil"):
            refused = await client.get("/runs", {"Origin": origin})
            assert (refused.status, refused.data["error"]["code"]) == (403, "foreign_origin")
            assert "Access-Control-Allow-Origin" not in refused.headers
        own = await client.get("/runs", {"Origin": "http://localhost"})
        assert own.status == 200
        named = await client.get("/runs", {"Origin": "https://chat.example"})
        assert named.headers["Access-Control-Allow-Origin"] == "https://chat.example"
        preflight = await client.ask("OPTIONS", "/runs", None, {"Origin": "https://chat.example"})
        assert preflight.status == 204
        assert "POST" in preflight.headers["Access-Control-Allow-Methods"]


@pytest.mark.contract("A4")
async def test_a_login_code_works_once_and_gives_a_strict_cookie() -> None:
    async with run_service(idle_agent()) as running:
        code = await running.service.tokens.create_login(LOCAL_OWNER)
        browser = DirectClient(running.dispatcher)
        home = {"Origin": "http://localhost"}
        logged_in = await browser.post("/login", {"code": code}, home)
        assert logged_in.status == 200
        cookie = logged_in.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        again = await browser.post("/login", {"code": code}, home)
        assert (again.status, again.data["error"]["code"]) == (401, "login_refused")
        key = {"Windlass-Page-Key": logged_in.data["page_key"]}
        sent = {"Cookie": cookie.partition(";")[0], **key}
        assert (await browser.get("/me", sent)).data["roles"] == ["admin"]
        # A change by cookie must come from the service's own page.
        forged = await browser.post("/logout", {}, sent)
        assert (forged.status, forged.data["error"]["code"]) == (403, "origin_needed")
        assert (await browser.post("/logout", {}, {**sent, **home})).status == 204
        assert (await browser.get("/me", sent)).status == 401


@pytest.mark.contract("A4")
async def test_a_code_is_not_used_by_a_get() -> None:
    async with run_service(idle_agent()) as running:
        code = await running.service.tokens.create_login(LOCAL_OWNER)
        browser = DirectClient(running.dispatcher)
        await browser.get(f"/login?code={code}")
        home = {"Origin": "http://localhost"}
        assert (await browser.post("/login", {"code": code}, home)).status == 200


@pytest.mark.contract("A4")
async def test_too_many_requests_are_answered_with_429_and_when_to_come_back() -> None:
    limits = ServiceLimits(requests_per_s=1.0, requests_at_once=3)
    async with run_service(idle_agent(), limits=limits) as running:
        ann = await running.make_client("ann")
        bob = await running.make_client("bob")
        statuses = [(await ann.get("/runs")).status for _ in range(4)]
        assert statuses == [200, 200, 200, 429]
        refused = await ann.get("/runs")
        assert int(refused.headers["Retry-After"]) >= 1
        assert (await bob.get("/runs")).status == 200


@pytest.mark.contract("A4")
async def test_guessing_tokens_is_slowed_down() -> None:
    limits = ServiceLimits(failed_logins_per_min=5)
    async with run_service(idle_agent(), limits=limits) as running:
        guesser = DirectClient(running.dispatcher, "wl_0123456789ab_" + "A" * 43)
        statuses = [(await guesser.get("/runs")).status for _ in range(6)]
        assert statuses == [401] * 5 + [429]


@pytest.mark.contract("A4")
async def test_too_many_streams_of_one_caller_are_refused_and_closing_one_helps() -> None:
    async with run_service(idle_agent(), limits=ServiceLimits(streams_per_caller=2)) as running:
        ann = await running.make_client("ann")
        stream = {"Accept": "text/event-stream"}
        replies = [await ann.send("GET", "/events", None, stream) for _ in range(3)]
        assert [reply.status for reply in replies] == [200, 200, 429]
        first, second, _ = replies
        assert isinstance(first, StreamReply)
        await first.close()
        again = await ann.send("GET", "/events", None, stream)
        assert again.status == 200
        for reply in (second, again):
            assert isinstance(reply, StreamReply)
            await reply.close()
        assert running.dispatcher.streams.total == 0


@pytest.mark.contract("A4")
async def test_a_token_ends_and_can_be_revoked() -> None:
    async with run_service(idle_agent()) as running:
        tokens = running.service.tokens
        made = await tokens.create("ann", expires_in_s=0.01)
        await asyncio.sleep(0)
        admin = await running.make_client("boss", ["admin"])
        kept = await admin.post("/tokens", {"caller": "bob"})
        assert kept.status == 201
        listed = (await admin.get("/tokens")).data["tokens"]
        assert kept.data["secret"] not in str(listed)
        records = running.service.journal
        stored = await records.list_records("token")
        assert not any(kept.data["secret"].encode() in record.data for record in stored)
        bob = DirectClient(running.dispatcher, kept.data["secret"])
        assert (await bob.get("/me")).data["caller"] == "bob"
        revoked = await admin.ask("DELETE", f"/tokens/{kept.data['token']['id']}")
        assert revoked.status == 204
        assert (await bob.get("/me")).status == 401
        assert made.record.has_expired(made.record.created + 1)


@pytest.mark.contract("T18")
async def test_a_body_of_countless_lists_is_refused_before_it_is_decoded() -> None:
    """Decoding it would take memory of the service and time of all other callers."""
    async with run_service(idle_agent()) as running:
        ann = await running.make_client("ann")
        crowd = b'{"prompt": "Hi", "context": {"a": [' + b"[]," * 100_000 + b"[]]}}"
        refused = await ann.ask("POST", "/runs", crowd)
        assert (refused.status, refused.data["error"]["code"]) == (413, "too_many_keys")
        text = b'{"prompt": "' + b"[]," * 100_000 + b'", "agent": "nobody"}'
        assert (await ann.ask("POST", "/runs", text)).status == 404


@pytest.mark.contract("A5")
async def test_every_error_has_a_code_a_sentence_and_what_to_do() -> None:
    async with run_service(idle_agent()) as running:
        ann = await running.make_client("ann")
        cases = [
            await ann.get("/nowhere"),
            await ann.ask("DELETE", "/runs"),
            await ann.get("/runs/missing"),
            await ann.get("/runs?limit=0"),
            await ann.get("/runs?colour=red"),
            await ann.get("/runs?cursor=!!"),
            await ann.ask("POST", "/runs", b"{"),
            await ann.ask("POST", "/runs", b"{}"),
            await ann.ask("POST", "/runs", b'{"prompt": 1}'),
            await ann.ask("POST", "/runs", b"hi", {"Content-Type": "text/plain"}),
            await ann.post("/runs", {"prompt": "Hi", "agent": "nobody"}),
            await ann.post("/runs", {"prompt": "Hi", "session": "a/b"}),
            await ann.post("/runs", {"prompt": "Hi", "caller": "boss"}),
        ]
        statuses = [case.status for case in cases]
        assert statuses == [404, 405, 404, 422, 422, 422, 400, 422, 422, 415, 404, 422, 422]
        for case in cases:
            error = case.data["error"]
            assert error["code"].isidentifier()
            assert error["message"].endswith((".", "?"))
            assert error["hint"]


@pytest.mark.contract("A5")
async def test_the_document_describes_every_route() -> None:
    async with run_service(idle_agent()) as running:
        document = (await DirectClient(running.dispatcher).get("/openapi.json")).data
        described = {
            (method.upper(), path)
            for path, operations in document["paths"].items()
            for method in operations
        }
        routes = {(route.method, route.path) for route in running.dispatcher.table.routes}
        assert routes - {("GET", "/openapi.json")} == described


@pytest.mark.contract("A8")
async def test_metrics_count_requests_and_name_nobody() -> None:
    async with run_service(idle_agent()) as running:
        ann = await running.make_client("ann")
        await ann.get("/runs")
        await ann.get("/runs/secret-name")
        text = (await ann.get("/metrics")).data.decode()
        assert 'windlass_requests_total{route="listRuns",status="200"} 1' in text
        assert "windlass_ready 1" in text
        assert text.endswith("# EOF\n")
        assert "secret-name" not in text


def test_owners_never_meet_in_one_name() -> None:
    pairs = [("a", "b.x"), ("a.b", "x"), ("a/b", "x"), ("a b", "x"), ("", "a.b.x"), ("é", "x")]
    assert len({full_session_name(*pair) for pair in pairs[:4]}) == 4
    assert owner_prefix("a.b") == "a=2Eb."
    assert full_session_name("ann", "ann.x") == "ann.x"


def test_only_loopback_needs_no_tls() -> None:
    for host in ("127.0.0.1", "::1", "localhost", "127.9.9.9"):
        ServeOptions(host=host).check()
    for host in ("0.0.0.0", "::", "10.0.0.1", "service.example", "127.example.com", ""):
        with pytest.raises(ConfigError, match="tokens would be sent"):
            ServeOptions(host=host).check()
        ServeOptions(host=host, insecure=True).check()


def test_a_rate_fills_up_again() -> None:
    now = 0.0
    rate = RateLimiter(2.0, 2, lambda: now)
    assert [rate.take("a"), rate.take("a"), rate.take("a")] == [0.0, 0.0, 0.5]
    now = 0.5
    assert rate.take("a") == 0.0


@pytest.mark.contract("A4")
@pytest.mark.parametrize(
    ("proxies", "headers", "is_secure"),
    [
        (("127.0.0.0/8",), {"X-Forwarded-Proto": "https"}, True),
        (("127.0.0.1",), {"X-Forwarded-Proto": "http, https"}, True),
        (("127.0.0.1",), {"X-Forwarded-Proto": "https, http"}, False),
        (("127.0.0.1",), {"X-Forwarded-Proto": "javascript"}, False),
        (("127.0.0.1",), {}, False),
        (("10.0.0.0/8",), {"X-Forwarded-Proto": "https"}, False),
        ((), {"X-Forwarded-Proto": "https"}, False),
    ],
)
async def test_a_cookie_is_secure_if_a_trusted_proxy_has_tls(
    proxies: tuple[str, ...], headers: dict[str, str], *, is_secure: bool
) -> None:
    async with run_service(idle_agent(), rules=AccessRules(proxies=proxies)) as running:
        code = await running.service.tokens.create_login(LOCAL_OWNER)
        browser = DirectClient(running.dispatcher)
        logged_in = await browser.post("/login", {"code": code}, headers)
        assert ("; Secure" in logged_in.headers["Set-Cookie"]) is is_secure


@pytest.mark.contract("A4")
async def test_guesses_behind_a_proxy_are_counted_for_each_client() -> None:
    """The first address is what the client says of itself: it may say a new one each time."""
    limits = ServiceLimits(failed_logins_per_min=5)
    rules = AccessRules(proxies=("127.0.0.1", "10.0.0.0/8"))
    async with run_service(idle_agent(), limits=limits, rules=rules) as running:
        guesser = DirectClient(running.dispatcher, "wl_0123456789ab_" + "A" * 43)
        statuses: list[int] = []
        for number in range(10):
            via = {"X-Forwarded-For": f"198.51.100.{number}, 203.0.113.9, 10.0.0.1"}
            statuses.append((await guesser.get("/runs", via)).status)
        assert statuses[-1] == 429
        other = await guesser.get("/runs", {"X-Forwarded-For": "203.0.113.10"})
        assert other.status == 401


def test_what_is_not_the_address_of_a_proxy_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'proxy.example' is not the address"):
        ServeOptions(proxies=("proxy.example",)).check()


@pytest.mark.contract("A4")
async def test_the_public_origin_is_the_page_s_own_behind_a_proxy_that_drops_the_port() -> None:
    """A4: `proxy_set_header Host $host` of nginx, on another port than that of the scheme."""
    options = ServeOptions(public_url="https://AI.example:8443/", hosts=("ai.example",))
    options.check()
    async with run_service(idle_agent(), rules=options.access_rules()) as running:
        code = await running.service.tokens.create_login(LOCAL_OWNER)
        browser = DirectClient(running.dispatcher)
        passed_on = {"Host": "ai.example", "Origin": "https://ai.example:8443"}
        logged_in = await browser.post("/login", {"code": code}, passed_on)
        assert logged_in.status == 200
        sent = {
            "Cookie": logged_in.headers["Set-Cookie"].partition(";")[0],
            "Windlass-Page-Key": logged_in.data["page_key"],
        }
        for origin in ("https://ai.example:9443", "https://ai.example.evil:8443"):
            foreign = await browser.post("/logout", {}, {**sent, **passed_on, "Origin": origin})
            assert (foreign.status, foreign.data["error"]["code"]) == (403, "foreign_origin")
        assert (await browser.post("/logout", {}, {**sent, **passed_on})).status == 204


@pytest.mark.parametrize(
    ("public_url", "address", "opened"),
    [
        ("", "http://127.0.0.1:8420", "http://127.0.0.1:8420"),
        ("", "https://0.0.0.0:8420", "https://127.0.0.1:8420"),
        ("", "https://[::]:8420", "https://[::1]:8420"),
        ("https://ai.example/", "http://0.0.0.0:8420", "https://ai.example"),
    ],
)
def test_the_link_to_the_page_can_be_opened(public_url: str, address: str, opened: str) -> None:
    assert ServeOptions(public_url=public_url).page_url(address) == opened


@pytest.mark.contract("A4")
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"origins": ("foo",)}, "--allow-origin 'foo' is not an origin"),
        ({"origins": ("https://chat.example/page",)}, "and no path"),
        ({"hosts": ("http://x",)}, "--allow-host 'http://x' is not the name of a host"),
        ({"hosts": ("ai.example:8443",)}, "without scheme, port and path"),
    ],
)
def test_names_that_fit_no_request_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        ServeOptions(**options).check()
    ServeOptions(origins=("https://chat.example:8443",), hosts=("*", "[::1]", "ai.example")).check()
