"""Forked processes: a client belongs to the process that connected it."""

import contextlib
import os
import signal
import subprocess
import sys
import time

from support import ClusterTest, PRELOAD, harness
import numpy
import starling

try:
    import torch
except ImportError:
    torch = None


def in_child(run):
    """Runs a function in a forked child, and returns its exit status: 0 if it has returned True."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if run() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Forks(ClusterTest):
    def refused(self, call):
        try:
            call()
        except starling.ForkError as error:
            return "forked from: create another" in str(error)
        return False

    def test_calls_of_a_child(self):
        table = self.sparse(4, starling.Sum())
        table.push([1, 2], numpy.ones((2, 4), numpy.float32))
        step = self.client.step()
        step.push(table, [1], numpy.ones((1, 4), numpy.float32))
        calls = [lambda: table.pull([1]), table.stats, lambda: self.client.sparse("other", 4), self.client.step,
                 lambda: self.client.barrier("b", 1), self.client.checkpoint, lambda: self.client.empty(10),
                 lambda: step.push(table, [1], numpy.ones((1, 4), numpy.float32)), step.submit]
        for number, call in enumerate(calls):
            self.assertEqual(in_child(lambda call=call: self.refused(call)), 0, number)
        with step:
            pass
        self.assert_rows(table.pull([1, 2]), [[2] * 4, [1] * 4])

    def test_end_in_a_child(self):
        values = self.client.empty(100)
        table = self.dense(100, starling.Sum())
        table.pull(values)

        def leave():
            self.client.leave()
            return self.client.closed
        self.assertEqual(in_child(leave), 0)
        self.assert_rows(table.pull(values), numpy.zeros(100))

    def test_client_of_a_child(self):
        table = self.sparse(1, starling.Sum())

        def push():
            with self.connect() as client:
                client.sparse(table.name, 1, starling.Sum()).push([7], numpy.ones((1, 1), numpy.float32))
            return True
        self.assertEqual(in_child(push), 0)
        self.assert_rows(table.pull([7]), [[1]])

    def test_loader_with_processes(self):
        if torch is None:
            self.skipTest("no torch (Debian: python3-torch)")
        table = self.sparse(1, starling.Sum())

        class Data(torch.utils.data.Dataset):
            table = None

            def __len__(self):
                return 64

            def __getitem__(self, item):
                try:
                    self.table.pull([item])
                except starling.ForkError:
                    return item
                return -1

        data = Data()
        data.table = table
        seen = []
        for batch in torch.utils.data.DataLoader(data, batch_size=4, num_workers=4):
            table.push(batch, numpy.ones((4, 1), numpy.float32))
            seen += batch.tolist()
        self.assertEqual(seen, list(range(64)))
        self.assert_rows(table.pull(seen), numpy.ones((64, 1)))


PARENT = """
import os, sys, time
import starling
client = starling.connect(sys.argv[1], task=-1)
client.sparse("of_a_parent", 1).pull([1])
child = os.fork()
if child > 0:
    print(child, flush=True)
time.sleep(1000)
"""


class DeadParents(ClusterTest):
    servers, args = 1, ("--lease", "1000")

    def server_sockets(self):
        with open(f"/proc/{self.cluster.pids[0]}/net/tcp", encoding="ascii") as file:
            established = {line.split()[9] for line in file if line.split()[3] == "01"}
        folder, links = f"/proc/{self.cluster.pids[0]}/fd", []
        for name in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):  # the server has closed it meanwhile
                links.append(os.readlink(os.path.join(folder, name)))
        return sum(link[8:-1] in established for link in links if link.startswith("socket:["))

    def test_connections_close_at_once(self):
        before = self.server_sockets()
        parent = subprocess.Popen([sys.executable, "-c", PARENT, self.cluster.coordinator], stdout=subprocess.PIPE,
                                  env={**os.environ, **PRELOAD, "STARLING_SHM": "false"}, text=True)
        self.addCleanup(parent.stdout.close)
        self.addCleanup(parent.wait)
        self.addCleanup(parent.kill)
        self.addCleanup(os.kill, int(parent.stdout.readline()), signal.SIGKILL)
        self.assertGreater(self.server_sockets(), before)
        parent.kill()
        parent.wait()
        end = time.monotonic() + harness.DEADLINE_S
        while self.server_sockets() > before:
            self.assertLess(time.monotonic(), end, "the connections of a dead process stay")
            time.sleep(0.02)


if __name__ == "__main__":
    harness.main()
