#!/usr/bin/env python3
"""Values of tables against NumPy's arithmetic, over shared memory and TCP."""

import contextlib
import dataclasses
import json
import threading
import urllib.error
import urllib.request
from unittest import mock

import support
from support import harness, numpy, starling

import formulas_test  # after support, which adds its folder

SEED = 20


def rows_of(random, count, dim):
    return random.standard_normal((count, dim), numpy.float32)


class Sparse(support.ClusterTest):
    def test_pull_of_missing_keys(self):
        table = self.sparse(3, init=starling.Constant(0.5))
        rows = table.pull([7, 9, 7])
        self.assertEqual(rows.dtype, numpy.float32)
        self.assert_rows(rows, numpy.full((3, 3), 0.5))

    def test_pull_of_no_keys(self):
        table = self.sparse(3)
        self.assertEqual(table.pull([]).shape, (0, 3))
        table.push(numpy.empty(0, numpy.int64), numpy.empty((0, 3), numpy.float32))
        self.assertEqual(table.pull_bags([], []).shape, (0, 3))

    def test_pull_into_out(self):
        table = self.sparse(2, init=starling.Constant(1.5))
        out = numpy.zeros((2, 2), numpy.float32)
        self.assertIs(table.pull([1, 2], out), out)
        self.assert_rows(out, numpy.full((2, 2), 1.5))
        self.assertIs(table.pull([1, 2], out=out), out)

    def test_kinds_of_keys(self):
        table = self.sparse(1, starling.Sum())
        for keys in ([5, 6], (5, 6), range(5, 7), numpy.array([5, 6], numpy.int32), numpy.array([5, 6], numpy.uint8),
                     numpy.array([5, 0, 6, 0])[::2], numpy.array([5, 6], ">i8"), memoryview(numpy.array([5, 6]))):
            table.push(keys, numpy.ones((2, 1), numpy.float32))
        self.assert_rows(table.pull([5, 6]), [[8], [8]])

    def test_negative_keys_are_the_large_ones(self):
        table = self.sparse(1, starling.Sum())
        table.push(numpy.array([2**64 - 1], numpy.uint64), numpy.ones((1, 1), numpy.float32))
        self.assert_rows(table.pull(numpy.array([-1], numpy.int64)), [[1]])
        self.assert_rows(table.pull(numpy.array([-1], numpy.int32)), [[1]])

    def test_sgd(self):
        table = self.sparse(4, starling.SGD(lr=0.5))
        random = numpy.random.default_rng(SEED)
        weights = numpy.zeros((50, 4), numpy.float32)
        for _ in range(20):
            keys = random.permutation(50)[:30]
            grads = rows_of(random, 30, 4)
            weights[keys] -= numpy.float32(0.5) * grads
            table.push(keys, grads)
        self.assert_rows(table.pull(numpy.arange(50)), weights)

    def test_gradients_of_repeated_keys_are_added(self):
        table = self.sparse(2, starling.SGD(lr=1.0))
        table.push([3, 4, 3], numpy.array([[1, 2], [10, 20], [4, 8]], numpy.float32))
        self.assert_rows(table.pull([3, 4]), [[-5, -10], [-10, -20]])

    def test_adagrad(self):
        table = self.sparse(3, starling.Adagrad(lr=0.1, epsilon=1e-6, initial_accumulator=0.25))
        random = numpy.random.default_rng(SEED)
        weights, squares = numpy.zeros((10, 3), numpy.float32), numpy.full((10, 3), 0.25, numpy.float32)
        for _ in range(30):
            grads = rows_of(random, 10, 3)
            squares += grads * grads
            weights -= numpy.float32(0.1) * grads / (numpy.sqrt(squares) + numpy.float32(1e-6))
            table.push(numpy.arange(10), grads)
        numpy.testing.assert_allclose(table.pull(numpy.arange(10)), weights, rtol=1e-5, atol=1e-6)

    def test_stats(self):
        table = self.sparse(2, starling.Sum())
        counts = table.stats()._asdict()
        self.assertEqual({name for name, count in counts.items() if count and not name.startswith("bytes")}, set())
        self.assertGreater(counts["bytes"], 0)
        keys = numpy.arange(100)
        table.pull(keys)
        table.push(keys, numpy.ones((100, 2), numpy.float32))
        table.push(keys, numpy.ones((100, 2), numpy.float32))
        stats = table.stats(timeout=harness.DEADLINE_S)
        self.assertEqual(stats[:1] + stats[2:11], (100, 100, 200, 2, 0, 0, 0, 0, 100, 0))
        self.assertGreaterEqual(stats.bytes, 100 * 2 * 4)
        self.client.close()
        with self.assertRaises(starling.ClosedError):
            table.stats()

    def test_metrics(self):
        table = self.sparse(2)
        before = self._pulls()
        table.pull(numpy.arange(100))
        self.assertEqual(self._pulls(), before + self.client.shard_count)

    def _pulls(self):
        series = 'starling_client_requests_total{op="pull"} '
        return sum(int(line.removeprefix(series)) for line in self.client.metrics().splitlines() if line.startswith(series))

    def test_push_pull(self):
        table = self.sparse(2, starling.Sum())
        grads = numpy.array([[1, 2], [3, 4]], numpy.float32)
        self.assert_rows(table.push_pull([1, 2], grads), grads)
        out = numpy.empty((2, 2), numpy.float32)
        self.assertIs(table.push_pull([1, 2], grads, out), out)
        self.assert_rows(out, 2 * grads)

    def test_pull_bags(self):
        table = self.sparse(4, starling.Sum())
        random = numpy.random.default_rng(SEED)
        rows = rows_of(random, 20, 4)
        table.push(numpy.arange(20), rows)
        keys = random.integers(0, 20, 12)
        offsets = numpy.array([0, 5, 5, 9])
        bags = [keys[0:5], keys[5:5], keys[5:9], keys[9:12]]
        sums = [rows[bag].sum(axis=0) for bag in bags]
        means = [rows[bag].mean(axis=0) if len(bag) else numpy.zeros(4) for bag in bags]
        numpy.testing.assert_allclose(table.pull_bags(keys, offsets), sums, rtol=1e-5, atol=1e-6)
        numpy.testing.assert_allclose(table.pull_bags(keys, offsets, "mean"), means, rtol=1e-5, atol=1e-6)
        out = numpy.empty((4, 4), numpy.float32)
        self.assertIs(table.pull_bags(keys, offsets, mode="sum", out=out), out)

    def test_memory_of_the_client(self):
        table = self.sparse(16, starling.Sum())
        keys = numpy.arange(2000)
        grads, out = self.client.empty((2000, 16)), self.client.empty((2000, 16))
        self.assert_rows(out, numpy.zeros((2000, 16)))
        grads[:] = rows_of(numpy.random.default_rng(SEED), 2000, 16)
        table.push(keys, grads)
        self.assertIs(table.pull(keys, out), out)
        self.assert_rows(out, grads)
        self.assertEqual(self.client.empty((0, 3)).shape, (0, 3))
        self.assertEqual(self.client.empty(5).shape, (5,))

    def test_seeds_of_initializers(self):
        normal = starling.Normal(std=0.1, seed=3)
        rows = [self.client.sparse(f"seeds-{i}", 8, init=normal).pull([1, 2]) for i in range(2)]
        self.assert_rows(rows[0], rows[1])
        other = self.client.sparse("seeds-2", 8, init=dataclasses.replace(normal, seed=4)).pull([1, 2])
        self.assertTrue((rows[0] != other).any())
        uniform = self.client.sparse("seeds-3", 8, init=starling.Uniform(1.0, 2.0)).pull(range(100))
        self.assertTrue(((uniform >= 1) & (uniform < 2)).all())


