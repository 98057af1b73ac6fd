#!/usr/bin/env python3
"""The scripts and the notebook of python/examples on small generated data: under starling-launch, under torchrun with
a restart, and their errors."""

import json
import os
import re
import subprocess
import sys
import unittest

import support
from support import harness, numpy, starling

try:
    import torch.distributed.run
except ImportError:
    torch = None

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python", "examples")
DEEPFM, DLRM, TRAINER, ACTOR = (os.path.join(EXAMPLES, name) for name in ("deepfm_adult.py", "dlrm_criteo.py", "rl_trainer.py",
                                                                          "rl_actor.py"))

# Runs the example that its arguments name. Worker 1 ends in its 40th step, in the second epoch, once.
ENDS_ONCE = """
import os, runpy, sys
os.environ.pop("LD_PRELOAD", None)
import starling.torch

step, steps = starling.torch.Optimizer.step, [0]

def counted(self, *arguments):
    steps[0] += 1
    if steps[0] == 40 and os.environ["RANK"] == "1" and not os.path.exists("ended"):
        open("ended", "w").close()
        os._exit(3)
    return step(self, *arguments)

starling.torch.Optimizer.step = counted
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""

# Runs the example once for each of the further arguments, a command line, and prints the errors: to import torch takes seconds.
EACH = """
import os, runpy, sys
os.environ.pop("LD_PRELOAD", None)
script, *lines = sys.argv[1:]
sys.path.insert(0, os.path.dirname(script))
for line in lines:
    sys.argv = [script, *line.split()]
    try:
        runpy.run_path(script, run_name="__main__")
        sys.exit("no error")
    except SystemExit as error:
        print(error)
