"""`windlass demo`: the first minute, with a scripted model and everything else real."""
