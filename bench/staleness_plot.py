#!/usr/bin/env python3
"""Draws reports of `starling-bench staleness` as one SVG, a histogram for each mode and interval, and prints ratios.

staleness_plot.py OUT.svg REPORT.json...
staleness_plot.py OUT.svg --run DIR   runs modes, intervals and numbers of workers in interleaved rounds, into DIR
"""

import argparse
import collections
import itertools
import json
import math
import os
import re
import statistics
import subprocess
import sys

import report  # bench/report.py

SETTING = re.compile(r"^(?:.*): (?P<mode>\w+)(?P<subscribe> with --subscribe)?, (?P<workers>\d+) workers, .* MiB pushed every "
                     r"(?P<interval>\S+) s, .* loss (?P<loss>[^,\s]+)(?P<deltas>, with deltas)?(, .*)?$")
MODES = {"filesystem": [], "multicast": [], "server": ["--subscribe"]}
COLORS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1")
WIDTH, HEIGHT, MARGIN = 300, 180, 45
DIFFERENCE, BEHIND, DELIVERED = [(name, "mean") for name in ("difference at every step", "behind at every step",
                                                                 "begin of push to visible")]
PUSH, PUSHES = ("push", "mean"), ("pushes", "versions")


def read(paths):
    """{(mode, seconds between pushes, workers, loss): [the figures of each round]}, and the number of torn reads."""
    rounds, torn = collections.defaultdict(list), 0
    for path in sorted(paths):
        with open(path, encoding="utf-8") as file:
            one = json.load(file)
        match = SETTING.match(one["setting"])
        if one["benchmark"] != "staleness" or match is None:
            raise report.Failure(f"{path} is no report of starling-bench staleness")
        of = {(figure["name"], figure["quantity"]): figure["samples"][0] for figure in one["figures"] if "x" not in figure}
        of["steps"] = [(figure["x"], figure["samples"][0]) for figure in one["figures"] if "x" in figure]
        mode = match["mode"] + (" polling" if match["mode"] == "server" and not match["subscribe"] else "") + (match["deltas"] or "")
        rounds[mode, float(match["interval"]), int(match["workers"]), float(match["loss"])].append(of)
        torn += of["torn reads", "pulls"]
    return rounds, torn


def ratio(rounds, name, above, below, figure, most):
    """Prints the median of the ratios of the rounds. most: 0: no target."""
    ratios = sorted(a[figure] / b[figure] for a, b in zip(rounds.get(above, []), rounds.get(below, [])) if b[figure] > 0)
    if ratios:
        low, median, high = (statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3)
        target = f", at most {most}: {'holds' if median <= most else 'MISSED'}" if most else ""
        print(f"  {name}: {median:.3f} ({low:.3f} to {high:.3f}){target}")


def print_ratios(rounds, torn):
    for key in sorted(rounds):
        mode, interval, workers, loss = key
        of = {figure: statistics.median(one[figure] for one in rounds[key]) for figure in (DIFFERENCE, BEHIND, DELIVERED, PUSH, PUSHES)}
        print(f"{mode}, {workers} workers, {interval:g} s, loss {loss:g}: {of[DIFFERENCE]:.3f} versions and {of[BEHIND] * 1000:.1f} ms behind, {of[PUSHES]:.0f} pushes, "
              f"{of[DELIVERED] * 1000:.1f} ms from the push, {of[PUSH] * 1000:.1f} ms a push")
    print("ratios:")
    pairs = {(interval, workers) for _, interval, workers, loss in rounds if loss == 0}
    for interval, workers in sorted(pairs):
        most = 0.5 if (interval, workers) == (0.02, 40) else 1.0
        ratio(rounds, f"difference at every step, {interval:g} s, {workers} workers, server / filesystem",
              ("server", interval, workers, 0), ("filesystem", interval, workers, 0), DIFFERENCE, most)
        ratio(rounds, f"time behind at every step, {interval:g} s, {workers} workers, server / filesystem",
              ("server", interval, workers, 0), ("filesystem", interval, workers, 0), BEHIND, 0)
    for interval in sorted({interval for interval, _ in pairs}):
        ratio(rounds, f"time per push, {interval:g} s, server, 40 workers / 4", ("server", interval, 40, 0),
              ("server", interval, 4, 0), PUSH, 1.2)
    for mode, interval, workers, loss in sorted(rounds):
        if loss > 0:
            ratio(rounds, f"begin of push to visible, {mode}, {interval:g} s, {workers} workers, loss {loss:g} / 0",
                  (mode, interval, workers, loss), (mode, interval, workers, 0), DELIVERED, 1.5)
    print(f"torn reads: {torn:.0f}")


