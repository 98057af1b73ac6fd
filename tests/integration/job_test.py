#!/usr/bin/env python3
"""Whole training jobs with real processes: the models learn, in every mode and configuration."""

import contextlib
import glob
import json
import os
import shutil
import signal
import subprocess
import time
import unittest

import harness

KILLED = "killed by signal 9 (Killed)"
SANITIZED = bool(os.environ.get("STARLING_SANITIZED"))


class Secured(harness.StarlingTest):
    def tls_flags(self, name):
        """Flags of a process with a certificate of its own making, for that alternative name."""
        if shutil.which("openssl") is None:
            self.skipTest("no openssl to make a certificate with")
        key, certificate = (os.path.join(self.folder, name) for name in ("key", "certificate"))
        subprocess.run(["openssl", "req", "-x509", "-nodes", "-newkey", "rsa:2048", "-keyout", key,
                        "-out", certificate, "-subj", "/CN=ps", "-addext",
                        f"subjectAltName={name}"], check=True, capture_output=True,
                       timeout=harness.DEADLINE_S)
        return ["--tls-cert", certificate, "--tls-key", key, "--tls-ca", certificate]


class Generated(Secured):
    """A small click log from a known model, enough to tell learning from not learning."""

    def setUp(self):
        super().setUp()
        rows = "8000" if SANITIZED else "30000"
        self.run_to_end("starling-worker", "generate", "--out", self.folder, "--rows", rows,
                        "--test-rows", "5000", "--seed", "7")
        self.data = ["--data", os.path.join(self.folder, "train.tsv"), "--test",
                     os.path.join(self.folder, "test.tsv"), "--format", "criteo"]

    def assert_learned(self, report, least=0.60):
        self.assertGreater(report["test"]["auc"], least, report)
        self.assertGreater(report["test"]["samples"], 0)


