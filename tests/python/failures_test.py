#!/usr/bin/env python3
"""kill -9 of workers, of servers, and of a whole job: what a script sees, and the values afterwards."""

from concurrent import futures
import ctypes
import gc
import os
import re
import signal
import sys
import threading

import support
from support import harness, numpy, starling

ITERATIONS, STOP = 10, 6
SCAN_BYTES = 4 << 20  # what a scan of rows of 60 values holds for replies


class Allocated(ctypes.Structure):
    """struct mallinfo2 of the C library."""

    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks",
                                                     "uordblks", "fordblks", "keepcost")]


def allocated_bytes():
    ask = ctypes.CDLL(None).mallinfo2
    ask.restype = Allocated
    found = ask()
    return found.hblkhd + found.uordblks

# A worker of a BSP job, which obeys the lines of its standard input. Its gradients depend on the rows that it pulls and
# on the iteration, its rates on the iteration.
WORKER = """
import hashlib, os, sys
os.environ.pop("LD_PRELOAD", None)
import numpy, starling

client = starling.connect(sys.argv[1], task=int(sys.argv[2]), workers=2)
table = client.sparse("t", 3, starling.Adagrad(lr=0.1), starling.Normal(std=1.0, seed=1), starling.BSP)
print("begins with", client.clock)

def push(advances):
    random = numpy.random.default_rng([client.task, client.clock])
    keys = numpy.unique(random.integers(0, 20, 10))
    rows = table.pull(keys)
    with client.step() as step:
        step.set_rate(1 / (2 + client.clock))
        step.push(table, keys, rows + random.standard_normal(rows.shape, numpy.float32))
        if advances:
            step.advance()

for line in sys.stdin:
    command, *argument = line.split()
    if command == "push":
        push(advances=False)
    elif command == "advance":
        while client.clock < int(argument[0]):
            push(advances=True)
    elif command == "skip":
        with client.step() as step:
            step.advance()
    elif command == "checkpoint":
        client.checkpoint()
    elif command == "end":
        client.barrier("end")
        print("values", hashlib.sha256(table.pull(range(20)).tobytes()).hexdigest())
        client.barrier("pulled")
        client.close()
        break
    print("done", command)
"""


class Servers(harness.StarlingTest):
    def start_servers(self, count, *flags):
        self.servers, self.flags = self.start_ps(count, 2, extra=flags)
        for server in self.servers:
            server.wait_line("ready")
        self.coordinator = self.flags[1].split(",")[0]

    def kill(self, *processes):
        for process in processes:
            process.signal(signal.SIGKILL)
        for process in processes:
            self.assertEqual(process.wait(), -signal.SIGKILL, process.output)


