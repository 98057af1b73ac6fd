"""Weights and other tensors as named, numbered, immutable versions that processes publish, fetch and share.

    import starling.objects

    with starling.objects.serve() as node:  # others: starling.objects.connect(node.address)
        node.publish("policy", model.state_dict(), note="step 1200")
        got = node.fetch("policy", into=model.state_dict())

docs/objects.md describes versions, nodes, agents and keepers. Arrays of NumPy and tensors of torch on the host's memory
are used where they are; torch is optional. Any thread may call any function. A node belongs to its process: in a forked
child it raises ForkError. Ctrl-C ends each wait at once; the copy of a fetch, and that of a publication, end first.
"""

from __future__ import annotations

import atexit
import collections
import ctypes
import math
import os
import signal
import sys
import threading
import time
import weakref
from ctypes import POINTER, byref, c_uint64, c_void_p, sizeof
from types import TracebackType
from typing import (Any, Callable, Dict, Iterator, List, Mapping, MutableMapping, NamedTuple, NoReturn, Optional, Set,
                    Tuple, Type, Union)

import numpy
from numpy.typing import NDArray

from . import _library, _tensors
from ._library import MS, Context, Handle, invoke
from ._tensors import Given, Raw, Tensor
from .cluster import _program, _Server
from .errors import CancelledError, DeadlineError, ExistsError, NotFoundError, StarlingError, UnsupportedError

__all__ = ["Fetched", "Node", "Raw", "Staleness", "Version", "View", "connect", "serve"]

_NOT_FOUND = -8
_NAMED = 3  # tensors in the text of an error
_HASH_AND_COPY = 5e8  # bytes per second: what a publication does at least before it waits
_ALONE_BYTES = 4 << 20  # so much is copied by one thread
_COPIERS_MAX = 4
_METRICS_BYTES = 16 << 10
_ORIGINS = ("host", "ps", "caller")
_Path = Union[str, "os.PathLike[str]"]
_Slices = Mapping[str, Any]
_Number = Union[int, str]
_open_nodes: Set[Node] = set()
os.register_at_fork(after_in_child=_open_nodes.clear)


class Fetched(NamedTuple):
    """A version that was fetched."""

    version: int  #: its number
    note: str  #: of the publisher
    seconds: float  #: from the call, or the announcement, to the last byte
    tensors: Dict[str, Any]  #: by name: those of `into`, or new ones
    skipped: int = 0  #: of follow: numbers between the version before and this one

    def torch(self) -> Dict[str, Any]:
        """Returns the tensors as tensors of torch, on the same memory. Raises TypeError if this torch lacks a type; but
        raw bytes stay bytes."""
        found = {}
        for name, value in self.tensors.items():
            if not _tensors.is_torch(value):
                one = _tensors.tensor(name, value, True)
                value = _tensors.on_torch(one.array, one.kind, one.shape)
            found[name] = value
        return found


class Version(NamedTuple):
    """A version in the list of Node.versions."""

    name: str
    version: int
    bytes: int  #: of all parts
    time: float  #: Unix time of the commit, in seconds
    holders: int  #: nodes that serve the part that has the fewest of them
    parts: int
    origin: str  #: "host", "ps" (stored by keepers) or "caller"
    note: str


class Staleness(NamedTuple):
    """How old the version in use is: that of the last view, fetch or version of follow."""

    version: int  #: in use; 0: none
    newest: int  #: announced; 0: none
    behind: int  #: newest - version
    behind_seconds: float  #: since the first newer version was committed
    measured_seconds: float  #: since the first version was used; of the means
    behind_mean: float  #: weighted by time
    behind_seconds_mean: float
    opened: int  #: versions that were used
    skipped: int  #: numbers between them


