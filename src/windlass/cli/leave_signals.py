"""Signals that end the process: SIGTERM, and SIGHUP when a terminal is closed.

Invariant: none of them is lost, whenever it comes. A handler of the event loop would run one turn
later, so a signal that comes just before the handler is removed would have no effect. Python runs
the handlers here at once, and always before it replaces one of them.
"""

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

LEAVE_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def receive_leave_signals(receive: Callable[[int], None]) -> Generator[None]:
    """Call a function with each such signal during the block, between any two steps of the code.

    It may only note the signal, and act on it by `call_soon_threadsafe`. When the block is left,
    every signal that came in it has been noted.
    """
    before: dict[int, Any] = {}
    for number in LEAVE_SIGNALS:
        # Signals that our parent process made us ignore (nohup) stay ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, lambda number, _frame: receive(number))
            # System calls that Python cannot repeat, such as those for terminal modes, continue.
            signal.siginterrupt(number, False)  # noqa: FBT003 - it takes no keyword
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
