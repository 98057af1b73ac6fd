"""What checkpoints cost a server that serves, what they hold, and how fast a server begins from one."""

import os
import time

from driver import Contestant, number, real
from processes import Failure, Found

PARTS = ("serving", "restore")
P99_MOST, MEMORY_MOST = 1.3, 1.1  # of pulls beside a checkpoint / without; of the server's memory in its course / before
INCREMENTALS_MAX = 63  # in a row: as many as a server makes
PIECE_BYTES = 1 << 20
NAMES = (("no checkpoint", "full checkpoints"), ("no checkpoint, among adding ones", "adding checkpoints"))


def add_arguments(parser):
    add = parser.add_argument
    add("--part", choices=("all", *PARTS), default="all", help="what is measured")
    add("--rows", type=number("rows", 1, 10**8), default=2000000, help="of the table")
    add("--dim", type=number("dim", 1, 4096), default=16, help="columns of a row, in f32")
    add("--dir", metavar="DIR", help="where a folder for the checkpoints is made, and removed at the end; not given: $TMPDIR or "
        "/tmp")
    add("--touched", type=real("touched", 1e-6, 1), default=0.1,
        help="share of the rows that is pushed to between a full checkpoint and one that adds to it")
    add("--keys", type=number("keys", 1, 8192), default=10, help="of a pull, and of a push, beside checkpoints")
    add("--connections", type=number("connections", 1, 1024), default=8, help="of the pulls, and as many of the pushes")
    add("--depth", type=number("depth", 1, 128), default=8, help="requests in flight on each, at most")
    add("--pull-rate", type=real("pull-rate", 0, 1e9), default=20000,
        help="pulls a second, due at fixed intervals, with latency counted from when they were due; 0: each reply lets the next go")
    add("--push-rate", type=real("push-rate", 0, 1e9), default=5000, help="the same of the pushes")
    add("--polling", choices=("false", "true"), default="false", help="whether the server spins when it is idle")


def start_ps(bench, folder=None, incrementals=0, level=1, restores=False):
    """A server with a folder of its own, or with none."""
    flags = [f"--checkpoint-dir={folder}", "--checkpoint-every=0", f"--checkpoint-incrementals={incrementals}",
             f"--checkpoint-compression={level}", *(["--restore=newest"] if restores else [])]
    return bench.ps(parked=False, polling=bench.options.polling == "true", flags=flags if folder else [],
                    log="debug" if folder else "info")  # short stalls are logged there


# ---- Serving ---------------------------------------------------------------------------------------------------


class Site:
    """A server, and the load on it: pulls and pushes of one thread. It is stopped between turns."""

    def __init__(self, bench, name, incrementals):
        options, self.bench = bench.options, bench
        self.ps = start_ps(bench, os.path.join(bench.folder, name), incrementals)
        self.rows = bench.load("rows", f"--coordinator={self.ps.address}", f"--rows={options.rows}", f"--dim={options.dim}",
                               f"--keys={options.keys}", f"--connections={options.connections}", f"--depth={options.depth}",
                               f"--rate={options.pull_rate}", "--beside=rows", f"--beside-rate={options.push_rate}")
        self.checkpoints = bench.load("checkpoints", f"--dim={options.dim}")
        self.resident = self.ps.memory()[0]  # before the first checkpoint
        self.checkpoints.turn(0, 1, self.ps.address, "one")  # is full wherever the others add
        self.ps.park()

    def turn(self, has_checkpoints, warm_up, seconds):
        """With checkpoints one after the other, or without one."""
        with self.ps.running():
            self.ps.stalls()
            self.ps.forget_peak()
            self.rows.begin(warm_up, seconds)
            made = self.checkpoints.turn(warm_up, seconds, self.ps.address, "beside") if has_checkpoints else None
            found = self.rows.wait()
            count, longest = self.ps.stalls()
            peak = self.ps.memory()[1]
        kept = found.only("p50", "p99", "p99.9")
        kept.update({"pulls": found["requests"], "peak memory": ("B", peak), "stalls": ("", count),
                     "longest stall": ("ms", longest), **({"a checkpoint": made["time"]} if made else {})})
        kept.times = found.times
        return kept

    def contestants(self, names):
        for has_checkpoints, name in enumerate(names):
            yield Contestant(name, lambda *times, has=has_checkpoints: self.turn(has, *times), spread=True)

    def add_ratios(self, without, name):
        bench = self.bench
        for quantity, most in (("p50", 0), ("p99", P99_MOST)):
            bench.ratio(f"{quantity} of pulls beside {name} / without", bench.figure(name, quantity),
                        bench.figure(without, quantity), most=most)
        peak = bench.figure(name, "peak memory")
        before = bench.add(f"before the first of {name}", "memory", "B", *[self.resident] * len(peak["samples"]))
        bench.ratio(f"memory in {name} / before", peak, before, most=MEMORY_MOST)


def measure_serving(bench):
    sites = [Site(bench, "full", 0), Site(bench, "adds", INCREMENTALS_MAX)]
    bench.measure([contestant for site, names in zip(sites, NAMES) for contestant in site.contestants(names)])
    for site, names in zip(sites, NAMES):
        site.add_ratios(*names)
        site.ps.unpark()
        site.rows.stop()
        site.checkpoints.stop()
        site.ps.kill()