class View(Mapping[str, NDArray[Any]]):
    """A version in this host's memory, as read-only arrays of NumPy without a copy. Node.view opens it.

    Types that NumPy does not have are raw bytes: bfloat16 as uint16, those of 8 bits as uint8, and those of 4 and 6
    bits as one row of uint8. Arrays may outlive the view: the memory stays until the last of them is gone.

    version, note: of the version.
    """

    def __init__(self, node: Node, subscription: Handle, handle: Handle, context: Context) -> None:
        with handle as pointer:
            self.version: int = _library.load().sl_view_version(pointer)
            self.note: str = _library.load().sl_view_note(pointer).decode(errors="replace")
            self._pin: Optional[_Pin] = _Pin(node, subscription, handle)
            self._tensors = _read_tensors(pointer, self._pin, context)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._tensors[name][0].array

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def torch(self, name: str) -> Any:
        """Returns a tensor of torch on the same memory. A write to it ends the process: it is mapped read-only.

        Raises KeyError, and TypeError if this torch lacks the type.
        """
        tensor = self._tensors[name][0]
        writable = _tensors.array_at(tensor.array.ctypes.data, tensor.kind, tensor.shape, True, tensor.array)
        return _tensors.on_torch(writable, tensor.kind, tensor.shape)

    def close(self) -> None:
        """Ends the view. A second close does nothing."""
        self._tensors = {}
        pin, self._pin = self._pin, None
        if pin is not None and sys.getrefcount(pin) == 2:  # no array has it
            pin.close()

    def __enter__(self) -> View:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.close()


class _Pin:
    """An open view, which ends with the last array on it."""

    def __init__(self, node: Node, subscription: Handle, handle: Handle) -> None:
        self._node, self._subscription, self._handle = node, subscription, handle

    def close(self) -> None:
        self._handle.close()
        self._node._give(self._subscription)

    def __del__(self) -> None:
        if not self._handle.closed:
            self._handle.close_here()
            self._node._give(self._subscription)


def _read_tensors(view: c_void_p, owner: Any, context: Context) -> Dict[str, Tuple[Tensor, int]]:
    """The tensors of a view, and where each ends in the images of all parts."""
    found: Dict[str, Tuple[Tensor, int]] = {}
    cursor, offset, one = c_uint64(), c_uint64(), _library.Tensor()
    next_tensor = _library.load().sl_view_next_tensor
    while next_tensor(view, byref(cursor), byref(one), byref(offset)) != _NOT_FOUND:
        name = one.name.decode(errors="surrogateescape")
        if name in found:
            raise ExistsError(f"{context.what} {context.name}: several parts have a tensor {name}; accepted: each name once")
        kind, shape = _tensors.KINDS[one.type], tuple(one.shape[:one.rank])
        if not one.data and one.bytes > 0:
            raise UnsupportedError(f"{context.what} {context.name}: {name} is split over memory of this process")
        found[name] = (Tensor(name, kind, shape, _tensors.array_at(one.data or 0, kind, shape, False, owner), owner),
                       offset.value + one.bytes)
    return found


# Copies of a fetch

class _Misfits:
    """Tensors that cannot be fetched as asked. Nothing was written."""

    def __init__(self) -> None:
        self._found: List[Tuple[Type[Exception], str]] = []

    def add(self, kind: Type[Exception], text: str) -> None:
        self._found.append((kind, text))

    def check(self, context: Context) -> None:
        if self._found:
            more = len(self._found) - _NAMED
            texts = "; ".join([text for _, text in self._found[:_NAMED]] + ([f"and {more} more"] if more > 0 else []))
            raise self._found[0][0](f"{context.what} {context.name}: {len(self._found)} of the tensors do not fit: {texts}")


def _check_names(found: Mapping[str, Any], into: Mapping[str, Any], context: Context) -> None:
    texts = []
    for names, what in (([name for name in found if name not in into], "of the version are not in `into`"),
                        ([name for name in into if name not in found], "of `into` are not in the version")):
        if names:
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            texts.append(f"{len(names)} tensors {what}: {', '.join(map(str, names[:_NAMED]))}{more}")
    if texts:
        raise ValueError(f"{context.what} {context.name}: {'; '.join(texts)}; accepted: the same names")


def _sliced(source: Tensor, index: Any) -> Tensor:
    items = index if isinstance(index, tuple) else (index,)
    if not all(isinstance(each, slice) for each in items) or source.kind.bits < 8:
        raise ValueError(f"{source.name}: slices {index!r} of {source.text()}; accepted: a tuple of slices, of types of whole bytes")
    if len(items) > len(source.shape):
        raise ValueError(f"{source.name}: {len(items)} slices of {source.text()}; accepted: one for each dimension")
    array = source.array[items]
    return source._replace(shape=array.shape, array=array)


