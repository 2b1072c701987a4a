"""Messages of webhooks: at least once, in order per session, whoever dies; on virtual time."""

import asyncio
from typing import Any

import msgspec
import pytest

from windlass import Agent, tool
from windlass.agent.answering import answer
from windlass.core.events import CallJudged
from windlass.core.verdicts import Allow
from windlass.gates import ask
from windlass.journals.memory import MemoryJournal
from windlass.server import Service
from windlass.server.owned_records import full_name
from windlass.server.webhooks.delivery import BACK_OFF_S, GIVE_UP_S
from windlass.server.webhooks.duty import WebhookDuty
from windlass.server.webhooks.messages import HookMessage
from windlass.server.webhooks.sender import SendOutcome
from windlass.server.webhooks.store import NewWebhook, Webhook, WebhookStore
from windlass.testing import ScriptedModel, VirtualClock, call, say

pytestmark = pytest.mark.contract("A7")


@tool
def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


class FakeSender:
    """Takes messages as a receiver would, or not."""

    def __init__(self) -> None:
        self.taken: list[HookMessage] = []
        self.refused: set[str] = set()
        """Sessions whose messages are not taken."""
        self.tries = 0
        self.is_gone = False
        self.dies_after: int | None = None

    async def send(self, hook: Webhook, message: HookMessage) -> SendOutcome:
        await asyncio.sleep(0.01)
        self.tries += 1
        if self.is_gone:
            return SendOutcome(is_delivered=False, error="status 410", is_gone=True)
        if message.data.session in self.refused:
            return SendOutcome(is_delivered=False, error="status 500")
        self.taken.append(message)
        if self.dies_after is not None and len(self.taken) >= self.dies_after:
            # The message was sent, and the process dies before it can note that.
            await asyncio.Event().wait()
        return SendOutcome(is_delivered=True)

    def seen(self, session: str = "") -> list[str]:
        """What was taken, as `type outcome`."""
        return [
            f"{one.type} {one.data.outcome}".strip()
            for one in self.taken
            if session in ("", one.data.session)
        ]


