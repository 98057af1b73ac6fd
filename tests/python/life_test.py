#!/usr/bin/env python3
"""Life of clients, steps, arrays and servers: signals, threads, the end of the interpreter, memory."""

import gc
import os
import signal
import socket
import sys
import threading
import unittest.mock
import weakref

import support
from support import harness, numpy, starling, wait_until

ALARM_S = 0.05


class Interrupts(support.ClusterTest):
    """A signal's handler ends a wait that would else last until the deadline."""

    servers = 1

    def setUp(self):
        super().setUp()
        self.table = self.sparse(2, starling.Sum())

        def interrupt(number, frame):
            raise KeyboardInterrupt

        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, interrupt))

    def interrupts(self, function, *args, **options):
        with self.assertRaises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, ALARM_S)
            function(*args, **options)
        signal.setitimer(signal.ITIMER_REAL, 0)

    def suspend_server(self):
        os.kill(self.cluster.pids[0], signal.SIGSTOP)
        os.waitid(os.P_PID, self.cluster.pids[0], os.WSTOPPED)  # all of its threads
        self.addCleanup(self.resume_server)

    def resume_server(self):
        os.kill(self.cluster.pids[0], signal.SIGCONT)

    def test_pull(self):
        self.suspend_server()
        self.interrupts(self.table.pull, [1])
        self.resume_server()
        self.assert_rows(self.table.pull([1]), [[0, 0]])

    def test_array_of_an_interrupted_step(self):
        ones = numpy.ones((1, 2), numpy.float32)
        self.suspend_server()
        out = numpy.zeros((1, 2), numpy.float32)
        dropped = weakref.ref(out)
        step = self.client.step()
        step.push_pull(self.table, [1], ones, out)
        step.submit()
        self.interrupts(step.wait)
        del out, step
        self.assertIsNotNone(dropped(), "the library still writes to the array")
        self.resume_server()
        self.assert_rows(self.table.pull([1]), ones)  # after the interrupted step
        wait_until(lambda: self.table.pull([1]) is not None and dropped() is None, "the array is freed")

    def test_step(self):
        self.suspend_server()
        step = self.client.step()
        rows = step.pull(self.table, [5])
        step.submit()
        self.interrupts(step.wait)
        self.assertFalse(step.done)
        self.resume_server()
        self.assertTrue(step.wait())
        self.assert_rows(rows, [[0, 0]])

    def test_close(self):
        client = self.connect()
        table = client.sparse("close", 2)
        self.suspend_server()
        step = client.step()
        step.pull(table, [5])
        step.submit()
        self.interrupts(client.close)
        self.assertFalse(client.closed)
        self.resume_server()
        client.close()


