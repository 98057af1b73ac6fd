#!/usr/bin/env python3
"""starling-bench transfer between real processes: what is read is what was written; peers that end or stop
while bytes move; wrong flags."""

import os
import signal
import time

import harness

SIZES = ["--buffer_size=33554432", "--block_size=65536", "--batch_size=32"]


class TransferTest(harness.StarlingTest):
    def start_target(self, *flags, env=None):
        target = self.start("starling-bench", "transfer", "--mode=target", "--protocol=tcp",
                            *SIZES, *flags, env=env)
        return target, target.wait_line("serves").split(" ")[0]

    def initiate(self, name, *flags, status=0, env=None):
        return self.run_to_end("starling-bench", "transfer", "--protocol=tcp", f"--segment_id={name}",
                               *SIZES, *flags, status=status, env=env)

    def end(self, target):
        target.signal(signal.SIGINT)
        self.assertEqual(target.wait(), 0, target.output)

    def begin(self, name, *flags):
        """An initiator that moves bytes for long, from when they move."""
        initiator = self.start("starling-bench", "transfer", "--protocol=tcp", f"--segment_id={name}",
                               *SIZES, "--threads=2", "--duration=60", *flags)
        time.sleep(0.5)
        self.assertTrue(initiator.running(), initiator.output)
        return initiator


class Moves(TransferTest):
    def test_what_is_read_is_what_was_written(self):
        target, name = self.start_target()
        for threads in ("1", "3"):
            output = self.initiate(name, "--verify", "--duration=0.3", f"--threads={threads}")
            self.assertRegex(output, r"Verified: [1-9]\d* bytes, 0 wrong")
        self.end(target)

    def test_output_of_mooncake(self):
        target, name = self.start_target()
        for operation in ("read", "write"):
            output = self.initiate(name, f"--operation={operation}", "--duration=0.2", "--threads=2",
                                   "--report_unit=MiB", "--report_precision=1")
            self.assertIn("Worker 0 stopped!", output)
            self.assertIn("Worker 1 stopped!", output)
            self.assertRegex(output, r"Test completed: duration \d+\.\d\d, batch count [1-9]\d*, "
                                     r"throughput \d+\.\d MiB/s")
        self.end(target)

    def test_variables_of_mooncake(self):
        target, name = self.start_target(env={"MC_SLICE_SIZE": "65536", "MC_NO_SUCH": "1"})
        self.assertIn("MC_NO_SUCH is ignored", target.output)
        self.initiate(name, "--duration=0.1", "--threads=1", env={"MC_SLICE_SIZE": "4096"})
        output = self.initiate(name, env={"MC_SLICE_SIZE": "much"}, status=2)
        self.assertIn("MC_SLICE_SIZE=much", output)
        self.end(target)


class Peers(TransferTest):
    def test_a_killed_target_ends_the_initiator(self):
        target, name = self.start_target()
        initiator = self.begin(name, "--timeout=20s")
        target.signal(signal.SIGKILL)
        self.assertEqual(initiator.wait(), 1, initiator.output)
        self.assertIn(name, initiator.output)

    def test_a_stopped_target_ends_the_initiator_by_the_deadline(self):
        target, name = self.start_target()
        initiator = self.begin(name, "--timeout=1s")
        target.signal(signal.SIGSTOP)
        self.assertEqual(initiator.wait(), 1, initiator.output)
        self.assertIn(name, initiator.output)
        target.signal(signal.SIGCONT)
        self.initiate(name, "--duration=0.1", "--threads=1", "--verify")  # it serves others again
        self.end(target)

    def test_a_killed_initiator_leaves_the_target_serving(self):
        target, name = self.start_target()
        initiator = self.begin(name, "--operation=write")
        initiator.signal(signal.SIGKILL)
        initiator.wait()
        self.initiate(name, "--duration=0.1", "--threads=1", "--verify")
        self.end(target)

    def test_nobody_there(self):
        port = harness.free_ports(1)[0]
        output = self.initiate(f"127.0.0.1:{port}", "--duration=0.1", status=1)
        self.assertIn(str(port), output)


class Secrets(TransferTest):
    def secret(self, name, text):
        path = self.file(name, text)
        os.chmod(path, 0o600)
        return f"--secret-file={path}"

    def test_only_who_has_the_secret(self):
        right = self.secret("right", "a secret of the cluster")
        wrong = self.secret("wrong", "another one of the like")
        target, name = self.start_target(right)
        self.initiate(name, right, "--duration=0.1", "--threads=1", "--verify")
        self.assertIn("refused", self.initiate(name, wrong, status=1))
        self.assertIn("secret", self.initiate(name, status=1))
        self.end(target)

    def test_beyond_loopback(self):
        output = self.run_to_end("starling-bench", "transfer", "--mode=target", "--protocol=tcp",
                                 "--local_server_name=0.0.0.0:0", *SIZES, status=1)
        self.assertIn("--secret-file", output)
        self.assertIn("--insecure", output)


class Flags(TransferTest):
    def test_wrong_flags(self):
        for flags, words in ((["--mode=initiator"], ["--segment_id"]),
                             (["--protocol=nvlink", "--segment_id=x"], ["protocol", "tcp"]),
                             (["--segment_id=x", "--report_unit=Gbit"], ["report_unit", "GiB"]),
                             (["--segment_id=x", "--timeout=0s"], ["timeout"]),
                             (["--segment_id=x", "--buffer_size=4096"], ["buffer_size"]),
                             (["--segment_id=x", "--nic_priority_matrix=/none"], ["/none"]),
                             (["--no_such_flag"], ["no-such-flag"])):
            output = self.run_to_end("starling-bench", "transfer", *flags, status=2)
            for word in words:
                self.assertIn(word, output, flags)

    def test_stores_that_are_none(self):
        output = self.run_to_end("starling-bench", "transfer", "--mode=target", *SIZES,
                                 "--metadata_server=redis://127.0.0.1:6379", status=1)
        self.assertIn("redis", output)
        self.assertIn("P2PHANDSHAKE", output)


if __name__ == "__main__":
    harness.main()
