"""Proof of the runtime: a simulator and a crash kit. Not part of the wheel."""
