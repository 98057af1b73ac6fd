#!/usr/bin/env python3
"""What bad input gets: the argument, its type or shape, what is accepted, and the call that converts."""

import pickle
import threading

import support
from support import harness, numpy, starling

ONE = numpy.ones((1, 2), numpy.float32)


class Arrays(support.ClusterTest):
    servers = 1

    def setUp(self):
        super().setUp()
        self.table = self.sparse(2)

    def refuses(self, kind, words, function, *args, **options):
        with self.assertRaises(kind) as raised:
            function(*args, **options)
        for word in words:
            self.assertIn(word, str(raised.exception))

    def test_float64_rows(self):
        self.refuses(TypeError, ["grads: float64 of shape (1, 2)", "float32", "grads.astype(numpy.float32)"],
                     self.table.push, [1], ONE.astype(numpy.float64))
        self.refuses(TypeError, ["out: float64"], self.table.pull, [1], numpy.empty((1, 2)))

    def test_transposed_view(self):
        self.refuses(ValueError, ["grads: float32 of shape (2, 2) with strides (4, 8)", "contiguous",
                                  "numpy.ascontiguousarray(grads)"],
                     self.table.push, [1, 2], numpy.ones((2, 2), numpy.float32).T)

    def test_read_only_out(self):
        out = ONE.copy()
        out.flags.writeable = False
        self.refuses(ValueError, ["out: float32 of shape (1, 2), read-only", "writable", "out.copy()"],
                     self.table.pull, [1], out)
        self.table.push([1], out)  # only a result needs to be writable

    def test_wrong_shape(self):
        self.refuses(ValueError, ["grads: float32 of shape (2,)", "(1, 2)", "grads.reshape((1, 2))"],
                     self.table.push, [1], numpy.ones(2, numpy.float32))
        self.refuses(ValueError, ["out: float32 of shape (1, 3)", "(1, 2)"], self.table.pull, [1],
                     numpy.empty((1, 3), numpy.float32))
        self.refuses(ValueError, ["keys: int64 of shape (1, 1)", "one dimension", "keys.reshape(-1)"],
                     self.table.pull, numpy.array([[1]]))

    def test_no_conversion_to_another_size(self):
        with self.assertRaises(ValueError) as raised:
            self.table.push([1], numpy.ones((1, 3), numpy.float32))
        self.assertIn("accepted: float32 of shape (1, 2)", str(raised.exception))
        self.assertNotIn("reshape", str(raised.exception))

    def test_other_number_of_rows(self):
        self.refuses(ValueError, ["grads: 1 rows for 2 keys"], self.table.push, [1, 2], ONE)

    def test_keys_that_are_no_integers(self):
        self.refuses(TypeError, ["keys: float64 of shape (1,)", "64-bit integers", "keys.astype(numpy.int64)"],
                     self.table.pull, numpy.array([1.0]))
        self.refuses(TypeError, ["keys: bool"], self.table.pull, numpy.array([True]))
        self.refuses(TypeError, ["keys: str"], self.table.pull, "12")
        self.refuses(TypeError, ["grads: list"], self.table.push, [1], [[1.0, 2.0]])

    def test_unaligned(self):
        memory = numpy.zeros(17, numpy.uint8)
        self.assert_rows(self.table.pull(memory[1:9].view(numpy.int64)), [[0, 0]])
        self.refuses(ValueError, ["out: "], self.table.pull, [1], memory[1:9].view(numpy.float32).reshape(1, 2))

    def test_offsets(self):
        bags = self.table.pull_bags
        self.refuses(ValueError, ["offsets: 1 after 2"], bags, [1, 2, 3], [0, 2, 1])
        self.refuses(ValueError, ["offsets: the first is 1"], bags, [1, 2], [1])
        self.refuses(ValueError, ["offsets: 4 for 3 keys"], bags, [1, 2, 3], [0, 4])
        self.refuses(ValueError, ["offsets: 0 bags for 1 keys"], bags, [1], [])
        self.refuses(TypeError, ["offsets: NoneType"], bags, [1], None)
        self.refuses(ValueError, ["mode: 'max'", "'sum', 'mean'"], bags, [1], [0], "max")

    def test_dense_range(self):
        table = self.client.dense("range", 10)
        self.refuses(ValueError, ["start: 8, with 3 elements", "0 to 9"], table.push, numpy.ones(3, numpy.float32),
                     start=8)
        for send in (table.push, table.push_pull, table.assign):
            for count in (5, 11, 0):
                self.refuses(ValueError, [f"{count} elements", "without start: all 10 of table range"], send,
                             numpy.ones(count, numpy.float32))
        numpy.testing.assert_array_equal(table.pull(), numpy.zeros(10))
        table.push(numpy.ones(5, numpy.float32), start=0)
        self.refuses(ValueError, ["start: 11"], table.pull, start=11)
        self.refuses(ValueError, ["start: -1"], table.pull, start=-1)
        self.refuses(ValueError, ["grads: float32 of shape (1, 2)", "grads.reshape(-1)"], table.push, ONE)

    def test_table_of_another_kind(self):
        dense = self.client.dense("kind", 10)
        with self.client.step() as step:
            self.refuses(TypeError, ["table: <starling.DenseTable kind, length 10>", "pull_bags"], step.pull_bags, dense,
                         [1], [0])
            self.refuses(TypeError, ["table: <starling.DenseTable", "erase"], step.erase, dense, [1])
            self.refuses(TypeError, ["table: 5"], step.pull, 5, [1])
            self.refuses(TypeError, ["table"], step.pull)

    def test_refused_operation_leaves_the_step_as_it_was(self):
        table = self.client.sparse("refused", 2, starling.Sum())
        with self.client.step() as step:
            step.push(table, [1], ONE)
            with self.assertRaises(TypeError):
                step.push(table, [1], ONE.astype(numpy.float64))
        self.assert_rows(table.pull([1]), ONE)

    def test_timeouts(self):
        for bad in (0, -1, float("nan"), float("inf"), 4294968):
            self.refuses(ValueError, ["timeout: ", "seconds"], self.table.pull, [1], timeout=bad)
        self.refuses(TypeError, [], self.table.pull, [1], timeout="1")
        with self.client.step() as step:
            self.refuses(TypeError, ["timeout: ", "submit"], step.pull, self.table, [1], timeout=1)


