#!/usr/bin/env python3
"""A script under starling-launch."""

import sys

import support
from support import harness

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


if __name__ == "__main__":
    harness.main()
