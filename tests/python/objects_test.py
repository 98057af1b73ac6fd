#!/usr/bin/env python3
"""starling.objects: versions of tensors between processes, what is refused, and what failures leave behind."""

import contextlib
import gc
import json
import logging
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import support
from support import harness, numpy, starling

from starling import objects
from starling.objects import Raw

try:
    import torch
except ImportError:
    torch = None

TIMEOUT = harness.DEADLINE_S
ELEMENTS = {"a": numpy.arange(10, dtype=numpy.float32).reshape(2, 5), "b": numpy.full(300000, 7, numpy.float32)}
NAMED = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64", "complex64")
RAW = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8", "float8_e8m0fnu": "uint8", "float8_e4m3fnuz": "uint8",
       "float8_e5m2fnuz": "uint8"}
NARROW = {"float4_e2m1fn": 4, "float6_e2m3fn": 6, "float6_e3m2fn": 6}


def zeros():
    return {name: numpy.zeros_like(array) for name, array in ELEMENTS.items()}


def weights(value):
    return {name: numpy.full_like(array, value) for name, array in ELEMENTS.items()}


@contextlib.contextmanager
def process(text, *arguments):
    """A Python process that runs the script; its standard input and output are pipes."""
    with subprocess.Popen([sys.executable, "-P", "-c", "import os, sys, numpy\nfrom starling import objects\n" + text, *arguments],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/tmp") as running:
        try:
            yield running
        finally:
            running.kill()


class NodeTest(unittest.TestCase):
    """Tests on a node that hosts a catalogue, and a second one."""

    @classmethod
    def setUpClass(cls):
        cls.node = objects.serve(pool_bytes=256 << 20)
        cls.addClassCleanup(cls.node.close)
        cls.other = objects.connect(cls.node.address)
        cls.addClassCleanup(cls.other.close)

    @property
    def name(self):
        return self.id().rpartition(".")[2]

    def publish(self, tensors=None, **options):
        return self.node.publish(self.name, ELEMENTS if tensors is None else tensors, timeout=TIMEOUT, **options)

    def fetch(self, into=None, **options):
        return self.other.fetch(self.name, into, timeout=options.pop("timeout", TIMEOUT), **options)

    def assert_tensors(self, found, expected):
        self.assertEqual(list(found), list(expected))
        for name, array in expected.items():
            numpy.testing.assert_array_equal(found[name], array, name)
            self.assertEqual(found[name].dtype, array.dtype)


class RoundTrips(NodeTest):
    def test_every_type_of_numpy(self):
        random = numpy.random.default_rng(1)
        given = {name: random.integers(0, 2, (3, 4)).astype(name) for name in NAMED}
        given.update(scalar=numpy.array(5, numpy.int32), empty=numpy.zeros((0, 3), numpy.float32), rank=numpy.zeros([1] * 8, numpy.int8))
        self.publish(given)
        self.assert_tensors(self.fetch().tensors, given)
        into = {name: numpy.ones_like(array) for name, array in given.items()}
        for atomic in (True, False):
            self.assertIs(self.fetch(into, atomic=atomic).tensors["int8"], into["int8"])
            self.assert_tensors(into, given)
        with self.other.view(self.name) as view:
            self.assert_tensors(view, given)

    def test_every_type_that_numpy_lacks_is_bytes(self):
        given = {name: Raw(name, (4, 3), numpy.arange(12, dtype=raw)) for name, raw in RAW.items()}
        given.update({name: Raw(name, (4, 8), bytes(range(4 * bits))) for name, bits in NARROW.items()})
        self.publish(given)
        expected = {name: numpy.arange(12, dtype=raw).reshape(4, 3) for name, raw in RAW.items()}
        expected.update({name: numpy.arange(4 * bits, dtype=numpy.uint8) for name, bits in NARROW.items()})
        with self.other.view(self.name) as view:
            self.assert_tensors(view, expected)
        into = {name: numpy.zeros_like(array) for name, array in expected.items()}
        self.fetch(into)
        self.assert_tensors(into, expected)

    def test_file_and_directory(self):
        with tempfile.TemporaryDirectory() as folder:
            entries, data = {"__metadata__": {"format": "pt"}}, b""
            for name, dtype, array in (("w", "F32", ELEMENTS["a"]), ("h", "BF16", numpy.arange(6, dtype=numpy.uint16))):
                entries[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + array.nbytes]}
                data += array.tobytes()
            header = json.dumps(entries).encode()
            path = os.path.join(folder, "one.safetensors")
            for file, content in ((path, header + data), (os.path.join(folder, "two.safetensors"), b"{}")):
                with open(file, "wb") as out:
                    out.write((len(header) if file == path else 2).to_bytes(8, "little") + content)
            for given in (path, folder):
                self.publish(given)
                with self.other.view(self.name) as view:
                    self.assert_tensors(view, {"w": ELEMENTS["a"], "h": numpy.arange(6, dtype=numpy.uint16)})
            for content in (b"", b"\xff" * 8, (4).to_bytes(8, "little") + b"[1]x", len(header).to_bytes(8, "little") + header,
                            (99).to_bytes(8, "little") + b"{}"):
                with open(path, "wb") as out:
                    out.write(content)
                with self.assertRaisesRegex(ValueError, "one.safetensors: no .safetensors file"):
                    self.publish(path)
            os.unlink(path)
            os.unlink(os.path.join(folder, "two.safetensors"))
            with self.assertRaisesRegex(ValueError, r"no file \*.safetensors"):
                self.publish(folder)
        with self.assertRaises(FileNotFoundError):
            self.publish("/nowhere/file.safetensors")

    def test_pairs_and_arrays_that_are_not_contiguous(self):
        wide = numpy.arange(24, dtype=numpy.float64).reshape(4, 6)
        self.publish((name, array) for name, array in (("t", wide.T), ("part", wide[::2, 1:3]), ("number", numpy.float32(2.5))))
        self.assert_tensors(self.fetch().tensors, {"t": wide.T, "part": wide[::2, 1:3], "number": numpy.array(2.5, numpy.float32)})

    def test_slices_and_casts(self):
        self.publish({**ELEMENTS, "steps": numpy.arange(4), "half": Raw("bfloat16", (2,), numpy.array([0x3F80, 0xC000], numpy.uint16))})
        got = self.fetch(dtype=numpy.float64, slices={"a": (slice(1, 2), slice(None, None, 2)), "b": slice(299999, None)})
        self.assert_tensors(got.tensors, {"a": ELEMENTS["a"][1:2, ::2].astype(numpy.float64), "b": numpy.array([7.0]),
                                          "steps": numpy.arange(4), "half": numpy.array([1.0, -2.0])})
        into = {"a": numpy.zeros((2, 1), numpy.float16), "b": numpy.zeros(300000, numpy.float16), "steps": numpy.zeros(4, numpy.int64),
                "half": numpy.zeros(2, numpy.float16)}
        self.fetch(into, dtype="float16", slices={"a": (slice(None), slice(4, 5))}, atomic=False)
        self.assertEqual(into["a"].tolist(), [[4], [9]])
        self.assertEqual(into["half"].tolist(), [1, -2])
        for slices in ({"none": slice(0, 1)}, {"a": (0, 1)}, {"a": "x"}, {"steps": (slice(0, 1), slice(0, 1))}):
            with self.assertRaisesRegex(ValueError, "none|accepted: (a tuple of slices|one for each dimension)"):
                self.fetch(slices=slices)

    def test_tied_and_large_tensors(self):
        big = numpy.arange(4 << 20, dtype=numpy.float32)
        self.publish({f"t{i}": big[i:] for i in range(3)})
        self.assert_tensors(self.fetch().tensors, {f"t{i}": big[i:] for i in range(3)})

    def test_parts_of_several_processes(self):
        script = "node = objects.connect(sys.argv[1])\nnode.publish('parts', {'p1': numpy.ones(3)}, 'one', 5, part=1, parts=2)\nsys.stdin.read()"
        with process(script, self.node.address):
            self.assertEqual(self.node.publish("parts", {"p0": numpy.zeros(3)}, "zero", 5, parts=2, timeout=TIMEOUT), 5)
            got = self.other.fetch("parts", timeout=TIMEOUT)
        self.assert_tensors(got.tensors, {"p0": numpy.zeros(3), "p1": numpy.ones(3)})
        self.assertEqual([each.parts for each in self.node.versions("parts")], [2])

    def test_two_parts_with_one_name(self):
        threads = [threading.Thread(target=node.publish, args=(self.name, {"w": numpy.zeros(1)}),
                                    kwargs={"version": 1, "part": part, "parts": 2, "timeout": TIMEOUT})
                   for part, node in enumerate((self.node, self.other))]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        for read in (self.fetch, lambda: self.other.view(self.name)):
            with self.assertRaisesRegex(starling.ExistsError, "several parts have a tensor w"):
                read()


