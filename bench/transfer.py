"""READ and WRITE between two processes of this machine, in turns with bare sockets and iperf3, with memcpy, or over RDMA with
perftest. Bare sockets and memcpy use as much memory as the blocks have: memory that stays in the processor's cache is
faster, which "bare, 4 MB" shows. Flags of `starling-bench transfer` that are not listed here are those of both processes."""

import contextlib
import select
import signal
import subprocess

import driver
import peers
import processes
from driver import Contestant

# Targets, as ratios.
READS_OF_BARE, WRITES_OF_BARE, STRIDED_OF_BARE, LONG_OF_BARE = 0.47, 0.37, 0.37, 0.85
OF_IPERF, OF_MEMCPY, OF_PERFTEST, P99_OF_ALONE = 1, 0.8, 0.9, 3
LONG, BLOCK, SMALL = 1 << 20, 65536, 4096
BARE_DEPTH = 4
BUFFER_BYTES = 128 << 20
START_S = 20
OPS = ("READ", "WRITE")
TOOLS = {"READ": "ib_read_bw", "WRITE": "ib_write_bw"}
TRANSPORTS = {"any": "TCP", "tcp": "TCP", "shm": "shared memory", "rdma": "RDMA", "dpdk": "DPDK"}
# Name: bytes of a block, blocks of a batch, threads, and the least of bare bulk, by operation.
SHAPES = {"1 MB x 16, 1 thread": (LONG, 16, 1, {"READ": LONG_OF_BARE, "WRITE": LONG_OF_BARE}),
          "64 KB x 128, 1 thread": (BLOCK, 128, 1, {"READ": READS_OF_BARE, "WRITE": WRITES_OF_BARE}),
          "64 KB x 128, 12 threads": (BLOCK, 128, 12, {"READ": STRIDED_OF_BARE, "WRITE": STRIDED_OF_BARE})}
RDMA_SHAPES = {"64 KB x 16": (BLOCK, 16), "1 MB x 16": (LONG, 16)}
# READs of 4 KB, one at a time, alone and beside WRITEs of 16 MB to the same peer.
ALONE, BESIDE = "4 KB, alone", "4 KB, beside 16 MB WRITEs"


def normalized(argv):
    """With two dashes, and dashes between the words of a flag, as Mooncake's flags may not have them; without --compare."""
    words = []
    for word in argv:
        name, equals, value = word.partition("=")
        if name.startswith("-") and len(name) > 2:
            word = "--" + name.lstrip("-").replace("_", "-") + equals + value
        words.append(word)
    return [word for word in words if word.partition("=")[0] not in ("--compare", "--mode")]


def add_arguments(parser):
    add = parser.add_argument
    add("--duration", type=driver.real("duration", 0.01, 1e6), default=10, help="seconds to measure")
    add("--protocol", choices=tuple(TRANSPORTS), default="any", help="of the data; any: TCP")
    add("--memory", choices=("private", "shared"), default="private", help="shared memory can be mapped by processes of the host")
    add("--congestion", type=driver.congestion, help="TCP's congestion control; without it the system's")
    add("--device-name", help="of RDMA, or of DPDK")


def check(_, options):
    options.protocol = "tcp" if options.protocol == "any" else options.protocol
    options.seconds, options.warm_up = options.duration, options.duration / 4


