"""Rows that servers forget while they serve: by age, by count and norm, to make room; with backups,
and in a memory that is too small for all keys."""

import os
import signal
import unittest

import support
from support import numpy, starling

DIM = 4


def grads(count, value=1.0):
    return numpy.full((count, DIM), value, numpy.float32)


class Policies(support.ClusterTest):
    def push_until(self, table, keys, condition, what):
        """Pushes the keys, which stay, until the shards have found the rows that are to go."""
        def once():
            table.push(keys, grads(len(keys)))
            return condition()
        support.wait_until(once, what)

    def test_age(self):
        table = self.sparse(DIM, starling.Sum(), starling.Constant(0.5), policy=starling.Policy(ttl_steps=20))
        keys = numpy.arange(100, dtype=numpy.uint64)
        table.push(keys, grads(100))
        self.push_until(table, keys[:40], lambda: table.stats().evicted_ttl == 60, "60 rows are too old")
        stats = table.stats()
        self.assertEqual((stats.rows, stats.rows_created, stats.rows_erased), (40, 100, 0))
        table.erase(keys[:3])
        stats = table.stats()
        self.assertEqual((stats.rows, stats.rows_created, stats.rows_erased, stats.evicted_ttl), (37, 100, 3, 60))
        self.assert_rows(table.pull(keys[40:]), grads(60, 0.5))
        table.push(keys[99:], grads(1))
        self.assert_rows(table.pull(keys[99:]), grads(1, 1.5))

    def test_count_and_norm(self):
        policy = starling.Policy(protect_steps=20, count_below=3, l2_below=0.01)
        table = self.sparse(DIM, starling.Sum(), policy=policy)
        keys = numpy.arange(30, dtype=numpy.uint64)
        for count in (30, 20, 20):
            table.push(keys[:count], grads(count))
        table.push(keys[10:20], grads(10, -3.0))
        self.push_until(table, numpy.array([1000, 1001, 1002, 1003], numpy.uint64),
                        lambda: table.stats().evicted_count + table.stats().evicted_l2 == 20, "20 rows go")
        stats = table.stats()
        self.assertEqual((stats.evicted_count, stats.evicted_l2, stats.evicted_ttl, stats.evicted_room), (10, 10, 0, 0))
        self.assert_rows(table.pull(keys), [[3.0] * DIM] * 10 + [[0.0] * DIM] * 20)

    def test_most_rows(self):
        for order in ("lru", "lfu", "l2"):
            with self.subTest(order):
                policy = starling.Policy(rows_max=200, order=order)
                table = self.client.sparse(order, DIM, starling.Sum(), policy=policy)
                for first in range(0, 2000, 100):
                    table.push(numpy.arange(first, first + 100, dtype=numpy.uint64), grads(100, 0.01 * first + 1))
                support.wait_until(lambda table=table: table.stats().rows <= 200, "200 rows are left")
                stats = table.stats()
                self.assertEqual(stats.rows + stats.evicted_room, 2000)

    def test_admission_by_count(self):
        table = self.sparse(DIM, starling.Sum(), starling.Constant(0.5), policy=starling.Policy(admit_count=3))
        keys = numpy.arange(100, dtype=numpy.uint64)
        for count in (100, 40, 10):
            table.push(keys[:count], grads(count))
        self.assert_rows(table.pull(keys), [[1.5] * DIM] * 10 + [[0.5] * DIM] * 90)
        table.push(keys[[20, 50, 50]], grads(3))
        self.assert_rows(table.pull(keys[[20, 50, 60]]), [[1.5] * DIM] * 2 + [[0.5] * DIM])
        stats = table.stats()
        self.assertEqual((stats.rows, stats.admitted, stats.refused, stats.waiting), (12, 12, 141, 88))
        self.assertGreater(stats.bytes_admission, 0)
        table.assign(keys[90:], grads(10, 7.0))
        self.assertEqual((table.stats().rows, table.stats().waiting), (22, 78))

    def test_admission_by_a_filter(self):
        policy = starling.Policy(admission="bloom", admit_count=3, keys_expected=100000, false_positives=0.001)
        table = self.sparse(DIM, starling.Sum(), starling.Constant(0.5), policy=policy)
        keys = numpy.arange(1000, dtype=numpy.uint64)
        for _ in range(2):
            table.push(keys, grads(1000))
            self.assertLess(table.stats().rows, 5)
        table.push(keys[:100], grads(100))
        self.assert_rows(table.pull(keys[:100]), [[1.5] * DIM] * 100)
        stats = table.stats()
        self.assertTrue(100 <= stats.rows < 110)
        self.assertEqual((stats.admitted, stats.waiting), (stats.rows, 0))
        self.assertTrue(100000 * 14.6 / 2 <= stats.bytes_admission < 100000 * 14.6 / 2 * 1.1)
        with self.assertRaisesRegex(starling.TableMismatch, "exists with policy.keys_expected 100000, not 5"):
            self.sparse(DIM, starling.Sum(), starling.Constant(0.5),
                        policy=starling.Policy(admission="bloom", admit_count=3, keys_expected=5, false_positives=0.001))

    def test_admission_by_chance(self):
        policy = starling.Policy(admission="probability", admit_probability=0.5)
        table = self.sparse(DIM, policy=policy)
        keys = numpy.arange(1000, dtype=numpy.uint64)
        table.push(keys, grads(1000))
        self.assertTrue(400 < table.stats().rows < 600)
        for _ in range(20):
            table.push(keys, grads(1000))
        self.assertEqual(table.stats().rows, 1000)

    def test_slots_and_seconds(self):
        slots = {1: starling.Slot(admit_count=2), 2: starling.Slot(admit_count=3)}
        policy = starling.Policy(slot_shift=60, slot_bits=2, slots=slots, ttl_seconds=2)
        table = self.sparse(DIM, starling.Sum(), policy=policy)
        keys = numpy.arange(4, dtype=numpy.uint64) << numpy.uint64(60)
        for rows in (2, 3, 4):
            table.push(keys, grads(4))
            self.assertEqual(table.stats().rows, rows)
        support.wait_until(lambda: table.stats().rows == 0, "all rows are older than two seconds")
        self.assertEqual(table.stats().evicted_ttl, 4)
        self.sparse(DIM, starling.Sum(), policy=policy)
        with self.assertRaisesRegex(starling.TableMismatch, r"exists with policy.slots\[2\].admit_count 3, not 0"):
            self.sparse(DIM, starling.Sum(), policy=starling.Policy(slot_shift=60, slot_bits=2, ttl_seconds=2,
                                                                    slots={**slots, 2: starling.Slot()}))

    def test_now(self):
        table = self.sparse(DIM, starling.Sum())
        keys = numpy.arange(3000, dtype=numpy.uint64)
        for count in (3000, 1000):
            table.push(keys[:count], grads(count))
        table.push(keys[:500], grads(500, -2.0))
        self.assertEqual(table.evict(count_below=2), 2000)
        self.assertEqual(table.evict(l2_below=0.5), 500)
        self.assertEqual(table.evict(ttl_steps=1000), 0)
        stats = table.stats()
        self.assertEqual((stats.rows, stats.evicted_count, stats.evicted_l2, stats.rows_erased), (500, 2000, 500, 0))
        self.assert_rows(table.pull(keys), [[0.0] * DIM] * 500 + [[2.0] * DIM] * 500 + [[0.0] * DIM] * 2000)
        with self.assertRaisesRegex(starling.InvalidError, f"table {table.name}.*no threshold of age, count or norm"):
            table.evict()
        for bad in (dict(ttl_steps=-1), dict(ttl_steps=2**31 + 1), dict(count_below=2**32), dict(l2_below=-1),
                    dict(l2_below=float("nan")), dict(l2_below=1e39)):
            (name,) = bad
            with self.subTest(bad), self.assertRaisesRegex(ValueError, f"{name}: .*; accepted: "):
                table.evict(**bad)
        self.assertEqual(table.evict(ttl_steps=2**31, count_below=2**32 - 1), 500)
        self.client.drop(table.name)
        with self.assertRaisesRegex(starling.NotFoundError, table.name):
            table.evict(count_below=1)

    def test_now_by_the_policy(self):
        table = self.sparse(DIM, starling.Sum(), policy=starling.Policy(ttl_steps=40, protect_steps=3))
        keys = numpy.arange(1000, dtype=numpy.uint64)
        table.push(keys, grads(1000))
        self.assertEqual(table.evict(), 0)
        self.assertEqual(table.evict(count_below=9), 0)  # protected
        for _ in range(3):
            table.push(keys[:900], grads(900))
        self.assertEqual(table.evict(count_below=3), 100)
        for _ in range(40):
            table.push(keys[:800], grads(800))
        table.evict()
        self.assertEqual((table.stats().rows, table.stats().evicted_ttl, table.stats().evicted_count), (800, 100, 100))

    def test_now_with_bsp(self):
        with self.cluster.connect(task=0, timeout=support.harness.DEADLINE_S) as worker:
            table = worker.sparse("bsp", DIM, starling.Sum(), consistency=starling.BSP)
            keys = numpy.arange(1000, dtype=numpy.uint64)
            for count in (1000, 400):
                with worker.step() as step:
                    step.push(table, keys[:count], grads(count))
                    step.advance()
            self.assertEqual(table.evict(count_below=2), 600)
            self.assertEqual(table.stats().rows, 400)

    def test_another_policy(self):
        self.sparse(DIM, policy=starling.Policy(ttl_steps=20))
        with self.assertRaisesRegex(starling.TableMismatch, "exists with policy.ttl_steps 20, not 0"):
            self.sparse(DIM)

    def test_refusals(self):
        for error, text, make in (
                (ValueError, "order: 'mru'; accepted: 'lru', 'lfu', 'l2', None", lambda: starling.Policy(order="mru")),
                (ValueError, "ttl_steps: -1; accepted: 0 to", lambda: starling.Policy(ttl_steps=-1)),
                (TypeError, "rows_max: 1.5; accepted: an integer", lambda: starling.Policy(rows_max=1.5)),
                (TypeError, "policy", lambda: self.sparse(DIM, policy=5)),
                (starling.InvalidError, "Policy: order is none; accepted with rows_max is lru, lfu or l2",
                 lambda: starling.Policy(rows_max=5)),
                (ValueError, "admission: 'sketch'; accepted: 'count', 'probability', 'bloom'",
                 lambda: starling.Policy(admission="sketch")),
                (starling.InvalidError, "Policy: keys_expected is 0; accepted with admission bloom is 1 to 8589934592, else 0",
                 lambda: starling.Policy(admission="bloom", admit_count=2)),
                (starling.InvalidError, "Policy: protect_steps is 0; accepted with count_below is > 0",
                 lambda: starling.Policy(count_below=5)),
                (TypeError, "slots: 5; accepted: Slot", lambda: starling.Policy(slots={0: 5})),
                (ValueError, "slots: 256; accepted: 0 to 255", lambda: starling.Policy(slots={256: starling.Slot()})),
                (starling.InvalidError, "Policy: slot_count is 6; accepted with slot_bits 2 is 1 to 4",
                 lambda: starling.Policy(slot_bits=2, slots={5: starling.Slot(ttl_steps=9)})),
                (starling.InvalidError, "Policy: admit_age_steps is 5; accepted with an admit_count above 1",
                 lambda: starling.Policy(admit_age_steps=5)),
                (starling.InvalidError, "policy.order is lru; accepted with BSP is none",
                 lambda: self.sparse(DIM, consistency=starling.BSP, policy=starling.Policy(order="lru"))),
                (starling.InvalidError, "policy.ttl_seconds is 5; accepted with BSP is 0",
                 lambda: self.sparse(DIM, consistency=starling.BSP, policy=starling.Policy(ttl_seconds=5)))):
            with self.subTest(text), self.assertRaisesRegex(error, text):
                make()


