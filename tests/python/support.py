"""What the tests of the Python package share. Each class of tests has servers of its own."""

import os
import subprocess
import sys
import time
import unittest

# The sanitizers' run time is for interpreters; the servers have their own.
PRELOAD = {"LD_PRELOAD": os.environ.pop("LD_PRELOAD", "")}
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))

import harness  # noqa: E402

try:
    import numpy  # noqa: E402
except ImportError:
    print("skipped: this interpreter has no numpy (Debian: python3-numpy)")
    sys.exit(harness.SKIPPED)

import starling  # noqa: E402

for name in list(os.environ):
    if name.startswith(harness.OWN_VARIABLES):
        del os.environ[name]


def wait_until(condition, what):
    end = time.monotonic() + harness.DEADLINE_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited in vain: {what}")
        time.sleep(0.01)


def run_script(text):
    """Runs a Python script to its end."""
    return subprocess.run([sys.executable, "-P", "-c", "import os\nos.environ.pop('LD_PRELOAD', None)\n" + text], cwd="/tmp",
                          env={**os.environ, **PRELOAD}, capture_output=True, text=True, check=False,
                          timeout=harness.DEADLINE_S)


class ClusterTest(unittest.TestCase):
    """Tests against servers that begin with the class."""

    servers, workers, shm, args = 2, 1, True, ()

    @classmethod
    def setUpClass(cls):
        os.environ["STARLING_SHM"] = "true" if cls.shm else "false"
        try:
            cls.cluster = starling.local_cluster(cls.servers, workers=cls.workers, args=cls.args,
                                                 timeout=harness.DEADLINE_S)
        finally:
            del os.environ["STARLING_SHM"]
        cls.addClassCleanup(cls.cluster.close)

    def connect(self, **options):
        client = self.cluster.connect(timeout=harness.DEADLINE_S, **options)
        self.addCleanup(client.leave)
        return client

    def setUp(self):
        self.client = self.connect()

    def sparse(self, dim, *args, **options):
        """A table of this test."""
        return self.client.sparse(self.id().rpartition(".")[2], dim, *args, **options)

    def dense(self, length, *args, **options):
        return self.client.dense(self.id().rpartition(".")[2], length, *args, **options)

    def assert_rows(self, rows, expected):
        numpy.testing.assert_array_equal(rows, numpy.asarray(expected, numpy.float32))
