"""Quotas and costs: what each caller may use of each agent, and what it has cost."""
