"""`windlass.tools` is the public place of the tools."""

import windlass.tools
from windlass.tools import __all__ as public_names


def test_every_public_name_can_be_imported() -> None:
    assert [name for name in public_names if not hasattr(windlass.tools, name)] == []
    assert set(public_names) == set(windlass.tools.LAZY_MODULES)
