"""Pages from outside, and nothing from inside."""
