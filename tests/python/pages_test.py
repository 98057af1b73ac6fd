#!/usr/bin/env python3
"""The Python code of README.md and docs/python.md runs as it stands there; docs/python-reference.md is that of the package."""

import importlib.util
import os
import re
import subprocess
import sys
import unittest

import support
from support import harness

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


class Pages(unittest.TestCase):
    def run_blocks(self, page):
        with open(os.path.join(ROOT, page), encoding="utf-8") as file:
            blocks = re.findall(r"```python\n(.*?)```", file.read(), re.S)
        self.assertTrue(blocks)
        done = support.run_script("\n".join(blocks))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_readme(self):
        self.assertEqual(self.run_blocks("README.md"), "mean error 0.000\n")

    def test_python_page(self):
        self.assertEqual(self.run_blocks("docs/python.md"), "mean error 0.000\n")

    @unittest.skipUnless(importlib.util.find_spec("torch"), "needs torch (Debian: python3-torch)")
    def test_reference(self):
        done = subprocess.run([sys.executable, os.path.join(ROOT, "docs", "python_reference.py"), "--check"], capture_output=True,
                              text=True, check=False, timeout=harness.DEADLINE_S, env={**os.environ, **support.PRELOAD})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    harness.main()