class Tables(support.ClusterTest):
    servers = 1
    refuses = Arrays.refuses

    def test_other_specification(self):
        self.client.sparse("spec", 2, starling.SGD(lr=0.5))
        with self.assertRaises(starling.TableMismatch) as raised:
            self.client.sparse("spec", 3, starling.Adagrad(lr=0.25), starling.Normal(std=0.5))
        self.assertIn("table spec exists with dim 2, not 3; optimizer sgd, not adagrad; lr 0.5, not 0.25; "
                      "initializer zeros, not normal", str(raised.exception))
        self.assertIsInstance(raised.exception, starling.StarlingError)

    def test_arguments(self):
        self.refuses(ValueError, ["dim: 0", "1 to 4096"], self.client.sparse, "t", 0)
        self.refuses(TypeError, ["dim: 2.0"], self.client.sparse, "t", 2.0)
        self.refuses(ValueError, ["length: 0"], self.client.dense, "t", 0)
        self.refuses(ValueError, ["name: "], self.client.sparse, "x" * 64, 2)
        self.refuses(starling.InvalidError, ["x y"], self.client.sparse, "x y", 2)
        self.refuses(TypeError, ["optimizer: ", "starling.SGD(lr=0.01)"], self.client.sparse, "t", 2, starling.SGD)
        self.refuses(TypeError, ["init: 0"], self.client.sparse, "t", 2, init=0)
        self.refuses(TypeError, ["consistency: 'bsp'"], self.client.sparse, "t", 2, consistency="bsp")
        for bad in (-1, 2**32, 2.0, True):
            self.refuses((TypeError, ValueError), [f"staleness: {bad}"], starling.SSP, bad)
        self.refuses(ValueError, ["task=-2: accepts an index from 0 to 16383"], self.cluster.connect, task=-2)
        self.refuses(ValueError, ["workers=0: accepts a whole number from 1 to 16384"], self.cluster.connect, workers=0)

    def test_optimizers(self):
        self.refuses(ValueError, ["Adagrad: lr is -1; accepted is > 0"], starling.Adagrad, lr=-1)
        self.refuses(ValueError, ["SGD: lr is 0"], starling.SGD, lr=0.0)
        self.refuses(ValueError, ["Momentum: momentum is 1; accepted is 0 to below 1"], starling.Momentum, momentum=1)
        self.refuses(ValueError, ["Adam: beta2 is nan"], starling.Adam, beta2=float("nan"))
        self.refuses(ValueError, ["AdamW: weight_decay is inf"], starling.AdamW, weight_decay=1e300)
        self.refuses(ValueError, ["RMSProp: epsilon is 0"], starling.RMSProp, epsilon=0)
        self.refuses(ValueError, ["FTRL: lr_power is 0.5; accepted is <= 0"], starling.FTRL, lr_power=0.5)
        self.refuses(TypeError, ["SGD: lr: 'x'; accepted: a number"], starling.SGD, lr="x")
        self.refuses(ValueError, ["Sum: weight_decay is 1; accepted is 0.0, since it has no learning rate"], starling.Sum,
                     weight_decay=1)
        self.refuses(ValueError, ["FTRL: decay is 'l2'; accepted is None, since it has its own"], starling.FTRL, decay="l2")
        for bad in (0, -1, 2**32 + 5, 1.5):
            self.refuses((TypeError, ValueError), [f"AdagradDecay: decay_steps: {bad}"], starling.AdagradDecay,
                         decay_steps=bad)
        starling.AdamAsync(lr=numpy.float32(0.5))

    def test_initializers(self):
        self.refuses(ValueError, ["Constant: value is inf; accepted is finite"], starling.Constant, float("inf"))
        self.refuses(ValueError, ["Uniform: low is 1, high is 1; accepted is low < high"], starling.Uniform, 1, 1)
        self.refuses(ValueError, ["Normal: std is -1; accepted is >= 0"], starling.Normal, std=-1)
        self.refuses(ValueError, ["TruncatedNormal: seed: 18446744073709551616"], starling.TruncatedNormal, seed=2**64)
        self.refuses(TypeError, ["Normal: mean: None"], starling.Normal, mean=None)
        self.assertEqual(self.client.sparse("seed", 2, init=starling.Normal(seed=-1)).stats().rows, 0)

    def test_barrier(self):
        self.refuses(ValueError, ["barrier: count 0", "connect(task=...)"], self.client.barrier, "all")
        self.refuses(ValueError, ["barrier: count -1"], self.client.barrier, "all", -1)
        self.refuses(ValueError, [f"barrier: count {2**32 + 1}"], self.client.barrier, "all", 2**32 + 1)
        self.client.barrier("one", 1)
        for timeout in (0.1, 1.5):
            with self.assertRaisesRegex(starling.DeadlineError,
                                        "barrier pair: still waiting after .* ms for 2 more .1 of 3 came."):
                self.client.barrier("pair", 3, timeout=timeout)
        self.connect(task=0).barrier("all")

    def test_calls_of_the_extension(self):
        """The package checks these before; the extension keeps to its memory without it."""
        native, short = starling._native, numpy.zeros(1, numpy.uint32)
        self.refuses(ValueError, ["an array is too short"], native.unique, numpy.arange(100), numpy.arange(100), short, short)
        self.refuses(ValueError, ["bytes: 0; accepted: 1 or more"], native.Memory, self.client, 0)
        self.refuses(ValueError, ["bytes: -1"], native.Memory, self.client, -1)

    def test_rate(self):
        with self.client.step() as step:
            for bad in (0, -1.0, float("nan"), float("inf"), 1e300, 1e-300):
                self.refuses(ValueError, ["factor: ", "finite"], step.set_rate, bad)


