"""Servers on this machine, for notebooks, tests and first steps."""

from __future__ import annotations

import atexit
import collections
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import weakref
from types import TracebackType
from typing import Any, Deque, Dict, List, Optional, Sequence, Type, Union

from .client import Client, connect, leave_all
from .errors import DeadlineError, StarlingError

_LINES_KEPT = 50
_STARTS = 5  # another process may take a port before the server does
_PORT_TAKEN = "could not start: in use"
_END_S = 15  # longest wait for servers that write a last checkpoint
# Variables of another job would contradict the flags.
_OTHER_JOBS = ("DMLC_", "TF_CONFIG", "STARLING_COORDINATOR", "STARLING_CLUSTER_STORE")

_open_clusters: weakref.WeakSet[LocalCluster] = weakref.WeakSet()
os.register_at_fork(after_in_child=_open_clusters.clear)


def _program(name: str = "starling-ps") -> str:
    """The path of a program: in the package, in the build folder, or in PATH."""
    here = os.path.dirname(os.path.abspath(__file__))
    for folder in (os.path.join(here, "bin"), os.path.join(here, "..", "..", "bin")):
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK):
            return path
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name}: not beside the package and not in PATH; ./dev build makes it, "
                                "./dev install installs it")
    return found


def _free_ports(count: int) -> List[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class _Server:
    """A process of a program that serves. A thread starts it, and reads its output until it has ended. The kernel
    kills the process when that thread ends, which lives as long as the interpreter."""

    def __init__(self, command: Sequence[str], environment: Dict[str, str], ready: str = " ready: ") -> None:
        self.lines: Deque[str] = collections.deque(maxlen=_LINES_KEPT)
        self.is_decided = threading.Event()  # serves, or has ended
        self.process: Optional[subprocess.Popen[str]] = None
        self._thread = threading.Thread(target=self._run, args=(command, environment, ready), daemon=True,
                                        name="starling-server")
        self._thread.start()

    def _run(self, command: Sequence[str], environment: Dict[str, str], ready: str) -> None:
        try:
            self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], env=environment,
                                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                            stderr=subprocess.STDOUT, text=True, errors="replace",
                                            start_new_session=True)
            assert self.process.stdout is not None
            for line in self.process.stdout:
                self.lines.append(line.rstrip("\n"))
                if ready in line:
                    self.is_decided.set()
            self.process.stdout.close()
            self.process.wait()
        except OSError as error:
            self.lines.append(str(error))
        finally:
            self.is_decided.set()

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, number: int) -> None:
        if self.process is not None and self.is_running:
            self.process.send_signal(number)

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)


class LocalCluster:
    """Servers on this machine. starling.local_cluster starts them; they end with close(), with the
    `with` block, and with the interpreter, however it ends.

    coordinator: "host:port" for starling.connect.
    """

    def __init__(self, count: int, workers: int, flags: Sequence[str], timeout: float) -> None:
        self.workers = workers
        self._servers: List[_Server] = []
        _open_clusters.add(self)
        end = time.monotonic() + timeout
        for starts_left in reversed(range(_STARTS)):
            self._start(count, flags)
            try:
                self._wait_ready(end)
                return
            except BaseException as error:
                self._end(signal.SIGKILL)
                if starts_left == 0 or _PORT_TAKEN not in str(error):
                    raise

    def _start(self, count: int, flags: Sequence[str]) -> None:
        ports = _free_ports(count)
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        command = [_program(), "--ps-hosts", hosts, "--num-workers", str(self.workers), "--job-name", "ps", *flags]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_OTHER_JOBS)}
        self.coordinator = f"127.0.0.1:{ports[0]}"
        self._servers = [_Server([*command, "--task-index", str(index)], environment) for index in range(count)]

    def _wait_ready(self, end: float) -> None:
        waiting = dict(enumerate(self._servers))
        while waiting:
            for index, server in list(waiting.items()):
                if server.is_decided.wait(0.02):
                    del waiting[index]
                    if not server.is_running:
                        raise StarlingError(f"local_cluster: ps/{index} ended: {' / '.join(server.lines)}")
                elif time.monotonic() > end:
                    raise DeadlineError(f"local_cluster: ps/{index} is not ready: {' / '.join(server.lines)}")

    @property
    def pids(self) -> List[int]:
        """Process ids of the servers."""
        return [server.process.pid for server in self._servers if server.process is not None]

    def connect(self, *, task: int = -1, workers: Optional[int] = None, **options: Any) -> Client:
        """starling.connect to these servers. task: -1 is a client without a clock."""
        return connect(self.coordinator, task=task, workers=self.workers if workers is None else workers, **options)

    def close(self) -> None:
        """Ends the servers, which answer what they have received and write a last checkpoint if they
        have a directory. Close the clients first. A second close does nothing."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        for server in self._servers:
            server.signal(number)
        end = time.monotonic() + _END_S
        for server in self._servers:
            server.join(max(0.0, end - time.monotonic()))
            server.signal(signal.SIGKILL)
            server.join(1)

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.close()


def local_cluster(servers: int = 1, *, reactors: int = 1, workers: int = 1, checkpoint_dir: Optional[str] = None,
                  restore: Optional[Union[str, int]] = None, timeout: float = 60.0,
                  args: Sequence[Any] = ()) -> LocalCluster:
    """Starts starling-ps processes on this machine and returns them as a LocalCluster.

    servers: processes. reactors: threads of each, each with a shard. workers: of the job.
    checkpoint_dir: where they write checkpoints. restore: "newest" or the number of one to begin with.
    timeout: longest wait for the servers, in seconds. args: further flags of starling-ps.

    Raises DeadlineError, or StarlingError with the output of a server that ended. Any thread.
    """
    if isinstance(args, str):
        raise TypeError(f"args: {args!r}; accepted: a sequence of flags, such as {args.split()!r}")
    flags = ["--reactors", str(reactors)]
    if checkpoint_dir is not None:
        flags += ["--checkpoint-dir", os.path.abspath(checkpoint_dir)]
    if restore is not None:
        flags += ["--restore", str(restore)]
    return LocalCluster(servers, workers, [*flags, *map(str, args)], timeout)


@atexit.register
def _close_all() -> None:
    leave_all()
    for cluster in list(_open_clusters):
        cluster.close()
