"""Merges rankings, and finds the nearest vectors.

A vector is stored as 32-bit floats, scaled to length one, so that the cosine of two vectors is
their scalar product.
"""

import math
import sys
from array import array
from collections.abc import Iterable, Sequence
from heapq import nlargest
from operator import mul

RANK_OFFSET = 60
"""The usual constant of reciprocal rank fusion: the larger, the less the first places stand out."""


def merge_rankings(
    words: Sequence[tuple[int, float]], near: Sequence[int] | None
) -> list[tuple[int, float]]:
    """One ranking of what words found and, if given, what meaning found.

    The scores of the two cannot be compared, so only the ranks count: high in both is best.
    """
    if near is None:
        return list(words)
    scores: dict[int, float] = {}
    for ranking in ([number for number, _ in words], near):
        for rank, number in enumerate(ranking, 1):
            scores[number] = scores.get(number, 0.0) + 1 / (RANK_OFFSET + rank)
    return sorted(scores.items(), key=lambda item: (-item[1], -item[0]))


def pack_vector(vector: Sequence[float]) -> bytes:
    """A vector as it is stored. Raises ValueError if it has no direction."""
    length = math.hypot(*vector)
    if not math.isfinite(length) or length == 0:
        raise ValueError("the vector is zero, or holds infinite or missing numbers")
    scaled = array("f", [value / length for value in vector])
    return _swap_to_little_endian(scaled).tobytes()


def find_nearest(query: bytes, rows: Iterable[tuple[int, bytes]], limit: int) -> list[int]:
    """The numbers of the rows whose vectors are nearest to the query, the nearest first."""
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
    """Stored vectors are little-endian, so that a file can be moved between machines."""
    if sys.byteorder == "big":
        vector.byteswap()
    return vector
