#!/usr/bin/env python3
"""Orderly ends: SIGTERM and SIGINT to a ps, with and without a job on it, and to a worker."""

import signal
import time

import harness


class Drain(harness.StarlingTest):
    def test_idle_ps(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            servers, _ = self.start_ps()
            servers[0].wait_line("ready")
            servers[0].signal(number)
            self.assertEqual(servers[0].wait(), 0, servers[0].output)

    def test_ps_that_still_waits_for_peers(self):
        first, second = harness.free_ports(2)
        server = self.start("starling-ps", "--ps-hosts", f"127.0.0.1:{first},127.0.0.1:{second}",
                            "--worker-hosts", "a", "--job-name", "ps", "--task-index", "0")
        server.wait_line("ps/1")
        server.signal(signal.SIGTERM)
        self.assertEqual(server.wait(), 0, server.output)

    def endless_job(self, step_timeout_s=60):
        data = self.file("d", "1 1:1 2:1\n0 3:1 4:1\n" * 2000)
        servers, flags = self.start_ps()
        worker = self.start_workers(flags, 1, ["--data", data, "--test", data, "--model", "lr",
                                               "--epochs", "1000000", "--timeout", step_timeout_s])[0]
        worker.wait_line("loss")
        return servers, worker

    def test_ps_under_load(self):
        servers, worker = self.endless_job(step_timeout_s=6)
        servers[0].signal(signal.SIGTERM)
        self.assertEqual(servers[0].wait(), 0, servers[0].output)
        self.assertEqual(worker.wait(), 1, worker.output)
        self.assertIn("ps/0", worker.output)

    def test_worker_under_load(self):
        servers, worker = self.endless_job()
        worker.signal(signal.SIGTERM)
        self.assertEqual(worker.wait(), 128 + signal.SIGTERM, worker.output)
        self.drain(servers)
        self.assertNotIn("vanished", servers[0].output)

    def test_worker_killed_is_noticed(self):
        servers, worker = self.endless_job()
        worker.signal(signal.SIGKILL)
        worker.wait()
        servers[0].wait_line("worker/0")
        time.sleep(0.1)
        self.drain(servers)


if __name__ == "__main__":
    harness.main()
