"""What most agents do not need: modules that are imported when they are first used.

The HTTP models and the parsing of rules are more than half of all there is to load. A program that
brings its own model, or sets no gate, does not wait for them.
"""

from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.gates.combined import combine_with_parent
    from windlass.gates.grants import GrantGate, make_grant
    from windlass.gates.presets import ask
    from windlass.journals.urls import open_journal
    from windlass.models.resolve import resolve_model

__all__ = ["GrantGate", "ask", "combine_with_parent", "make_grant", "open_journal", "resolve_model"]

LAZY_MODULES: LazyModules = {
    "GrantGate": "windlass.gates.grants",
    "ask": "windlass.gates.presets",
    "combine_with_parent": "windlass.gates.combined",
    "make_grant": "windlass.gates.grants",
    "open_journal": "windlass.journals.urls",
    "resolve_model": "windlass.models.resolve",
}
if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
