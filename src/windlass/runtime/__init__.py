"""The runtime: the loop, one attempt, the recorder, the driver of a run."""