class _Plan:
    """The copies of a fetch, from memory of the pool to the caller's. All is checked before anything is written."""

    def __init__(self, found: Mapping[str, Tuple[Tensor, int]], into: Optional[MutableMapping[str, Any]], dtype: Any,
                 slices: Optional[_Slices], context: Context) -> None:
        self.copies: List[Tuple[Tensor, Tensor, int]] = []  # from, to, end of its bytes
        self.tensors: Dict[str, Any] = {}
        wanted = _tensors.kind_of(dtype) if dtype is not None else None
        if dtype is not None and wanted is None:
            raise TypeError(f"dtype: {dtype!r}; accepted: {', '.join(kind.name for kind in _tensors.KINDS)}")
        if into is not None:
            _check_names(found, into, context)
        for name in slices or {}:
            if name not in found:
                raise ValueError(f"slices: the version has no tensor {name!r}; it has {len(found)}")
        misfits = _Misfits()
        for name, (source, end) in found.items():
            try:
                source = _sliced(source, slices[name]) if slices and name in slices else source
                kind = _tensors.cast_kind(source.kind, wanted)
                if not _tensors.can_cast(source.kind, kind):
                    raise TypeError(f"{name}: {source.kind.name} as {kind.name} needs a torch that has both types")
                self.tensors[name] = _tensors.empty(kind, source.shape) if into is None else into[name]
                self.copies.append((source, _fit(name, self.tensors[name], kind, source), end))
            except (TypeError, ValueError) as error:
                misfits.add(type(error), str(error))
        misfits.check(context)
        self.copies.sort(key=lambda copy: copy[2])

    def copy(self, index: int) -> None:
        source, target, _ = self.copies[index]
        if source.kind is target.kind:
            numpy.copyto(target.array, source.array)
        else:
            _tensors.cast(source, target)

    def copy_all(self) -> None:
        """On several threads: most of the time goes to pages of the view that are touched for the first time."""
        left = collections.deque(range(len(self.copies)))
        errors: List[BaseException] = []

        def copy_some() -> None:
            try:
                while not errors:
                    self.copy(left.popleft())
            except IndexError:
                pass
            except BaseException as error:
                errors.append(error)
        count = min(_COPIERS_MAX, os.cpu_count() or 1, len(left)) if self._bytes() > _ALONE_BYTES else 1
        threads = [threading.Thread(target=copy_some, name="starling-copy") for _ in range(count - 1)]
        for each in threads:
            each.start()
        copy_some()
        for each in threads:
            each.join()
        if errors:
            raise errors[0]

    def _bytes(self) -> int:
        return sum(target.array.nbytes for _, target, _ in self.copies)


def _fit(name: str, given: Any, kind: _tensors.Kind, source: Tensor) -> Tensor:
    """The memory of a target, if it has the type and the shape."""
    target = _tensors.tensor(name, given, True)
    if target.kind is not kind and kind.is_raw and isinstance(given, numpy.ndarray) and given.dtype == kind.dtype:
        target = target._replace(kind=kind, shape=source.shape if target.array.shape == source.array.shape else target.shape)
    if target.kind is not kind:
        raise TypeError(f"{name}: {target.text()}; the version has {kind.name} of shape {source.shape}")
    if target.shape != source.shape:
        raise ValueError(f"{name}: {target.text()}; the version has {kind.name} of shape {source.shape}")
    return target


# Nodes

def _version_number(context: Context, version: _Number) -> int:
    """0 for the newest."""
    if version == "newest":
        return 0
    if isinstance(version, str):
        raise context.invalid(f"version: {version!r}; accepted: \"newest\", or a number from 1")
    return _library.number(context, "version", version, 2**63 - 1, 1)