class Versions(NodeTest):
    def test_numbers_notes_and_lists(self):
        self.assertEqual([self.publish(note="first"), self.publish(version=7), self.publish()], [1, 7, 8])
        listed = self.other.versions(self.name)
        self.assertEqual([each.version for each in listed], [1, 7, 8])
        self.assertEqual((listed[0].name, listed[0].note, listed[0].origin, listed[0].parts), (self.name, "first", "host", 1))
        self.assertAlmostEqual(listed[0].time, time.time(), delta=TIMEOUT)
        self.assertGreaterEqual(len(self.other.versions()), 3)
        got = self.fetch(version=1)
        self.assertEqual((got.version, got.note), (1, "first"))
        self.assertEqual(self.fetch().version, 8)
        self.other.wait_held(self.name, 8, nodes=2, timeout=TIMEOUT)
        self.assertEqual(self.node.publish(self.name, ELEMENTS, version=8), 8)  # the same bytes
        with self.assertRaisesRegex(starling.ExistsError, "publish") as raised:
            self.publish(weights(1), version=8)
        self.assertEqual((raised.exception.name, raised.exception.version, raised.exception.address), (self.name, 8, self.node.address))

    def test_memory_may_change_after_publish(self):
        live = weights(1)
        self.publish(live)
        for array in live.values():
            array[...] = 2
        self.assert_tensors(self.fetch().tensors, weights(1))

    def test_deltas(self):
        random = numpy.random.default_rng(1)
        changing = {"w": random.standard_normal(1000000).astype(numpy.float32)}
        for step in range(3):
            changing["w"][random.integers(0, 1000000, 10000)] += step
            number = self.publish(changing, delta=True)
            self.assert_tensors(self.fetch(version=number).tensors, changing)
        saved = re.search(r'^starling_objects_saved_bytes_total{by="delta"} (\d+)$', self.other.metrics(), re.MULTILINE)
        self.assertGreater(int(saved[1]), changing["w"].nbytes)
        deltas = self.node.versions(self.name + "~delta0", TIMEOUT)
        self.assertEqual([each.version for each in deltas], [2, 3])
        self.assertLess(sum(each.bytes for each in deltas), changing["w"].nbytes / 2)

    def test_follow_counts_what_it_skips(self):
        self.publish(weights(1))
        live, seen = zeros(), []
        for got in self.other.follow(self.name, live, timeout=TIMEOUT):
            seen.append((got.version, got.skipped, live["a"][0, 0]))
            if got.version >= 4:
                break
            for value in {1: (2,), 2: (3, 4)}.get(got.version, ()):
                self.publish(weights(value))
        self.assertEqual(seen[:2], [(1, 0, 1), (2, 0, 2)])
        self.assertEqual(sum(1 + skipped for _, skipped, _ in seen), 4)
        with self.assertRaises(starling.DeadlineError):
            for got in self.other.follow(self.name, timeout=0.2):
                self.assertEqual(got.version, 4)

    def test_staleness(self):
        self.publish()
        self.fetch()
        self.publish()
        support.wait_until(lambda: self.other.staleness(self.name).behind == 1, "a newer version")
        found = self.other.staleness(self.name)
        self.assertEqual((found.version, found.newest, found.opened), (1, 2, 1))
        self.assertGreater(found.behind_seconds, 0)

    def test_views_share_memory_and_outlive_their_block(self):
        self.publish()
        with self.other.view(self.name) as first, self.other.view(self.name) as second:
            array = first["b"]
            self.assertFalse(array.flags.owndata or array.flags.writeable)
            self.assertEqual((len(second), second.version, "a" in second), (2, 1, True))
            with self.assertRaises(ValueError):
                array[0] = 1
            with self.assertRaises(ValueError):
                array.setflags(write=True)
            with self.assertRaises(KeyError):
                _ = first["c"]
        self.node.remove(self.name, "all")
        part = array[5:10]
        del array
        gc.collect()
        self.assertEqual(part.tolist(), [7] * 5)

    def test_removed_meanwhile(self):
        self.publish(version=1)
        self.publish(version=2)
        with self.other.view(self.name, 1) as view:
            self.node.remove(self.name, 1)
            with self.assertRaisesRegex(starling.NotFoundError, "the oldest is 2"):
                self.fetch(version=1)
            self.assert_tensors(view, ELEMENTS)
        followed = self.other.follow(self.name, timeout=TIMEOUT)
        self.assertEqual(next(followed).version, 2)
        self.node.remove(self.name, 2)
        self.publish(version=3)
        self.assertEqual(next(followed).version, 3)
        with self.assertRaises(starling.NotFoundError):
            self.node.remove(self.name, 99)

    def test_two_publishers(self):
        self.publish()
        with self.assertRaisesRegex(starling.ExistsError, "take over"):
            self.other.publish(self.name, ELEMENTS)
        self.assertEqual(self.other.publish(self.name, ELEMENTS, take_over=True), 2)
        with self.assertRaises(starling.ExistsError):
            self.publish()

    def test_publisher_killed_in_mid_publication(self):
        self.publish(weights(1))
        script = ("node = objects.connect(sys.argv[1])\nprint('begun', flush=True)\n"
                  "node.publish('killed', {'w': numpy.ones(3)}, version=1, part=0, parts=2)\n")
        with process(script, self.node.address) as publisher:
            self.assertEqual(publisher.stdout.readline(), "begun\n")
            time.sleep(0.2)
            publisher.kill()
        live = {"w": numpy.zeros(3)}
        with self.assertRaises(starling.DeadlineError):
            self.other.fetch("killed", live, timeout=0.5)
        self.assertEqual(live["w"].tolist(), [0, 0, 0])
        self.assertEqual(self.node.publish("killed", {"w": numpy.full(3, 2.0)}, take_over=True, timeout=TIMEOUT), 2)
        self.other.fetch("killed", live, timeout=TIMEOUT)
        self.assertEqual(live["w"].tolist(), [2, 2, 2])

    def test_holder_killed_in_mid_fetch(self):
        script = ("node = objects.connect(sys.argv[1], pool_bytes=1 << 29)\n"
                  "node.publish('slow', {str(i): numpy.ones(1 << 20) for i in range(24)})\nprint('done', flush=True)\nsys.stdin.read()")
        live = {str(i): numpy.zeros(1 << 20) for i in range(24)}
        with process(script, self.node.address) as holder:
            self.assertEqual(holder.stdout.readline(), "done\n")
            threading.Timer(0.03, holder.kill).start()
            try:
                self.other.fetch("slow", live, timeout=1.5)
                expected = 1
            except starling.StarlingError:
                expected = 0
            self.assertEqual({array.min() for array in live.values()} | {array.max() for array in live.values()}, {expected})