class SparseOverTcp(Sparse):
    shm = False


class Dense(support.ClusterTest):
    def test_push_and_pull(self):
        table = self.dense(1000, starling.SGD(lr=0.25))
        grads = numpy.random.default_rng(SEED).standard_normal(1000, numpy.float32)
        table.push(grads)
        self.assert_rows(table.pull(), numpy.float32(-0.25) * grads)
        self.assertEqual(table.length, 1000)

    def test_a_part(self):
        table = self.dense(100, starling.Sum())
        table.push(numpy.arange(1, 11, dtype=numpy.float32), start=40)
        self.assert_rows(table.pull(start=39, count=4), [0, 1, 2, 3])
        out = numpy.empty(3, numpy.float32)
        self.assertIs(table.pull(out, start=48), out)
        self.assert_rows(out, [9, 10, 0])
        self.assert_rows(table.push_pull(numpy.ones(2, numpy.float32), start=49), [11, 1])
        self.assertEqual(table.pull(start=100).shape, (0,))

    def test_initializer(self):
        self.assert_rows(self.dense(5, init=starling.Constant(2.0)).pull(), [2] * 5)


    def test_stats(self):
        table = self.dense(10)
        table.pull(count=4)
        self.assertEqual((table.stats().rows, table.stats().pulled_rows, table.stats().steps), (10, 4, 0))
        table.push(numpy.ones(10, numpy.float32))
        self.assertEqual((table.stats().pushed_rows, table.stats().steps), (10, 1))


