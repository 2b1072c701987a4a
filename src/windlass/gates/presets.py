"""Gates for those who want one word: what reads is free, and the rest is denied, asked or free too.

A tool that declares no effect writes. The names are stable: a run that was begun under a preset is
resumed under it without a question.
"""

from windlass.gates.rules import Rule, RuleGate

_ALLOW_READS = Rule("allow", "@read")


def read_only() -> RuleGate:
    """Reads are allowed, the rest is denied."""
    return RuleGate([_ALLOW_READS], default="deny", name="read_only")


def ask() -> RuleGate:
    """Reads are allowed, the rest asks."""
    return RuleGate([_ALLOW_READS], default="ask", name="ask")


def allow_all() -> RuleGate:
    """Everything is allowed, and the record says that it was so decided."""
    return RuleGate([], default="allow", name="allow_all")
