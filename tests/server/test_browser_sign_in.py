"""A browser that signed in: two secrets, of which another port of the host gets one."""

from collections.abc import Mapping, Sequence

import pytest
from typing_extensions import override

from service import DirectClient, RunningService, run_service
from windlass import Agent
from windlass.core.secrets.mask import Mask
from windlass.journals import MemoryJournal
from windlass.ports import SharedRecord
from windlass.server.access import LOCAL_OWNER
from windlass.server.dispatch import Dispatcher
from windlass.server.limits import ServiceLimits
from windlass.server.routing import Route, path_parameters
from windlass.server.service import Service
from windlass.server.tokens import (
    BROWSER_IDLE_S,
    BROWSER_MAX_S,
    CACHE_S,
    SignedInBrowser,
    TokenStore,
)
from windlass.testing import ScriptedModel

DAY_S = 86_400.0
HOME = {"Origin": "http://localhost"}


def idle_agent() -> Agent[str]:
    return Agent(ScriptedModel([]), name="helper")


def protected_routes() -> list[Route]:
    table = Dispatcher(Service(idle_agent())).table
    return [route for route in table.routes if route.role is not None]


async def sign_in(running: RunningService, headers: Mapping[str, str] = HOME) -> dict[str, str]:
    """Sign a browser in, and return the headers that its page sends."""
    code = await running.service.tokens.create_login(LOCAL_OWNER)
    browser = DirectClient(running.dispatcher)
    reply = await browser.post("/login", {"code": code}, headers)
    cookie = reply.headers["Set-Cookie"].partition(";")[0]
    return {**HOME, "Cookie": cookie, "Windlass-Page-Key": reply.data["page_key"]}


@pytest.mark.contract("A4")
@pytest.mark.parametrize("route", protected_routes(), ids=lambda route: route.name)
async def test_a_cookie_alone_is_refused_by_every_route(route: Route) -> None:
    """A4: another server on this host gets the cookie, and can forge every header but the key."""
    async with run_service(idle_agent()) as running:
        sent = await sign_in(running)
        del sent["Windlass-Page-Key"]
        path = route.path
        for name in path_parameters(path):
            path = path.replace(f"{{{name}}}", "any")
        thief = DirectClient(running.dispatcher)
        refused = await thief.ask(route.method, path, {}, sent)
        assert refused.status == 401


@pytest.mark.contract("A4")
async def test_neither_secret_of_a_browser_is_a_token_or_valid_without_the_other() -> None:
    """A4: the cookie, the key, both as tokens, and the halves of two sign-ins."""
    async with run_service(idle_agent()) as running:
        first, second = await sign_in(running), await sign_in(running)
        cookie, key = first["Cookie"].partition("=")[2], first["Windlass-Page-Key"]
        tried: list[dict[str, str]] = [
            {"Windlass-Page-Key": key},
            {"Cookie": first["Cookie"], "Windlass-Page-Key": second["Windlass-Page-Key"]},
            {"Cookie": first["Cookie"], "Windlass-Page-Key": cookie},
            {"Cookie": first["Cookie"], "Windlass-Page-Key": "\udcff" * 43},
            {"Cookie": f"windlass_80={key}", "Windlass-Page-Key": key},
            *({"Authorization": f"Bearer {secret}"} for secret in (cookie, key)),
            {"Authorization": f"Bearer wl_{cookie.removeprefix('wb_')}"},
            *({"X-Api-Key": secret} for secret in (cookie, key)),
        ]
        client = DirectClient(running.dispatcher)
        assert [(await client.get("/me", headers)).status for headers in tried] == [401] * 10
        assert (await client.get("/me", first)).status == 200
        assert (await client.get("/me", second)).status == 200


@pytest.mark.contract("A4")
async def test_a_cookie_without_its_key_does_not_count_as_a_guess() -> None:
    """A4: a page of another port makes the browser send the cookie, and must not lock it out."""
    limits = ServiceLimits(failed_logins_per_min=3)
    async with run_service(idle_agent(), limits=limits) as running:
        sent = await sign_in(running)
        client = DirectClient(running.dispatcher)
        alone = {"Cookie": sent["Cookie"]}
        assert {(await client.get("/me", alone)).status for _ in range(9)} == {401}
        assert (await client.get("/me", sent)).status == 200


@pytest.mark.contract("A4")
async def test_services_on_one_host_have_cookies_of_their_own() -> None:
    """A4: a browser sends the cookies of both ports to each of them."""
    async with run_service(idle_agent()) as running:
        one = await sign_in(running, {"Host": "localhost:8420", "Origin": "http://localhost:8420"})
        other = await sign_in(running, {"Host": "[::1]:8421", "Origin": "http://[::1]:8421"})
        assert one["Cookie"].startswith("windlass_8420=")
        assert other["Cookie"].startswith("windlass_8421=")
        both = f"{one['Cookie']}; {other['Cookie']}"
        client = DirectClient(running.dispatcher)
        for sent, host in ((one, "localhost:8420"), (other, "[::1]:8421")):
            headers = {"Host": host, "Cookie": both, "Windlass-Page-Key": sent["Windlass-Page-Key"]}
            assert (await client.get("/me", headers)).status == 200


@pytest.mark.contract("A4")
async def test_a_second_sign_in_of_a_browser_ends_the_first() -> None:
    async with run_service(idle_agent()) as running:
        first = await sign_in(running)
        second = await sign_in(running, first)
        client = DirectClient(running.dispatcher)
        assert (await client.get("/me", first)).status == 401
        assert (await client.get("/me", second)).status == 200
        assert len(await running.service.tokens.list_tokens()) == 1


