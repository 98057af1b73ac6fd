"""One-sided reads and writes between registered memory of processes: arrays of NumPy and tensors of torch.

    import starling.transfer

    with starling.transfer.Engine() as engine:  # the process that owns the memory
        engine.register(weights)
        print(engine.name, weights.ctypes.data)

    with starling.transfer.Engine() as engine:  # another one
        engine.register(local)
        with engine.open(name) as segment:
            engine.read(local, segment, address)

docs/transfer.md describes engines, segments and transports. Memory is used where it is; the application of the process
that owns it makes no call. Any thread may call any function, but a Batch belongs to one thread at a time. An engine
belongs to its process: in a forked child it raises ForkError. Ctrl-C ends each wait at once.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from ctypes import byref, c_uint32, c_void_p
from types import TracebackType
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, NoReturn, Optional, Set, Tuple, Type, Union

import numpy

from . import _library, _tensors
from ._library import MS, Context, Handle, invoke
from .errors import DeadlineError

__all__ = ["Batch", "Buffer", "Engine", "Notice", "Request", "Segment", "Span", "Status"]

_STATES = ("waiting", "pending", "invalid", "cancelled", "completed", "timeout", "failed")
_OPS = ("read", "write")
_PEERS_READ, _PEERS_WRITE = 1, 2
_BUFFERS_MAX, _REQUESTS_MAX = 4096, 65536
_PAUSE_S, _PAUSE_S_MAX, _PAUSE_PART = 20e-6, 1e-3, 16  # between looks whether a batch is over; of the time that has passed
_REQUEST = numpy.dtype([("op", "u4"), ("local", "u8"), ("segment", "u8"), ("remote", "u8"), ("bytes", "u8")], align=True)
_open_engines: Set[Engine] = set()
os.register_at_fork(after_in_child=_open_engines.clear)


class Span(NamedTuple):
    """Memory by its address, which the caller keeps while it is registered or in use."""

    address: int
    bytes: int


class Buffer(NamedTuple):
    """A registered range of a peer."""

    address: int  #: in the peer: `remote` of requests
    bytes: int
    location: str  #: "cpu:N": the NUMA node
    readable: bool  #: by peers
    writable: bool


class Request(NamedTuple):
    """A read into local memory, or a write of it."""

    op: str  #: "read" or "write"
    local: Any  #: a contiguous array or tensor, or a Span, within one registered range
    segment: Segment
    remote: int  #: address in the peer


class Status(NamedTuple):
    """The state of one request of a batch."""

    state: str  #: "waiting", "pending", "invalid", "cancelled", "completed", "timeout" or "failed"
    bytes: int  #: moved and applied
    reason: str  #: why it failed; else ""


class Notice(NamedTuple):
    """A short message of a peer."""

    sender: str  #: name of its engine
    name: str
    text: bytes


def _span(name: str, memory: Any, writable: bool) -> Span:
    """The memory of an array, tensor or Span. Raises TypeError and ValueError."""
    if isinstance(memory, Span):
        return memory
    if isinstance(memory, numpy.ndarray) and not writable and memory.flags.c_contiguous:
        return Span(memory.ctypes.data, memory.nbytes)
    array = _tensors.tensor(name, memory, True).array
    return Span(array.ctypes.data, array.nbytes)


class _Closing:
    """What has a handle that close() and `with` free."""

    _handle: Handle

    def close(self) -> None:
        """Ends it. A second close does nothing."""
        self._handle.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be pickled: it belongs to its process")


class Segment(_Closing):
    """The registered memory of a peer. Engine.open opens it. Once the peer has ended, all requests fail: open it again.

    name: of the peer's engine.
    """

    def __init__(self, name: str, handle: Handle) -> None:
        self.name, self._handle = name, handle

    def buffers(self) -> List[Buffer]:
        """Lists the ranges that peers may access, by address. Changes arrive a moment later. Any thread."""
        context = Context("buffers", address=self.name)
        found, count = (_library.Buffer * _BUFFERS_MAX)(), c_uint32()
        with self._handle as pointer:
            invoke(context, "sl_transfer_segment_buffers", pointer, found, _BUFFERS_MAX, byref(count))
        return [Buffer(each.address, each.bytes, each.location.decode(), bool(each.access & _PEERS_READ),
                       bool(each.access & _PEERS_WRITE)) for each in found[:min(count.value, _BUFFERS_MAX)]]

    def notify(self, name: str, text: bytes = b"", timeout: float = 5.0) -> None:
        """Sends a notice, and waits until the peer has queued it.

        name: 1 to 63 printable characters of ASCII. text: up to 4096 bytes.
        Raises DeadlineError and ClosedError (it was queued once or not at all), BusyError (1024 notices wait there).
        """
        context = Context("notify", address=self.name)
        _library.call(context, timeout, self._handle, "sl_transfer_notice_send", byref(_notice(context, name, text)), MS)


def _notice(context: Context, name: str, text: bytes) -> Any:
    data = bytes(text)
    return _library.Notice(_library.text(context, "name", name), data, len(data))


class Batch(_Closing):
    """Requests that run. Engine.batch submits them. Their memory is kept until the batch is closed, or lost.

    One thread at a time.
    """

    def __init__(self, handle: Handle, count: int, context: Context) -> None:
        self._handle, self._count, self._context = handle, count, context
        self._segments: List[Handle] = []

    @property
    def done(self) -> bool:
        """Whether all requests are over."""
        with self._handle as pointer:
            is_done: bool = _library.load().sl_transfer_batch_done(pointer)
        return is_done

    def wait(self) -> None:
        """Waits until all requests are over, which is at most 50 ms after their deadline.

        Raises the error of the first that failed: DeadlineError, CancelledError, ClosedError, InvalidError (memory
        that is not registered) ...
        """
        begun = time.monotonic()
        while threading.current_thread() is threading.main_thread() and not self.done:
            time.sleep(min(max(_PAUSE_S, (time.monotonic() - begun) / _PAUSE_PART), _PAUSE_S_MAX))
        with self._handle as pointer:
            invoke(self._context, "sl_transfer_batch_wait", pointer)

    def status(self) -> List[Status]:
        """Returns the state of each request: "pending" until all are over."""
        found = []
        with self._handle as pointer:
            for index in range(self._count):
                one = _library.Status()
                invoke(self._context, "sl_transfer_batch_status", pointer, index, byref(one))
                reason = _library.load().sl_transfer_batch_error(pointer, index).decode(errors="replace")
                found.append(Status(_STATES[one.state], one.bytes, reason))
        return found

    def cancel(self) -> None:
        """Ends the requests within 50 ms."""
        with self._handle as pointer:
            _library.load().sl_transfer_batch_cancel(pointer)

    def close(self) -> None:
        """Cancels the requests that are not over, and frees the batch. A second close does nothing."""
        if not self._handle.closed and self.done:
            self._handle.close_here()  # which does not wait then
        else:
            self._handle.close()
        self._leave()

    def _leave(self) -> None:
        segments, self._segments = self._segments, []
        for each in segments:
            each.leave()

    def __del__(self) -> None:
        if getattr(self, "_segments", None):
            self._handle.close_here()
            self._leave()


class Engine(_Closing):
    """A process's part in transfers. As a context manager it is closed at the end of the block.

    name: "host:port", where it listens and which peers open; port 0: a free one. None: on loopback without a secret,
    else this host's address.
    metadata: "P2PHANDSHAKE" (the name is the address; the default), "etcd://host:port" or "http://host:port/path".
    secret_file: file with the secret that all processes share; None: STARLING_SECRET_FILE.
    options: members of struct sl_transfer_options (starling_transfer.h) by name, such as endpoints="tcp://10.0.0.1:0",
    rdma_device, reactor_count, checksum, insecure, tls_certificate, tls_key, tls_authority, bytes_per_s_max.

    Raises InvalidError, RefusedError (no secret beyond loopback), ExistsError and InUseError (of the name),
    DeadlineError, UnsupportedError (no libstarling_objects).
    """

    def __init__(self, name: Optional[str] = None, metadata: Optional[str] = None, *,
                 secret_file: Union[str, os.PathLike[str], None] = None, **options: Any) -> None:
        context = Context("engine", address=name or "")
        given = _library.transfer_options(context, {**options, "name": name, "metadata": metadata, "secret_file": secret_file})
        if name is None and not given.secret and not given.insecure:
            given.name = b"127.0.0.1:0"
        _library.start_log()

        def create(is_abandoned: Callable[[], bool]) -> Handle:
            made = c_void_p()
            invoke(context, "sl_transfer_create", byref(given), byref(made))
            return Handle("the engine", made, "sl_transfer_destroy")
        self._handle: Handle = _library.run(create, Handle.close_here)
        with self._handle as pointer:
            self.name: str = _library.load().sl_transfer_name(pointer).decode()
        self._memory: Dict[int, Any] = {}
        self._handle.kept = self._memory
        self._parts: weakref.WeakSet[_Closing] = weakref.WeakSet()
        _open_engines.add(self)

    def register(self, *memory: Any, readable: bool = True, writable: bool = True, location: Optional[str] = None) -> None:
        """Registers memory: arrays, tensors or Spans, all or none. They are kept until unregister or close.

        readable, writable: by peers; requests of this engine may use all registered memory.
        location: "cpu:N", the NUMA node; None: that of the first page.
        Raises ExistsError (it overlaps registered memory), TooLargeError (over 4096 ranges), NoMemoryError.
        """
        context = Context("register", address=self.name)
        spans = [_span(f"memory {index}", each, writable) for index, each in enumerate(memory)]
        access = _PEERS_READ * bool(readable) + _PEERS_WRITE * bool(writable)
        where = _library.text(context, "location", location, is_optional=True)
        ranges = (_library.Memory * len(spans))(*(_library.Memory(span.address, span.bytes, where, access) for span in spans))
        with self._handle as pointer:
            invoke(context, "sl_transfer_register", pointer, ranges, len(spans))
        self._memory.update((span.address, each) for span, each in zip(spans, memory))

    def unregister(self, *memory: Any, timeout: float = 5.0) -> None:
        """Ends the access of peers to the memory, and waits for theirs. Batches of this engine must not use it.

        Raises NotFoundError (it is not registered), DeadlineError (a peer still uses it: it stays registered).
        """
        bases = [_span(f"memory {index}", each, False).address for index, each in enumerate(memory)]
        _library.call(Context("unregister", address=self.name), timeout, self._handle, "sl_transfer_unregister",
                      (c_void_p * len(bases))(*bases), len(bases), MS)
        for base in bases:
            self._memory.pop(base, None)

    def open(self, name: str, timeout: float = 5.0) -> Segment:
        """Connects to the engine of this name, which may be this one, and returns its Segment.

        Raises NotFoundError, RefusedError (another secret, or the process has ended), DeadlineError, ClosedError.
        """
        context = Context("open", address=name if isinstance(name, str) else "")
        handle = _library.open_handle(context, timeout, self._handle, "sl_transfer_segment_open", "sl_transfer_segment_close",
                                      _library.text(context, "name", name))
        segment = Segment(name, handle)
        self._parts.add(segment)
        return segment

    def batch(self, requests: Iterable[Union[Request, Tuple[str, Any, Segment, int]]], timeout: float = 5.0,
              notice: Optional[Tuple[str, bytes]] = None) -> Batch:
        """Submits requests and returns their Batch, without a wait. They may take effect in any order.

        requests: 1 to 65536. timeout: seconds for all of them.
        notice: name and text for the peer, once all requests have completed; all then have the same segment.
        Raises TypeError and ValueError. A request of memory that is not registered fails by itself.
        """
        context = Context("batch")
        timeout_ms = _library.milliseconds(context, timeout)
        given = [Request(*each) for each in requests]
        if not 1 <= len(given) <= _REQUESTS_MAX:
            raise context.invalid(f"{len(given)} requests; accepted: 1 to {_REQUESTS_MAX}")
        context.address = given[0].segment.name
        return self._submit(context, len(given), lambda batch: self._fill(batch, given), timeout_ms, notice)

    def move(self, op: str, segment: Segment, local: Any, remote: Any, sizes: Any, timeout: float = 5.0,
             notice: Optional[Tuple[str, bytes]] = None) -> Batch:
        """The same for many requests of one kind, given as addresses: much faster than batch.

        op: "read" or "write". local, remote, sizes: [requests]: addresses of registered memory here and in the peer, and bytes.
        """
        context = Context("move", address=segment.name)
        timeout_ms = _library.milliseconds(context, timeout)
        array = numpy.zeros(len(local), _REQUEST)
        if op not in _OPS or not 1 <= len(local) <= _REQUESTS_MAX:
            raise context.invalid(f"{op!r}, {len(local)} requests; accepted: \"read\", \"write\", 1 to {_REQUESTS_MAX}")
        array["op"], array["local"], array["remote"], array["bytes"] = _OPS.index(op), local, remote, sizes

        def fill(batch: Batch) -> Any:
            array["segment"] = segment._handle.enter().value
            batch._segments.append(segment._handle)
            return array.ctypes.data_as(_library.REQUESTS)
        return self._submit(context, len(array), fill, timeout_ms, notice)

    def _submit(self, context: Context, count: int, fill: Callable[[Batch], Any], timeout_ms: int,
                notice: Optional[Tuple[str, bytes]]) -> Batch:
        """fill(batch): the requests; it enters the handles of their segments, and adds them to the batch."""
        message = None if notice is None else byref(_notice(context, *notice))
        made = c_void_p()
        with self._handle as pointer:
            invoke(context, "sl_transfer_batch_create", pointer, count, byref(made))
            batch = Batch(Handle("the batch", made, "sl_transfer_batch_free", self._handle), count, context)
        try:
            requests = fill(batch)
            with batch._handle as pointer:
                invoke(context, "sl_transfer_batch_submit", pointer, requests, count, timeout_ms, message)
        except BaseException:
            batch.close()
            raise
        self._parts.add(batch)
        return batch

    @staticmethod
    def _fill(batch: Batch, given: List[Request]) -> Any:
        array = (_library.Request * len(given))()
        for index, (one, each) in enumerate(zip(array, given)):
            if each.op not in _OPS:
                raise batch._context.invalid(f"request {index}: {each.op!r}; accepted: \"read\", \"write\"")
            span = _span(f"request {index}", each.local, each.op == "read")
            one.op, one.local, one.bytes = _OPS.index(each.op), span.address, span.bytes
            one.remote = _library.number(batch._context, f"request {index}: remote", each.remote, 2**64 - 1)
            one.segment = each.segment._handle.enter()
            batch._segments.append(each.segment._handle)
        batch._handle.kept = given
        return array

    def read(self, local: Any, segment: Segment, remote: int, timeout: float = 5.0) -> None:
        """Reads from the peer's address into all of a registered array or tensor. Errors as Batch.wait."""
        with self.batch([("read", local, segment, remote)], timeout) as batch:
            batch.wait()

    def write(self, local: Any, segment: Segment, remote: int, timeout: float = 5.0) -> None:
        """Writes all of a registered array or tensor to the peer's address. Errors as Batch.wait."""
        with self.batch([("write", local, segment, remote)], timeout) as batch:
            batch.wait()

    def notices(self, timeout: Optional[float] = None) -> Iterator[Notice]:
        """Yields the notices that peers sent, as they come; ends when none has come for `timeout` seconds; None: never."""
        context = Context("notices", address=self.name)
        if timeout is not None:
            _library.milliseconds(context, timeout)
        return self._notices(context, timeout)

    def _notices(self, context: Context, timeout: Optional[float]) -> Iterator[Notice]:
        while True:
            one = _library.Noticed()
            end = time.monotonic() + (_library.SECONDS_MAX if timeout is None else timeout)
            try:
                with self._handle as pointer:
                    _library.wait(context, end, self._handle.is_closed, "sl_transfer_notice_take", pointer, MS, byref(one))
            except DeadlineError:
                if timeout is None and not self._handle.closed:
                    continue
                return
            yield Notice(one.sender.decode(errors="replace"), one.name.decode(errors="replace"), bytes(one.text[:one.bytes]))

    def close(self) -> None:
        """Ends the engine, with its segments and batches. Afterwards no peer reaches its memory.

        While a call of another thread is still there, the engine ends with it. A second close does nothing.
        """
        self._handle.closed = True
        for kind in (Batch, Segment):
            for part in [each for each in self._parts if isinstance(each, kind)]:
                part.close()
        self._handle.close()
        _open_engines.discard(self)

    def __repr__(self) -> str:
        return f"<starling.transfer.Engine {self.name}{', closed' if self._handle.closed else ''}>"


@atexit.register
def _close_all() -> None:
    for engine in list(_open_engines):
        engine.close()
