"""Seeded runs over random scripts, faults, cancels, crashes and clocks, checked against the rules.

The same seed plays the same session. One that breaks a rule is shown by one line that plays it
again: `python -m proof.simulate --seeds 17:18`.
"""

from proof.simulate.plan import SessionPlan, draw_plan
from proof.simulate.play import PlayedSession, play_plan
from proof.simulate.rules import RuleBroken, check_rules

__all__ = ["PlayedSession", "RuleBroken", "SessionPlan", "check_rules", "draw_plan", "play_plan"]
