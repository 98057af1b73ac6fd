"""Child processes and the temporary folder of a script of bench/, which leave nothing when a signal ends the script."""

import contextlib
import ctypes
import glob
import os
import signal
import sys
import tempfile


def child_setup(*cores):
    """The preexec_fn of a child that is killed when this process ends, and that runs on these cores; -1 and none: on any."""
    parent = os.getpid()

    def before_exec():
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:  # it has ended before the kernel knew
            os._exit(1)
        if any(core >= 0 for core in cores):
            os.sched_setaffinity(0, cores)
    return before_exec


def end_children():
    """Kills and awaits all children. A signal may have interrupted Popen, so that no variable names the child."""
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
            pid, _, rest = file.read().partition(" ")
            if int(rest.rpartition(")")[2].split()[1]) == os.getpid():
                os.kill(int(pid), signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def run_in_folder(prefix, work):
    """Returns work(folder). The folder is removed at the end, also if SIGINT or SIGTERM ends it: no child is left then
    that could fill the folder again."""
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        with tempfile.TemporaryDirectory(prefix=prefix) as folder:
            try:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
                return work(folder)
            finally:
                signal.pthread_sigmask(signal.SIG_BLOCK, signals)
                end_children()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
