"""Requests for rows to a real server, from one core, by a load that speaks the protocol. pull, push, pushpull: any number
of keys, connections and requests in flight. scale: pulls from servers of several sizes."""

import os

from driver import Contestant, congestion, number, numbers, plural, real

COMBINATIONS_MAX = 64
THE_SYSTEMS = "the system's"
DEPTH_MAX, THREADS_MAX = 128, 64
OPTIMIZERS = ("sum", "sgd", "momentum", "adagrad", "adagrad-decay", "rmsprop", "adam", "adamw", "adam-async", "ftrl",
              "ftrl-group", "rowwise-adagrad", "rowwise-adam", "adadelta", "lion", "lamb")
# Targets of scale: a thousand connections against sixteen, and two reactors against one.
FEW, MANY = 16, 1000
OF_FEW, OF_ONE_REACTOR = 0.85, 1.9


def is_scale(parser):
    return parser.prog.endswith(" scale")


def add_arguments(parser):
    scales = is_scale(parser)
    parser.set_defaults(seconds=0.5, warm_up=0.2, coordinator=None)
    add = parser.add_argument
    add("--keys", type=numbers("keys", 1, 8192), default="1" if scales else "1,100", help="of one request")
    add("--connections", type=numbers("connections", 1, 8192), default="1,16,128,1000" if scales else "1,16",
        help="to each shard; everything is measured with each combination")
    add("--reactors", type=numbers("reactors", 1, 256), default=None if scales else "1",
        help="of the server, on the cores from its own upwards; scale: 1, 2, 4, ... and as many as leave the client a core")
    add("--dim", type=number("dim", 1, 4096), default=16, help="columns of a row, in f32")
    add("--rows", type=number("rows", 1, 10**9), default=1000000, help="of the table")
    add("--polling", choices=("false", "true"), default="false", help="whether both sides spin when they are idle")
    add("--congestion", type=congestion, help="TCP's congestion control; without it the system's")
    if scales:
        add("--outstanding", type=number("outstanding", 1, 10**6), default=1024,
            help="requests under way at each reactor, over all its connections, as far as 128 on each allow")
        return
    add("--depth", type=numbers("depth", 1, DEPTH_MAX), default="1,32", help="requests under way on each connection")
    add("--rate", type=real("rate", 0, 1e9), default=0,
        help="requests a second over all connections, due at fixed intervals, with latency counted from when they were due; "
        "0: each reply lets the next go")
    add("--distribution", choices=("uniform", "zipf"), default="uniform", help="of the keys")
    add("--zipf", type=real("zipf", 0.01, 10), default=1.05, help="exponent of Zipf's law")
    add("--seed", type=number("seed", 0, 2**53), default=1, help="of the keys")
    add("--optimizer", choices=OPTIMIZERS, default="adagrad", help="of the table")
    add("--coordinator", metavar="HOST:PORT", help="measure a cluster that runs already")


def check(parser, options):
    if options.reactors is None:
        options.reactors = numbers("reactors", 1, 256)(by_cores(options))
    if is_scale(parser):
        return
    count = len(options.reactors) * len(options.keys) * len(options.depth) * len(options.connections)
    if count > COMBINATIONS_MAX:
        parser.error(f"{count} combinations, more than {COMBINATIONS_MAX}")


def cores_from(options):
    """Those that this process may use from the server's upwards; the client's is the last."""
    cores = [core for core in sorted(os.sched_getaffinity(0)) if core >= options.server_core and core != options.client_core]
    return [*cores, options.client_core]


def by_cores(options):
    """1, 2, 4, ... reactors, and as many as leave the client a core."""
    most = min(max(len(cores_from(options)) - 1, 1), 256)
    counts, reactors = [], 1
    while reactors < most:
        counts.append(reactors)
        reactors *= 2
    return ",".join(map(str, [*counts, most]))


