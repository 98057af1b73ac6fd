#!/usr/bin/env python3
"""What docs/protocol.md says of optimizers and initializers, against a real ps: the page's formulas
in f64, written here once more."""

import math
import random
import statistics

import harness
import protocol_client as pc
from protocol_test import KEYS, ClusterTest

DIM = 3
PUSHES = 7
MASK = 2**64 - 1
GOLDEN = 0x9e3779b97f4a7c15
BELOW = 0.022750131948179207  # the distribution function at -2

HYPER = {"lr": 0.125, "momentum": 0.75, "rho": 0.875, "beta1": 0.875, "beta2": 0.96875,
         "epsilon": 0.0078125, "weight_decay": 0.25, "initial_accumulator": 0.5, "l1": 0.125,
         "l2": 0.0625, "lr_power": -0.5, "decay_steps": 2, "decay_baseline": 0.625}


WITHOUT_DECAY = (0, 7, 9, 10, 15)
UPDATES = ({}, {"decay": 1}, {"decay": 2}, {"clip_norm": 0.75}, {"value_bound": 0.5},
           {"decay": 1, "clip_norm": 0.75, "value_bound": 0.5}, {"decay": 2, "clip_norm": 0.75, "value_bound": 0.5})


def norm(values):
    return math.sqrt(sum(x * x for x in values))


class Row:
    """A row as the shard has it: values, two slots beside each, one of the row, its pushes and periods."""

    def __init__(self, kind, update=None):
        first = HYPER["initial_accumulator"] if kind in (3, 4, 9, 10) else 0.0
        self.kind, self.update = kind, update or {}
        self.w, self.a, self.b = [0.0] * DIM, [first] * DIM, [0.0] * DIM
        self.of_row = HYPER["initial_accumulator"] if kind == 11 else 0.0
        self.t = self.c = self.n = 0

    def push(self, gradients, rate=1):
        h, longest, bound = HYPER, self.update.get("clip_norm", 0), self.update.get("value_bound", 0)
        self.lr = h["lr"] * rate
        self.t += 1
        self.n += 1  # the only row of its shard
        if longest and norm(gradients) > longest:
            gradients = [g * longest / norm(gradients) for g in gradients]
        if self.update.get("decay") == 1:
            gradients = [g + h["weight_decay"] * w for g, w in zip(gradients, self.w, strict=True)]
        if self.update.get("decay") == 2:
            self.w = [w * (1 - self.lr * h["weight_decay"]) for w in self.w]
        self.optimize(gradients)
        if bound:
            self.w = [max(-bound, min(bound, w)) for w in self.w]

    def optimize(self, gradients):
        h, mean = HYPER, norm(gradients)**2 / DIM
        if self.kind == 11:
            self.of_row += mean
        elif self.kind == 12:
            self.of_row = h["beta2"] * self.of_row + (1 - h["beta2"]) * mean
        if self.kind == 4 and self.n // h["decay_steps"] > self.c:
            self.a = [max(h["rho"] * a, h["decay_baseline"]) for a in self.a]
            self.c += 1
        for i, g in enumerate(gradients):
            self.visit(i, g)
        if self.kind == 10:
            self.shrink()
        elif self.kind == 15:
            ratio = norm(self.w) / norm(self.step) if norm(self.w) and norm(self.step) else 1
            self.w = [w - self.lr * ratio * u for w, u in zip(self.w, self.step, strict=True)]

    def assign(self, values):
        """All but B1 and B2 (kind 8), which belong to the table, begins anew."""
        t, n, fresh = self.t, self.n, Row(self.kind, self.update)
        self.__dict__.update(fresh.__dict__, w=list(values), n=n + 1, t=t if self.kind == 8 else 0)

    def visit(self, i, g):
        h, w = HYPER, self.w
        lr, a, b = self.lr, self.a, self.b
        if self.kind == 0:
            w[i] += g
        elif self.kind == 1:
            w[i] -= lr * g
        elif self.kind == 2:
            a[i] = h["momentum"] * a[i] + g
            w[i] -= lr * a[i]
        elif self.kind in (3, 4):
            a[i] += g * g
            w[i] -= lr * g / (math.sqrt(a[i]) + h["epsilon"])
        elif self.kind == 5:
            a[i] = h["rho"] * a[i] + (1 - h["rho"]) * g * g
            b[i] = h["momentum"] * b[i] + lr * g / math.sqrt(a[i] + h["epsilon"])
            w[i] -= b[i]
        elif self.kind in (6, 7, 8, 12, 15):
            self.adam(i, g)
        elif self.kind == 11:
            w[i] -= lr * g / (math.sqrt(self.of_row) + h["epsilon"])
        elif self.kind == 13:
            a[i] = h["rho"] * a[i] + (1 - h["rho"]) * g * g
            d = math.sqrt(b[i] + h["epsilon"]) / math.sqrt(a[i] + h["epsilon"]) * g
            b[i] = h["rho"] * b[i] + (1 - h["rho"]) * d * d
            w[i] -= lr * d
        elif self.kind == 14:
            mixed = h["beta1"] * a[i] + (1 - h["beta1"]) * g
            a[i] = h["beta2"] * a[i] + (1 - h["beta2"]) * g
            w[i] -= lr * ((mixed > 0) - (mixed < 0))
        else:
            q = -h["lr_power"]
            after = a[i] + g * g
            b[i] += g - (after**q - a[i]**q) * w[i] / lr
            a[i] = after
            z, l1 = b[i], h["l1"]
            w[i] = 0.0
            if abs(z) > l1:
                w[i] = (math.copysign(l1, z) - z) / (a[i]**q / lr + 2 * h["l2"])

    def adam(self, i, g):
        h, m, v = HYPER, self.a, self.b
        one, two = h["beta1"]**self.t, h["beta2"]**self.t
        m[i] = h["beta1"] * m[i] + (1 - h["beta1"]) * g
        v[i] = h["beta2"] * v[i] + (1 - h["beta2"]) * g * g
        if self.kind == 8:
            self.w[i] -= (self.lr * math.sqrt(1 - two) / (1 - one) * m[i]
                          / (math.sqrt(v[i]) + h["epsilon"]))
            return
        square = self.of_row if self.kind == 12 else v[i]
        step = m[i] / (1 - one) / (math.sqrt(square / (1 - two)) + h["epsilon"])
        if self.kind == 15:
            self.step = [*(self.step[:i] if i else ()), step + h["weight_decay"] * self.w[i]]
            return
        keep = 1 - self.lr * h["weight_decay"] if self.kind == 7 else 1
        self.w[i] = keep * self.w[i] - self.lr * step

    def shrink(self):
        h, z = HYPER, self.b
        q, s = -h["lr_power"], norm(z)
        for i in range(DIM):
            self.w[i] = 0.0
            if s > h["l1"]:
                self.w[i] = z[i] * (h["l1"] - s) / ((self.a[i]**q / self.lr + 2 * h["l2"]) * s)


