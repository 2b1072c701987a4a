"""Count the keys and lists of JSON without parsing it.

A parser makes an object of each key, object and list, and a byte of JSON can become a hundred bytes
of memory. So JSON from outside is counted first. The work is bounded by the length of the text: all
of it is done by a few searches of the whole text.
"""

STRINGS_PER_KEY = 2
"""JSON with more strings than this for each key that is allowed counts as too much as well."""


def has_many_keys(data: bytes, keys_max: int) -> bool:
    """Return whether JSON has more keys, objects and lists than `keys_max`.

    Also if it has more than STRINGS_PER_KEY times as many strings.
    """
    if count_keys(data) <= keys_max:  # Those in strings are counted too, so it has no more.
        return False
    plain = cut_escapes(data)
    if plain.count(b'"') > 2 * STRINGS_PER_KEY * keys_max:
        return True
    return count_keys(cut_strings(plain)) > keys_max


def count_keys(data: bytes) -> int:
    """Return the number of keys, objects and lists in JSON without strings."""
    return data.count(b":") + data.count(b"[") + data.count(b"{")


def cut_escapes(data: bytes) -> bytes:
    """Return JSON without escaped quotes, so that each quote begins or ends a string."""
    return data.replace(b"\\\\", b"").replace(b'\\"', b"")


def cut_strings(plain: bytes) -> bytes:
    """Return JSON without its strings. It must not have escaped quotes."""
    return b"".join(plain.split(b'"')[::2])
