"""Deltas for watchers in other processes: how they are encoded and carried."""