class Node:
    """A process's part in a catalogue: it publishes, fetches and serves versions. serve and connect make one.

    As a context manager it is closed at the end of the block.

    address: "host:port", by which other nodes reach this one. catalogue: that of the node with the catalogue.
    """

    def __init__(self, handle: Handle, catalogue: str, server: Optional[_Server]) -> None:
        self._handle, self._server = handle, server
        with handle as pointer:
            self.address: str = _library.load().sl_objects_address(pointer).decode()
        self.catalogue = catalogue or self.address
        self._idle: Dict[Tuple[str, bool], List[Handle]] = collections.defaultdict(list)
        self._recent: Dict[str, Handle] = {}
        self._keys: weakref.WeakKeyDictionary[Handle, Tuple[str, bool]] = weakref.WeakKeyDictionary()
        _open_nodes.add(self)

    # Publish

    def publish(self, name: str, tensors: Given, note: str = "", version: int = 0, *, part: int = 0, parts: int = 1,
                stored: Optional[bool] = None, take_over: bool = False, delta: bool = False, timeout: float = 60.0) -> int:
        """Publishes a version, waits until it is visible, and returns its number.

        The tensors are copied to the pool of this host's agent, or of this node, which then serves them, or to
        keepers: afterwards they may change. The newest 3 versions of a name are kept.

        name: 1 to 191 bytes, without space and "@".
        tensors: a mapping of names to arrays of NumPy, tensors of torch or Raw; pairs of name and tensor; the path of
        a .safetensors file, or of a directory with such files. Those that are not contiguous or on a GPU are copied
        to host memory before.
        note: up to 255 bytes, shown by lists.
        version: its number; 0: above all before. Needed if there are several parts.
        part, parts: several processes publish a part each, from 0, of one version, with names that differ. It is
        visible with all parts.
        stored: keepers store the version; None: yes if serve was called with a directory.
        take_over: replaces another publisher of this name, or part, such as one that was killed.
        delta: others that have the version before read only what has changed, compressed. The version is in the pool
        of this node then, not of the agent, and ends with this node unless others have fetched it.
        timeout: seconds, at most 3600, also of all others here.

        Raises TypeError or ValueError for other tensors, ExistsError (another process publishes the name, or the
        number has other bytes), ClosedError (another publisher took over), NoMemoryError and TooLargeError (of the
        pool), DeadlineError: then the version may become visible later.
        """
        context = self._context("publish", name, version)
        end = time.monotonic() + _library.milliseconds(context, timeout) / 1000
        given = list(_tensors.tensors(tensors))
        is_stored = self._server is not None if stored is None else stored
        options = _library.PublishOptions(
            struct_size=sizeof(_library.PublishOptions), name=_library.text(context, "name", name),
            note=_library.text(context, "note", note), version=_library.number(context, "version", version, 2**63 - 1),
            origin=int(is_stored), part=_library.number(context, "part", part, 63),
            part_count=_library.number(context, "parts", parts, 64, 1), take_over=bool(take_over),
            delta=bool(delta))
        publication = _library.open_handle(context, timeout, self._handle, "sl_publish_begin", "sl_publish_end", byref(options))
        try:
            return self._commit(context, publication, given, end)
        finally:
            publication.close()

    def _commit(self, context: Context, publication: Handle, given: List[Tensor], end: float) -> int:
        with publication as pointer:
            for each in given:
                shape = (c_uint64 * 8)(*each.shape[:8])
                invoke(context, "sl_publish_tensor", pointer, _library.Tensor(
                    each.name.encode(errors="surrogateescape"), each.kind.number, len(each.shape), shape,
                    each.array.ctypes.data if each.array.size else None, each.array.nbytes))
        work_s = 0.1 + sum(each.array.nbytes for each in given) / _HASH_AND_COPY
        number = c_uint64()

        def commit(is_abandoned: Callable[[], bool]) -> List[Tensor]:
            with publication as pointer:
                _library.wait(context, end, is_abandoned, "sl_publish_commit", pointer, MS, byref(number), slice_s=1 + work_s)
            return given  # kept until here
        _library.on_worker(commit, patience=work_s)
        return number.value

    # Fetch

    def fetch(self, name: str, into: Optional[MutableMapping[str, Any]] = None, version: _Number = "newest",
              timeout: float = 5.0, *, atomic: bool = True, dtype: Any = None, slices: Optional[_Slices] = None) -> Fetched:
        """Fetches a version and returns a Fetched.

        into: names to arrays of NumPy or tensors of torch in host memory, contiguous, which are written: the names,
        types and shapes of the version. Raw bytes also fit: uint16 for bfloat16, uint8 for types of 8 bits. None: new
        arrays; those of types that only torch has are tensors of torch, or raw bytes without torch.
        version: its number, or "newest", for whose first appearance the call waits.
        atomic: all bytes are verified before the first is written: after an error `into` is as before. Else each
        tensor is written as soon as its bytes are verified: an error leaves some tensors new and others old.
        dtype: of NumPy or torch, or its name: tensors of floating point become this type.
        slices: by name, a tuple of slices: only this part of a tensor is copied, and has the shape.

        Raises NotFoundError (a given version), CancelledError (it was removed meanwhile), DeadlineError, TypeError
        and ValueError (the tensors that do not fit, with both types and shapes), CorruptError, NoMemoryError and
        TooLargeError (of the pool).
        """
        context = self._context("fetch", name, version)
        begun = time.monotonic()
        end = begun + _library.milliseconds(context, timeout) / 1000
        subscription = self._take(context, name, False, end)
        try:
            view = self._open(context, subscription, _version_number(context, version), end, not atomic)
            got = self._copy(context, subscription, view, end, (into, dtype, slices), atomic)
        except BaseException:
            subscription.close()
            raise
        self._give(subscription)
        return got._replace(seconds=time.monotonic() - begun)

    def _copy(self, context: Context, subscription: Handle, view: Handle, end: float,
              how: Tuple[Optional[MutableMapping[str, Any]], Any, Optional[_Slices]], atomic: bool) -> Fetched:
        try:
            with view as pointer:
                number: int = _library.load().sl_view_version(pointer)
                note = _library.load().sl_view_note(pointer).decode(errors="replace")
                plan = _Plan(_read_tensors(pointer, view, context), *how, context)
                if atomic:
                    _library.on_worker(lambda is_abandoned: plan.copy_all(), patience=_library.SECONDS_MAX)
                else:
                    self._copy_in_order(context, pointer, plan, end)
        finally:
            view.close()
        return Fetched(number, note, 0.0, plan.tensors)

    def _copy_in_order(self, context: Context, view: c_void_p, plan: _Plan, end: float) -> None:
        for index, (_, _, image_end) in enumerate(plan.copies):
            try:
                _library.wait(context, end, self._handle.is_closed, "sl_view_wait", view, image_end, MS)
            except StarlingError as error:
                error.args = (f"{error}; {index} of {len(plan.copies)} tensors were written",)
                raise
            plan.copy(index)

    def follow(self, name: str, into: Optional[MutableMapping[str, Any]] = None, timeout: Optional[float] = None, *,
               atomic: bool = True, dtype: Any = None, slices: Optional[_Slices] = None) -> Iterator[Fetched]:
        """Yields a Fetched for the newest version, and then for each newer one; its `skipped` counts numbers between.

        Versions are fetched to this host's memory as they appear. Versions that were replaced by newer ones before
        the loop came back are skipped.
        timeout: longest wait for a newer version, in seconds; None: no limit. Otherwise as fetch.
        """
        context = self._context("follow", name)
        if timeout is not None:
            _library.milliseconds(context, timeout)
        return self._follow(context, name, timeout, (into, dtype, slices), atomic)

    def _follow(self, context: Context, name: str, timeout: Optional[float],
                how: Tuple[Optional[MutableMapping[str, Any]], Any, Optional[_Slices]], atomic: bool) -> Iterator[Fetched]:
        last = 0
        end = time.monotonic() + (timeout or _library.SECONDS_MAX)
        subscription = self._take(context, name, True, end)
        try:
            while True:
                end = math.inf if timeout is None else time.monotonic() + timeout
                self._wait_above(context, subscription, last, end)
                begun = time.monotonic()
                try:
                    view = self._open(context, subscription, 0, min(end, begun + _library.SECONDS_MAX), not atomic)
                    got = self._copy(context, subscription, view, min(end, begun + _library.SECONDS_MAX), how, atomic)
                except (CancelledError, NotFoundError):
                    continue  # it was removed: the next one
                if got.version > last:
                    skipped = got.version - last - 1 if last else 0
                    last = got.version
                    yield got._replace(seconds=time.monotonic() - begun, skipped=skipped)
        finally:
            subscription.close()

    def view(self, name: str, version: _Number = "newest", timeout: float = 5.0) -> View:
        """Fetches a version to this host's memory, if it is not there, and returns a View of it: use it with `with`.

        All processes of the host with the same agent share the memory. Arguments and errors as fetch.
        """
        context = self._context("view", name, version)
        end = time.monotonic() + _library.milliseconds(context, timeout) / 1000
        subscription = self._take(context, name, False, end)
        try:
            handle = self._open(context, subscription, _version_number(context, version), end, False)
            return View(self, subscription, handle, context)
        except BaseException:
            subscription.close()
            raise

    # Versions

    def wait_held(self, name: str, version: _Number = "newest", nodes: int = 1, timeout: float = 60.0) -> None:
        """Waits until so many nodes serve each part of the version: the publisher or its agent, and those that fetched it.

        Raises NotFoundError, DeadlineError.
        """
        context = self._context("wait_held", name, version)
        _library.call(context, timeout, self._handle, "sl_object_wait_held", _library.text(context, "name", name),
                      _version_number(context, version), _library.number(context, "nodes", nodes, 2**32 - 1, 1), MS)

    def versions(self, name: Optional[str] = None, timeout: float = 5.0) -> List[Version]:
        """Lists the versions of a name, or of all names, by name and number. Raises DeadlineError."""
        context = self._context("versions", name or "")
        prefix = _library.text(context, "name", name, is_optional=True)
        return [each for each in self._list(context, prefix, timeout) if name is None or each.name == name]

    def _list(self, context: Context, prefix: Optional[bytes], timeout: float) -> List[Version]:
        end = time.monotonic() + _library.milliseconds(context, timeout) / 1000

        def read(is_abandoned: Callable[[], bool]) -> List[Version]:
            found = POINTER(_library.EntryList)()
            with self._handle as pointer:
                _library.wait(context, end, is_abandoned, "sl_object_list", pointer, prefix, MS, byref(found), slice_s=1, growth=2)
            try:
                return [_version_of(found.contents.entries[i]) for i in range(found.contents.count)]
            finally:
                _library.load().sl_object_list_free(byref(found))
        listed: List[Version] = _library.on_worker(read)
        return listed

    def remove(self, name: str, version: Union[int, str], timeout: float = 5.0) -> None:
        """Removes a version, or with "all" each version of the name, at all nodes that have it. Views stay as they are.

        Raises NotFoundError, DeadlineError.
        """
        context = self._context("remove", name, version)
        number = 0 if version == "all" else _version_number(context, version)
        if number == 0 and version != "all":
            raise context.invalid(f"version: {version!r}; accepted: a number from 1, or \"all\"")
        _library.call(context, timeout, self._handle, "sl_object_remove", _library.text(context, "name", name), number, MS)

    def staleness(self, name: str, timeout: float = 5.0) -> Staleness:
        """Returns how old the version of this name is that this node used last, and the means since it used the first."""
        context = self._context("staleness", name)
        subscription = self._recent.get(name)
        if subscription is None or subscription.closed:
            subscription = self._take(context, name, False, time.monotonic() + timeout)
            self._give(subscription)
        found = _library.Staleness()
        with subscription as pointer, subscription.guard:
            _library.load().sl_subscription_staleness(pointer, byref(found))
        return Staleness(found.version, found.newest, found.behind, found.behind_us / 1e6, found.measured_us / 1e6,
                         found.behind_mean, found.behind_us_mean / 1e6, found.opened_count, found.skipped_count)

    def metrics(self) -> str:
        """Returns the bytes that this node has read from others and has not, of equal blocks and by deltas, for Prometheus.

        docs/metrics.md lists the names. Errors: NoMemoryError.
        """
        text = ctypes.create_string_buffer(_METRICS_BYTES)
        with self._handle as node:
            invoke(self._context("metrics", ""), "sl_objects_metrics", node, text, len(text))
        return text.value.decode()

    def close(self) -> None:
        """Ends the node: it serves nothing any more, and with serve() the catalogue ends.

        Waits for nodes that read from this one, at most 10 s for each version. While a call of another thread, a view
        or one of its arrays is still there, the node ends with the last of them. A second close does nothing.
        """
        self._handle.closed = True
        while self._idle:
            for each in self._idle.popitem()[1]:
                each.close()
        self._handle.close()
        if self._server is not None:
            self._server.signal(signal.SIGTERM)
            self._server.join(15)
        _open_nodes.discard(self)

    def __enter__(self) -> Node:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Node cannot be pickled: it belongs to its process; call starling.objects.connect in the other one")

    def __repr__(self) -> str:
        return f"<starling.objects.Node {self.address}{', closed' if self._handle.closed else f', catalogue {self.catalogue}'}>"

    # Subscriptions: one call, view or follow at a time has one.

    def _context(self, what: str, name: str, version: _Number = 0) -> Context:
        return Context(what, name if isinstance(name, str) else "", version if isinstance(version, int) else 0, self.catalogue)

    def _take(self, context: Context, name: str, follow: bool, end: float) -> Handle:
        idle = self._idle.get((name, follow))
        while idle:
            found = idle.pop()
            if not found.closed:
                return found
        options = _library.SubscribeOptions(sizeof(_library.SubscribeOptions), follow)
        opened = _library.open_handle(context, max(0.001, end - time.monotonic()), self._handle, "sl_subscription_open",
                                      "sl_subscription_close", _library.text(context, "name", name), byref(options))
        self._keys[opened] = name, follow
        return opened

    def _give(self, subscription: Handle) -> None:
        if self._handle.closed:
            subscription.close_here()
        elif not subscription.closed:
            self._idle[self._keys[subscription]].append(subscription)

    def _wait_above(self, context: Context, subscription: Handle, above: int, end: float) -> None:
        number = c_uint64()
        with subscription as pointer:
            _library.wait(context, end, self._handle.is_closed, "sl_subscription_wait", pointer, above, MS, byref(number))

    def _open(self, context: Context, subscription: Handle, version: int, end: float, stream: bool) -> Handle:
        """Opens a view."""
        if version == 0:
            self._wait_above(context, subscription, 0, end)
        self._recent[context.name] = subscription
        options = _library.ViewOptions(sizeof(_library.ViewOptions), version, 0, stream)
        with subscription.guard:
            return _library.open_handle(context, max(0.001, end - time.monotonic()), subscription, "sl_view_open",
                                        "sl_view_close", byref(options))


