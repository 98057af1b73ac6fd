#!/usr/bin/env python3
"""bench/python.py with turns so short that nothing is measured."""

import json
import os
import tempfile
import unittest

import support
from support import harness

BENCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench")


class Bench(unittest.TestCase):
    def test_calls(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "report.json")
            arguments = ["--bin", harness.BIN, "--part", "calls", "--rounds", "1", "--seconds", "0.01",
                         "--warm-up", "0", "--json", path]
            done = support.run_script(f"import sys\nsys.path.insert(0, {BENCH!r})\nimport python\n"
                                      f"sys.exit(python.main({arguments}))")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            with open(path, encoding="utf-8") as file:
                report = json.load(file)
        figures = {figure["name"]: figure["median"] for figure in report["figures"]}
        for ratio in report["ratios"][:3]:
            operation = ratio["name"].partition(", ")[2]
            self.assertAlmostEqual(ratio["median"], figures[f"Python, {operation}"] / figures[f"C, {operation}"])


if __name__ == "__main__":
    harness.main()
