"""libstarling_objects through ctypes, which releases the GIL during each call: its structs and functions, its errors as
exceptions, calls that Ctrl-C ends, and handles that threads share and a forked child does not use."""

from __future__ import annotations

import ctypes
import functools
import math
import os
import queue
import signal
import threading
import time
from ctypes import (POINTER, Structure, byref, c_bool, c_char, c_char_p, c_double, c_int, c_size_t, c_uint8, c_uint32,
                    c_uint64, c_void_p)
from types import TracebackType
from typing import Any, Callable, Dict, List, Optional, Tuple, Type

from . import _log, _native
from .errors import ClosedError, DeadlineError, ExistsError, ForkError, StarlingError, UnsupportedError, of

FILE = "libstarling_objects.so.0"
EXISTS = -9
SECONDS_MAX = 3600
_SLICE_S = 0.1  # of a wait: then signals are seen
_FIRST_SLICE_S = 0.5  # of a call on another thread, which repeats requests


class TransferOptions(Structure):
    _fields_ = [("name", c_char_p), ("metadata", c_char_p), ("endpoints", c_char_p), ("nic_priority_matrix", c_char_p),
                ("rdma_device", c_char_p), ("has_rdma_gid_index", c_bool), ("rdma_gid_index", c_uint32),
                ("dpdk_device", c_char_p), ("reactor_count", c_uint32), ("polling", c_bool), ("pin_cores", c_bool),
                ("checksum", c_bool), ("congestion_control", c_char_p), ("secret", c_char_p), ("secret_bytes", c_size_t),
                ("tls_certificate", c_char_p), ("tls_key", c_char_p), ("tls_authority", c_char_p),
                ("tls_peer_name", c_char_p), ("insecure", c_bool), ("lanes", c_uint32), ("slice_bytes", c_uint32),
                ("stall_ms", c_uint32), ("start_timeout_ms", c_uint32), ("bytes_per_s_max", c_uint64)]


class ObjectsOptions(Structure):
    _fields_ = [("struct_size", c_uint32), ("engine", c_void_p), ("engine_options", POINTER(TransferOptions)),
                ("catalogue", c_char_p), ("agent", c_char_p), ("host", c_char_p), ("location", c_char_p),
                ("pool_bytes", c_uint64), ("rate_bytes", c_uint64)]


class Tensor(Structure):
    _fields_ = [("name", c_char_p), ("type", c_uint32), ("rank", c_uint32), ("shape", c_uint64 * 8), ("data", c_void_p),
                ("bytes", c_uint64)]


class PublishOptions(Structure):
    _fields_ = [("struct_size", c_uint32), ("name", c_char_p), ("note", c_char_p), ("version", c_uint64), ("origin", c_uint32),
                ("part", c_uint32), ("part_count", c_uint32), ("take_over", c_bool), ("new_name", c_bool), ("delta", c_bool)]


class Entry(Structure):
    _fields_ = [("name", c_char * 192), ("version", c_uint64), ("bytes", c_uint64), ("time_ms", c_uint64),
                ("holders", c_uint32), ("part_count", c_uint32), ("origin", c_uint32), ("note", c_char * 256)]


class EntryList(Structure):
    _fields_ = [("count", c_uint64), ("entries", POINTER(Entry))]


class SubscribeOptions(Structure):
    _fields_ = [("struct_size", c_uint32), ("follow", c_bool)]


class Staleness(Structure):
    _fields_ = [("version", c_uint64), ("newest", c_uint64), ("behind", c_uint64), ("behind_us", c_uint64),
                ("measured_us", c_uint64), ("behind_mean", c_double), ("behind_us_mean", c_double),
                ("behind_histogram", c_uint64 * 44), ("behind_us_histogram", c_uint64 * 44), ("opened_count", c_uint64),
                ("skipped_count", c_uint64), ("visible_us_histogram", c_uint64 * 44)]


class ViewOptions(Structure):
    _fields_ = [("struct_size", c_uint32), ("version", c_uint64), ("behind_max", c_uint64), ("stream", c_bool),
                ("stop_count", c_uint32), ("stops", POINTER(c_uint64))]


class Memory(Structure):
    _fields_ = [("base", c_void_p), ("bytes", c_size_t), ("location", c_char_p), ("access", c_uint32)]


