"""starling-bench bulk, ratio, train and peers, with parameters so small that nothing is measured: they
start what they need, say what they found, and leave nothing behind."""

import json
import os
import shutil
import signal
import time
import unittest

import harness

QUICK = ["--rounds", 1, "--seconds", 0.2, "--warm-up", 0.02]


class BenchTest(harness.StarlingTest):
    def wait_until(self, condition):
        end = time.monotonic() + harness.DEADLINE_S
        while not condition():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def bench(self, *args, **more):
        """Runs a benchmark; returns its report, and what it printed."""
        path = os.path.join(self.folder, "report.json")
        output = self.run_to_end("starling-bench", *args, *QUICK, "--json", path, **more)
        with open(path, encoding="utf-8") as file:
            return json.load(file), output

    def names(self, report):
        return [figure["name"] for figure in report["figures"]]

    def test_bulk_of_both_ways(self):
        report, output = self.bench("bulk", "--sizes", "64K,1M", "--depth", 2, "--small-connections", 2)
        for name in ("pull, event", "push, polling", "pull, bare", "small pulls alone",
                     "small pulls beside 16 MB pushes"):
            self.assertIn(name, self.names(report))
        self.assertIn("push, event, 1 MB / bare", output)
        self.assertIn("beside pushes / alone", output)
        for figure in report["figures"]:
            self.assertEqual(len(figure["samples"]), 1, figure)

    def test_bulk_sizes_that_are_none(self):
        output = self.run_to_end("starling-bench", "bulk", "--sizes=3", status=2)
        self.assertIn("accepts 1 to 8 sizes", output)

    def test_ratio_by_both_protocols(self):
        report, output = self.bench("ratio", "--processes", 2, "--clients", 2, "--tables", 3,
                                    "--keys", "2,4", "--rows", 500)
        requests = {figure["name"]: figure["samples"][0] for figure in report["figures"]
                    if figure["quantity"] == "requests a step"}
        self.assertEqual(requests["2:1, 2 keys, dim 16, star_server_lite"], 2)
        self.assertEqual(requests["4:1, 4 keys, dim 64, star_server"], 6)
        self.assertIn("4:1, 4 keys, dim 64, star_server_lite / star_server", output)

    def test_train_tells_where_the_time_goes(self):
        left = os.path.join(self.folder, "left")
        os.mkdir(left)
        path = os.path.join(self.folder, "report.json")
        output = self.run_to_end("starling-bench", "train", "--rows", 2000, "--workers", 2, *QUICK,
                                 "--json", path, env={"TMPDIR": left})
        self.assertEqual(os.listdir(left), [])
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        self.assertIn("lr, own arithmetic / time", output)
        of = {(figure["name"], figure["quantity"].strip()): figure["samples"][0]
              for figure in report["figures"]}
        for model in ("lr", "fm", "deepfm"):
            self.assertGreater(of[model, "samples"], 0)
            self.assertGreater(of[model, "reading rows"], 0)
            self.assertAlmostEqual(of[model, "own arithmetic"],
                                   of[model, "reading rows"] + of[model, "the model"], places=6)

    def test_train_leaves_nothing_when_it_is_interrupted(self):
        left = os.path.join(self.folder, "left")
        os.mkdir(left)
        bench = self.start("starling-bench", "train", "--rows", 5000, "--rounds", 64,
                           env={"TMPDIR": left})
        self.wait_until(lambda: os.listdir(left))
        bench.signal(signal.SIGINT)
        self.assertEqual(bench.wait(), -signal.SIGINT)
        self.wait_until(lambda: not os.listdir(left))

    def test_serving_without_redis(self):
        report, output = self.bench("serving", "--part", "one-row", "--rows", 100,
                                    env={"PATH": self.folder})
        self.assertIn("Redis is left out", output)
        self.assertIn("bare echo, 16 x 32", self.names(report))

    def test_train_on_data_that_is_not_there(self):
        output = self.run_to_end("starling-bench", "train", "--data", "/nonexistent/clicks", *QUICK,
                                 status=1)
        self.assertIn("/nonexistent/clicks", output)
        output = self.run_to_end("starling-bench", "train", "--consistency", "some", status=2)
        self.assertIn("--consistency=some: accepts asp, bsp, ssp", output)

    @unittest.skipUnless(shutil.which("redis-server") and shutil.which("iperf3"),
                         "redis-server and iperf3 are not installed")
    def test_peers(self):
        report, _ = self.bench("peers", "--rows", 1000)
        for name in ("redis GET, pipelined x64", "redis MGET", "iperf3 to the server"):
            self.assertIn(name, self.names(report))
        for figure in report["figures"]:
            self.assertGreater(figure["samples"][0], 0, figure)

    def test_peers_that_are_not_installed_are_left_out(self):
        output = self.run_to_end("starling-bench", "peers", *QUICK, env={"PATH": self.folder})
        self.assertIn("install Debian's redis-server and redis-tools", output)
        self.assertIn("install Debian's iperf3", output)


if __name__ == "__main__":
    harness.main()
