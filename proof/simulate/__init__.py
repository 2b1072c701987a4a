"""The simulator: random sessions with faults, cancels and crashes, checked against the rules.

The same seed plays the same session. For a session that breaks a rule it prints the command that
plays it again: `python -m proof.simulate --seeds 17:18`.
"""

from proof.simulate.plan import SessionPlan, draw_plan
from proof.simulate.play import PlayedSession, play_plan
from proof.simulate.rules.check import RuleBroken, check_rules

__all__ = ["PlayedSession", "RuleBroken", "SessionPlan", "check_rules", "draw_plan", "play_plan"]
