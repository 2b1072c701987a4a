"""Agents in a notebook: runs that are shown as they work, and questions with buttons.

    from windlass.notebook import show

    result = await show(agent, "What does the jib weigh?")

Agents, results, messages, events and questions show themselves as well, without this module.
"""

from windlass.notebook.live import show

__all__ = ["show"]
