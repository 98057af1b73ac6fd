"""Conversion of keys, and the words for arrays that are not accepted. The extension calls these
functions for arrays that it cannot use as they are."""

from __future__ import annotations

import math
from typing import Any, Tuple

import numpy
from numpy.typing import NDArray

_KEYS = "accepted: an array of 64-bit integers of one dimension"
_FLOATS = "accepted: a contiguous float32 array"
_NARROW = ("float16", "bfloat16")


def _is_tensor(given: Any) -> bool:
    return hasattr(given, "detach") and hasattr(given, "numpy")


def _numpy_of(given: Any, name: str, accepted: str) -> NDArray[Any]:
    """Returns a NumPy array on the memory of an array or tensor."""
    if isinstance(given, numpy.ndarray):
        return given
    try:
        return numpy.asarray(given.numpy() if _is_tensor(given) else memoryview(given))
    except (RuntimeError, TypeError) as error:  # a tensor that needs a gradient, or is on another device
        reason = error if _is_tensor(given) else f"{type(given).__name__}, which has no memory of values"
        raise TypeError(f"{name}: {reason}; {accepted} of NumPy, or a CPU tensor of torch") from None


def _text(array: NDArray[Any]) -> str:
    return f"{array.dtype} of shape {array.shape}"


def keys(given: Any, name: str) -> NDArray[Any]:
    """Returns keys as a contiguous array of int64 or uint64 of one dimension: the array itself, or a
    copy of other integers."""
    if isinstance(given, (list, tuple, range)):
        array = numpy.asarray(given) if len(given) else numpy.empty(0, numpy.int64)
    else:
        array = _numpy_of(given, name, _KEYS)
    if array.dtype.kind not in "iu":
        convert = ".long()" if _is_tensor(given) else ".astype(numpy.int64)"
        raise TypeError(f"{name}: {_text(array)}; {_KEYS}; convert with {name}{convert}")
    if array.ndim != 1:
        raise ValueError(f"{name}: {_text(array)}; {_KEYS}; convert with {name}.reshape(-1)")
    kind = numpy.uint64 if array.dtype.kind == "u" else numpy.int64
    return numpy.require(array, kind, ["C", "A"])


def _is_narrow(given: Any) -> bool:
    return str(getattr(given, "dtype", "")).rpartition(".")[2] in _NARROW  # "torch.bfloat16"


def floats(given: Any, name: str, rows: int, columns: int) -> NDArray[numpy.float32]:
    """Returns the NumPy array of a tensor, a float32 copy of an array or tensor of float16 or bfloat16, or
    raises the error that an array of values deserves. The shape is (rows, columns), or (rows,) if columns is -1."""
    if _is_narrow(given):
        given = given.float().contiguous() if _is_tensor(given) else given.astype(numpy.float32, "C")
    return _checked(given, name, rows, columns, False)


def receiver(given: Any, name: str, rows: int, columns: int) -> Tuple[NDArray[numpy.float32], bool]:
    """The same for an array that receives values, and whether it is new: narrow() copies its values."""
    is_new = _is_narrow(given)
    if is_new:  # the conversion of no values refuses what a conversion back would
        none = given.reshape(-1)[:0]
        _numpy_of(none.float() if _is_tensor(given) else none, name, _FLOATS)
        given = numpy.empty(tuple(given.shape), numpy.float32)
    return _checked(given, name, rows, columns, True), is_new


def narrow(to: Any, values: NDArray[numpy.float32]) -> None:
    """Copies values to an array or tensor of float16 or bfloat16."""
    if _is_tensor(to):
        import torch
        to.copy_(torch.from_numpy(values))
    else:
        to[...] = values


def _checked(given: Any, name: str, rows: int, columns: int, writable: bool) -> NDArray[numpy.float32]:
    array = _numpy_of(given, name, _FLOATS)
    is_tensor = _is_tensor(given)
    if array.dtype != numpy.float32 or not array.dtype.isnative:
        convert = ".float()" if is_tensor else ".astype(numpy.float32)"
        raise TypeError(f"{name}: {_text(array)}; {_FLOATS}; convert with {name}{convert}")
    shape = (rows,) if columns < 0 else (rows, columns)
    if array.ndim == 2 and array.shape[1] == columns and array.shape[0] != rows:
        raise ValueError(f"{name}: {array.shape[0]} rows for {rows} keys or bags; accepted: {rows} rows")
    if array.shape != shape:
        is_flat = columns < 0 and array.ndim != 1
        text, size = ("one dimension", -1) if is_flat else (f"shape {shape}", shape)
        convert = f"; convert with {name}.reshape({size})" if is_flat or array.size == math.prod(shape) else ""
        raise ValueError(f"{name}: {_text(array)}; accepted: float32 of {text}{convert}")
    if not (array.flags.c_contiguous and array.flags.aligned):
        convert = f"{name}.contiguous()" if is_tensor else f"numpy.ascontiguousarray({name})"
        raise ValueError(f"{name}: {_text(array)} with strides {array.strides}; {_FLOATS}; convert with {convert}")
    if writable and not array.flags.writeable:
        raise ValueError(f"{name}: {_text(array)}, read-only; accepted: a writable float32 array; "
                         f"convert with {name}.copy()")
    return array


def bag_ends(offsets: Any, key_count: int) -> NDArray[numpy.uint32]:
    """Converts the first key of each bag to the end of each bag."""
    begins = keys(offsets, "offsets")
    if begins.size == 0 and key_count > 0:
        raise ValueError(f"offsets: 0 bags for {key_count} keys; accepted: at least one bag")
    if begins.size > 0 and begins[0] != 0:
        raise ValueError(f"offsets: the first is {begins[0]}; accepted: 0")
    falls = numpy.flatnonzero(begins[1:] < begins[:-1])
    if falls.size > 0:
        raise ValueError(f"offsets: {begins[falls[0] + 1]} after {begins[falls[0]]}; accepted: offsets that ascend")
    if begins.size > 0 and begins[-1] > key_count:
        raise ValueError(f"offsets: {begins[-1]} for {key_count} keys; accepted: at most {key_count}")
    return numpy.append(begins[1:], key_count)[:begins.size].astype(numpy.uint32)
