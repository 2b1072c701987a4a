"""Seeded runs over random scripts, faults, cancels, crashes and clocks, checked against the rules.

The same seed plays the same session. One that breaks a rule is shown by one line that plays it
again: `python -m proof.simulate --seeds 17:18`.
"""

from proof.simulate.plan import Plan, plan_of
from proof.simulate.play import Played, play
from proof.simulate.rules import Broken, check

__all__ = ["Broken", "Plan", "Played", "check", "plan_of", "play"]
