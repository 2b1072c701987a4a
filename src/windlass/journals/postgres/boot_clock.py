"""The time since the machine was started, which runs on while the machine sleeps."""

import time

_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""On macOS, CLOCK_MONOTONIC runs on during sleep; on Linux, it does not."""


def boot_time() -> float:
    """Return seconds since the machine was started, with the time that it slept."""
    return time.clock_gettime(_CLOCK)
