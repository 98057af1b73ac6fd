#!/usr/bin/env python3
"""All of model serving by one command: storage, gateway and workers as its children."""

import os
import re
import signal
import sys
import time

try:
    import numpy as np

    from serve_http_test import Http, Model
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

import harness

X = np.arange(8, dtype="f4").reshape(2, 4)


class Local(Http):
    def deploy(self, name, model):
        path = os.path.join(self.folder, f"{name}.onnx")
        model.save(path)
        self.run_to_end("starling-serve", "deploy", path, "--dir", os.path.join(self.folder, "models"))

    def serve(self, *flags, names=("mlp",)):
        self.models = {name: Model(seed) for seed, name in enumerate(names)}
        for name, model in self.models.items():
            self.deploy(name, model)
        self.all = self.start("starling-serve", "--models", os.path.join(self.folder, "models"), "--http", "127.0.0.1:0",
                              "--pool-memory", "64M", *flags)
        line = self.all.wait_line("serves the models of")
        self.address = re.match(r"http://([\d.:]+) ", line).group(1)

    def children(self, role):
        """Process ids, oldest first."""
        found = []
        for pid in os.listdir("/proc"):
            try:
                with open(f"/proc/{pid}/stat", encoding="utf-8") as stat, open(f"/proc/{pid}/cmdline", "rb") as words:
                    parent = int(stat.read().rpartition(")")[2].split()[1])
                    if parent == self.all.pid and role.encode() in words.read().split(b"\0"):
                        found.append(int(pid))
            except (OSError, ValueError):
                pass
        return sorted(found)

    def infer(self, name):
        status, answer = self.ready().infer(name, {"x": ("FP32", X)})
        self.assertEqual(status, 200, answer)
        self.check(answer, self.models[name], X)

    def test_three_commands(self):
        self.serve("--workers", "2")
        self.infer("mlp")
        self.assertEqual(len(self.children("worker")), 2)
        self.all.signal(signal.SIGTERM)
        self.assertEqual(self.all.wait(), 0)

    def test_a_version_that_is_deployed_meanwhile_takes_over(self):
        self.serve("--workers", "1")
        self.infer("mlp")
        catalogue = self.all.wait_line("deploy --catalogue").split()[-1]
        model = self.models["mlp"] = Model(7)
        path = os.path.join(self.folder, "mlp.onnx")
        model.save(path)
        self.run_to_end("starling-serve", "deploy", path, "--catalogue", catalogue)
        client, end = self.ready(), time.monotonic() + harness.DEADLINE_S
        while client.infer("mlp", {"x": ("FP32", X)})[1].get("model_version") != "2":
            self.assertLess(time.monotonic(), end)
        self.infer("mlp")

    def test_a_killed_worker_is_replaced(self):
        self.serve("--workers", "1")
        self.infer("mlp")
        (worker,) = self.children("worker")
        os.kill(worker, signal.SIGKILL)
        self.all.wait_line("worker 0 has ended, by signal 9, and is started again")
        self.infer("mlp")
        self.assertNotEqual(self.children("worker"), [worker])

    def test_workers_that_do_not_end_are_killed_together(self):
        self.serve("--workers", "2")
        for worker in self.children("worker"):
            os.kill(worker, signal.SIGSTOP)
        self.all.signal(signal.SIGTERM)
        self.assertEqual(self.all.wait(), 0)
        for worker in range(2):
            self.assertIn(f"the worker {worker} is killed: it has not ended in time", self.all.output)

    def test_a_folder_that_does_not_exist(self):
        self.all = self.start("starling-serve", "--models", os.path.join(self.folder, "misspelt"), "--http", "127.0.0.1:0",
                              "--pool-memory", "64M", "--workers", "1")
        self.all.wait_line("misspelt has no deployed model: the folder did not exist, and is made; deploy models by")
        self.all.wait_line("serves the models of")

    def test_a_folder_without_models(self):
        os.mkdir(os.path.join(self.folder, "models"))
        self.file("models/mlp.onnx", "")
        self.all = self.start("starling-serve", "--models", os.path.join(self.folder, "models"), "--http", "127.0.0.1:0",
                              "--pool-memory", "64M", "--workers", "1")
        self.all.wait_line("models has no deployed model: files are served after they are deployed")
        self.all.wait_line("serves the models of")
        self.all.signal(signal.SIGTERM)
        self.assertEqual(self.all.wait(), 0)

    def test_all_end_with_the_gateway(self):
        self.serve("--workers", "1")
        (gateway,) = self.children("gateway")
        os.kill(gateway, signal.SIGKILL)
        self.assertEqual(self.all.wait(), 1)
        self.assertIn("the gateway has ended, by signal 9", self.all.output)

    def test_kept_models_are_in_memory_when_it_is_ready(self):
        self.serve("--workers", "1", "--keep", "kept", names=("kept", "other"))
        for name in self.models:
            folder = os.path.join(self.folder, "models", name)
            for file in os.listdir(folder):
                if file.endswith(".data"):
                    os.truncate(os.path.join(folder, file), 0)
        self.infer("kept")
        status, answer = self.ready().infer("other", {"x": ("FP32", X)}, headers={"Starling-Timeout-Ms": "1000"})
        self.assertIn(status, (503, 504), answer)

    def test_wrong_flags_and_folders(self):
        def refused(words, *flags, status=2):
            self.assertIn(words, self.run_to_end("starling-serve", *flags, status=status))

        refused("--models is missing", "--workers", "2")
        refused("--workers", "--models", self.folder, "--workers", "0")
        refused("unknown role \"work\"", "work")
        file = self.file("no_folder", "")
        refused("no_folder", "--models", file, status=1)
        self.models = {}
        Local.deploy(self, "plain", Model(1))
        refused("--keep plian: ", "--models", os.path.join(self.folder, "models"), "--keep", "plain,plian")


if __name__ == "__main__":
    harness.main()
