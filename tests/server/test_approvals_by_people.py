"""A rule that asks for people: of a group, several of them, and never the one who started."""

import asyncio
import csv
import io
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from service import Answer, DirectClient, RunningService, run_service
from windlass import Agent, Allow, Modify, tool
from windlass.agent.answering import answer as answer_from_file
from windlass.core.errors import AnswerNotQualified
from windlass.core.events import AnswerCounted, CallAnswered
from windlass.gates import allow_all, ask
from windlass.journals import fork
from windlass.server.access import TeamGrant
from windlass.server.messages import StreamReply
from windlass.testing import ScriptedModel, call

REVIEWS = (TeamGrant("reviewer", ("billing",)),)


@tool
def refund(amount: int) -> str:
    """Pay money back."""
    return f"paid {amount}"


def make_agent(**needs: Any) -> Agent[Any]:
    model = ScriptedModel([[call("refund", {"amount": 1200})], "Done."])
    return Agent(model, name="billing", tools=[refund], gate=ask(**needs))


class Team:
    """People of a service, and the run that ann started."""

    def __init__(self, running: RunningService, session: str) -> None:
        self.running = running
        self.session = session

    async def sign_in(self, person: str, *groups: str, caller: str = "") -> DirectClient:
        admin = await self.running.make_client("", ("admin",))
        made = await admin.post("/persons", {"person": person, "groups": groups})
        assert made.status == 201, made.data
        token = await self.running.service.tokens.create(
            caller or person, person=person, grants=REVIEWS
        )
        return DirectClient(self.running.dispatcher, token.secret)

    async def answer(self, client: DirectClient, verdict: dict[str, Any] | None = None) -> Answer:
        (asked,) = (await client.get("/questions")).data["questions"]
        body = {
            "call_id": asked["call_id"],
            "digest": asked["digest"],
            "answer": verdict or {"verdict": "allow"},
        }
        return await client.post(f"/runs/{quote(asked['session'], safe='')}/answers", body)

    async def read_state(self) -> str:
        await asyncio.sleep(1)
        known = await self.running.service.journal.sessions()
        return next(one.state for one in known if one.session == self.session)

    async def read_answers(self) -> list[AnswerCounted | CallAnswered]:
        facts = await self.running.service.journal.read(self.session)
        return [fact for fact in facts if isinstance(fact, AnswerCounted | CallAnswered)]


@asynccontextmanager
async def open_team(agent: Agent[Any]) -> AsyncGenerator[Team]:
    async with run_service([agent]) as running:
        token = await running.service.tokens.create("ann", person="ann")
        ann = DirectClient(running.dispatcher, token.secret)
        started = await ann.post("/runs", {"prompt": "Refund order 7."})
        assert started.status == 202, started.data
        await asyncio.sleep(1)
        yield Team(running, started.data["session"])


async def read_stream(client: DirectClient, path: str) -> bytes:
    reply = await client.send("GET", path)
    assert isinstance(reply, StreamReply)
    return b"".join([chunk async for chunk in reply.chunks])


TWO_OF_FINANCE = {"role": "finance", "people": 2, "not_starter": True}


