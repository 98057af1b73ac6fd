#!/usr/bin/env python3
"""Pulls from a server while a table of it is published again and again, beside the same pulls without that: in every
round both, in turns. Pulls are due at fixed times."""

import subprocess
import threading
import time

import driver
import processes
from driver import Contestant, number
from exchange import without_all

PUBLISHED, ALONE = "pulls while a table is published", "pulls"
MOST = 1.5  # the target: p99 with / without


class Publisher(threading.Thread):
    """Publishes the table each interval, until the block ends; keeps how long it took."""

    def __init__(self, command, interval, timeout):
        super().__init__()
        self.command, self.interval, self.timeout = command, interval, timeout
        self.took, self.failure, self.ends = [], "nothing was published", threading.Event()

    def run(self):
        while not self.ends.is_set():
            begun = time.monotonic()
            done = subprocess.run(self.command, timeout=self.timeout, check=False, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
            if done.returncode != 0:
                self.failure = done.stdout.strip()
                return
            self.took.append(time.monotonic() - begun)
            self.ends.wait(max(0, self.interval - self.took[-1]))

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.join()


def add_arguments(parser):
    parser.set_defaults(seconds=15, warm_up=1, congestion="cubic")
    add = parser.add_argument
    add("--rows", type=number("rows", 1, 10**9), default=1000000, help="of the table")
    add("--dim", type=number("dim", 1, 4096), default=64, help="columns of a row, in f32")
    add("--interval", type=float, default=5, help="seconds between two publications")
    add("--rate", type=int, default=2000, help="pulls a second")
    add("--depth", type=int, default=32, help="pulls in flight, at most")
    add("--timeout", type=float, default=300, help="seconds that a publication may take")


def run(bench):
    options = bench.options
    memory = 4 * options.rows * (options.dim * 4 + 8) // (1 << 20) + 64
    ps = bench.ps(parked=False, flags=["--objects=127.0.0.1:0", f"--objects-memory={memory}M"])
    catalogue = ps.find_in_log(r"objects\D*(127\.0\.0\.1:\d+)")
    put = [processes.program(options.bin, "starling-objects"), "put", "tables", "--catalogue", catalogue, "--tables",
           f"bench-{options.dim}-3"]  # as the load `rows` names it, with adagrad
    pulls = without_all(bench.alone("rows", f"--coordinator={ps.address}", f"--depth={options.depth}", f"--rate={options.rate}",
                                    f"--rows={options.rows}", f"--dim={options.dim}", "--congestion=cubic"))

    def published(*times):
        with Publisher(put, options.interval, options.timeout) as of:
            found = pulls(*times)
        if not of.took:
            raise processes.Failure(of.failure)
        found["a publication"] = "s", sum(of.took) / len(of.took)
        found["publications"] = "", len(of.took)
        return found
    bench.measure([Contestant(ALONE, pulls, "TCP"), Contestant(PUBLISHED, published, "TCP")])
    bench.ratio("pulls, p99 while a table is published / without", bench.figure(PUBLISHED, "p99"), bench.figure(ALONE, "p99"),
                most=MOST)
    return (f"one server; a table of {options.rows} rows of {options.dim}, published every {options.interval:g} s; pulls of one "
            f"row, {options.rate} a second")


if __name__ == "__main__":
    driver.run_program(lambda argv: driver.main(["tables", *argv]))
