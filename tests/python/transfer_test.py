#!/usr/bin/env python3
"""starling.transfer: reads, writes, batches and notices between processes, and what is refused."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import unittest

import support
from support import harness, numpy, starling

from starling import transfer

try:
    import torch
except ImportError:
    torch = None

TIMEOUT = harness.DEADLINE_S
# The peer: registers memory, prints where it is, and answers each notice with the sum of it.
PEER = """
import numpy, sys
from starling import transfer
with transfer.Engine() as engine:
    memory, fixed = numpy.arange(1000, dtype=numpy.float64), numpy.ones(10)
    engine.register(memory)
    engine.register(fixed, writable=False)
    print(engine.name, memory.ctypes.data, fixed.ctypes.data, flush=True)
    for notice in engine.notices():
        with engine.open(notice.sender) as segment:
            segment.notify(notice.name, str(memory.sum()).encode())
"""


class EngineTest(unittest.TestCase):
    def setUp(self):
        peer = subprocess.Popen([sys.executable, "-P", "-c", PEER], stdout=subprocess.PIPE, text=True, cwd="/tmp")
        self.addCleanup(peer.stdout.close)
        self.addCleanup(peer.wait)
        self.addCleanup(peer.kill)
        self.peer = peer
        name, memory, fixed = peer.stdout.readline().split()
        self.memory, self.fixed = int(memory), int(fixed)
        self.engine = transfer.Engine()
        self.addCleanup(self.engine.close)
        self.local = numpy.zeros(1000)
        self.engine.register(self.local)
        self.segment = self.engine.open(name, timeout=TIMEOUT)
        support.wait_until(lambda: len(self.segment.buffers()) == 2, "the peer's memory")

    def test_read_write_and_notices(self):
        self.engine.read(self.local, self.segment, self.memory, timeout=TIMEOUT)
        numpy.testing.assert_array_equal(self.local, numpy.arange(1000))
        self.local[:] = 2
        self.engine.write(self.local[:500], self.segment, self.memory + 4000, timeout=TIMEOUT)
        self.segment.notify("sum", b"\0 bytes", timeout=TIMEOUT)
        total = sum(range(500)) + 1000
        found = next(self.engine.notices(TIMEOUT))
        self.assertEqual((found.sender, found.name, float(found.text)), (self.segment.name, "sum", total))
        self.assertEqual(list(self.engine.notices(0.1)), [])

    def test_batch(self):
        requests = [transfer.Request("read", self.local[i:i + 10], self.segment, self.memory + 8 * i) for i in range(0, 1000, 10)]
        with self.engine.batch(requests, TIMEOUT, notice=("done", b"")) as batch:
            batch.wait()
            self.assertTrue(batch.done)
            self.assertEqual(set(batch.status()), {transfer.Status("completed", 80, "")})
        numpy.testing.assert_array_equal(self.local, numpy.arange(1000))
        self.assertEqual(next(self.engine.notices(TIMEOUT)).name, "done")
        span = transfer.Span(self.local.ctypes.data, 16)
        with self.engine.batch([("write", span, self.segment, self.fixed), ("read", span, self.segment, self.fixed),
                                ("read", numpy.zeros(2), self.segment, self.fixed)], TIMEOUT) as batch:
            with self.assertRaisesRegex(starling.InvalidError, "request 0 .WRITE of 16 bytes"):
                batch.wait()
            self.assertEqual([each.state for each in batch.status()], ["invalid", "completed", "invalid"])
            self.assertIn("the local memory is not registered", batch.status()[2].reason)
        self.assertEqual(self.local[:2].tolist(), [1, 1])

    def test_buffers_of_the_peer(self):
        buffers = {each.address: each for each in self.segment.buffers()}
        self.assertEqual((buffers[self.memory].bytes, buffers[self.memory].writable, buffers[self.memory].readable), (8000, True, True))
        self.assertEqual((buffers[self.fixed].bytes, buffers[self.fixed].writable, buffers[self.fixed].readable), (80, False, True))

    def test_peer_that_ends(self):
        self.peer.kill()
        self.peer.wait()
        with self.assertRaises(starling.StarlingError) as raised:
            self.engine.read(self.local, self.segment, self.memory, timeout=1)
        self.assertIsInstance(raised.exception, (starling.DeadlineError, starling.ClosedError))
        self.assertEqual(raised.exception.address, self.segment.name)

    def test_memory_is_kept_until_unregister(self):
        other = numpy.ones(100)
        self.engine.register(other)
        self.engine.unregister(other, timeout=TIMEOUT)
        with self.assertRaisesRegex(starling.NotFoundError, "no memory registered"):
            self.engine.unregister(other)
        with self.assertRaisesRegex(starling.InvalidError, "not registered"):
            self.engine.read(other, self.segment, self.memory)

    @unittest.skipIf(torch is None, "needs torch (Debian: python3-torch)")
    def test_torch(self):
        tensor = torch.zeros(1000, dtype=torch.float64)
        self.engine.register(tensor)
        self.engine.read(tensor[10:20], self.segment, self.memory, timeout=TIMEOUT)
        self.assertEqual(tensor[10:20].tolist(), list(range(10)))
        with self.assertRaisesRegex(ValueError, "contiguous"):
            self.engine.read(tensor[::2], self.segment, self.memory)

    def test_refused(self):
        engine, segment, local = self.engine, self.segment, self.local
        frozen = numpy.zeros(3)
        frozen.flags.writeable = False
        rows = [
            (lambda: engine.batch([]), ValueError, "0 requests; accepted: 1 to 65536"),
            (lambda: engine.batch([("swap", local, segment, 1)]), ValueError, "request 0: 'swap'; accepted: \"read\", \"write\""),
            (lambda: engine.batch([("read", local, segment, -1)]), ValueError, "remote: -1"),
            (lambda: engine.batch([("read", [1], segment, 1)]), TypeError, "request 0: list; accepted"),
            (lambda: engine.read(frozen, segment, 1), ValueError, "read-only"),
            (lambda: engine.read(local[::2], segment, 1), ValueError, "contiguous"),
            (lambda: engine.read(local[:0], segment, 1), ValueError, "bytes"),
            (lambda: engine.read(local, segment, 1, timeout=-1), ValueError, "timeout: -1"),
            (lambda: engine.register(local), starling.ExistsError, "overlaps registered memory"),
            (lambda: engine.register(frozen), ValueError, "read-only"),
            (lambda: engine.register(numpy.zeros(2000)[::2]), ValueError, "contiguous"),
            (lambda: engine.open("127.0.0.1:1", 0.3), starling.DeadlineError, "no process listens"),
            (lambda: engine.open("nonsense", 0.3), ValueError, "nonsense"),
            (lambda: segment.notify("x" * 64), ValueError, "1 to 63 printable"),
            (lambda: segment.notify("x", b"x" * 4097), starling.TooLargeError, "4096"),
            (lambda: transfer.Engine(nope=1), ValueError, "nope: no option; accepted"),
            (lambda: transfer.Engine("10.1.2.3:0"), starling.RefusedError, "secret"),
            (lambda: transfer.Engine(engine.name), starling.InUseError, "in use"),
            (lambda: transfer.Engine(metadata="ftp://x"), ValueError, "ftp"),
            (lambda: pickle.dumps(engine), TypeError, "cannot be pickled")]
        for call, kind, text in rows:
            with self.subTest(text=text), self.assertRaisesRegex(kind, text):
                call()
        engine.read(local, segment, self.memory, timeout=TIMEOUT)
        self.assertEqual(local[999], 999)

    def test_close_frees_segments_and_batches(self):
        batch = self.engine.batch([("read", self.local, self.segment, self.memory)], TIMEOUT)
        self.engine.close()
        for call in (batch.wait, self.segment.buffers, lambda: self.engine.register(numpy.zeros(1)), lambda: next(self.engine.notices(1))):
            with self.assertRaisesRegex(starling.ClosedError, "is closed"):
                call()

    def test_interrupts(self):
        os.kill(self.peer.pid, signal.SIGSTOP)
        self.addCleanup(os.kill, self.peer.pid, signal.SIGCONT)
        for call in (lambda: next(self.engine.notices()), lambda: self.segment.notify("n", timeout=TIMEOUT),
                     lambda: self.engine.open(self.segment.name, timeout=TIMEOUT),
                     lambda: self.engine.read(self.local, self.segment, self.memory, timeout=TIMEOUT)):
            timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            begun = time.monotonic()
            with self.assertRaises(KeyboardInterrupt):
                call()
                time.sleep(TIMEOUT)  # a read by this process needs no answer
            self.assertLess(time.monotonic() - begun, TIMEOUT / 4)
            timer.join()

    def test_fork(self):
        child = os.fork()
        if child == 0:
            try:
                self.engine.register(numpy.zeros(3))
            except starling.ForkError:
                with transfer.Engine() as own:
                    own.register(self.local)
                os._exit(0)
            finally:
                os._exit(1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.engine.read(self.local, self.segment, self.memory, timeout=TIMEOUT)


if __name__ == "__main__":
    harness.main()