@pytest.mark.contract("G10", "W5", "G6")
async def test_two_people_of_a_group_have_to_agree_and_neither_is_the_starter() -> None:
    async with open_team(make_agent(**TWO_OF_FINANCE)) as team:
        ann = await team.sign_in("ann", "finance")
        bea = await team.sign_in("bea", "finance")
        carl = await team.sign_in("carl", "finance")
        eve = await team.sign_in("eve", "support")
        for unqualified in (ann, eve):
            for verdict in ({"verdict": "allow"}, {"verdict": "deny", "reason": "no"}):
                refused = await team.answer(unqualified, verdict)
                assert (refused.status, refused.data["error"]["code"]) == (403, "not_qualified")
        first = await team.answer(bea)
        assert first.status == 200, first.data
        assert await team.read_state() == "waiting"
        (asked,) = (await carl.get("/questions")).data["questions"]
        assert asked["agreed"] == ["bea"]
        assert (await team.answer(bea)).status == 409
        assert (await team.answer(carl)).status == 200
        assert await team.read_state() == "completed"
        counted, decided = await team.read_answers()
        assert isinstance(counted, AnswerCounted)
        assert isinstance(decided, CallAnswered)
        assert (counted.by, decided.by, counted.digest) == ("bea", "carl", decided.digest)
        assert decided.person is not None
        assert (decided.person.roles, decided.person.origin) == (
            ("finance", "reviewer"),
            "API, 127.0.0.1",
        )
        body = {"call_id": asked["call_id"], "answer": {"verdict": "deny", "reason": "late"}}
        late = await eve.post(f"/runs/{team.session}/answers", body)
        assert (late.status, late.data["error"]["decision"]["by"]) == (409, "carl")


@pytest.mark.contract("G10")
async def test_neither_a_file_nor_an_unnamed_token_counts_towards_people() -> None:
    async with open_team(make_agent(people=1, role="finance")) as team:
        admin = await team.running.make_client("", ("admin",))
        refused = await team.answer(admin)
        assert refused.status == 403, refused.data
        (row,) = await team.running.service.journal.read_questions(team.session)
        with pytest.raises(AnswerNotQualified, match="1 person of finance"):
            await answer_from_file(
                team.running.service.journal, team.session, row.call_id, Allow(), by="bea"
            )
        assert await team.read_state() == "waiting"


@pytest.mark.contract("G10")
async def test_one_no_decides_for_all() -> None:
    async with open_team(make_agent(**TWO_OF_FINANCE)) as team:
        bea = await team.sign_in("bea", "finance")
        carl = await team.sign_in("carl", "finance")
        await team.answer(bea)
        await asyncio.sleep(1)
        denied = await team.answer(carl, {"verdict": "deny", "reason": "too much"})
        assert denied.status == 200, denied.data
        await asyncio.sleep(1)
        *_, decided = await team.read_answers()
        assert (decided.by, decided.verdict.rule) == ("carl", "")
        assert not isinstance(decided.verdict, Allow | Modify)


@pytest.mark.contract("G10", "G6")
async def test_other_arguments_have_to_be_agreed_to_again() -> None:
    async with open_team(make_agent(**TWO_OF_FINANCE)) as team:
        bea = await team.sign_in("bea", "finance")
        carl = await team.sign_in("carl", "finance")
        await team.answer(bea)
        await asyncio.sleep(1)
        less = {"verdict": "modify", "arguments": {"amount": 600}, "reason": "half"}
        assert (await team.answer(carl, less)).status == 200
        await asyncio.sleep(1)
        (asked,) = (await bea.get("/questions")).data["questions"]
        assert (asked["arguments"], asked["agreed"]) == ({"amount": 600}, ["carl"])
        assert (await team.answer(carl)).status == 409
        assert (await team.answer(bea)).status == 200
        assert await team.read_state() == "completed"
        assert "paid 600" in str(await team.running.service.journal.read(team.session))


@pytest.mark.contract("G10")
async def test_who_stands_in_lends_the_group_and_stays_one_person() -> None:
    async with open_team(make_agent(**TWO_OF_FINANCE)) as team:
        bea = await team.sign_in("bea", "finance")
        eve = await team.sign_in("eve")
        assert (await team.answer(eve)).status == 403
        gone = await bea.post("/me/away", {"stand_in": "eve", "for_s": 3600})
        assert gone.status == 200, gone.data
        assert (await team.answer(eve)).status == 200
        (counted,) = await team.read_answers()
        assert counted.person is not None
        assert [lent.by for lent in counted.person.lent] == ["bea"]
        assert (await team.answer(bea)).status == 200
        assert await team.read_state() == "completed"


