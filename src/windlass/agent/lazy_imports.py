"""What most agents do not need: modules that are imported when they are first used.

The HTTP models and the parsing of rules are more than half of all there is to load. A program that
brings its own model, or sets no gate, does not wait for them. Nor does it wait for the reader of
messages from an earlier conversation if it continues none, nor for what follows a session if it
watches none.
"""

from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.agent.earlier_messages import read_messages as read_messages
    from windlass.agent.following import (
        follow_driver as follow_driver,
        follow_session as follow_session,
    )
    from windlass.gates.combined import combine_with_parent as combine_with_parent
    from windlass.gates.grants import GrantGate as GrantGate, make_grant as make_grant
    from windlass.gates.presets import ask as ask, ask_about as ask_about
    from windlass.journals.completing import complete_journal as complete_journal
    from windlass.models.resolve import resolve_model as resolve_model

LAZY_MODULES: LazyModules = {
    "windlass.agent.earlier_messages": "read_messages",
    "windlass.agent.following": "follow_driver follow_session",
    "windlass.gates.combined": "combine_with_parent",
    "windlass.gates.grants": "GrantGate make_grant",
    "windlass.gates.presets": "ask ask_about",
    "windlass.journals.completing": "complete_journal",
    "windlass.models.resolve": "resolve_model",
}
if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