"""


@unittest.skipIf(torch is None, "needs torch (Debian: python3-torch)")
class Examples(harness.StarlingTest):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(3)
        weights = random.normal(0, 1, (6, 10))
        for name, rows in ("train", 4000), ("test", 1000):
            values = random.integers(0, 10, (rows, 6))
            labels = random.random(rows) < 1 / (1 + numpy.exp(-weights[range(6), values].sum(1)))
            lines = (f"{int(label)} " + " ".join(f"{10 * field + value}:1" for field, value in enumerate(row))
                     for label, row in zip(labels, values))
            self.file(name, "\n".join(lines) + "\n")
        self.rows = ["--train", self.path("train"), "--test", self.path("test"), "--lr", "0.1"]

    def path(self, name):
        return os.path.join(self.folder, name)

    def python(self, script, *arguments, env=None, status=0):
        return self.run_to_end(sys.executable, "-u", script, *arguments, status=status,
                               env={**support.PRELOAD, **(env or {})})

    def launch(self, *command, flags=(), status=0):
        """Runs a script, and its arguments, as two workers."""
        preload = [f"{name}={value}" for name, value in support.PRELOAD.items() if value]
        return self.run_to_end("starling-launch", "--ps", 1, "--workers", 2, *flags, "--", "env", *preload,
                               sys.executable, "-u", *command, status=status)

    def auc(self, output, name="test AUC"):
        found = re.search(rf"{name} (\d\.\d+)", output)
        self.assertTrue(found, output)
        return float(found[1])

    def test_deepfm(self):
        alone = self.auc(self.python(DEEPFM, *self.rows, "--embeddings", "torch"))
        self.assertGreater(alone, 0.8)
        for mode in "asp", "bsp":
            output = self.launch(DEEPFM, *self.rows, "--consistency", mode)
            self.assertAlmostEqual(self.auc(output), alone, delta=0.02, msg=output)

    def test_dlrm(self):
        self.run_to_end("starling-worker", "generate", "--out", self.folder, "--rows", 4000, "--test-rows", 1000)
        output = self.launch(DLRM, "--train", self.path("train.tsv"), "--test", self.path("test.tsv"), "--planted",
                             self.path("planted.json"), "--batch", 64, "--ahead", 1)
        self.assertGreater(self.auc(output), 0.6)
        self.assertGreater(self.auc(output, "AUC of the generating model"), self.auc(output))

    def test_job_that_ended_continues_from_its_checkpoint(self):
        script = self.file("ends_once.py", ENDS_ONCE)
        command = [script, DEEPFM, *self.rows, "--consistency", "bsp", "--checkpoint"]
        flags = ["--checkpoint-dir", self.path("checkpoints"), "--checkpoint-every", 0]
        self.assertIn("epoch 1", self.launch(*command, flags=flags, status=1))
        output = self.launch(*command, flags=[*flags, "--restore", "newest"])
        for task in range(2):
            found = re.search(rf"worker {task} continues with batch (\d+) of 93", output)
            self.assertTrue(found and int(found[1]) >= 31, output)
        self.assertGreater(self.auc(output), 0.8)

    def test_restart_under_torchrun(self):
        script = self.file("ends_once.py", ENDS_ONCE)
        with starling.local_cluster(workers=2) as cluster:
            output = self.run_to_end(sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", 2, "--redirects", 1, "--tee", 1,
                                     "--monitor_interval", 1,
                                     "--max_restarts", 1, "--master_port", harness.free_ports(1)[0], script,
                                     DEEPFM, *self.rows, "--consistency", "bsp",
                                     env={**support.PRELOAD, "STARLING_COORDINATOR": cluster.coordinator})
        self.assertRegex(output, r"worker 1 continues with batch \d+ of 93")
        self.assertGreater(self.auc(output), 0.8)

    def test_notebook(self):
        with open(os.path.join(EXAMPLES, "notebook.ipynb"), encoding="utf-8") as file:
            notebook = json.load(file)
        self.assertEqual((notebook["nbformat"], notebook["nbformat_minor"]), (4, 5))
        cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
        done = support.run_script("\n".join(cells))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("equal rows: True", done.stdout)
        self.assertGreater(self.auc(done.stdout), self.auc(done.stdout, "of the hidden vectors") - 0.05)

    def test_bad_input(self):
        bad = self.file("bad", "1 3:1 17:1\n0 3:0.5 17:1\n")
        uneven = self.file("uneven", "1 3:1 17:1\n0 3:1\n")
        cases = ((bad, r"bad:2: '0 3:0.5 17:1'; accepted: a label 0"),
                 (uneven, "uneven: rows of 2 and of 1 features; accepted: the same"),
                 (self.path("absent"), "absent: No such file"),
                 (self.path("test"), "test: 1000 rows; accepted: at least 2000"))
        output = self.python(self.file("each.py", EACH), DEEPFM, *(
            f"--train {train} --test {self.path('test')} --embeddings torch --batch {2000 if train == self.path('test') else 1}"
            for train, _ in cases))
        errors = [line for line in output.split("\n") if "accepted" in line or "No such" in line]
        self.assertEqual(len(errors), len(cases), output)
        for error, (_, words) in zip(errors, cases):
            self.assertRegex(error, words)


class Reinforcement(harness.StarlingTest):
    """The trainer and its actors, for some updates: longer runs learn."""

    def check(self, output, actors, updates):
        found = re.search(rf"update {updates}: (\d+) episodes, mean reward of the last \d+ (\d+\.\d); policy of an actor (\d+\.\d\d) versions, "
                          r"(\d+\.\d) ms behind; rollouts (\d+\.\d\d) versions old", output)
        self.assertTrue(found, output)
        episodes, reward, *_ = map(float, found.groups())
        self.assertGreater(episodes, 20)
        self.assertTrue(1 <= reward <= 500, output)
        found = re.search(rf"{updates + 2} versions of \d+\.\d KB; {actors} actors used (\d+) and skipped (\d+)", output)
        self.assertTrue(found, output)
        used, skipped = map(int, found.groups())
        self.assertGreaterEqual(used, 2 * actors, output)  # the first one and the last one, at least
        self.assertLessEqual(used + skipped, actors * (updates + 2), output)

    def test_under_the_launcher(self):
        for flags, line in (["--agents"], "copied to the pool of this host"), ([], "fetched by actors"):
            output = self.run_to_end("starling-launch", "--ps", 1, "--workers", 4, "--objects", *flags, "--", sys.executable, "-u",
                                     TRAINER, "--updates", 6, "--seconds", harness.DEADLINE_S)
            self.check(output, 3, 6)
            self.assertIn(line, output)

    def test_by_hand(self):
        trainer = subprocess.Popen([sys.executable, "-u", TRAINER, "--actors", "2", "--updates", "4", "--seconds", str(harness.DEADLINE_S)],
                                   stdout=subprocess.PIPE, text=True, cwd=self.folder)
        self.addCleanup(trainer.stdout.close)
        self.addCleanup(trainer.wait)
        self.addCleanup(trainer.kill)
        catalogue = re.search(r"--catalogue (\S+) ", trainer.stdout.readline())[1]
        for task in 1, 2:
            actor = subprocess.Popen([sys.executable, ACTOR, "--catalogue", catalogue, "--task", str(task)], cwd=self.folder)
            self.addCleanup(actor.wait)
            self.addCleanup(actor.kill)
        self.check(trainer.stdout.read(), 2, 4)
        self.assertEqual(trainer.wait(), 0)

    def test_no_actors(self):
        done = subprocess.run([sys.executable, TRAINER, "--actors", "0"], capture_output=True, text=True, check=False,
                              timeout=harness.DEADLINE_S)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--actors 0; accepted: 1 or more", done.stderr)


if __name__ == "__main__":
    harness.main()
