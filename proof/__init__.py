"""Proof of the runtime: the simulator, the crash campaign and the mutants. Not in the wheel."""
