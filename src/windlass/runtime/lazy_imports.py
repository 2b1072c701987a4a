"""What a short run does not need: modules that are imported when they are first used.

Reading the arguments of a call, with their repair, saying what is wrong with a reply that must fit
a schema, and masking what watchers are shown.
"""

from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.core.json_repair.arguments import (
        RefusedArguments as RefusedArguments,
        prepare_arguments as prepare_arguments,
    )
    from windlass.core.schema_faults import describe_misfit as describe_misfit
    from windlass.core.secrets.mask_pieces import PieceMask as PieceMask

LAZY_MODULES: LazyModules = {
    "windlass.core.json_repair.arguments": "RefusedArguments prepare_arguments",
    "windlass.core.schema_faults": "describe_misfit",
    "windlass.core.secrets.mask_pieces": "PieceMask",
}
if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
