"""What `pip install windlass` brings: the packages without extras, and how much room they take.

It is counted from what is installed here, so that it needs no network: the files of Windlass and of
all that it depends on, without the bytecode that Python adds later.
"""

from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

from meter import BenchRow
from packaging.requirements import Requirement

import windlass

PACKAGES_AIM = 18.0
MB_AIM = 45.0
FLOOR = ("aiohttp", "msgspec")
"""What a hand-written client would depend on."""


def measure() -> list[BenchRow]:
    floor = _with_dependencies(*FLOOR)
    ours = _with_dependencies("windlass")
    return [
        BenchRow(
            name="packages of a minimal install",
            floor=len(floor),
            windlass=len(ours),
            aim=PACKAGES_AIM,
        ),
        BenchRow(
            name="size of a minimal install, in MB",
            floor=sum(map(_size_mb, floor.values())),
            windlass=sum(map(_size_mb, ours.values())),
            aim=MB_AIM,
        ),
    ]


def _with_dependencies(*names: str) -> dict[str, Distribution]:
    """Return the distributions of these names and of all that they need on this machine."""
    found: dict[str, Distribution] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in found:
            continue
        found[name] = distribution(name)
        for text in found[name].requires or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                waiting.append(needed.name)
    return found


def _size_mb(package: Distribution) -> float:
    files: Iterable[Path]
    if package.name == "windlass":  # installed as a link to its source
        files = Path(windlass.__file__).parent.rglob("*")
    else:
        files = (Path(str(package.locate_file(file))) for file in package.files or ())
    sizes = [file.stat().st_size for file in files if file.suffix != ".pyc" and file.is_file()]
    return sum(sizes) / 1e6
