#!/usr/bin/env python3
"""The package mooncake, as the connectors of vLLM and SGLang and checkpoint-engine call it: with another process, its results,
what it refuses."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

import support
from support import harness, numpy

PACKAGE = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "compat", "mooncake", "python"))
sys.path.insert(0, PACKAGE)

from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode  # noqa: E402

SIZE = 1 << 20
# The peer: registers memory, and prints its name and where that is; answers each line with the sum of it, and each message.
PEER = f"""
import numpy, sys
sys.path.insert(0, {PACKAGE!r})
from mooncake.engine import TransferEngine
engine = TransferEngine()
assert engine.initialize(sys.argv[1], sys.argv[2], "tcp", "") == 0
memory = numpy.zeros({SIZE}, numpy.uint8)
memory[:] = numpy.arange({SIZE}) % 251
assert engine.batch_register_memory([memory.ctypes.data], [memory.nbytes]) == 0
print(sys.argv[1].rpartition(":")[0] or sys.argv[1], engine.get_rpc_port(), memory.ctypes.data, flush=True)
for line in sys.stdin:
    print(int(memory.sum()), [(each.name, each.msg) for each in engine.get_notifies()], flush=True)
"""


class MooncakeTest(unittest.TestCase):
    def start_peer(self, name="127.0.0.1", metadata="P2PHANDSHAKE"):
        peer = subprocess.Popen([*harness.END_WITH_PARENT, sys.executable, "-c", PEER, name, metadata], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for end in (peer.stdout.close, peer.stdin.close, peer.wait, peer.kill):
            self.addCleanup(end)
        host, port, address = peer.stdout.readline().split()
        return peer, f"{host}:{port}", int(address)

    def start_engine(self, name="127.0.0.1", metadata="P2PHANDSHAKE", protocol="tcp", timeout=harness.DEADLINE_S):
        engine = TransferEngine()
        with mock.patch.dict(os.environ, MC_TRANSFER_TIMEOUT=str(timeout)):
            self.assertEqual(engine.initialize(name, metadata, protocol, ""), 0)
        memory = numpy.zeros(SIZE, numpy.uint8)
        self.addCleanup(memory.fill, 0)  # until then it is kept
        self.addCleanup(engine.close)
        self.assertEqual(engine.register_memory(memory.ctypes.data, memory.nbytes), 0)
        return engine, memory, memory.ctypes.data

    def ask(self, peer):
        peer.stdin.write("\n")
        peer.stdin.flush()
        total, _, messages = peer.stdout.readline().strip().partition(" ")
        return int(total), messages

    def refused(self, text, function, *arguments, result=-1, **named):
        with self.assertLogs("mooncake.engine", "ERROR") as logged:
            self.assertEqual(function(*arguments, **named), result)
        self.assertRegex("\n".join(logged.output), text)


class Moves(MooncakeTest):
    def setUp(self):
        self.peer, self.name, self.remote = self.start_peer()
        self.engine, self.memory, self.local = self.start_engine()

    def test_one_range(self):
        engine = self.engine
        self.assertEqual(engine.transfer_sync_read(self.name, self.local, self.remote, SIZE), 0)
        numpy.testing.assert_array_equal(self.memory, numpy.arange(SIZE) % 251)
        self.memory[:] = 3
        self.assertEqual(engine.transfer_sync_write(self.name, self.local, self.remote, SIZE, transport_hint="tcp"), 0)
        self.assertEqual(self.ask(self.peer), (3 * SIZE, "[]"))
        self.memory[:] = 4
        self.assertEqual(engine.transfer_sync(self.name, self.local, self.remote, SIZE, TransferOpcode.Write, TransferNotify("n", "text")), 0)
        self.assertEqual(self.ask(self.peer), (4 * SIZE, "[('n', 'text')]"))
        self.assertEqual(engine.send_probe(self.name), 0)
        self.assertEqual(engine.get_first_buffer_address(self.name), self.remote)

    def test_batches(self):
        engine, piece = self.engine, SIZE // 128
        places = [self.local + i * piece for i in range(128)], [self.remote + i * piece for i in range(128)], [piece] * 128
        self.assertEqual(engine.batch_transfer_sync_read(self.name, *places), 0)
        numpy.testing.assert_array_equal(self.memory, numpy.arange(SIZE) % 251)
        self.memory[:] = 5
        self.assertEqual(engine.batch_transfer_sync_write(self.name, *places), 0)
        self.assertEqual(self.ask(self.peer)[0], 5 * SIZE)
        self.memory[:] = 6
        numbers = [engine.batch_transfer_async_write(self.name, *(each[first:first + 64] for each in places)) for first in (0, 64)]
        self.assertTrue(all(numbers))
        self.assertEqual(engine.get_batch_transfer_status(numbers), 0)
        self.assertEqual(self.ask(self.peer)[0], 6 * SIZE)
        self.memory[:] = 0
        self.assertEqual(engine.get_batch_transfer_status([engine.batch_transfer_async_read(self.name, *places)]), 0)
        self.assertEqual(int(self.memory.sum()), 6 * SIZE)
        number = engine.transfer_submit_write(self.name, self.local, self.remote, SIZE)
        self.assertGreater(number, 0)
        support.wait_until(lambda: engine.transfer_check_status(number) != 0, "the end of the transfer")
        self.refused("there is no batch", engine.transfer_check_status, number)
        self.assertEqual(engine.batch_transfer_sync(self.name, *places, TransferOpcode.Write, TransferNotify("all", "")), 0)
        self.assertEqual(self.ask(self.peer)[1], "[('all', '')]")

    def test_more_requests_than_one_batch_has(self):
        count = 70000
        places = [self.local + i for i in range(count)], [self.remote + i for i in range(count)], [1] * count
        self.memory[:] = 1
        self.assertEqual(self.engine.batch_transfer_sync_write(self.name, *places), 0)
        expected = count + int((numpy.arange(count, SIZE) % 251).sum())
        self.assertEqual(self.ask(self.peer)[0], expected)

    def test_managed_buffers(self):
        engine = self.engine
        address = engine.allocate_managed_buffer(10000)
        self.assertEqual(engine.write_bytes_to_buffer(address, b"some bytes", 10), 0)
        self.assertEqual(engine.transfer_sync_write(self.name, address, self.remote, 10), 0)
        self.assertEqual(engine.transfer_sync_read(self.name, address + 100, self.remote, 10), 0)
        self.assertEqual(engine.read_bytes_from_buffer(address + 100, 10), b"some bytes")
        self.refused("not registered", engine.write_bytes_to_buffer, 4096, b"x", 1)
        self.refused("4 bytes of 1", engine.write_bytes_to_buffer, address, b"x", 4)
        self.assertRaises(ValueError, engine.read_bytes_from_buffer, address + 9999, 2)
        self.refused("no managed buffer", engine.free_managed_buffer, address + 1, 1)
        self.assertEqual(engine.free_managed_buffer(address, 10000), 0)
        self.refused("not registered", engine.write_bytes_to_buffer, address, b"x", 1)
        self.refused(".", engine.allocate_managed_buffer, 0, result=0)

    def test_memory_that_overlaps(self):
        engine, other = self.engine, numpy.ones(3000, numpy.uint8)
        base = other.ctypes.data
        reaches = lambda first, size: engine.transfer_sync_write(self.name, base + first, self.remote, size) == 0  # noqa: E731
        self.assertEqual(engine.batch_register_memory([base, base, base + 500], [1000, 1000, 1000]), 0)
        self.assertTrue(reaches(0, 1500))
        self.assertEqual(engine.unregister_memory(base), 0)
        self.assertTrue(reaches(0, 1500))
        self.assertEqual(engine.unregister_memory(base + 500), 0)
        self.assertTrue(reaches(0, 1000))
        self.refused("not registered", engine.transfer_sync_write, self.name, base, self.remote, 1500)
        self.assertEqual(engine.batch_unregister_memory([base]), 0)
        self.refused("no registered memory", engine.unregister_memory, base)
        self.refused("is no range", engine.batch_register_memory, [base, base + 2000], [1000, 0])
        self.refused("no registered memory", engine.unregister_memory, base)

    def test_threads(self):
        failures = []

        def use(index):
            at, piece = index * SIZE // 4, SIZE // 4
            for _ in range(30):
                if self.engine.batch_transfer_sync_write(self.name, [self.local + at], [self.remote + at], [piece]) != 0:
                    failures.append(index)
        self.memory[:] = 9
        threads = [threading.Thread(target=use, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((failures, self.ask(self.peer)[0]), ([], 9 * SIZE))

    def test_a_killed_peer_and_its_successor(self):
        engine, local = self.engine, self.local
        self.assertEqual(engine.transfer_sync_read(self.name, local, self.remote, 10), 0)
        self.peer.kill()
        self.peer.wait()
        short, _, short_local = self.start_engine(timeout=1)
        self.refused("reach|listens", short.transfer_sync_read, self.name, short_local, self.remote, 10)
        self.refused(".", engine.send_probe, self.name)
        _, name, remote = self.start_peer(self.name)
        self.assertEqual(name, self.name)
        support.wait_until(lambda: engine.transfer_sync_read(self.name, local, remote, 10) == 0, "the new process")

    def test_a_stopped_peer_fails_by_the_deadline(self):
        engine, memory, local = self.start_engine(timeout=1)
        self.assertEqual(engine.send_probe(self.name), 0)
        self.assertEqual(engine.get_first_buffer_address(self.name), self.remote)
        self.peer.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        self.refused("not done within", engine.transfer_sync_write, self.name, local, self.remote, SIZE)
        self.assertGreater(time.monotonic() - begun, 0.9)
        number = engine.transfer_submit_write(self.name, local, self.remote, SIZE)
        found = []
        with self.assertLogs("mooncake.engine", "ERROR"):
            support.wait_until(lambda: found.append(engine.transfer_check_status(number)) or found[-1] != 0, "the deadline")
        self.assertEqual(found[-1], -2)
        memory[:] = 1  # no thread reads it any more
        self.peer.send_signal(signal.SIGCONT)

    def test_refused(self):
        engine, name, local, remote = self.engine, self.name, self.local, self.remote
        self.refused("not as many", engine.batch_transfer_sync_write, name, [local], [remote], [1, 2])
        self.refused("0 requests", engine.batch_transfer_sync_write, name, [], [], [])
        self.refused("not as many", engine.batch_transfer_async_write, name, [local], [], [1], result=0)
        self.refused("the peer has not registered", engine.transfer_sync_write, name, local, remote + SIZE, 1)
        self.refused("local memory is not registered", engine.transfer_sync_write, name, local + SIZE, remote, 1)
        self.refused("no range", engine.transfer_sync_write, name, local, remote, 0)
        self.refused("printable", engine.transfer_sync, name, local, remote, 1, TransferOpcode.Write, TransferNotify("", "x"))
        self.refused("there is no batch 77", engine.get_batch_transfer_status, [77])
        self.refused("is no range", engine.register_memory, 0, 10)
        self.refused("GPU", engine.register_memory, 4096, 10)
        self.refused("GPU", engine.register_memory, local, 10, "cuda:0")
        self.refused("1 addresses, 0 capacities", engine.batch_register_memory, [1], [])
        self.refused("resolve|reach", engine.send_probe, "no.such.host.invalid:9")


class Start(MooncakeTest):
    def test_refused(self):
        for protocol in ("nvlink", "hip", "efa", "ascend"):
            self.refused(f"'{protocol}' is not supported", TransferEngine().initialize, "127.0.0.1", "P2PHANDSHAKE", protocol, "")
        self.refused("redis", TransferEngine().initialize, "127.0.0.1", "redis://127.0.0.1:6379", "tcp", "")
        self.refused("secret", TransferEngine().initialize, "192.0.2.1", "P2PHANDSHAKE", "tcp", "")
        self.refused("no.such.device", TransferEngine().initialize, "127.0.0.1", "P2PHANDSHAKE", "rdma", "no.such.device")
        for variable, text in (("MC_TRANSFER_TIMEOUT", "soon"), ("MC_TRANSFER_TIMEOUT", "0"), ("STARLING_INSECURE", "maybe")):
            with mock.patch.dict(os.environ, {variable: text}):
                self.refused(variable, TransferEngine().initialize, "127.0.0.1", "P2PHANDSHAKE", "tcp", "")
        self.refused("not initialized", TransferEngine().get_rpc_port)
        self.refused("not initialized", TransferEngine().register_memory, 1, 1)
        self.refused("not initialized", TransferEngine().transfer_sync_write, "127.0.0.1:1", 1, 1, 1)
        self.refused("not initialized", TransferEngine().get_first_buffer_address, "127.0.0.1:1", result=0)

    @unittest.skipIf(os.path.exists("/sys/class/infiniband"), "this host has an RDMA device")
    def test_rdma_without_a_device_is_tcp(self):
        with self.assertLogs("mooncake.engine", "WARNING"):
            engine, _, local = self.start_engine(protocol="rdma")
        self.assertEqual(engine.get_first_buffer_address(f"127.0.0.1:{engine.get_rpc_port()}"), local)
        self.assertEqual(engine.get_local_topology(), TransferEngine().get_local_topology(None))

    def test_port_in_use(self):
        first, _, _ = self.start_engine()
        with self.assertLogs("mooncake.engine", "WARNING"):
            second, _, _ = self.start_engine(f"127.0.0.1:{first.get_rpc_port()}")
        self.assertNotEqual(first.get_rpc_port(), second.get_rpc_port())

    def test_an_engine_ends_with_its_object(self):
        engine, _, _ = self.start_engine()
        one = TransferEngine()
        self.assertEqual(one.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", ""), 0)
        name = f"127.0.0.1:{one.get_rpc_port()}"
        self.assertEqual(engine.send_probe(name), 0)
        del one
        self.refused("reach", engine.send_probe, name)

    def test_secret(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"a secret of the cluster\n")
            file.flush()
            with mock.patch.dict(os.environ, STARLING_SECRET_FILE=file.name):
                _, name, remote = self.start_peer()
                engine, _, local = self.start_engine()
            stranger, _, there = self.start_engine()
            self.assertEqual(engine.transfer_sync_read(name, local, remote, 10), 0)
            self.refused("secret", stranger.transfer_sync_read, name, there, remote, 10)

    def test_metadata_server(self):
        sys.path.insert(0, os.path.join(os.path.dirname(harness.__file__)))
        import transfer_test
        server = transfer_test.MetadataServer(self)
        ports = harness.free_ports(2)
        _, name, remote = self.start_peer(f"127.0.0.1:{ports[0]}", server.url)
        engine, memory, local = self.start_engine(f"127.0.0.1:{ports[1]}", server.url)
        self.assertEqual(engine.transfer_sync_read(name, local, remote, SIZE), 0)
        numpy.testing.assert_array_equal(memory, numpy.arange(SIZE) % 251)
        self.refused("no record|NOT_FOUND|not", engine.transfer_sync_read, "127.0.0.1:9", local, remote, 1)
        other = TransferEngine()
        self.addCleanup(other.close)
        self.assertEqual(other.initialize_ext("127.0.0.1:0", server.url.partition("://")[2], "tcp", "", "http"), 0)


if __name__ == "__main__":
    harness.main()
