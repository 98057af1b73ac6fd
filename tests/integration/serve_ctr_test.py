#!/usr/bin/env python3
"""Models that a worker publishes, on the engine that serves them, and over HTTP: the AUC and the loss of a test file
are those of the worker's own evaluation."""

import json
import math
import os
import re
import urllib.request

import harness
import objects_cluster_test

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "serving-models.md")


FIELDS = 39


def criteo_key():
    """The function of the page."""
    names = {}
    with open(PAGE, encoding="utf-8") as file:
        exec(re.search(r"```python\n((?:(?!```).)*def criteo_key.*?)```", file.read(), re.S).group(1), names)
    return names["criteo_key"]


class Ctr(objects_cluster_test.Cluster):
    WORKERS = 1

    def train(self, hosts, catalogue, model, *flags):
        """The report's test figures."""
        self.run_to_end("starling-worker", "--ps-hosts", ",".join(hosts), "--num-workers", 1, "--task-index", 0,
                        "--data", self.path("data/train.tsv"), "--test", self.path("data/test.tsv"), "--format", "criteo",
                        "--model", model, "--publish", model, "--publish-every", "60s", "--catalogue", catalogue,
                        "--report", self.path("report"), *flags)
        with open(self.path("report"), encoding="utf-8") as file:
            return json.load(file)["test"]

    def examples(self):
        """(label, keys) of each line of the test file."""
        key = criteo_key()
        with open(self.path("data/test.tsv"), encoding="utf-8") as file:
            lines = [line.rstrip("\n").split("\t") for line in file]
        return [(int(line[0]), [key(field, column) for field, column in enumerate(line[1:])]) for line in lines]

    def check(self, model, *flags):
        servers, hosts, catalogue = self.start_cluster()
        wanted = self.train(hosts, catalogue, model, *flags)
        found = self.run_to_end("ctr_scores", catalogue, model, self.path("data/test.tsv"))
        auc, loss, rows = map(float, re.search(r"auc (\S+) loss (\S+) rows (\d+)", found).groups())
        self.assertEqual(rows, wanted["samples"])
        self.assertEqual(list(map(int, re.findall(r"key (\d+)", found))), self.examples()[0][1])
        self.assertGreater(auc, 0.6)
        self.assertAlmostEqual(auc, wanted["auc"], delta=1e-5)
        self.assertAlmostEqual(loss, wanted["loss"], delta=1e-5)
        self.end(*servers)

    def setUp(self):
        super().setUp()
        self.run_to_end("starling-worker", "generate", "--out", self.path("data"), "--rows", 6000, "--test-rows", 1500)

    def test_on_the_engine(self):
        self.check("lr")
        self.check("fm", "--factors", 5)
        self.check("deepfm", "--factors", 4, "--hidden", "32,16", "--seed", 9)

    def test_narrow_rows_on_the_engine(self):
        self.check("lr", "--values", "f16", "--encoding", "f16")
        self.check("fm", "--factors", 5, "--values", "bf16", "--slots", "f16")
        self.check("deepfm", "--factors", 4, "--hidden", "32,16", "--values", "int8", "--slots", "bf16", "--encoding", "bf16")

    def infer(self, address, keys):
        tensors = [{"name": "keys", "shape": [len(keys), FIELDS], "datatype": "UINT64", "data": keys},
                   {"name": "values", "shape": [len(keys), FIELDS], "datatype": "FP32", "data": [1] * FIELDS * len(keys)}]
        request = urllib.request.Request(address, json.dumps({"inputs": tensors}).encode(),
                                         {"Starling-Timeout-Ms": "60000"})
        with urllib.request.urlopen(request, timeout=harness.DEADLINE_S) as answer:
            return json.load(answer)["outputs"][0]["data"]

    def test_over_http(self):
        servers, hosts, catalogue = self.start_cluster()
        agent = self.start("starling-objects", "serve", "--agent", "--agent-name", f"serve-ctr-{os.getpid()}",
                           "--catalogue", catalogue, "--pool-memory", "64M")
        agent.wait_line("serves readers")
        gateway = self.start("starling-serve", "gateway", "--http", "127.0.0.1:0", "--listen", "127.0.0.1:0",
                             "--catalogue", catalogue)
        joined, http = re.search(r"(\S+) is joined by workers, and serves (\S+)",
                                 gateway.wait_line("serves http")).groups()
        worker = self.start("starling-serve", "worker", "--gateway", joined, "--agent-name", f"serve-ctr-{os.getpid()}")
        worker.wait_line("joins")
        wanted = self.train(hosts, catalogue, "deepfm")
        examples, found = self.examples(), []
        for at in range(0, len(examples), 30):
            found += self.infer(f"{http}/v2/models/deepfm/infer", [keys for _, keys in examples[at:at + 30]])
        loss = -sum(math.log(p if label else 1 - p) for p, (label, _) in zip(found, examples)) / len(examples)
        self.assertEqual(len(found), wanted["samples"])
        self.assertAlmostEqual(loss, wanted["loss"], delta=1e-5)
        self.end(worker, gateway, agent, *servers)


if __name__ == "__main__":
    harness.main()
