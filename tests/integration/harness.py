"""Starts real starling processes on loopback for the integration tests, and ends every process that
it started. Programs are looked for in $STARLING_BIN. Standard library only."""

import contextlib
import ctypes
import errno
import glob
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

BIN = os.environ.get("STARLING_BIN", os.path.join(os.path.dirname(__file__), "../../build/release/bin"))
DATA = os.environ.get("STARLING_DATA",
                      os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../shared/data"))
# Of whatever a test waits for and is not about: only a test that fails waits so long.
DEADLINE_S = 400

SKIPPED = 77  # a program's exit status (CMake: SKIP_RETURN_CODE)

# The variables that the programs read: a test sets those that it means, and no others leak in.
OWN_VARIABLES = ("NETWORK_", "PS_", "WORKER_", "RANK", "WORLD_SIZE", "STARLING_COORDINATOR", "STARLING_HTTP", "STARLING_LOG", "STARLING_TCP",
                 "STARLING_SECRET", "STARLING_CLUSTER", "STARLING_SHM", "STARLING_RDMA", "STARLING_DPDK_DEVICE", "STARLING_TEST_FAULTS", "MC_GID_INDEX",
                 "NCCL_IB_GID_INDEX", "TF_CONFIG", "SLURM_", "DMLC_", "BYTEPS_",
                 "NUM_KEY_PER_SERVER", "LOG_DURATION", "TOTAL_DURATION")


def program(name):
    return os.path.join(BIN, name)


def children_of(pid):
    """The processes that this one started and that have not ended; none where it has ended itself."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(child) for child in file.read().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def command_of(pid):
    """The words of the process's command line; none where it has ended."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read().decode("utf-8", "replace").rstrip("\0").split("\0")
    return [""]


def adult(kind):
    """Path of the Adult data set's part ("train", "test"); skips the test where it is not there."""
    path = os.path.join(DATA, "adult", f"adult.{kind}.libsvm")
    if not os.path.exists(path):
        raise unittest.SkipTest(f"{path} is not there (set STARLING_DATA)")
    return path


def visible(folder):
    """The names in the directory, sorted, without hidden ones such as the locks of checkpoint folders."""
    return sorted(name for name in os.listdir(folder) if not name.startswith("."))


# Below those that starling-launch and starling-bench choose from, so that these do not take a port that
# a test has been given and does not listen at yet.
PORTS = range(3000, 10000)
_claims = []


def _claim(port):
    """A socket that stands for the port as long as this process lives, in a namespace that all tests on
    this machine share (unix(7), abstract sockets); None where another test has it."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0starling-test-port-{port}")
    except OSError:
        claim.close()
        return None
    return claim


def _is_free(port, host):
    with contextlib.closing(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)) as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def wait_unheard(host, port):
    """Until no process listens there. The kernel takes the rings of a process that was killed down on its
    own time: a socket on which one waited can outlive it by a while."""
    end = time.monotonic() + DEADLINE_S
    while True:
        with contextlib.closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
                return
            except OSError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() > end:
                    return  # who listens there next says what is wrong
        time.sleep(0.005)


def claim_port(port, host="127.0.0.1"):
    """Whether the port is free; then no other test is given it while this one runs."""
    claim = _claim(port)
    if claim is not None:
        _claims.append(claim)
    return claim is not None and _is_free(port, host)


def free_ports(count, host="127.0.0.1"):
    """Ports in a row that nobody listens at, and that no other test is given while this one runs."""
    start = random.randrange(len(PORTS))
    row = []
    for port in (PORTS[(start + i) % len(PORTS)] for i in range(len(PORTS))):
        if row and port != row[-1] + 1:
            row = []
        claim = _claim(port)
        if claim is not None:
            _claims.append(claim)
        row = row + [port] if claim is not None and _is_free(port, host) else []
        if len(row) == count:
            return row
    raise AssertionError(f"no {count} free ports in {PORTS}")


def environment(extra=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith(OWN_VARIABLES)}
    env.update(extra or {})
    return env


LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1
# Before a command: it is killed when this process ends, so that a test that runs out of time leaves nothing behind.
# Python forks for a preexec_fn, which takes ten times as long as to start a program without one.
END_WITH_PARENT = ("/usr/bin/setpriv", "--pdeathsig", "KILL", "--")


class Process:
    """A started program; its output is collected line by line."""

    def __init__(self, name, args, env=None, cwd=None, before=None, commands=False):
        """before: run in the child, before the program: what it takes from itself. commands: it reads
        what is written to it."""
        def prepare():
            before()
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # last: a change of user resets it

        self.name = " ".join([name] + [a for a in args if a in ("ps", "worker")])
        self.lines = []
        self._changed = threading.Condition()
        self._child = subprocess.Popen([*(() if before else END_WITH_PARENT), program(name), *map(str, args)], cwd=cwd,
                                       env=environment(env),
                                       stdin=subprocess.PIPE if commands else subprocess.DEVNULL,
                                       preexec_fn=prepare if before else None,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self._child.stdout:
            with self._changed:
                self.lines.append(line.decode("utf-8", "replace").rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    @property
    def output(self):
        return "\n".join(self.lines)

    def wait_line(self, text, seconds=DEADLINE_S):
        """Waits until a line contains `text`; returns the line."""
        end = time.monotonic() + seconds
        seen = 0
        with self._changed:
            while True:
                while seen < len(self.lines):
                    if text in self.lines[seen]:
                        return self.lines[seen]
                    seen += 1
                ended = not self._reader.is_alive() or self._child.poll() is not None
                if ended and seen == len(self.lines) and not self._reader.is_alive():
                    raise AssertionError(f"{self.name} ended without '{text}':\n{self.output}")
                if time.monotonic() > end:
                    raise AssertionError(f"{self.name} did not say '{text}':\n{self.output}")
                self._changed.wait(0.1)

    def wait_match(self, pattern, first, seconds=DEADLINE_S):
        """Waits for a line, from number `first` on, that the pattern matches from its begin; returns the
        match and the number of the next line."""
        end = time.monotonic() + seconds
        with self._changed:
            while True:
                for index in range(first, len(self.lines)):
                    if match := re.match(pattern, self.lines[index]):
                        return match, index + 1
                ended = not self._reader.is_alive()
                if ended or time.monotonic() > end:
                    raise AssertionError(f"{self.name} {'ended' if ended else 'waits'} without "
                                         f"'{pattern}':\n{self.output}")
                self._changed.wait(0.1)

    def write(self, text):
        self._child.stdin.write(text.encode())
        self._child.stdin.flush()

    def wait(self, seconds=DEADLINE_S):
        """Waits for the end; returns the exit status (negative: a signal)."""
        try:
            status = self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end:\n{self.output}") from None
        self._reader.join(5)
        return status

    @property
    def pid(self):
        return self._child.pid

    def signal(self, number):
        """SIGSTOP takes a while until each thread has stopped: waits for that."""
        self._child.send_signal(number)
        end = time.monotonic() + DEADLINE_S
        while number == signal.SIGSTOP and self.running() and not self._is_stopped():
            if time.monotonic() > end:
                raise AssertionError(f"{self.name} does not stop")
            time.sleep(0.001)

    def _is_stopped(self):
        try:
            for path in glob.glob(f"/proc/{self._child.pid}/task/*/stat"):
                with open(path, encoding="utf-8", errors="replace") as file:
                    if file.read().rpartition(")")[2].split()[0] not in "TtZX":
                        return False
        except OSError:  # a thread has ended
            return False
        return True

    def running(self):
        return self._child.poll() is None

    def end(self):
        if self.running():
            self._child.kill()
        self._child.wait()
        self._reader.join(5)
        self._child.stdout.close()
        if self._child.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._child.stdin.close()


def wait_lines(processes, text):
    """Until each process has printed a line with the text."""
    for process in processes:
        process.wait_line(text)


class StarlingTest(unittest.TestCase):
    """A test with a directory of its own, whose processes end with it."""

    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="starling-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def start(self, name, *args, env=None, cwd=None, before=None, commands=False):
        process = Process(name, list(args), env=env, cwd=cwd or self.folder, before=before,
                          commands=commands)
        self.addCleanup(process.end)
        return process

    def run_to_end(self, name, *args, env=None, cwd=None, before=None, status=0):
        """Runs a program to its end, checks its exit status (None: any), returns its output."""
        process = self.start(name, *args, env=env, cwd=cwd, before=before)
        got = process.wait()
        self.assertEqual(got if status is not None else None, status, f"{name} {args}\n{process.output}")
        return process.output

    def file(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as out:
            out.write(text if isinstance(text, bytes) else text.encode())
        return path

    def start_ps(self, ps_count=1, worker_count=1, env=None, host="127.0.0.1", extra=()):
        """Starts ps processes; returns (processes, cluster flags for workers)."""
        name = f"[{host}]" if ":" in host else host
        hosts = ",".join(f"{name}:{p}" for p in free_ports(ps_count, host))
        workers = ",".join(f"{name}:{i + 1}" for i in range(worker_count))
        flags = ["--ps-hosts", hosts, "--worker-hosts", workers]
        processes = [self.start("starling-ps", *flags, "--job-name", "ps", "--task-index", i, *extra,
                                env=env) for i in range(ps_count)]
        return processes, flags

    def start_workers(self, flags, count, args, env=None):
        return [self.start("starling-worker", *flags, "--job-name", "worker", "--task-index", i, *args,
                           env=env) for i in range(count)]

    def train(self, args, ps_count=1, worker_count=4, ps_env=None, worker_env=None,
              host="127.0.0.1"):
        """A whole job; returns worker 0's report, after checking that everybody ended well."""
        report = os.path.join(self.folder, "report.json")
        servers, flags = self.start_ps(ps_count, worker_count, env=ps_env, host=host)
        workers = self.start_workers(flags, worker_count, list(args) + ["--report", report],
                                     env=worker_env)
        self.end_well(workers)
        self.drain(servers)
        with open(report, encoding="utf-8") as file:
            return json.load(file)

    def end_well(self, processes):
        for process in processes:
            self.assertEqual(process.wait(), 0, process.output)

    def drain(self, servers):
        for server in servers:
            server.wait_line("ready")  # before, a signal just ends it
            self.assertTrue(server.running(), server.output)
            server.signal(signal.SIGTERM)
        self.end_well(servers)


class _Part(unittest.TestLoader):
    """Every `count`-th test of a program, from number `index` on (0: the first)."""

    def __init__(self, index, count):
        super().__init__()
        self._slice = slice(index, None, count)

    def loadTestsFromModule(self, module, *args, **options):
        tests = list(flat(super().loadTestsFromModule(module, *args, **options)))
        return self.suiteClass(tests[self._slice])


def flat(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flat(test)
        else:
            yield test


def main():
    """unittest's own command line; before it may stand --part 2/5, for the second of five parts that
    are all tests together. Ends with SKIPPED where every test was."""
    args, loader = sys.argv[1:], unittest.defaultTestLoader
    if args[:1] == ["--part"]:
        index, count = map(int, args[1].split("/"))
        loader, args = _Part(index - 1, count), args[2:]
    result = unittest.main(argv=[sys.argv[0], "-v", *args], testLoader=loader, exit=False).result
    if result.testsRun == len(result.skipped) > 0:
        sys.exit(SKIPPED)
    sys.exit(not result.wasSuccessful())