# ---- Files -----------------------------------------------------------------------------------------------------


class Files:
    """The checkpoints of one level. The newest is a full one, of all rows."""

    def __init__(self, bench, load, level):
        self.bench, self.load, self.level, options = bench, load, level, bench.options
        self.dir = os.path.join(bench.folder, f"level-{level}")
        ps = start_ps(bench, self.dir, 1, level)
        with ps.running():
            # A full one, one that adds, and a full one again: the server lets one of two add.
            load.turn(0, 1, ps.address, "push", options.rows)
            self.make(ps, "full, idle ps")
            load.turn(0, 1, ps.address, "push", max(int(options.touched * options.rows), 1))
            self.added = self.make(ps, f"adds {options.touched:g} of the rows, idle ps")
            self.bytes = self.make(ps, "full again, idle ps")
            self.value = load.turn(0, 1, ps.address, "value").value("value")
        ps.kill()

    def make(self, ps, what):
        """The bytes of one more."""
        found = self.load.turn(0, 1, ps.address, "one")
        self.newest = os.path.join(self.dir, f"checkpoint-{int(found.value('number')):06}")
        total = sum(os.path.getsize(path) for path in self.paths())
        name = f"{what}, level {self.level}"
        self.bench.add(name, "bytes", "B", total)
        self.bench.add(name, "time", "s", found.value("time"))
        return total

    def paths(self):
        return [os.path.join(self.newest, name) for name in os.listdir(self.newest)]

    def read(self):
        """read() of all of it, with as many bytes at a time as a server has."""
        memory, begun, total = bytearray(PIECE_BYTES), time.perf_counter(), 0
        for path in self.paths():
            with open(path, "rb", buffering=0) as file:
                while some := file.readinto(memory):
                    total += some
        took = time.perf_counter() - begun
        return Found({"time": ("s", took), "bytes": ("1/s", total / took)})

    def restore(self, raw_bytes):
        found = start(self.bench, self.load, self)
        took = found.value("time")
        found.update({"bytes": ("1/s", self.bytes / took), "raw bytes": ("1/s", raw_bytes / took)})
        return found


def start(bench, load, files=None):
    """From the start of a server until a client has a row, which must be the one that was written."""
    begun = time.perf_counter()
    ps = start_ps(bench, files.dir, 0, files.level, True) if files else start_ps(bench)
    with ps.running():
        value = load.turn(0, 1, ps.address, "value").value("value")
        took = time.perf_counter() - begun
    ps.kill()
    if files and value != files.value:
        raise Failure(f"{files.newest}: a row begins with {value}, where {files.value} was written")
    return Found({"time": ("s", took)})


def measure_restore(bench):
    load = bench.load("checkpoints", f"--dim={bench.options.dim}")
    packed, raw = (Files(bench, load, level) for level in (1, 0))
    add_bytes_ratio(bench, "bytes, one that adds / full, level 0", raw.added, raw.bytes)
    add_bytes_ratio(bench, "bytes, full, level 1 / level 0", packed.bytes, raw.bytes)
    memory, pieces = bench.start_once("memory"), min(max(raw.bytes // PIECE_BYTES, 1), 4096)

    def copy(*times):
        rate = memory().turn(*times, PIECE_BYTES, pieces).value("bytes")
        return Found({"time": ("s", raw.bytes / rate), "bytes": ("1/s", rate)})
    bench.measure([Contestant("start without a checkpoint", lambda *_: start(bench, load)),
                   *(Contestant(f"start from level {files.level}", lambda *_, files=files: files.restore(raw.bytes))
                     for files in (packed, raw)),
                   *(Contestant(f"read() of level {files.level}", lambda *_, files=files: files.read()) for files in (packed, raw)),
                   Contestant("memcpy of the raw bytes", copy)])
    for level in (1, 0):
        bench.ratio(f"restore, level {level} / read() of its file", bench.figure(f"start from level {level}", "bytes"),
                    bench.figure(f"read() of level {level}", "bytes"))
    for level in (1, 0):
        bench.ratio(f"restore, level {level}, raw bytes / memcpy", bench.figure(f"start from level {level}", "raw bytes"),
                    bench.figure("memcpy of the raw bytes", "bytes"))


def add_bytes_ratio(bench, name, a, b):
    """Of two counts that are no figures of their own."""
    bench.ratio(name, *({"transport": "", "samples": [count]} for count in (a, b)))


def run(bench):
    options = bench.options
    if options.part in ("all", "serving"):
        measure_serving(bench)
    if options.part in ("all", "restore"):
        measure_restore(bench)
    loop = f"{options.pull_rate:g} pulls/s and {options.push_rate:g} pushes/s" if options.pull_rate else "closed loop"
    return (f"one ps reactor, {options.rows} rows of dim {options.dim} with adagrad; pulls and pushes of {options.keys} keys, "
            f"{options.connections} connections x {options.depth} each, {loop}; "
            f"{'polling' if options.polling == 'true' else 'event'} mode; what compresses and writes has the reactor's core")
