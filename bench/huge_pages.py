#!/usr/bin/env python3
"""Compares a server as it is with one whose tables are on reserved huge pages (hugetlb), in turns: pulls and
pushes of 100 rows. Needs root, which reserves the pages, and starling-bench and starling-ps in --bin.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

RESERVED = pathlib.Path("/proc/sys/vm/nr_hugepages")


def rate(options, what, rows, dim):
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        subprocess.run(
            [options.bin / "starling-bench", what, "--keys", "100", "--connections", "4", "--depth", "8", "--dim", str(dim),
             "--rows", str(rows), "--congestion", "cubic", "--seconds", "0.6", "--json", report.name],
            check=True, stdout=subprocess.DEVNULL)
        lines = json.load(report)["figures"]
    return next(line["median"] for line in lines if line["quantity"] == "requests")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    parser.add_argument("--rows", type=int, nargs="+", default=[1000000, 5000000])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    before = RESERVED.read_text()
    try:
        for rows in options.rows:
            for what, dim in (("pull", 64), ("pull", 128), ("push", 64), ("push", 128)):
                rates = {"as it is": [], "reserved": []}
                for _ in range(options.rounds):
                    for name, pages in (("as it is", "0"), ("reserved", str(rows * (dim * 8 + 160) // (2 << 20) + 200))):
                        RESERVED.write_text(pages)
                        rates[name].append(rate(options, what, rows, dim))
                own, reserved = (statistics.median(list_) for list_ in rates.values())
                print(f"{what} {rows} rows of {dim}: {own:.0f}/s, reserved {reserved:.0f}/s, ratio {own / reserved:.2f}", flush=True)
    finally:
        RESERVED.write_text(before)


if __name__ == "__main__":
    main()