class Jobs(Servers):
    """Jobs of two workers, whose values equal those of a job that nothing disturbed."""

    def start_worker(self, task, clock=0):
        worker = self.start(sys.executable, "-u", self.file("worker.py", WORKER), self.coordinator, task, env=support.PRELOAD,
                            commands=True)
        worker.wait_line(f"begins with {clock}")
        worker.seen = 0
        return worker

    def command(self, worker, line):
        worker.write(line + "\n")
        _, worker.seen = worker.wait_match(f"done {line.split()[0]}$", worker.seen)

    def start_job(self, stop):
        """Both workers, at the begin of iteration `stop`."""
        self.workers = [self.start_worker(task) for task in range(2)]
        for worker in self.workers:
            worker.write(f"advance {stop}\n")
        for worker in self.workers:
            _, worker.seen = worker.wait_match("done advance$", worker.seen)

    def end_job(self):
        """Returns the values at the end."""
        for worker in self.workers:
            worker.write(f"advance {ITERATIONS}\nend\n")
        values = {worker.wait_line("values") for worker in self.workers}
        for worker in self.workers:
            self.assertEqual(worker.wait(), 0, worker.output)
        self.assertEqual(len(values), 1, values)
        return values.pop()

    def undisturbed(self, *commands):
        """The values of a job whose worker 1 also obeys these commands in iteration STOP."""
        self.start_servers(2)
        self.start_job(STOP)
        for command in commands:
            self.command(self.workers[1], command)
        values = self.end_job()
        self.drain(self.servers)
        return values

    def test_worker(self):
        """Another process takes its task, and repeats the iteration that it had not ended."""
        expected = self.undisturbed()
        self.start_servers(2, "--lease", 60)  # the place is kept until that process has started
        self.start_job(STOP)
        self.command(self.workers[1], "push")
        self.kill(self.workers[1])
        self.servers[0].wait_line("worker/1 is disconnected")
        self.workers[1] = self.start_worker(1, STOP)
        self.assertEqual(self.end_job(), expected)

    def test_server_with_a_backup(self):
        """Its backup has the pushes that wait for the end of their iteration, with their rates."""
        expected = self.undisturbed()
        self.start_servers(2, "--replicas", 1, "--lease", 6)
        for owner in range(2):
            self.servers[0].wait_line(f"ps/{1 - owner} has the backups of the shards of ps/{owner}: they are in sync")
        self.start_job(STOP)
        self.command(self.workers[0], f"advance {STOP + 1}")
        self.kill(self.servers[1])
        self.assertEqual(self.end_job(), expected)
        self.servers[0].wait_line("ps/0 serves the shards of ps/1 from now on")

    def kill_job(self, *commands):
        """Kills all processes of a job after a checkpoint in iteration STOP, and the commands of worker 0 before it."""
        checkpoints = ["--checkpoint-dir", os.path.join(self.folder, "checkpoints"), "--checkpoint-every", 0]
        self.start_servers(2, *checkpoints)
        self.start_job(STOP)
        for command in (*commands, "checkpoint"):
            self.command(self.workers[0], command)
        self.command(self.workers[1], f"advance {STOP + 1}")
        self.kill(*self.workers, *self.servers)
        self.start_servers(2, *checkpoints, "--restore", "newest")

    def test_whole_job(self):
        """The restored job has the values and the clocks of the checkpoint."""
        expected = self.undisturbed()
        self.kill_job()
        self.workers = [self.start_worker(task, STOP) for task in range(2)]
        self.assertEqual(self.end_job(), expected)

    def test_whole_job_within_an_iteration(self):
        """The restored job has the pushes that wait for the end of their iteration, with their rates. The worker that had
        not ended the iteration misses it, as one that is replaced (docs/training.md)."""
        expected = self.undisturbed("skip")
        self.kill_job(f"advance {STOP + 1}")
        self.workers = [self.start_worker(task, STOP + 1) for task in range(2)]
        self.assertEqual(self.end_job(), expected)


