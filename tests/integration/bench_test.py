#!/usr/bin/env python3
"""starling-bench's loads on real ps processes: that they run, and that the report says what was asked. What
they measure is not judged here, but for one thing: a pause of the server is not left out."""

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import unittest
import xml.etree.ElementTree

import harness

QUICK = ["--rounds", "2", "--seconds", "0.2", "--warm-up", "0.02", "--rows", "2000"]
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
        self.assertIn("starling-ps ended", bench.output)

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


class ProfileTest(harness.StarlingTest):
    """bench/profile.py, but for what perf and valgrind do."""

    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench/profile.py")

    def load(self):
        spec = importlib.util.spec_from_file_location("bench_profile", self.path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def run_profile(self, *args, path):
        return subprocess.run([sys.executable, self.path, "--out", self.folder, *args], text=True,
                              capture_output=True, env={"PATH": path}, check=False, timeout=60)

    def test_callgrind_counts_are_of_functions_themselves(self):
        out = os.path.join(self.folder, "callgrind.out")
        with open(out, "w", encoding="ascii") as file:
            file.write("events: Ir\n\nfl=(1) /x/net/receive.c\nfn=(1) take\n10 5\ncfi=(2) /x/ps/server.c\n"
                       "cfn=(2) on_received\ncalls=3 40\n11 60\n+1 2\n\nfl=(2)\nfn=(2)\n40 60\n")
        own, calls = self.load().read_callgrind(out)
        self.assertEqual(own, {("/x/net/receive.c", "take"): 7, ("/x/ps/server.c", "on_received"): 60})
        self.assertEqual(calls, {("/x/ps/server.c", "on_received"): 3})

    def test_flames_are_as_wide_as_their_share(self):
        profile = self.load()
        stacks = profile.fold("\n    1f leaf+0x3\n    2f main\n\n\n    3f other\n    2f main\n\n    1f leaf\n    2f main\n\n")
        self.assertEqual(stacks, {("main", "leaf"): 2, ("main", "other"): 1})
        svg = os.path.join(self.folder, "flames.svg")
        profile.draw_flames(stacks, "a < b", svg)
        root = xml.etree.ElementTree.parse(svg).getroot()
        titles = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
        self.assertEqual(sorted(titles), ["leaf: 66.7%", "main: 100.0%", "other: 33.3%"])

    def test_what_is_missing_is_named(self):
        done = self.run_profile(path=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("calls left out: perf not installed", done.stdout)
        done = self.run_profile("--parts", "nothing", path=self.folder)
        self.assertEqual(done.returncode, 2)
        self.assertIn("accepts some of calls,flames,instructions,copies", done.stderr)
        with open(os.path.join(self.folder, "perf"), "w", encoding="ascii") as file:
            os.fchmod(file.fileno(), 0o755)
        done = self.run_profile("--parts", "calls", "--bin", "/nowhere", path=self.folder)
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nowhere/starling-ps is not there", done.stderr)


class AbTest(harness.StarlingTest):
    """bench/ab.py, on a build beside itself."""

    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench/ab.py")

    def compare(self, *args):
        build = harness.BIN
        return subprocess.run([sys.executable, self.path, build, build, "--rounds", "2", "--seconds", "0.05", *args],
                              text=True, capture_output=True, check=False, timeout=harness.DEADLINE_S)

    def test_a_low_ratio_fails(self):
        done = self.compare("--cases", "pull", "--least", "0.01")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"pull: pull 1 key, 16 x 32, requests +\d")
        done = self.compare("--cases", "pull", "--least", "100")
        self.assertEqual(done.returncode, 1)
        self.assertIn("BELOW", done.stdout)

    def test_cases_that_are_none(self):
        done = self.compare("--cases", "nothing")
        self.assertEqual(done.returncode, 2)
        self.assertIn("accepts all, or some of pull,push", done.stderr)


if __name__ == "__main__":
    harness.main()
