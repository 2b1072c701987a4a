"""The demo's task: a folder, tools that really change it, a gate, and models that are scripts.

The scripts choose the next reply from the prompt, as real models do. They keep a meter of their
own, as a provider does: a line for each request. Nothing else writes it.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from windlass.agent.agent import Agent
from windlass.agent.knowledge_tools import project_instructions, recaller, skill_tool
from windlass.core.events import ReplyPiece
from windlass.core.messages import AssistantMessage, ToolResults, UserMessage
from windlass.core.setup import ModelInfo, Price, RetryPolicy
from windlass.core.verdicts import Allow, Deny, Verdict
from windlass.core.view import Prompt
from windlass.knowledge.memory import Memory
from windlass.knowledge.skills import Skills
from windlass.knowledge.sqlite import SqliteKnowledge
from windlass.knowledge.store import Knowledge, Note, Scope, Source
from windlass.ports import GateRequest, Journal, Timeouts
from windlass.testing.script_words import call, pause, say, stall
from windlass.testing.scripted_model import ReplyItems, ScriptedModel
from windlass.tools.files.file_tools import file_tools
from windlass.tools.files.workspace import Workspace
from windlass.tools.function import NOT_DONE, Reconciliation, tool
from windlass.tools.run_context import RunContext
from windlass.tools.search import Profile
from windlass.tools.toolbox import Toolbox

PROMPT = "Order 1042 was charged twice. Pay the second charge back and write a report."
PRICE = Price(Decimal(3), Decimal(15))
"""A made-up price; the demo says so wherever it shows it."""
METER_FILE = "meter.txt"
REQUESTS_MAX = 20

Role: TypeAlias = Literal["support", "clerk"]


class ScriptLine(NamedTuple):
    """A reply, and the words that must be in the prompt before it can be given."""

    reply: ReplyItems
    requires: str = ""


STALL_AT = 2
"""The line that stalls the first time, counted from 0."""
STALLED = "So the list has order 1042 tw"
REPORT = "Order 1042 was charged twice on 2 March. The second 42.50 EUR went back to the card."
SUPPORT = (
    ScriptLine(
        [
            say("To the card, then. I will read how refunds are done here."),
            call("skill", {"name": "refunds"}),
        ],
        requires="by card only",
    ),
    ScriptLine(
        [
            say("I will ask the clerk to look at the payments."),
            call("clerk", {"task": "List the charges of order 1042."}),
        ],
        requires="Ask the clerk to list the charges",
    ),
    ScriptLine(
        [
            say("So the list has order 1042 twice. It is wrong, and I will delete it."),
            call("delete", {"path": "payments.csv"}),
        ],
        requires="Two charges, both on 2 March",
    ),
    ScriptLine(
        [
            say("Understood, the list stays. I will pay the second charge back instead."),
            call("refund", {"order": 1042, "amount": "42.50 EUR", "to": "card"}),
        ],
        requires="never deleted",
    ),
    ScriptLine(
        [
            say("The refund is booked. Now the report."),
            call("write", {"path": "report.md", "content": REPORT}),
        ],
    ),
    ScriptLine(say("Done: 42.50 EUR went back to the card, and report.md says why.")),
)
CLERK = (
    ScriptLine(call("read", {"path": "payments.csv"}), requires="order 1042"),
    ScriptLine(
        say("Two charges, both on 2 March, 42.50 EUR each."),
        requires="1042,2026-03-02,42.50 EUR",
    ),
)
SCRIPT_LINES: Mapping[Role, tuple[ScriptLine, ...]] = {"support": SUPPORT, "clerk": CLERK}


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPace:
    """How fast the demo goes, in seconds."""

    token_s: float = 0.022
    think_s: float = 0.7
    """The pause before the first word of a reply."""
    idle_s: float = 1.0
    """How long a silence is before it counts as a stall."""
    hold_s: float = 1.2
    """The pauses around the kill, for the reader."""


CALM = DemoPace()
FAST = DemoPace(token_s=0.001, think_s=0.01, idle_s=0.4, hold_s=0.05)


class DemoModel:
    """Gives the reply that fits its place in the conversation."""

    def __init__(self, role: Role, folder: Path, pace: DemoPace) -> None:
        self._role: Role = role
        self._meter = folder / METER_FILE
        self._think_s = pace.think_s
        self._script = ScriptedModel(
            [self._choose_reply] * REQUESTS_MAX,
            info=ModelInfo(f"scripted:{role}", PRICE),
            pace_s=pace.token_s,
            truthful=True,
        )

    @property
    def info(self) -> ModelInfo:
        return self._script.info

    def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:
        return self._script.stream(prompt)

    def _choose_reply(self, prompt: Prompt) -> ReplyItems:
        at = sum(isinstance(message, AssistantMessage) for message in prompt.messages)
        asked_before = read_meter(self._meter.parent)
        asked = f"{self._role}, reply {at + 1}"
        with self._meter.open("a", encoding="utf-8") as meter:
            meter.write(f"request {len(asked_before) + 1}: {asked}\n")
        first_time = not any(line.endswith(asked) for line in asked_before)
        if (self._role, at) == ("support", STALL_AT) and first_time:
            return [pause(self._think_s), say(STALLED), stall()]
        line = SCRIPT_LINES[self._role][at]
        if not any(line.requires in text for text in prompt_texts(prompt)):
            return say(f"I cannot continue: the prompt does not say {line.requires!r}.")
        return [pause(self._think_s), line.reply]


def prompt_texts(prompt: Prompt) -> Iterator[str]:
    """The texts in a prompt from people, tools and notes."""
    for message in prompt.messages:
        if isinstance(message, UserMessage):
            yield message.text
        if isinstance(message, ToolResults):
            yield from (item.result.text for item in message.items)


def read_meter(folder: Path) -> list[str]:
    """The lines of the meter, one for each request."""
    meter = folder / METER_FILE
    return meter.read_text("utf-8").splitlines() if meter.exists() else []


SESSION = "demo"
JOURNAL = "journal.db"
OUTBOX = "outbox.txt"
PAYMENTS_FILE = "payments.csv"
PAYMENTS = """\
order,paid_on,amount
1041,2026-03-02,18.00 EUR
1042,2026-03-02,42.50 EUR
1042,2026-03-02,42.50 EUR
1043,2026-03-03,7.20 EUR
"""
SKILL = """\
---
name: refunds
description: How to refund a charge.
---
Ask the clerk to list the charges of the order.
Refund the extra charge once, the way the customer wants it.
Write report.md.
"""
SHOP = Scope("project", "shop")
CUSTOMER_NOTE = "This customer takes refunds by card only."
NOTES = (
    Note(CUSTOMER_NOTE, SHOP, Source("a call on 12 January"), "Order 1042"),
    Note("Parcels leave on Tuesdays.", SHOP, Source("handbook.pdf"), "Shipping"),
)
BANK_S = 30.0
"""How long the bank takes to answer: longer than the worker lives."""

Context = RunContext[Path]


def prepare_folder(folder: Path) -> None:
    """Put the files of the task into an empty folder."""
    (folder / PAYMENTS_FILE).write_text(PAYMENTS, "utf-8")
    skill = folder / "skills" / "refunds"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(SKILL, "utf-8")
    with SqliteKnowledge(folder / JOURNAL) as store:
        asyncio.run(store.remember(*NOTES))


def build_agent(folder: Path, journal: Journal, notes: Knowledge, pace: DemoPace) -> Agent[str]:
    """The same agent in every process, so that each of them can continue the run."""
    skills = Skills.from_project(folder)
    files = file_tools(Workspace(folder))
    clerk = Agent(
        DemoModel("clerk", folder, pace),
        name="clerk",
        instructions="You look things up in payments.csv.",
        tools=Toolbox(files, profile=Profile(include=("read*",))),
    )
    tools = [*files, skill_tool(skills), clerk.as_tool(), delete, refund]
    return Agent(
        DemoModel("support", folder, pace),
        name="support",
        instructions=project_instructions(
            folder, skills=skills, before="You look after the payments in this folder."
        ),
        tools=Toolbox(tools, deps=folder),
        knowledge=recaller(Memory(notes, project=SHOP.key)),
        gate=KeepRecords(),
        journal=journal,
        retries=RetryPolicy(wait_base_s=0.2),
        timeouts=Timeouts(idle_s=pace.idle_s),
    )


class KeepRecords:
    """A gate with one rule."""

    name = "demo: nothing is deleted"
    judges_replies = False

    async def judge(self, request: GateRequest) -> Verdict:
        if request.tool.name == delete.name:
            return Deny("payment records are never deleted", "keep-records")
        return Allow("everything else")

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:  # noqa: ARG002 - the port's
        return Allow()


@tool
def delete(context: Context, path: str) -> str:
    """Delete a file in the folder."""
    (context.deps / Path(path).name).unlink()
    return f"deleted {path}"


def find_refund(
    context: Context,
    order: int,  # noqa: ARG001 - the key says it all
    amount: str,  # noqa: ARG001 - as above
    to: str,  # noqa: ARG001 - as above
) -> str | Reconciliation:
    """Whether an interrupted refund was sent: its key is in the outbox, or it is not."""
    sent = context.idempotency_key in map(refund_key, read_outbox(context.deps))
    return f"its key is in {OUTBOX}: sent before the crash, not sent again" if sent else NOT_DONE


@tool(reconcile=find_refund)
def refund(context: Context, order: int, amount: str, to: str) -> str:
    """Refund an order. Must not be done twice."""
    line = f"refund order={order} amount={amount} to={to} key={context.idempotency_key}"
    with (context.deps / OUTBOX).open("a", encoding="utf-8") as outbox:
        outbox.write(f"{line}\n")
    context.report(f"written to {OUTBOX}, waiting for the bank")
    context.wait(BANK_S)
    return "the bank confirmed it"


def read_outbox(folder: Path) -> list[str]:
    """The refunds that were sent, one per line."""
    sent = folder / OUTBOX
    return sent.read_text("utf-8").splitlines() if sent.exists() else []


def refund_key(line: str) -> str:
    """The idempotency key in a line of the outbox."""
    return line.rpartition(" key=")[2]
