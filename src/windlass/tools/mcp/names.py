"""What a model calls the tools of MCP servers: `server__tool`.

The law: two tools never share a name, and a tool's name depends on nothing but itself and its
server. A name that is not fit as it is gets a hash of what it was. A server's prefix holds no
double underscore, so that whatever was left as it is can be told apart again.
"""

import hashlib
import re

NAME_CHARS_MAX = 64
PREFIX_CHARS_MAX = 24

_PREFIX_PATTERN = re.compile(r"[a-zA-Z0-9-]+(?:_[a-zA-Z0-9-]+)*")
_TOOL_PATTERN = re.compile(r"[a-zA-Z0-9_-]+")
_INVALID_CHARS = re.compile(r"[^a-zA-Z0-9-]+")


def tool_name(server: str, tool: str, *, taken: bool = False) -> str:
    """The name under which a server's tool is offered. `taken`: another one has the plain name."""
    prefix = (
        server if _is_valid_prefix(server) else _shorten_with_hash(server, server, PREFIX_CHARS_MAX)
    )
    name = f"{prefix}__{tool}"
    if not taken and len(name) <= NAME_CHARS_MAX and _TOOL_PATTERN.fullmatch(tool):
        return name
    room = NAME_CHARS_MAX - len(prefix) - len("__")
    return f"{prefix}__{_shorten_with_hash(tool, tool, room)}"


def _is_valid_prefix(server: str) -> bool:
    return len(server) <= PREFIX_CHARS_MAX and _PREFIX_PATTERN.fullmatch(server) is not None


def _shorten_with_hash(name: str, whole: str, chars_max: int) -> str:
    """As much of a name as there is room for, and what tells it from all others."""
    digest = hashlib.blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    head = _INVALID_CHARS.sub("_", name).strip("_")[: chars_max - len(digest) - 1].rstrip("_")
    return f"{head}_{digest}" if head else digest