class Cell:
    """A load of one shape on one of the servers."""

    def __init__(self, bench, ps, reactors, keys, depth, connections):
        options, self.scales = bench.options, bench.name == "scale"
        self.reactors, self.connections = reactors, connections
        if self.scales:
            depth = min(max(options.outstanding // connections, 1), DEPTH_MAX)
        cores = cores_from(options)
        # Client threads: one, or in scale one per reactor, but at most as many as connections and cores that are left.
        left = max(len(cores) - reactors, 1)
        self.threads = min(reactors if self.scales else 1, left, connections, THREADS_MAX)
        flags = [f"--keys={keys}", f"--depth={depth}", f"--connections={connections}", f"--dim={options.dim}",
                 f"--rows={options.rows}", f"--cores={','.join(map(str, cores[:-1 - self.threads:-1]))}",
                 *(["--polling"] if options.polling == "true" else []),
                 *([f"--congestion={options.congestion}"] if options.congestion else [])]
        sized = f"{reactors} reactor{plural(reactors)}"
        if self.scales:
            self.name = sized
        else:
            flags += [f"--operation={bench.name}", f"--rate={options.rate}", f"--distribution={options.distribution}",
                      f"--zipf={options.zipf}", f"--seed={options.seed}", f"--optimizer={options.optimizer}"]
            self.name = (f"{bench.name} {keys} key{plural(keys)}, {connections} x {depth}"
                         + (f", {sized}" if len(options.reactors) > 1 else ""))
        self.turn = (served_rows(bench, ps, *flags) if ps else
                     without_all(bench.alone("rows", f"--coordinator={options.coordinator}", *flags)))

    def contestant(self):
        return Contestant(self.name, self.turn, "TCP", ("connections per reactor", self.connections) if self.scales else None,
                          spread=not self.scales)


def served_rows(bench, ps, *flags):
    """The turns of the load `rows` on a server, with the server's processor time per request."""
    def cpu(found, seconds):
        found["server cpu"] = "us/request", seconds * 1e6 / found.pop("all requests")[1]
    return bench.served(ps, "rows", *flags, cpu=cpu)


def without_all(turn):
    def without(warm_up, seconds):
        found = turn(warm_up, seconds)
        del found["all requests"]
        return found
    return without


def run(bench):
    options = bench.options
    scales = bench.name == "scale"
    servers = [None if options.coordinator else
               bench.ps(reactors=reactors, polling=options.polling == "true") for reactors in options.reactors]
    cells = [Cell(bench, ps, reactors, keys, depth, connections)
             for reactors, ps in zip(options.reactors, servers) for keys in options.keys
             for depth in ([1] if scales else options.depth) for connections in options.connections]
    bench.measure([cell.contestant() for cell in cells])
    if scales:
        add_ratios(bench, cells)
    depth = f"{options.outstanding} under way at each reactor" if scales else f"depth {options.depth.text}"
    rate = f"open loop, {options.rate:g} requests/s" if not scales and options.rate else "closed loop"
    return (f"keys {options.keys.text}, {depth}, connections {options.connections.text}, dim {options.dim}, {options.rows} "
            f"rows, {'uniform' if scales else options.distribution}, {rate}, "
            f"{'polling' if options.polling == 'true' else 'event mode'}, {options.coordinator or 'a ps of its own'}, "
            f"reactors {options.reactors.text}, congestion control {options.congestion or THE_SYSTEMS}")


def add_ratios(bench, cells):
    """Many connections against few, with as many requests in flight; several reactors against the first number of them."""
    def requests(cell, connections=None):
        return bench.figure(cell.name, "requests", connections or cell.connections)
    first = bench.options.reactors[0]
    for cell in cells:
        if FEW in bench.options.connections and cell.connections > FEW:
            bench.ratio(f"{cell.connections} connections to each of {cell.reactors} reactor{plural(cell.reactors)} against {FEW}",
                        requests(cell), requests(cell, FEW), OF_FEW if cell.connections == MANY else 0)
        if cell.reactors != first:
            # Two against one have a target if each has a core of the client.
            is_target = (first, cell.reactors, cell.threads, cell.connections) == (1, 2, 2, FEW)
            bench.ratio(f"{cell.reactors} reactors against {first}, {cell.connections} connections to each", requests(cell),
                        bench.figure(f"{first} reactor{plural(first)}", "requests", cell.connections),
                        OF_ONE_REACTOR if is_target else 0)
