"""Two machines on one wire: a socket in the file system is where they meet, and gone when they have met."""

import os
import socket
import time

import cache

POLL_S = 0.02


def _offer(path):
    """A listening socket that appears under `path` at once, or None when another's is there."""
    own = f"{path}.{os.getpid()}"
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(own)
        listener.listen(1)
        os.link(own, path)
        return listener
    except FileExistsError:
        listener.close()
        return None
    finally:
        if os.path.exists(own):
            os.remove(own)


def _join(path):
    """A connection to the machine that listens, or None; what a killed one left is taken away."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
        return connection
    except ConnectionRefusedError:
        os.remove(path)
    except FileNotFoundError:
        pass
    connection.close()
    return None


def meet(path, seconds):
    """The connection to the other machine's rdma-vm: the first of the two waits for the second."""
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            listener = _offer(path)
            if listener is None:
                if connection := _join(path):
                    return connection
                time.sleep(POLL_S)
                continue
            with listener:
                try:
                    listener.settimeout(max(end - time.monotonic(), POLL_S))
                    return _blocking(listener.accept()[0])
                finally:
                    os.remove(path)
    except TimeoutError:
        pass
    except OSError as error:
        raise cache.Broken(f"cannot link two machines by {path}: {error}") from None
    raise cache.Broken(f"no other machine came to {path} within {seconds:g} s")


def _blocking(connection):
    connection.setblocking(True)
    return connection
