#!/usr/bin/env python3
"""A stream of keys, of which some are new, to a table with a limit of rows; beside a table of constant size, in
turns. After each turn of the stream: rows, memory of the server, and the share of recent keys that still have a row."""

import os
import re
import sys
import time
import urllib.request

import driver
from driver import Contestant, number
from processes import Found

LONG, SHORT, PULL_EACH = 10000, 100, 4  # keys of a push and of a pull; pushes for each pull
STREAM, CONSTANT = "stream of new keys", "constant size"


def add_arguments(parser):
    parser.set_defaults(rounds=12, seconds=5, warm_up=0.5)
    parser.add_argument("--rows", type=number("rows", LONG, 10**9), default=1000000, help="limit of the table")
    parser.add_argument("--new", type=number("new", 1, 100), default=50, help="percent of the keys that are new")
    parser.add_argument("--dim", type=number("dim", 1, 4096), default=16, help="columns of a row, in f32")


class Keys:
    """Ids that ascend, and recent ones: the age of a key has a geometric distribution."""

    def __init__(self, rows):
        self.rows, self.newest, self.random = rows, 0, numpy.random.default_rng(1)

    def new(self, count):
        self.newest += count
        return numpy.arange(self.newest - count, self.newest, dtype=numpy.int64)

    def recent(self, count):
        return numpy.maximum(self.newest - self.random.geometric(8 / self.rows, count), 0)


class Table:
    """Pushes and pulls of one table. modulo: its keys repeat after so many; 0: never."""

    def __init__(self, client, name, options, policy, modulo):
        self.keys, self.modulo, self.new = Keys(options.rows), modulo, LONG * options.new // 100
        self.table = client.sparse(name, options.dim, starling.SGD(0.01), policy=policy)
        self.values = numpy.zeros((LONG, options.dim), numpy.float32)
        for _ in range(0, options.rows, LONG):
            self.push(self.keys.new(LONG))

    def of(self, keys):
        return keys % self.modulo if self.modulo else keys

    def push(self, keys):
        self.table.push(self.of(keys), self.values)

    def turn(self, warm_up, seconds):
        for duration in (warm_up, seconds):
            begun, pushes, pulls = time.perf_counter(), 0, []
            while (now := time.perf_counter()) - begun < duration or pushes == 0:
                self.push(numpy.concatenate((self.keys.new(self.new), self.keys.recent(LONG - self.new))))
                pushes += 1
                if pushes % PULL_EACH == 0:
                    keys, asked = self.of(self.keys.recent(SHORT)), time.perf_counter()
                    self.table.pull(keys)
                    pulls.append(time.perf_counter() - asked)
        pulls.sort()
        return Found({"pushed keys": ("1/s", pushes * LONG / (now - begun)), "pull, p99": ("us", pulls[len(pulls) * 99 // 100] * 1e6)})


class Stream(Table):
    def __init__(self, bench, ps, client):
        options = bench.options
        super().__init__(client, "stream", options, starling.Policy(rows_max=options.rows, order="lru"), 0)
        self.bench, self.ps, self.rows = bench, ps, options.rows
        self.http = ps.find_in_log(r"http (?:http://)?(\S+:\d+)")

    def server_counts(self):
        """Its resident bytes, and its turns of over a millisecond."""
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=10) as answer:
            page = answer.read().decode()
        return [sum(float(value) for value in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", page, re.MULTILINE))
                for name in ("process_resident_memory_bytes", "starling_reactor_stalls_total")]

    def turn(self, warm_up, seconds):
        _, stalls = self.server_counts()
        found = super().turn(warm_up, seconds)
        resident, stalls_after = self.server_counts()
        stats, keys = self.table.stats(), self.keys.recent(LONG)
        _, is_there = self.table.find(keys)
        found.update({"keys seen / limit": ("", self.keys.newest / self.rows), "rows / limit": ("", stats.rows / self.rows),
                      "memory of the server": ("MB", resident / 1e6), "recent keys with a row": ("", is_there.mean()),
                      "loop iterations over 1 ms": ("", stalls_after - stalls)})
        print("  ".join(f"{name} {value:.5g}{' ' + unit if unit else ''}" for name, (unit, value) in found.items()), file=sys.stderr)
        return found


def run(bench):
    global numpy, starling
    sys.path.insert(0, os.path.join(bench.options.bin, "..", "python"))
    import numpy
    import starling
    ps = bench.ps(parked=False, flags=["--http=127.0.0.1:0"])
    with starling.connect(coordinator=ps.address, task=-1) as client:
        stream = Stream(bench, ps, client)
        constant = Table(client, "constant", bench.options, starling.Policy(), bench.options.rows)
        bench.measure([Contestant(STREAM, stream.turn), Contestant(CONSTANT, constant.turn)])
    bench.compare("pushed keys", STREAM, CONSTANT, least=0.8)
    bench.ratio(f"p99 of pulls, {STREAM} / {CONSTANT}", bench.figure(STREAM, "pull, p99"), bench.figure(CONSTANT, "pull, p99"), most=1.2)
    return f"one server, {bench.options.rows} rows of dim {bench.options.dim}, pushes of {LONG} keys, {bench.options.new} % of them new"


def main(argv):
    return driver.main(["forget", *argv])


if __name__ == "__main__":
    driver.run_program(main)
