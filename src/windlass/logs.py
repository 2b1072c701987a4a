"""Loggers that tell no secrets.

The law: what a logger of this package writes, the text of an exception included, holds neither what
looks like a key nor any secret that somebody in this process still holds (G8). It is the filter of
the logger itself that sees to it, so that no handler is told more than another.
"""

import logging
from typing import final

from typing_extensions import override

from windlass.core.secrets.mask import Mask
from windlass.core.secrets.secret import live_secret_values


@final
class _SecretFilter(logging.Filter):
    """Masks a record before any handler has it."""

    def __init__(self) -> None:
        super().__init__()
        self._known_secrets: frozenset[str] = frozenset()
        self._mask = Mask()
        self._formatter = logging.Formatter()

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        text = self._current_mask().mask_text
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - whoever handles the record says what is wrong with it
            return True
        masked = text(message)
        if masked is not message:
            record.msg, record.args = masked, None
        if record.exc_info:
            trace = self._formatter.formatException(record.exc_info)
            masked_trace = text(trace)
            if masked_trace is not trace:
                # A handler of its own mind would print the exception itself.
                record.exc_info, record.exc_text = None, masked_trace
        if record.stack_info:
            record.stack_info = text(record.stack_info)
        return True

    def _current_mask(self) -> Mask:
        known = live_secret_values()
        if known != self._known_secrets:
            self._known_secrets, self._mask = known, Mask(known, hold=False)
        return self._mask


_SECRET_FILTER = _SecretFilter()


def get_logger(name: str) -> logging.Logger:
    """The logger of a module."""
    found = logging.getLogger(name)
    found.addFilter(_SECRET_FILTER)
    return found
