"""Readers of foreign bytes: each works in its own process, which may die."""