class ServerDuringAStep(harness.StarlingTest):
    """kill -9 of a server without a backup that has not answered a step."""

    def setUp(self):
        super().setUp()
        (self.server,), self.flags = self.start_ps()
        self.server.wait_line("ready")
        self.client = starling.connect(self.flags[1], task=-1, timeout=harness.DEADLINE_S, accept_loss=True)
        self.addCleanup(self.client.leave)
        self.table = self.client.sparse("t", 2, starling.Sum(), starling.Constant(0.5))

    def kill(self):
        self.server.signal(signal.SIGKILL)
        self.server.wait()

    def begin(self, *operations, timeout=None):
        """Submits a step that the server does not answer any more."""
        self.server.signal(signal.SIGSTOP)
        step = self.client.step()
        results = [getattr(step, name)(self.table, [7], *arguments) for name, *arguments in operations]
        step.submit(timeout)
        self.kill()
        return step, results

    def restart(self):
        host, port = self.flags[1].split(":")
        harness.wait_unheard(host, int(port))
        self.server = self.start("starling-ps", *self.flags, "--job-name", "ps", "--task-index", 0)

    def test_pull_continues_when_it_is_back(self):
        step, (rows,) = self.begin(("pull",))
        self.assertFalse(step.wait(0.01))
        self.restart()
        self.assertTrue(step.wait())
        numpy.testing.assert_array_equal(rows, [[0.5, 0.5]])

    def test_push_is_applied_once_or_names_the_server(self):
        ones = numpy.ones((1, 2), numpy.float32)
        step, _ = self.begin(("push", ones))
        self.restart()
        try:
            step.wait()
            applied = 1
        except starling.ClosedError as error:
            self.assertIn("ps/0", str(error))
            applied = 0
        numpy.testing.assert_array_equal(self.table.pull([7]), 0.5 + applied * ones)

    def test_scan_ends(self):
        keys = numpy.arange(100_000)
        self.table.push(keys, numpy.ones((keys.size, 2), numpy.float32))
        batches = self.table.scan()
        first = next(batches)
        self.kill()
        self.restart()
        with self.assertRaisesRegex(starling.ClosedError, "ps/0.*another copy of the shard"):
            list(batches)
        numpy.testing.assert_array_equal(first.rows, numpy.full(first.rows.shape, 1.5, numpy.float32))
        self.assertEqual(list(self.table.scan()), [])

    def test_scan_that_waits_ends(self):
        """The rows that came are right, and nothing of the scans is left in memory."""
        keys = numpy.arange(50_000)
        table = self.client.sparse("wide", 60, starling.Sum(), starling.Constant(0.5))
        table.push(keys, numpy.ones((keys.size, 60), numpy.float32))
        used = allocated_bytes()
        scans = [table.scan() for _ in range(4)]
        first = next(scans[0])
        if not any(support.PRELOAD.values()):  # else a sanitizer allocates, and looks for leaks
            self.assertGreater(allocated_bytes(), used + 4 * SCAN_BYTES)
        self.server.signal(signal.SIGSTOP)
        with futures.ThreadPoolExecutor(4) as pool:
            rest = [pool.submit(list, scan) for scan in scans]
            support.wait_until(lambda: re.search(r"client_in_flight\S* ([4-9]|\d\d)\n", self.client.metrics()), "all wait")
            self.kill()
            self.restart()
            for scan in rest:
                with self.assertRaisesRegex(starling.ClosedError, "ps/0.*another copy of the shard"):
                    scan.result(harness.DEADLINE_S)
        numpy.testing.assert_array_equal(first.rows, numpy.full(first.rows.shape, 1.5, numpy.float32))
        numpy.testing.assert_array_equal(first.counts, 1)
        self.assertEqual(numpy.unique(first.keys).size, first.keys.size)
        del rest, scan, scans, first
        gc.collect()
        self.assertLess(allocated_bytes(), used + SCAN_BYTES)
        self.assertRegex(self.client.metrics(), r"client_in_flight\S* 0\n")
        self.assertEqual(list(table.scan()), [])

    def test_eviction_ends(self):
        self.table.push([1, 2], numpy.ones((2, 2), numpy.float32))
        self.server.signal(signal.SIGSTOP)
        with self.assertRaisesRegex(starling.DeadlineError, "ps/0"):
            self.table.evict(count_below=9, timeout=0.5)
        self.server.signal(signal.SIGCONT)
        support.wait_until(lambda: self.table.stats().rows == 0, "the shard has gone on")
        self.server.signal(signal.SIGSTOP)
        with futures.ThreadPoolExecutor(1) as pool:
            count = pool.submit(self.table.evict, count_below=9)
            support.wait_until(lambda: re.search(r"client_in_flight\S* 2\n", self.client.metrics()), "the requests are sent")
            self.kill()
            self.restart()
            with self.assertRaisesRegex(starling.ClosedError, "ps/0.*connection was lost while it ran"):
                count.result(harness.DEADLINE_S)
        self.assertEqual(self.table.evict(count_below=9), 0)

    def test_deadline_names_it(self):
        step, _ = self.begin(("pull",), timeout=0.5)
        with self.assertRaises(starling.DeadlineError) as raised:
            step.wait()
        self.assertIn("ps/0", str(raised.exception))


class LostValues(Servers):
    """A server is killed and started again without its values."""

    LOST = r"ps/1 was restarted without its values.*--restore newest.*accept_loss=True"

    def test_at_once(self):
        """The first call already fails, whichever it is, and the later ones; a client that accepts the loss goes on."""
        keys, ones = numpy.arange(100), numpy.ones((100, 2), numpy.float32)
        uses = {
            "pull": lambda client, table: table.pull(keys),
            "push": lambda client, table: table.push(keys, ones),
            "scan": lambda client, table: list(table.scan()),
            "step": lambda client, table: self.step(client, table, keys),
        }
        self.start_servers(2)
        clients = {name: starling.connect(self.coordinator, task=-1, timeout=harness.DEADLINE_S) for name in uses}
        going_on = starling.connect(self.coordinator, task=-1, timeout=harness.DEADLINE_S, accept_loss=True)
        for client in (*clients.values(), going_on):
            self.addCleanup(client.leave)
        tables = {name: client.sparse("a", 2, starling.Sum()) for name, client in clients.items()}
        tables["push"].push(keys, ones)
        self.kill(self.servers[1])
        self.start("starling-ps", *self.flags, "--job-name", "ps", "--task-index", 1).wait_line("ready")
        for name, use in uses.items():
            for _ in range(2):
                with self.subTest(name), self.assertRaisesRegex(starling.CorruptError, self.LOST):
                    use(clients[name], tables[name])
        table = going_on.sparse("a", 2, starling.Sum())
        table.assign(keys, ones)
        numpy.testing.assert_array_equal(table.pull(keys), ones)
        self.assertTrue(going_on.values_lost)

    @staticmethod
    def step(client, table, keys):
        with client.step() as step:
            step.pull(table, keys)


