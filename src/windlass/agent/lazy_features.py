"""What an agent can do and a plain run does not: modules that are imported at their first use.

Answering from outside, sweeping, sub-agents, code that calls tools, calls that ask a model, and a
journal by its name.
"""

from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.agent.answering import (
        accept_expiry as accept_expiry,
    )
    from windlass.agent.answering import (
        find_question as find_question,
    )
    from windlass.agent.answering import (
        post_answer as post_answer,
    )
    from windlass.agent.call_requests import LiveCallRequests as LiveCallRequests
    from windlass.agent.nested_calls import NestedCallSession as NestedCallSession
    from windlass.agent.subagents import make_agent_tool as make_agent_tool
    from windlass.agent.sweeping import (
        Sweeper as Sweeper,
    )
    from windlass.agent.sweeping import (
        SweepOptions as SweepOptions,
    )
    from windlass.agent.sweeping import (
        SweepReport as SweepReport,
    )
    from windlass.journals.urls import open_journal as open_journal

LAZY_MODULES: LazyModules = {
    "windlass.agent.answering": "accept_expiry find_question post_answer",
    "windlass.agent.call_requests": "LiveCallRequests",
    "windlass.agent.nested_calls": "NestedCallSession",
    "windlass.agent.subagents": "make_agent_tool",
    "windlass.agent.sweeping": "SweepOptions SweepReport Sweeper",
    "windlass.journals.urls": "open_journal",
}
if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
