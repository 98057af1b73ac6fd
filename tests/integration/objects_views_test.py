#!/usr/bin/env python3
"""Views of real processes: readers check every byte of every version while a publisher runs at full rate,
the agent's pool is too small, and processes are killed and restarted."""

import os
import random
import signal
import time

import harness

BYTES = 2_300_000  # of a version, in a pool of three of them


class Views(harness.StarlingTest):
    def start_agent(self):
        agent = self.start("starling-objects", "serve", "--agent", "--agent-name", self.agent, "--catalogue",
                           self.catalogue, "--pool-memory", "8M")
        agent.wait_line("serves readers of this host")
        return agent

    def start_catalogue(self):
        server = self.start("starling-objects", "serve", "--name", self.catalogue)
        server.wait_line("serves the catalogue")
        return server

    def setUp(self):
        super().setUp()
        self.catalogue = f"127.0.0.1:{harness.free_ports(1)[0]}"
        self.agent = f"views-test-{os.getpid()}"
        self.starts = {
            "catalogue": self.start_catalogue,
            "agent": self.start_agent,
            "publisher": lambda: self.start("view_stress", "publish", self.catalogue, BYTES),
            "first": lambda: self.start("view_stress", "read", self.agent, "follow"),
            "second": lambda: self.start("view_stress", "read", self.agent, "open"),
            "third": lambda: self.start("view_stress", "read", self.agent, "follow")}
        self.processes = {name: start() for name, start in self.starts.items()}

    def expect_newer(self, above):
        """Each reader reads a version above the number. Returns the newest of all."""
        found = []
        for name in ("first", "second", "third"):
            version, line = 0, 0
            while version <= above:
                match, line = self.processes[name].wait_match(r"read (\d+)", line)
                version = int(match.group(1))
            found.append(version)
        return max(found)

    def replace(self, name):
        self.assertTrue(self.processes[name].running(), self.processes[name].output)
        self.processes[name].signal(signal.SIGKILL)
        self.processes[name].wait()
        self.processes[name] = self.starts[name]()

    def test_killed_processes(self):
        chance = random.Random(20)
        names = ["agent", "publisher", "first", "second", "third"]
        newest = self.expect_newer(0)
        for _ in range(10):
            self.replace(chance.choice(names))
            time.sleep(1)
        newest = self.expect_newer(newest)
        self.expect_newer(newest + 10)
        for name, process in self.processes.items():
            self.assertTrue(process.running(), f"{name}: {process.output}")

    def test_killed_catalogue(self):
        newest = self.expect_newer(0)
        self.replace("catalogue")
        self.expect_newer(newest + 10)

    def test_stopped_agent(self):
        newest = self.expect_newer(0)
        for _ in range(2):
            self.processes["agent"].signal(signal.SIGSTOP)
            time.sleep(3)  # longer than the readers wait
            self.processes["agent"].signal(signal.SIGCONT)
            newest = self.expect_newer(newest + 10)


if __name__ == "__main__":
    harness.main()
