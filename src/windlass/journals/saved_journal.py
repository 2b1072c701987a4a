"""What a backup of a journal holds."""

import msgspec


class SavedJournal(msgspec.Struct, frozen=True):
    """What a backup of a journal holds."""

    at: float
    """When it was made, in seconds since the epoch."""
    sessions: int
    records: int
