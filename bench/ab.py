#!/usr/bin/env python3
"""Compares two builds of Starling: ab.py OLD NEW, two folders with bin/starling-bench and bin/starling-ps.

In every round each case runs once per build, in an order that alternates. A figure is the median of the ratios of
the rounds: a rate as NEW / OLD, a time as OLD / NEW, so that 1.00 means alike and less means that NEW is slower.
--instructions counts the server's instructions per request instead; noise of the machine does not change them.
Exit status: 0; 1 when NEW is below --least in three of four rounds of a figure, or a case failed; 2 for wrong
arguments.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import profile  # bench/profile.py

LOAD = ["--rows", "100000", "--connections", "16", "--depth", "32"]
BULK = ["bulk", "--sizes", "1M", "--small-connections", "0"]
# Name: the command, and the quantity that decides; --all shows the others too.
CASES = {
    "pull": (["pull", "--keys", "1,100", *LOAD], "requests"),
    "push": (["push", "--keys", "1,100", *LOAD], "requests"),
    "bulk": ([*BULK, "--over", "tcp"], "bytes"),
    "bulk-shm": ([*BULK, "--over", "shm"], "bytes"),
    "calls": (["calls"], "rows"),
    "table": (["table", "--rows", "1M", "--dim", "16", "--keys", "uniform"], "per key"),
    "ipc": (["ipc", "--part", "goodput"], "goodput"),
    "replicas": (["replicas", "--rows", "20000"], "pushes"),
    "checkpoint": (["checkpoint", "--part", "serving", "--rows", "200000", "--pull-rate", "0", "--push-rate", "0"],
                   "pulls"),
}
DEFAULT_CASES = ["pull", "push", "bulk", "bulk-shm"]
BASELINES = ("bare", "iperf3", "memcpy", "ps-lite")  # Starling has no part in these contestants
RUN_S = 600


def run_case(build, command, seconds):
    """One run of one case: {(name, quantity): (value, unit)}."""
    with tempfile.TemporaryDirectory(prefix="starling-ab-") as folder:
        path = os.path.join(folder, "report.json")
        os.symlink(sys.executable, os.path.join(folder, "python3"))
        done = subprocess.run(
            [os.path.join(build, "starling-bench"), *command, "--rounds", "1", "--seconds", str(seconds), "--warm-up",
             str(seconds / 3), "--json", path],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=RUN_S, check=False,
            env={**os.environ, "PATH": folder})  # without iperf3 and Redis: their figures are not wanted here
        if done.returncode != 0:
            raise RuntimeError(f"{build}: starling-bench {' '.join(command)}: {done.stdout.strip()[-500:]}")
        with open(path, encoding="utf-8") as file:
            figures = json.load(file)["figures"]
    return {(f["name"], f["quantity"]): (f["median"], f["unit"]) for f in figures
            if f["median"] and not any(word in f["name"] for word in BASELINES)}


def speed(old, new):
    (before, unit), (after, _) = old, new
    return before / after if unit.split("/")[0] in ("s", "ms", "us", "ns") else after / before


def quartiles(samples):
    return statistics.quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else samples * 3


def report(name, samples, options, note="", decides=True):
    """Prints one figure. Returns whether NEW is good enough: not when three rounds of four are below --least, since
    a median alone falls below it by chance where there are many figures."""
    low, median, high = quartiles(samples)
    is_good = high >= options.least or not decides
    print(f"  {name:76} {median:6.3f}  ({low:.3f} .. {high:.3f}){note}{'' if is_good else '  BELOW'}", flush=True)
    return is_good


def compare_case(name, options):
    """Runs the rounds of one case. Returns whether NEW is good enough in all figures that decide."""
    command, decides = CASES[name]
    ratios = {}
    for number in range(options.rounds):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        found = {which: run_case(options.builds[which], command, options.seconds) for which in order}
        for key in found[0]:
            if key in found[1] and (options.all or key[1] == decides):
                ratios.setdefault(key, []).append(speed(found[0][key], found[1][key]))
    if not any(key[1] == decides for key in ratios):
        raise RuntimeError(f"{name}: the reports of the two builds have no {decides} in common")
    return all([report(f"{name}: {', '.join(key)}", samples, options, decides=key[1] == decides)
                for key, samples in ratios.items()])


def compare_instructions(options):
    """Instructions of the server per request, of each load of profile.py, and of an idle turn."""
    counts = {}
    for name in profile.DEFAULT_LOADS:
        for build in options.builds:
            with tempfile.TemporaryDirectory(prefix="starling-ab-") as folder:
                bench = profile.Bench(profile.parse_arguments(["--bin", build]), folder)
                request, idle_turn, _ = profile.measure_instructions(bench, profile.LOADS[name])["server"]
            counts.setdefault(f"{name}: instructions per request", []).append(request)
            if idle_turn is not None:
                counts.setdefault("idle turn: instructions", []).append(idle_turn)
    return all([report(name, [old / new], options, f"  {old:.0f}, now {new:.0f}")
                for name, (old, new, *_) in counts.items()])


def build_of(path):
    for folder in (path, os.path.join(path, "bin")):
        if os.access(os.path.join(folder, "starling-bench"), os.X_OK):
            return os.path.abspath(folder)
    raise argparse.ArgumentTypeError(f"{path}: has no starling-bench: build it, for example by ./dev build release")


def cases_of(text):
    names = list(CASES) if text == "all" else text.split(",")
    for name in names:
        if name not in CASES:
            raise argparse.ArgumentTypeError(f"{name!r}: accepts all, or some of {','.join(CASES)}")
    return names


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", type=build_of, nargs=2, metavar="BUILD", help="OLD, then NEW")
    parser.add_argument("--cases", type=cases_of, default=DEFAULT_CASES, help=f"all, or some of {','.join(CASES)}")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.4, help="of one measurement")
    parser.add_argument("--least", type=float, default=0.97, help="fail below this ratio")
    parser.add_argument("--all", action="store_true", help="show the other figures of each case too")
    parser.add_argument("--instructions", action="store_true", help="count instructions instead (valgrind)")
    return parser.parse_args(argv)


def main():
    options = parse_arguments()
    print(f"OLD {options.builds[0]}, NEW {options.builds[1]}: speed of NEW / OLD, median and quartiles")
    try:
        good = ([compare_instructions(options)] if options.instructions
                else [compare_case(name, options) for name in options.cases])
    except (RuntimeError, profile.Failure, subprocess.TimeoutExpired, OSError) as failure:
        print(f"ab: {failure}", file=sys.stderr)
        return 1
    return 0 if all(good) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
