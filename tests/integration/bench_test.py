#!/usr/bin/env python3
"""starling-bench's loads on real ps processes: that they run, and that the report says what was asked. What
they measure is not judged here, but for one thing: a pause of the server is not left out."""

import contextlib
import json
import os
import signal
import time
import unittest

import harness

QUICK = ["--rounds", "2", "--seconds", "0.05", "--warm-up", "0.02", "--rows", "2000"]
RATES = ["requests", "keys"]
TIMES = ["p50", "p99", "p99.9"]
CPU = ["client cpu", "server cpu"]


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


class BenchTest(harness.StarlingTest):
    def report(self, *args):
        path = os.path.join(self.folder, "report.json")
        self.run_to_end("starling-bench", *args, "--json", path)
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def check(self, report, names, quantities, rounds=2):
        self.assertEqual(sorted({figure["name"] for figure in report["figures"]}), sorted(names))
        self.assertEqual({figure["quantity"] for figure in report["figures"]}, set(quantities))
        for figure in report["figures"]:
            self.assertEqual(len(figure["samples"]), rounds, figure)
            self.assertGreater(figure["median"], 0, figure)

    def wait_child(self, bench):
        end = time.monotonic() + harness.DEADLINE_S
        while time.monotonic() < end and bench.running():
            children = children_of(bench.pid)
            if children:
                return children[0]
            time.sleep(0.01)
        raise AssertionError(f"starling-bench has not started a ps:\n{bench.output}")

    def test_every_combination_is_measured(self):
        report = self.report("pull", *QUICK, "--keys", "1,100", "--depth", "2", "--connections",
                             "1,3", "--dim", "4")
        self.assertEqual(report["benchmark"], "pull")
        for word in ("keys 1,100", "depth 2", "connections 1,3", "dim 4", "2000 rows", "uniform",
                     "closed loop", "event mode"):
            self.assertIn(word, report["setting"])
        self.check(report, ["pull 1 key, 1 x 2", "pull 1 key, 3 x 2", "pull 100 keys, 1 x 2",
                            "pull 100 keys, 3 x 2"], RATES + TIMES + CPU)
        by_name = {(f["name"], f["quantity"]): f["median"] for f in report["figures"]}
        name = "pull 100 keys, 1 x 2"
        self.assertAlmostEqual(by_name[name, "keys"] / by_name[name, "requests"], 100, delta=5)

    def test_pushes_with_polling_and_zipf(self):
        for benchmark in ("push", "pushpull"):
            report = self.report(benchmark, *QUICK, "--keys", "10", "--depth", "4", "--connections",
                                 "2", "--optimizer", "adam", "--distribution", "zipf", "--polling",
                                 "true", "--reactors", "2" if os.cpu_count() > 1 else "1")
            self.check(report, [f"{benchmark} 10 keys, 2 x 4"], RATES + TIMES + CPU)
            self.assertIn("zipf", report["setting"])
            self.assertIn("polling", report["setting"])

    def test_a_cluster_that_runs_already(self):
        servers, flags = self.start_ps()
        report = self.report("pull", *QUICK, "--keys", "1", "--depth", "1", "--connections", "2",
                             "--coordinator", flags[1])
        self.check(report, ["pull 1 key, 2 x 1"], RATES + TIMES + ["client cpu"])
        self.drain(servers)

    def test_scale(self):
        report = self.report("scale", *QUICK, "--connections", "1,16,40", "--reactors", "1",
                             "--outstanding", "64")
        self.check(report, ["1 reactor"], RATES + TIMES + CPU)
        self.assertEqual({figure["x"]
                          for figure in report["figures"]}, {1, 16, 40})
        self.assertEqual(len(report["ratios"]), 1)

    def test_a_pause_is_not_left_out(self):
        path = os.path.join(self.folder, "report.json")
        bench = self.start("starling-bench", "pull", "--rounds", "1", "--seconds", "2", "--warm-up",
                           "0", "--rows", "100", "--keys", "1", "--depth", "1", "--connections", "1",
                           "--rate", "500", "--json", path)
        ps = self.wait_child(bench)
        with contextlib.suppress(ProcessLookupError):  # it ends with the benchmark
            while bench.running():
                os.kill(ps, signal.SIGSTOP)
                time.sleep(0.4)
                os.kill(ps, signal.SIGCONT)
                time.sleep(0.4)
        self.assertEqual(bench.wait(), 0, bench.output)
        with open(path, encoding="utf-8") as file:
            p99 = [f["median"] for f in json.load(file)["figures"] if f["quantity"] == "p99"]
        self.assertGreater(p99[0], 100e3)  # us; with only those under way counted it would be small

    def test_the_end_of_the_ps_is_an_error(self):
        bench = self.start("starling-bench", "push", "--rounds", "1", "--seconds", "60", "--rows",
                           "100", "--keys", "1", "--depth", "1", "--connections", "1")
        ps = self.wait_child(bench)
        time.sleep(0.3)
        os.kill(ps, signal.SIGKILL)
        self.assertEqual(bench.wait(), 1, bench.output)
        self.assertIn("starling-ps ended, with signal 9", bench.output)

    def test_wrong_flags(self):
        for args, words in ((["--keys", "0"], "--keys=0"), (["--depth", "1,129"], "1 to 128"),
                            (["--connections", "1,"], "--connections=1,"),
                            (["--polling", "maybe"], "--polling"),
                            (["--keys", "1,2,3,4,5,6,7,8,9", "--depth", "1,2,3,4"],
                             "72 combinations"),
                            (["--zipf", "0"], "--zipf"),
                            (["--congestion", "nosuch"], "--congestion=nosuch")):
            output = self.run_to_end("starling-bench", "pull", *args, status=2)
            self.assertIn(words, output)


if __name__ == "__main__":
    harness.main()
