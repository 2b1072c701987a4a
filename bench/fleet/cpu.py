"""How much processor time processes have used, as Linux counts it."""

import os
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_USER_FIELD = 11
"""Of a stat line, behind the name: user time, system time, and both of children that ended."""


def read_cpu_s(process_id: int) -> float:
    """Return the seconds that a process and its ended children have used; 0 if it is gone."""
    try:
        line = Path(f"/proc/{process_id}/stat").read_text("utf-8")
    except OSError:
        return 0.0
    fields = line.rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[_USER_FIELD : _USER_FIELD + 4]) / _TICKS_PER_S


def read_tree_cpu_s(process_id: int) -> float:
    """Return the seconds of a process and of all its children, also of those that have ended."""
    children = Path(f"/proc/{process_id}/task/{process_id}/children")
    try:
        below = [int(child) for child in children.read_text("utf-8").split()]
    except OSError:
        below = []
    return read_cpu_s(process_id) + sum(map(read_tree_cpu_s, below))
