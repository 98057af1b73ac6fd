"""What a backup of each shard costs the clients that push: two clusters of two servers each, one with --replicas 1 and one
without, have the same pushes in turns, over TCP and over shared memory."""

import contextlib

from driver import Contestant, congestion, core, number
from processes import free_ports

SHAPES = ("one", "many", "long")


def add_arguments(parser):
    add = parser.add_argument
    add("--rows", type=number("rows", 1, 10**8), default=100000, help="of the table")
    add("--dim", type=number("dim", 1, 4096), default=16, help="columns of a row, in f32")
    add("--keys", type=number("keys", 1, 8192), default=10, help="of a short push")
    add("--depth", type=number("depth", 1, 128), default=32, help="short pushes in flight; one at a time is measured too")
    add("--long-keys", type=number("long-keys", 1, 8192), default=1000, help="of a long push")
    add("--long-depth", type=number("long-depth", 1, 128), default=8, help="long pushes in flight")
    add("--second-core", type=core("second-core"), default=-1, metavar="CORE",
        help="the core of the second server; -1: the first one's")
    add("--polling", choices=("false", "true"), default="false", help="whether a server spins when it is idle")
    add("--congestion", type=congestion, default="cubic", help="TCP's congestion control")


def shape(options, name):
    """Keys of a push, and pushes in flight."""
    return {"one": (options.keys, 1), "many": (options.keys, options.depth),
            "long": (options.long_keys, options.long_depth)}[name]


class Cluster:
    """Two servers, which are stopped between turns."""

    def __init__(self, bench, replicas):
        options, self.replicas = bench.options, replicas
        hosts = [f"127.0.0.1:{port}" for port in free_ports(2)]
        cores = options.server_core, options.server_core if options.second_core < 0 else options.second_core
        self.servers = [bench.ps(parked=False, hosts=hosts, index=i, core=cores[i], polling=options.polling == "true",
                                 flags=[f"--replicas={replicas}"]) for i in range(2)]
        self.loads = {way: bench.start_once("replicas", f"--coordinator={self.servers[0].address}", f"--over={way}",
                                            f"--rows={options.rows}", f"--dim={options.dim}",
                                            f"--congestion={options.congestion}") for way in ("tcp", "shm")}
        for load in self.loads.values():
            load()
        for server in self.servers:
            server.park()

    def contestant(self, way, words):
        def turn(*times):
            with contextlib.ExitStack() as stack:
                for server in self.servers:
                    stack.enter_context(server.running())
                return self.loads[way]().turn(*times, *words)
        return Contestant(f"{way}, {words[0]} keys x {words[1]}, replicas {self.replicas}", turn, way)


def run(bench):
    options = bench.options
    clusters = [Cluster(bench, replicas) for replicas in (0, 1)]
    shapes = [shape(options, name) for name in SHAPES]
    bench.measure([cluster.contestant(way, words) for words in shapes for way in ("tcp", "shm") for cluster in clusters])
    for words in shapes:
        for way in ("tcp", "shm"):
            name = f"{way}, {words[0]} keys x {words[1]}"
            for quantity in ("bytes", "p50", "p99"):
                bench.ratio(f"{name}: {quantity} with a backup / without", bench.figure(f"{name}, replicas 1", quantity),
                            bench.figure(f"{name}, replicas 0", quantity))
    where = "one core" if options.second_core in (-1, options.server_core) else "two cores"
    return (f"two ps with a reactor each, on {where}, {options.rows} rows of dim {options.dim} with adagrad; pushes of a client "
            f"that drives its own connections; {'polling' if options.polling == 'true' else 'event'} mode; TCP "
            f"{options.congestion}")
