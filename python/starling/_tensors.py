"""Tensors of NumPy, of torch and of .safetensors files as memory with a type and a shape."""

from __future__ import annotations

import glob
import json
import math
import mmap
import os
import sys
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy
from numpy.typing import NDArray


class Kind(NamedTuple):
    """A type of elements. name: as torch and ml_dtypes have it."""

    number: int  # enum sl_object_type
    name: str
    file_name: str  # in .safetensors
    bits: int
    dtype: numpy.dtype[Any]  # of NumPy, or of the raw bytes
    is_raw: bool  # NumPy has no such type


def _kind(number: int, name: str, file_name: str, bits: int, raw: str = "") -> Kind:
    return Kind(number, name, file_name, bits, numpy.dtype(raw or name), bool(raw))


KINDS = [
    _kind(0, "bool", "BOOL", 8), _kind(1, "uint8", "U8", 8), _kind(2, "int8", "I8", 8), _kind(3, "uint16", "U16", 16),
    _kind(4, "int16", "I16", 16), _kind(5, "uint32", "U32", 32), _kind(6, "int32", "I32", 32), _kind(7, "uint64", "U64", 64),
    _kind(8, "int64", "I64", 64), _kind(9, "float16", "F16", 16), _kind(10, "bfloat16", "BF16", 16, "uint16"),
    _kind(11, "float32", "F32", 32), _kind(12, "float64", "F64", 64), _kind(13, "float8_e4m3fn", "F8_E4M3", 8, "uint8"),
    _kind(14, "float8_e5m2", "F8_E5M2", 8, "uint8"), _kind(15, "float8_e8m0fnu", "F8_E8M0", 8, "uint8"),
    _kind(16, "float8_e4m3fnuz", "F8_E4M3FNUZ", 8, "uint8"), _kind(17, "float8_e5m2fnuz", "F8_E5M2FNUZ", 8, "uint8"),
    _kind(18, "complex64", "C64", 64), _kind(19, "float4_e2m1fn", "F4", 4, "uint8"),
    _kind(20, "float6_e2m3fn", "F6_E2M3", 6, "uint8"), _kind(21, "float6_e3m2fn", "F6_E3M2", 6, "uint8")]
_BY_NAME = {kind.name: kind for kind in KINDS}
_BY_FILE_NAME = {kind.file_name: kind for kind in KINDS}
_PACKED = "float4_e2m1fn_x2"  # of torch: two in a byte
_HEADER_BYTES_MAX = 100 << 20  # as safetensors has it


class Raw(NamedTuple):
    """A tensor of a type that NumPy does not have, as bytes.

    dtype: "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", or the name of a type of NumPy.
    shape: of the elements. data: their bytes, row-major, such as an array of uint8 or uint16, or a memoryview.
    """

    dtype: str
    shape: Tuple[int, ...]
    data: Any


class Tensor(NamedTuple):
    """Memory of a tensor. array: on its bytes, of kind.dtype; of types below 8 bits one row of all bytes."""

    name: str
    kind: Kind
    shape: Tuple[int, ...]
    array: NDArray[Any]
    owner: Any  # keeps the memory

    def text(self) -> str:
        return f"{self.kind.name} of shape {self.shape}"


class _Memory:
    """What NumPy makes an array of, which keeps the owner of the memory."""

    def __init__(self, address: int, shape: Sequence[int], dtype: numpy.dtype[Any], writable: bool, owner: Any) -> None:
        self.__array_interface__ = {"data": (address, not writable), "shape": tuple(shape), "typestr": dtype.str, "version": 3}
        self.owner = owner