@pytest.mark.contract("G10")
@pytest.mark.parametrize("role", ["reviewer", "finance", ""])
async def test_what_the_starter_lent_does_not_count(role: str) -> None:
    """Neither as a group, nor as a role that the group has in the team, nor as the way in."""
    async with open_team(make_agent(role=role, not_starter=True)) as team:
        admin = await team.running.make_client("", ("admin",))
        group = {"name": "finance", "grants": [{"role": "reviewer", "agents": ["billing"]}]}
        assert (await admin.post("/groups", group)).status == 201
        ann = await team.sign_in("ann", "finance")
        bea = await team.sign_in("bea", "finance")
        made = await team.running.service.tokens.create("dan", person="dan")
        dan = DirectClient(team.running.dispatcher, made.secret)
        assert (await ann.post("/me/away", {"stand_in": "dan"})).status == 200
        refused = await team.answer(dan)
        assert (refused.status, refused.data["error"]["code"]) == (403, "not_qualified")
        assert (await bea.post("/me/away", {"stand_in": "dan"})).status == 200
        # What another one lent counts, and so does a role of one's own.
        assert (await team.answer(dan)).status == 200
        assert await team.read_state() == "completed"


@pytest.mark.contract("G10", "A4")
async def test_a_token_that_only_reads_chooses_no_stand_in() -> None:
    async with open_team(make_agent(role="finance")) as team:
        bea = await team.sign_in("bea", "finance")
        made = await team.running.service.tokens.create("bea", ("watch",), person="bea")
        reader = DirectClient(team.running.dispatcher, made.secret)
        refused = await reader.post("/me/away", {"stand_in": "mallory"})
        assert (refused.status, refused.data["error"]["code"]) == (403, "role_missing")
        assert (await bea.post("/me/away", {"stand_in": "carl"})).status == 200


@pytest.mark.contract("G10")
async def test_two_people_of_one_caller_do_not_share_an_idempotency_key() -> None:
    """Else the second one gets the reply of the first one, and has not agreed."""
    async with open_team(make_agent(role="finance", people=2)) as team:
        bea = await team.sign_in("bea", "finance", caller="team")
        carl = await team.sign_in("carl", "finance", caller="team")
        (asked,) = (await bea.get("/questions")).data["questions"]
        body = {"call_id": asked["call_id"], "answer": {"verdict": "allow"}}
        for person in (bea, bea, carl):
            path = f"/runs/{team.session}/answers"
            answered = await person.post(path, body, {"Idempotency-Key": "yes"})
            assert answered.status == 200, answered.data
            await asyncio.sleep(1)
        assert await team.read_state() == "completed"


@pytest.mark.contract("G10", "J8")
async def test_who_agreed_in_a_session_has_not_agreed_in_its_fork() -> None:
    async with open_team(make_agent(**TWO_OF_FINANCE)) as team:
        bea = await team.sign_in("bea", "finance")
        carl = await team.sign_in("carl", "finance")
        assert (await team.answer(bea)).status == 200
        await asyncio.sleep(1)
        journal = team.running.service.journal
        forked = await fork(journal, team.session, len(await journal.read(team.session)))
        (row,) = await journal.read_questions(forked)
        assert (row.answers, row.terms.approvals[0].people) == ((), 2)
        body = {"call_id": row.call_id, "answer": {"verdict": "allow"}}
        answered = await carl.post(f"/runs/{quote(forked, safe='')}/answers", body)
        assert answered.status == 200, answered.data
        await asyncio.sleep(1)
        states = {one.session: one.state for one in await journal.sessions()}
        assert (states[forked], states[team.session]) == ("waiting", "waiting")
        # In the old session the yes of the first one still counts.
        (asked,) = [
            one
            for one in (await carl.get("/questions")).data["questions"]
            if one["session"] == team.session
        ]
        assert asked["agreed"] == ["bea"]


