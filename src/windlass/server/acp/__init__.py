"""The Agent Client Protocol: editors talk to agents over standard input and output.

Invariant: an editor is one more way to look at sessions and to speak to them. A run belongs to the
journal and not to the editor: it survives the editor's death, the terminal shows it too, and a
question may be answered in either place.

The names here need the extra `acp`, which is imported when one of them is first used.
"""

from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.server.acp.transport import (
        serve_editor as serve_editor,
        serve_stdio as serve_stdio,
    )
    from windlass.server.acp.transport import LineTransport as LineTransport

LAZY_MODULES: LazyModules = {
    "windlass.server.acp.transport": "LineTransport serve_editor serve_stdio",
}
if not TYPE_CHECKING:  # To a type checker, `__getattr__` would make every name a valid one.
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