class Refused(NodeTest):
    def setUp(self):
        self.publish({**ELEMENTS, "c": numpy.zeros(3, numpy.int32)})

    def test_into(self):
        fitting = {**zeros(), "c": numpy.ones(3, numpy.int32)}
        frozen = numpy.zeros((2, 5), numpy.float32)
        frozen.flags.writeable = False
        rows = [
            (ValueError, {"a": fitting["a"]}, "2 tensors of the version are not in `into`: b, c"),
            (ValueError, {**fitting, "x": 1, "y": 2, "z": 3, "q": 4}, "4 tensors of `into` are not in the version: x, y, z and 1 more"),
            (ValueError, {**fitting, "a": numpy.zeros((5, 2), numpy.float32)}, r"shape \(5, 2\); the version has float32 of shape \(2, 5\)"),
            (TypeError, {**fitting, "a": numpy.zeros((2, 5))}, r"a: float64 of shape \(2, 5\); the version has float32"),
            (TypeError, {**fitting, "a": numpy.zeros((2, 5), ">f4")}, "machine's byte order"),
            (ValueError, {**fitting, "a": numpy.zeros((5, 2), numpy.float32).T}, "strides .*accepted: a contiguous array"),
            (ValueError, {**fitting, "a": frozen}, "read-only"),
            (TypeError, {**fitting, "a": [[0.0] * 5] * 2}, "a: list; accepted: an array"),
            (TypeError, {**fitting, "a": None, "b": None, "c": None}, "3 of the tensors do not fit: a: NoneType.*; b: .*; c: ")]
        for kind, into, text in rows:
            before = {name: numpy.array(value) for name, value in into.items()}
            for atomic in (True, False):
                with self.subTest(text=text, atomic=atomic), self.assertRaisesRegex(kind, text):
                    self.fetch(into, atomic=atomic)
            for name, value in into.items():
                numpy.testing.assert_array_equal(value, before[name])
        many = {f"t{i}": numpy.zeros(1) for i in range(5)}
        self.publish(many)
        with self.assertRaisesRegex(TypeError, "5 of the tensors do not fit: t0.*; t1.*; t2.*; and 2 more"):
            self.fetch({name: numpy.zeros(1, numpy.float32) for name in many})

    def test_arguments(self):
        node, name = self.node, self.name
        rows = [
            (lambda: self.fetch(version="last"), ValueError, "version: 'last'; accepted: \"newest\""),
            (lambda: self.fetch(version=0), ValueError, "version: 0; accepted: 1 to"),
            (lambda: self.fetch(version=1.5), ValueError, "version: 1.5"),
            (lambda: self.fetch(timeout=0), ValueError, "timeout: 0; accepted: seconds, above 0, at most 3600"),
            (lambda: self.fetch(timeout=3601), ValueError, "timeout: 3601"),
            (lambda: self.fetch(dtype="f9"), TypeError, "dtype: 'f9'; accepted: bool"),
            (lambda: self.fetch(timeout=float("nan")), ValueError, "timeout: nan"),
            (lambda: self.other.fetch("a b", timeout=1), ValueError, "no blank"),
            (lambda: self.other.fetch("", timeout=1), ValueError, "1 to 191 bytes"),
            (lambda: self.other.fetch(3, timeout=1), ValueError, "name: 3; accepted: a text"),
            (lambda: node.publish(name, ELEMENTS, note="x" * 256), ValueError, "note"),
            (lambda: node.publish(name, ELEMENTS, note="a\nb"), ValueError, "control"),
            (lambda: node.publish(name, ELEMENTS, version=-1), ValueError, "version: -1"),
            (lambda: node.publish(name, ELEMENTS, part=2, parts=2, version=9), ValueError, "part 2 of 2"),
            (lambda: node.publish(name, ELEMENTS, parts=2), ValueError, "its number is given"),
            (lambda: node.publish(name, {"w": object()}), TypeError, "w: object; accepted"),
            (lambda: node.publish(name, {"w": numpy.zeros(2, "U3")}), TypeError, "w: <U3; accepted: bool, uint8"),
            (lambda: node.publish(name, {"w": numpy.zeros(2, ">i4")}), TypeError, "byte order"),
            (lambda: node.publish(name, {"": numpy.zeros(2)}), ValueError, "no name of a tensor"),
            (lambda: node.publish(name, {"x" * 256: numpy.zeros(2)}), ValueError, "1 to 255 bytes"),
            (lambda: node.publish(name, {4: numpy.zeros(2)}), ValueError, "4: no name"),
            (lambda: node.publish(name, [numpy.zeros(2)]), TypeError, "accepted: pairs of name and tensor"),
            (lambda: node.publish(name, [("w", numpy.zeros(2))] * 2), starling.ExistsError, "w"),
            (lambda: node.publish(name, {"w": numpy.zeros([1] * 9)}), ValueError, "9 dimensions"),
            (lambda: node.publish(name, {"w": Raw("bfloat16", (3,), b"12345")}), ValueError, "5 bytes; accepted: as many"),
            (lambda: node.publish(name, {"w": Raw("nope", (3,), b"123")}), TypeError, "nope; accepted"),
            (lambda: node.publish(name, {"w": numpy.zeros(300 << 20, numpy.int8)}), starling.TooLargeError, "the pool has"),
            (lambda: node.remove(name, "newest"), ValueError, "accepted: a number from 1, or \"all\""),
            (lambda: node.wait_held(name, nodes=0), ValueError, "nodes: 0"),
            (lambda: node.wait_held(name, nodes=9, timeout=3), starling.DeadlineError, "of 9 holders"),
            (lambda: node.wait_held("none"), starling.NotFoundError, "none"),
            (lambda: self.other.fetch("none", timeout=0.2), starling.DeadlineError, "no version above 0 in time"),
            (lambda: self.other.view("none", timeout=0.2), starling.DeadlineError, "none"),
            (lambda: self.other.view(name, 99), starling.NotFoundError, "no version 99"),
            (lambda: objects.connect("127.0.0.1:1", timeout=0.3), starling.DeadlineError, "127.0.0.1:1"),
            (lambda: objects.connect("nonsense", timeout=0.3), starling.StarlingError, "nonsense"),
            (objects.connect, ValueError, "no catalogue; accepted"),
            (lambda: objects.connect(node.address, nope=1), ValueError, "nope: no option; accepted: secret_file, bytes_per_s_max"),
            (lambda: objects.connect(node.address, lanes="x"), ValueError, "lanes: 'x'; accepted: a number"),
            (lambda: objects.connect(node.address, pool_bytes=-1), ValueError, "pool_bytes: -1"),
            (lambda: objects.connect(node.address, name="10.1.2.3:0"), starling.RefusedError, "secret"),
            (lambda: objects.serve(name=node.address), starling.InUseError, "in use"),
            (lambda: objects.serve("/nowhere/at/all"), starling.StarlingError, "did not start"),
            (lambda: pickle.dumps(node), TypeError, "cannot be pickled")]
        for call, kind, text in rows:
            with self.subTest(text=text), self.assertRaisesRegex(kind, text):
                call()
        self.assert_tensors(self.fetch(version=1).tensors, {**ELEMENTS, "c": numpy.zeros(3, numpy.int32)})

    def test_secret(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "secret")
            for content, mode, text in ((b"short", 0o600, "5 bytes; accepted: 16 to 1024"), (b"x" * 32, 0o644, "chmod 600")):
                with open(path, "wb") as file:
                    file.write(content)
                os.chmod(path, mode)
                with self.assertRaisesRegex(ValueError, text):
                    objects.serve(secret_file=path)
            os.chmod(path, 0o600)
            with objects.serve(name="127.0.0.1:0", secret_file=path) as node, objects.connect(node.address, secret_file=path) as other:
                node.publish("w", ELEMENTS)
                self.assert_tensors(other.fetch("w", timeout=TIMEOUT).tensors, ELEMENTS)
                with self.assertRaises(starling.DeadlineError):
                    objects.connect(node.address, timeout=0.5)


