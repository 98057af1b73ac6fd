"""Other systems that are measured beside Starling: Redis, iperf3 and perftest, as Debian packages them. Each is made with
the options of a benchmark, and its `turn` gives the turns of a contestant. Servers run on --server-core, clients on
--client-core, as Starling's do."""

import csv
import fcntl
import glob
import io
import ipaddress
import json
import math
import os
import signal
import socket
import subprocess
import time

from processes import Failure, Found, child_setup, find_program, free_port
from report import read_line

START_S, RUN_S, TRIES = 10, 120, 5
VALUE_BYTES = 256  # of each value of Redis: a row of 64 f32


# ---- Processes -------------------------------------------------------------------------------------------------


def start(args, core, **more):
    more = {"stdout": subprocess.DEVNULL, **more}
    return subprocess.Popen(args, stdin=subprocess.DEVNULL, text=True, errors="replace", preexec_fn=child_setup(core), **more)


def run(args, core, timeout=RUN_S):
    """Runs a client to its end; returns what it printed."""
    process = start(args, core, stdout=subprocess.PIPE)
    try:
        output = process.communicate(timeout=timeout)[0]
    except subprocess.TimeoutExpired:
        stop(process)
        raise Failure(f"{args[0]} did not end in {timeout:.0f} s") from None
    if process.returncode != 0:
        raise Failure(f"{args[0]} ended with status {process.returncode}: {output.strip()[-300:]}")
    return output


def stop(process):
    process.kill()
    process.wait()