def draw_one(rounds, mode, interval, left, top):
    """Lines of one panel: for each number of workers the share of steps by versions behind, the mean of the rounds."""
    bottom, lines = top + HEIGHT, []
    for share in (0, 0.5, 1):
        y = bottom - share * HEIGHT
        lines.append(f'<path d="M{left} {y}h{WIDTH}" stroke="#ddd"/><text x="{left - 6}" y="{y + 4}" text-anchor="end">{share:g}</text>')
    for behind in (0, 1, 3, 7, 15, 31, 63, 127, 255):
        x = left + math.log2(behind + 1) / 8 * WIDTH
        lines.append(f'<text x="{x}" y="{bottom + 15}" text-anchor="middle">{behind}</text>')
    lines.append(f'<text x="{left}" y="{top - 8}" font-weight="bold">{mode}, a push every {interval:g} s</text>')
    counts = sorted(workers for a, b, workers, loss in rounds if (a, b, loss) == (mode, interval, 0))
    for color, workers in zip(COLORS, counts):
        of = rounds[mode, interval, workers, 0]
        shares = collections.Counter()
        for behind, share in itertools.chain.from_iterable(one["steps"] for one in of):
            shares[behind] += share / len(of)
        points, below = [], 0.0
        for behind, share in sorted(shares.items()):  # the share of the steps that are at most so far behind
            below += share
            points.append((left + min(math.log2(behind + 1) / 8, 1) * WIDTH, bottom - below * HEIGHT))
            lines.append(f'<rect x="{points[-1][0] - 3}" y="{bottom - share * HEIGHT:.1f}" width="6" '
                         f'height="{share * HEIGHT:.1f}" fill="{color}" fill-opacity="0.5"/>')
        lines.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" fill="none" stroke="{color}"/>')
        lines.append(f'<text x="{left + WIDTH}" y="{top + 14 * (counts.index(workers) + 1)}" text-anchor="end" '
                     f'fill="{color}">{workers} workers</text>')
    return lines


def draw(rounds, path):
    modes = sorted({mode for mode, _, _, loss in rounds if loss == 0})
    intervals = sorted({interval for _, interval, _, loss in rounds if loss == 0}, reverse=True)
    width, height = len(modes) * (WIDTH + MARGIN) + MARGIN, len(intervals) * (HEIGHT + 2 * MARGIN) + MARGIN
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
             'font-size="11"><rect width="100%" height="100%" fill="white"/>',
             f'<text x="{MARGIN}" y="18" font-size="13">Share of steps by versions behind (bars), and of those at most so far '
             'behind (lines)</text>']
    for (i, interval), (j, mode) in itertools.product(enumerate(intervals), enumerate(modes)):
        lines += draw_one(rounds, mode, interval, MARGIN + j * (WIDTH + MARGIN), 2 * MARGIN + i * (HEIGHT + 2 * MARGIN))
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join([*lines, "</svg>", ""]))


def run_all(options):
    """In each round every case once, in an order that is turned by one. Returns the reports."""
    cases = [(mode, interval, workers, 0) for interval in options.intervals for workers in options.workers for mode in MODES]
    cases += [("multicast", interval, options.workers[0], 0.01) for interval in options.intervals]
    os.makedirs(options.run, exist_ok=True)
    paths = []
    for number in range(options.rounds):
        turn = number % len(cases)
        for mode, interval, workers, loss in cases[turn:] + cases[:turn]:
            paths.append(os.path.join(options.run, f"{mode}-{interval:g}-{workers}-{loss:g}-{number}.json"))
            print(f"round {number + 1}: {mode}, {interval:g} s, {workers} workers, loss {loss:g}", file=sys.stderr)
            done = subprocess.run(
                [os.path.join(options.bin, "starling-bench"), "staleness", f"--mode={mode}", *MODES[mode], f"--loss={loss}",
                 f"--push_frequency={interval}", f"--pull_frequency={interval}", f"--workers={workers}",
                 f"--data_size={options.size}", f"--max_time={options.seconds}", "--max_version=1000000", "--LOGLEVEL=ERROR",
                 f"--json={paths[-1]}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            if done.returncode != 0:
                raise report.Failure(done.stdout.strip())
    return paths


def numbers(kind):
    return lambda text: [kind(item) for item in text.split(",")]


def main(argv):
    parser = argparse.ArgumentParser(prog="staleness_plot.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("reports", nargs="*")
    parser.add_argument("--run", metavar="DIR")
    parser.add_argument("--bin", default="build/release/bin", help="of starling-bench")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20, help="of each run")
    parser.add_argument("--size", type=int, default=10, help="MiB of a version")
    parser.add_argument("--intervals", type=numbers(float), default=[0.2, 0.02], help="seconds, 0.2,0.02")
    parser.add_argument("--workers", type=numbers(int), default=[4, 16, 40], help="4,16,40")
    options = parser.parse_args(argv)
    try:
        rounds, torn = read(run_all(options) if options.run else options.reports)
    except (report.Failure, OSError, KeyError) as failure:
        print(f"staleness_plot.py: {failure}", file=sys.stderr)
        return 1
    draw(rounds, options.out)
    print_ratios(rounds, torn)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
