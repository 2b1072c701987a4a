"""State in, the next move out: every decision that the runtime makes."""
