#!/usr/bin/env python3
"""A stranger without the cluster's secret does its worst, over each transport, against a ps that serves a
worker's training: the worker meets no error, and the ps's memory stays bounded.

STARLING_STRANGER_EPOCHS makes the training longer. Each test prints the training's rate with the stranger
beside it and without."""

import contextlib
import json
import os
import signal
import socket
import struct
import threading
import time

import dpdk_jobs
import harness

SANITIZED = bool(os.environ.get("STARLING_SANITIZED"))
EPOCHS = int(os.environ.get("STARLING_STRANGER_EPOCHS", "30" if SANITIZED else "60"))
RATE = int(os.environ.get("STARLING_STRANGER_RATE", "1"))  # connections begun in 5 ms
MEMORY_MAX = 192 << 20  # what strangers may cost a ps, resident


def resident(process):
    with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmRSS:"))


class HalfFrames:
    """TCP connections that stop in the middle of something, which no transport of ours would do."""

    HEADER = struct.Struct("<IHBBQIIIHBB")
    STARTS = (b"", b"\0", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01",
              HEADER.pack(100, 0x534c, 1, 1, 0, 0, 0, 0, 0, 0, 0),
              HEADER.pack(4 << 20, 0x534c, 1, 2, 1, 1000, 0, 0, 0, 0, 0) + bytes(100),
              HEADER.pack(0xffffffff, 0x534c, 1, 3, 1, 0, 0, 0, 0, 0, 0),
              HEADER.pack(0, 0x534c, 9, 1, 0, 0, 0, 0, 0, 0, 0))

    def __init__(self, port):
        self._port = port
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        held = []
        while not self._stop.is_set():
            for start in self.STARTS:
                with contextlib.suppress(OSError):
                    held.append(socket.create_connection(("127.0.0.1", self._port), 5))
                    held[-1].sendall(start)
            while len(held) > 400:
                held.pop(0).close()
            time.sleep(0.02)
        for connection in held:
            connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


class StrangerTest(dpdk_jobs.DpdkTest):
    """Base of the tests; over DPDK they run in dpdk_veth_test.py, over RDMA in rdma_stranger_test.py."""

    control = "127.0.0.1"  # where the ps is reached over TCP

    def start_server(self, endpoint, more):
        secret = self.file("secret", "a secret of enough bytes\n")
        os.chmod(secret, 0o600)
        control = harness.free_ports(1)[0]
        self.flags = ["--endpoint-map", self.file("map", f"{self.control}:{control}={endpoint}\n"),
                      "--worker-hosts", "a", "--secret-file", secret]
        server = self.start("starling-ps", *self.flags, "--job-name", "ps", "--task-index", 0, *more,
                            env={"NETWORK_PS_CORE_NUMBER": "1", "STARLING_SHM": "1"})
        server.wait_line("ready")
        return server

    def train(self):
        """The rows a second of a job that met no error."""
        data = self.file("data", "1 1:1 2:1 5:1\n0 3:1 4:1 6:1\n" * 4000)
        report = os.path.join(self.folder, "report.json")
        worker = self.start("starling-worker", *self.flags, "--job-name", "worker", "--task-index", 0,
                            "--data", data, "--model", "fm", "--epochs", EPOCHS, "--report", report,
                            env={"NETWORK_WORKER_CORE_NUMBER": "1", "STARLING_SHM": self.shm})
        self.assertEqual(worker.wait(), 0, worker.output)
        self.assertNotIn("connection lost", worker.output)
        with open(report, encoding="utf-8") as file:
            seen = json.load(file)
        self.assertEqual(seen["requests"]["failed"], 0, worker.output)
        self.assertTrue(seen["complete"])
        return seen["samples_per_second"]

    def meet(self, endpoint, target, *device, more=(), half_frames=None, shm="0"):
        """A job alone, then one with the stranger beside it."""
        self.shm = shm
        server = self.start_server(endpoint, more)
        alone, usual = self.train(), resident(server)
        self.drain([server])
        server = self.start_server(endpoint, more)
        visitor = self.start("stranger", target, 1, RATE, *device)
        visitor.wait_line("begins")
        with HalfFrames(half_frames) if half_frames else contextlib.nullcontext():
            beside = self.train()
            cost = resident(server) - usual
        visitor.signal(signal.SIGTERM)
        self.assertEqual(visitor.wait(), 0, visitor.output)
        print(f"  {beside / alone:.2f} of the rate without the stranger ({alone:.0f} rows/s), "
              f"{max(cost, 0) >> 20} MiB for it; {visitor.lines[-1]}", flush=True)
        if not SANITIZED:  # AddressSanitizer keeps what has been freed
            self.assertLess(cost, MEMORY_MAX, "resident bytes for the stranger")
        self.drain([server])
        self.assertNotIn("worker/0 is disconnected", server.output)



class Here(StrangerTest):
    def test_tcp(self):
        port = harness.free_ports(1)[0]
        self.meet(f"tcp://127.0.0.1:{port}", f"tcp://127.0.0.1:{port}", half_frames=port)

    def test_shared_memory(self):
        port = harness.free_ports(1)[0]
        self.meet(f"shm://127.0.0.1:{port}", f"shm://127.0.0.1:{port}", shm="1")


if __name__ == "__main__":
    harness.main()
