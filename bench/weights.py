#!/usr/bin/env python3
"""Versions of weights from Python: publish and fetch beside the same calls of the library without the package, and fetches
into live arrays beside reads of a file of the same bytes from the page cache."""

import ctypes
import os
import subprocess
import sys
import tempfile
import time
from ctypes import byref, c_uint64, c_void_p, sizeof

import driver
from driver import Contestant, number
from processes import Found

PUBLISH_OF_C, FETCH_OF_FILE = 0.95, 1.0  # targets: of the rate at least; of the time at most
TENSORS, TIMEOUT, VERSIONS = 64, 120, 4
PUBLISH, BARE = "publish", "publish, bare calls"
FETCHES = {"fetch, atomic": True, "fetch, in place": False}
FILE, BUFFER = "numpy.fromfile", "readinto of live memory"
# Another process, with a pool of its own: each line is a way to fetch the newest version, answered with the seconds.
READER = """
import sys, time, numpy
from starling import objects
count, size = int(sys.argv[2]), int(sys.argv[3])
into = {str(i): numpy.zeros(size, numpy.uint8) for i in range(count)}
with objects.connect(sys.argv[1], agent="off", pool_bytes=2 * count * size + (64 << 20)) as node:
    for line in sys.stdin:
        begun = time.perf_counter()
        node.fetch("w", into, atomic=line.strip() == "True", timeout=120)
        print(time.perf_counter() - begun, flush=True)
"""


def add_arguments(parser):
    parser.set_defaults(rounds=7)
    parser.add_argument("--megabytes", type=number("megabytes", 64, 65536), default=1024, help=f"MiB of the {TENSORS} tensors")


def timed(function, before=lambda: None):
    def turn(_warm_up, _seconds):
        before()
        begun = time.perf_counter()
        function()
        return Found(time=("s", time.perf_counter() - begun))
    return turn


class Weights:
    def __init__(self, megabytes, folder):
        self.size = (megabytes << 20) // TENSORS
        self.arrays = {str(i): numpy.full(self.size, i, numpy.uint8) for i in range(TENSORS)}
        self.live = {name: numpy.zeros_like(array) for name, array in self.arrays.items()}
        self.node = objects.serve(agent="off", pool_bytes=(VERSIONS + 1) * TENSORS * self.size + (64 << 20))
        self.reader = subprocess.Popen([sys.executable, "-c", READER, self.node.address, str(TENSORS), str(self.size)],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.path = os.path.join(folder, "weights")
        numpy.concatenate(list(self.arrays.values())).tofile(self.path)

    def change(self):
        """A pool has equal blocks of versions once: all bytes change."""
        for array in self.arrays.values():
            array += 1

    def publish(self):
        self.node.publish("w", self.arrays, timeout=TIMEOUT)

    def publish_bare(self):
        library, timeout_ms = _library.load(), 1000 * TIMEOUT
        publication, version = c_void_p(), c_uint64()
        options = _library.PublishOptions(struct_size=sizeof(_library.PublishOptions), name=b"w", take_over=True)
        with self.node._handle as node:
            assert library.sl_publish_begin(node, byref(options), timeout_ms, byref(publication)) == 0
        for name, array in self.arrays.items():
            tensor = _library.Tensor(name.encode(), 1, 1, (c_uint64 * 8)(array.size), array.ctypes.data, array.nbytes)
            assert library.sl_publish_tensor(publication, byref(tensor)) == 0
        assert library.sl_publish_commit(publication, timeout_ms, byref(version)) == 0
        library.sl_publish_end(byref(publication))

    def fetch(self, is_atomic):
        self.node.fetch("w", self.live, atomic=is_atomic, timeout=TIMEOUT)

    def fetch_bare(self):
        """One thread copies."""
        library, timeout_ms = _library.load(), 1000 * TIMEOUT
        subscription, view, version = c_void_p(), c_void_p(), c_uint64()
        with self.node._handle as node:
            assert library.sl_subscription_open(node, b"w", None, timeout_ms, byref(subscription)) == 0
        assert library.sl_subscription_wait(subscription, 0, timeout_ms, byref(version)) == 0
        assert library.sl_view_open(subscription, None, timeout_ms, byref(view)) == 0
        cursor, offset, tensor = c_uint64(), c_uint64(), _library.Tensor()
        while library.sl_view_next_tensor(view, byref(cursor), byref(tensor), byref(offset)) == 0:
            ctypes.memmove(self.live[tensor.name.decode()].ctypes.data, tensor.data, tensor.bytes)
        library.sl_view_close(byref(view))
        library.sl_subscription_close(byref(subscription))

    def fetch_elsewhere(self, is_atomic):
        """A version that the other process does not have; the publication before it does not count."""
        def turn(_warm_up, _seconds):
            self.change()
            self.publish()
            self.reader.stdin.write(f"{is_atomic}\n")
            self.reader.stdin.flush()
            return Found(time=("s", float(self.reader.stdout.readline())))
        return turn

    def read_into(self):
        with open(self.path, "rb", buffering=0) as file:
            for array in self.live.values():
                file.readinto(array)

    def close(self):
        self.reader.stdin.close()
        self.reader.wait()
        self.node.close()


def run(bench):
    global numpy, objects, _library
    sys.path.insert(0, os.path.join(bench.options.bin, "..", "python"))
    os.environ["PYTHONPATH"] = sys.path[0]
    import numpy
    from starling import _library, objects
    with tempfile.TemporaryDirectory() as folder:
        weights = Weights(bench.options.megabytes, folder)
        bench.stack.callback(weights.close)
        for _ in range(VERSIONS + 1):  # all memory of the pools was used before
            weights.change()
            weights.publish()
        for _ in range(3):
            weights.fetch_elsewhere(True)(0, 0)
        contestants = [Contestant(PUBLISH, timed(weights.publish, weights.change)), Contestant(BARE, timed(weights.publish_bare, weights.change)),
                       Contestant("fetch, bare calls", timed(weights.fetch_bare))]
        for name, is_atomic in FETCHES.items():
            contestants += [Contestant(name, timed(lambda is_atomic=is_atomic: weights.fetch(is_atomic))),
                            Contestant(f"{name}, elsewhere", weights.fetch_elsewhere(is_atomic))]
        contestants += [Contestant(FILE, timed(lambda: numpy.fromfile(weights.path, numpy.uint8))),
                        Contestant(BUFFER, timed(weights.read_into))]
        bench.measure(contestants)
    bench.compare("time", BARE, PUBLISH, least=PUBLISH_OF_C)
    bench.compare("time", "fetch, bare calls", "fetch, atomic", least=PUBLISH_OF_C)
    for name in FETCHES:
        for of in (name, f"{name}, elsewhere"):
            bench.compare("time", of, FILE, most=FETCH_OF_FILE)
        bench.compare("time", name, BUFFER)
    return (f"{TENSORS} tensors; the pool has their memory already; fetches of a version on this host, and, elsewhere, of one that "
            "another process publishes")


def main(argv):
    return driver.main(["weights", *argv])


if __name__ == "__main__":
    driver.run_program(main)
