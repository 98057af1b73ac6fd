"""Child processes of the scripts of bench/: servers, loads, and the temporary folder, which leave nothing when a signal
ends the script."""

import contextlib
import ctypes
import glob
import json
import os
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

START_S = 30  # that a server may take
READY_S = 180  # that a load may take, which fills a server
SLACK_S = 120  # how much longer than asked a turn may take
END_S = 10
LOOK_S = 0.002
LEASE_S = 3600  # a server is stopped now and then for longer than the lease that a job would have
TAIL_BYTES = 2048
# Variables that a server reads, and that are not for one that is measured.
NOT_FOR_SERVERS = ("STARLING_SECRET_FILE", "STARLING_LOG", "STARLING_CHECKPOINT_DIR", "STARLING_CHECKPOINT_EVERY",
                   "STARLING_CHECKPOINT_INCREMENTALS", "STARLING_CHECKPOINT_KEEP", "STARLING_CHECKPOINT_COMPRESSION",
                   "STARLING_RESTORE", "STARLING_FRESH", "TF_CONFIG")


class Failure(Exception):
    """Something cannot be measured; the text is for the user."""


# ---- Any child -------------------------------------------------------------------------------------------------


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


def run_in_folder(prefix, work, parent=None):
    """Returns work(folder). The folder is removed at the end, also if SIGINT or SIGTERM ends it: no child is left then
    that could fill the folder again."""
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        with make_folder(prefix, parent) as folder:
            try:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
                return work(folder)
            finally:
                signal.pthread_sigmask(signal.SIG_BLOCK, signals)
                end_children()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)


def make_folder(prefix, parent):
    try:
        return tempfile.TemporaryDirectory(prefix=prefix, dir=parent)
    except OSError as error:
        raise Failure(f"no folder can be made in {parent or tempfile.gettempdir()}: {error.strerror}") from None


def find_program(name):
    """The path of a program; None: it is not installed."""
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def program(folder, name):
    """The path of one of Starling's programs."""
    path = os.path.join(folder, name)
    if not os.access(path, os.X_OK):
        raise Failure(f"{path} is not there: build it, or say where it is with --bin")
    return path


