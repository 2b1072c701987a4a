"""People sign in as themselves, and their team roles open the runs of others, and no further."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, cast

import pytest

from service import DirectClient, RunningService, run_service
from windlass import Agent, tool
from windlass.core.events import CallAnswered
from windlass.gates import ask
from windlass.journals import MemoryJournal
from windlass.server.access import Caller, TeamGrant
from windlass.server.dispatch import all_routes
from windlass.server.limits import ServiceLimits
from windlass.server.messages import StreamReply
from windlass.server.tokens import CACHE_S, SIGN_INS_AT_ONCE, TokenStore
from windlass.testing import ScriptedModel, call

MARK = "the price of the deal"
ALLOW = {"call_id": "c2_0", "answer": {"verdict": "allow"}}
HOME = {"Origin": "http://localhost"}


@tool
def refund(amount: int) -> str:
    """Pay money back."""
    return f"paid {amount}"


@asynccontextmanager
async def open_team() -> AsyncGenerator[tuple[RunningService, str, str]]:
    """Yield a service in which ann has a run of each of two agents; both wait for an answer."""
    agents = [
        Agent(
            ScriptedModel([[call("refund", {"amount": amount})], MARK, *["Fine."] * 9]),
            name=name,
            tools=[refund],
            gate=ask(),
        )
        for name, amount in (("billing", 1200), ("mail", 7))
    ]
    async with run_service(agents) as running:
        ann = await running.make_client("ann")
        names: list[str] = []
        for agent in ("billing", "mail"):
            body = {"prompt": MARK, "agent": agent, "session": f"of-{agent}"}
            names.append((await ann.post("/runs", body)).data["session"])
        await asyncio.sleep(1)
        yield running, names[0], names[1]


async def make_person(running: RunningService, *grants: TeamGrant) -> DirectClient:
    made = await running.service.tokens.create(
        "bob", ("watch", "start", "answer"), person="bob", grants=grants
    )
    return DirectClient(running.dispatcher, made.secret)


async def list_asked(client: DirectClient) -> list[dict[str, Any]]:
    return (await client.get("/questions")).data["questions"]


@pytest.mark.contract("W5", "A4")
async def test_a_reviewer_answers_for_the_agents_that_they_review() -> None:
    async with open_team() as (running, billing, mail):
        bob = await make_person(running, TeamGrant("reviewer", ("billing",)))
        (asked,) = await list_asked(bob)
        assert (asked["session"], asked["arguments"]) == (billing, {"amount": 1200})
        body = {"call_id": asked["call_id"], "answer": {"verdict": "allow"}}
        answered = await bob.post(f"/runs/{billing}/answers", body)
        assert answered.status == 200, answered.data
        await asyncio.sleep(1)
        facts = await running.service.journal.read(billing)
        assert [fact.by for fact in facts if isinstance(fact, CallAnswered)] == ["bob"]
        assert (await bob.post(f"/runs/{mail}/answers", body)).status == 404


@pytest.mark.contract("W5", "A4")
@pytest.mark.parametrize("route", all_routes(), ids=lambda route: route.name)
async def test_a_reviewer_gets_nothing_but_questions(route: Any) -> None:
    """Made from the route table, so that a new route cannot be forgotten."""
    if route.scope != "session" or route.role == "answer":
        return
    async with open_team() as (running, billing, _):
        bob = await make_person(running, TeamGrant("reviewer"))
        path = route.path.replace("{session}", billing).replace("{seq}", "1")
        path = path.replace("{artifact}", "0123456789abcdef")
        body = {} if route.method == "POST" else None
        reply = await bob.ask(route.method, path, body)
        assert reply.status in (403, 404)
        assert MARK not in str(reply.data)


@pytest.mark.contract("W5", "A4")
async def test_a_reviewer_is_sent_questions_and_no_sessions() -> None:
    async with open_team() as (running, billing, _):
        bob = await make_person(running, TeamGrant("reviewer"))
        assert (await bob.get("/runs")).data["sessions"] == []
        reply = await bob.send("GET", "/page/feed")
        assert isinstance(reply, StreamReply)
        frames: list[bytes] = []
        async with aclosing(cast("AsyncGenerator[bytes]", reply.chunks)) as chunks:
            with suppress(TimeoutError):
                async with asyncio.timeout(10):
                    async for chunk in chunks:
                        frames.append(chunk)  # noqa: PERF401 - kept when the time is over
        sent = b"".join(frames).decode()
        # The two questions, once; a list that is empty, and no change of a session.
        assert sent.count("event: questions") == 1
        assert billing in sent.partition("event: questions")[2]
        assert '"sessions":[]' in sent.partition("event: latest")[2].partition("event:")[0]
        assert "event: session\n" not in sent


@pytest.mark.contract("W5", "A4")
async def test_a_viewer_reads_and_changes_nothing() -> None:
    async with open_team() as (running, billing, mail):
        bob = await make_person(running, TeamGrant("viewer", ("billing",)))
        listed = (await bob.get("/runs")).data["sessions"]
        assert [one["session"] for one in listed] == [billing]
        assert (await bob.get(f"/runs/{billing}")).status == 200
        assert (await bob.get(f"/runs/{mail}")).status == 404
        assert await list_asked(bob) == []
        for change, body in (("cancel", {}), ("steer", {"prompt": "Stop."}), ("pause", {})):
            assert (await bob.post(f"/runs/{billing}/{change}", body)).status == 404
        answer = {"call_id": "c1_0", "answer": {"verdict": "allow"}}
        assert (await bob.post(f"/runs/{billing}/answers", answer)).status == 404


@pytest.mark.contract("W5", "A4")
async def test_an_operator_controls_and_does_not_answer() -> None:
    async with open_team() as (running, billing, mail):
        bob = await make_person(running, TeamGrant("operator", ("billing",)))
        answer = {"call_id": "c1_0", "answer": {"verdict": "allow"}}
        assert (await bob.post(f"/runs/{billing}/answers", answer)).status == 404
        assert (await bob.post(f"/runs/{mail}/cancel", {})).status == 404
        assert (await bob.post(f"/runs/{billing}/cancel", {})).status == 200
        await asyncio.sleep(1)
        assert (await bob.get(f"/runs/{billing}")).data["summary"]["state"] == "cancelled"


@pytest.mark.contract("W5", "A13")
async def test_a_name_of_ones_own_that_shadows_a_reviewed_session_leads_to_the_reviewed_one() -> (
    None
):
    async with open_team() as (running, billing, mail):
        bob = await make_person(running, TeamGrant("viewer", ("billing",)))
        for name in (billing, mail):
            assert (await bob.post("/runs", {"prompt": "Hi", "session": name})).status == 202
        await asyncio.sleep(1)
        assert (await bob.get(f"/runs/{billing}")).data["summary"]["session"] == billing
        # What no grant covers is not there for bob, and his own session of that name is.
        assert (await bob.get(f"/runs/{mail}")).data["summary"]["session"] == f"bob.{mail}"


@pytest.mark.contract("W5")
async def test_lists_of_several_sources_come_in_pages_without_gaps() -> None:
    async with open_team() as (running, billing, mail):
        bob = await make_person(
            running, TeamGrant("viewer", ("billing",)), TeamGrant("viewer", ("mail",))
        )
        await bob.post("/runs", {"prompt": "Mine", "agent": "mail"})
        await asyncio.sleep(1)
        seen: list[str] = []
        cursor = ""
        while True:
            page = (await bob.get(f"/runs?limit=1{cursor}")).data
            seen += [one["session"] for one in page["sessions"]]
            if page["cursor"] is None:
                break
            cursor = f"&cursor={page['cursor']}"
        assert len(seen) == len(set(seen)) == 3
        assert {billing, mail} < set(seen)


@pytest.mark.contract("W5")
async def test_an_invitation_signs_one_browser_in_as_a_person() -> None:
    async with open_team() as (running, billing, _):
        admin = await running.make_client("", ("admin",))
        body = {"person": "eve", "grants": [{"role": "reviewer", "agents": ["billing"]}]}
        made = (await admin.post("/invitations", body)).data
        browser = DirectClient(running.dispatcher)
        reply = await browser.post("/login", {"code": made["code"]}, HOME)
        assert (reply.data["person"], reply.data["caller"]) == ("eve", "eve")
        cookie = reply.headers["Set-Cookie"].partition(";")[0]
        signed = {**HOME, "Cookie": cookie, "Windlass-Page-Key": reply.data["page_key"]}
        found = (await browser.ask("GET", "/questions", headers=signed)).data["questions"]
        assert [one["session"] for one in found] == [billing]
        assert (await browser.post("/login", {"code": made["code"]}, HOME)).status == 401
        # Only an admin invites.
        bob = await make_person(running, TeamGrant("operator"))
        assert (await bob.post("/invitations", body)).status == 403


@pytest.mark.contract("W5")
async def test_a_token_signs_a_browser_in_for_as_long_as_it_is_valid() -> None:
    async with run_service(Agent(ScriptedModel([]), name="helper")) as running:
        tokens = running.service.tokens
        made = await tokens.create("ann", person="ann", expires_in_s=100)
        browser = DirectClient(running.dispatcher)
        reply = await browser.post("/login", {"token": made.secret}, HOME)
        assert reply.data["person"] == "ann"
        listed = [one for one in await tokens.list_tokens() if one.kind == "browser"]
        assert [one.expires for one in listed] == [made.record.expires]
        signed = {
            **HOME,
            "Cookie": reply.headers["Set-Cookie"].partition(";")[0],
            "Windlass-Page-Key": reply.data["page_key"],
        }
        assert (await browser.ask("GET", "/me", headers=signed)).status == 200
        for wrong in ({"token": "wl_0123456789ab_" + "A" * 43}, {"code": "x", "token": "y"}, {}):
            assert (await browser.post("/login", wrong, HOME)).status in (401, 422)


@pytest.mark.contract("W5")
async def test_a_browser_is_signed_out_when_the_token_ends_that_it_signed_in_with() -> None:
    now = [1_000.0]
    tokens = TokenStore(MemoryJournal(), lambda: now[0])
    made = await tokens.create("ann", expires_in_s=20 * 86_400.0)
    browser = await tokens.sign_in_with_token(made.secret)
    for day in range(1, 20):
        now[0] = 1_000.0 + day * 86_400.0
        assert await tokens.authenticate_browser(browser.cookie, browser.page_key), day
    listed = {one.kind: one.expires for one in await tokens.list_tokens()}
    assert listed["browser"] == listed["token"] == made.record.expires
    now[0] = 1_000.0 + 20 * 86_400.0
    assert await tokens.authenticate_browser(browser.cookie, browser.page_key) is None


@pytest.mark.contract("W5")
async def test_a_login_code_signs_a_browser_in_for_no_longer_than_its_caller_is_valid() -> None:
    """A caller of an identity provider has no token here: its own end is all that counts."""
    now = [1_000.0]
    tokens = TokenStore(MemoryJournal(), lambda: now[0])
    end = 1_000.0 + 20 * 86_400.0
    code = await tokens.create_login(Caller("ann", frozenset({"start"}), expires=end))
    browser = await tokens.exchange_login(code)
    for day in range(1, 20):
        now[0] = 1_000.0 + day * 86_400.0
        assert await tokens.authenticate_browser(browser.cookie, browser.page_key), day
    now[0] = end
    assert await tokens.authenticate_browser(browser.cookie, browser.page_key) is None


@pytest.mark.contract("W5")
async def test_a_browser_is_signed_out_when_the_token_is_revoked_that_it_signed_in_with() -> None:
    now = [1_000.0]
    journal = MemoryJournal()
    tokens = TokenStore(journal, lambda: now[0])
    made = await tokens.create("ann")
    browser = await tokens.sign_in_with_token(made.secret)
    caller = await tokens.authenticate_browser(browser.cookie, browser.page_key)
    assert caller is not None
    # By another program, such as the command line: this one may know the token for a while.
    await TokenStore(journal).delete(made.record.id)
    now[0] += CACHE_S
    assert await tokens.authenticate_browser(browser.cookie, browser.page_key) is None
    assert not await tokens.is_valid(caller)


@pytest.mark.contract("W5", "A4")
async def test_a_grant_is_for_the_agent_at_the_top_and_not_for_those_below() -> None:
    """An agent may also work for others: what it was told there is theirs."""
    below = Agent(
        ScriptedModel([[call("refund", {"amount": 5})]]), name="mail", tools=[refund], gate=ask()
    )
    above = Agent(
        ScriptedModel([[call("mail", {"task": MARK})]]), name="billing", tools=[below.as_tool()]
    )
    async with run_service([above, below]) as running:
        ann = await running.make_client("ann")
        await ann.post("/runs", {"prompt": "Hi", "agent": "billing", "session": "x"})
        await asyncio.sleep(1)
        for agent, is_shown in (("mail", False), ("billing", True)):
            bob = await make_person(running, TeamGrant("viewer", (agent,)))
            for path in ("/runs", "/runs?owner=ann", "/page/sessions"):
                mark = "&" if "?" in path else "?"
                listed = (await bob.get(f"{path}{mark}parent=ann.x")).data["sessions"]
                assert [one["title"] for one in listed] == [MARK] * is_shown
        # By the owner's own short name, too.
        assert len((await ann.get("/runs?parent=x")).data["sessions"]) == 1


@pytest.mark.contract("W5", "A4")
@pytest.mark.parametrize("agents", [("mail",), ("billing",), ("billing", "mail")])
async def test_a_grant_for_the_last_agent_of_a_session_does_not_open_the_runs_before(
    agents: tuple[str, ...],
) -> None:
    """Neither by its name, nor in a list, nor among what is sent of changes."""
    is_shown = len(agents) == 2
    made = [
        Agent(
            ScriptedModel([f"{MARK} of {name}", [call("refund", {"amount": 5})], "Done."]),
            name=name,
            tools=[refund],
            gate=ask(),
        )
        for name in ("billing", "mail")
    ]
    async with run_service(made) as running:
        ann = await running.make_client("ann")
        # Two grants of one agent each count like one grant of both.
        bob = await make_person(
            running,
            *[TeamGrant(role, (name,)) for name in agents for role in ("viewer", "reviewer")],
        )
        for agent in ("billing", "mail", "mail"):
            await ann.post("/runs", {"prompt": MARK, "agent": agent, "session": "x"})
            await asyncio.sleep(1)
        reply = await bob.send("GET", "/page/feed")
        assert isinstance(reply, StreamReply)
        sent = bytearray()
        async with aclosing(cast("AsyncGenerator[bytes]", reply.chunks)) as chunks:
            with suppress(TimeoutError):
                async with asyncio.timeout(10):
                    async for chunk in chunks:
                        if not sent:
                            await ann.post("/runs/x/answers", ALLOW)
                        sent += chunk
        assert (b"ann.x" in sent) == is_shown
        assert (MARK.encode() in sent) == is_shown
        assert ((await bob.get("/runs/ann.x")).status == 200) == is_shown
        listed = (await bob.get("/runs")).data["sessions"]
        assert [one["session"] for one in listed] == ["ann.x"] * is_shown


@pytest.mark.contract("W5", "A13")
async def test_an_operator_forks_without_choosing_among_names_of_others() -> None:
    """A fork belongs to the owner of the old one, and all names are the local owner's."""
    async with open_team() as (running, billing, _):
        admin = await running.make_client("", ("admin",))
        await admin.post("/runs", {"prompt": "Hi", "agent": "billing", "session": "own"})
        await asyncio.sleep(1)
        bob = await make_person(running, TeamGrant("operator"))
        forked = await bob.post(f"/runs/{billing}/fork", {"at": 1})
        assert (forked.status, forked.data["session"]) == (201, f"{billing}~1")
        for session, into in ((billing, "x"), ("own", "zed.report")):
            reply = await bob.post(f"/runs/{session}/fork", {"at": 1, "into": into})
            assert (reply.status, reply.data["error"]["code"]) == (403, "not_owner")
        names = {one.session for one in await running.service.journal.sessions()}
        assert not names & {"ann.x", "zed.report"}


