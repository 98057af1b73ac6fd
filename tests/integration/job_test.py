#!/usr/bin/env python3
"""Whole training jobs with real processes: the models learn, in every mode and configuration."""

import json
import os
import unittest

import harness

SANITIZED = bool(os.environ.get("STARLING_SANITIZED"))


class GeneratedJob(harness.StarlingTest):
    """A small click log from a planted model, enough to tell learning from not learning."""

    def setUp(self):
        super().setUp()
        rows = "8000" if SANITIZED else "30000"
        self.run_to_end("starling-bench", "generate", "--out", self.folder, "--rows", rows,
                        "--test-rows", "5000", "--seed", "7")
        self.data = ["--data", os.path.join(self.folder, "train.tsv"), "--test",
                     os.path.join(self.folder, "test.tsv"), "--format", "criteo"]

    def assert_learned(self, report, least=0.60):
        self.assertGreater(report["test"]["auc"], least, report)
        self.assertGreater(report["test"]["samples"], 0)

    def test_lr_asp(self):
        self.assert_learned(self.train(self.data + ["--model", "lr"]))

    def test_deepfm_ssp(self):
        report = self.train(self.data + ["--model", "deepfm", "--consistency", "ssp:2"])
        self.assert_learned(report)
        self.assertLessEqual(report["staleness"]["max"], 2)

    def test_two_ps_of_two_reactors(self):
        report = self.train(self.data + ["--model", "fm"], ps_count=2,
                            ps_env={"NETWORK_PS_CORE_NUMBER": "2"})
        self.assert_learned(report)

    def test_four_reactors_and_two_in_the_worker(self):
        self.assert_learned(self.train(self.data + ["--model", "lr"], worker_count=2,
                                       ps_env={"NETWORK_PS_CORE_NUMBER": "4"},
                                       worker_env={"NETWORK_WORKER_CORE_NUMBER": "2"}))

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
        for worker in workers:
            self.assertEqual(worker.wait(), 0, worker.output)
        self.assertIn("worker 0 of 3", workers[0].output)
        self.drain([server])

    def test_bsp_is_the_same_by_both_protocols(self):
        reports = [self.train(self.data + ["--model", "fm", "--consistency", "bsp", "--protocol", p],
                              ps_count=2)
                   for p in ("star_server", "star_server_lite")]
        self.assertEqual(reports[0]["test"]["auc"], reports[1]["test"]["auc"])
        self.assertEqual(reports[0]["test"]["loss"], reports[1]["test"]["loss"])
        self.assertEqual(reports[0]["staleness"]["max"], 0)


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
