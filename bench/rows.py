#!/usr/bin/env python3
"""What admission saves and costs, of a stream in which most keys appear once; a scan beside a dense pull of as many
bytes; erase beside push. Each is measured in turns, at one server."""

import os
import sys
import time

import driver
from driver import Contestant, number
from processes import Found

BATCH = 10000  # keys of a push
FREQUENT, PUSHES = 10, 5  # percent of the distinct keys that are frequent, and their pushes each; the others have one
NONE, COUNT, BLOOM = "no admission", "count 3", "bloom 3"


def add_arguments(parser):
    parser.set_defaults(rounds=5, seconds=2, warm_up=0)
    parser.add_argument("--keys", type=number("keys", BATCH, 10**9), default=1000000, help="distinct keys of the stream, and rows of the scan")
    parser.add_argument("--dim", type=number("dim", 1, 4096), default=16, help="columns of a row, in f32")


class Stream:
    """Pushes the stream to a new table with this policy."""

    def __init__(self, client, options, policy):
        self.client, self.dim, self.policy, self.count = client, options.dim, policy, 0
        frequent = options.keys * FREQUENT // 100
        keys = numpy.concatenate((numpy.repeat(numpy.arange(frequent), PUSHES), numpy.arange(frequent, options.keys)))
        self.keys = numpy.random.default_rng(1).permutation(keys).astype(numpy.int64)

    def turn(self, warm_up, seconds):
        values = numpy.zeros((BATCH, self.dim), numpy.float32)
        self.count += 1
        name = f"{self.policy.admission} {self.policy.admit_count} {self.count}".replace(" ", "-")
        table = self.client.sparse(name, self.dim, starling.SGD(0.01), policy=self.policy)
        begun = time.perf_counter()
        for at in range(0, len(self.keys), BATCH):
            keys = self.keys[at:at + BATCH]
            table.push(keys, values[:len(keys)])
        took = time.perf_counter() - begun
        stats = table.stats()
        self.client.drop(name)
        return Found({"pushed keys": ("1/s", len(self.keys) / took), "memory": ("MB", stats.bytes / 1e6), "rows": ("", stats.rows)})


class Table:
    """A table with a row of each key, and a dense one of as many elements."""

    def __init__(self, client, options):
        self.sparse = client.sparse("scanned", options.dim, starling.SGD(0.01))
        self.dense = client.dense("dense", options.keys * options.dim, starling.SGD(0.01))
        self.keys = numpy.arange(options.keys, dtype=numpy.int64)
        self.values = numpy.zeros((BATCH, options.dim), numpy.float32)
        self.into = numpy.zeros(options.keys * options.dim, numpy.float32)
        self.push(0, 0)

    def over_all(self, quantity, call):
        begun = time.perf_counter()
        for at in range(0, len(self.keys), BATCH):
            call(self.keys[at:at + BATCH])
        return Found({quantity: ("1/s", len(self.keys) / (time.perf_counter() - begun))})

    def push(self, warm_up, seconds):
        return self.over_all("rows", lambda keys: self.sparse.push(keys, self.values[:len(keys)]))

    def erase(self, warm_up, seconds):
        found = self.over_all("rows", self.sparse.erase)
        self.push(0, 0)
        return found

    def scan(self, warm_up, seconds):
        begun = time.perf_counter()
        rows = sum(batch.rows.nbytes for batch in self.sparse.scan())
        return Found({"bytes of rows": ("B/s", rows / (time.perf_counter() - begun))})

    def pull(self, warm_up, seconds):
        begun = time.perf_counter()
        self.dense.pull(self.into)
        return Found({"bytes of rows": ("B/s", self.into.nbytes / (time.perf_counter() - begun))})


def run(bench):
    global numpy, starling
    sys.path.insert(0, os.path.join(bench.options.bin, "..", "python"))
    import numpy
    import starling
    options = bench.options
    policies = {NONE: starling.Policy(), COUNT: starling.Policy(admit_count=3),
                BLOOM: starling.Policy(admission="bloom", admit_count=3, keys_expected=options.keys)}
    ps = bench.ps(parked=False)
    with starling.connect(coordinator=ps.address, task=-1) as client:
        bench.measure([Contestant(name, Stream(client, options, policy).turn) for name, policy in policies.items()])
        table = Table(client, options)
        bench.measure([Contestant("push of known keys", table.push), Contestant("erase", table.erase)])
        bench.measure([Contestant("dense pull", table.pull), Contestant("scan", table.scan)])
    for name, memory in ((COUNT, 0.3), (BLOOM, 0.2)):
        bench.ratio(f"memory, {name} / {NONE}", bench.figure(name, "memory"), bench.figure(NONE, "memory"), most=memory)
        bench.compare("pushed keys", name, NONE, least=0.9)
    bench.compare("rows", "erase", "push of known keys", least=0.7)
    bench.compare("bytes of rows", "scan", "dense pull", least=0.5)
    return f"one server, {options.keys} keys, of which {100 - FREQUENT} % appear once in the stream, rows of dim {options.dim}, pushes of {BATCH} keys"


def main(argv):
    return driver.main(["rows", *argv])


if __name__ == "__main__":
    driver.run_program(main)