def array_at(address: int, kind: Kind, shape: Sequence[int], writable: bool, owner: Any) -> NDArray[Any]:
    """An array on memory that the owner keeps."""
    if kind.bits < 8:
        shape = (math.prod(shape) * kind.bits // 8,)
    if 0 in shape:
        return numpy.empty(shape, kind.dtype)
    return numpy.asarray(_Memory(address, shape, kind.dtype, writable, owner))


def is_torch(value: Any) -> bool:
    return "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor)


def kind_of(dtype: Any) -> Optional[Kind]:
    """The kind of a dtype of NumPy, ml_dtypes or torch, or of its name."""
    if isinstance(dtype, numpy.dtype) or (isinstance(dtype, type) and not isinstance(dtype, str)):
        dtype = numpy.dtype(dtype)
        return _BY_NAME.get(dtype.name) if dtype.isnative and dtype.names is None else None
    name = str(dtype).replace("torch.", "", 1)
    return _BY_NAME.get("float4_e2m1fn" if name == _PACKED else name)


def torch_dtype(kind: Kind) -> Any:
    """The dtype of torch, or None: this torch has no such type, or there is no torch."""
    try:
        import torch
    except ImportError:
        return None
    return getattr(torch, _PACKED if kind.bits == 4 else kind.name, None)


def _of_torch(name: str, value: Any, is_target: bool) -> Tensor:
    kind = kind_of(value.dtype)
    if kind is None or str(value.layout) != "torch.strided":
        raise TypeError(f"{name}: {value.dtype}, {value.layout}; accepted: torch.strided of {', '.join(_BY_NAME)}")
    value = value.detach()
    if not is_target:
        value = value.cpu().resolve_conj().resolve_neg().contiguous()
    elif value.device.type != "cpu":
        raise ValueError(f"{name}: a tensor on {value.device}; accepted: memory of the host, such as {name}.cpu()")
    elif not value.is_contiguous() or value.is_conj() or value.is_neg():
        raise ValueError(f"{name}: {value.dtype} of shape {tuple(value.shape)} with strides {value.stride()}; accepted: "
                         "a contiguous tensor")
    shape = tuple(value.shape)
    if kind.bits == 4:
        shape = (*shape[:-1], 2 * shape[-1])
    return Tensor(name, kind, shape, array_at(value.data_ptr(), kind, shape, True, value), value)


def _of_numpy(name: str, value: NDArray[Any], is_target: bool) -> Tensor:
    kind = kind_of(value.dtype)
    if kind is None:
        raise TypeError(f"{name}: {value.dtype}; accepted: {', '.join(_BY_NAME)}, in this machine's byte order")
    if not is_target:
        value = numpy.ascontiguousarray(value).reshape(value.shape)
    elif not value.flags.c_contiguous:
        raise ValueError(f"{name}: {value.dtype} of shape {value.shape} with strides {value.strides}; accepted: a "
                         "contiguous array")
    elif not value.flags.writeable:
        raise ValueError(f"{name}: {value.dtype} of shape {value.shape}, read-only; accepted: a writable array")
    return Tensor(name, kind, value.shape, value.view(kind.dtype) if kind.is_raw else value, value)


def _of_raw(name: str, value: Raw) -> Tensor:
    kind = kind_of(value.dtype)
    if kind is None:
        raise TypeError(f"{name}: {value.dtype}; accepted: {', '.join(_BY_NAME)}")
    shape = tuple(value.shape)
    data = numpy.frombuffer(value.data, numpy.uint8)
    if any(size < 0 for size in shape) or math.prod(shape) * kind.bits != 8 * data.size:
        raise ValueError(f"{name}: {data.size} bytes; accepted: as many as {kind.name} of shape {shape} has")
    array = data if kind.bits < 8 or data.size == 0 else data.view(kind.dtype).reshape(shape)
    return Tensor(name, kind, shape, array, value.data)


def tensor(name: Any, value: Any, is_target: bool) -> Tensor:
    """The memory of an array or tensor. is_target: that is written; else it may be a copy.

    Raises TypeError and ValueError, which name it and what is accepted.
    """
    if not isinstance(name, str) or not 1 <= len(name.encode(errors="surrogateescape")) <= 255 or "\0" in name:
        raise ValueError(f"{name!r}: no name of a tensor; accepted: a str of 1 to 255 bytes")
    if is_torch(value):
        return _of_torch(name, value, is_target)
    if isinstance(value, (numpy.ndarray, numpy.generic)) and not (is_target and isinstance(value, numpy.generic)):
        return _of_numpy(name, numpy.asarray(value), is_target)
    if isinstance(value, Raw) and not is_target:
        return _of_raw(name, value)
    raise TypeError(f"{name}: {type(value).__name__}; accepted: an array of NumPy, a tensor of torch"
                    f"{'' if is_target else ', starling.objects.Raw'}")


Given = Union[Mapping[str, Any], Iterable[Tuple[str, Any]], str, "os.PathLike[str]"]


def tensors(given: Given) -> Iterator[Tensor]:
    """The tensors of a mapping, of pairs of name and tensor, of a .safetensors file, or of all those in a directory."""
    if isinstance(given, (str, os.PathLike)):
        yield from (_of_raw(name, raw) for path in _files(os.fspath(given)) for name, raw in read_file(path))
        return
    for pair in given.items() if isinstance(given, Mapping) else given:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"tensors: {type(pair).__name__}; accepted: pairs of name and tensor, a mapping, or a path")
        yield tensor(pair[0], pair[1], False)