class DenseOverTcp(Dense):
    shm = False


class Steps(support.ClusterTest):
    def test_operations_on_several_tables(self):
        sparse, dense = self.sparse(2, starling.Sum()), self.client.dense("steps-dense", 4, starling.Sum())
        with self.client.step() as step:
            step.push(sparse, [1], numpy.array([[1, 2]], numpy.float32))
            step.push(dense, numpy.ones(2, numpy.float32), start=1)
            rows = step.pull(sparse, [1, 2])
            values = step.pull(dense)
            bags = step.pull_bags(sparse, [1, 1], [0], "sum")
        self.assertTrue(step.done)
        self.assert_rows(rows, [[1, 2], [0, 0]])
        self.assert_rows(values, [0, 1, 1, 0])
        self.assert_rows(bags, [[2, 4]])

    def test_submit_and_wait(self):
        table = self.sparse(1, starling.Sum())
        step = self.client.step()
        out = numpy.empty((1, 1), numpy.float32)
        self.assertIs(step.push_pull(table, [1], numpy.ones((1, 1), numpy.float32), out), out)
        self.assertFalse(step.done)
        step.submit(timeout=harness.DEADLINE_S)
        while not step.wait(timeout=0.001):
            pass
        self.assertTrue(step.done)
        self.assertTrue(step.wait())
        self.assert_rows(out, [[1]])

    def test_many_under_way(self):
        table = self.sparse(1, starling.Sum())
        steps = []
        for key in range(100):
            steps.append(self.client.step())
            steps[-1].push(table, [key], numpy.full((1, 1), key, numpy.float32))
            steps[-1].submit()
        for step in steps:
            self.assertTrue(step.wait())
        self.assert_rows(table.pull(range(100)), numpy.arange(100).reshape(-1, 1))

    def test_block_that_raises_sends_nothing(self):
        table = self.sparse(1, starling.Sum())
        with self.assertRaises(KeyError), self.client.step() as step:
            step.push(table, [1], numpy.ones((1, 1), numpy.float32))
            raise KeyError
        self.assert_rows(table.pull([1]), [[0]])

    def test_block_without_operations(self):
        with self.client.step() as step:
            pass
        self.assertTrue(step.done)


OPTIMIZERS = (starling.Sum, starling.SGD, starling.Momentum, starling.Adagrad, starling.AdagradDecay, starling.RMSProp,
              starling.Adam, starling.AdamW, starling.AdamAsync, starling.FTRL, starling.FTRLGroup,
              starling.RowwiseAdagrad, starling.RowwiseAdam, starling.Adadelta, starling.Lion, starling.Lamb)