class Transfers:
    """A target, which is stopped between turns, and an initiator."""

    def __init__(self, bench):
        self.bench, self.options = bench, bench.options
        options = bench.options
        self.flags = [f"--protocol={options.protocol}", f"--memory={options.memory}", *options.more,
                      *([f"--congestion={options.congestion}"] if options.congestion else []),
                      *([f"--device-name={options.device_name}"] if options.device_name else [])]
        self.target = subprocess.Popen(
            [processes.program(options.bin, "starling-bench"), "transfer", "--mode=target", *self.flags,
             f"--buffer-size={BUFFER_BYTES}"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
            preexec_fn=processes.child_setup(options.server_core))
        bench.stack.callback(processes.end, self.target)
        ready = select.select([self.target.stdout], [], [], START_S)[0]
        self.name = self.target.stdout.readline().partition(" ")[0] if ready else ""
        if not self.name:
            raise processes.Failure("the target did not start")
        self.target.send_signal(signal.SIGSTOP)
        self.initiator = bench.start_once("transfer", f"--segment-id={self.name}", f"--buffer-size={BUFFER_BYTES}", *self.flags)
        self.sends = bench.start_once("sends", f"--depth={BARE_DEPTH}", *self.congestion())
        self.memory = bench.start_once("memory", *(["--shared"] if options.memory == "shared" else []))

    def congestion(self):
        return [f"--congestion={self.options.congestion}"] if self.options.congestion else []

    @contextlib.contextmanager
    def running(self):
        """The target runs meanwhile."""
        self.target.send_signal(signal.SIGCONT)
        yield
        self.target.send_signal(signal.SIGSTOP)

    def turn(self, warm_up, seconds, *words):
        with self.running():
            load, before = self.initiator(), processes.cpu_seconds(self.target.pid)
            found = load.turn(warm_up, seconds, *words)
            found["target's core"] = "", (processes.cpu_seconds(self.target.pid) - before) / found.value("seconds")
        return found

    def contestant(self, name, op, block, batch, threads, *more, quantities=("bytes", "client's core", "target's core")):
        def turn(*times):
            return self.turn(*times, op, block, batch, threads, *more).only(*quantities)
        return Contestant(f"{op}, {name}", turn, TRANSPORTS[self.options.protocol])

    def ours(self):
        for name, (block, batch, threads, _) in SHAPES.items():
            yield from (self.contestant(name, op, block, batch, threads) for op in OPS)
        for name, more in ((ALONE, ()), (BESIDE, ("beside",))) if self.options.protocol != "shm" else ():
            yield self.contestant(name, "READ", SMALL, 1, 1, *more, quantities=("p50", "p99", "WRITEs"))

    def rdma(self):
        """Each of ours is followed by perftest's."""
        device = peers.find_device("/sys", self.options.device_name, None)
        perftest = self.bench.peer(peers.Perftest, device=device)
        for name, (block, depth) in RDMA_SHAPES.items():
            for op in OPS:
                yield self.contestant(name, op, block, depth, 1)
                if perftest:
                    yield Contestant(f"{op}, {TOOLS[op]}, {name}", perftest.turn(TOOLS[op], block, depth))

    def bare(self):
        for megabytes in [*(memory_mb(shape) for shape in SHAPES.values()), BARE_DEPTH]:
            for op, way in zip(OPS, ("pull", "push")):
                yield Contestant(f"{op}, bare, {megabytes} MB",
                                 lambda *times, words=(way, LONG, megabytes): self.sends().turn(*times, *words), "TCP")
        iperf = self.bench.peer(peers.Iperf)
        for op, way in zip(OPS, ("pull", "push")) if iperf else ():
            yield Contestant(f"{op}, iperf3 -l 1M", iperf.turn(way), "TCP")

    def copies(self):
        for name, (block, batch, threads, _) in SHAPES.items():
            yield Contestant(f"memcpy, {name}",
                             lambda *times, words=(block, batch * threads): self.memory().turn(*times, *words))


def memory_mb(shape):
    """Of all blocks."""
    block, batch, threads, _ = shape
    return block * batch * threads // LONG


def add_ratios(bench, protocol, memory):
    for op in OPS:
        for name in RDMA_SHAPES if protocol == "rdma" else ():
            bench.compare("bytes", f"{op}, {name}", f"{op}, {TOOLS[op]}, {name}", OF_PERFTEST)
        for name, shape in SHAPES.items() if protocol != "rdma" else ():
            ours = f"{op}, {name}"
            bench.compare("bytes", ours, f"memcpy, {name}", OF_MEMCPY if memory == "shared" else 0)
            bench.compare("bytes", ours, f"{op}, bare, {memory_mb(shape)} MB", shape[3][op])
            if shape[0] == LONG:
                bench.compare("bytes", ours, f"{op}, bare, {BARE_DEPTH} MB")
                bench.compare("bytes", ours, f"{op}, iperf3 -l 1M", OF_IPERF)
    bench.compare("p99", f"READ, {BESIDE}", f"READ, {ALONE}", most=P99_OF_ALONE)


def run(bench):
    options, transfers = bench.options, Transfers(bench)
    if options.protocol == "rdma":
        bench.measure(list(transfers.rdma()))
    elif options.protocol == "shm":
        bench.measure([*transfers.ours(), *transfers.copies()])
    else:
        bench.measure([*transfers.ours(), *transfers.bare()])
    add_ratios(bench, options.protocol, options.memory)
    return f"memory {options.memory}, congestion control {options.congestion or 'of the system'}"
