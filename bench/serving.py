"""One server reactor that serves one core of clients, beside what the machine can do in the same shape, and beside Redis.
Each comparison is measured in rounds of its own."""

import math
import time

from driver import Contestant, congestion, number
from exchange import served_rows
from peers import Redis
from processes import Found

# On the wire (docs/protocol.md): a request's header, prefix and section, a reply's header.
REQUEST_BYTES, REPLY_BYTES, KEY_BYTES = 72, 32, 8
SEND_BYTES = 65536
PARTS = ("one-row", "latency", "wide-rows", "rows", "connections", "idle")


def add_arguments(parser):
    parser.add_argument("--part", choices=("all", *PARTS), default="all", help="which comparisons")
    parser.add_argument("--rows", type=number("rows", 1, 10**8), default=1000000, help="of each table")
    parser.add_argument("--congestion", type=congestion, default="cubic", help="TCP's congestion control")


class Serving:
    """Two servers, one that polls and one that sleeps when it is idle, and contestants beside them."""

    def __init__(self, bench):
        self.bench, self.options = bench, bench.options
        self.polling, self.event = bench.ps(polling=True), bench.ps()
        wants_redis = self.options.part in ("all", "one-row", "wide-rows")
        self.redis = bench.peer(Redis, rows=self.options.rows) if wants_redis else None

    def rows(self, name, connections, depth, keys, dim, operation="pull", ps=None):
        ps = ps or self.polling
        return Contestant(name, served_rows(
            self.bench, ps, f"--operation={operation}", f"--connections={connections}", f"--depth={depth}", f"--keys={keys}",
            f"--dim={dim}", f"--rows={self.options.rows}", f"--congestion={self.options.congestion}",
            *(["--polling"] if ps is self.polling else [])), "TCP")

    def echo(self, name, connections, depth, keys=1, dim=16):
        """Bytes on the wire of a pull of so many rows."""
        return Contestant(name, self.bench.alone(
            "echo", f"--connections={connections}", f"--depth={depth}", f"--request-bytes={REQUEST_BYTES + keys * KEY_BYTES}",
            f"--reply-bytes={REPLY_BYTES + keys * dim * 4}", "--polling", f"--congestion={self.options.congestion}"), "TCP")

    def reads(self, name, dim):
        """The same rows of a table in the load's own memory."""
        return Contestant(name, self.bench.alone("reads", f"--rows={self.options.rows}", f"--dim={dim}", "--keys=100"))

    def of_redis(self, name, keys, pipeline):
        return [Contestant(name, self.redis.turn(keys, pipeline), "TCP")] if self.redis else []


def compare_one_row(serving):
    """16 connections, 32 requests in flight on each."""
    bench, polling, event = serving.bench, "pull 1 row, 16 x 32, polling", "pull 1 row, 16 x 32, event"
    bench.measure([serving.rows(polling, 16, 32, 1, 16), serving.rows(event, 16, 32, 1, 16, ps=serving.event),
                   serving.echo("bare echo, 16 x 32", 16, 32), *serving.of_redis("redis GET, pipelined x64", 1, 64)])
    pulls = bench.figure(polling, "requests")
    bench.ratio("pulls of 1 row, 16 x 32 / bare echo", pulls, bench.figure("bare echo, 16 x 32", "requests"), 0.55)
    bench.ratio("event mode / polling, at full load", bench.figure(event, "requests"), pulls, 0.95)
    bench.ratio("pulls of 1 row, 16 x 32 / redis GET x64", pulls, bench.figure("redis GET, pipelined x64", "requests"), 4)


def compare_latency(serving):
    """One request at a time."""
    bench, pull, echo = serving.bench, "pull 1 row, 1 x 1, polling", "bare ping-pong"
    bench.measure([serving.rows(pull, 1, 1, 1, 16), serving.echo(echo, 1, 1)])
    for quantity, most in (("p50", 1.3), ("p99", 1.5)):
        bench.ratio(f"latency of 1 row, {quantity} / bare ping-pong", bench.figure(pull, quantity),
                    bench.figure(echo, quantity), most=most)


