#!/usr/bin/env python3
"""A script under starling-launch, and the variables that connect reads."""

import os
import sys
import unittest
from unittest import mock

import support
from support import harness, starling

SCRIPT = """
import os
os.environ.pop("LD_PRELOAD", None)
import numpy
import starling

with starling.connect() as client:
    table = client.sparse("t", 2, starling.Sum(), consistency=starling.BSP)
    with client.step() as step:
        step.push(table, [client.task], numpy.ones((1, 2), numpy.float32))
        step.advance()
        rows = step.pull(table, range(client.worker_count))
    client.barrier("pulled")
    print("worker", client.task, "of", client.worker_count, "pulled", rows.sum())
"""


class Launch(harness.StarlingTest):
    def test_script(self):
        script = self.file("train.py", SCRIPT)
        preload = [f"{name}={value}" for name, value in support.PRELOAD.items() if value]
        output = self.run_to_end("starling-launch", "--ps", 2, "--workers", 3, "--", "env", *preload, sys.executable,
                                 script)
        for task in range(3):
            self.assertIn(f"worker {task} of 3 pulled 6.0", output)


class Environment(unittest.TestCase):
    def refuses(self, kind, words, **variables):
        with mock.patch.dict(os.environ, variables), self.assertRaises(kind) as raised:
            starling.connect()
        for word in words:
            self.assertIn(word, str(raised.exception))

    def test_no_source_of_the_coordinator(self):
        self.refuses(starling.NotFoundError, ["coordinator", "STARLING_COORDINATOR", "starling-launch"])

    def test_bad_values(self):
        place = {"STARLING_COORDINATOR": "127.0.0.1:1"}
        self.refuses(starling.InvalidError, ["RANK=one", "0 to 16384"], RANK="one", **place)
        self.refuses(starling.InvalidError, ["WORLD_SIZE=0", "1 to 16384"], WORLD_SIZE="0", **place)
        self.refuses(starling.InvalidError, ["SLURM_PROCID=-1"], SLURM_PROCID="-1", **place)


if __name__ == "__main__":
    harness.main()