def free_port():
    """A port of loopback below those that the kernel takes for outgoing connections."""
    for _ in range(100):
        port = random.randrange(10000, 32000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise Failure("no free port of 127.0.0.1")


def free_ports(count):
    ports = set()
    while len(ports) < count:
        ports.add(free_port())
    return list(ports)


def end(process):
    """SIGTERM, after five seconds SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            process.send_signal(number)
            process.send_signal(signal.SIGCONT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)


def cpu_seconds(pid):
    """Processor time of all threads of a process so far."""
    return time.clock_gettime(~pid << 3 | 2)  # the kernel's number of that clock, with CPUCLOCK_SCHED


def others_seconds():
    """Processor time of other programs since the machine started: all of it without this process and those below it."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, *_, steal, _, _ = map(int, file.readline().split()[1:])
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
            found[int(pid)] = int(fields[1]), sum(map(int, fields[11:15]))
    ours, more = set(), {os.getpid()}
    while more:
        ours |= more
        more = {pid for pid, (parent, _) in found.items() if parent in ours} - ours
    return (user + nice + system + steal - sum(found[pid][1] for pid in ours if pid in found)) / os.sysconf("SC_CLK_TCK")


# ---- Loads -----------------------------------------------------------------------------------------------------


class Found(dict):
    """What a turn has found: {quantity: (unit, value)}. times: how long its requests took, as a load prints it; or None."""

    times = None

    def value(self, quantity):
        return self[quantity][1]

    def only(self, *quantities):
        """Those that are wanted, of the ones that were found."""
        return Found({quantity: self[quantity] for quantity in quantities if quantity in self})


class Load:
    """A load of starling-bench (bench/turns.h): a process that measures whenever it is told to."""

    def __init__(self, folder, name, *flags, core=-1, tool=()):
        """tool: a command before its own."""
        self.name = name
        self.child = subprocess.Popen([*tool, program(folder, "starling-bench"), "load", name, *map(str, flags)],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
                                      preexec_fn=child_setup(core))
        self.read(READY_S)

    def read(self, timeout):
        """The next line."""
        if not select.select([self.child.stdout], [], [], timeout)[0]:
            raise Failure(f"the load {self.name} does not answer")
        line = self.child.stdout.readline()
        if not line:
            raise Failure(f"the load {self.name} ended with status {self.child.wait()}")
        return line

    def begin(self, warm_up, seconds, *words):
        self.timeout = SLACK_S + 4 * (warm_up + seconds)
        with contextlib.suppress(BrokenPipeError):  # read() says why
            self.child.stdin.write(" ".join(map(str, (f"{warm_up:.9g}", f"{seconds:.9g}", *words))) + "\n")

    def wait(self):
        line = json.loads(self.read(self.timeout))
        found = Found({quantity: (unit, value) for quantity, unit, value in line["numbers"]})
        found.times = line.get("times")
        return found

    def turn(self, warm_up, seconds, *words):
        self.begin(warm_up, seconds, *words)
        return self.wait()

    def stop(self):
        with contextlib.suppress(BrokenPipeError):
            self.child.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(END_S)
        end(self.child)
        self.child.stdout.close()


# ---- Servers ---------------------------------------------------------------------------------------------------


class Ps:
    """A starling-ps process on cores of its own, which is connected to at `address`. tool: a command before its own."""

    def __init__(self, options, folder, reactors=1, polling=False, workers=0, core=None, hosts=None, index=0, flags=(),
                 tool=(), log="info"):
        self.port = int(hosts[index].rpartition(":")[2]) if hosts else free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.log_path, self.log_at, self.is_parked = os.path.join(folder, f"ps-{self.port}.log"), 0, False
        command = [*tool, program(options.bin, "starling-ps"), f"--ps-hosts={','.join(hosts or [self.address])}",
                   "--job-name=ps", f"--task-index={index}", f"--lease={LEASE_S}", f"--reactors={reactors}",
                   f"--polling={int(polling)}", "--pin-cores", *([f"--num-workers={workers}"] if workers else []), *flags]
        env = {name: value for name, value in os.environ.items() if name not in NOT_FOR_SERVERS}
        env.update(STARLING_TCP_CONGESTION=getattr(options, "congestion", None) or "", STARLING_LOG=log)
        cores = choose_cores(options.server_core if core is None else core, reactors)
        with open(self.log_path, "wb") as out:
            self.child = subprocess.Popen(command, env=env, cwd="/", stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                          preexec_fn=child_setup(*cores))
        self.pid = self.child.pid
        self.wait_ready()

    def wait_ready(self):
        end_at = time.monotonic() + START_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            if self.child.poll() is not None:
                raise Failure(f"starling-ps ended before it could be connected to:\n{self.tail()}")
            if time.monotonic() > end_at:
                raise Failure(f"starling-ps cannot be connected to:\n{self.tail()}")
            time.sleep(LOOK_S)

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def find_in_log(self, pattern):
        """What the first group of the pattern matches, as soon as the log has it."""
        end_at = time.monotonic() + START_S
        while not (found := re.search(pattern, self.log())):
            if time.monotonic() > end_at:
                raise Failure(f"the log of starling-ps has no {pattern}:\n{self.tail()}")
            time.sleep(LOOK_S)
        return found.group(1)

    def tail(self):
        """The last lines of its log, for the user; and whether it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):  # its connections close before it can be waited for
            status = self.child.wait(1)
            return f"starling-ps ended, with status {status}\n{self.log()[-TAIL_BYTES:]}"
        return self.log()[-TAIL_BYTES:]

    def cpu_seconds(self):
        return cpu_seconds(self.pid)

    def park(self):
        """Stops it in its place, so that others have the core meanwhile."""
        if not self.is_parked and self.child.poll() is None:
            os.kill(self.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            self.is_parked = True

    def unpark(self):
        if self.is_parked:
            self.child.send_signal(signal.SIGCONT)
        self.is_parked = False

    @contextlib.contextmanager
    def running(self):
        """Lets it go on for the length of the block. If that fails, the log says why."""
        self.unpark()
        try:
            yield
        except Failure as failure:
            raise Failure(f"{failure}\n---- the end of starling-ps's log:\n{self.tail()}") from None
        self.park()

    def memory(self):
        """(resident, the most since forget_peak) in bytes."""
        with open(f"/proc/{self.pid}/status", encoding="ascii", errors="replace") as file:
            found = dict(re.findall(r"^(VmRSS|VmHWM):\s*(\d+) kB", file.read(), re.MULTILINE))
        return int(found["VmRSS"]) * 1024, int(found["VmHWM"]) * 1024

    def forget_peak(self):
        with open(f"/proc/{self.pid}/clear_refs", "w", encoding="ascii") as file:
            file.write("5")

    def stalls(self):
        """(count, longest in ms) of turns that were too long, as the log has them since the last call. A line names the
        longest of one second, and how many there were."""
        with open(self.log_path, "rb") as file:
            file.seek(self.log_at)
            text = file.read()
        text = text[:text.rfind(b"\n") + 1]
        self.log_at += len(text)
        found = re.findall(r": a turn took ([\d.]+) ms(?:, of which [^\n]*?\((\d+) earlier)?", text.decode(errors="replace"))
        return sum(1 + int(more or 0) for _, more in found), max((float(ms) for ms, _ in found), default=0)

    def stop(self):
        end(self.child)

    def kill(self):
        """Ends it without the checkpoint of an orderly end."""
        self.child.kill()
        self.child.wait()


def choose_cores(first, count):
    """So many of our cores from `first` upwards."""
    cores = [core for core in sorted(os.sched_getaffinity(0)) if core >= first][:count]
    if len(cores) < count:
        raise Failure(f"a server of {count} reactors from core {first} upwards: this process may use only {len(cores)} "
                      "cores there")
    return cores
