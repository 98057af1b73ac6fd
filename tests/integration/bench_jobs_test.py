"""starling-bench bulk, train, serving, pslite, ipc, objects and staleness, with parameters so small that nothing is measured: they
start what they need, say what they found, and leave nothing behind."""

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

BENCH = os.path.join(os.path.dirname(__file__), "../../bench")
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

    def path_without_others(self):
        """A PATH that has Python, for the report, and no other system."""
        os.symlink(sys.executable, os.path.join(self.folder, "python3"))
        return {"PATH": self.folder}

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

    def test_calls(self):
        report, output = self.bench("calls", "--rows", 100, "--keys", 50, "--short-keys", 2)
        for name in ("pull, 50 keys", "push, 50 keys", "assign, 50 keys", "pull, 2 keys"):
            self.assertIn(name, self.names(report))
        self.assertIn("assign, 50 keys / push, 50 keys", output)

    def test_bulk_sizes_that_are_none(self):
        output = self.run_to_end("starling-bench", "bulk", "--sizes=3", status=2)
        self.assertIn("accepts 1 to 8 sizes", output)

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

        def folders():  # ThreadSanitizer has a file of its own there for a moment
            return [name for name in os.listdir(left) if name.startswith("starling-")]

        self.wait_until(folders)
        bench.signal(signal.SIGINT)
        self.assertEqual(bench.wait(), -signal.SIGINT)
        self.wait_until(lambda: not folders())

    def test_checkpoint_in_all_its_parts(self):
        left = os.path.join(self.folder, "left")
        os.mkdir(left)
        report, output = self.bench("checkpoint", "--rows", 3000, "--dim", 6, "--connections", 2,
                                    "--pull-rate", 500, "--push-rate", 200, "--touched", 0.2,
                                    env={"TMPDIR": left})
        self.assertEqual(os.listdir(left), [])
        of = {(figure["name"], figure["quantity"]): figure["samples"][0]
              for figure in report["figures"]}
        for name in ("full checkpoints", "adding checkpoints"):
            self.assertGreater(of[name, "a checkpoint"], 0)
            self.assertGreater(of[name, "p99"], 0)
            self.assertGreater(of[name, "peak memory"], 1 << 20)
            self.assertIn(f"memory in {name} / before", output)
        row = 16 + 4 * 12  # with its head, and the slots of adagrad
        full = of["full, idle ps, level 0", "bytes"]
        adds = of["adds 0.2 of the rows, idle ps, level 0", "bytes"]
        self.assertGreater(full, 3000 * row)
        self.assertLess(full, 3000 * row + 8192)
        self.assertGreater(adds, 600 * row)
        self.assertLess(adds, 600 * row + 8192)
        self.assertLess(of["full, idle ps, level 1", "bytes"], full)
        self.assertEqual(of["full again, idle ps, level 0", "bytes"], full)
        for level in (0, 1):
            for name in (f"start from level {level}", f"read() of level {level}"):
                self.assertGreater(of[name, "bytes"], 0)
            self.assertIn(f"restore, level {level}, raw bytes / memcpy", output)

    def test_replicas_by_every_way(self):
        report, output = self.bench("replicas", "--rows", 3000, "--dim", 6, "--keys", 4, "--depth", 3,
                                    "--long-keys", 50, "--long-depth", 2)
        names = {f"{way}, {shape}, replicas {count}" for way in ("tcp", "shm")
                 for shape in ("4 keys x 1", "4 keys x 3", "50 keys x 2") for count in (0, 1)}
        self.assertEqual(set(self.names(report)), names)
        of = {(figure["name"], figure["quantity"]): figure["samples"][0]
              for figure in report["figures"]}
        for name in names:
            keys = 50 if "50 keys" in name else 4
            self.assertGreater(of[name, "pushes"], 0)
            self.assertAlmostEqual(of[name, "rows"] / of[name, "pushes"], keys)
            self.assertAlmostEqual(of[name, "bytes"] / of[name, "rows"], 8 + 4 * 6)
            self.assertGreaterEqual(of[name, "p99"], of[name, "p50"])
        for way in ("tcp", "shm"):
            self.assertIn(f"{way}, 4 keys x 3: p99 with a backup / without", output)

    def test_objects_alone_and_in_a_crowd(self):
        report, output = self.bench("objects", "--megabytes", 4, "--getters", 3, "--getter-megabytes", 2, "--getter-rate", 20,
                                    "--crowd", 5, "--crowd-megabytes", 1, "--crowd-rate", 10, "--readers", 3,
                                    "--reader-megabytes", 1)
        of = {(figure["name"], figure["quantity"]): figure["samples"][0] for figure in report["figures"]}
        for name in ("publish", "XXH3-128", "get", "READ of 1 MB"):
            self.assertGreater(of[name, "bytes"], 0)
        for name, images in (("get 1 x 2 MiB, uplinks 20 MB/s", 1), ("star 3 x 2 MiB, uplinks 20 MB/s", 3),
                             ("get 5 x 1 MiB, uplinks 10 MB/s", 1)):
            self.assertGreater(of[name, "time"], 0)
            self.assertGreaterEqual(of[name, "images from the origin"], images)
        for name in ("views of all readers", "view of 1 reader"):
            self.assertGreaterEqual(of[name, "images from the origin"], 1)
            self.assertLess(of[name, "images from the origin"], 2)
            self.assertGreaterEqual(of[name, "Pss / bytes"], 1)
            self.assertLess(of[name, "Pss / bytes"], 4)  # 1 MiB, and the 2 MiB more of the pool
        self.assertIn("64 KB, commit to a polling reader / pull of a row", output)
        self.assertIn("get / READ of 1 MB", output)
        self.assertIn("get 5 x 1 MiB, uplinks 10 MB/s / get 1 x 1 MiB", output)

    def staleness(self, *args, **more):
        """Its figures by name and quantity, the share of steps by versions behind, and what it printed."""
        path = os.path.join(self.folder, "report.json")
        output = self.run_to_end("starling-bench", "staleness", "--data_size", 1, "--push_frequency", 0.05,
                                 "--pull_frequency", 0.05, "--post_frequency", 0.2, "--max_version", 8, "--max_time", 60,
                                 "--workers", 3, "--trial_name", "t", "--LOGLEVEL", "INFO", "--json", path, *args, **more)
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        of = {(figure["name"], figure["quantity"]): figure["samples"][0]
              for figure in report["figures"] if "x" not in figure}
        shares = [figure["samples"][0] for figure in report["figures"] if "x" in figure]
        self.assertAlmostEqual(sum(shares), 1)
        self.assertIn("Final verison: 9", output)
        self.assertRegex(output, r"(?m)^Time per push: \d+\.\d\d seconds$")
        self.assertEqual(of["torn reads", "pulls"], 0)
        self.assertEqual(of["pushes", "versions"], 8)
        self.assertGreaterEqual(of["begin of push to visible", "p99"], of["commit to visible", "p50"])
        self.assertGreaterEqual(of["pulls", "versions"], 3)
        self.assertGreaterEqual(of["difference at every step", "most"], of["difference at every step", "mean"])
        return of, output

    def test_staleness_by_each_mode(self):
        of, output = self.staleness("--mode", "filesystem", "--dir", self.folder)
        self.assertEqual(of["sent by the trainer's host", "bytes"] // (1 << 20), 8)
        self.assertEqual(os.listdir(self.folder), ["report.json"])
        of, output = self.staleness("--mode", "server")
        of, output = self.staleness("--mode", "server", "--subscribe")
        self.assertIn("server with --subscribe", output)
        done = subprocess.run([sys.executable, os.path.join(BENCH, "staleness_plot.py"), os.path.join(self.folder, "plot.svg"),
                               os.path.join(self.folder, "report.json")], text=True, capture_output=True, check=True)
        self.assertIn("server, 3 workers, 0.05 s, loss 0:", done.stdout)
        self.assertIn("torn reads: 0", done.stdout)
        root = xml.etree.ElementTree.parse(os.path.join(self.folder, "plot.svg")).getroot()
        self.assertEqual(len(root.findall("{*}polyline")), 1)

    def test_staleness_of_multicast_that_loses_a_third(self):
        of, output = self.staleness("--mode", "multicast", "--loss", 0.3, "--max_time", 120)
        self.assertGreater(of["sent by the trainer's host", "bytes"], 9 << 20)

    def test_staleness_with_workers_of_srun(self):
        bin_folder = os.path.join(self.folder, "bin")
        os.mkdir(bin_folder)
        path = os.path.join(bin_folder, "srun")
        with open(path, "w", encoding="ascii") as file:  # as srun, on one node
            file.write('#!/bin/sh\necho "$@" > $0.said\nshift 5\n"$@" & "$@" & "$@" & wait\n')
        os.chmod(path, 0o755)
        self.staleness("--nworkers-per-node", 2, env={"SLURM_JOB_ID": "7", "PATH": f"{bin_folder}:{os.environ['PATH']}"})
        with open(path + ".said", encoding="ascii") as file:
            self.assertIn("--ntasks=3 --nodes=2 --ntasks-per-node=2", file.read())

    def test_staleness_of_a_worker_that_ends(self):
        bench = self.start("starling-bench", "staleness", "--data_size", 1, "--workers", 2)
        self.wait_until(lambda: len(harness.children_of(bench.pid)) >= 2)
        os.kill(harness.children_of(bench.pid)[-1], signal.SIGKILL)
        self.assertEqual(bench.wait(), 1)

    def test_pulls_beside_the_publication_of_a_table(self):
        path = os.path.join(self.folder, "report.json")
        done = subprocess.run([sys.executable, os.path.join(BENCH, "tables_publish.py"), "--bin", harness.BIN, "--rows", "2000",
                               "--dim", "8", "--rounds", "1", "--seconds", "1", "--warm-up", "0.1", "--interval", "0.2",
                               "--rate", "200", "--json", path], text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("p99 while a table is published / without", done.stdout)
        with open(path, encoding="utf-8") as file:
            of = {(figure["name"], figure["quantity"]): figure["samples"][0] for figure in json.load(file)["figures"]}
        self.assertGreaterEqual(of["pulls while a table is published", "publications"], 1)
        self.assertGreater(of["pulls while a table is published", "requests"], 0)

    def test_checkpoint_where_nothing_can_be_written(self):
        nowhere = os.path.join(self.folder, "nowhere")
        output = self.run_to_end("starling-bench", "checkpoint", "--dir", nowhere, *QUICK, status=1)
        self.assertIn(f"no folder can be made in {nowhere}", output)

    def test_serving_without_redis(self):
        report, output = self.bench("serving", "--part", "one-row", "--rows", 100,
                                    env=self.path_without_others())
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
    def test_other_systems(self):
        for names, args in ((["redis GET, pipelined x64"], ["serving", "--part", "one-row", "--rows", 1000]),
                            (["pull, iperf3 -l 1M", "push, iperf3 -l 1M"],
                             ["bulk", "--sizes", "64K", "--small-connections", 0])):
            report, _ = self.bench(*args)
            for figure in report["figures"]:
                self.assertGreater(figure["samples"][0], 0, figure)
            for name in names:
                self.assertIn(name, self.names(report))

    def test_other_systems_that_are_not_installed_are_left_out(self):
        env = self.path_without_others()
        for package, args in (("redis-server and redis-tools", ["serving", "--part", "one-row", "--rows", 100]),
                              ("iperf3", ["bulk", "--sizes", "64K", "--small-connections", 0])):
            output = self.run_to_end("starling-bench", *args, *QUICK, env=env)
            self.assertIn(f"install Debian's {package}", output)

    def start_roles(self, args, env=None, workers=1, servers=1):
        """Starts a whole job in ps-lite's roles; returns its processes, workers first, and where their reports are."""
        port, = harness.free_ports(1)
        env = {"DMLC_NUM_WORKER": str(workers), "DMLC_NUM_SERVER": str(servers), "DMLC_PS_ROOT_URI": "127.0.0.1",
               "DMLC_PS_ROOT_PORT": str(port), "DMLC_NODE_HOST": "127.0.0.1", "NETWORK_PS_CORE_NUMBER": "1", **(env or {})}
        paths = [os.path.join(self.folder, f"report{port}-{i}.json") for i in range(workers)]
        roles = [("worker", ["--json", path]) for path in paths] + [("server", [])] * servers + [("scheduler", [])]
        return [self.start("starling-bench", "pslite", 4096, *args, *more, env={**env, "DMLC_ROLE": role})
                for role, more in roles], paths

    def pslite(self, *args, **more):
        """Runs a whole job; returns the figures of its reports by name and quantity, the setting, and what a worker
        printed."""
        roles, paths = self.start_roles((2, *args), **more)
        self.end_well(roles)
        of = {}
        for path in paths:
            with open(path, encoding="utf-8") as file:
                report = json.load(file)
            self.assertEqual((report["format"], report["benchmark"]), ("starling-bench report 1", "pslite"))
            for key in ("cpu", "cores", "kernel", "build", "server_core", "client_core"):
                self.assertIn(key, report["machine"])
            self.assertRegex(report["written"], r"^\d{4}-\d\d-\d\dT")
            of.update({(figure["name"], figure["quantity"]): figure for figure in report["figures"]})
        for figure in of.values():
            self.assertGreater(min(figure["samples"]), 0, figure)
        return of, report["setting"], roles[0].output

    def test_pslite_in_every_mode(self):
        for mode, name in ((1, "push_pull"), (2, "push"), (3, "pull")):
            of, setting, output = self.pslite(mode)
            self.assertIn(f"{name}, 4096 bytes of each of 40 keys", setting)
            self.assertIn("keeps the first push", setting)
            self.assertEqual(len(of["worker 0", "goodput"]["samples"]), 1)
            self.assertEqual(of["worker 0", "time per key"]["unit"], "us")
            self.assertIn("worker 0: goodput", output)

    def test_pslite_pushes_then_pulls(self):
        of, setting, output = self.pslite(0)
        self.assertIn("push then pull", setting)
        for quantity in ("push, total", "pull, total", "push of a key", "pull of a key"):
            self.assertIn(("worker 0", quantity), of)
        self.assertIn("push 4096 bytes to each server, repeat=2, total_time=", output)

    def test_pslite_of_many_and_by_variables(self):
        of, setting, output = self.pslite(
            1, "--handler", "sum", "--over", "tcp", "--client", "reactor", workers=2, servers=2,
            env={"NUM_KEY_PER_SERVER": "3", "LOG_DURATION": "2", "TOTAL_DURATION": "5"})
        self.assertIn("3 keys of each server, which adds pushes up; TCP", setting)
        for worker in (0, 1):
            self.assertEqual(len(of[f"worker {worker}", "goodput"]["samples"]), 3)
        self.assertIn("5 rounds done", output)

    def test_pslite_arguments_that_are_none(self):
        for args, env, why in (
                (["4k"], {}, "LEN=4k: accepts a number from 1"),
                ([4096, 2, 4], {}, "MODE=4: accepts 0 (push, then pull)"),
                ([4097, "--handler", "sum"], {}, "LEN=4097: accepts multiples of 4"),
                ([], {"NUM_KEY_PER_SERVER": "many"}, "NUM_KEY_PER_SERVER=many: accepts"),
                ([], {}, "DMLC_ROLE"),
                ([], {"DMLC_ROLE": "master"}, "master")):
            output = self.run_to_end("starling-bench", "pslite", *args, env=env, status=2)
            self.assertIn(why, output)
        output = self.run_to_end("starling-bench", "ipc", 4096, 0, status=2)
        self.assertIn("REPEAT=0", output)

    def test_ipc_leaves_nothing_when_it_is_interrupted(self):
        bench = self.start("starling-bench", "ipc", 4096, "--part", "goodput", "--rounds", 64)

        def of_loads():  # scheduler, server and worker, by either way
            return [child for load in harness.children_of(bench.pid) for child in harness.children_of(load)]
        self.wait_until(lambda: len(of_loads()) == 6)
        children = of_loads()
        bench.signal(signal.SIGINT)
        self.assertEqual(bench.wait(), -signal.SIGINT)
        self.wait_until(lambda: not any(os.path.exists(f"/proc/{child}") for child in children))

    def test_ipc_by_both_ways(self):
        report, output = self.bench("ipc", 4096, 2, "--workers", 2, env={"NUM_KEY_PER_SERVER": "40"})
        for name in ("shm, 4 KB", "tcp, 4 KB", "ps-lite (README), 4 KB", "shm, round trip",
                     "shm, 2:1, 1 KB", "tcp, 2:1, 1 KB"):
            self.assertIn(name, self.names(report))
        for line in ("tcp, 4 KB / ps-lite", "shm, 4 KB / tcp", "shm, round trip, p50 / a microsecond"):
            self.assertIn(line, output)

    def test_ipc_beside_memcpy(self):
        report, output = self.bench("ipc", 1 << 20, 1, 3, "--part", "goodput", "--polling", "false",
                                    env={"NUM_KEY_PER_SERVER": "2"})
        self.assertEqual(set(self.names(report)), {"shm, 1 MB", "tcp, 1 MB", "memcpy, 1 MB",
                                                   "bare echo, 64 KB both ways"})
        self.assertIn("shm, 1 MB / memcpy", output)


if __name__ == "__main__":
    harness.main()
