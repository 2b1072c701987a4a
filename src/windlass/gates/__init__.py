"""Gates: they decide what may happen. Rules, presets, Cedar, the flow guard, several gates as one.

Invariant: in doubt, the stricter decision. What cannot be read with certainty is never allowed by a
rule that matches it, and is denied by a rule that might match it.
"""

from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.gates.cedar import CedarGate, load_cedar
    from windlass.gates.combined import all_of
    from windlass.gates.data_flow import FlowGuard, flow_guard
    from windlass.gates.policy_file import load_policy, parse_policy
    from windlass.gates.presets import allow_all, allow_edits, ask, plan, read_only
    from windlass.gates.redaction import RedactGate, redact
    from windlass.gates.rules import Rule, RuleGate

__all__ = [
    "CedarGate",
    "FlowGuard",
    "RedactGate",
    "Rule",
    "RuleGate",
    "all_of",
    "allow_all",
    "allow_edits",
    "ask",
    "flow_guard",
    "load_cedar",
    "load_policy",
    "parse_policy",
    "plan",
    "read_only",
    "redact",
]

LAZY_MODULES: LazyModules = {
    "CedarGate": "windlass.gates.cedar",
    "FlowGuard": "windlass.gates.data_flow",
    "RedactGate": "windlass.gates.redaction",
    "Rule": "windlass.gates.rules",
    "RuleGate": "windlass.gates.rules",
    "all_of": "windlass.gates.combined",
    "allow_all": "windlass.gates.presets",
    "allow_edits": "windlass.gates.presets",
    "ask": "windlass.gates.presets",
    "flow_guard": "windlass.gates.data_flow",
    "load_cedar": "windlass.gates.cedar",
    "load_policy": "windlass.gates.policy_file",
    "parse_policy": "windlass.gates.policy_file",
    "plan": "windlass.gates.presets",
    "read_only": "windlass.gates.presets",
    "redact": "windlass.gates.redaction",
}
if not TYPE_CHECKING:  # To a type checker, `__getattr__` would make every name a valid one.
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
