"""Exceptions that stand for the error numbers of libstarling."""

from typing import Optional


class StarlingError(Exception):
    """Base of all errors that libstarling reports. Its text says what failed and why.

    code: the number of the error in the C API (enum sl_err).
    name, version, address: of starling.objects and starling.transfer: the object's name and version (0: none), and
    the address of the catalogue or the peer.
    """

    code = 0
    name, version, address = "", 0, ""

    def __init_subclass__(cls, code: Optional[int] = None) -> None:
        cls.code = cls.code if code is None else code


class InvalidError(StarlingError, ValueError, code=-1):
    """An argument or option is out of range."""


class NoMemoryError(StarlingError, MemoryError, code=-2):
    """Out of memory, or a server reached its memory limit."""


class DeadlineError(StarlingError, TimeoutError, code=-3):
    """The deadline passed first. The text names the process that was waited for."""


class ClosedError(StarlingError, ConnectionError, code=-4):
    """The client is closed, or a server restarted: it may or may not have applied a write."""


class RefusedError(StarlingError, ConnectionError, code=-5):
    """The cluster refused this process: it has another secret, or none."""


class ProtocolError(StarlingError, code=-6):
    """The peer violated the protocol."""


class VersionError(StarlingError, code=-7):
    """The peer speaks another version of the protocol."""


class NotFoundError(StarlingError, LookupError, code=-8):
    """No such host, file or variable; for connect: no source names the coordinator."""


class TableMismatch(StarlingError, ValueError, code=-9):
    """The table exists with another specification. The text names all differences, the table's value first."""


class ExistsError(StarlingError, code=-9):
    """The version has other bytes already; another process publishes the name; a name or memory is there twice."""


class BusyError(StarlingError, code=-11):
    """Too many steps are under way in this thread: wait for one of them."""


class SystemCallError(StarlingError, code=-12):
    """The operating system reported an error."""


class InUseError(StarlingError, OSError, code=-13):
    """Another process listens at the address."""


class UnsupportedError(StarlingError, code=-14):
    """Not built in, or not possible on this machine, or not configured."""


class TooLargeError(StarlingError, ValueError, code=-15):
    """Larger than a limit."""


class CorruptError(StarlingError, code=-16):
    """A checksum does not match, or parameters were lost."""


class CancelledError(StarlingError, code=-17):
    """Ended because the process or the job shuts down."""


class ForkError(StarlingError, code=-18):
    """The client belongs to the process that this one was forked from: connect in this process."""


_CLASSES = {cls.code: cls for cls in StarlingError.__subclasses__() if cls is not ExistsError}


def of(code: int, text: str) -> StarlingError:
    """Returns the exception for an error number."""
    error = _CLASSES.get(code, StarlingError)(text)
    error.code = code
    return error