class Lives(NodeTest):
    def interrupt(self, call):
        """Seconds from Ctrl-C to KeyboardInterrupt."""
        sent = []

        def send():
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
        timer = threading.Timer(0.3, send)
        timer.start()
        with self.assertRaises(KeyboardInterrupt):
            call()
        took = time.monotonic() - sent[0]
        timer.join()
        return took

    def test_interrupts(self):
        self.publish()
        dead = objects.connect(self.node.address)
        self.addCleanup(dead.close)
        for what, call in (
                ("fetch", lambda: self.other.fetch("none", timeout=TIMEOUT)),
                ("view", lambda: self.other.view("none", timeout=TIMEOUT)),
                ("follow", lambda: next(self.other.follow("none"))),
                ("wait_held", lambda: self.other.wait_held(self.name, nodes=9, timeout=TIMEOUT)),
                ("parts", lambda: self.node.publish("half", ELEMENTS, version=1, parts=2, timeout=TIMEOUT)),
                ("connect", lambda: objects.connect("127.0.0.1:1", timeout=TIMEOUT))):
            with self.subTest(what=what):
                self.assertLess(self.interrupt(call), TIMEOUT / 4)  # it does not wait for the deadline
        self.assert_tensors(self.fetch().tensors, ELEMENTS)  # and the nodes go on
        self.publish()

    def test_close_ends_calls_of_other_threads(self):
        node = objects.connect(self.node.address)
        errors = []

        def wait():
            try:
                node.fetch("none", timeout=TIMEOUT)
            except starling.StarlingError as error:
                errors.append(error)
        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.2)
        node.close()
        node.close()
        thread.join(TIMEOUT / 2)
        self.assertEqual(len(errors), 1)
        with self.assertRaisesRegex(starling.ClosedError, "the node is closed"):
            node.fetch("none")

    def test_arrays_outlive_their_node(self):
        self.publish()
        with objects.connect(self.node.address) as node:
            array = node.view(self.name, timeout=TIMEOUT)["b"]
        self.assertEqual(array[0], 7)

    def test_fork(self):
        self.publish()
        view = self.other.view(self.name, timeout=TIMEOUT)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                for call in (lambda: self.other.fetch(self.name), self.publish, self.other.versions, lambda: self.other.view(self.name)):
                    try:
                        call()
                    except starling.ForkError:
                        continue
                    os._exit(2)
                view.close()
                self.other.close()
                with objects.connect(self.node.address, agent="off") as own:
                    own.fetch(self.name, timeout=TIMEOUT)
                status = 0
            finally:
                os._exit(status)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assert_tensors(view, ELEMENTS)
        view.close()

    def test_log_goes_to_logging(self):
        with self.assertLogs("starling", logging.INFO) as logs, objects.serve() as node:
            node.publish("w", ELEMENTS)
            node.fetch("w", timeout=TIMEOUT)
            support.wait_until(lambda: any("views use the memory" in line for line in logs.output), "a line")

    def test_threads_share_a_node(self):
        self.publish()
        found = []

        def read():
            for _ in range(20):
                with self.other.view(self.name, timeout=TIMEOUT) as view:
                    found.append(int(view["b"][0]))
                    self.other.fetch(self.name, timeout=TIMEOUT)
        threads = [threading.Thread(target=read) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertEqual(found, [7] * 80)


class Places(unittest.TestCase):
    def test_directory_keeps_versions(self):
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(2):
                with objects.serve(folder) as node:
                    before = len(node.versions("w"))
                    node.publish("w", ELEMENTS, timeout=TIMEOUT)
                    self.assertEqual([each.origin for each in node.versions("w")], ["ps"] * (before + 1))
                    numpy.testing.assert_array_equal(node.fetch("w", timeout=TIMEOUT).tensors["a"], ELEMENTS["a"])
            self.assertEqual(before, 1)

    def test_agent_keeps_versions_of_a_publisher_that_ended(self):
        agent = f"test-{os.getpid()}"
        with objects.serve() as node, subprocess.Popen(
                [os.path.join(harness.BIN, "starling-objects"), "serve", "--agent", "--agent-name", agent, "--name", "127.0.0.1:0",
                 "--catalogue", node.address], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
            try:
                running.stdout.readline()
                with objects.connect(node.address, agent=agent) as publisher:
                    publisher.publish("w", {**ELEMENTS, "tied": ELEMENTS["a"]}, timeout=TIMEOUT)
                with objects.connect(node.address, agent=agent) as reader, reader.view("w", timeout=TIMEOUT) as view:
                    numpy.testing.assert_array_equal(view["b"], ELEMENTS["b"])
                    reader.fetch("w", {**zeros(), "tied": numpy.zeros((2, 5), numpy.float32)}, atomic=False, timeout=TIMEOUT)
            finally:
                running.terminate()

    def test_launcher_names_the_catalogue(self):
        script = ("from starling import objects\nimport numpy\n"
                  "for start in (objects.serve, objects.connect):\n"
                  "    with start() as node:\n"
                  "        node.publish('w', {'a': numpy.ones(3)}, take_over=True)\n"
                  "        print('sum', node.fetch('w').tensors['a'].sum(), flush=True)\n")
        done = subprocess.run([os.path.join(harness.BIN, "starling-launch"), "--ps", "1", "--workers", "1", "--objects", "--agents", "--",
                               sys.executable, "-P", "-c", script], capture_output=True, text=True, check=False, timeout=TIMEOUT)
        self.assertEqual((done.stdout + done.stderr).count("sum 3.0"), 2, done.stdout + done.stderr)


@unittest.skipIf(torch is None, "needs torch (Debian: python3-torch)")
class Torch(NodeTest):
    def test_state_dict_in_place(self):
        model = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.BatchNorm1d(3)).bfloat16()
        copy = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.BatchNorm1d(3)).bfloat16()
        self.publish(model.state_dict())
        for atomic in (True, False):
            with torch.no_grad():
                for each in copy.parameters():
                    each.zero_()
            self.fetch(copy.state_dict(), atomic=atomic)
            for name, value in model.state_dict().items():
                self.assertTrue(torch.equal(value, copy.state_dict()[name]), name)

    def test_every_type(self):
        names = [name for name in (*NAMED, *RAW) if hasattr(torch, name)]
        given = {name: torch.arange(12).reshape(3, 4).remainder(2).to(torch.float32).to(getattr(torch, name)) for name in names}
        given["scalar"] = torch.tensor(5)
        self.publish(given)
        found = self.fetch().torch()
        with self.other.view(self.name) as view:
            for name, tensor in given.items():
                self.assertTrue(torch.equal(found[name], tensor) and found[name].dtype == tensor.dtype, name)
                self.assertTrue(torch.equal(view.torch(name), tensor), name)
        self.assertIsInstance(self.fetch().tensors["bfloat16"], torch.Tensor)
        into = {name: torch.zeros_like(tensor) for name, tensor in given.items()}
        into["bfloat16"] = numpy.zeros((3, 4), numpy.uint16)
        self.fetch(into)
        self.assertEqual(int(into["bfloat16"][0, 1]), 0x3F80)
        self.assertTrue(torch.equal(into["complex64"], given["complex64"]))

    def test_views_of_torch(self):
        wide = torch.arange(24, dtype=torch.float32).reshape(4, 6)
        bits = torch.complex(torch.ones(3), torch.ones(3)).conj()
        self.publish({"t": wide.t(), "param": torch.nn.Parameter(wide), "conj": bits})
        got = self.fetch().torch()
        self.assertTrue(torch.equal(got["t"], wide.t()) and torch.equal(got["param"], wide) and torch.equal(got["conj"], bits.resolve_conj()))

    def test_casts(self):
        self.publish({"w": torch.tensor([1.0, 2.5, -3.0]), "h": torch.tensor([0.5, 3.0], dtype=torch.bfloat16), "n": torch.tensor([3])})
        got = self.fetch(dtype=torch.bfloat16, slices={"w": (slice(1, 3),)}).tensors
        self.assertEqual((got["w"].dtype, got["w"].tolist(), got["n"].dtype), (torch.bfloat16, [2.5, -3.0], numpy.int64))
        into = {"w": torch.zeros(3, dtype=torch.float64), "h": torch.zeros(2, dtype=torch.float64), "n": torch.zeros(1, dtype=torch.int64)}
        self.fetch(into, dtype="float64")
        self.assertEqual((into["w"].tolist(), into["h"].tolist()), ([1.0, 2.5, -3.0], [0.5, 3.0]))

    def test_refused(self):
        self.publish({"w": torch.zeros(2, 3)})
        for kind, tensor, text in (
                (ValueError, torch.zeros(2, 3, device="meta"), "a tensor on meta; accepted: memory of the host"),
                (ValueError, torch.zeros(3, 2).t(), "accepted: a contiguous tensor"),
                (TypeError, torch.zeros(2, 3).to_sparse(), "torch.sparse_coo; accepted: torch.strided"),
                (TypeError, torch.zeros(2, 3).bfloat16(), r"bfloat16 of shape \(2, 3\); the version has float32")):
            with self.subTest(text=text), self.assertRaisesRegex(kind, text):
                self.fetch({"w": tensor})
        with self.assertRaisesRegex(TypeError, "complex128"):
            self.publish({"w": torch.zeros(2, dtype=torch.complex128)})


if __name__ == "__main__":
    harness.main()
