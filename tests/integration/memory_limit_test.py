#!/usr/bin/env python3
"""--memory-limit: the resident memory of a ps stays below it under the worst load.

A seed decides what the load does (STARLING_SEED repeats one)."""

import os
import random
import re
import sys
import threading
import time
import unittest

import harness
import memory_load

SEED = int(os.environ.get("STARLING_SEED", random.SystemRandom().getrandbits(32)))
PART = 1.1  # of the limit that the resident memory may take
NO_RESIDENT = "resident memory says nothing about a program with a sanitizer"


class MemoryLimit(harness.StarlingTest):
    def flags(self, ports, replicas, limit):
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        return ["--ps-hosts", hosts, "--worker-hosts", "a", "--job-name", "ps", "--replicas", replicas,
                "--memory-limit", limit]

    def least(self, reactors, replicas):
        """The least limit, as the refusal of a smaller one names it, in MiB."""
        ports = harness.free_ports(1 + replicas)
        output = self.run_to_end("starling-ps", *self.flags(ports, replicas, "31M"), "--task-index", 0,
                                 env=self.env(reactors), status=2)
        found = re.search(r"--memory-limit 31M is too small for (\d+) reactors?( with replicas)?: "
                          r"accepts 0, for none, or at least (\d+)M\n?$", output)
        self.assertIsNotNone(found, output)
        self.assertEqual(int(found[1]), reactors)
        self.assertEqual(bool(found[2]), replicas > 0)
        return int(found[3])

    def env(self, reactors):
        # Memory that workers share with a ps is not the ps's own.
        return {"NETWORK_PS_CORE_NUMBER": str(reactors), "STARLING_SHM": "0"}

    def load(self, reactors, replicas, limit_mib, seconds, threads):
        """Runs the load; returns what the ps had resident at most in MiB, and the processes."""
        ports = harness.free_ports(1 + replicas)
        servers = [self.start("starling-ps", *self.flags(ports, replicas, f"{limit_mib}M"),
                              "--task-index", i, env=self.env(reactors)) for i in range(1 + replicas)]
        harness.wait_lines(servers, "ready")
        with memory_load.Watch(servers) as watch:
            load = memory_load.Load(f"127.0.0.1:{ports[0]}", SEED)
            held = load.on_all(load.fill)
            runs = [threading.Thread(target=load.on_all, args=(load.worst, seconds, number))
                    for number in range(threads)]
            for run in runs:
                run.start()
            for run in runs:
                run.join()
        for connection in held:
            connection.close()
        load.close()
        for server in servers:
            self.assertTrue(server.running(), server.output)
        for code, text in load.refusals:
            self.assertEqual(code, memory_load.NO_MEMORY, text)
        texts = "\n".join(text for _, text in load.refusals)
        self.assertRegex(texts, r"no memory for more arrays: the tables have \d+ bytes, the limit is \d+")
        self.assertRegex(texts, r"push buffer \(\d+ bytes\) is full")
        return max(watch.most) >> 20, servers

    def test_too_small(self):
        self.assertLess(self.least(1, 0), self.least(2, 0))
        self.assertLess(2 * self.least(2, 0), self.least(4, 1))

    @unittest.skipIf(os.environ.get("STARLING_SANITIZED"), NO_RESIDENT)
    def test_two_reactors_with_a_replica(self):
        limit = self.least(2, 1) + 200
        most, servers = self.load(2, 1, limit, 5, 2)
        self.assertLess(most, PART * limit)
        # What the load has left behind goes back, but for the tables.
        end = time.monotonic() + harness.DEADLINE_S
        while max(memory_load.resident(server) for server in servers) >> 20 > most - 8:
            self.assertLess(time.monotonic(), end, "no memory went back to the system")
            time.sleep(0.2)


if __name__ == "__main__":
    print(f"seed {SEED}: STARLING_SEED={SEED} repeats it", file=sys.stderr)
    harness.main()