class WithBackups(support.ClusterTest):
    servers, args = 3, ("--replicas", "1", "--lease", "3")

    def test_a_backup_that_takes_over_has_the_same_rows(self):
        policies = (starling.Policy(rows_max=3000, order="lru", ttl_steps=150),
                    starling.Policy(rows_max=900, order="lru", admit_count=2),
                    starling.Policy(rows_max=1200, order="lru", admission="bloom", admit_count=2, keys_expected=20000))
        once = numpy.arange(30000, 30100, dtype=numpy.uint64)
        tables = [self.client.sparse(f"rows{policy.rows_max}", DIM, starling.Adagrad(), policy=policy)
                  for policy in policies]
        random = numpy.random.default_rng(5)
        for _ in range(200):
            keys = numpy.unique(random.zipf(1.2, 300).astype(numpy.uint64) % 20000)
            for table in tables:
                table.push(keys, grads(len(keys)))
        every = numpy.arange(20000, dtype=numpy.uint64)
        for table in tables:
            table.push(once, grads(100))
        before = []
        for table, policy in zip(tables, policies):
            support.wait_until(lambda table=table, policy=policy: table.stats().rows <= policy.rows_max, "rows go")
            self.assertGreater(table.stats().evicted_room, 0)
            self.assertGreater(table.evict(count_below=4), 0)
            before.append((table.pull(every), table.stats().rows, table.stats().waiting))
        self.assertGreater(before[1][2], 1000)
        os.kill(self.cluster.pids[1], signal.SIGKILL)
        for table, (rows, row_count, waiting) in zip(tables, before):
            numpy.testing.assert_array_equal(table.pull(every, timeout=support.harness.DEADLINE_S), rows)
            self.assertEqual((table.stats().rows, table.stats().waiting), (row_count, waiting))
            table.push(once, grads(100))
            self.assertTrue(table.find(once)[1].all())