@pytest.mark.contract("G10", "A4")
async def test_a_group_gives_its_people_the_runs_that_it_reviews() -> None:
    """And it takes them away again, without another token."""
    async with open_team(make_agent(role="finance")) as team:
        admin = await team.running.make_client("", ("admin",))
        group = {"name": "finance", "grants": [{"role": "reviewer", "agents": ["billing"]}]}
        assert (await admin.post("/groups", group)).status == 201
        assert (
            await admin.post("/persons", {"person": "bea", "groups": ["finance"]})
        ).status == 201
        token = await team.running.service.tokens.create("bea", person="bea")
        bea = DirectClient(team.running.dispatcher, token.secret)
        assert len((await bea.get("/questions")).data["questions"]) == 1
        assert (await admin.post("/persons", {"person": "bea", "groups": []})).status == 201
        assert (await bea.get("/questions")).data["questions"] == []


@pytest.mark.contract("G10")
async def test_the_question_of_a_sub_agent_needs_the_same_people_and_knows_the_starter() -> None:
    helper = make_agent(**TWO_OF_FINANCE)
    model = ScriptedModel([[call("helper", {"task": "Refund."})], "Done."])
    agent = Agent(
        model,
        name="billing",
        tools=[helper.as_tool("helper", "Refunds.")],
        gate=allow_all(),
    )
    async with open_team(agent) as team:
        ann = await team.sign_in("ann", "finance")
        bea = await team.sign_in("bea", "finance")
        carl = await team.sign_in("carl", "finance")
        assert (await team.answer(ann)).status == 403
        assert (await team.answer(bea)).status == 200
        await asyncio.sleep(1)
        (asked,) = (await carl.get("/questions")).data["questions"]
        assert asked["agreed"] == ["bea"]
        assert (await team.answer(carl)).status == 200
        assert await team.read_state() == "completed"


@pytest.mark.contract("G10")
async def test_the_starter_of_a_scheduled_run_is_who_made_the_schedule() -> None:
    async with open_team(make_agent(**TWO_OF_FINANCE)) as team:
        tokens = team.running.service.tokens
        made = await tokens.create("shop", person="bea")
        body = {
            "name": "nightly",
            "prompt": "Refund.",
            "times": {"type": "interval", "every_s": 3600},
        }
        client = DirectClient(team.running.dispatcher, made.secret)
        planned = await client.post("/schedules", body)
        assert planned.status == 201, planned.data
        stored = await team.running.service.journal.list_records("schedule")
        assert msgspec.json.decode(stored[0].data)["context"] == {"windlass_person": "bea"}


@pytest.mark.contract("G10", "A9")
async def test_the_trail_says_who_answered_when_and_from_where() -> None:
    async with open_team(make_agent(role="finance", people=2)) as team:
        bea = await team.sign_in("bea", "finance")
        carl = await team.sign_in("carl", "finance")
        await team.answer(bea)
        await asyncio.sleep(1)
        await team.answer(carl)
        assert await team.read_state() == "completed"
        admin = await team.running.make_client("", ("admin",))
        assert (await bea.get("/audit")).status == 403
        lines = await read_stream(admin, "/audit")
        entries = [msgspec.json.decode(line) for line in lines.splitlines()]
        kinds = [(entry["kind"], entry["who"]) for entry in entries]
        assert kinds == [
            ("started", "ann"),
            ("asked", ""),
            ("agreed", "bea"),
            ("answered", "carl"),
            ("ended", ""),
        ]
        asked, agreed, answered = entries[1:4]
        assert asked["needs"] == "2 people of finance"
        assert asked["digest"] == agreed["digest"] == answered["digest"] != ""
        assert agreed["origin"] == "API, 127.0.0.1"
        assert all(entry["tool"] == "refund" for entry in (asked, agreed, answered))
        assert "1200" not in str(lines), "no arguments"
        table = await read_stream(admin, "/audit?format=csv")
        rows = list(csv.DictReader(io.StringIO(table.decode())))
        assert [row["kind"] for row in rows] == [kind for kind, _ in kinds]
        assert not await read_stream(admin, "/audit?since=4000000000")
