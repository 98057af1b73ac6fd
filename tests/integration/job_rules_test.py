#!/usr/bin/env python3
"""What a job must not lose by a forgotten flag, a closed terminal or a process of another job; with real processes."""

import os
import signal

import harness


class JobTest(harness.StarlingTest):
    def setUp(self):
        super().setUp()
        self.checkpoints = os.path.join(self.folder, "checkpoints")
        self.data = self.file("data", "1 1:1 2:1\n0 3:1 4:1\n" * 2000)

    def flags(self, *more):
        every = [] if "--checkpoint-every" in more else ["--checkpoint-every", "0"]
        return ["--checkpoint-dir", self.checkpoints, *every, *more]

    def model(self, *more):
        return ["--data", self.data, "--format", "libsvm", "--model", "lr", *more]

    def numbers(self):
        """Checkpoints with a manifest."""
        names = harness.visible(self.checkpoints) if os.path.exists(self.checkpoints) else []
        return [int(name.split("-")[1]) for name in names if name.startswith("checkpoint-") and
                os.path.exists(os.path.join(self.checkpoints, name, "manifest.json"))]

    def ready(self, *more, count=1):
        servers, flags = self.start_ps(count, extra=self.flags(*more))
        for server in servers:
            server.wait_line("ready")
        return servers, flags


class Hangup(JobTest):
    """A closed terminal sends SIGHUP."""

    def test_counts_as_sigterm(self):
        [server], flags = self.ready("--checkpoint-every", 1)
        catalogue = self.start("starling-objects", "serve")
        catalogue.wait_line("serves the catalogue")
        [worker] = self.start_workers(flags, 1, self.model("--epochs", 100000))
        server.wait_line("checkpoint 1 is complete")
        for process, status in ((worker, 128 + signal.SIGTERM), (server, 0), (catalogue, 0)):
            process.signal(signal.SIGHUP)
            self.assertEqual(process.wait(), status, process.output)
        self.assertGreater(self.numbers()[-1], 1, server.output)  # the last checkpoint
        self.assertIn("SIGTERM", server.output)

    def test_nohup_ignores_it(self):
        [server], _ = self.ready()
        port = harness.free_ports(1)[0]
        other = self.start("starling-ps", "--ps-hosts", f"127.0.0.1:{port}", "--task-index", 0,
                           before=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        other.wait_line("ready")
        for process in (other, server):
            process.signal(signal.SIGHUP)
        self.assertEqual(server.wait(), 0, server.output)  # so the other one has had its signal long since
        self.assertTrue(other.running(), other.output)
        self.drain([other])


if __name__ == "__main__":
    harness.main()