def is_listening(port):
    """Whether any process listens on the port, without connecting, which the listener would take for its client."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table, encoding="ascii") as file:
            fields = (line.split() for line in file.readlines()[1:])
            if any(int(at[1].rpartition(":")[2], 16) == port and at[3] == "0A" for at in fields):
                return True
    return False


def start_server(make_args, core):
    """Starts a server on a free port, which another process may still take: then on another port."""
    for _ in range(TRIES):
        port = free_port()
        server = start(make_args(port), core)
        end = time.monotonic() + START_S
        while server.poll() is None and time.monotonic() < end:
            if is_listening(port):
                return server, port
            time.sleep(0.005)
        stop(server)
    raise Failure(f"{make_args(0)[0]} does not listen")


# ---- Redis -----------------------------------------------------------------------------------------------------


class Redis:
    """One server without persistence, stopped between turns."""

    title = "Redis"
    programs, packages = ("redis-server", "redis-benchmark"), "redis-server and redis-tools"

    def __init__(self, options, rows):
        self.core, self.rows = options.client_core, rows
        self.keys_per_s = {}
        self.server, self.port = start_server(
            lambda port: [find_program("redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--save", "",
                          "--appendonly", "no", "--dir", "/tmp", "--loglevel", "warning"], options.server_core)
        # A script in the server fills it, so that every key exists once.
        self.client("-n", "1", "-c", "1", "EVAL",
                    f"for i = 0, {self.rows - 1} do redis.call('SET', string.format('key:%012d', i), "
                    f"string.rep('v', {VALUE_BYTES})) end return 1", "0")
        self.server.send_signal(signal.SIGSTOP)

    def client(self, *args):
        return run([find_program("redis-benchmark"), "-p", str(self.port), "--csv", *args], self.core)

    def offer(self, keys, pipeline, requests):
        command = ["GET" if keys == 1 else "MGET"] + ["key:__rand_int__"] * keys
        output = self.client("-r", str(self.rows), "-P", str(pipeline), "-n", str(int(max(requests, 1000))), *command)
        return redis_rate(output)

    def measure(self, warm_up, seconds, keys, pipeline):
        """redis-benchmark counts requests, not seconds: the rate before gives how many. The first run looks twice."""
        known = self.keys_per_s.get((keys, pipeline), 0) / keys
        self.server.send_signal(signal.SIGCONT)
        rate = self.offer(keys, pipeline, known * warm_up if known else 20000 / keys)
        rate = self.offer(keys, pipeline, (known or rate) * seconds)
        self.server.send_signal(signal.SIGSTOP)
        self.keys_per_s[keys, pipeline] = rate * keys
        return Found({"requests": ("1/s", rate), "keys": ("1/s", rate * keys)})

    def turn(self, keys, pipeline):
        return lambda warm_up, seconds: self.measure(warm_up, seconds, keys, pipeline)


def redis_rate(output):
    """Requests per second, the second field of the last line."""
    try:
        rate = float(list(csv.reader(io.StringIO(output)))[-1][1])
    except (IndexError, ValueError):
        raise Failure(f"redis-benchmark printed no rate: {output[:200]}") from None
    return rate


# ---- iperf3 ----------------------------------------------------------------------------------------------------


class Iperf:
    """One connection with pieces of 1 MiB, by which the bytes go to the server (push) or from it (pull)."""

    title = "iperf3"
    programs, packages = ("iperf3",), "iperf3"

    def __init__(self, options):
        self.options = options

    def measure(self, warm_up, seconds, direction):
        program = find_program("iperf3")
        more = ["-C", self.options.congestion] if self.options.congestion else []
        for _ in range(TRIES):  # a test that the machine slept through says nothing
            server, port = start_server(lambda port: [program, "-s", "-1", "-p", str(port), "--bind", "127.0.0.1"],
                                        self.options.server_core)
            # It counts whole seconds only.
            output = run([program, "-c", "127.0.0.1", "-p", str(port), "-l", "1048576", "-t", str(math.ceil(seconds)),
                          "-O", str(math.ceil(warm_up)), "-J" if direction == "push" else "-JR", *more],
                         self.options.client_core)
            stop(server)
            report = json.loads(output)
            bits = report.get("end", {}).get("sum_received", {}).get("bits_per_second", 0)
            if bits > 0:
                return Found({"bytes": ("1/s", bits / 8)})
        raise Failure(f"iperf3 received nothing: {report.get('error', '')}")

    def turn(self, direction):
        return lambda warm_up, seconds: self.measure(warm_up, seconds, direction)


# ---- perftest --------------------------------------------------------------------------------------------------


# Headings as perftest prints them; some have a blank before their unit, or within.
HEADINGS = ("#bytes", "#iterations", "BW peak", "BW average", "MsgRate", "t_min", "t_max", "t_typical", "t_avg",
            "t_stdev", "99% percentile", "99.9% percentile")
MEGABYTE = 1048576  # what perftest calls MB/sec or MiB/sec


def perftest_table(text):
    """The numbers of the line behind the headings, by heading. {} where there is no such table."""
    head, _, rest = text[max(text.find("#bytes"), 0):].partition("\n")
    names = sorted((name for name in HEADINGS if name in head), key=head.index)
    words = rest.split("\n", 1)[0].split()
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        return {}
    whole = names and len(numbers) >= len(names) and all(map(math.isfinite, numbers))
    return dict(zip(names, numbers)) if whole else {}


def perftest_rate(text, size):
    """(bytes, messages) per second; None: no such table, or of another size."""
    table = perftest_table(text)
    if table.get("#bytes") != size or not {"BW average", "MsgRate"} <= set(table):
        return None
    # From a thousand messages per second on, the column of millions, with six digits, says more than that of megabytes.
    messages = table["MsgRate"] * 1e6
    messages = messages if messages >= 1000 else table["BW average"] * MEGABYTE / size
    return (messages * size, messages) if messages > 0 else None


def perftest_latency(text):
    """(median, 99th percentile) of a round trip in us, of which perftest prints half; None: no such table."""
    table = perftest_table(text)
    halves = table.get("t_typical", 0), table.get("99% percentile", 0)
    return tuple(2 * half for half in halves) if min(halves) > 0 else None


class Perftest:
    """A server and a client on one device, as find_device describes it: (name, address, GID index)."""

    title = "perftest"
    programs, packages = ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_send_lat"), "perftest"

    def __init__(self, options, device):
        self.options, (self.device, self.address, self.gid) = options, device
        self.per_s = {}

    def offer(self, load, messages):
        """It measures the processor's clock first; where that was disturbed it prints zeros, or nothing."""
        tool, size, depth, mode = load
        is_latency, sends = tool.endswith("_lat"), "_send_" in tool
        command = [find_program(tool), "-F", "-d", self.device, "-s", str(size), "-n",
                   str(int(min(max(messages, 20), 1e8)))]
        command += ["-x", str(self.gid)] if self.gid >= 0 else []
        command += [] if is_latency else ["-t", str(depth)]
        command += ["-I", str(size)] if sends else []  # without a key, as Starling's frames; else only latency is
        command += ["-e"] if mode == "events" else []
        # A server of Starling writes what is pulled and reads what is pushed: so the client has the server's core.
        cores = self.options.server_core, self.options.client_core
        server_core, client_core = cores if sends else cores[::-1]
        for _ in range(TRIES):
            server, port = start_server(lambda port: [*command, "-p", str(port)], server_core)
            output = run([*command, "-p", str(port), self.address], client_core)
            try:
                server.wait(START_S)
            except subprocess.TimeoutExpired:
                stop(server)
            values = perftest_latency(output) if is_latency else perftest_rate(output, size)
            if values is not None:
                self.per_s[load] = 1e6 / values[0] if is_latency else values[1]
                return values
        raise Failure(f"{tool} printed nothing that can be read: {output[-400:]}")

    def measure(self, warm_up, seconds, *load):
        """It counts messages, not seconds: the run before gives how many. The first run looks twice."""
        del warm_up  # pages and caches are warm from the run before
        if load not in self.per_s:
            self.offer(load, min(1000, 4 * MEGABYTE / load[1]))
        values = self.offer(load, self.per_s[load] * seconds)
        if load[0].endswith("_lat"):
            return Found({"p50": ("us", values[0]), "p99": ("us", values[1])})
        return Found({"bytes": ("1/s", values[0]), "messages": ("1/s", values[1])})

    def turn(self, tool, size, depth, mode="poll"):
        """size: bytes of a message; depth: messages in flight; mode: poll or events."""
        return lambda warm_up, seconds: self.measure(warm_up, seconds, tool, size, depth, mode)