class Buffer(Structure):
    _fields_ = [("address", c_uint64), ("bytes", c_uint64), ("location", c_char * 32), ("access", c_uint32)]


class Request(Structure):
    _fields_ = [("op", c_uint32), ("local", c_void_p), ("segment", c_void_p), ("remote", c_uint64), ("bytes", c_uint64)]


class Status(Structure):
    _fields_ = [("state", c_uint32), ("err", c_int), ("bytes", c_uint64)]


class Notice(Structure):
    _fields_ = [("name", c_char_p), ("text", c_char_p), ("bytes", c_uint32)]


class Noticed(Structure):
    _fields_ = [("sender", c_char * 256), ("name", c_char * 64), ("bytes", c_uint32), ("text", c_uint8 * 4097)]


REQUESTS = POINTER(Request)
_OUT = POINTER(c_void_p)
# Function: arguments; those that return something else than an error number: in _RESULTS.
_FUNCTIONS: Dict[str, Tuple[Any, ...]] = {
    "sl_objects_create": (POINTER(ObjectsOptions), _OUT), "sl_objects_destroy": (_OUT,), "sl_objects_address": (c_void_p,),
    "sl_objects_last_error": (), "sl_objects_metrics": (c_void_p, c_void_p, c_size_t), "sl_publish_begin": (c_void_p, POINTER(PublishOptions), c_uint32, _OUT),
    "sl_publish_tensor": (c_void_p, POINTER(Tensor)), "sl_publish_commit": (c_void_p, c_uint32, POINTER(c_uint64)),
    "sl_publish_end": (_OUT,), "sl_object_remove": (c_void_p, c_char_p, c_uint64, c_uint32),
    "sl_object_wait_held": (c_void_p, c_char_p, c_uint64, c_uint32, c_uint32),
    "sl_object_list": (c_void_p, c_char_p, c_uint32, POINTER(POINTER(EntryList))),
    "sl_object_list_free": (POINTER(POINTER(EntryList)),),
    "sl_subscription_open": (c_void_p, c_char_p, POINTER(SubscribeOptions), c_uint32, _OUT),
    "sl_subscription_newest": (c_void_p,), "sl_subscription_wait": (c_void_p, c_uint64, c_uint32, POINTER(c_uint64)),
    "sl_subscription_close": (_OUT,), "sl_subscription_staleness": (c_void_p, POINTER(Staleness)),
    "sl_view_open": (c_void_p, POINTER(ViewOptions), c_uint32, _OUT), "sl_view_close": (_OUT,),
    "sl_view_version": (c_void_p,), "sl_view_note": (c_void_p,), "sl_view_wait": (c_void_p, c_uint64, c_uint32),
    "sl_view_next_tensor": (c_void_p, POINTER(c_uint64), POINTER(Tensor), POINTER(c_uint64)),
    "sl_transfer_create": (POINTER(TransferOptions), _OUT), "sl_transfer_destroy": (_OUT,), "sl_transfer_name": (c_void_p,),
    "sl_transfer_last_error": (), "sl_transfer_log_set": (c_uint32, c_void_p, c_void_p),
    "sl_transfer_register": (c_void_p, POINTER(Memory), c_uint32),
    "sl_transfer_unregister": (c_void_p, _OUT, c_uint32, c_uint32),
    "sl_transfer_segment_open": (c_void_p, c_char_p, c_uint32, _OUT), "sl_transfer_segment_close": (_OUT,),
    "sl_transfer_segment_buffers": (c_void_p, POINTER(Buffer), c_uint32, POINTER(c_uint32)),
    "sl_transfer_batch_create": (c_void_p, c_uint32, _OUT),
    "sl_transfer_batch_submit": (c_void_p, REQUESTS, c_uint32, c_uint32, POINTER(Notice)),
    "sl_transfer_batch_done": (c_void_p,), "sl_transfer_batch_wait": (c_void_p,),
    "sl_transfer_batch_status": (c_void_p, c_uint32, POINTER(Status)), "sl_transfer_batch_error": (c_void_p, c_uint32),
    "sl_transfer_batch_cancel": (c_void_p,), "sl_transfer_batch_free": (_OUT,),
    "sl_transfer_notice_send": (c_void_p, POINTER(Notice), c_uint32),
    "sl_transfer_notice_take": (c_void_p, c_uint32, POINTER(Noticed))}
