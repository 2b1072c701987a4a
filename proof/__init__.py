"""Proof of the runtime: the simulator, the crash campaign and the mutants. Not in the wheel.

Tests and benchmarks take from here what a network and a provider do wrong.
"""
