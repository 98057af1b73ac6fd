"""Dense pulls and pushes over one connection, from 64 KB to 64 MB, beside bare sockets, pushes in process and iperf3; and
small pulls beside pushes of 16 MB."""

import os

from driver import OVER, Contestant, congestion, number, size_text, sizes
from peers import Iperf
from processes import Found

SIZES_MAX, BYTES_MAX, DEPTH_MAX = 8, 256 << 20, 16
# Targets, and the sizes that they are of.
OF_BARE, OF_MODEL, OF_IPERF = 0.9, 0.9, {"pull": 0.9, "push": 0.75}
TARGET_SIZES = range(1 << 20, (16 << 20) + 1)
P99_BESIDE = 3  # of small pulls beside pushes / alone
MODES = ("event", "polling")
SMALL_ROWS = 10000


def add_arguments(parser):
    add = parser.add_argument
    add("--sizes", type=sizes("sizes", BYTES_MAX, 4, SIZES_MAX), default="64K,1M,16M,64M", help="bytes of a step")
    add("--depth", type=number("depth", 1, DEPTH_MAX), default=4, help="steps in flight")
    add("--small-connections", type=number("small-connections", 0, 256), default=4,
        help="connections whose small pulls meet pushes of 16 MB; 0: none")
    add("--way", choices=("pull", "push", "both"), default="both", help="what the client does")
    add("--optimizer", choices=("sum", "sgd"), default="sum", help="what pushes go through")
    add("--over", choices=tuple(OVER), default="tcp", help="what is between the server and its client")
    add("--congestion", type=congestion, default="cubic", help="TCP's congestion control")
    add("--coordinator", metavar="HOST:PORT", help="only use a cluster that runs already")
    add("--polling", choices=("false", "true"), default="false", help="whether the client spins beside --coordinator")


class Bulk:
    def __init__(self, bench):
        self.bench, self.options = bench, bench.options
        self.ways = ("pull", "push") if self.options.way == "both" else (self.options.way,)
        self.has_bare = self.options.over == "tcp" and not self.options.coordinator
        self.iperf = bench.peer(Iperf) if self.has_bare else None
        if self.options.coordinator:
            self.servers = {MODES[self.options.polling == "true"]: None}
        else:
            self.servers = {mode: bench.ps(polling=mode == "polling", workers=1) for mode in MODES}
        self.loads = {mode: self.client(mode, ps) for mode, ps in self.servers.items()}
        self.sends = bench.start_once("sends", f"--depth={self.options.depth}", f"--congestion={self.options.congestion}")
        self.applies = bench.start_once("applies", f"--depth={self.options.depth}", f"--optimizer={self.options.optimizer}")

    def client(self, mode, ps):
        options = self.options
        return self.bench.start_once(
            "bulk", f"--coordinator={ps.address if ps else options.coordinator}", f"--depth={options.depth}",
            f"--optimizer={options.optimizer}", f"--over={options.over}", f"--congestion={options.congestion}",
            *(["--polling"] if mode == "polling" else []))

    def ours(self, mode, way, size):
        ps, load = self.servers[mode], self.loads[mode]

        def theirs(warm_up, seconds):
            found = load().turn(warm_up, seconds, way, size)
            del found["seconds"]
            return found

        def turn(warm_up, seconds):
            with ps.running():
                before = ps.cpu_seconds()
                found = load().turn(warm_up, seconds, way, size)
                found["server's core"] = "", (ps.cpu_seconds() - before) / found.pop("seconds")[1]
            return found
        return Contestant(f"{way}, {mode}", turn if ps else theirs, OVER[self.options.over], self.x(size))

    @staticmethod
    def x(size):
        return "MB", size / 2**20

    def bare(self, way, size):
        """Bare sockets run only where Starling uses TCP too, and so do pushes in process, which a computed figure needs
        beside them."""
        yield Contestant(f"{way}, bare", lambda *times: self.sends().turn(*times, way, size), "TCP", self.x(size))
        if way == "push":
            yield Contestant("push, in process", lambda *times: self.applies().turn(*times, size), x=self.x(size))

    def small(self):
        """Pulls of one row, alone and beside pushes. One thread drives both if there is no third core: two threads would
        wait for one another."""
        options, ps = self.options, self.servers.get("event")
        if not options.small_connections or ps is None:
            return
        others = set(os.sched_getaffinity(0)) - {options.server_core, options.client_core}
        for name, more in (("small pulls alone", []),
                           ("small pulls beside 16 MB pushes",
                            ["--beside=dense", f"--beside-optimizer={options.optimizer}",
                             f"--beside-core={min(others, default=options.client_core)}"])):
            turn = self.bench.served(ps, "rows", f"--rows={SMALL_ROWS}", f"--connections={options.small_connections}",
                                     f"--congestion={options.congestion}", *more)
            yield Contestant(name, lambda *times, turn=turn: chosen(turn(*times)), "TCP")

    def contestants(self):
        for size in self.options.sizes:
            for way in self.ways:
                yield from (self.ours(mode, way, size) for mode in self.servers)
                yield from self.bare(way, size) if self.has_bare else ()
        for way in ("pull", "push") if self.iperf else ():
            yield Contestant(f"{way}, iperf3 -l 1M", self.iperf.turn(way), "TCP")
        yield from self.small()

    def add_ratios(self, size, way):
        bench, text = self.bench, size_text(size)

        def figure(name):
            return bench.figure(name, "bytes", size / 2**20)
        bare, applies = figure(f"{way}, bare"), figure("push, in process") if way == "push" else None
        held, model = size in TARGET_SIZES, None
        if bare and applies:
            model = bench.add("push, received and in process, computed", "bytes", "1/s",
                              *(1 / (1 / a + 1 / b) for a, b in zip(bare["samples"], applies["samples"])), transport="TCP")
        for mode in self.servers if bare else ():
            ours = figure(f"{way}, {mode}")
            bench.ratio(f"{way}, {mode}, {text} / bare", ours, bare, OF_BARE if held and not model else 0)
            bench.ratio(f"{way}, {mode}, {text} / received and in process", ours, model, OF_MODEL if held else 0)
            bench.ratio(f"{way}, {mode}, {text} / iperf3 -l 1M", ours, bench.figure(f"{way}, iperf3 -l 1M", "bytes"),
                        OF_IPERF[way] if held else 0)


def chosen(found):
    """Of what the load `rows` finds, in the order of the report; without pushes there are no bytes of them."""
    pushed = found.get("pushed bytes", ("1/s", 0))
    return Found({**{quantity: found[quantity] for quantity in ("p50", "p99", "requests")}, "pushed bytes": pushed})


def run(bench):
    bulk, options = Bulk(bench), bench.options
    bench.measure(list(bulk.contestants()))
    for size in options.sizes:
        for way in bulk.ways:
            bulk.add_ratios(size, way)
    bench.ratio("small pulls' p99, beside pushes / alone", bench.figure("small pulls beside 16 MB pushes", "p99"),
                bench.figure("small pulls alone", "p99"), most=P99_BESIDE)
    return (f"dense tables over {OVER[options.over]}, {options.depth} steps under way, {options.optimizer}, TCP congestion "
            f"control {options.congestion}")