class Clock:
    """The time of a store, in seconds since the epoch."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class CountingJournal(MemoryJournal):
    """Counts writes, and can do something between a read and the write that follows."""

    def __init__(self) -> None:
        super().__init__()
        self.puts = 0
        self.revoke_next = False

    @override
    async def get_record(self, kind: str, name: str) -> SharedRecord | None:
        found = await super().get_record(kind, name)
        if self.revoke_next:
            self.revoke_next = False
            await self.delete_record(kind, name)
        return found

    @override
    async def put_record(self, kind: str, name: str, data: bytes, version: int) -> SharedRecord:
        self.puts += 1
        return await super().put_record(kind, name, data, version)


async def browser_of(tokens: TokenStore) -> SignedInBrowser:
    return await tokens.exchange_login(await tokens.create_login(LOCAL_OWNER))


@pytest.mark.contract("A4")
async def test_only_hashes_of_both_secrets_are_stored() -> None:
    journal = MemoryJournal()
    browser = await browser_of(TokenStore(journal))
    stored = b"".join(record.data for record in await journal.list_records("token"))
    for secret in (browser.cookie, browser.page_key, browser.cookie.rpartition("_")[2]):
        assert secret.encode() not in stored
    listed = str(await TokenStore(journal).list_tokens())
    assert browser.record.hash not in listed
    assert browser.record.page_hash not in listed


@pytest.mark.contract("G8")
async def test_both_secrets_are_masked_by_their_shape() -> None:
    """A tool may print a page's storage; neither half may reach the journal."""
    browser = await browser_of(TokenStore(MemoryJournal()))
    for secret in (browser.cookie, browser.page_key):
        assert secret not in Mask().mask_text(f"found {secret} in the profile")


@pytest.mark.contract("A4")
async def test_a_sign_in_ends_a_week_after_its_last_use() -> None:
    clock = Clock()
    tokens = TokenStore(MemoryJournal(), clock)
    browser = await browser_of(tokens)
    clock.now += 6 * DAY_S
    assert await tokens.authenticate_browser(browser.cookie, browser.page_key) is not None
    clock.now += BROWSER_IDLE_S - 1
    assert await tokens.authenticate_browser(browser.cookie, browser.page_key) is not None
    clock.now += BROWSER_IDLE_S
    assert await tokens.authenticate_browser(browser.cookie, browser.page_key) is None
    await browser_of(tokens)
    assert browser.record.id not in [record.id for record in await tokens.list_tokens()]


@pytest.mark.contract("A4")
async def test_a_sign_in_that_is_used_every_day_ends_after_its_longest_time() -> None:
    clock = Clock()
    tokens = TokenStore(MemoryJournal(), clock)
    browser = await browser_of(tokens)
    days_used = 0
    for _ in range(60):
        caller = await tokens.authenticate_browser(browser.cookie, browser.page_key)
        days_used += caller is not None
        clock.now += DAY_S
    assert days_used * DAY_S == BROWSER_MAX_S


@pytest.mark.contract("A4")
async def test_the_use_of_a_sign_in_is_written_once_an_hour() -> None:
    clock = Clock()
    journal = CountingJournal()
    tokens = TokenStore(journal, clock)
    browser = await browser_of(tokens)
    before = journal.puts
    for _ in range(120):
        clock.now += 60
        assert await tokens.authenticate_browser(browser.cookie, browser.page_key) is not None
    assert journal.puts - before == 2


@pytest.mark.contract("A4")
@pytest.mark.parametrize("is_cached", [True, False], ids=["known", "read again"])
async def test_a_use_does_not_bring_a_revoked_sign_in_back(*, is_cached: bool) -> None:
    """A4: it is revoked elsewhere, just as its use is written here."""
    clock = Clock()
    journal = CountingJournal()
    tokens = TokenStore(journal, clock)
    browser = await browser_of(tokens)
    clock.now += DAY_S
    if is_cached:
        # Reads the record into the cache, at a time when nothing has to be written.
        await tokens.is_valid(browser.record.to_caller())
    journal.revoke_next = True
    await tokens.authenticate_browser(browser.cookie, browser.page_key)
    clock.now += CACHE_S
    assert await tokens.authenticate_browser(browser.cookie, browser.page_key) is None
    assert await tokens.list_tokens() == []


@pytest.mark.contract("A4")
async def test_forgetting_ended_sign_ins_reads_no_other_tokens() -> None:
    """A4: a login of one person costs the same however many tokens the others have."""
    read: list[str] = []

    class CountingJournal(MemoryJournal):
        @override
        async def get_record(self, kind: str, name: str) -> SharedRecord | None:
            read.append(kind)
            return await super().get_record(kind, name)

        @override
        async def list_records(
            self, kind: str, after: str = "", limit: int = 100
        ) -> Sequence[SharedRecord]:
            read.append(kind)
            return await super().list_records(kind, after, limit)

    clock = Clock()
    tokens = TokenStore(CountingJournal(), clock)
    used, ended = await browser_of(tokens), await browser_of(tokens)
    for number in range(300):
        await tokens.create(f"caller{number}", ["watch"])
    clock.now += 5 * DAY_S
    assert await tokens.authenticate_browser(used.cookie, used.page_key) is not None
    clock.now += 3 * DAY_S
    read.clear()
    await browser_of(tokens)
    # The two that may have ended, and neither of the 300 others.
    assert read.count("token") == 2
    left = {record.id for record in await tokens.list_tokens() if record.kind == "browser"}
    assert used.record.id in left
    assert ended.record.id not in left
    # One that was used is noted again, and ends with its last use.
    clock.now += BROWSER_IDLE_S
    await browser_of(tokens)
    assert used.record.id not in {record.id for record in await tokens.list_tokens()}
