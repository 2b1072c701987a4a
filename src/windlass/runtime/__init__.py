"""The runtime: it performs the moves that the core decides on, and records what happened."""
