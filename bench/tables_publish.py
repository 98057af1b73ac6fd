#!/usr/bin/env python3
"""Pulls from a server while a table of it is published again and again, beside the same pulls without that: in every
round both, in turns. Pulls are due at fixed times."""

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import processes  # bench/processes.py
import profile  # bench/profile.py
import report

PUBLISHED = "pulls while a table is published"
ALONE = "pulls"
MOST = 1.5  # the target: p99 with / without


class Publisher(threading.Thread):
    """Publishes the table each interval, until the block ends; counts, and keeps how long it took."""

    def __init__(self, command, interval, timeout):
        super().__init__()
        self.command, self.interval, self.timeout = command, interval, timeout
        self.took, self.failure, self.ends = [], None, threading.Event()

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


class Tables:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.bench = profile.Bench(argparse.Namespace(bin=options.bin, server_core=options.server_core, congestion="cubic"),
                                   folder)

    def pull(self, address):
        """{quantity: value} of one window, and the name of the table."""
        options, path = self.options, os.path.join(self.folder, "pulls.json")
        done = subprocess.run(
            [self.bench.program("starling-bench"), "pull", "--coordinator", address, "--keys=1", "--connections=1",
             f"--depth={options.depth}", f"--rate={options.rate}", f"--rows={options.rows}", f"--dim={options.dim}",
             "--rounds=1", f"--warm-up={options.warm_up}", f"--seconds={options.seconds}",
             f"--client-core={options.client_core}", "--congestion=cubic", "--json", path],
            timeout=options.timeout, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, preexec_fn=processes.child_setup())
        if done.returncode != 0:
            raise report.Failure(done.stdout.strip()[-1000:])
        with open(path, encoding="utf-8") as file:
            return {figure["quantity"]: figure["samples"][0] for figure in json.load(file)["figures"]}

    def measure(self, address, catalogue):
        options = self.options
        put = [self.bench.program("starling-objects"), "put", "tables", "--tables", options.table, "--catalogue", catalogue]
        self.pull(address)  # creates the rows
        rounds = []
        for number in range(options.rounds):
            values = {}
            for name in ((ALONE, PUBLISHED) if number % 2 == 0 else (PUBLISHED, ALONE)):
                with Publisher(put, options.interval, options.timeout) if name == PUBLISHED else contextlib.nullcontext() as of:
                    values[name] = self.pull(address)
                if of is not None and (of.failure or not of.took):
                    raise report.Failure(of.failure or "nothing was published")
                if of is not None:
                    values["publication"] = sum(of.took) / len(of.took), len(of.took)
            rounds.append(values)
        return rounds

    def report(self, rounds):
        options, figures = self.options, []
        for name in (ALONE, PUBLISHED):
            for quantity in ("requests", "p50", "p99"):
                figures.append({"name": name, "quantity": quantity, "unit": "1/s" if quantity == "requests" else "us",
                                "transport": "TCP", "samples": [values[name][quantity] for values in rounds]})
        figures.append({"name": "a publication", "quantity": "time", "unit": "s", "transport": "",
                        "samples": [values["publication"][0] for values in rounds]})
        figures.append({"name": "publications", "quantity": "count", "unit": "", "transport": "",
                        "samples": [values["publication"][1] for values in rounds]})
        ratios = [{"name": "pulls, p99 while a table is published / without", "transport": "TCP", "least": 0, "most": MOST,
                   "samples": [values[PUBLISHED]["p99"] / values[ALONE]["p99"] for values in rounds]}]
        setting = (f"one server; a table of {options.rows} rows of {options.dim}, published every {options.interval:g} s; pulls of "
                   f"one row, {options.rate} a second")
        return {"benchmark": "tables", "setting": setting, "build": options.build, "rounds": options.rounds,
                "rounds_left_out": 0, "rounds_disturbed": 0, "seconds": options.seconds, "warm_up": options.warm_up,
                "server_core": options.server_core, "client_core": options.client_core, "figures": figures,
                "ratios": ratios, "distributions": []}


def parse_arguments(argv):
    cores = sorted(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(prog="tables_publish.py", description=__doc__)
    parser.add_argument("--bin", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build/release/bin"))
    parser.add_argument("--rows", type=int, default=1000000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--interval", type=float, default=5, help="seconds between two publications")
    parser.add_argument("--rate", type=int, default=2000, help="pulls a second")
    parser.add_argument("--depth", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--warm-up", type=float, default=1)
    parser.add_argument("--timeout", type=float, default=300)
    for flag in ("--json", "--compare", "--plot"):
        parser.add_argument(flag, help="of the report")
    parser.add_argument("--server-core", type=int, default=cores[0])
    parser.add_argument("--client-core", type=int, default=cores[min(1, len(cores) - 1)])
    return parser.parse_args(argv)


def main(argv):
    options = parse_arguments(argv)
    options.bin, options.build = os.path.abspath(options.bin), ""
    options.table = f"bench-{options.dim}-3"  # as starling-bench pull names it, with adagrad

    def run(folder):
        tables = Tables(options, folder)
        memory = f"--objects-memory={4 * options.rows * (options.dim * 4 + 8) // (1 << 20) + 64}M"
        with tables.bench.ps(more=("--objects=127.0.0.1:0", memory)) as (_, address):
            with open(os.path.join(folder, "ps.log"), encoding="utf-8", errors="replace") as log:
                text = log.read()
            catalogue = re.search(r"objects\D*(127\.0\.0\.1:\d+)", text)
            if catalogue is None:
                raise report.Failure(f"the server does not say where its objects are:\n{text[-1000:]}")
            report.finish(tables.report(tables.measure(address, catalogue.group(1))), options)
    try:
        report.check("tables", options)
        processes.run_in_folder("starling-bench-tables-", run)
    except (report.Failure, profile.Failure, subprocess.TimeoutExpired, OSError) as failure:
        print(f"tables_publish.py: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