def _files(path: str) -> List[str]:
    if not os.path.isdir(path):
        return [path]
    found = sorted(glob.glob(os.path.join(glob.escape(path), "*.safetensors")))
    if not found:
        raise ValueError(f"{path}: no file *.safetensors; accepted: a directory that has one, or such a file")
    return found


def read_file(path: str) -> Iterator[Tuple[str, Raw]]:
    """The tensors of a .safetensors file, on its mapped pages. Raises ValueError if it is none."""
    with open(path, "rb") as file:
        file_bytes = os.fstat(file.fileno()).st_size
        pages = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file_bytes > 0 else b"")
    header_bytes = int.from_bytes(pages[:8], "little")
    begin = 8 + header_bytes
    try:
        if header_bytes > _HEADER_BYTES_MAX or begin > file_bytes:
            raise ValueError(f"a header of {header_bytes} bytes in a file of {file_bytes}")
        header = json.loads(bytes(pages[8:begin]))
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            at, end = entry["data_offsets"]
            if not isinstance(at, int) or not isinstance(end, int) or not 0 <= at <= end <= file_bytes - begin:
                raise ValueError(f"{name}: bytes {at} to {end} of {file_bytes - begin}")
            yield name, Raw(_BY_FILE_NAME[entry["dtype"]].name, tuple(entry["shape"]), pages[begin + at:begin + end])
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: no .safetensors file: {type(error).__name__}: {error}") from None


# Copies

_FLOATS = frozenset(kind.name for kind in KINDS if "float" in kind.name)


def cast_kind(kind: Kind, dtype: Optional[Kind]) -> Kind:
    """What a tensor becomes: other types than those of floating point are not cast."""
    return dtype if dtype is not None and kind.name in _FLOATS else kind


def empty(kind: Kind, shape: Tuple[int, ...]) -> Any:
    """New memory: an array of NumPy, or a tensor of torch if only torch has the type; else raw bytes."""
    dtype = torch_dtype(kind) if kind.is_raw else None
    if dtype is not None:
        import torch
        return torch.empty(shape if kind.bits == 8 * kind.dtype.itemsize else (*shape[:-1], shape[-1] // 2), dtype=dtype)
    return numpy.empty(shape if kind.bits >= 8 else math.prod(shape) * kind.bits // 8, kind.dtype)


def on_torch(array: NDArray[Any], kind: Kind, shape: Tuple[int, ...]) -> Any:
    """A tensor of torch on the memory of a raw or other array, which must be writable for torch."""
    import torch
    dtype = torch_dtype(kind)
    if dtype is None:
        raise TypeError(f"{kind.name}: this torch has no such type")
    if kind.bits < 8:
        shape = (*shape[:-1], shape[-1] // 2)
    flat = torch.from_numpy(array.reshape(-1).view(numpy.uint8)) if array.size else torch.empty(0, dtype=torch.uint8)
    return flat.view(dtype).reshape(shape)


def cast(source: Tensor, target: Tensor) -> None:
    """Copies the elements to a tensor of another type. Raises TypeError if neither NumPy nor torch can."""
    if source.kind.name == "bfloat16" and not target.kind.is_raw:
        wide = (source.array.astype(numpy.uint32) << 16).view(numpy.float32)
        numpy.copyto(target.array, wide, casting="unsafe")
    elif not source.kind.is_raw and not target.kind.is_raw:
        numpy.copyto(target.array, source.array, casting="unsafe")
    else:
        array = numpy.ascontiguousarray(source.array)
        on_torch(target.array, target.kind, target.shape).copy_(
            on_torch(array if array.flags.writeable else array.copy(), source.kind, source.shape))


def can_cast(source: Kind, target: Kind) -> bool:
    """Whether cast does it here."""
    if source is target:
        return True
    if not target.is_raw and (not source.is_raw or source.name == "bfloat16"):
        return True
    return source.bits >= 8 and target.bits >= 8 and torch_dtype(source) is not None and torch_dtype(target) is not None
