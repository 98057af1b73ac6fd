#!/usr/bin/env python3
"""starling.torch against torch.nn.EmbeddingBag with the same rows."""

import support
from support import harness, numpy, starling
from torch_support import torch

KEYS, DIM, RATE = 40, 6, 0.5


class Bags(support.ClusterTest):
    def setUp(self):
        super().setUp()
        self.random = numpy.random.default_rng(5)
        self.table = self.sparse(DIM, starling.SGD(lr=RATE), starling.Normal(std=1.0))

    def pair(self, mode):
        """The module, and torch's with the same rows."""
        peer = torch.nn.EmbeddingBag(KEYS, DIM, mode=mode)
        with torch.no_grad():
            peer.weight.copy_(torch.from_numpy(self.table.pull(range(KEYS))))
        return starling.torch.EmbeddingBag(self.table, mode), peer

    def compare(self, bag, peer, *batches):
        """Forward, backward and update by SGD of both are equal."""
        optimizer = torch.optim.SGD(peer.parameters(), lr=RATE)
        optimizer.zero_grad()
        for keys, offsets, weights in batches:
            got, expected = bag(keys, offsets, weights), peer(keys, offsets, weights)
            torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
            factors = torch.from_numpy(self.random.standard_normal(tuple(got.shape), numpy.float32))
            (got * factors).sum().backward()
            (expected * factors).sum().backward()
        bag.push()
        optimizer.step()
        torch.testing.assert_close(torch.from_numpy(self.table.pull(range(KEYS))), peer.weight.detach(), rtol=1e-4,
                                   atol=1e-4)

    def batch(self, count):
        keys = torch.from_numpy(self.random.integers(0, KEYS, count))
        ends = numpy.sort(self.random.integers(0, count + 1, 7))
        return keys, torch.from_numpy(numpy.append(0, ends))

    def test_offsets(self):
        for mode in ("sum", "mean"):
            bag, peer = self.pair(mode)
            for count in (1, 30, 200):
                self.compare(bag, peer, (*self.batch(count), None))

    def test_two_dimensions(self):
        for mode in ("sum", "mean"):
            bag, peer = self.pair(mode)
            for shape in ((1, 1), (5, 4), (30, 2)):
                self.compare(bag, peer, (torch.from_numpy(self.random.integers(0, KEYS, shape)), None, None))

    def test_weights(self):
        bag, peer = self.pair("sum")
        keys, offsets = self.batch(50)
        weights = torch.from_numpy(self.random.standard_normal(50, numpy.float32))
        self.compare(bag, peer, (keys, offsets, weights))
        keys = torch.from_numpy(self.random.integers(0, KEYS, (4, 5)))
        self.compare(bag, peer, (keys, None, weights[:20].reshape(4, 5)))
        given = [weights[:20].reshape(4, 5).clone().requires_grad_() for _ in (bag, peer)]
        for each, of_each in zip((bag, peer), given):
            each(keys, None, of_each).square().sum().backward()
        torch.testing.assert_close(*(each.grad for each in given), rtol=1e-4, atol=1e-4)

    def test_memory_of_keys_is_used_again(self):
        bag, _ = self.pair("sum")
        keys, before = torch.tensor([[3, 4]]), self.table.pull(range(KEYS))
        bag(keys).sum().backward()
        keys.fill_(7)
        bag.push()
        before[3:5] -= RATE
        self.assert_rows(self.table.pull(range(KEYS)), before)

    def test_empty_input(self):
        bag, peer = self.pair("sum")
        keys, offsets = torch.empty(0, dtype=torch.long), torch.zeros(3, dtype=torch.long)
        self.compare(bag, peer, (keys, offsets, None), (keys, offsets[:0], None))

    def test_backward_after_push(self):
        bag, _ = self.pair("sum")
        pooled = bag(torch.tensor([[3]]))
        bag.push()
        with self.assertRaisesRegex(RuntimeError, "backward, table test_backward_after_push: .* else forward again"):
            pooled.sum().backward()

    def test_several_batches_before_the_push(self):
        bag, peer = self.pair("sum")
        self.compare(bag, peer, (*self.batch(20), None), (*self.batch(30), None))

    def test_evaluation_only_pulls(self):
        bag, _ = self.pair("sum")
        before = self.table.pull(range(KEYS))
        keys, offsets = self.batch(20)
        with torch.no_grad():
            bag(keys, offsets)
        self.assertFalse(bag.eval()(keys, offsets).requires_grad)
        bag.push()
        self.assert_rows(self.table.pull(range(KEYS)), before)

    def test_step(self):
        bag, _ = self.pair("sum")
        bag(torch.tensor([[3]])).sum().backward()
        with self.client.step() as step:
            bag.push(step=step)
            rows = step.pull(self.table, [3])
        self.assert_rows(rows, self.table.pull([3]))

    def test_collection(self):
        tables = [self.client.sparse(f"collection-{i}", DIM, starling.SGD(lr=RATE), starling.Normal(std=1.0, seed=i))
                  for i in range(3)]
        names = ["a", "b", "c"]
        bags = {name: starling.torch.EmbeddingBag(table, "sum") for name, table in zip(names, tables)}
        collection = starling.torch.EmbeddingBagCollection(bags)
        features = {name: self.batch(30) for name in names}
        before = {name: torch.from_numpy(table.pull(range(KEYS))) for name, table in zip(names, tables)}
        pooled = collection(features)
        for name, (keys, offsets) in features.items():
            expected = torch.nn.functional.embedding_bag(keys, before[name], offsets, mode="sum")
            torch.testing.assert_close(pooled[name], expected, rtol=1e-5, atol=1e-5)
        sum(each.sum() for each in pooled.values()).backward()
        collection.push()
        for (keys, _), old, table in zip(features.values(), before.values(), tables):
            counts = torch.bincount(keys, minlength=KEYS).reshape(-1, 1)
            torch.testing.assert_close(torch.from_numpy(table.pull(range(KEYS))), old - RATE * counts, rtol=1e-5,
                                       atol=1e-5)
        collection.push()  # nothing is left
        with self.assertRaises(KeyError):
            collection({"d": self.batch(3)})
        with self.assertRaisesRegex(ValueError, "bags: 2 bags on 1 tables of 1 clients"):
            starling.torch.EmbeddingBagCollection({"a": bags["a"], "b": bags["a"]})

    def test_bare_tensor_is_keys(self):
        """Also if it has as many rows as a feature has arguments."""
        bag, peer = self.pair("sum")
        collection = starling.torch.EmbeddingBagCollection({"f": bag})
        for shape in ((1, 2), (2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (4, 3), (256, 2)):
            keys = torch.from_numpy(self.random.integers(0, KEYS, shape))
            for given in (keys, (keys,), [keys], (keys, None)):
                torch.testing.assert_close(collection({"f": given})["f"], peer(keys), rtol=1e-5, atol=1e-5)

    def test_other_arguments(self):
        bag, _ = self.pair("sum")
        collection = starling.torch.EmbeddingBagCollection({"f": bag})
        keys = torch.tensor([[3, 4], [0, 1]])
        for given in (keys.numpy(), [[3, 4], [0, 1]], (keys, [0, 1]), (keys, None, None, None), (None, keys), (), None, "f",
                      {"keys": keys}, 3):
            with self.assertRaisesRegex(TypeError, r"^f: .*; accepted: keys, \(keys,\), \(keys, offsets\)"):
                collection({"f": given})
        with self.assertRaisesRegex(TypeError, "^test_other_arguments: .*ndarray"):
            bag(keys.numpy())
        with self.assertRaisesRegex(TypeError, "features: Tensor; accepted: a dict"):
            collection(keys)
        for bags in ([bag], {"f": self.table}, bag):
            with self.assertRaisesRegex(TypeError, "bags: .*; accepted: a dict of name to EmbeddingBag"):
                starling.torch.EmbeddingBagCollection(bags)

    def test_mode(self):
        with self.assertRaisesRegex(ValueError, "mode: 'max'; accepted: 'mean', 'sum'"):
            starling.torch.EmbeddingBag(self.table, "max")


if __name__ == "__main__":
    harness.main()