class GeneratedJob(Generated):
    """Every mode and configuration."""

    def test_lr_asp(self):
        self.assert_learned(self.train(self.data + ["--model", "lr"]))

    def test_lr_of_a_folder_and_a_list(self):
        parts = os.path.join(self.folder, "parts")
        os.mkdir(parts)
        with open(self.data[1], encoding="ascii") as train:
            lines = train.readlines()
        for name, text in (("part-0", lines[::2]), ("part-1", lines[1::2]), ("_SUCCESS", ["no row\n"])):
            with open(os.path.join(parts, name), "w", encoding="ascii") as part:
                part.writelines(text)
        report = self.train(["--data", parts, "--test", f"{self.data[3]},{self.data[3]}", "--format", "criteo",
                             "--model", "lr", "--fields", "39"])
        self.assert_learned(report)
        self.assertEqual(report["test"]["samples"], 10000)

    def test_deepfm_ssp(self):
        report = self.train(self.data + ["--model", "deepfm", "--consistency", "ssp:2"])
        self.assert_learned(report)
        self.assertLessEqual(report["staleness"]["max"], 2)

    def test_two_ps_of_two_reactors(self):
        report = self.train(self.data + ["--model", "fm", "--lr", 0.01], ps_count=2,
                            ps_env={"NETWORK_PS_CORE_NUMBER": "2"})
        self.assert_learned(report)

    def test_four_reactors_and_two_in_the_worker(self):
        self.assert_learned(self.train(self.data + ["--model", "lr"], worker_count=2,
                                       ps_env={"NETWORK_PS_CORE_NUMBER": "4"},
                                       worker_env={"NETWORK_WORKER_CORE_NUMBER": "2"}))

    def test_one_certificate_for_all_ps(self):
        tls = self.tls_flags("DNS:ps.example") + ["--tls-name", "ps.example"]
        servers, flags = self.start_ps(2, 2, extra=tls)
        workers = self.start_workers(flags, 2, self.data + ["--model", "lr", *tls])
        self.end_well(workers)
        self.drain(servers)

    def test_ipv6(self):
        self.assert_learned(self.train(self.data + ["--model", "lr"], worker_count=2, host="::1"))

    def test_polling(self):
        self.assert_learned(self.train(self.data + ["--model", "lr"], worker_count=1,
                                       ps_env={"PS_ENABLE_POLLING": "TRUE",
                                               "NETWORK_PS_CORE_NUMBER": "1"},
                                       worker_env={"WORKER_ENABLE_POLLING": "1",
                                                   "NETWORK_WORKER_CORE_NUMBER": "1"}))

    def test_pinned_cores(self):
        self.assert_learned(self.train(self.data + ["--model", "lr"], worker_count=2,
                                       ps_env={"PS_DISABLE_PIN_CORES": "false",
                                               "NETWORK_PS_CORE_NUMBER": "1"},
                                       worker_env={"WORKER_DISABLE_PIN_CORES": "0",
                                                   "NETWORK_WORKER_CORE_NUMBER": "1"}))

    def test_no_reactor(self):
        """The thread that trains serves the connections, of a worker that was told so; one that
        was not has a thread for them, though there is one core for all."""
        cores = os.sched_getaffinity(0)
        self.addCleanup(os.sched_setaffinity, 0, cores)
        os.sched_setaffinity(0, {min(cores)})
        servers, flags = self.start_ps(1, 2)
        told, other = [
            self.start("starling-worker", *flags, "--job-name", "worker", "--task-index", index,
                       *self.data, "--model", "lr", env=env)
            for index, env in enumerate(({"NETWORK_WORKER_CORE_NUMBER": "0"}, None))
        ]
        self.end_well((told, other))
        self.assertIn("no reactor: the training thread", told.output)
        self.assertNotIn("no reactor", other.output)
        self.drain(servers)

    def test_checksums(self):
        self.assert_learned(self.train(self.data + ["--model", "lr", "--checksum"], worker_count=2))

    def test_cluster_from_an_endpoint_map(self):
        """The map names the ps, and a port of its own for its data."""
        control, data = harness.free_ports(2)
        path = self.file("map", f"# one ps\n\n127.0.0.1:{control}=tcp://127.0.0.1:{data}\n")
        flags = ["--endpoint-map", path, "--worker-hosts", "a"]
        server = self.start("starling-ps", *flags, "--job-name", "ps", "--task-index", 0)
        ready = server.wait_line("ready")
        self.assertIn(f"control tcp://127.0.0.1:{control}, data tcp://127.0.0.1:{data}", ready)
        output = self.run_to_end("starling-worker", *flags, *self.data, "--model", "lr")
        self.assertIn("test AUC", output)
        self.drain([server])

    def test_cluster_from_tf_config(self):
        """As an operator sets it: the chief is worker 0, its workers follow."""
        cluster = {"ps": [f"127.0.0.1:{harness.free_ports(1)[0]}"], "chief": ["a:1"],
                   "worker": ["b:1", "c:1"]}

        def start(program, kind, index, *args):
            task = {"type": kind, "index": index}
            env = {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}
            return self.start(program, *args, env=env)

        server = start("starling-ps", "ps", 0)
        args = [*self.data, "--model", "lr"]
        workers = [start("starling-worker", kind, index, *args)
                   for kind, index in (("chief", 0), ("worker", 0), ("worker", 1))]
        self.end_well(workers)
        self.assertIn("worker 0 of 3", workers[0].output)
        self.drain([server])

    def test_bsp_is_the_same_by_both_protocols(self):
        reports = [self.train(self.data + ["--model", "fm", "--consistency", "bsp", "--protocol", p],
                              ps_count=2)
                   for p in ("per-table", "star_server_lite")]  # an older name of batched
        self.assertEqual(reports[0]["test"]["auc"], reports[1]["test"]["auc"])
        self.assertEqual(reports[0]["test"]["loss"], reports[1]["test"]["loss"])
        self.assertEqual(reports[0]["staleness"]["max"], 0)


