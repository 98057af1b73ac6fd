#!/usr/bin/env python3
"""Narrow rows and messages: tables whose values are f16, bf16 or int8, and values that travel so."""

import os
import subprocess
import tempfile
import unittest

import support
from support import harness, numpy, starling

SEED = 41
# What rounding to the nearest may take from a value, as a part of the largest one of its row.
NEAREST = {"f16": 2**-11, "bf16": 2**-8, "int8": 1 / 127}


def rows_of(random, count, dim):
    return random.standard_normal((count, dim), numpy.float32)


def error_of(rows, expected):
    """The largest difference, as a part of the largest value of its row."""
    return float((numpy.abs(rows - expected) / numpy.abs(expected).max(1, keepdims=True)).max())


class Precision(support.ClusterTest):
    def setUp(self):
        super().setUp()
        self.random = numpy.random.default_rng(SEED)

    def table(self, dim, optimizer=starling.Sum(), **options):
        name = f"{self.id().rpartition('.')[2]}/{len(self.client.tables())}"
        return self.client.sparse(name, dim, optimizer, **options)

    def test_narrow_rows(self):
        keys, rows = numpy.arange(30000), rows_of(self.random, 30000, 15)  # some slabs of rows
        sizes = {}
        for values in ("f32", "f16", "bf16", "int8"):
            table = self.table(15, values=values)
            table.assign(keys, rows)
            sizes[values] = table.stats().bytes_rows
            error = error_of(table.pull(keys), rows)
            with self.subTest(values):
                self.assertLessEqual(error, 2 * NEAREST.get(values, 0))
                self.assertEqual(error == 0, values == "f32")
        self.assertTrue(sizes["f32"] > sizes["f16"] == sizes["bf16"] > sizes["int8"], sizes)

    def test_updates_of_narrow_rows(self):
        """Many small steps, each far below the precision of the row, are right on average."""
        keys = numpy.arange(50)
        for values, slots in (("f16", "f16"), ("bf16", "bf16"), ("int8", "f32")):
            table = self.table(8, starling.SGD(lr=2**-10), init=starling.Constant(1.0), values=values, slots=slots)
            for _ in range(200):
                table.push(keys, numpy.ones((50, 8), numpy.float32))
            with self.subTest(values):
                rows = table.pull(keys)
                self.assertAlmostEqual(float(rows.mean()), 1 - 200 * 2**-10, delta=0.01)

    def test_specification(self):
        table = self.table(4, starling.Adagrad(), values="bf16", slots="f16")
        self.assertEqual((table.values, table.slots), ("bf16", "f16"))
        again = self.client.open(table.name)
        self.assertEqual((again.values, again.slots), ("bf16", "f16"))
        plain = self.table(4)
        self.assertEqual((plain.values, plain.slots), ("f32", "f32"))
        with self.assertRaisesRegex(starling.TableMismatch, "values bf16, not int8; slots f16, not f32"):
            self.client.sparse(table.name, 4, starling.Adagrad(), values="int8")

    def test_unknown_names(self):
        for options, text in (({"values": "fp16"}, "values: 'fp16'; accepted: 'f32', 'f16', 'bf16', 'int8'"),
                              ({"values": None}, "values: None; accepted: 'f32', "),
                              ({"slots": "int8"}, "slots: 'int8'; accepted: 'f32', 'f16', 'bf16'$"),
                              ({"encoding": "i8"}, "encoding: 'i8'; accepted: 'f32', 'f16', 'bf16', 'int8'"),
                              ({"encoding": ("bf16", "i8")}, "encoding: 'i8'; accepted"),
                              ({"encoding": ("bf16",)}, "encoding: .*accepted: one precision, or "),
                              ({"error_feedback": -1}, "error_feedback: -1; accepted: 0 to ")):
            with self.subTest(options), self.assertRaisesRegex(ValueError, text):
                self.table(4, **options)
        with self.client.step() as step, self.assertRaisesRegex(ValueError, "encoding: 'half'; accepted"):
            step.set_encoding("half")
        self.assertEqual([entry for entry in self.client.tables() if entry.name.startswith("test_unknown_names")], [])

    def test_encodings(self):
        """A pull is the nearest that the encoding has; a push is right on average."""
        keys, rows = numpy.arange(300), rows_of(self.random, 300, 6)
        for pull in ("f16", "bf16", "int8"):
            table = self.table(6, encoding=(pull, "f32"))
            table.push(keys, rows)
            with self.subTest(pull):
                error = error_of(table.pull(keys), rows)
                self.assertTrue(0 < error <= NEAREST[pull], error)
                bags = table.pull_bags(keys, numpy.arange(0, 300, 3))
                parts = rows.reshape(-1, 3, 6)  # each of two shards rounds the sum of its rows
                largest = numpy.abs(parts).sum(1).max(1, keepdims=True)
                self.assertLessEqual(float((numpy.abs(bags - parts.sum(1)) / largest).max()), 2 * NEAREST[pull])
        for push in ("f16", "bf16", "int8"):
            table = self.table(6, encoding=("f32", push))
            for _ in range(50):
                table.push(keys, rows)
            with self.subTest(push):
                error = error_of(table.pull(keys), 50 * rows)
                self.assertTrue(0 < error <= NEAREST[push], error)  # of 50 pushes, each of which may differ by twice as much

    def test_error_feedback(self):
        """The sum of what is sent differs from the sum of the gradients by one rounding, however many there were."""
        keys, rows = numpy.arange(100), rows_of(self.random, 100, 6)
        table = self.table(6, encoding=("f32", "int8"), error_feedback=1 << 20)
        for _ in range(40):
            table.push(keys, rows)
        self.assertLessEqual(error_of(table.pull(keys), 40 * rows), 2 * NEAREST["int8"] / 40)

    def test_encoding_of_a_step(self):
        keys, rows = numpy.arange(10), rows_of(self.random, 10, 3)
        table = self.table(3)
        table.assign(keys, rows)
        with self.client.step() as step:
            exact = step.pull(table, keys)
            step.set_encoding("bf16")
            narrow = step.pull(table, keys)
        self.assert_rows(exact, rows)
        self.assertEqual(numpy.count_nonzero(narrow.view(numpy.uint32) & 0xffff), 0)
        table.set_encoding("bf16")
        self.assert_rows(table.pull(keys), narrow)
        with self.client.step() as step:
            step.set_encoding("f32")
            exact = step.pull(table, keys)
        self.assert_rows(exact, rows)

    def test_dense_tables(self):
        values = rows_of(self.random, 1, 3000)[0]
        table = self.dense(3000, starling.Sum(), encoding=("bf16", "int8"), error_feedback=1 << 20)
        for _ in range(10):
            table.push(values)
        numpy.testing.assert_allclose(table.pull(), 10 * values, rtol=2**-8, atol=0.1)
        with self.assertRaisesRegex(starling.InvalidError, "int8"):
            table.set_encoding("int8")
        with self.assertRaises(TypeError):
            self.dense(3000, starling.Sum(), values="bf16")

    def test_int8_gradients_are_finite(self):
        table = self.table(2, encoding=("f32", "int8"), reject_nonfinite=False)
        with self.assertRaisesRegex(starling.InvalidError, "7"):
            table.push([5, 7], numpy.array([[1, 2], [numpy.nan, 1]], numpy.float32))
        self.assert_rows(table.pull([5, 7]), numpy.zeros((2, 2)))

    def test_arrays_of_float16(self):
        """They are widened once; what they receive is the nearest."""
        keys, rows = numpy.arange(20), rows_of(self.random, 20, 3).astype(numpy.float16)
        table = self.table(3)
        table.push(keys, rows)
        table.assign([30], rows[:1])
        self.assert_rows(table.pull([*keys, 30]), [*rows, rows[0]])
        out = numpy.zeros((20, 3), numpy.float16)
        self.assertIs(table.pull(keys, out), out)
        numpy.testing.assert_array_equal(out, rows)
        table.push(keys, numpy.full((20, 3), 2**-13, numpy.float32))
        with self.client.step() as step:
            self.assertIs(step.pull(table, keys, out=out[:, :]).base, out)
            later = step.pull_bags(table, keys, [0], out=numpy.zeros((1, 3), numpy.float16))
        numpy.testing.assert_array_equal(out, (rows + numpy.float32(2**-13)).astype(numpy.float16))
        numpy.testing.assert_allclose(later[0], rows.astype(numpy.float32).sum(0), rtol=2**-9, atol=0.01)

    def test_an_error_leaves_float16_as_it_was(self):
        table = self.table(2)
        out = numpy.full((1, 2), 5, numpy.float16)
        with self.assertRaises(ValueError):
            table.pull([1, 2], out)
        with self.assertRaises(RuntimeError), self.client.step() as step:
            step.pull(table, [1], out=out)
            raise RuntimeError
        self.assertEqual(out.tolist(), [[5, 5]])
        out.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "read-only"):
            table.pull([1], out)


