#!/usr/bin/env python3
"""The files for Prometheus: promtool checks and tests the rules."""

import os
import shutil
import subprocess
import unittest

import harness

SHARE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../share")


def need(name):
    path = shutil.which(name)
    if path is None:
        raise unittest.SkipTest(f"{name} is not installed: apt-get install prometheus")
    return path


class Rules(harness.StarlingTest):
    def promtool(self, *args):
        done = subprocess.run([need("promtool"), *args], cwd=os.path.join(SHARE, "prometheus"), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_files(self):
        self.promtool("check", "config", "scrape.yml")  # and the rules that it names

    def test_alerts(self):
        self.promtool("test", "rules", "alerts_test.yml")


if __name__ == "__main__":
    harness.main()
