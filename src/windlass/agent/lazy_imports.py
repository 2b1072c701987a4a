"""What most agents do not need: modules that are imported when they are first used.

The HTTP models and the parsing of rules are more than half of all there is to load. A program that
brings its own model, or sets no gate, does not wait for them.
"""

from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.gates.combined import stricter
    from windlass.gates.grants import Granted, grant_for
    from windlass.gates.presets import ask
    from windlass.models.resolve import resolve_model

__all__ = ["Granted", "ask", "grant_for", "resolve_model", "stricter"]

LAZY_MODULES: LazyModules = {
    "Granted": "windlass.gates.grants",
    "ask": "windlass.gates.presets",
    "grant_for": "windlass.gates.grants",
    "resolve_model": "windlass.models.resolve",
    "stricter": "windlass.gates.combined",
}
if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
