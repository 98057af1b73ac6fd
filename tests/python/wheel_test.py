#!/usr/bin/env python3
"""A wheel of the build folder, installed by pip without a network, in place of the build folder."""

import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

from support import harness

BUILD = os.path.dirname(harness.BIN)
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
MAKE_WHEEL = os.path.join(ROOT, "python", "wheel.py")
MAKE_MOONCAKE = os.path.join(ROOT, "compat", "mooncake", "python", "wheel.py")
SCRIPT = """
import numpy, starling
from starling import objects
with objects.serve() as node:
    node.publish("w", {"a": numpy.ones(2)})
    assert node.fetch("w").tensors["a"].sum() == 2
with starling.local_cluster() as cluster, cluster.connect() as client:
    rows = client.sparse("t", 2, starling.Sum()).push_pull([1], numpy.ones((1, 2), numpy.float32))
maps = open("/proc/self/maps").read()
from mooncake.engine import TransferEngine
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0 and engine.get_rpc_port() > 0
print(rows.sum(), sorted({line.split()[-1] for line in maps.splitlines() if "starling" in line}))
"""


@unittest.skipUnless(importlib.util.find_spec("pip"), "needs pip (Debian: python3-pip)")
class Wheel(unittest.TestCase):
    def run_here(self, *command, **options):
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.folder,
                              timeout=harness.DEADLINE_S, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_install_and_use(self):
        folder = tempfile.TemporaryDirectory(prefix="starling-test-")
        self.addCleanup(folder.cleanup)
        self.folder = os.path.realpath(folder.name)
        wheels = [self.run_here(sys.executable, os.path.realpath(make), BUILD, self.folder).strip() for make in (MAKE_WHEEL, MAKE_MOONCAKE)]
        site = os.path.join(self.folder, "site")
        self.run_here(sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", site, *wheels)
        environment = {**os.environ, "PYTHONPATH": site}
        total, _, files = self.run_here(sys.executable, "-c", SCRIPT, env=environment).partition(" ")
        self.assertEqual(total, "2.0")
        self.assertEqual(files.strip(), str([os.path.join(site, "starling", name)
                                             for name in ("_native.abi3.so", "libstarling.so.0", "libstarling_objects.so.0")]))
        for program in ("starling-ps", "starling-launch", "starling-ckpt", "starling-objects"):
            self.assertIn(program, self.run_here(os.path.join(site, "bin", program), "--version", env=environment))


if __name__ == "__main__":
    harness.main()
