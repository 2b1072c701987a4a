"""Ready-made gates: reads are allowed, and everything else is denied, asked about or allowed too.

A tool that declares no effect counts as one that writes. The names of these gates do not change, so
a run that was started under a preset can be resumed under it. They have their own module
because `ask` is what an agent gets by default, without the code that reads policy files.
"""

from collections.abc import Iterable

from windlass.core.verdicts import Approval
from windlass.gates.combined import all_of
from windlass.gates.rules import Rule, RuleGate
from windlass.ports import Gate

_ALLOW_READS = Rule("allow", "@read")
_READ_ONLY = "In read-only mode, only tools that read may be called."
_PLAN = (
    "In plan mode, nothing is changed until the person has accepted the plan. Look at what you "
    "need, and end with the plan."
)


def read_only() -> RuleGate:
    """A gate that allows tools that only read, and denies the rest."""
    return RuleGate([_ALLOW_READS], default="deny", name="read_only", default_reason=_READ_ONLY)


def plan() -> RuleGate:
    """A gate like `read_only`, whose denials tell the model to write a plan."""
    return RuleGate([_ALLOW_READS], default="deny", name="plan", default_reason=_PLAN)


def allow_edits() -> RuleGate:
    """A gate that allows reading and changing files, and asks a person about the rest.

    It asks about the files of git too: what is in them decides which programs git runs.
    """
    reason = "Git runs what its own files say."
    guarded = ("write(.git/**)", "write(**/.git/**)", "edit(.git/**)", "edit(**/.git/**)")
    rules = [
        _ALLOW_READS,
        *(Rule("ask", pattern, reason) for pattern in guarded),
        Rule("allow", "write"),
        Rule("allow", "edit"),
        # What these undo was allowed, or asked about.
        Rule("allow", "undo_write"),
        Rule("allow", "undo_edit"),
    ]
    return RuleGate(rules, default="ask", name="allow_edits")


def ask(
    *,
    role: str = "",
    people: int = 1,
    not_starter: bool = False,
    expires_after_s: float | None = None,
    escalate_to: str = "",
    escalate_after_s: float = 0.0,
) -> RuleGate:
    """A gate that allows tools that only read, and asks a person about the rest.

    With any of the options, people whose identity a service verified have to agree (`Approval`).
    Raises ConfigError if they contradict one another.
    """
    approval = Approval(role, people, not_starter, expires_after_s, escalate_to, escalate_after_s)
    asked = None if approval == Approval() else approval
    return RuleGate([_ALLOW_READS], default="ask", name="ask", approval=asked)


def ask_about(tools: Iterable[str], gate: Gate | None = None) -> Gate:
    """A gate that asks about each call of these tools, and leaves all else to another gate."""
    rules = [Rule("ask", name) for name in tools]
    asking = RuleGate(rules, default="allow", name="tools")
    return asking if gate is None else all_of(gate, asking)


def allow_all() -> RuleGate:
    """A gate that allows everything, and records that it did."""
    return RuleGate([], default="allow", name="allow_all")