_TEXT, _NOTHING = c_char_p, None
_RESULTS: Dict[str, Any] = {
    "sl_objects_destroy": _NOTHING, "sl_objects_address": _TEXT, "sl_objects_last_error": _TEXT, "sl_publish_end": _NOTHING,
    "sl_object_list_free": _NOTHING, "sl_subscription_newest": c_uint64, "sl_subscription_close": _NOTHING,
    "sl_subscription_staleness": _NOTHING, "sl_view_close": _NOTHING, "sl_view_version": c_uint64, "sl_view_note": _TEXT,
    "sl_transfer_destroy": _NOTHING, "sl_transfer_name": _TEXT, "sl_transfer_last_error": _TEXT, "sl_transfer_log_set": _NOTHING,
    "sl_transfer_segment_close": _NOTHING, "sl_transfer_batch_done": c_bool, "sl_transfer_batch_error": _TEXT,
    "sl_transfer_batch_cancel": _NOTHING, "sl_transfer_batch_free": _NOTHING}


@functools.lru_cache(maxsize=None)
def load() -> Any:
    """Returns the library: the file beside libstarling, in the build folder, or that of the system."""
    here = os.path.dirname(os.path.abspath(__file__))
    beside = os.path.dirname(_native.library)
    folders = (here, beside, os.path.join(here, "..", "..", "objects"))
    path = next((path for path in (os.path.join(folder, FILE) for folder in folders) if os.path.exists(path)), FILE)
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise UnsupportedError(f"{error}; {FILE} lies beside libstarling.so.0; builds with a sanitizer have none") from None
    for name, arguments in _FUNCTIONS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, _RESULTS.get(name, c_int)
    return library


def start_log() -> None:
    """Sends the library's log lines to Python's logging."""
    _log.start(_log_to)


def _log_to(pipe: int, level: int) -> None:
    load().sl_transfer_log_set(level, None if pipe < 0 else _native.log_line, pipe)


# Errors

class Context:
    """What a call is about: its errors have it as attributes, and in their text."""

    def __init__(self, what: str, name: str = "", version: int = 0, address: str = "") -> None:
        self.what, self.name, self.version, self.address = what, name, version, address

    def error(self, code: int, text: str) -> StarlingError:
        subject = f"{self.name}@{self.version}" if self.version else self.name
        text = f"{self.what}{f' {subject}' if self.name not in text else ''}: {text}"
        if self.address and self.address not in text:
            text += f" ({self.address})"
        kind = _OWN.get(code)
        error = of(code, text) if kind is None else kind(text)
        vars(error).update(code=code, name=self.name, version=self.version, address=self.address)
        return error

    def invalid(self, text: str) -> StarlingError:
        return Context(self.what, self.name).error(-1, text)


_OWN = {EXISTS: ExistsError}  # a TableMismatch is of tables


def invoke(context: Context, name: str, *arguments: Any) -> int:
    """Calls a function, and raises the exception of its error number."""
    library = load()
    code: int = getattr(library, name)(*arguments)
    if code < 0:
        read = library.sl_transfer_last_error if name.startswith("sl_transfer") else library.sl_objects_last_error
        raise context.error(code, read().decode(errors="replace") or "no reason is known")
    return code


