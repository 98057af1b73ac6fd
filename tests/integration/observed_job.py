"""A job that runs until the test ends, for the tests of what operators see: 2 servers with 2 shards each and
backups, 8 workers. Its page and its JSON are at `url`."""

import contextlib
import json
import re
import signal
import tempfile
import time
import urllib.error
import urllib.request

import harness

LEASE_S = 15
WORKERS = 8
TITLE = "clicks of May"


class ObservedTest(harness.StarlingTest):
    def start_job(self):
        # In memory: a killed server keeps its connections while one of its threads waits for a disk.
        checkpoints = tempfile.TemporaryDirectory(prefix="starling-test-", dir="/dev/shm")
        self.addCleanup(checkpoints.cleanup)
        self.servers, flags = self.start_ps(2, WORKERS, extra=[
            "--reactors", 2, "--replicas", 1, "--lease", LEASE_S, "--checkpoint-dir", checkpoints.name,
            "--checkpoint-every", "5s", "--slow-request", "1ms", "--title", TITLE])
        # Feature 1 is hot.
        data = self.file("data", "".join(f"{i % 2} 1:1 {2 + i % 20}:1\n" for i in range(4000)))
        self.workers = self.start_workers(flags, WORKERS, [
            "--data", data, "--batch-size", 4, "--epochs", 1000000, "--consistency", "ssp:2", "--quiet"])
        self.url = "http://" + re.search(r"http (\S+)$", self.servers[0].wait_line("ready")).group(1)
        self.wait_for(self.is_running)

    def is_running(self):
        """Whether all workers have joined, and the servers have rates."""
        with contextlib.suppress(urllib.error.HTTPError):  # 503: the coordinator has just started
            with urllib.request.urlopen(self.url + "/api/cluster", timeout=harness.DEADLINE_S) as reply:
                job = json.load(reply)
            return job["job"] == "running" and job["totals"]["keys_s"] and len(job["workers"]) == WORKERS
        return False

    def wait_for(self, condition, seconds=harness.DEADLINE_S):
        """Until it is true; returns its value."""
        end = time.monotonic() + seconds
        while not (value := condition()):
            self.assertLess(time.monotonic(), end, "waited too long\n" + self.servers[0].output)
            time.sleep(0.1)
        return value

    def stop_worker(self, index):
        self.workers[index].signal(signal.SIGSTOP)

    def continue_worker(self, index):
        self.workers[index].signal(signal.SIGCONT)

    def kill_server(self, index):
        self.servers[index].signal(signal.SIGKILL)
        self.servers[index].wait()
