"""Facts in, state out: how each fact changes the state of a session."""
