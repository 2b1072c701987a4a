"""The names that `windlass.journals` offers, and what they cost."""

import subprocess
import sys

import windlass.journals

CODE = """
import sys
from windlass.journals import MemoryJournal
heavy = {"apsw", "asyncpg", "windlass.journals.archive", "windlass.journals.sqlite.journal"}
print(sorted(heavy & sys.modules.keys()))
"""


def test_each_name_is_there() -> None:
    for name in vars(windlass.journals)["__all__"]:
        assert getattr(windlass.journals, name).__name__ == name


def test_a_journal_in_memory_loads_no_database() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