class LossyJob(Generated):
    """Workers that are killed in the middle, replaced or not, and one that joins."""

    # Enough for many times the fifth of a second after which workers first say where they are. Those
    # that wait for each other need fewer.
    EPOCHS = {"asp": 20, "bsp": 12, "ssp:2": 12}
    # How many times as many: the second for where the job was over before the test came to it.
    LENGTHS = (1, 10)

    def setUp(self):
        super().setUp()
        self.report = os.path.join(self.folder, "report.json")

    def job(self, consistency, length):
        return [*self.data, "--model", "lr", "--consistency", consistency, "--epochs",
                length * self.EPOCHS[consistency], "--batch-size", "32", "--report", self.report]

    def start_job(self, consistency, index, *args, lease_s):
        """A job whose worker `index` is killed once it trains."""
        for length in self.LENGTHS:
            launcher = self.start("starling-launch", "--workers", 3, "--lease", lease_s, "--ps-reactors", 2,
                                  "--worker-reactors", 1, *args, "--", *self.job(consistency, length))
            if self.kill(launcher, index):
                return launcher
            launcher.wait()
            self.forget_reports()
        self.fail(f"no worker {index} under the launcher:\n{launcher.output}")

    def kill(self, launcher, index):
        """Kills the worker once it trains. False: it was too late for that."""
        launcher.wait_line("[worker/0] epoch")
        for pid in harness.children_of(launcher.pid):
            words = harness.command_of(pid)
            if words[0].endswith("starling-worker") and \
                    words[words.index("--task-index") + 1] == str(index):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + harness.DEADLINE_S
        while launcher.running() and KILLED not in launcher.output:
            self.assertLess(time.monotonic(), end, launcher.output)
            time.sleep(0.02)
        return KILLED in launcher.output

    def forget_reports(self):
        for path in glob.glob(self.report + "*"):
            os.remove(path)

    def read_report(self, index=0):
        with open(self.report + (f".{index}" if index else ""), encoding="utf-8") as file:
            return json.load(file)

    def assert_ended(self, launcher, evaluator=0):
        self.assertEqual(launcher.wait(), 0, launcher.output)
        self.assert_learned(self.read_report(evaluator))

    def replaced(self, consistency, index):
        launcher = self.start_job(consistency, index, "--restart-workers", 1, lease_s=60)
        self.assert_ended(launcher)
        self.assertIn(f"worker/{index} failed: {KILLED}; restarting", launcher.output)
        line = launcher.wait_line("continues with iteration")
        self.assertIn(f"[worker/{index}]", line)
        whole = self.read_report(1 if index != 1 else 2)["batches"]
        self.assertLess(self.read_report(index)["batches"], whole, "it has not begun anew")

    def test_killed_worker_is_replaced_in_asp(self):
        self.replaced("asp", 1)

    def test_killed_worker_is_replaced_in_bsp(self):
        self.replaced("bsp", 1)

    def test_killed_worker_0_is_replaced_in_ssp(self):
        self.replaced("ssp:2", 0)

    def test_job_goes_on_without_a_killed_worker(self):
        """In the place of worker 0, the next one evaluates."""
        launcher = self.start_job("bsp", 0, "--on-worker-loss", "continue", lease_s=6)
        self.assert_ended(launcher, evaluator=1)
        self.assertIn("the job ends without worker/0", launcher.output)
        self.assertIn("evaluates the model, since the workers before it expired", launcher.output)
        self.assertIn("test AUC", launcher.output)
        self.assertFalse(os.path.exists(self.report), "worker 0 has left a report")

    def test_worker_joins(self):
        for consistency in ("asp", "bsp"):
            with self.subTest(consistency=consistency):
                self.assertTrue(any(self.joins(consistency, length) for length in self.LENGTHS))
                self.assert_learned(self.read_report())
                self.assertGreater(self.read_report(2)["batches"], 0)

    def joins(self, consistency, length):
        """False: it came when the others had finished."""
        servers, flags = self.start_ps(worker_count=2, env={"NETWORK_PS_CORE_NUMBER": "2"})
        args = self.job(consistency, length)
        workers = self.start_workers(flags, 2, args)
        workers[0].wait_line("epoch")
        joins = self.start("starling-worker", *flags, "--task-index", 2, "--join", *args)
        self.end_well([*workers, joins])
        self.drain(servers)
        came = "nothing to train" not in joins.output
        if came and consistency == "bsp":
            self.assertIn("continues with iteration", joins.output)
        return came

    def test_failing_worker_can_be_replaced(self):
        """One whose step fails says no goodbye: a second of the index goes on where it was."""
        broken = self.file("broken", "")
        with open(broken, "wb") as out:
            with open(self.data[1], "rb") as data:
                out.write(data.read())
            out.write(b"0\tnot a number\n")
        servers, flags = self.start_ps(worker_count=1)
        args = ["--format", "criteo", "--model", "lr"]
        failing = self.start("starling-worker", *flags, "--data", broken, "--epochs", 1, *args)
        self.assertEqual(failing.wait(), 1, failing.output)
        self.assertIn("broken:", failing.output)
        again = self.start("starling-worker", *flags, "--data", self.data[1], "--epochs", 2, *args)
        again.wait_line("continues with iteration")
        self.assertEqual(again.wait(), 0, again.output)
        self.drain(servers)


