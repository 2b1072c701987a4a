"""Tools: what a model may do, from a Python function to a guarded, bounded, repeatable call."""
