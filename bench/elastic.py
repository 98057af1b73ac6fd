"""Pulls while a shard moves to another server, beside the same pulls while it stays; a move without them, beside a copy of as
many bytes over bare TCP into memory that is new, as that of the moved shard is; and the memory that the former server keeps.

The target has the client's core, unless --second-core says otherwise. While there are pulls it has only the time that the client
leaves (SCHED_IDLE), as a target with a core of its own would disturb the client as little."""

import mmap
import os
import socket
import subprocess
import threading
import time

import processes
from driver import Contestant, core, number
from processes import Failure, Found, free_ports

# Targets.
P99_OF_STILL, MOVE_OF_COPY, LONGEST_US, FREED = 1.5, 3, 100000, 0.95
PIECE_BYTES = 1 << 20


def add_arguments(parser):
    add = parser.add_argument
    add("--rows", type=number("rows", 1, 10**8), default=3800000, help="of the table, all in one shard: 1 GB with its index")
    add("--dim", type=number("dim", 1, 4096), default=64, help="columns of a row, in f32")
    add("--keys", type=number("keys", 1, 8192), default=100, help="of a pull")
    add("--second-core", type=core("second-core"), default=-1, metavar="CORE",
        help="the core of the server that the shard moves to; -1: the client's")


class Job:
    """A shard, and two servers that can have it. Between measurements it is at the first one."""

    def __init__(self, bench):
        self.bench, options = bench, bench.options
        hosts = [f"127.0.0.1:{port}" for port in free_ports(2)]
        second = options.client_core if options.second_core < 0 else options.second_core
        self.shares_core = second == options.client_core
        first = bench.ps(parked=False, hosts=hosts[:1], flags=["--shards=1"])
        self.servers = [first, bench.ps(parked=False, hosts=hosts, index=1, core=second, flags=["--join"])]
        empty = first.memory()[0]
        self.load = bench.load("calls", f"--coordinator={first.address}", f"--rows={options.rows}", f"--dim={options.dim}",
                               f"--keys-max={options.keys}")
        self.bytes = first.memory()[0] - empty
        self.move_there_and_back()  # the machine's memory has been used once

    def ctl(self, *words):
        done = subprocess.run([processes.program(self.bench.options.bin, "starling-ctl"), "--coordinator",
                               self.servers[0].address, *words], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "STARLING_LOG": "error"}, check=False)
        if done.returncode:
            raise Failure(f"starling-ctl {' '.join(words)}: {done.stderr}")

    def move(self, to):
        """Seconds until the other server has the shard."""
        begun, first, moved = time.monotonic(), self.servers[0], f"has moved from ps/{1 - to} to ps/{to}"
        count = first.log().count(moved)
        self.ctl("move", "0", f"ps/{to}", "--yes")
        while first.log().count(moved) == count:
            if time.monotonic() - begun > processes.SLACK_S:
                raise Failure(f"the shard does not move:\n{first.tail()}")
            time.sleep(0.005)
        return time.monotonic() - begun

    def move_there_and_back(self, *_):
        before = self.servers[0].memory()[0]
        took = self.move(1)
        time.sleep(1)  # memory is given back in slices
        freed = (before - self.servers[0].memory()[0]) / self.bytes
        self.move(0)
        return Found({"move": ("s", took), "freed": ("", freed)})

    def yield_core(self, policy):
        """Of all threads of the target."""
        for thread in os.listdir(f"/proc/{self.servers[1].pid}/task"):
            os.sched_setscheduler(int(thread), policy, os.sched_param(0))

    def pull(self, warm_up, seconds):
        return self.load.turn(warm_up, seconds, "pull", self.bench.options.keys)

    def pull_during_move(self, warm_up, seconds):
        if self.shares_core:
            self.yield_core(os.SCHED_IDLE)
        self.load.begin(warm_up, seconds, "pull", self.bench.options.keys)
        time.sleep(warm_up)
        took = self.move(1)
        found = self.load.wait()
        self.yield_core(os.SCHED_OTHER)
        self.move(0)
        found["move"] = "s", took
        return found


class Copy:
    """Bytes in memory, and a TCP connection over which they are copied."""

    def __init__(self, bench, size):
        self.options, self.size = bench.options, size
        self.bytes = bytearray(os.urandom(PIECE_BYTES)) * (size // PIECE_BYTES + 1)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
            self.sender = socket.create_connection(listener.getsockname())
            self.receiver, _ = listener.accept()
        self.sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")

    def send(self):
        os.sched_setaffinity(threading.get_native_id(), {self.options.server_core})
        self.sender.sendall(memoryview(self.bytes)[:self.size])

    def turn(self, *_):
        thread, begun, got = threading.Thread(target=self.send), time.monotonic(), 0
        thread.start()
        with mmap.mmap(-1, self.size) as memory, memoryview(memory) as view:
            while got < self.size:
                got += self.receiver.recv_into(view[got:got + PIECE_BYTES])
        took = time.monotonic() - begun
        thread.join()
        return Found({"copy": ("s", took)})


def run(bench):
    options = bench.options
    job = Job(bench)
    copy = Copy(bench, job.bytes)
    options.seconds = max(options.seconds, job.move_there_and_back().value("move"))
    bench.measure([Contestant("shard stays", job.pull, "shared memory"),
                   Contestant("shard moves", job.pull_during_move, "shared memory"),
                   Contestant("shard moves, no pulls", job.move_there_and_back, "TCP"),
                   Contestant("bare TCP", copy.turn, "TCP")])
    for quantity, most in (("p99 of a step", P99_OF_STILL), ("calls", 0)):
        bench.ratio(f"{quantity}, shard moves / stays", bench.figure("shard moves", quantity),
                    bench.figure("shard stays", quantity), most=most)
    moves, one = bench.figure("shard moves, no pulls", "move"), {"samples": [1] * options.rounds, "transport": ""}
    bench.ratio("time of the move / bare TCP", moves, bench.figure("bare TCP", "copy"), most=MOVE_OF_COPY)
    bench.ratio("longest pull while the shard moves / 100 ms", bench.figure("shard moves", "longest"),
                {**one, "samples": [LONGEST_US] * options.rounds}, most=1)
    bench.ratio("memory given back / the shard's", bench.figure("shard moves, no pulls", "freed"), one, least=FREED)
    return (f"one shard of {job.bytes / 1e9:.2f} GB, {options.rows} rows of dim {options.dim}, and two servers with a reactor "
            "each")