class Checkpoints(unittest.TestCase):
    """A checkpoint has what the servers have: an export and a restored job have the same values, and go on alike."""

    def open(self, client, values, slots):
        return client.sparse("t", 6, starling.Adagrad(lr=0.1), starling.Normal(std=0.1), values=values, slots=slots)

    def check(self, folder, values, slots):
        random, keys = numpy.random.default_rng(SEED), numpy.arange(1000)
        more = rows_of(random, 1000, 6)
        with starling.local_cluster(2, checkpoint_dir=folder) as cluster, cluster.connect(timeout=harness.DEADLINE_S) as client:
            table = self.open(client, values, slots)
            for _ in range(10):
                table.push(keys, rows_of(random, 1000, 6))
            rows, found = table.find(keys)
            self.assertTrue(found.all())
            state = self.state(table)
            number = str(client.checkpoint())
            table.push(keys, more)
            later = self.state(table)
        path = os.path.join(folder, "out.npz")
        subprocess.run([harness.program("starling-ckpt"), "export", folder, number, "--out", path], check=True, capture_output=True)
        with numpy.load(path) as exported:
            numpy.testing.assert_array_equal(exported["t.values"][numpy.argsort(exported["t.keys"])], rows)
        with starling.local_cluster(3, checkpoint_dir=folder, restore=number) as cluster, \
                cluster.connect(timeout=harness.DEADLINE_S) as client:
            table = self.open(client, values, slots)
            numpy.testing.assert_array_equal(self.state(table), state)
            table.push(keys, more)
            numpy.testing.assert_array_equal(self.state(table), later)

    @staticmethod
    def state(table):
        """Rows and slots, by key."""
        batches = list(table.scan(slots=True))
        order = numpy.argsort(numpy.concatenate([batch.keys for batch in batches]))
        return numpy.concatenate([numpy.concatenate([batch.rows, batch.slots], 1) for batch in batches])[order]

    def test_restored_and_exported(self):
        for values, slots in (("f16", "f16"), ("bf16", "f32"), ("int8", "bf16")):
            with self.subTest((values, slots)), tempfile.TemporaryDirectory() as folder:
                self.check(folder, values, slots)


class PrecisionOverTcp(Precision):
    shm = False


if __name__ == "__main__":
    harness.main()