COMMON = ("weight_decay", "decay", "clip_norm", "value_bound")


class Optimizers(support.ClusterTest):
    servers = 1  # the formulas are those of a shard

    def test_formulas(self):
        """Each optimizer, with hyper-parameters that differ from all defaults, equals the f64 arithmetic of
        integration/formulas_test.py, which follows docs/protocol.md."""
        with mock.patch.dict(formulas_test.HYPER, lr_power=-0.75):
            for optimizer in OPTIMIZERS:
                for number, update in enumerate(formulas_test.UPDATES):
                    if "decay" not in update or optimizer._kind not in formulas_test.WITHOUT_DECAY:
                        with self.subTest(optimizer.__name__, update=update):
                            self.check(optimizer, number, update)

    def check(self, optimizer, number, update):
        own = [field for field in dataclasses.fields(optimizer) if field.name not in COMMON]
        hyper = {field.name: formulas_test.HYPER[field.name] for field in own}
        for field in own:
            self.assertNotEqual(hyper[field.name], field.default)
        if "decay" in update or optimizer in (starling.AdamW, starling.Lamb):
            hyper["weight_decay"] = formulas_test.HYPER["weight_decay"]
        asked = {name: (None, "l2", "decoupled")[value] if name == "decay" else value for name, value in update.items()}
        table = self.client.sparse(f"{optimizer.__name__}-{number}", formulas_test.DIM, optimizer(**hyper, **asked))
        row = formulas_test.Row(optimizer._kind, update)
        random = numpy.random.default_rng(SEED)
        for _ in range(50):
            grads = rows_of(random, 1, formulas_test.DIM)
            row.push(grads[0].tolist())
            numpy.testing.assert_allclose(table.push_pull([7], grads)[0], row.w, rtol=1e-4, atol=1e-5)


