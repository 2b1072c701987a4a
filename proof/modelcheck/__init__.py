"""Explores all interleavings of drivers, posters and faults, and checks the rules in each."""

from proof.modelcheck.explore import Counterexample, Exploration, RuleViolation, explore, replay
from proof.modelcheck.protocol import LeaseProtocol
from proof.modelcheck.scenarios import GAPS, PLANTED, SCENARIOS
from proof.modelcheck.world import Scenario

__all__ = [
    "GAPS",
    "PLANTED",
    "SCENARIOS",
    "Counterexample",
    "Exploration",
    "LeaseProtocol",
    "RuleViolation",
    "Scenario",
    "explore",
    "replay",
]