def _version_of(entry: _library.Entry) -> Version:
    return Version(entry.name.decode(errors="surrogateescape"), entry.version, entry.bytes, entry.time_ms / 1000, entry.holders,
                   entry.part_count, _ORIGINS[entry.origin], entry.note.decode(errors="replace"))


def serve(directory: Optional[_Path] = None, *, name: Optional[str] = None, secret_file: Optional[_Path] = None,
          pool_bytes: int = 0, agent: Optional[str] = None, timeout: float = 60.0, **engine: Any) -> Node:
    """Returns a Node whose process hosts a new catalogue, until it is closed; others connect to its `catalogue`.

    Under starling-launch --objects the job has a catalogue: without a directory serve() is connect().

    directory: the program starling-objects runs beside this process, hosts the catalogue, and stores the versions
    in this directory, which is created: they are there again after the next serve. None: they are in memory.
    Otherwise as connect; without a secret, name is on loopback.
    """
    context = Context("serve")
    if directory is None:
        return _start(context, os.environ.get("STARLING_OBJECTS_CATALOGUE"), name, secret_file, pool_bytes, agent, timeout, engine)
    server = _start_keeper(context, os.fspath(directory), name, secret_file, pool_bytes, timeout)
    catalogue = server.lines[-1].split(" ")[0]
    try:
        return _start(context, catalogue, None, secret_file, pool_bytes, agent, timeout, engine, server)
    except BaseException:
        server.signal(signal.SIGTERM)
        raise


