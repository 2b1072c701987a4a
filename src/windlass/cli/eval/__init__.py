"""`windlass eval`: run, compare, show and watch evaluations."""
