#!/usr/bin/env python3
"""Ctrl-C in all calls that wait: a signal's handler ends them, and the client stays usable."""

import gc
import os
import signal
import socket
import tempfile
import time

import support
from support import harness, numpy, starling

ALARM_S = 0.05


class Interrupted(support.ClusterTest):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.args = ("--checkpoint-dir", folder.name)
        super().setUpClass()

    def setUp(self):
        super().setUp()
        self.table = self.sparse(2, starling.Sum())

        def interrupt(number, frame):
            raise KeyboardInterrupt

        self.handle(interrupt)

    def handle(self, handler):
        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, handler))

    def suspend(self, server):
        os.kill(self.cluster.pids[server], signal.SIGSTOP)
        os.waitid(os.P_PID, self.cluster.pids[server], os.WSTOPPED)  # all of its threads
        self.addCleanup(self.resume, server)

    def resume(self, server):
        os.kill(self.cluster.pids[server], signal.SIGCONT)

    def wait_until(self, condition, what):
        end = time.monotonic() + harness.DEADLINE_S
        while not condition():
            self.assertLess(time.monotonic(), end, f"waited in vain: {what}")
            time.sleep(0.01)

    def interrupts(self, function, *args, **options):
        begin = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, ALARM_S)
            function(*args, **options)
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.assertLess(time.monotonic() - begin, harness.DEADLINE_S / 4, "the call ended at its timeout")


class Waits(Interrupted):
    """Each call while a server is silent; after that the same call succeeds."""

    def check(self, server, call):
        self.suspend(server)
        self.interrupts(call)
        self.resume(server)
        return call()

    def test_barrier(self):
        self.interrupts(self.client.barrier, "two", 2)
        self.client.barrier("two", 1)  # nobody waits there any more

    def test_checkpoint(self):
        self.assertGreater(self.check(1, self.client.checkpoint), 0)

    def test_table(self):
        for server in (0, 1):
            table = self.check(server, lambda server=server: self.client.dense(f"table{server}", 8))
            self.assertEqual(table.pull().shape, (8,))

    def test_stats(self):
        self.assertEqual(self.check(1, self.table.stats).rows, 0)

    def test_connect(self):
        for server in (0, 1):
            client = self.check(server, self.connect)
            self.assertEqual(client.shard_count, 2)

    def test_connect_to_silence(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            silent = f"127.0.0.1:{listener.getsockname()[1]}"
            for address in (silent, "127.0.0.1:1"):
                self.interrupts(starling.connect, address, task=-1, timeout=harness.DEADLINE_S)

    def test_steps(self):
        self.suspend(1)
        keys = numpy.arange(100)
        step = self.client.step()
        step.push(self.table, keys, numpy.ones((100, 2), numpy.float32))
        step.submit()
        self.interrupts(step.wait)
        self.interrupts(step.wait, harness.DEADLINE_S)
        self.assertFalse(step.wait(0.01))
        self.interrupts(self.table.pull, keys)
        self.resume(1)
        self.assertTrue(step.wait())
        self.assert_rows(self.table.pull(keys), numpy.ones((100, 2)))

    def test_handler_that_returns(self):
        """The call goes on, and the handler may use the client."""
        seen = []

        def resume(number, frame):
            self.resume(1)
            seen.append(self.table.pull([1]))

        self.handle(resume)
        self.suspend(1)
        signal.setitimer(signal.ITIMER_REAL, ALARM_S)
        self.assert_rows(self.table.pull(numpy.arange(100)), numpy.zeros((100, 2)))
        self.wait_until(lambda: seen, "the handler runs")
        self.assert_rows(seen[0], [[0, 0]])


class Moments(Interrupted):
    """Any moment of any call, while the servers answer."""

    def calls(self):
        keys, ones = numpy.arange(500), numpy.ones((500, 2), numpy.float32)

        def step():
            with self.client.step() as step:
                step.push_pull(self.table, keys, ones, numpy.zeros((500, 2), numpy.float32))

        return [lambda: self.cluster.connect(timeout=harness.DEADLINE_S).leave(), self.client.checkpoint,
                lambda: self.client.barrier("one", 1), lambda: self.client.sparse("moments", 2), self.table.stats,
                lambda: self.table.push_pull(keys, ones, numpy.zeros((500, 2), numpy.float32)),
                lambda: self.table.pull(keys), step]

    def test_many_moments(self):
        random, calls, arrived, raised = numpy.random.default_rng(7), self.calls(), 0, []

        def interrupt(number, frame):
            raised.append(number)
            raise KeyboardInterrupt

        self.handle(interrupt)
        threads = len(os.listdir("/proc/self/task"))
        sevens = []
        for moment in range(100):
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 2e-2))
                while len(raised) <= moment:
                    calls[random.integers(len(calls))]()
            except KeyboardInterrupt:
                arrived += 1
            # In the place of arrays that were freed: none is written.
            sevens.append(numpy.full((500, 2), 7, numpy.float32))
        rows = self.table.pull(numpy.arange(500))  # after all steps
        self.assert_rows(rows, numpy.broadcast_to(rows[0], rows.shape))
        self.assert_rows(numpy.concatenate(sevens), numpy.full((50000, 2), 7))
        self.assertGreater(arrived, 50)  # an exception in a destructor is only printed
        gc.collect()
        self.wait_until(lambda: len(os.listdir("/proc/self/task")) <= threads, "clients end")


if __name__ == "__main__":
    harness.main()