class Libffm(harness.StarlingTest):
    """FIELD:INDEX:VALUE: rows whose label follows from the index, in fields that say nothing."""

    def test_job(self):
        data = self.file("data", "1 0:1:1 1:2:0.5\n0 0:3:1 5:4:0.5 # the other\n" * 2000)
        report = self.train(["--data", data, "--test", data, "--format", "libffm", "--model", "lr"],
                            worker_count=2)
        self.assertEqual(report["test"]["samples"], 4000)
        self.assertGreater(report["test"]["auc"], 0.99)


class Lines(Secured):
    """What a ps says, where nothing fails by it."""

    def test_ps_that_was_lost_is_back(self):
        servers, _ = self.start_ps(2, extra=["--lease", "300ms"])
        harness.wait_lines(servers, "ready")
        servers[1].signal(signal.SIGSTOP)
        servers[0].wait_line("ps/1 expired")
        servers[1].signal(signal.SIGCONT)
        servers[0].wait_line("ps/1 reconnected")
        self.drain(servers)

    def test_tls_is_not_insecure(self):
        tls = self.tls_flags("IP:0.0.0.0")
        for flags, warns in (([], True), (tls, False)):
            servers, _ = self.start_ps(host="0.0.0.0", extra=["--insecure", *flags])
            servers[0].wait_line("ready")
            self.assertEqual("--insecure: everyone who reaches" in servers[0].output, warns)
            self.drain(servers)


@unittest.skipIf(SANITIZED, "three epochs of Adult are for optimised builds")
class AdultJob(harness.StarlingTest):
    """The Adult data set: what a single process reaches, many reach together."""

    def setUp(self):
        super().setUp()
        self.data = ["--data", harness.adult("train"), "--test", harness.adult("test"),
                     "--format", "libsvm", "--epochs", "3"]

    def check(self, model, least, consistency, **cluster):
        args = self.data + ["--model", model, "--consistency", consistency]
        if model == "fm":
            args += ["--factors", "8"]
        report = self.train(args, **cluster)
        self.assertGreaterEqual(report["test"]["auc"], least, (model, consistency, cluster))

    def test_one_ps_eight_workers(self):
        for model, least in (("lr", 0.914), ("fm", 0.919)):
            for consistency in ("asp", "bsp", "ssp:2"):
                with self.subTest(model=model, consistency=consistency):
                    self.check(model, least, consistency, worker_count=8,
                               ps_env={"NETWORK_PS_CORE_NUMBER": "2"})

    def test_two_ps_four_workers(self):
        for model, least in (("lr", 0.914), ("fm", 0.919)):
            for consistency in ("asp", "bsp", "ssp:2"):
                with self.subTest(model=model, consistency=consistency):
                    self.check(model, least, consistency, ps_count=2, worker_count=4,
                               ps_env={"NETWORK_PS_CORE_NUMBER": "1"})


if __name__ == "__main__":
    harness.main()
