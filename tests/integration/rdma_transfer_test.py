#!/usr/bin/env python3
"""starling-bench transfer over RDMA between two processes, on a machine that has a soft device: RDMA_DEV,
RDMA_KIND, RDMA_NETDEV and RDMA_IP say which (tests/rdma-vm sets them)."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

import harness
from rdma_job_test import ADDRESS, DEVICE, KIND, NETDEV, add_device, run, until

SIZES = ["--buffer_size=16777216", "--block_size=65536", "--batch_size=32"]
SECOND, SECOND_NETDEV, SECOND_ADDRESS = "rxe1", "dummy1", "10.9.1.1"


def add_second_device():
    if not os.path.exists(f"/sys/class/net/{SECOND_NETDEV}"):
        run("ip", "link", "add", SECOND_NETDEV, "type", "dummy")
        run("ip", "link", "set", SECOND_NETDEV, "mtu", "9000", "up")
        run("ip", "address", "add", f"{SECOND_ADDRESS}/24", "dev", SECOND_NETDEV)
    run("rdma", "link", "add", SECOND, "type", KIND, "netdev", SECOND_NETDEV)


def delete_device(name):
    if os.path.exists(f"/sys/class/infiniband/{name}"):
        run("rdma", "link", "delete", name)


class TransferTest(harness.StarlingTest):
    locked_bytes = None  # as much as each process may lock; root's privilege to lock more is taken away

    def start(self, name, *args, **options):
        if self.locked_bytes is not None:
            args = ["--bounding-set", "-ipc_lock", "prlimit", f"--memlock={self.locked_bytes}",
                    harness.program(name), *args]
            name = "/usr/bin/setpriv"
        return super().start(name, *args, **options)

    def transfer(self, *flags):
        return self.start("starling-bench", "transfer", "--protocol=rdma", "--insecure",
                          f"--local_server_name={ADDRESS}:0", *SIZES, *flags)

    def start_target(self, *flags):
        target = self.transfer("--mode=target", *flags)
        return target, target.wait_line("serves").split(" ")[0]

    def end(self, target):
        target.signal(signal.SIGINT)
        self.assertEqual(target.wait(), 0, target.output)

    def finish(self, initiator, expected):
        self.assertEqual(initiator.wait(), 0, initiator.output)
        self.assertRegex(initiator.output, expected)
        return initiator.output

    def verify(self, name, *flags):
        initiator = self.transfer(f"--segment_id={name}", "--verify", "--duration=2", "--threads=2", *flags)
        return self.finish(initiator, r"Verified: [1-9]\d* bytes, 0 wrong")

    def assert_carried(self, output, address=ADDRESS):
        self.assertRegex(output, rf"rdma://{address}:\d+: [1-9]\d* bytes read, [1-9]\d* written")
        self.assertRegex(output, r"tcp://\S+: 0 bytes read, 0 written")


class Moves(TransferTest):
    def test_what_is_read_is_what_was_written(self):
        target, name = self.start_target()
        self.assert_carried(self.verify(name))
        self.assert_carried(self.verify(name, "--block_size=1000000", "--batch_size=4"))
        self.end(target)

    def client(self, command):
        ended = subprocess.run([*command, ADDRESS], capture_output=True, text=True, check=False)
        self.output = ended.stdout
        return ended.returncode == 0

    def test_beside_perftest(self):
        """Prints the ratios: a soft device is no measure of anything. It works in threads of the kernel, which
        would wait for programs that poll."""
        for thread in run("pgrep", "ksoftirqd").split():
            run("chrt", "--fifo", "--pid", "50", thread)
        for operation in ("read", "write"):
            program = shutil.which(f"ib_{operation}_bw")
            if program is None:
                raise unittest.SkipTest("perftest is not installed")
            target, name = self.start_target()
            output = self.finish(self.transfer(f"--segment_id={name}", f"--operation={operation}", "--threads=1",
                                               "--report_unit=MiB", "--duration=3", "--timeout=60s"),
                                 r"throughput \d")
            self.end(target)
            ours = float(re.search(r"throughput ([\d.]+)", output)[1])
            command = [program, "-d", DEVICE, "-s", "65536", "-D", "3", "-R", "-F"]
            server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.addCleanup(server.wait)
            self.addCleanup(server.kill)
            until(lambda: self.client(command), "the client of perftest has connected")
            theirs = self.output
            rate = float(re.search(r"^\s*65536\s+\d+\s+[\d.]+\s+([\d.]+)", theirs, re.MULTILINE)[1])
            print(f"{operation}: {ours:.1f} MiB/s, ib_{operation}_bw {rate:.1f} MiB/s: {ours / rate:.2f}")


class TwoDevices(TransferTest):
    def setUp(self):
        super().setUp()
        add_second_device()
        self.addCleanup(delete_device, SECOND)

    def test_both_carry_bytes_and_one_goes_and_comes_back(self):
        target, name = self.start_target()
        output = self.verify(name)
        self.assert_carried(output)
        self.assert_carried(output, SECOND_ADDRESS)
        initiator = self.transfer(f"--segment_id={name}", "--verify", "--duration=8", "--threads=2",
                                  "--timeout=30s")
        time.sleep(3)
        delete_device(SECOND)
        self.finish(initiator, r"Verified: [1-9]\d* bytes, 0 wrong")
        self.assert_carried(self.verify(name))
        add_second_device()
        target.wait_line("listening on")
        output = self.verify(name)
        self.assert_carried(output)
        self.assert_carried(output, SECOND_ADDRESS)
        self.end(target)


class LittleMemory(TransferTest):
    def test_frames_and_one_warning(self):
        self.locked_bytes = 8 << 20
        target, name = self.start_target()
        output = self.verify(name)
        for text in (target.output, output):
            self.assertEqual(text.count("ulimit -l"), 1, text)
        self.end(target)


if __name__ == "__main__":
    if not all((DEVICE, KIND, NETDEV, ADDRESS)):
        print("skipped: no RDMA device: set RDMA_DEV, RDMA_KIND, RDMA_NETDEV and RDMA_IP")
        sys.exit(harness.SKIPPED)
    add_device()
    harness.main()