class Writes(support.ClusterTest):
    def test_assign(self):
        table = self.sparse(2, starling.Momentum(lr=1.0, momentum=0.5))
        ones = numpy.ones((1, 2), numpy.float32)
        table.push([1], ones)
        table.assign([1, 2], numpy.array([[3, 4], [5, 6]], numpy.float32))
        self.assert_rows(table.pull([1, 2]), [[3, 4], [5, 6]])
        table.push([1], ones)
        self.assert_rows(table.pull([1]), [[2, 3]])  # without the momentum of the first push

    def test_assign_elements(self):
        table = self.dense(6)
        with self.client.step() as step:
            step.assign(table, numpy.array([1, 2], numpy.float32), start=3)
            values = step.pull(table)
        self.assert_rows(values, [0, 0, 0, 1, 2, 0])
        table.assign(numpy.zeros(1, numpy.float32), start=4)
        self.assert_rows(table.pull(), [0, 0, 0, 1, 0, 0])

    def test_rate(self):
        table = self.sparse(1, starling.SGD(lr=1.0))
        one = numpy.ones((1, 1), numpy.float32)
        with self.client.step() as step:
            step.push(table, [1], one)
            step.set_rate(0.25)
            step.push(table, [2], one)
        self.assert_rows(table.pull([1, 2]), [[-1], [-0.25]])

    def test_find(self):
        table = self.sparse(3, starling.Sum(), starling.Constant(0.5))
        table.push([1, 3], numpy.ones((2, 3), numpy.float32))
        rows, found = table.find([0, 1, 2, 3])
        self.assert_rows(rows, table.pull([0, 1, 2, 3]))
        self.assertEqual(found.tolist(), [False, True, False, True])
        self.assertEqual(found.dtype, numpy.bool_)
        with self.client.step() as step:
            step.push(table, [2], numpy.ones((1, 3), numpy.float32))
            rows, found = step.find(table, [2, 0])
        self.assert_rows(rows, [[1.5] * 3, [0.5] * 3])
        self.assertEqual(found.tolist(), [True, False])
        self.assertEqual([array.size for array in table.find([])], [0, 0])
        self.assertEqual(table.stats().rows, 3)

    def test_scan(self):
        table = self.sparse(3, starling.Adagrad(lr=1.0, initial_accumulator=0.5))
        self.assertEqual(list(table.scan()), [])
        keys = numpy.arange(50_000, dtype=numpy.uint64)
        table.push(keys, numpy.ones((keys.size, 3), numpy.float32))
        steps = table.stats().steps
        table.push(keys[:100], numpy.ones((100, 3), numpy.float32))
        batches = list(table.scan(slots=True))
        found = numpy.concatenate([batch.keys for batch in batches])
        self.assertEqual(numpy.sort(found).tolist(), keys.tolist())
        self.assert_rows(numpy.concatenate([batch.rows for batch in batches]), table.pull(found))
        slots = numpy.concatenate([batch.slots for batch in batches])
        self.assertEqual(slots.shape, (50_000, 3))
        counts = numpy.concatenate([batch.counts for batch in batches])
        self.assert_rows(slots[:, 0], numpy.float32(0.5) + counts.astype(numpy.float32))
        self.assertEqual({batch.shard for batch in batches}, set(range(self.client.shard_count)))
        for some in (table.scan(count_min=2), table.scan(since=steps)):
            self.assertEqual(sorted(key for batch in some for key in batch.keys), list(range(100)))
        self.assertTrue(all(batch.slots.shape[1] == 0 for batch in table.scan()))
        with self.assertRaisesRegex(ValueError, "since: -1; accepted: 0 to"):
            table.scan(since=-1)

    def test_drop(self):
        name = self.id().rpartition(".")[2]
        table = self.sparse(2, starling.Sum())
        other = self.connect().sparse(name, 2, starling.Sum())
        table.push(range(1000), numpy.ones((1000, 2), numpy.float32))
        self.client.drop(name)
        for use in (lambda: table.pull([1]), lambda: other.push([1], numpy.ones((1, 2), numpy.float32)),
                    lambda: list(other.scan())):
            self.raises_dropped(use, name)
        with self.assertRaisesRegex(starling.NotFoundError, "no client has opened a table of the name"):
            self.client.drop(name)
        new = self.sparse(3, starling.Adagrad(lr=1.0))  # another table
        self.assertEqual(new.stats().rows, 0)
        self.assert_rows(new.pull([1]), [[0, 0, 0]])
        self.raises_dropped(lambda: table.pull([1]), name)
        with self.assertRaises(starling.InvalidError):
            self.client.drop("")

    def raises_dropped(self, use, name):
        with self.assertRaisesRegex(starling.NotFoundError, f"{name}.*dropped"):
            use()

    def test_erase(self):
        table = self.sparse(2, starling.Sum(), starling.Constant(0.5))
        table.push(range(10), numpy.ones((10, 2), numpy.float32))
        table.erase([3, 4, 77])
        table.erase([])
        self.assert_rows(table.pull([3, 5]), [[0.5, 0.5], [1.5, 1.5]])
        with self.client.step() as step:
            step.erase(table, [5])
            rows = step.pull(table, [5, 6])
        self.assert_rows(rows, [[0.5, 0.5], [1.5, 1.5]])


class Workers(support.ClusterTest):
    workers = 8

    def train(self, client, results):
        table = client.sparse("workers", 3, starling.Adagrad(lr=0.1), starling.Normal(seed=1), starling.BSP)
        random = numpy.random.default_rng(client.task)
        rows = table.pull(range(20))
        for iteration in range(25):
            assert client.clock == iteration, client.clock
            keys = numpy.unique(random.integers(0, 20, 10))
            with client.step() as step:
                step.push(table, keys, rows[keys] + rows_of(random, keys.size, 3))
                step.advance()
                rows = step.pull(table, range(20))
        results[client.task] = rows
        client.barrier("trained")

    def test_bsp_repeats_bit_for_bit(self):
        first = self.run_job(self.cluster)
        with starling.local_cluster(3, workers=self.workers) as other:
            second = self.run_job(other)
        for rows in first[1:] + second:
            self.assert_rows(rows, first[0])

    def run_job(self, cluster):
        clients = [None] * self.workers

        def connect(task):
            clients[task] = cluster.connect(task=task, workers=self.workers, timeout=harness.DEADLINE_S)

        results = [None] * self.workers
        run_threads([lambda task=task: connect(task) for task in range(self.workers)])
        run_threads([lambda client=client: self.train(client, results) for client in clients])
        for client in clients:
            client.close()
        return results


