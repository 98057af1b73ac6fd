#!/usr/bin/env python3
"""What deltas save: bytes sent and time from the push to the reader, by the share of bf16 elements that a step changes.

staleness_deltas.py OUT.svg [--rounds N]

Runs `starling-bench staleness --mode server --tcp` with --delta and without, in interleaved rounds, for each share and each
rate of the trainer's link. Prints the median ratios with the lowest and the highest, and draws them as one SVG."""

import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

import report  # bench/report.py

SHARES = (0.01, 0.03, 0.1, 1.0)
RATES = {"no limit": 0, "1 Gbit/s": 125000000}
MOST = {"bytes": dict(zip(SHARES, (0.03, 0.08, 0.2, 1.01))), "time": dict(zip(SHARES, (0.5, 0.6, 0.8, 1.1)))}
COLORS = {"bytes": "#4e79a7", "time": "#f28e2b"}
WIDTH, HEIGHT, MARGIN = 300, 200, 50


def run(options, share, rate, has_deltas):
    """Bytes sent for a version, and the median seconds from the begin of its push until the reader has it."""
    interval = 0.3 + (1.5 * (options.size << 20) / rate if rate > 0 else 0)  # a whole version arrives before the next one
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        done = subprocess.run(
            [os.path.join(options.bin, "starling-bench"), "staleness", "--mode=server", "--subscribe", "--tcp", *["--delta"] * has_deltas,
             f"--changed={share}", f"--rate={rate}", f"--data_size={options.size}", "--workers=1",
             f"--push_frequency={interval}", f"--max_version={options.versions}", "--max_time=600", "--LOGLEVEL=ERROR", f"--json={file.name}"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise report.Failure(done.stdout.strip())
        of = {(one["name"], one["quantity"]): one["samples"][0] for one in json.load(file)["figures"] if "x" not in one}
    if of["torn reads", "pulls"] != 0:
        raise report.Failure("a read was torn")
    return {"bytes": of["sent for a later version", "bytes"],
            "time": of["begin of push to visible", "p50"]}


def measure(options):
    """{(what, rate, share): [ratio with deltas / without, of each round]}"""
    ratios = {}
    for number, (rate, share) in itertools.product(range(options.rounds), itertools.product(RATES, SHARES)):
        order = (True, False) if number % 2 == 0 else (False, True)
        found = {has_deltas: run(options, share, RATES[rate], has_deltas) for has_deltas in order}
        for what in MOST:
            ratios.setdefault((what, rate, share), []).append(found[True][what] / found[False][what])
    return ratios


def draw(ratios, path):
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{len(RATES) * (WIDTH + MARGIN) + MARGIN}" height="{HEIGHT + 2 * MARGIN + 20}" '
             'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>',
             f'<text x="{MARGIN}" y="18" font-size="13">With deltas / without, by the share of elements that a step changes</text>']
    top, bottom = MARGIN, MARGIN + HEIGHT
    for left, rate in zip(itertools.count(MARGIN, WIDTH + MARGIN), RATES):
        lines.append(f'<text x="{left}" y="{top - 8}" font-weight="bold">link of the trainer: {rate}</text>')
        places = {share: left + (1 + math.log10(share) / 2) * WIDTH for share in SHARES}
        for y in (0, 0.5, 1, 1.5):
            at = bottom - y / 1.5 * HEIGHT
            lines.append(f'<path d="M{left} {at:.1f}h{WIDTH}" stroke="#ddd"/><text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">{y:g}</text>')
        for share, x in places.items():
            lines.append(f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor="middle">{100 * share:g} %</text>')
        for row, (what, color) in enumerate(COLORS.items()):
            points = [(places[share], bottom - min(statistics.median(ratios[what, rate, share]), 1.5) / 1.5 * HEIGHT) for share in SHARES]
            lines.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" fill="none" stroke="{color}"/>')
            lines += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in points]
            lines.append(f'<text x="{left + 6}" y="{top + 14 * (row + 1)}" fill="{color}">{what}</text>')
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join([*lines, "</svg>", ""]))


def main(argv):
    parser = argparse.ArgumentParser(prog="staleness_deltas.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--bin", default="build/release/bin", help="of starling-bench")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=64, help="MiB of a version")
    parser.add_argument("--versions", type=int, default=16, help="of each run; the first ones use new memory, which the median leaves out")
    options = parser.parse_args(argv)
    try:
        ratios = measure(options)
    except (report.Failure, OSError, KeyError) as failure:
        print(f"staleness_deltas.py: {failure}", file=sys.stderr)
        return 1
    for (what, rate, share), of in sorted(ratios.items()):
        median, most = statistics.median(of), MOST[what][share]
        print(f"{what}, {rate}, {100 * share:g} % changed: {median:.3f} ({min(of):.3f} to {max(of):.3f}), at most {most}: "
              f"{'holds' if median <= most else 'MISSED'}", flush=True)
    draw(ratios, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
