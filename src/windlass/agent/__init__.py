"""The agent: where the parts become a whole."""