class World:
    """A journal, an agent and replicas that send webhooks."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.journal = MemoryJournal(now=clock.now)
        self.store = WebhookStore(self.journal, clock.now)
        self.sender = FakeSender()
        self.duties: list[WebhookDuty] = []

    def agent(self, *replies: Any) -> Agent[str]:
        return Agent(
            ScriptedModel([*replies]),
            name="helper",
            tools=[send],
            gate=ask(),
            journal=self.journal,
            clock=self.clock,
        )

    def duty(self, **settings: Any) -> WebhookDuty:
        service = Service([self.agent()], journal=self.journal)
        sender: Any = self.sender
        made = WebhookDuty(service, sender, self.clock.now, **settings)
        self.duties.append(made)
        return made

    async def create(self, **settings: Any) -> Webhook:
        new = {"name": "h", "url": "https://example.com/hook", "sees_all": True, **settings}
        hook = await self.store.create_webhook(NewWebhook(**new))
        await asyncio.sleep(1)
        return hook

    async def run(self, session: str, text: str = "done") -> None:
        await self.agent([say(text)]).run("Go.", session=session, caller="ann")

    async def ask(self, session: str) -> None:
        await self.agent([call("send", {"text": "hi"})]).run("Go.", session=session, caller="ann")

    async def pass_time(self, seconds: float, *duties: WebhookDuty, step_s: float = 1.0) -> None:
        until = self.clock.now() + seconds
        while self.clock.now() < until:
            await asyncio.gather(*(duty.look() for duty in duties))
            await asyncio.sleep(step_s)

    async def close(self) -> None:
        for duty in self.duties:
            await duty.close()


@pytest.fixture
def world(clock: VirtualClock) -> World:
    return World(clock)


async def test_questions_ends_and_failures_are_told(world: World) -> None:
    hook = await world.create()
    duty = world.duty()
    await world.run("first")
    await world.ask("second")
    await world.pass_time(3, duty)
    assert world.sender.seen("first") == ["run.ended completed"]
    assert world.sender.seen("second") == ["question.asked"]
    (question,) = [one for one in world.sender.taken if one.type == "question.asked"]
    body = msgspec.json.decode(question.to_body())
    assert body["data"]["question"]["tool"] == "send"
    assert body["data"]["owner"] == "ann"
    assert "arguments" not in body["data"]["question"], "no content unless it is asked for"
    assert hook.name == "h"
    await world.pass_time(200, duty)
    assert len(world.sender.taken) == 2, "each once"
    await world.close()


async def test_a_message_has_the_tags_of_its_run(world: World) -> None:
    await world.create()
    duty = world.duty()
    for tags in ({"team": "billing"}, {"team": "sales"}, {}):
        await world.agent([say("done")]).run("Go.", session="s", caller="ann", tags=tags)
    await world.pass_time(3, duty)
    bodies = [msgspec.json.decode(one.to_body())["data"] for one in world.sender.taken]
    tagged = [(body["run"], body.get("tags")) for body in bodies]
    assert tagged == [(1, {"team": "billing"}), (2, {"team": "sales"}), (3, None)]
    await world.close()


async def test_content_is_in_a_message_if_it_is_asked_for(world: World) -> None:
    await world.create(content=True)
    duty = world.duty()
    await world.ask("s")
    await world.pass_time(2, duty)
    (question,) = world.sender.taken
    assert question.data.question is not None
    assert question.data.question.arguments == {"text": "hi"}
    await world.close()


async def test_only_what_was_asked_for_is_told(world: World) -> None:
    await world.create(name="questions", events=("question",))
    await world.create(name="other", agent="another")
    duty = world.duty()
    await world.run("a")
    await world.ask("b")
    await world.pass_time(3, duty)
    assert world.sender.seen() == ["question.asked"]
    await world.close()


async def test_what_was_before_the_webhook_is_not_told(world: World) -> None:
    await world.run("old")
    await asyncio.sleep(5)
    await world.create()
    duty = world.duty()
    await world.run("new")
    await world.pass_time(3, duty)
    assert [one.data.session for one in world.sender.taken] == ["new"]
    await world.close()


async def test_a_question_that_was_answered_meanwhile_needs_nobody(world: World) -> None:
    await world.create(events=("question",))
    await world.ask("s")
    (summary,) = await world.journal.sessions()
    assert summary.state == "waiting"
    facts = await world.journal.read("s")
    call_id = next(fact.call_id for fact in facts if isinstance(fact, CallJudged))
    await answer(world.journal, "s", call_id, Allow())
    await world.pass_time(3, world.duty())
    assert world.sender.taken == []
    await world.close()


@pytest.mark.contract("A4")
async def test_an_owner_is_told_of_nothing_but_their_own(world: World) -> None:
    await world.create(owner="ann", sees_all=False)
    await world.create(owner="bob", sees_all=False)
    await world.run("ann.s")
    # Somebody else's session on the same journal, although it says that it works for her.
    await world.run("elsewhere")
    await world.pass_time(3, world.duty())
    (message,) = world.sender.taken
    assert message.data.session == "ann.s"
    assert message.id.startswith("msg_")
    (ann,) = [one async for one in world.store.walk() if one.owner == "ann"]
    assert full_name(ann) == "ann.h"
    await world.close()


async def test_messages_of_a_session_stay_in_order_and_others_do_not_wait(world: World) -> None:
    await world.create()
    duty = world.duty()
    world.sender.refused.add("slow")
    await world.run("slow", "one")
    await world.run("slow", "two")
    await world.run("quick")
    await world.pass_time(5, duty)
    assert world.sender.seen("quick") == ["run.ended completed"]
    assert world.sender.seen("slow") == []
    world.sender.refused.clear()
    await world.pass_time(60, duty)
    runs = [one.data.run for one in world.sender.taken if one.data.session == "slow"]
    assert runs == [1, 2]
    hook = await world.store.get("h")
    assert "status 500" in hook.last_error
    await world.close()


async def test_attempts_become_rarer_and_are_given_up_at_last(world: World) -> None:
    await world.create()
    duty = world.duty()
    world.sender.refused.add("s")
    await world.run("s")
    await world.pass_time(sum(BACK_OFF_S[:3]) + 20, duty)
    assert world.sender.tries == 4
    await world.pass_time(GIVE_UP_S + 2 * BACK_OFF_S[-1], duty, step_s=60.0)
    tries = world.sender.tries
    assert tries < 100
    assert (await world.store.get("h")).failed == 1
    world.sender.refused.clear()
    await world.run("s", "again")
    await world.pass_time(10, duty)
    assert [one.data.run for one in world.sender.taken] == [2], "the next one's turn comes"
    await world.close()


@pytest.mark.parametrize("dies_after", [1, 2, 3])
async def test_another_process_goes_on_where_the_cursors_stand(
    world: World, dies_after: int
) -> None:
    """What was sent and not noted comes again, with the same id; nothing is left out."""
    await world.create()
    for text in ("one", "two", "three"):
        await world.run("s", text)
    world.sender.dies_after = dies_after
    first = world.duty()
    await world.pass_time(3, first)
    await first.close()
    assert len(world.sender.taken) == dies_after
    world.sender.dies_after = None
    second = world.duty()
    await world.pass_time(5, second)
    assert [one.data.run for one in world.sender.taken] == [
        *range(1, dies_after + 1),
        *range(dies_after, 4),
    ]
    assert len({one.id for one in world.sender.taken}) == 3
    await second.close()


async def test_two_processes_tell_of_a_session_once(world: World) -> None:
    await world.create()
    duties = (world.duty(), world.duty())
    for number in range(5):
        await world.run(f"s{number}")
        await world.pass_time(2, *duties)
    assert len(world.sender.taken) == 5
    # When the one that has the lease ends, the other takes over at once.
    await duties[0].close()
    await world.run("later")
    await world.pass_time(3, duties[1])
    assert world.sender.seen("later") == ["run.ended completed"]
    await world.close()


async def test_what_happened_while_nobody_was_there_is_told(world: World) -> None:
    await world.create()
    first = world.duty()
    await world.run("a")
    await world.pass_time(100, first)
    await first.close()
    for number in range(3):
        await asyncio.sleep(3_600)
        await world.run(f"missed{number}")
    await asyncio.sleep(3_600)
    await world.pass_time(3, world.duty())
    assert sorted(one.data.session for one in world.sender.taken) == [
        "a",
        "missed0",
        "missed1",
        "missed2",
    ]
    await world.close()


async def test_cursors_do_not_pile_up(world: World) -> None:
    hook = await world.create()
    duty = world.duty()
    for number in range(10):
        await world.run(f"s{number}")
    await world.pass_time(10, duty)
    assert len(await world.store.read_cursors(hook)) == 10
    await world.pass_time(400, duty)
    assert await world.store.read_cursors(hook) == {}
    await world.run("s1", "again")
    await world.pass_time(10, duty)
    assert len(world.sender.taken) == 11
    await world.close()


async def test_a_receiver_that_is_gone_is_left_alone(world: World) -> None:
    await world.create()
    duty = world.duty()
    world.sender.is_gone = True
    for number in range(3):
        await world.run(f"s{number}")
    await world.pass_time(100, duty)
    hook = await world.store.get("h")
    assert hook.is_disabled
    assert "410" in hook.last_error
    assert world.sender.tries <= 3
    await world.close()


async def test_a_webhook_that_is_deleted_sends_nothing_more(world: World) -> None:
    hook = await world.create()
    duty = world.duty()
    await world.run("a")
    await world.pass_time(3, duty)
    await world.store.remove(hook)
    await world.run("b")
    await world.pass_time(5, duty)
    assert len(world.sender.taken) == 1
    assert await world.journal.list_records(f"webhook-cursor-{hook.id}") == []
    await world.close()