class DroppedTables(Servers):
    """A table that was dropped does not come back."""

    def connect(self):
        client = starling.connect(self.coordinator, task=-1, timeout=harness.DEADLINE_S)
        self.addCleanup(client.leave)
        return client

    def push(self):
        self.client = self.connect()
        self.tables = [self.client.sparse(name, 2, starling.Sum()) for name in ("kept", "gone")]
        self.keys = numpy.arange(1000)
        for table in self.tables:
            table.push(self.keys, numpy.ones((1000, 2), numpy.float32))

    def assert_gone(self):
        numpy.testing.assert_array_equal(self.tables[0].pull(self.keys), numpy.ones((1000, 2)))
        with self.assertRaisesRegex(starling.NotFoundError, "gone"):
            self.tables[1].pull(self.keys)
        self.assertEqual(self.connect().sparse("gone", 2, starling.Sum()).stats().rows, 0)

    def checkpoints(self):
        return ["--checkpoint-dir", os.path.join(self.folder, "checkpoints"), "--checkpoint-every", 0]

    def test_at_once(self):
        """As soon as the call has returned, no server answers a request to the table."""
        self.start_servers(2)
        client = self.connect()
        ones = numpy.ones((2, 2), numpy.float32)
        for i in range(100):
            table = client.sparse("gone", 2, starling.Sum())
            table.push([1, 2], ones)
            client.drop("gone")
            for use in (lambda: table.push([i + 1], ones[:1]), lambda: table.pull([1]), lambda: table.pull([2])):
                with self.assertRaisesRegex(starling.NotFoundError, "gone.*was dropped"):
                    use()

    def test_from_a_checkpoint(self):
        """The checkpoint before the drop has the table, the incremental one after it does not."""
        self.start_servers(2, *self.checkpoints())
        self.push()
        self.client.checkpoint()
        self.client.drop("gone")
        self.client.checkpoint()
        self.kill(*self.servers)
        self.start_servers(2, *self.checkpoints(), "--restore", "newest")
        self.client = self.connect()
        table = self.client.sparse("kept", 2, starling.Sum())
        numpy.testing.assert_array_equal(table.pull(self.keys), numpy.ones((1000, 2)))
        self.assertEqual(self.client.sparse("gone", 2, starling.Sum()).stats().rows, 0)

    def test_from_a_server_that_was_away(self):
        """It restores a checkpoint that has the table."""
        self.start_servers(2, *self.checkpoints())
        self.push()
        self.client.checkpoint()
        self.kill(self.servers[1])
        with self.assertRaisesRegex(starling.DeadlineError,
                                    "table gone is dropped, but a server has not confirmed it: ps/1"):
            self.client.drop("gone", timeout=1)
        with self.assertRaises(starling.NotFoundError):
            self.client.drop("gone")
        self.start("starling-ps", *self.flags, *self.checkpoints(), "--restore", "newest", "--job-name", "ps",
                   "--task-index", 1).wait_line("ready")
        self.assert_gone()

    def test_while_others_push(self):
        """Each of them ends with an error that names the table; another table is not disturbed."""
        self.start_servers(2)
        self.push()
        begun = [threading.Event() for _ in range(4)]

        def push_on(i):
            gone = self.connect().sparse("gone", 2, starling.Sum())
            while True:
                gone.push(self.keys + 1000 * i, numpy.ones((1000, 2), numpy.float32))
                begun[i].set()

        with futures.ThreadPoolExecutor(4) as pool:
            pushes = [pool.submit(push_on, i) for i in range(4)]
            for event in begun:
                self.assertTrue(event.wait(harness.DEADLINE_S))
            self.client.drop("gone")
            for push in pushes:
                self.assertRegex(str(push.exception(harness.DEADLINE_S)), "table gone.*was dropped")
                self.assertIsInstance(push.exception(), starling.NotFoundError)
        self.assert_gone()

    def test_from_a_backup(self):
        self.start_servers(2, "--replicas", 1, "--lease", 6)
        for owner in range(2):
            self.servers[0].wait_line(f"ps/{1 - owner} has the backups of the shards of ps/{owner}: they are in sync")
        self.push()
        self.client.drop("gone")
        self.kill(self.servers[1])
        self.assert_gone()


