"""Registered memory. Every registration is a claim on a range of bytes; claims that overlap share one range of the engine,
which is their union."""

from __future__ import annotations

import os
import threading
from ctypes import c_char
from typing import List, NamedTuple, Optional, Tuple

from starling import InvalidError, NotFoundError
from starling.transfer import Engine, Span


class _Claim(NamedTuple):
    base: int
    end: int


def _unions(claims: List[_Claim]) -> List[_Claim]:
    found: List[_Claim] = []
    for claim in sorted(claims):
        if found and claim.base < found[-1].end:
            found[-1] = _Claim(found[-1].base, max(found[-1].end, claim.end))
        else:
            found.append(claim)
    return found


def _is_mapped(claim: _Claim) -> bool:
    """Whether this process can read the first and the last byte. Memory of a GPU is not mapped for processors."""
    ends = os.pipe()
    try:
        return all(os.write(ends[1], c_char.from_address(address)) for address in (claim.base, claim.end - 1))
    except OSError:
        return False
    finally:
        for end in ends:
            os.close(end)


class Memory:
    """The registered memory of an engine. Any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._claims: List[_Claim] = []

    def add(self, base: int, size: int, location: str) -> None:
        """Registers `size` bytes at the address. Raises StarlingError."""
        claim = _Claim(base, base + size)
        if base <= 0 or size <= 0 or claim.end > 2**64:
            raise InvalidError(f"memory at {base:#x} of {size} bytes is no range")
        if location and location != "*" and not location.startswith("cpu:") or not _is_mapped(claim):
            raise InvalidError(f"memory at {base:#x} of {size} bytes is not memory of the host (location {location}): memory of a "
                               "GPU is not supported")
        with self._lock:
            self._change([*self._claims, claim], location)

    def remove(self, base: int) -> None:
        """Ends the last registration that began there. Raises StarlingError."""
        with self._lock:
            index = next((i for i in reversed(range(len(self._claims))) if self._claims[i].base == base), None)
            if index is None:
                raise NotFoundError(f"no registered memory begins at {base:#x}")
            self._change(self._claims[:index] + self._claims[index + 1:])

    def _change(self, claims: List[_Claim], location: Optional[str] = None) -> None:
        before, after = set(_unions(self._claims)), set(_unions(claims))
        gone, new = before - after, after - before
        if gone:
            self._engine.unregister(*(Span(each.base, each.end - each.base) for each in gone))
        if new:
            self._engine.register(*(Span(each.base, each.end - each.base) for each in new), location=None if gone else location)
        self._claims = claims

    def has(self, base: int, size: int) -> bool:
        """Whether all these bytes are registered."""
        return any(each.base <= base and 0 <= size <= each.end - base for each in _unions(self._claims))

    def first(self) -> int:
        """The lowest registered address; 0: none."""
        return min((claim.base for claim in self._claims), default=0)
