"""Exceptions that stand for the error numbers of libstarling."""


class StarlingError(Exception):
    """Base of all errors that libstarling reports. Its text says what failed and why.

    code: the number of the error in the C API (enum sl_err).
    """

    code = 0


class InvalidError(StarlingError, ValueError):
    """An argument or option is out of range."""

    code = -1


class NoMemoryError(StarlingError, MemoryError):
    """Out of memory, or a server reached its memory limit."""

    code = -2


class DeadlineError(StarlingError, TimeoutError):
    """The deadline passed first. The text names the process that was waited for."""

    code = -3


class ClosedError(StarlingError, ConnectionError):
    """The client is closed, or a server restarted: it may or may not have applied a write."""

    code = -4


class RefusedError(StarlingError, ConnectionError):
    """The cluster refused this process: it has another secret, or none."""

    code = -5


class ProtocolError(StarlingError):
    """The peer violated the protocol."""

    code = -6


class VersionError(StarlingError):
    """The peer speaks another version of the protocol."""

    code = -7


class NotFoundError(StarlingError, LookupError):
    """No such host, file or variable; for connect: no source names the coordinator."""

    code = -8


class TableMismatch(StarlingError, ValueError):
    """The table exists with another specification. The text names the first difference."""

    code = -9


class BusyError(StarlingError):
    """Too many steps are under way in this thread: wait for one of them."""

    code = -11


class SystemCallError(StarlingError):
    """The operating system reported an error."""

    code = -12


class UnsupportedError(StarlingError):
    """Not built in, or not possible on this machine, or not configured."""

    code = -14


class TooLargeError(StarlingError, ValueError):
    """Larger than a limit."""

    code = -15


class CorruptError(StarlingError):
    """A checksum does not match, or parameters were lost."""

    code = -16


class CancelledError(StarlingError):
    """Ended because the process or the job shuts down."""

    code = -17


class ForkError(StarlingError):
    """The client belongs to the process that this one was forked from: connect in this process."""

    code = -18


_CLASSES = {cls.code: cls for cls in StarlingError.__subclasses__()}


def of(code: int, text: str) -> StarlingError:
    """Returns the exception for an error number."""
    error = _CLASSES.get(code, StarlingError)(text)
    error.code = code
    return error
