"""Loggers that write no secrets.

Invariant: what a logger of this package writes, including the text of exceptions, contains nothing
that looks like a key and no secret that an object of this process still holds. The filter of the
logger itself does this, so that no handler gets more than another.
"""

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import final

from typing_extensions import override

from windlass.core.secrets.mask import Mask, live_secret_values


@final
class _SecretFilter(logging.Filter):
    """Masks a record before any handler gets it."""

    def __init__(self) -> None:
        super().__init__()
        self._known_secrets: frozenset[str] = frozenset()
        self._mask = Mask()
        self._formatter = logging.Formatter()

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        mask_text = self._current_mask().mask_text
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - logging itself reports a broken format string
            return True
        masked = mask_text(message)
        if masked is not message:
            record.msg = masked
            record.args = None
        if record.exc_info:
            trace = self._formatter.formatException(record.exc_info)
            masked_trace = mask_text(trace)
            if masked_trace is not trace:
                # With `exc_info`, a handler would format the exception itself, unmasked.
                record.exc_info = None
                record.exc_text = masked_trace
        if record.stack_info:
            record.stack_info = mask_text(record.stack_info)
        return True

    def _current_mask(self) -> Mask:
        known = live_secret_values()
        if known != self._known_secrets:
            self._known_secrets = known
            self._mask = Mask(known, hold=False)
        return self._mask


_SECRET_FILTER = _SecretFilter()


def get_logger(name: str) -> logging.Logger:
    """Return the logger of a module, with the filter for secrets."""
    logger = logging.getLogger(name)
    logger.addFilter(_SECRET_FILTER)
    return logger


@contextmanager
def forward_warnings(show: Callable[[str], object]) -> Generator[None]:
    """Call `show` with each warning of the package during the block, from any thread.

    Without a handler, warnings go to standard error, wherever its cursor is.
    """
    logger = logging.getLogger("windlass")
    handler = _ForwardingHandler(show)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@final
class _ForwardingHandler(logging.Handler):
    def __init__(self, show: Callable[[str], object]) -> None:
        super().__init__(logging.WARNING)
        self._show = show

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self._show(record.getMessage())