def compare_wide_rows(serving):
    """Pulls of 100 rows of 64 columns, beside one core that only reads the rows and sends them."""
    bench, pull, reads, sends = serving.bench, "pull 100 rows, dim 64, 4 x 8", "in process, 100 rows, dim 64", "bare 64 KB sends"
    bench.measure([serving.rows(pull, 4, 8, 100, 64), serving.reads(reads, 64),
                   Contestant(sends, bench.alone("sends", "--depth=8", f"--congestion={serving.options.congestion}",
                                                 words=("pull", SEND_BYTES)), "TCP"),
                   *serving.of_redis("redis MGET of 100", 100, 1)])
    key_bytes = 64 * 4 + REPLY_BYTES / 100
    model = bench.add("in process and sent, computed", "keys", "1/s", *(
        1 / (1 / keys + key_bytes / rate) for keys, rate in zip(bench.figure(reads, "keys")["samples"],
                                                                bench.figure(sends, "bytes")["samples"])), transport="TCP")
    pulls = bench.figure(pull, "keys")
    bench.ratio("pulls of 100 rows, dim 64 / in process and sent", pulls, model, 0.75)
    bench.ratio("pulls of 100 rows, dim 64 / redis MGET", pulls, bench.figure("redis MGET of 100", "keys"), 6)


def compare_rows(serving):
    """Pulls and pushes of 100 rows of 16 columns."""
    bench, pull, push = serving.bench, "pull 100 rows, dim 16, 4 x 8", "push 100 rows, dim 16, 4 x 8"
    reads = "in process, 100 rows, dim 16"
    bench.measure([serving.rows(pull, 4, 8, 100, 16), serving.rows(push, 4, 8, 100, 16, "push"), serving.reads(reads, 16)])
    pulls = bench.figure(pull, "keys")
    bench.ratio("pulls of 100 rows, dim 16 / in process", pulls, bench.figure(reads, "keys"), 0.5)
    bench.ratio("pushes of 100 rows, dim 16 / pulls", bench.figure(push, "keys"), pulls, 0.7)


def compare_connections(serving):
    """As many requests in flight on many connections or on few. The kernel's work for each connection decides if requests
    are small: bare sockets show how much."""
    bench = serving.bench
    shapes = {"1000 x 2": (1000, 2), "16 x 125": (16, 125)}
    bench.measure([serving.rows(f"pull 100 rows, dim 64, {shape}", *of, 100, 64) for shape, of in shapes.items()]
                  + [serving.rows(f"pull 1 row, {shape}", *of, 1, 16) for shape, of in shapes.items()]
                  + [serving.echo(f"bare echo, {shape}", *of) for shape, of in shapes.items()])

    def requests(what):
        return [bench.figure(f"{what}, {shape}", "requests") for shape in shapes]
    wide, small, bare = requests("pull 100 rows, dim 64"), requests("pull 1 row"), requests("bare echo")
    bench.ratio("100 rows from 1000 connections / from 16", *wide, 0.85)
    bench.ratio("1 row from 1000 connections / from 16", *small)
    bench.ratio("bare echo, 1000 connections / 16", *bare)
    bench.ratio("1 row from 1000 connections / bare echo", small[0], bare[0])


def compare_idle(serving):
    """A server in event mode without a client."""
    def turn(_, seconds):
        with serving.event.running():
            before, seconds = serving.event.cpu_seconds(), math.floor(max(seconds, 2))
            time.sleep(seconds)
            return Found({"processor time": ("s", serving.event.cpu_seconds() - before), "time": ("s", seconds)})
    bench, name = serving.bench, "idle ps, event"
    bench.measure([Contestant(name, turn)])
    bench.ratio("share of a core of an idle reactor, event mode", bench.figure(name, "processor time"),
                bench.figure(name, "time"), most=0.005)


def run(bench):
    serving = Serving(bench)
    for part in PARTS:
        if bench.options.part in ("all", part):
            globals()[f"compare_{part.replace('-', '_')}"](serving)
    return (f"one ps reactor, one core of clients, {bench.options.rows} rows, uniform keys, congestion control "
            f"{bench.options.congestion}")