class Unique(support.unittest.TestCase):
    def test_keys(self):
        random = numpy.random.default_rng(SEED)
        for keys in (random.integers(-50, 50, 1000), random.integers(0, 2**64, 9, numpy.uint64), numpy.arange(3, dtype=numpy.int8),
                     [5, 5, 3], [], numpy.arange(10)[::2]):
            found, inverse, counts = starling.unique(keys)
            keys = numpy.asarray(keys, getattr(keys, "dtype", numpy.int64))
            expected, first, expected_counts = numpy.unique(keys, return_index=True, return_counts=True)
            order = numpy.argsort(first)  # of first appearance
            numpy.testing.assert_array_equal(found, expected[order])
            numpy.testing.assert_array_equal(counts, expected_counts[order])
            numpy.testing.assert_array_equal(found[inverse], keys)
            self.assertEqual(found.dtype, numpy.uint64 if keys.dtype == numpy.uint64 else numpy.int64)
            self.assertEqual((inverse.dtype, counts.dtype), (numpy.int64, numpy.int64))

    def test_bad_keys(self):
        for bad in (numpy.ones(2), numpy.ones((2, 2), int), "keys", None):
            with self.assertRaises((TypeError, ValueError)) as raised:
                starling.unique(bad)
            self.assertIn("keys: ", str(raised.exception))


def run_threads(functions):
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Specs(support.ClusterTest):
    servers = 1

    def test_defaults_are_those_of_the_library(self):
        """A table that has the library's defaults can be opened with Python's."""
        self.assertEqual([cls._kind for cls in OPTIMIZERS], list(range(16)))
        for cls in OPTIMIZERS:
            name = f"defaults-{cls.__name__}"
            starling.SparseTable(self.client, name, 0, 2, 0, (cls._kind, {}), (0, {}), (0, 0, 0), (0, {}), True, None)
            self.client.sparse(name, 2, cls())

    def test_decay(self):
        self.assertEqual(starling.Adagrad(weight_decay=0.5)._spec(), starling.Adagrad(weight_decay=0.5, decay="l2")._spec())
        self.assertEqual(starling.Adagrad()._spec()[1]["decay"], 0)
        self.assertEqual(starling.AdamW(weight_decay=0.5)._spec()[1]["decay"], 0)
        self.client.sparse("decay", 2, starling.Lion(weight_decay=0.5, decay="decoupled"))
        with self.assertRaisesRegex(starling.TableMismatch, "exists with update.decay decoupled, not l2"):
            self.client.sparse("decay", 2, starling.Lion(weight_decay=0.5))
        for optimizer in (starling.Sum, starling.FTRL, starling.FTRLGroup):
            with self.assertRaisesRegex(starling.InvalidError, f"{optimizer.__name__}: weight_decay is 0.5; accepted is 0.0, since it has"):
                optimizer(weight_decay=0.5)
        for optimizer in (starling.AdamW, starling.Lamb):
            with self.assertRaisesRegex(starling.InvalidError, "since it has its own decay"):
                optimizer(decay="decoupled")
        for bad in ("L2", 1, True):
            with self.assertRaisesRegex(ValueError, "accepted: 'l2', 'decoupled', None"):
                starling.SGD(decay=bad)
        for bad in ({"clip_norm": -1}, {"value_bound": numpy.inf}, {"weight_decay": -1}):
            with self.assertRaisesRegex(starling.InvalidError, f"SGD: {[*bad][0]} is "):
                starling.SGD(**bad)
        with self.assertRaises(TypeError):
            starling.SGD(0.1, 0.5)  # by keyword only
        self.assertEqual(repr(starling.SGD()), "SGD(lr=0.01)")
        self.assertEqual(repr(starling.SGD(clip_norm=2)), "SGD(lr=0.01, clip_norm=2)")
        self.assertEqual(repr(starling.Normal()), "Normal(std=0.01, mean=0.0, seed=0)")

    def test_all_are_immutable(self):
        for spec in (starling.SGD(), starling.Normal(), starling.BSP):
            with self.assertRaises(dataclasses.FrozenInstanceError):
                spec.lr = 1
        self.assertEqual(starling.SSP(2), starling.SSP(2))

    def test_every_initializer_and_mode(self):
        for i, init in enumerate((starling.Zeros(), starling.Constant(1.0), starling.Uniform(), starling.Normal(),
                                  starling.TruncatedNormal())):
            self.client.sparse(f"init-{i}", 2, init=init)
        for i, mode in enumerate((starling.ASP, starling.BSP, starling.SSP(3))):
            self.client.sparse(f"mode-{i}", 2, consistency=mode)


