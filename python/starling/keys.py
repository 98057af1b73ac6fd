"""Distinct keys, for programs that handle the gradients of keys themselves."""

from __future__ import annotations

from typing import Any, Tuple

import numpy
from numpy.typing import NDArray

from . import _arrays, _native
from .tables import Keys


def unique(keys: Keys) -> Tuple[NDArray[Any], NDArray[numpy.int64], NDArray[numpy.int64]]:
    """Returns (unique, inverse, counts): the distinct keys in the order of first appearance, by a hash.

    unique is (m,), int64 or uint64 as the keys. inverse is (n,): unique[inverse] is keys. counts is
    (m,): the appearances of each.

    keys: (n,), as of a table: an array of NumPy, a CPU tensor, other integers.

    Raises TypeError or ValueError for other keys, TooLargeError. Any thread; needs no client.
    """
    given = _arrays.keys(keys, "keys")
    found = numpy.empty_like(given)
    inverse, counts = numpy.empty(given.shape, numpy.uint32), numpy.empty(given.shape, numpy.uint32)
    count = _native.unique(given, found, inverse, counts)
    return found[:count], inverse.astype(numpy.int64), counts[:count].astype(numpy.int64)
