"""Log lines of the library in Python's logging.

The library's threads write them to a pipe, since they never take the GIL, and a thread reads it.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
from typing import Callable, List, Optional

from . import _native

_END = b"\n"  # no line of the library
_logger = logging.getLogger("starling")
_lock = threading.Lock()
_thread: Optional[threading.Thread] = None
_pipe_end = -1
_logs: List[Callable[[int, int], None]] = [_native.log_to]  # of each library: (pipe, level)


def _level() -> int:
    """The lowest level of the library's lines: debug 0 to error 3, or off 4."""
    return min(max(_logger.getEffectiveLevel() // 10 - 1, 0), 4)


def start(log_to: Optional[Callable[[int, int], None]] = None) -> None:
    """Sends the lines to the logger "starling", from the level on that it has now. log_to: of one more library."""
    global _thread, _pipe_end
    with _lock:
        if _thread is None:
            lines, _pipe_end = os.pipe()
            os.set_blocking(_pipe_end, False)
            _thread = threading.Thread(target=_read, args=(lines,), daemon=True, name="starling-log")
            _thread.start()
        if log_to is not None and log_to not in _logs:
            _logs.append(log_to)
        for each in _logs:
            each(_pipe_end, _level())


def _read(lines: int) -> None:
    with open(lines, "rb") as file:
        for record in iter(file.readline, _END):
            _logger.log(10 * (record[0] - ord("0") + 1), "%s", record[1:-1].decode(errors="replace"))


@atexit.register
def _stop() -> None:
    """Sends later lines to standard error, after those in the pipe were logged."""
    if _thread is not None:
        for each in _logs:
            each(-1, _level())
        with contextlib.suppress(BlockingIOError):
            os.write(_pipe_end, _END)
        _thread.join(1)


def _forget() -> None:
    """In a forked process, which has no such thread until it connects; its parent reads the pipe."""
    global _lock, _thread
    _lock, _thread = threading.Lock(), None


os.register_at_fork(after_in_child=_forget)