class MemoryLimit(support.ClusterTest):
    servers, args = 1, ("--memory-limit", "160M")

    def test_refused_push_leaves_no_rows(self):
        table, count, first = self.sparse(16, starling.Adam()), 50000, 0
        grads = numpy.ones((count, 16), numpy.float32)  # one message
        with self.assertRaisesRegex(starling.NoMemoryError, "no memory for more rows"):
            while True:
                table.push(numpy.arange(first, first + count), grads)
                first += count
        self.assertEqual(table.stats().rows, first)
        self.assertGreater(first, 0)
        self.assert_rows(table.pull([first]), numpy.zeros((1, 16)))
        table.push([first], grads[:1])  # the room of the refused rows
        self.assertEqual(table.stats().rows, first + 1)


class HttpTest(support.ClusterTest):
    """With servers that have pages."""

    servers, args = 2, ("--http", "127.0.0.1:0")

    def pages(self, path):
        """The page of each server. Its ready line names the address."""
        texts = []
        for server in self.cluster._servers:
            support.wait_until(lambda: any(", http " in line for line in server.lines), "its HTTP server")
            address = next(line for line in server.lines if ", http " in line).rpartition(" ")[2]
            with urllib.request.urlopen(f"http://{address}{path}", timeout=harness.DEADLINE_S) as answer:
                texts.append(answer.read().decode())
        return texts


class Progress(HttpTest):
    """The job shows what a worker says of its training."""

    def shown(self):
        with contextlib.suppress(urllib.error.HTTPError):  # 503: the coordinator has just started
            return json.loads(self.pages("/api/cluster")[0])["training"]
        return None

    def test_figures(self):
        worker = self.connect(task=0)
        worker.progress(epoch=1.5, epochs=4, loss=0.25, lr=0.125)
        worker.progress(samples=1000, metric=("accuracy", 0.75))
        worker.progress(epoch=1.75)
        support.wait_until(lambda: (self.shown() or {}).get("epoch") == 1.75, "the figures of the worker")
        shown = self.shown()
        self.assertEqual((shown["epochs"], shown["loss"], shown["learning_rate"], shown["samples"]), (4, 0.25, 0.125, 1000))
        self.assertEqual(shown["metric"], {"name": "accuracy", "value": 0.75})
        worker.progress(metric=("F1", 0.5))  # a shorter name
        support.wait_until(lambda: (self.shown() or {}).get("metric") == {"name": "F1", "value": 0.5}, "another metric")

    def test_bad_figures(self):
        for name in ("n" * 20, "tab\t", "caf\u00e9"):
            with self.assertRaisesRegex(starling.InvalidError, "metric_name: accepted are up to 19 characters"):
                self.client.progress(metric=(name, 1))
        with self.assertRaisesRegex(starling.InvalidError, "samples: accepted is below 2"):
            self.client.progress(samples=-1)
        for wrong in ({"loss": "low"}, {"metric": "AUC"}, {"accuracy": 1}):
            with self.assertRaises(TypeError):
                self.client.progress(**wrong)