class Objects(support.ClusterTest):
    servers = 1
    refuses = Arrays.refuses

    def test_pickle(self):
        table = self.sparse(2)
        self.refuses(TypeError, ["connect"], pickle.dumps, self.client)
        for each in (table, self.client.step()):
            self.refuses(TypeError, ["pickle"], pickle.dumps, each)

    def test_after_close(self):
        table, client = self.sparse(2), self.client
        step = client.step()
        client.close()
        client.close()
        self.assertTrue(client.closed)
        for function, args in ((table.pull, ([1],)), (step.push, (table, [1], ONE)), (client.barrier, ("b",)),
                               (client.step, ()), (step.submit, ()), (step.wait, ()), (client.empty, (1,))):
            self.refuses(starling.ClosedError, ["closed", "connect"], function, *args)

    def test_close_waits_for_steps(self):
        table = self.sparse(2, starling.Sum())
        step = self.client.step()
        rows = step.push_pull(table, [1], ONE)
        step.submit()
        self.client.close()
        self.assert_rows(rows, ONE)

    def test_arrays_of_a_closed_client(self):
        table = self.sparse(2, starling.Sum())
        out = self.client.empty((1, 2))
        table.push_pull([1], ONE, out)
        self.client.close()
        self.assert_rows(out, ONE)
        out[:] = 7
        self.assert_rows(out, [[7, 7]])
        del out, table

    def test_step_of_another_thread(self):
        table, step, errors = self.sparse(2), self.client.step(), []

        def use():
            for function, args in ((step.pull, (table, [1])), (step.submit, ()), (step.advance, ())):
                with self.assertRaises(RuntimeError) as raised:
                    function(*args)
                errors.append(str(raised.exception))

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        self.assertEqual(len([error for error in errors if "thread" in error]), 3)

    def test_order_of_calls(self):
        table, step = self.sparse(2), self.client.step()
        self.refuses(RuntimeError, ["not submitted"], step.wait)
        self.refuses(RuntimeError, ["advance", "task"], step.advance)
        step.pull(table, [1])
        step.submit()
        self.refuses(RuntimeError, ["submitted"], step.pull, table, [1])
        step.wait()
        self.refuses(RuntimeError, ["complete"], step.submit)

    def test_table_of_another_client(self):
        table = self.connect().sparse("other", 2)
        with self.client.step() as step:
            self.refuses(ValueError, ["another client"], step.pull, table, [1])


class NoServers(support.unittest.TestCase):
    def test_no_process_listens(self):
        port = harness.free_ports(1)[0]
        with self.assertRaises(starling.StarlingError) as raised:
            starling.connect(f"127.0.0.1:{port}", task=-1, timeout=0.5)
        self.assertIsInstance(raised.exception, (starling.DeadlineError, starling.RefusedError))

    def test_flags_in_one_string(self):
        with self.assertRaisesRegex(TypeError, "args: '--lease 6'; accepted: .*'--lease', '6'"):
            starling.local_cluster(args="--lease 6")

    def test_server_that_ends(self):
        with self.assertRaises(starling.StarlingError) as raised:
            starling.local_cluster(args=["--no-such-flag"])
        self.assertIn("no-such-flag", str(raised.exception))


if __name__ == "__main__":
    harness.main()
