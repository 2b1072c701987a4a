"""Secrets: how they are recognized, and how they are masked in texts, facts and streams."""
