"""Files of a workspace, and nothing outside of it."""
