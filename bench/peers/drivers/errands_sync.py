"""The same tools for the peers whose tools are not async."""

import os
import time

from errands import NAP_S, STUCK_S, began, ended, mark


def look(at: int) -> str:
    """Look at a parcel.

    Args:
        at: its number.
    """
    began(at)
    ended()
    return f"parcel {at}"


def nap(at: int) -> str:
    """Wait for a parcel.

    Args:
        at: its number.
    """
    began(at)
    time.sleep(NAP_S)
    ended()
    return f"parcel {at}"


def pay(amount: int) -> str:
    """Pay for a parcel.

    Args:
        amount: how much.
    """
    began(amount)
    mark(amount)
    time.sleep(float(os.environ.get(STUCK_S, "0")))
    ended()
    return f"parcel {amount}"
