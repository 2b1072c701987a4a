"""Rankings into one, and vectors near to one.

A vector is kept as 32-bit floats of length one, so that the cosine of two is their product.
"""

import math
import sys
from array import array
from collections.abc import Iterable, Sequence
from heapq import nlargest
from operator import mul

RANK_OFFSET = 60
"""How little the first places count over the next: the usual figure for reciprocal rank fusion."""


def merge_rankings(
    words: Sequence[tuple[int, float]], near: Sequence[int] | None
) -> list[tuple[int, float]]:
    """What words found, in order; or, with what meaning found, both in one order.

    The scores of the two cannot be compared, so only the places count: to be high in both is best.
    """
    if near is None:
        return list(words)
    scores: dict[int, float] = {}
    for ranking in ([number for number, _ in words], near):
        for rank, number in enumerate(ranking, 1):
            scores[number] = scores.get(number, 0.0) + 1 / (RANK_OFFSET + rank)
    return sorted(scores.items(), key=lambda one: (-one[1], -one[0]))


def pack_vector(vector: Sequence[float]) -> bytes:
    """A vector as it is stored; raises ValueError if it has no direction."""
    length = math.hypot(*vector)
    if not math.isfinite(length) or length == 0:
        raise ValueError("a vector of zeros or of no numbers")
    return _swap_to_little_endian(array("f", [one / length for one in vector])).tobytes()


def find_nearest(query: bytes, rows: Iterable[tuple[int, bytes]], limit: int) -> list[int]:
    """The numbers of the rows whose vectors point most the way of the query's."""
    wanted = _unpack_vector(query)
    scored = (
        (sum(map(mul, wanted, _unpack_vector(row))), -number)
        for number, row in rows
        if len(row) == len(query)
    )
    return [-number for score, number in nlargest(limit, scored) if score > 0]


def _unpack_vector(data: bytes) -> "array[float]":
    vector = array("f")
    vector.frombytes(data)
    return _swap_to_little_endian(vector)


def _swap_to_little_endian(vector: "array[float]") -> "array[float]":
    """Little-endian wherever it was made: a file may be moved."""
    if sys.byteorder == "big":
        vector.byteswap()
    return vector