def _start_keeper(context: Context, directory: str, name: Optional[str], secret_file: Optional[_Path], pool_bytes: int,
                  timeout: float) -> _Server:
    flags = ["--dir", os.path.abspath(directory), *(["--name", name] if name is not None else []),
             *(["--secret-file", os.fspath(secret_file)] if secret_file is not None else []),
             *(["--pool-memory", str(pool_bytes)] if pool_bytes else [])]
    own = {name: value for name, value in os.environ.items() if not name.startswith("STARLING_OBJECTS_")}
    server = _Server([_program("starling-objects"), "serve", *flags], own, " serves the catalogue")
    is_ready = False
    try:
        is_ready = server.is_decided.wait(timeout) and server.is_running
    finally:
        if not is_ready:
            server.signal(signal.SIGKILL)
    if not is_ready:
        raise context.error(-3, f"{directory}: starling-objects serve did not start: {' / '.join(server.lines)}")
    return server


def connect(catalogue: Optional[str] = None, *, name: Optional[str] = None, secret_file: Optional[_Path] = None,
            pool_bytes: int = 0, agent: Optional[str] = None, timeout: float = 10.0, **engine: Any) -> Node:
    """Returns a Node of the catalogue at "HOST:PORT".

    catalogue: None: the variable STARLING_OBJECTS_CATALOGUE, which starling-launch --objects sets; or the node that
    etcd names, with metadata="etcd://HOST:PORT".
    name: "host:port" of this node, port 0: a free one; None: on loopback if the catalogue is, else this host's address.
    secret_file: file with the secret that all processes share; None: STARLING_SECRET_FILE. Without one only
    loopback is accepted.
    pool_bytes: memory for versions that are published and fetched here without an agent: room for 4 versions, and for
    each older one in use; 0: 1 GiB.
    agent: name of this host's agent (starling-objects serve --agent); None: STARLING_OBJECTS_AGENT, or the agent
    "default" if there is one; "off": none.
    timeout: seconds, for the catalogue's first answer.
    engine: further options of the transfer engine, as of starling.transfer.Engine.

    Raises DeadlineError, RefusedError, InvalidError, InUseError (of name), UnsupportedError (no libstarling_objects).
    """
    context = Context("connect")
    catalogue = catalogue if catalogue is not None else os.environ.get("STARLING_OBJECTS_CATALOGUE")
    if not catalogue and not str(engine.get("metadata", "")).startswith("etcd"):
        raise context.invalid("no catalogue; accepted: connect(\"HOST:PORT\"), the variable STARLING_OBJECTS_CATALOGUE, or "
                              "metadata=\"etcd://HOST:PORT\"")
    return _start(context, catalogue, name, secret_file, pool_bytes, agent, timeout, engine)


