"""What a call would change, as its tool says before it runs."""

import msgspec


class CallPreview(msgspec.Struct, frozen=True, gc=False):
    """What a call would change if it ran now. It is for a person and not recorded."""

    note: str
    """In words, such as "'notes.txt' would be created"."""
    diff: str = ""
    """The change as a unified diff; empty if there is none to show."""
    is_whole: bool = False
    """The diff leaves nothing out of what the call would do."""
    would_fail: bool = False
    """As things are now, the call cannot succeed; `note` says why."""
