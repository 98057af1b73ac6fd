#!/usr/bin/env python3
"""The Python code of README.md, docs/python.md and docs/weights.md runs as it stands there; docs/python-reference.md is that of the
package."""

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
    def blocks(self, page):
        with open(os.path.join(ROOT, page), encoding="utf-8") as file:
            blocks = re.findall(r"```python\n(.*?)```", file.read(), re.S)
        self.assertTrue(blocks)
        return blocks

    def run_blocks(self, page):
        blocks = self.blocks(page)
        done = support.run_script("\n".join(blocks))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_readme(self):
        self.assertEqual(self.run_blocks("README.md"), "mean error 0.000\n")

    def test_python_page(self):
        self.assertEqual(self.run_blocks("docs/python.md"), "mean error 0.000\n")

    def test_weights_page(self):
        first, trainer, actor = self.blocks("docs/weights.md")
        done = support.run_script(first)
        self.assertEqual((done.stdout, done.stderr), ("1 step 1 12.0\n", ""))
        address = f"127.0.0.1:{harness.free_ports(1)[0]}"
        running = [subprocess.Popen([sys.executable, "-P", "-c", text, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                    cwd="/tmp") for text in (trainer, actor, actor)]
        for each in running:
            self.addCleanup(each.stdout.close)
            self.addCleanup(each.stdin.close)
            self.addCleanup(each.wait)
            self.addCleanup(each.kill)
        for each in running[1:]:
            lines = [line.split() for line in each.stdout]
            self.assertEqual(lines[-1][:3], ["100", "step", "100"])
            self.assertAlmostEqual(float(lines[-1][3]), 1, places=4)
            self.assertEqual(sum(int(line[4]) for line in lines) + len(lines), 101 - int(lines[0][0]))
        running[0].stdin.write("\n")
        for each in running:
            each.stdin.close()
            self.assertEqual(each.wait(timeout=harness.DEADLINE_S), 0)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "needs torch (Debian: python3-torch)")
    def test_reference(self):
        done = subprocess.run([sys.executable, os.path.join(ROOT, "docs", "python_reference.py"), "--check"], capture_output=True,
                              text=True, check=False, timeout=harness.DEADLINE_S, env={**os.environ, **support.PRELOAD})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    harness.main()
