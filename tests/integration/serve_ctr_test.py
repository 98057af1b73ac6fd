#!/usr/bin/env python3
"""Models that a worker publishes, on the engine that serves them: the AUC and the loss of a test file are those of
the worker's own evaluation."""

import json
import os
import re

import harness
import objects_cluster_test

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "serving-models.md")


class Ctr(objects_cluster_test.Cluster):
    WORKERS = 1

    def check(self, model, *flags):
        servers, hosts, catalogue = self.start_cluster()
        self.run_to_end("starling-worker", "--ps-hosts", ",".join(hosts), "--num-workers", 1, "--task-index", 0,
                        "--data", self.path("data/train.tsv"), "--test", self.path("data/test.tsv"), "--format", "criteo",
                        "--model", model, "--publish", model, "--publish-every", "60s", "--catalogue", catalogue,
                        "--report", self.path("report"), *flags)
        with open(self.path("report"), encoding="utf-8") as file:
            wanted = json.load(file)["test"]
        found = self.run_to_end("ctr_scores", catalogue, model, self.path("data/test.tsv"))
        auc, loss, rows = map(float, re.search(r"auc (\S+) loss (\S+) rows (\d+)", found).groups())
        self.assertEqual(rows, wanted["samples"])
        self.assertEqual(list(map(int, re.findall(r"key (\d+)", found))), self.keys_of_the_first_example())
        self.assertGreater(auc, 0.6)
        self.assertAlmostEqual(auc, wanted["auc"], delta=1e-5)
        self.assertAlmostEqual(loss, wanted["loss"], delta=1e-5)
        self.end(*servers)

    def keys_of_the_first_example(self):
        """By the code of the page."""
        with open(PAGE, encoding="utf-8") as file:
            code = re.search(r"```python\n(.*?)```", file.read(), re.S).group(1)
        names = {}
        exec(code, names)
        with open(self.path("data/test.tsv"), encoding="utf-8") as file:
            columns = file.readline().rstrip("\n").split("\t")[1:]
        self.assertIn("", columns)
        return [names["criteo_key"](field, column) for field, column in enumerate(columns)]

    def test_models(self):
        self.run_to_end("starling-worker", "generate", "--out", self.path("data"), "--rows", 6000, "--test-rows", 1500)
        self.check("lr")
        self.check("fm", "--factors", 5)
        self.check("deepfm", "--factors", 4, "--hidden", "32,16", "--seed", 9)


if __name__ == "__main__":
    harness.main()