def _start(context: Context, catalogue: Optional[str], name: Optional[str], secret_file: Optional[_Path], pool_bytes: int,
           agent: Optional[str], timeout: float, engine: Dict[str, Any], server: Optional[_Server] = None) -> Node:
    _library.milliseconds(context, timeout)
    _library.start_log()
    options = _library.transfer_options(context, {**engine, "secret_file": secret_file, "name": name})
    if name is None and not catalogue and not options.secret:
        options.name = b"127.0.0.1:0"
    if agent is None and catalogue and catalogue == os.environ.get("STARLING_OBJECTS_CATALOGUE"):
        agent = os.environ.get("STARLING_OBJECTS_AGENT")
    node = _library.ObjectsOptions(
        struct_size=sizeof(_library.ObjectsOptions), engine_options=ctypes.pointer(options),
        catalogue=_library.text(context, "catalogue", catalogue or None, is_optional=True),
        agent=_library.text(context, "agent", agent or None, is_optional=True),
        pool_bytes=_library.number(context, "pool_bytes", pool_bytes, 2**63 - 1))

    def create(is_abandoned: Callable[[], bool]) -> Handle:
        made = c_void_p()
        invoke(context, "sl_objects_create", byref(node), byref(made))
        return Handle("the node", made, "sl_objects_destroy")
    made = Node(_library.run(create, Handle.close_here), catalogue or "", server)
    try:
        if catalogue:
            context.address = catalogue
            made._list(context, b".", timeout)  # the catalogue answers
        return made
    except BaseException:
        made.close()
        raise


@atexit.register
def _close_all() -> None:
    for node in list(_open_nodes):
        node.close()
