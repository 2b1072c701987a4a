"""Real weights, asked on this machine. Skipped without them, but never silently in CI.

`make local-weights` fetches them. With WINDLASS_TEST_LOCAL=1 what is missing fails the tests.
"""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from windlass.models.local.model import KNOWN_MODELS

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "local"


@pytest.fixture(scope="session", autouse=True)
def weights() -> Iterator[Path]:
    """The file with the weights; the environment names it while these tests run."""
    folder = os.environ.get("WINDLASS_LOCAL_WEIGHTS") or str(CACHE)
    path = Path(folder) / KNOWN_MODELS["smollm2"][1]
    if find_spec("xllamacpp") is None:
        missing = "the extra is not installed: pip install 'windlass[local]'"
    elif not path.is_file():
        missing = "there are no weights: make local-weights"
    else:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("WINDLASS_LOCAL_WEIGHTS", folder)
            # Two threads that wait for each other on a busy machine are slower than one.
            patch.setenv("WINDLASS_LOCAL_THREADS", "1")
            patch.setenv("WINDLASS_LOCAL_WINDOW", "2048")
            yield path
        return
    if os.environ.get("WINDLASS_TEST_LOCAL") == "1":
        pytest.fail(missing, pytrace=False)
    pytest.skip(missing)