class InASmallMemory(support.ClusterTest):
    servers, args = 1, ("--memory-limit", "160M")
    KEYS, STEP = 3000000, 5000

    def fill(self, table):
        for first in range(0, self.KEYS, self.STEP):
            table.push(numpy.arange(first, first + self.STEP, dtype=numpy.uint64), grads(self.STEP))

    def test_new_keys_find_room(self):
        table = self.sparse(DIM, starling.Sum(), policy=starling.Policy(order="lru"))
        self.fill(table)
        stats = table.stats()
        self.assertEqual(stats.rows + stats.evicted_room, self.KEYS)
        self.assertGreater(stats.evicted_room, self.KEYS // 4)
        last = numpy.arange(self.KEYS - self.STEP, self.KEYS, dtype=numpy.uint64)
        self.assertGreater(numpy.count_nonzero(table.pull(last)), 0)


class InASmallMemoryWithoutAnOrder(InASmallMemory):
    def test_new_keys_find_room(self):
        """They do not; what is there stays."""
        table = self.sparse(DIM, starling.Sum())
        with self.assertRaisesRegex(starling.NoMemoryError, "no memory for more rows"):
            self.fill(table)
        self.assert_rows(table.pull(numpy.arange(self.STEP, dtype=numpy.uint64)), grads(self.STEP))


if __name__ == "__main__":
    unittest.main(verbosity=2)