class NotFinite(HttpTest):
    """Tables refuse NaN and infinite values, with everything else of the step."""

    KEYS = numpy.arange(500)

    def refused(self):
        return sum(int(float(line.split()[-1])) for page in self.pages("/metrics") for line in page.splitlines()
                   if line.startswith("starling_nonfinite_requests_total"))

    def refuses(self, text, function, *args):
        before = self.refused()
        with self.assertRaisesRegex(starling.InvalidError, text):
            function(*args)
        support.wait_until(lambda: self.refused() == before + 1, "the counter of one server")

    def test_rows(self):
        table = self.sparse(3, starling.Adagrad())
        self.assertTrue(table.reject_nonfinite)
        grads = numpy.ones((500, 3), numpy.float32)
        table.push(self.KEYS, grads)
        before, stats = table.pull(self.KEYS), table.stats()
        for value in (numpy.nan, numpy.inf, -numpy.inf):
            grads[321, 1] = value
            for function in (table.push, table.push_pull, table.assign):
                self.refuses("table test_rows: the value of column 1 of key 321 is ", function, self.KEYS, grads)
        self.assert_rows(table.pull(self.KEYS), before)
        self.assertEqual(table.stats().steps, stats.steps)
        events = "".join(self.pages("/api/events"))
        self.assertIn("push_refused", events)
        self.assertIn("of key 321 is NaN", events)

    def test_elements(self):
        table = self.dense(100000, starling.Sum())
        grads = numpy.zeros(60000, numpy.float32)
        grads[59999] = numpy.inf
        self.refuses("element 99999 is infinite", lambda: table.push(grads, start=40000))
        self.assertEqual(table.stats().steps, 0)

    def test_step_is_not_counted(self):
        table, other = self.sparse(1, starling.Sum()), self.client.sparse("other", 1, starling.Sum())
        client = self.connect(task=0)
        worker = client.sparse("test_step_is_not_counted", 1, starling.Sum())
        grads = numpy.full((500, 1), numpy.nan, numpy.float32)
        with self.assertRaisesRegex(starling.InvalidError, "column 0 of key 0 is NaN"):
            with client.step() as step:
                step.push(client.sparse("other", 1, starling.Sum()), self.KEYS, numpy.ones_like(grads))
                step.push(worker, self.KEYS, grads)
                step.advance()
        self.assertEqual(client.clock, 0)
        with client.step() as step:
            step.push(worker, self.KEYS, numpy.ones_like(grads))
            step.advance()
        self.assertEqual(client.clock, 1)
        self.assert_rows(table.pull(self.KEYS), numpy.ones_like(grads))
        self.assertEqual(other.stats().rows, 0)

    def test_option(self):
        table = self.sparse(1, starling.Sum(), reject_nonfinite=False)
        table.push([1], numpy.full((1, 1), numpy.nan, numpy.float32))
        self.assertTrue(numpy.isnan(table.pull([1])).all())
        self.assertFalse(self.sparse(1, starling.Sum()).reject_nonfinite)  # as it is
        with self.assertRaisesRegex(starling.TableMismatch, "exists with reject_nonfinite 0, not 1"):
            self.sparse(1, starling.Sum(), reject_nonfinite=True)
        self.client.dense("strict", 3)
        with self.assertRaisesRegex(starling.TableMismatch, "exists with reject_nonfinite 1, not 0"):
            self.client.dense("strict", 3, reject_nonfinite=False)
        with self.assertRaisesRegex(TypeError, "reject_nonfinite: 'no'; accepted: True, False, None"):
            self.client.dense("strict", 3, reject_nonfinite="no")


if __name__ == "__main__":
    harness.main()
