"""The agent: what programs use to run models with tools, a gate and a journal."""
