"""`windlass.tools` is the public place of the tools."""

import windlass.tools
from windlass.lazy_modules import find_homes


def test_every_public_name_can_be_imported() -> None:
    public_names: list[str] = vars(windlass.tools)["__all__"]
    assert [name for name in public_names if not hasattr(windlass.tools, name)] == []
    assert set(public_names) == set(find_homes(windlass.tools.LAZY_MODULES))