def share(seed, key, column):
    """The number u of the page."""
    stream = pc.hash_key(pc.hash_key((key + GOLDEN) & MASK)
                         ^ pc.hash_key((seed + 2 * GOLDEN) & MASK))
    return ((pc.hash_key((stream + (column + 1) * GOLDEN) & MASK) >> 12) + 0.5) / 2**52


def first_value(initializer, key, column):
    kind, a, b = initializer["kind"], initializer.get("a", 0), initializer.get("b", 0)
    u = share(initializer.get("seed", 0), key, column)
    normal = statistics.NormalDist()
    return (0.0 if kind == 0 else a if kind == 1 else a + (b - a) * u if kind == 2
            else a + b * normal.inv_cdf(u) if kind == 3
            else a + b * max(-2, min(2, normal.inv_cdf(BELOW + (1 - 2 * BELOW) * u))))


class Formulas(ClusterTest):
    def setUp(self):
        super().setUp()
        self.cluster()
        self.told = self.client()

    def assert_close(self, got, wanted, what):
        for i, (one, two) in enumerate(zip(got, wanted, strict=True)):
            self.assertTrue(math.isclose(one, two, rel_tol=1e-4, abs_tol=1e-6),
                            f"{what}: {i}: {one} {two}")

    def test_optimizers(self):
        for kind in range(16):
            for number, update in enumerate(UPDATES):
                if "decay" not in update or kind not in WITHOUT_DECAY:
                    with self.subTest(kind=kind, update=update):
                        self.check(kind, number, update)

    def check(self, kind, number, update):
        source = random.Random(kind)
        optimizer = {"kind": kind, **HYPER}
        table = self.told.open(name=f"o{kind}.{number}", dim=DIM, optimizer=optimizer, update=update)
        array = self.told.open(name=f"d{kind}.{number}", kind=pc.DENSE, length=DIM, optimizer=optimizer, update=update)
        row = Row(kind, update)
        for i in range(2 * PUSHES):
            if i == PUSHES:
                values = [0.5, -0.25, 0]
                self.told.assign(table, [7], [values])
                self.told.dense_assign(array, 0, values)
                row.assign(values)
            gradients = [source.choice((0, 0.25, -1, 1.5)) for _ in range(DIM)]
            rate = source.choice((1, 1, 0.5, 3))
            # A key that comes twice: the sum of its gradients is clipped.
            self.told.push(table, [7, 7], [[g / 2 for g in gradients]] * 2, rate=rate)
            self.told.dense_push(array, 0, gradients, rate=rate)
            row.push(gradients, rate)
            self.assert_close(self.told.pull(table, [7])[0], row.w, f"kind {kind}")
            self.assert_close(self.told.dense_pull(array, 0, DIM), row.w, f"kind {kind}, dense")

    def test_buffered_pushes_are_clipped_alone(self):
        """BSP applies the push of each worker by itself, when the iteration is complete."""
        spec = {"name": "bsp", "dim": 1, "optimizer": {"kind": 1, "lr": 1}, "update": {"clip_norm": 1},
                "consistency": {"mode": pc.BSP, "worker_count": 2}}
        table = self.told.open(**spec)
        workers = [self.worker(task) for task in (0, 1)]
        for worker in workers:
            worker.open(**spec)
            worker.push(table, [3, 3], [[4], [4]])
        for worker in workers:
            worker.tick(0)
        self.assertEqual(self.told.pull(table, [3])[0], (-2,))

    def test_initializers(self):
        for number, initializer in enumerate((
                {"kind": 0}, {"kind": 1, "a": -1.5}, {"kind": 2, "a": -2, "b": 1, "seed": 9},
                {"kind": 3, "a": 1, "b": 0.5, "seed": MASK}, {"kind": 4, "a": -1, "b": 2})):
            with self.subTest(initializer=initializer):
                table = self.told.open(name=f"i{number}", dim=DIM, initializer=initializer)
                array = self.told.open(name=f"a{number}", kind=pc.DENSE, length=2000,
                                       initializer=initializer)
                for key, row in zip(KEYS, self.told.pull(table, KEYS), strict=True):
                    self.assert_close(row, [first_value(initializer, key, column)
                                            for column in range(DIM)], f"key {key}")
                self.assert_close(self.told.dense_pull(array, 0, 2000),
                                  [first_value(initializer, key, 0) for key in range(2000)], "array")


if __name__ == "__main__":
    harness.main()
