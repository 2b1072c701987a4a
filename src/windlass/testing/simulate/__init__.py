"""Seeded runs over random scripts, faults, cancels, crashes and clocks, checked against the rules.

The same seed plays the same session. One that breaks a rule is shown by one line that plays it
again: `python -m windlass.testing.simulate --seeds 17:18`.
"""

from windlass.testing.simulate.plan import Plan, plan_of
from windlass.testing.simulate.play import Played, play
from windlass.testing.simulate.rules import Broken, check

__all__ = ["Broken", "Plan", "Played", "check", "plan_of", "play"]