def anonymous_bytes():
    """Memory of this process that is neither files nor shared."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("RssAnon"))


class Memory(support.ClusterTest):
    servers = 1

    def blocks(self, function, count):
        for _ in range(50):
            function()
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(count):
            function()
        gc.collect()
        return sys.getallocatedblocks() - before

    def test_references_and_blocks(self):
        table = self.sparse(4, starling.Sum())
        keys, grads = numpy.arange(10), numpy.ones((10, 4), numpy.float32)
        out = numpy.empty((10, 4), numpy.float32)

        def use():
            table.push_pull(keys, grads, out)
            table.pull(keys)
            with self.client.step() as step:
                step.push(table, keys, grads)
                step.pull(table, [1, 2])
            try:
                table.push(keys, grads[:5])
            except ValueError:
                pass

        counts = [sys.getrefcount(each) for each in (keys, grads, out, table, self.client, None)]
        grown = self.blocks(use, 1500)
        after = [sys.getrefcount(each) for each in (keys, grads, out, table, self.client, None)]
        self.assertEqual(after[:5], counts[:5])
        self.assertLess(abs(after[5] - counts[5]), 100, "references to None")
        self.assertLess(grown, 100)

    def test_many_steps(self):
        """100,000 steps without growth."""
        sanitized = "STARLING_SANITIZED" in os.environ  # then slow, and freed memory is kept
        count, first = 10_000 if sanitized else 100_000, 5_000
        table = self.sparse(1, starling.Sum())
        keys, one, out = numpy.array([1]), numpy.ones((1, 1), numpy.float32), numpy.empty((1, 1), numpy.float32)

        def use():
            with self.client.step() as step:
                step.push_pull(table, keys, one, out)

        self.blocks(use, first)
        counts, bytes_before = [sys.getrefcount(each) for each in (keys, one, out, table, self.client)], anonymous_bytes()
        self.assertLess(self.blocks(use, count), 100)
        self.assertEqual([sys.getrefcount(each) for each in (keys, one, out, table, self.client)], counts)
        if not sanitized:
            self.assertLess(anonymous_bytes() - bytes_before, 20 * count)
        self.assert_rows(out, [[50 + first + 50 + count]])

    def test_dropped_steps(self):
        table = self.sparse(4)
        out = numpy.empty((1, 4), numpy.float32)
        for submits in (False, True):
            step = self.client.step()
            step.pull(table, [1], out)
            if submits:
                step.submit()
            del step
        wait_until(lambda: table.pull([1]) is not None and sys.getrefcount(out) == 2, "the steps end")

    def test_client_that_is_dropped(self):
        client = self.cluster.connect()
        table = client.sparse("dropped", 2)
        dropped = weakref.ref(client)
        del client
        self.assertIsNotNone(dropped(), "the table has it")
        table.pull([1])
        del table
        gc.collect()
        self.assertIsNone(dropped())


class Threads(support.ClusterTest):
    def test_calls_of_several_threads(self):
        table = self.sparse(1, starling.Sum())
        one = numpy.ones((1, 1), numpy.float32)
        failed = []

        def push():
            try:
                for _ in range(200):
                    table.push([1], one)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=push) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])
        self.assert_rows(table.pull([1]), [[800]])

    def test_servers_of_a_thread_that_has_ended(self):
        found = []
        thread = threading.Thread(target=lambda: found.append(starling.local_cluster()))
        thread.start()
        thread.join()
        with found[0] as cluster, cluster.connect() as client:
            self.assertEqual(client.sparse("t", 2).pull([1]).shape, (1, 2))

    def test_port_that_another_process_takes(self):
        free_ports = starling.cluster._free_ports
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            for chosen in ([port, *free_ports(1)], [*free_ports(1), port]):
                with unittest.mock.patch.object(starling.cluster, "_free_ports", side_effect=[chosen, free_ports(2)]):
                    with starling.local_cluster(2) as cluster, cluster.connect() as client:
                        self.assertEqual(client.shard_count, 2)
            with unittest.mock.patch.object(starling.cluster, "_free_ports", lambda count: [*free_ports(1), port]):
                with self.assertRaisesRegex(starling.StarlingError, "ps/1.*in use"):
                    starling.local_cluster(2)


# What a script does at its end, after it has printed the servers' process ids.
ENDS = {
    "return": "pass",
    "exception": "raise SystemExit(3)",
    "exit": "os._exit(0)",
    "kill": "os.kill(os.getpid(), signal.SIGKILL)",
    "abort": "os.abort()",
}
SCRIPT = """
import os, signal, starling
cluster = starling.local_cluster(2)
client = cluster.connect(task=0)
table = client.sparse("t", 2)
table.pull([1])
print(*cluster.pids, flush=True)
"""


def exists(pid):
    """Whether the process runs; one that nobody has waited for yet has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Ends(support.unittest.TestCase):
    def test_servers_end_with_the_interpreter(self):
        for name, end in ENDS.items():
            with self.subTest(name):
                script = support.run_script(SCRIPT + end)
                pids = [int(pid) for pid in script.stdout.split()]
                self.assertEqual(len(pids), 2, script.stderr)
                wait_until(lambda pids=pids: not any(map(exists, pids)), f"the servers end: {name}")
                self.assertNotIn("Traceback", script.stderr)


class Faults(support.ClusterTest):
    servers = 1

    def test_killed_server(self):
        table = self.sparse(2)
        os.kill(self.cluster.pids[0], signal.SIGKILL)
        with self.assertRaises((starling.DeadlineError, starling.ClosedError)) as raised:
            table.pull([1], timeout=1)
        self.assertIn("ps/0", str(raised.exception))


if __name__ == "__main__":
    harness.main()
