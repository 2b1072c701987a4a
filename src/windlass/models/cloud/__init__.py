"""Clouds whose models are reached with credentials of the cloud instead of a key."""