class RestoredPolicies(Servers):
    """A checkpoint has a table with a policy; then clients open it with others."""

    OLD, NEW, OTHER = (starling.Policy(ttl_steps=steps) for steps in (20, 5000, 40))
    TABLE = dict(dim=2, optimizer=starling.Sum())

    def open(self, policy):
        client = starling.connect(self.coordinator, task=-1, timeout=harness.DEADLINE_S)
        self.addCleanup(client.leave)
        return client, client.sparse("rows", **self.TABLE, policy=policy)

    def restore(self, *flags, count=2):
        """Servers that have restored 1000 rows."""
        directory = ["--checkpoint-dir", os.path.join(self.folder, "checkpoints"), "--checkpoint-every", 0]
        self.start_servers(count, *directory)
        self.keys = numpy.arange(1000)
        client, table = self.open(self.OLD)
        table.push(self.keys, numpy.ones((1000, 2), numpy.float32))
        client.checkpoint()
        self.kill(*self.servers)
        self.directory = directory
        self.start_servers(count, *directory, "--restore", "newest", *flags)

    def assert_policy(self, steps):
        """The servers have the policy: each of a shard's pushes is a step."""
        _, table = self.open(starling.Policy(ttl_steps=steps))
        self.assertEqual(table.stats().rows, 1000)
        for _ in range(100):
            table.push(self.keys[:900], numpy.ones((900, 2), numpy.float32))
        if steps == 20:
            support.wait_until(lambda: table.stats().evicted_ttl == 100, "rows are too old")
        else:
            self.assertEqual(table.evict(), 0)

    def refused(self, policy, text):
        with self.assertRaisesRegex(starling.TableMismatch, text):
            self.open(policy)

    def test_refused(self):
        self.restore()
        self.refused(self.NEW, r"without --restore-policy keep\|new at the servers.*policy.ttl_steps 20, not 5000")
        self.assert_policy(20)

    def test_kept(self):
        self.restore("--restore-policy", "keep")
        for policy, steps in ((self.NEW, 5000), (self.OTHER, 40)):
            self.open(policy)
            self.servers[0].wait_line("the policy of the checkpoint stays (--restore-policy keep): table rows exists "
                                      f"with policy.ttl_steps 20, not {steps}")
        with self.assertRaisesRegex(starling.TableMismatch, "dim 2, not 3"):
            self.open(self.OLD)[0].sparse("rows", 3, starling.Sum(), policy=self.NEW)
        self.assert_policy(20)

    def test_replaced(self):
        """Once; the next checkpoint has the new policy, and is a full one."""
        self.restore("--restore-policy", "new")
        client, _ = self.open(self.NEW)
        self.servers[0].wait_line("its policy replaces that of the checkpoint (--restore-policy new): table rows "
                                  "exists with policy.ttl_steps 20, not 5000")
        self.refused(self.OTHER, "policy.ttl_steps 5000, not 40")
        self.refused(self.OLD, "policy.ttl_steps 5000, not 20")
        client.checkpoint()
        self.kill(*self.servers)
        self.start_servers(2, *self.directory, "--restore", "newest")
        self.assert_policy(5000)

    def test_replaced_while_a_server_is_away(self):
        """It restores the old policy, and takes the new one from its clients."""
        self.restore("--restore-policy", "new")
        self.kill(self.servers[1])
        self.servers[1] = self.start("starling-ps", *self.flags, *self.directory, "--restore", "newest",
                                     "--restore-policy", "new", "--job-name", "ps", "--task-index", 1)
        self.servers[1].wait_line("ready")
        _, table = self.open(self.NEW)
        table.push(self.keys, numpy.ones((1000, 2), numpy.float32))
        self.kill(self.servers[1])
        self.servers[1] = self.start("starling-ps", *self.flags, *self.directory, "--restore", "newest",
                                     "--job-name", "ps", "--task-index", 1)
        self.servers[1].wait_line("ready")
        self.assertEqual(table.stats().rows, 1000)
        self.refused(self.OLD, "policy.ttl_steps 5000, not 20")
        self.assert_policy(5000)

    def test_replaced_with_a_backup(self):
        """Keys wait from then on, at the backup too."""
        new = starling.Policy(admit_count=3, order="lru", rows_max=100000)
        self.restore("--restore-policy", "new", "--replicas", 1, "--lease", 6)
        for owner in range(2):
            self.servers[0].wait_line(f"ps/{1 - owner} has the backups of the shards of ps/{owner}: they are in sync")
        _, table = self.open(new)
        more = numpy.arange(1000, 2000)
        for count in (1000, 400, 100):
            table.push(more[:count], numpy.ones((count, 2), numpy.float32))
        before = (1100, 900)
        self.assertEqual((table.stats().rows, table.stats().waiting), before)
        self.kill(self.servers[1])
        self.assertEqual((table.stats().rows, table.stats().waiting), before)
        table.push(more, numpy.ones((1000, 2), numpy.float32))
        self.assertEqual((table.stats().rows, table.stats().waiting), (1400, 600))


if __name__ == "__main__":
    harness.main()
