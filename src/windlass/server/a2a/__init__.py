"""A2A 1.0 over JSON-RPC: runs as tasks for other agents."""
