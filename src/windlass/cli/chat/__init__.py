"""The chat at a terminal: its prompt, its commands, and its runs."""
