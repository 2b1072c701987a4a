"""Models that run on this machine, in an embedded llama.cpp server."""
