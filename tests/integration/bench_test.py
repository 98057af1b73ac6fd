#!/usr/bin/env python3
"""starling-bench's loads on real ps processes: that they run, and that the report says what was asked. What
they measure is not judged here, but for one thing: a pause of the server is not left out."""

import argparse
import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest
import xml.etree.ElementTree

import harness

BENCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench")
QUICK = ["--rounds", "2", "--seconds", "0.2", "--warm-up", "0.02", "--rows", "2000"]
RATES = ["requests", "keys"]
TIMES = ["p50", "p99", "p99.9"]
CPU = ["client cpu", "server cpu"]


def name_of(pid):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="ascii") as file:
        return file.read().strip()
    return ""


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
            # Fewer where other programs disturbed a round.
            self.assertIn(len(figure["samples"]), range(1, rounds + 1), figure)
            self.assertGreater(figure["median"], 0, figure)

    def wait_child(self, bench):
        end = time.monotonic() + harness.DEADLINE_S
        while time.monotonic() < end and bench.running():
            for child in harness.children_of(bench.pid):
                if name_of(child) == "starling-ps":
                    return child
            time.sleep(0.01)
        raise AssertionError(f"starling-bench has not started a ps:\n{bench.output}")

    def test_a_load_measures_when_it_is_told_to(self):
        """Its numbers have units; what it does not know is an error."""
        command = [harness.program("starling-bench"), "load", "memory"]
        done = subprocess.run(command, input="0.01 0.02 4096 3\n0 0.01 64 1\n", text=True, capture_output=True, check=True)
        ready, *turns = done.stdout.splitlines()
        self.assertEqual((ready, len(turns)), ("ready", 2))
        for turn in turns:
            (quantity, unit, value), = json.loads(turn)["numbers"]
            self.assertEqual((quantity, unit), ("bytes", "1/s"))
            self.assertGreater(value, 1e6)
        for line, status in (("0.01", 2), ("0 0 64 1", 2), ("0 0.1 63 1", 1), ("0 0.1 64", 1)):
            done = subprocess.run(command, input=line + "\n", text=True, capture_output=True, check=False)
            self.assertEqual(done.returncode, status, done.stderr)

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
        bench = self.start("starling-bench", "push", "--rounds", "1", "--seconds", "15", "--rows",
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


sys.path.append(BENCH)  # the scripts import each other


def load_script(name):
    spec = importlib.util.spec_from_file_location(f"bench_{name}", os.path.join(BENCH, f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def figure_of(name, samples, unit="1/s", **more):
    return {"name": name, "quantity": "requests", "unit": unit, "transport": "TCP", "samples": samples, **more}


def ratio_of(name, samples, least=0, most=0):
    return {"name": name, "transport": "TCP", "least": least, "most": most, "samples": samples}


class DriverTest(unittest.TestCase):
    """bench/driver.py, without processes."""

    def setUp(self):
        self.driver = load_script("driver")
        options = argparse.Namespace(rounds=4, seconds=1, warm_up=0, server_core=0, client_core=0)
        self.bench = self.driver.Bench("pull", options, None, None)
        self.others, self.order = 0, []
        self.driver.processes.others_seconds = lambda: self.others

    def contestant(self, name, disturbed=(), transport="TCP"):
        """Finds the number of its turns, in some of which other programs take a minute of a core."""
        def turn(warm_up, seconds):
            self.order.append(name)
            number = self.order.count(name)
            self.others += 60 if number in disturbed else 0
            return self.driver.processes.Found({"requests": ("1/s", 10 * number)})
        return self.driver.Contestant(name, turn, transport)

    def test_rounds_alternate(self):
        self.bench.measure([self.contestant(name) for name in "abc"])
        self.assertEqual("".join(self.order), "abc" "bca" "cab" "abc")
        self.assertEqual(self.bench.figure("b", "requests")["samples"], [10, 20, 30, 40])
        self.assertEqual((self.bench.left_out, self.bench.disturbed), (0, 0))

    def test_a_disturbed_round_is_left_out_of_all(self):
        self.bench.measure([self.contestant("a"), self.contestant("b", disturbed=(2, 3))])
        for name in "ab":
            self.assertEqual(self.bench.figure(name, "requests")["samples"], [10, 40])
        self.assertEqual((self.bench.left_out, self.bench.disturbed), (2, 0))

    def test_without_a_quiet_round_all_count(self):
        self.bench.measure([self.contestant("a", disturbed=(1, 2, 3, 4))])
        self.assertEqual(self.bench.figure("a", "requests")["samples"], [10, 20, 30, 40])
        self.assertEqual((self.bench.left_out, self.bench.disturbed), (0, 4))

    def test_a_failure_names_the_contestant_and_the_round(self):
        def turn(warm_up, seconds):
            raise self.driver.Failure("it has ended")
        with self.assertRaisesRegex(self.driver.Failure, "a failed in round 1: it has ended"):
            self.bench.measure([self.driver.Contestant("a", turn)])

    def test_ratios_are_of_one_transport(self):
        contestants = [self.contestant("a"), self.contestant("b", transport="shared memory"), self.contestant("c", transport="")]
        self.bench.measure(contestants)
        a, b, c = (self.bench.figure(name, "requests") for name in "abc")
        with self.assertRaisesRegex(ValueError, "a / b: compares"):
            self.bench.ratio("a / b", a, b)
        self.bench.ratio("a / b", a, b, mixed=True)
        self.bench.ratio("c / a", c, a, least=0.5)
        self.bench.ratio("a / none", a, None)
        self.assertEqual([(ratio["name"], ratio["transport"], ratio["samples"]) for ratio in self.bench.ratios],
                         [("a / b", "", [1] * 4), ("c / a", "TCP", [1] * 4)])

    def test_lists_of_numbers(self):
        parse = self.driver.numbers("rows", 1, 20000000, 3)
        self.assertEqual(parse("1M,16,5k"), [1000000, 16, 5000])
        for text in ("", ",", "1,", ",1", "1,,2", "x", "1x", "1kM", "1 ,2", "-1", "0", "21M", "1,2,3,4", "20000000000G"):
            with self.assertRaisesRegex(argparse.ArgumentTypeError, "accepts 1 to 3 numbers"):
                parse(text)
        parse = self.driver.sizes("sizes", 256 << 20, 4, 2)
        self.assertEqual(parse("64K,1M"), [64 << 10, 1 << 20])
        for text in ("", "1G", "64K,,1M", "3", "lots", "0", "1k", "64B", "4,", "-4K", "4,8,16"):
            self.assertRaises(argparse.ArgumentTypeError, parse, text)
        self.assertEqual(list(map(self.driver.size_text, (65536, 1 << 24, 3))), ["64 KB", "16 MB", "3 B"])


class ReportTest(harness.StarlingTest):
    """bench/report.py."""

    def raw(self, figures=(), ratios=(), distributions=()):
        return {"benchmark": "pull", "setting": "1 row", "build": "starling", "rounds": 3, "rounds_left_out": 1,
                "rounds_disturbed": 0, "seconds": 1, "warm_up": 0.5, "server_core": 0, "client_core": 0,
                "figures": list(figures), "ratios": list(ratios), "distributions": list(distributions)}

    def run_script(self, *args, **more):
        return subprocess.run([sys.executable, os.path.join(BENCH, "report.py"), *args], text=True, capture_output=True,
                              check=False, timeout=harness.DEADLINE_S, **more)

    def finish(self, raw, *options):
        path = os.path.join(self.folder, "raw.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(raw, file)
        done = self.run_script("finish", path, *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_quantiles_lie_between_samples(self):
        report = load_script("report")
        self.assertEqual([report.quantile([40, 10, 30, 20], share) for share in (0, 0.25, 0.5, 1)], [10, 17.5, 25, 40])
        self.assertEqual(report.quantile([40], 0.75), 40)
        self.assertIsNone(report.quantile([1, None], 0.5))

    def test_texts_of_values(self):
        report = load_script("report")
        for value, text in ((0, "0"), (144, "144"), (1.25, "1.250"), (12.345, "12.35"), (123.45, "123.5"),
                            (1234.5, "1234"), (0.0012, "0.0012"), (-2.5, "-2.500"), (1e10, "1e+10"), (123456, "123456")):
            self.assertEqual(report.value_text(value), text)
        for value, unit, scaled in ((9999, "1/s", (1, "1/s")), (2e6, "1/s", (1e3, "k/s")), (2e7, "1/s", (1e6, "M/s")),
                                    (2e10, "B/s", (1e9, "GB/s")), (5e7, "keys/s", (1e6, "M keys/s")),
                                    (5e7, "us", (1, "us")), (5e7, "", (1e6, "M")), (5e4, "B", (1e3, "kB"))):
            self.assertEqual(report.scale(value, unit), scaled)

    def test_medians_spread_and_targets_are_printed(self):
        output = self.finish(self.raw([figure_of("a", [100000, 120000, 110000])],
                                      [ratio_of("a / b", [0.5, 0.6, 0.55], least=0.6),
                                       ratio_of("again", [0.5, 0.6, 0.55], most=0.6),
                                       ratio_of("to nothing", [None], least=0.5)]))
        for line in ("pull: 1 row", "110  k/s   105 .. 115\n", "0.550  0.525 .. 0.575  at least 0.6  MISSED\n",
                     "0.550  0.525 .. 0.575  at most 0.6   holds\n", "at least 0.5  MISSED\n", "1 round is left out"):
            self.assertIn(line, output)

    def test_a_report_has_each_figure_on_one_line(self):
        path = os.path.join(self.folder, "now.json")
        self.finish(self.raw([figure_of("a", [1, 2]), figure_of("b", [3])], [ratio_of("a / b", [None])]), "--json", path)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        self.assertEqual([figure["samples"] for figure in json.loads(text)["figures"]], [[1, 2], [3]])
        for name in ("a", "b", "a / b"):
            line, = (line for line in text.splitlines() if f'"name": "{name}"' in line)
            self.assertIn('"median"', line)

    def test_quantiles_that_cannot_be_known_are_left_out(self):
        spread = {"name": "pull", "count": 100, "max": 31000, "buckets": [[10239, 98], [31743, 2]]}
        output = self.finish(self.raw(distributions=[spread]))
        row = next(line for line in output.splitlines() if line.startswith("  pull "))
        self.assertEqual(row.split(), ["pull", "100", "10.24", "10.24", "31", "31"])  # p50, p90, p99 and the longest

    def test_a_comparison_marks_what_differs_by_more_than_both_spreads(self):
        low, high, wide = [10, 10.2, 10.1], [20, 20.2, 20.1], [5, 20, 35]
        path = os.path.join(self.folder, "old.json")
        self.finish(self.raw([figure_of("rate up", low), figure_of("time up", low, "us"), figure_of("count up", low, ""),
                              figure_of("unclear", wide, "us"), figure_of("single", low[:1], "us"),
                              figure_of("gone", low), figure_of("moved", low, x_name="depth", x=1)]), "--json", path)
        output = self.finish(self.raw([figure_of("rate up", high), figure_of("time up", high, "us"),
                                       figure_of("count up", high, ""), figure_of("unclear", low, "us"),
                                       figure_of("single", high[:1], "us"),
                                       figure_of("moved", low, x_name="depth", x=2)]), "--compare", path)
        for line in ("20.10  1/s        1.990  * better\n", "20.10  us         1.990  * WORSE\n",
                     "20.10             1.990  * differs\n", "10.10  us         0.505\n", "20  us         2.000\n",
                     "without a counterpart: 1 here, 2 there\n"):
            self.assertIn(line, output)
        self.assertIn("is a report of \"pull\"", self.run_script("check", "push", "--compare", path).stderr)

    def test_what_is_no_report(self):
        path = os.path.join(self.folder, "old.json")
        good = {"format": "starling-bench report 1", "benchmark": "pull", "setting": "",
                "machine": {"cpu": "", "kernel": "", "build": ""}, "figures": [], "ratios": []}
        for text in ("", "not json", "[]", "{}", '{"format": 1}', json.dumps({**good, "machine": {}}),
                     json.dumps({**good, "figures": [figure_of("a", [])]}),
                     json.dumps({**good, "ratios": [ratio_of("a", ["1"])]})):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            done = self.run_script("check", "pull", "--compare", path)
            self.assertEqual(done.returncode, 1, text)
            self.assertIn("is no report of starling-bench", done.stderr)
        for option, path, why in (("--json", "/nowhere/report.json", "cannot be written"),
                                  ("--compare", "/nowhere.json", "cannot be opened"),
                                  ("--plot", "/dev/null", "is no directory")):
            done = self.run_script("check", "pull", option, path)
            self.assertEqual(done.returncode, 1)
            self.assertIn(why, done.stderr)

    @unittest.skipUnless(shutil.which("gnuplot"), "gnuplot is not installed")
    def test_charts_are_drawn_whatever_the_names_are(self):
        name = "it's \"so\" `touch no` $(x) 5% @a \\ ^2_3"
        figures = [figure_of(name, [1e5 + i, 2e5, 3e5], x_name=name, x=4**i) for i in range(4)]
        spread = {"name": name, "count": 99, "max": 99000, "buckets": [[1000 * i, 1] for i in range(1, 100)]}
        self.finish(self.raw(figures, [ratio_of(name, [0.5], least=0.5)], [spread]), "--plot", self.folder)
        charts = [path for path in os.listdir(self.folder) if path.endswith(".svg")]
        self.assertEqual(len(charts), 3)
        for chart in charts:
            with open(os.path.join(self.folder, chart), encoding="utf-8") as file:
                text = file.read()
            self.assertIn(name, text.replace("&gt;", ">"))
            self.assertIn("</svg>", text)

    def test_charts_without_gnuplot(self):
        done = self.run_script("check", "pull", "--plot", self.folder, env={"PATH": self.folder})
        self.assertEqual(done.returncode, 1)
        self.assertIn("apt-get install gnuplot-nox", done.stderr)


class PeersTest(harness.StarlingTest):
    """bench/peers.py, but for what Redis, iperf3 and perftest do. perftest's tables are what 6.06 prints on a soft
    device, and other versions."""

    head = " Dual-port : OFF\t\tDevice : rxe0\n local address: LID 0000 QPN 0x0011 PSN 0x60078d\n"
    rates = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"
    latencies = (" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   "
                 "99% percentile[usec]   99.9% percentile[usec] \n")

    def test_rates_of_perftest(self):
        rate = load_script("peers").perftest_rate
        for text, size, messages in (
                (self.head + self.rates + " 1048576    50               25.75              21.25  \t\t   0.000021\n",
                 1048576, 21.25),
                (self.rates + " 64         2000             1.01               0.30   \t\t   0.004954\n", 64, 4954),
                (self.rates.replace("MB", "MiB") + " 65536 5000 11034.2 11030.5 0.176488\n", 65536, 176488)):
            found = rate(text, size)
            self.assertAlmostEqual(found[1], messages, places=3)
            self.assertAlmostEqual(found[0], messages * size, places=0)
        for text in ("", self.head, self.rates, self.rates + " 64 2000 1.01\n", self.rates + " 64 2000 1.01 none 0.004954\n",
                     self.rates + " 64 2000 1.01 0.30 nan\n", self.rates + " 64 2000 0.00 0.00 0.000000\n",
                     self.rates + " 128 2000 1.01 0.30 0.004954\n",
                     self.latencies + " 64 1000 33.20 172006.45 3977.29 5381.62 3354.47 33190.05 172006.45\n"):
            self.assertIsNone(rate(text, 64), text)

    def test_latencies_of_perftest(self):
        latency = load_script("peers").perftest_latency
        row = " 64      1000          33.20          172006.45      3977.29  \t  5381.62  \t3354.47\t\t33190.05 \t\t172006.45\n"
        self.assertEqual(latency(self.head + self.latencies + row), (2 * 3977.29, 2 * 33190.05))
        self.assertIsNone(latency(" #bytes        #iterations       t_avg[usec]    tps average\n 64 1000 33.20 172.45\n"))
        self.assertIsNone(latency(self.latencies + " 64 1000 1 2 0 2 1 3 4\n"))

    def put(self, device, file, line):
        path = os.path.join(self.folder, "class/infiniband", device, file)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="ascii") as out:
            out.write(line + "\n")

    def put_roce(self, device):
        for file, line in (("node_type", "1: CA"), ("ports/1/state", "4: ACTIVE"),
                           ("ports/1/gids/0", "fe80:0000:0000:0000:2433:bbff:fe2b:ad9d"),
                           ("ports/1/gids/1", "0000:0000:0000:0000:0000:ffff:7f00:0001"),
                           ("ports/1/gids/2", "0000:0000:0000:0000:0000:ffff:7f00:0001"),
                           ("ports/1/gid_attrs/types/0", "IB/RoCE v1"), ("ports/1/gid_attrs/types/1", "IB/RoCE v1"),
                           ("ports/1/gid_attrs/types/2", "RoCE v2"), ("ports/1/gid_attrs/ndevs/0", "lo")):
            self.put(device, file, line)

    def test_rdma_devices(self):
        """In a tree of files as the kernel shows them; their interface is this machine's lo."""
        peers = load_script("peers")

        def find(name=None, address=None):
            try:
                return peers.find_device(self.folder, name, address)
            except peers.Failure as failure:
                return str(failure)

        self.assertEqual(find(), "this machine has no RDMA device")
        self.put_roce("mlx5_0")
        self.assertEqual(find(), ("mlx5_0", "127.0.0.1", 2))
        self.put_roce("mlx5_1")
        self.put("mlx5_0", "ports/1/state", "1: DOWN")
        self.assertEqual(find()[0], "mlx5_1")
        self.assertIn("mlx5_0: port 1 is not active", find("mlx5_0"))
        self.assertIn("--device=mlx5_7", find("mlx5_7"))
        self.put("mlx5_0", "node_type", "4: RNIC")
        self.assertIn("mlx5_0: iWARP is not supported", find("mlx5_0", "10.9.0.1"))
        for file, line in (("node_type", "1: CA"), ("ports/1/state", "4: ACTIVE")):
            self.put("rxe0", file, line)
        self.assertIn("--address", find("rxe0"))
        self.assertEqual(find("rxe0", "10.9.0.1"), ("rxe0", "10.9.0.1", -1))
        self.put("rxe0", "device/net/lo/type", "32")
        self.assertEqual(find("rxe0"), ("rxe0", "127.0.0.1", -1))


class ProfileTest(harness.StarlingTest):
    """bench/profile.py, but for what perf and valgrind do."""

    path = os.path.join(BENCH, "profile.py")

    def run_profile(self, *args, path):
        return subprocess.run([sys.executable, self.path, "--out", self.folder, *args], text=True,
                              capture_output=True, env={"PATH": path}, check=False, timeout=harness.DEADLINE_S)

    def test_callgrind_counts_are_of_functions_themselves(self):
        out = os.path.join(self.folder, "callgrind.out")
        with open(out, "w", encoding="ascii") as file:
            file.write("events: Ir\n\nfl=(1) /x/net/receive.c\nfn=(1) take\n10 5\ncfi=(2) /x/ps/server.c\n"
                       "cfn=(2) on_received\ncalls=3 40\n11 60\n+1 2\n\nfl=(2)\nfn=(2)\n40 60\n")
        own, calls = load_script("profile").read_callgrind(out)
        self.assertEqual(own, {("/x/net/receive.c", "take"): 7, ("/x/ps/server.c", "on_received"): 60})
        self.assertEqual(calls, {("/x/ps/server.c", "on_received"): 3})

    def test_flames_are_as_wide_as_their_share(self):
        profile = load_script("profile")
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

    path = os.path.join(BENCH, "ab.py")

    def compare(self, *args, rounds=1):
        build = harness.BIN
        return subprocess.run([sys.executable, self.path, build, build, "--rounds", str(rounds), "--seconds", "0.05", *args],
                              text=True, capture_output=True, check=False, timeout=harness.DEADLINE_S)

    def test_a_low_ratio_fails(self):
        done = self.compare("--cases", "pull", "--least", "0.01", rounds=2)
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
