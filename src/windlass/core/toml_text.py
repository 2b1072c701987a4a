"""TOML from files that a stranger may have written.

Invariant: whatever is in a text, reading it takes time in proportion to its length, and ends in a
value or in one kind of error.
"""

import re
import tomllib

KEY_PARTS_MAX = 32

# The parser of the standard library takes a minute for a key of a few thousand parts. The parts are
# read possessively, so that this search itself stays linear.
_LONG_KEY = re.compile(
    rf"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{KEY_PARTS_MAX}}}"""
)


def read_toml(text: str) -> dict[str, object]:
    """Return the values of a TOML text. Raises tomllib.TOMLDecodeError if it is not valid."""
    if found := _LONG_KEY.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise tomllib.TOMLDecodeError(f"a key has more than {KEY_PARTS_MAX} parts (line {line})")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise tomllib.TOMLDecodeError("its values are nested too deeply") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:
        # Python refuses to read a whole number of thousands of digits.
        raise tomllib.TOMLDecodeError("a number in it has too many digits") from None
