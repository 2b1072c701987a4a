"""Readers of foreign bytes: each works in a process of its own, which may die."""
