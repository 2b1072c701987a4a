"""Secrets: how they are recognised, and how they are masked in texts, facts and streams."""
