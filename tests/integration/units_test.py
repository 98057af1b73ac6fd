#!/usr/bin/env python3
"""The units of share/systemd, with the shipped configuration, every example of it uncommented, in a network that has the
addresses of the examples. deb_test.py does the same with the packages in a fresh system."""

import os
import shutil
import subprocess
import sys

import harness
import networks
import units_run

HERE = os.path.dirname(os.path.abspath(__file__))
SHARE = os.path.join(HERE, "../../share")


class Units(harness.StarlingTest):
    def test_two_instances_of_everything(self):
        etc, state = os.path.join(self.folder, "etc"), os.path.join(self.folder, "var/lib")
        os.makedirs(etc)
        os.makedirs(os.path.join(state, "starling"))
        for name in ("starling.conf", "scheduler.env"):
            shutil.copy(os.path.join(SHARE, name), etc)
        secret = os.path.join(etc, "secret")
        with open(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as file:
            file.write("a secret of at least 16 bytes\n")
        for address in ("10.0.0.1", "10.0.0.2"):
            networks.run("ip", "address", "add", f"{address}/32", "dev", "lo")
        done = subprocess.run([sys.executable, os.path.join(HERE, "units_run.py"), os.path.join(SHARE, "systemd"), etc,
                               os.path.abspath(harness.BIN), state],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                              timeout=10 * units_run.DEADLINE_S)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("all units ran", done.stdout)


if __name__ == "__main__":
    networks.enter()
    harness.main()