@pytest.mark.contract("W5")
async def test_a_token_does_not_sign_in_without_end() -> None:
    """Each browser is a record for days."""
    async with run_service(Agent(ScriptedModel([]), name="helper")) as running:
        tokens = running.service.tokens
        made = [await tokens.create("ann", ("watch",)) for _ in range(2)]
        browser = DirectClient(running.dispatcher)
        for _ in range(SIGN_INS_AT_ONCE):
            assert (await browser.post("/login", {"token": made[0].secret}, HOME)).status == 200
        refused = await browser.post("/login", {"token": made[0].secret}, HOME)
        assert (refused.status, refused.data["error"]["code"]) == (429, "too_many_requests")
        listed = [one for one in await tokens.list_tokens() if one.kind == "browser"]
        assert len(listed) == SIGN_INS_AT_ONCE
        # Another token is not held up by it.
        assert (await browser.post("/login", {"token": made[1].secret}, HOME)).status == 200


@pytest.mark.contract("W5", "A4")
@pytest.mark.parametrize("of", ["requests", "streams"])
async def test_the_browsers_of_a_token_share_its_limits(of: str) -> None:
    """Signing in again gives nobody more than the token has."""
    limits = ServiceLimits(requests_per_s=0.001, requests_at_once=4, streams_per_caller=2)
    async with run_service(Agent(ScriptedModel([]), name="helper"), limits=limits) as running:
        made = await running.service.tokens.create("ann")
        browsers: list[dict[str, str]] = []
        for _ in range(3):
            signed = await running.service.tokens.sign_in_with_token(made.secret)
            browsers.append(
                {"Cookie": f"windlass_80={signed.cookie}", "Windlass-Page-Key": signed.page_key}
            )
        client, own = (
            DirectClient(running.dispatcher),
            DirectClient(running.dispatcher, made.secret),
        )
        if of == "requests":
            seen = [(await client.ask("GET", "/me", headers=one)).status for one in browsers]
            seen += [(await own.get("/me")).status for _ in range(2)]
            assert seen == [200, 200, 200, 200, 429]
            return
        replies = [await client.send("GET", "/events", headers=one) for one in browsers]
        assert [reply.status for reply in replies] == [200, 200, 429]
        for reply in replies:
            await reply.close()
