"""The demo's task: a folder with notes and a skill, tools that really change it, and a gate."""

import asyncio
from pathlib import Path

from windlass.agent.agent import Agent
from windlass.agent.knowledge_tools import project_instructions, recaller, skill_tool
from windlass.cli.demo.script import DemoModel, DemoPace
from windlass.core.setup import RetryPolicy
from windlass.core.verdicts import Allow, Deny, Verdict
from windlass.knowledge.memory import Memory
from windlass.knowledge.skills import Skills
from windlass.knowledge.sqlite import SqliteKnowledge
from windlass.knowledge.store import Knowledge, Note, Scope, Source
from windlass.ports import GateRequest, Journal, Timeouts
from windlass.tools.files.file_tools import file_tools
from windlass.tools.files.workspace import Workspace
from windlass.tools.function import NOT_DONE, Reconciliation, tool
from windlass.tools.profile import Profile
from windlass.tools.run_context import RunContext
from windlass.tools.toolbox import Toolbox

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