# ---- The RDMA device -------------------------------------------------------------------------------------------


def interface_address(name):
    """The IPv4 address of a network interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            found = fcntl.ioctl(probe, 0x8915, name.encode()[:15].ljust(256, b"\0"))  # SIOCGIFADDR
        except OSError:
            return None
    return socket.inet_ntoa(found[20:24])


def describe_device(folder, address):
    """(address, index of its GID of RoCE v2 or -1); a text that says why the device cannot be measured."""
    if "RNIC" in read_line(f"{folder}/node_type"):
        return "iWARP is not supported: use RoCE mode"
    if "ACTIVE" not in read_line(f"{folder}/ports/1/state"):
        return "port 1 is not active"
    # GIDs name their interface; a device of software has a parent, others have the interface beside them.
    beside = [os.path.basename(path) for path in sorted(glob.glob(f"{folder}/device/net/*"))]
    names = [read_line(f"{folder}/ports/1/gid_attrs/ndevs/0"), read_line(f"{folder}/parent"), *beside]
    address = address or next((interface_address(name) for name in names if name), None)
    if address is None:
        return "no IPv4 address of its network interface is known: name one by --address"
    wanted = ipaddress.IPv6Address(f"::ffff:{address}")
    for index in range(256):
        gid = read_line(f"{folder}/ports/1/gids/{index}")
        if gid and ipaddress.IPv6Address(gid) == wanted and "RoCE v2" in read_line(
                f"{folder}/ports/1/gid_attrs/types/{index}"):
            return address, index
    return address, -1


def find_device(sysfs, name, address):
    """(name, address, GID index) of the device of this name, or of the first that can be measured."""
    devices = sorted(glob.glob(f"{sysfs}/class/infiniband/*"))
    why = ("this machine has no RDMA device" if not devices else f"--device={name}: no RDMA device of this machine"
           if name else "no RDMA device of this machine can be measured")
    for device in devices:
        own_name = os.path.basename(device)
        if name in (None, own_name):
            found = describe_device(device, address)
            if not isinstance(found, str):
                return own_name, *found
            why += f"; {own_name}: {found}"
    raise Failure(why)
