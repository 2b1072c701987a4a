"""Ready-made gates: reads are allowed, and everything else is denied, asked about or allowed too.

A tool that declares no effect counts as one that writes. The names of these gates do not change, so
a run that was started under a preset can be resumed under it. They have a module of their own
because `ask` is what an agent gets by default, without the code that reads policy files.
"""

from windlass.gates.rules import Rule, RuleGate

_ALLOW_READS = Rule("allow", "@read")


def read_only() -> RuleGate:
    """A gate that allows tools that only read, and denies the rest."""
    return RuleGate([_ALLOW_READS], default="deny", name="read_only")


def ask() -> RuleGate:
    """A gate that allows tools that only read, and asks a person about the rest."""
    return RuleGate([_ALLOW_READS], default="ask", name="ask")


def allow_all() -> RuleGate:
    """A gate that allows everything, and records that it did."""
    return RuleGate([], default="allow", name="allow_all")