def milliseconds(context: Context, seconds: float) -> int:
    """Of a timeout that a caller gave."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds <= SECONDS_MAX:
        raise context.invalid(f"timeout: {seconds!r}; accepted: seconds, above 0, at most {SECONDS_MAX}")
    return math.ceil(1000 * seconds)


# Calls that wait. Python runs signal handlers on the main thread between two instructions, so no call blocks there: a
# wait that can be repeated is cut into slices, and any other call runs on a thread of its own, which is left to itself
# when a signal handler raises.

class _Milliseconds:
    """Stands for the timeout among the arguments of a call."""


MS = _Milliseconds()


def wait(context: Context, end: float, is_over: Callable[[], bool], name: str, *arguments: Any, slice_s: float = _SLICE_S,
         growth: float = 1) -> int:
    """Repeats a call with short timeouts, in the place of MS, until it returns, the time `end` has come, or is_over()."""
    while True:
        left = end - time.monotonic()
        timeout_ms = max(1, math.ceil(1000 * min(slice_s, left)))
        try:
            return invoke(context, name, *(timeout_ms if each is MS else each for each in arguments))
        except DeadlineError:
            if left <= slice_s or is_over():
                raise
        slice_s *= growth


class _Task:
    """A call on another thread."""

    def __init__(self, function: Callable[[Callable[[], bool]], Any], undo: Callable[[Any], None]) -> None:
        self.function, self._undo = function, undo
        self._lock, self.ended = threading.Lock(), threading.Event()
        self._is_abandoned = False
        self.result: Any = None
        self.error: Optional[BaseException] = None

    def is_abandoned(self) -> bool:
        return self._is_abandoned

    def abandon(self) -> None:
        with self._lock:
            self._is_abandoned = True
            has_result = self.ended.is_set() and self.error is None
        if has_result:
            self._undo(self.result)

    def run(self) -> None:
        try:
            self.result = self.function(self.is_abandoned)
        except BaseException as error:
            self.error = error
        with self._lock:
            self.ended.set()
            has_to_undo = self._is_abandoned and self.error is None
        if has_to_undo:
            self._undo(self.result)


class _Worker:
    """A thread that runs tasks, one after another. It receives no signals, nor do the threads that the library starts on it."""

    idle: List[_Worker] = []

    def __init__(self) -> None:
        self.tasks: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True, name="starling-call").start()

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            self.tasks.get().run()
            _Worker.idle.append(self)


def run(function: Callable[[Callable[[], bool]], Any], undo: Callable[[Any], None] = lambda result: None,
        patience: float = 0) -> Any:
    """Returns function(is_abandoned), which runs on another thread.

    If a signal handler raises meanwhile, that exception leaves this function, at most `patience` seconds after the
    call began; then is_abandoned() is true, and the thread calls undo with the result.
    """
    worker = _Worker.idle.pop() if _Worker.idle else _Worker()
    task = _Task(function, undo)
    begun = time.monotonic()
    worker.tasks.put(task)
    try:
        task.ended.wait()
    except BaseException:
        try:
            task.ended.wait(max(0.0, begun + patience - time.monotonic()))
        finally:
            task.abandon()
        raise
    if task.error is not None:
        raise task.error
    return task.result


def on_worker(function: Callable[[Callable[[], bool]], Any], undo: Callable[[Any], None] = lambda result: None,
              patience: float = 0) -> Any:
    """The same on the main thread. Other threads receive no signals: they call the function themselves."""
    if threading.current_thread() is threading.main_thread():
        return run(function, undo, patience)
    return function(lambda: False)


# Handles

_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1
    _Worker.idle.clear()


os.register_at_fork(after_in_child=_count_fork)


class Handle:
    """A pointer of the library that threads share. It is freed when it was closed and no call uses it any more.

    Uses nest in one thread: the collector may end a view in the middle of anything.
    """

    def __init__(self, what: str, pointer: c_void_p, free: str, of_handle: Optional[Handle] = None) -> None:
        self._what, self._pointer, self._free, self._of = what, pointer, free, of_handle
        self._lock, self._uses, self._forks = threading.RLock(), 0, _forks
        self.guard = threading.Lock()  # of calls that threads must not do at the same time
        self.kept: Any = None  # memory that the library uses
        self.closed = False
        if of_handle is not None:
            of_handle.enter()

    def is_closed(self) -> bool:
        return self.closed

    def enter(self) -> c_void_p:
        if self._forks != _forks:
            raise ForkError(f"{self._what}: it belongs to the process that this one was forked from: make one in this process")
        with self._lock:
            if self.closed:
                raise ClosedError(f"{self._what} is closed")
            self._uses += 1
        return self._pointer

    def leave(self) -> None:
        if self._forks == _forks:
            with self._lock:
                self._uses -= 1
            self._free_unused()

    def __enter__(self) -> c_void_p:
        return self.enter()

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.leave()

    def close(self) -> None:
        """The last use frees it; without one this call, which then waits for what the library waits for."""
        self.closed = True
        if self._forks == _forks:
            on_worker(lambda is_abandoned: self._free_unused())

    def close_here(self) -> None:
        """The same on this thread, also the main one: for the end of objects."""
        self.closed = True
        if self._forks == _forks:
            self._free_unused()

    def _free_unused(self) -> None:
        with self._lock:
            if not self.closed or self._uses > 0 or not self._pointer:
                return
            pointer, self._pointer = self._pointer, c_void_p()
        getattr(load(), self._free)(byref(pointer))
        if self._of is not None:
            self._of.leave()


def call(context: Context, timeout: float, handle: Handle, name: str, *arguments: Any) -> int:
    """Calls a function of the handle that repeats requests over the network, so that short slices would not do."""
    milliseconds(context, timeout)
    end = time.monotonic() + timeout

    def function(is_abandoned: Callable[[], bool]) -> int:
        with handle as pointer:
            return wait(context, end, is_abandoned, name, pointer, *arguments, slice_s=_FIRST_SLICE_S, growth=2)
    result: int = on_worker(function)
    return result


def open_handle(context: Context, timeout: float, parent: Handle, name: str, free: str, *arguments: Any) -> Handle:
    """Calls a function that opens something of the parent: name(parent, *arguments, timeout_ms, &pointer)."""
    milliseconds(context, timeout)
    end = time.monotonic() + timeout

    def function(is_abandoned: Callable[[], bool]) -> Handle:
        opened = c_void_p()
        with parent as pointer:
            wait(context, end, is_abandoned, name, pointer, *arguments, MS, byref(opened), slice_s=_FIRST_SLICE_S, growth=2)
            return Handle(context.what, opened, free, parent)
    result: Handle = on_worker(function, Handle.close_here)
    return result


# Options

_VARIABLES = {"secret_file": "STARLING_SECRET_FILE", "tls_certificate": "STARLING_TLS_CERT", "tls_key": "STARLING_TLS_KEY",
              "tls_authority": "STARLING_TLS_CA"}


def transfer_options(context: Context, given: Dict[str, Any]) -> TransferOptions:
    """The options of an engine: members of struct sl_transfer_options by name, and secret_file. Those about security that
    are not given come from the environment, as starling-launch sets it."""
    given = {name: value for name, value in given.items() if value is not None}
    for name, variable in _VARIABLES.items():
        if name not in given and os.environ.get(variable):
            given[name] = os.environ[variable]
    options = TransferOptions()
    if "secret_file" in given:
        options.secret = _read_secret(context, os.fspath(given.pop("secret_file")))
        options.secret_bytes = len(options.secret)
    kinds = {name: kind for name, kind in TransferOptions._fields_ if name not in ("secret", "secret_bytes", "has_rdma_gid_index")}
    for name, value in given.items():
        kind = kinds.get(name)
        if kind is None:
            raise context.invalid(f"{name}: no option; accepted: secret_file, {', '.join(sorted(kinds))}")
        try:
            setattr(options, name, os.fsencode(value) if kind is c_char_p else bool(value) if kind is c_bool else value)
        except (TypeError, ValueError):
            raise context.invalid(f"{name}: {value!r}; accepted: {'a text' if kind is c_char_p else 'a number'}") from None
        if kind in (c_uint32, c_uint64) and getattr(options, name) != value:
            raise context.invalid(f"{name}: {value!r}; accepted: 0 to {2**(8 * ctypes.sizeof(kind)) - 1}")
    options.has_rdma_gid_index = "rdma_gid_index" in given
    return options


def _read_secret(context: Context, path: str) -> bytes:
    with open(path, "rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        secret = file.read(4096).rstrip(b"\r\n")
    if mode & 0o077:
        raise context.invalid(f"secret_file: other users can access {path} (mode {mode & 0o7777:04o}): chmod 600 it")
    if not 16 <= len(secret) <= 1024 or b"\0" in secret:
        raise context.invalid(f"secret_file: {path} has {len(secret)} bytes; accepted: 16 to 1024 without NUL, such as the "
                              "output of: openssl rand -hex 32")
    return secret


def text(context: Context, name: str, value: Any, is_optional: bool = False) -> Optional[bytes]:
    """A text for the library."""
    if value is None and is_optional:
        return None
    if not isinstance(value, str) or "\0" in value:
        raise context.invalid(f"{name}: {value!r}; accepted: a text")
    return value.encode(errors="surrogateescape")


def number(context: Context, name: str, value: Any, most: int, least: int = 0) -> int:
    """An integer for the library."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or not least <= int(value) <= most:
        raise context.invalid(f"{name}: {value!r}; accepted: {least} to {most}")
    return int(value)
