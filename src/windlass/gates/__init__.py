"""Gates: they decide what may happen. Rules, presets, Cedar, the flow guard, several gates as one.

Invariant: in doubt, the stricter decision. What cannot be read with certainty is never allowed by a
rule that matches it, and is denied by a rule that might match it.
"""

from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.core.verdicts import Approval as Approval
    from windlass.gates.cedar import CedarGate as CedarGate, load_cedar as load_cedar
    from windlass.gates.combined import all_of as all_of
    from windlass.gates.data_flow import FlowGuard as FlowGuard, flow_guard as flow_guard
    from windlass.gates.policy_file import load_policy as load_policy, parse_policy as parse_policy
    from windlass.gates.presets import (
        allow_all as allow_all,
        allow_edits as allow_edits,
        ask as ask,
        plan as plan,
        read_only as read_only,
    )
    from windlass.gates.redaction import RedactGate as RedactGate, redact as redact
    from windlass.gates.rules import Rule as Rule, RuleGate as RuleGate

LAZY_MODULES: LazyModules = {
    "windlass.core.verdicts": "Approval",
    "windlass.gates.cedar": "CedarGate load_cedar",
    "windlass.gates.combined": "all_of",
    "windlass.gates.data_flow": "FlowGuard flow_guard",
    "windlass.gates.policy_file": "load_policy parse_policy",
    "windlass.gates.presets": "allow_all allow_edits ask plan read_only",
    "windlass.gates.redaction": "RedactGate redact",
    "windlass.gates.rules": "Rule RuleGate",
}
if not TYPE_CHECKING:  # To a type checker, `__getattr__` would make every name a valid one.
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
