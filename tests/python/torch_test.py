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
        with self.assertRaisesRegex(KeyError, "features: 'd'; accepted: 'a', 'b', 'c'"):
            collection({"d": self.batch(3)})
        with self.assertRaisesRegex(ValueError, "bags: none; accepted: at least one"):
            starling.torch.EmbeddingBagCollection({})
        other = starling.torch.EmbeddingBag(self.connect().sparse("other", DIM))
        with self.assertRaisesRegex(ValueError, "bags: tables collection-0 and other were opened by 2 clients; accepted: "):
            starling.torch.EmbeddingBagCollection({"a": bags["a"], "b": other})

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

    def test_any_name(self):
        bag, peer = self.pair("sum")
        names = ("items", "keys", "a.b", "", "training")
        pooled = starling.torch.EmbeddingBagCollection({name: bag for name in names})(
            {name: torch.tensor([[i]]) for i, name in enumerate(names)})
        for i, name in enumerate(names):
            torch.testing.assert_close(pooled[name], peer.weight[i:i + 1])

    def test_training_reaches_the_bags(self):
        bag, _ = self.pair("sum")
        torch.nn.Sequential(starling.torch.EmbeddingBagCollection({"f": bag})).eval()
        self.assertFalse(bag.training)

    def test_types_of_keys(self):
        bag, peer = self.pair("sum")
        for kind in (torch.int32, torch.int16, torch.int8, torch.uint8):
            torch.testing.assert_close(bag(torch.tensor([[3, 4]], dtype=kind)), peer(torch.tensor([[3, 4]])))
        for kind in (torch.float32, torch.bool):
            with self.assertRaisesRegex(TypeError, f"test_types_of_keys: keys of {kind}; accepted: integers; convert with .long"):
                bag(torch.ones((1, 2), dtype=kind))

    def test_padding(self):
        """Keys 0 and -1 as padding, in both modes, and in bags of nothing else."""
        for mode in ("sum", "mean"):
            for padding in (0, -1):
                peer = torch.nn.EmbeddingBag(KEYS, DIM, mode=mode, padding_idx=0)
                with torch.no_grad():
                    peer.weight.copy_(torch.from_numpy(self.table.pull(range(KEYS))))
                bag = starling.torch.EmbeddingBag(self.table, mode, padding_idx=padding)
                for keys, offsets in (self.batch(60), (torch.zeros((3, 2), dtype=torch.long), None), self.batch(0),
                                      (torch.tensor([[0, 5, 0], [5, 6, 7], [0, 0, 0], [0, 0, 8]]), None)):
                    own = torch.where(keys == 0, padding, keys)
                    got, expected = bag(own, offsets), peer(keys, offsets)
                    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6)
                    for each in (got, expected):
                        each.square().sum().backward()
                    bag.push()
                    with torch.no_grad():
                        peer.weight -= RATE * peer.weight.grad
                    peer.weight.grad = None
                    rows, found = self.table.find(range(KEYS))
                    torch.testing.assert_close(torch.from_numpy(rows), peer.weight.detach(), rtol=1e-6, atol=1e-5)
                    self.assertFalse(found[0])
                self.table.erase(range(KEYS))
        self.assertFalse(self.table.find([-1])[1][0])
        with self.assertRaisesRegex(TypeError, "padding_idx: 'x'; accepted: an integer"):
            starling.torch.EmbeddingBag(self.table, padding_idx="x")

    def test_padding_with_weights(self):
        peer = torch.nn.EmbeddingBag(KEYS, DIM, mode="sum", padding_idx=2)
        with torch.no_grad():
            peer.weight.copy_(torch.from_numpy(self.table.pull(range(KEYS))))
        bag = starling.torch.EmbeddingBag(self.table, "sum", padding_idx=2)
        keys, given = torch.tensor([[2, 3], [4, 2], [5, 3]]), []
        for each in (bag, peer):
            weights = torch.tensor([[1.0, 2.0], [0.5, float("inf")], [3.0, 4.0]], requires_grad=True)
            each(keys, None, weights).square().sum().backward()
            given.append(weights.grad)
        torch.testing.assert_close(*given, rtol=1e-6, atol=1e-6)

    def test_dtype(self):
        """Rows are pooled in f32, and their gradients are those of the rounded sums."""
        for dtype in (torch.bfloat16, torch.float16):
            _, peer = self.pair("sum")
            bag = starling.torch.EmbeddingBag(self.table, "sum", dtype=dtype)
            keys, offsets = self.batch(40)
            factors = torch.randn(len(offsets), DIM).to(dtype)
            got, expected = bag(keys, offsets), peer(keys, offsets).to(dtype)
            self.assertEqual(got.dtype, dtype)
            torch.testing.assert_close(got, expected, rtol=0, atol=0)
            (got * factors).sum().backward()
            (expected * factors).sum().backward()
            bag.push()
            torch.testing.assert_close(torch.from_numpy(self.table.pull(range(KEYS))),
                                       (peer.weight - RATE * peer.weight.grad).detach(), rtol=1e-6, atol=1e-6)
        with self.assertRaisesRegex(ValueError, "dtype: torch.float64; accepted: torch.float32, torch.bfloat16, torch.float16"):
            starling.torch.EmbeddingBag(self.table, dtype=torch.float64)

    def test_narrow_tensors(self):
        """Tables widen tensors once, and round to the nearest that a receiving tensor can have."""
        table = self.client.sparse("narrow", DIM, starling.Sum())
        for dtype in (torch.bfloat16, torch.float16):
            grads, rows = torch.randn(8, DIM).to(dtype), torch.randn(8, DIM)
            table.assign(range(8), rows)
            table.push(torch.arange(8), grads)
            wanted = rows + grads.float()
            self.assert_rows(table.pull(range(8)), wanted)
            out = torch.empty(8, DIM, dtype=dtype)
            self.assertIs(table.pull(range(8), out), out)
            torch.testing.assert_close(out, wanted.to(dtype), rtol=0, atol=0)
            with self.client.step() as step:
                part = step.pull(table, [1], out=out.t()[:, :1].t())  # a view whose elements are not contiguous
                step.push(table, [1], grads[:1])
                after = step.pull(table, [1], out=torch.empty(1, DIM, dtype=dtype))
            torch.testing.assert_close(part, wanted[1:2].to(dtype), rtol=0, atol=0)
            torch.testing.assert_close(after, (wanted[1:2] + grads[:1].float()).to(dtype), rtol=0, atol=0)
            self.assertEqual(part.data_ptr(), out.data_ptr())
        for tensor, error, text in ((torch.zeros(2, DIM, dtype=torch.bfloat16), ValueError, "2 rows for 1 keys"),
                                    (torch.zeros(1, DIM, dtype=torch.bfloat16, requires_grad=True), TypeError, "requires grad"),
                                    (torch.zeros(1, DIM, dtype=torch.float64), TypeError, "float64"),
                                    (torch.zeros(1, DIM, dtype=torch.int16), TypeError, "int16")):
            with self.assertRaisesRegex(error, text):
                table.pull([1], tensor)
            with self.assertRaisesRegex(error, text):
                table.push([1], tensor)

    def test_mode(self):
        with self.assertRaisesRegex(ValueError, "mode: 'max'; accepted: 'mean', 'sum'"):
            starling.torch.EmbeddingBag(self.table, "max")


class SharedTables(support.ClusterTest):
    """An item and a history of items, against torch with one weight of both. Adagrad: two pushes would add two squares."""

    def setUp(self):
        super().setUp()
        self.table = self.sparse(DIM, starling.Adagrad(lr=0.1), starling.Normal(std=0.1))
        self.weight = torch.from_numpy(self.table.pull(range(KEYS))).requires_grad_()
        self.peer = torch.optim.Adagrad([self.weight], lr=0.1, initial_accumulator_value=0.1, eps=1e-8)
        self.item = starling.torch.EmbeddingBag(self.table, "sum")
        self.history = starling.torch.EmbeddingBag(self.table, "mean", padding_idx=-1)
        self.random = torch.Generator().manual_seed(3)

    def batch(self):
        items, history = (torch.randint(0, KEYS, shape, generator=self.random) for shape in ((5, 1), (5, 4)))
        history[0, 2:] = history[1] = -1
        return items, history

    def expected(self, items, history):
        is_there = (history >= 0).float().unsqueeze(2)
        mean = (self.weight[history.clamp(min=0)] * is_there).sum(1) / is_there.sum(1).clamp(min=1)
        return self.weight[items[:, 0]], mean

    def train(self, pooled, push):
        """Steps of both; each is one pull and one push of the table."""
        for _ in range(8):
            given, before = self.batch(), self.table.stats()
            got, expected = pooled(*given), self.expected(*given)
            self.peer.zero_grad()
            for one, other in zip(got, expected):
                torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
            for item, history in (got, expected):
                (item * history + history.square()).sum().backward()
            push()
            self.peer.step()
            self.assertEqual(self.table.stats().steps, before.steps + 1)
            yield given, self.table.stats().pulled_rows - before.pulled_rows
            torch.testing.assert_close(torch.from_numpy(self.table.pull(range(KEYS))), self.weight.detach(), rtol=1e-6, atol=1e-6)

    def test_sum_and_mean(self):
        bags = starling.torch.EmbeddingBagCollection({"item": self.item, "history": self.history})
        optimizer = starling.torch.Optimizer([bags])
        self.assertEqual([group["name"] for group in optimizer.param_groups], [self.table.name])
        for push in (optimizer.step, bags.push):
            for (items, history), pulled in self.train(
                    lambda items, history: bags({"item": items, "history": history}).values(), push):
                self.assertEqual(pulled, len(torch.unique(torch.cat([items, history], 1))))

    def test_several_collections_of_one_optimizer(self):
        one = starling.torch.EmbeddingBagCollection({"item": self.item})
        other = starling.torch.EmbeddingBagCollection({"history": self.history})
        optimizer = starling.torch.Optimizer([one, other, self.item])
        self.assertEqual(len(optimizer.param_groups), 1)
        for _ in self.train(lambda items, history: (one({"item": items})["item"], other({"history": history})["history"]),
                            optimizer.step):
            pass

    def test_one_bag_of_two_features(self):
        bags = starling.torch.EmbeddingBagCollection({"item": self.history, "history": self.history})
        for _ in self.train(lambda items, history: bags({"item": items, "history": history}).values(), bags.push):
            pass

    def test_one_feature_evaluates(self):
        bags = starling.torch.EmbeddingBagCollection({"item": self.item, "history": self.history.eval()})
        before = self.table.pull(range(KEYS))
        pooled = bags({"item": torch.tensor([[3]]), "history": torch.tensor([[3, 4]])})
        self.assertFalse(pooled["history"].requires_grad)
        sum(each.sum() for each in pooled.values()).backward()
        bags.push()
        changed = (self.table.pull(range(KEYS)) != before).any(1)
        self.assertEqual(changed.nonzero()[0].tolist(), [3])

    def test_rate_of_zero_pushes_nothing(self):
        optimizer = starling.torch.Optimizer([self.item, self.history])
        optimizer.param_groups[0]["lr"] = 0
        for bag in (self.item, self.history):
            bag(torch.tensor([[3]])).sum().backward()
        optimizer.step()
        optimizer.param_groups[0]["lr"] = 0.1
        optimizer.step()
        self.assertEqual(self.table.stats().rows, 0)

    def test_rate_after_a_restart(self):
        """A table keeps the rate that it was created with; the optimizer's group scales it."""
        item = starling.torch.EmbeddingBag(self.connect().open(self.table.name), "sum")
        optimizer = starling.torch.Optimizer([item])
        self.assertAlmostEqual(optimizer.param_groups[0]["lr"], 0.1, places=6)
        optimizer.param_groups[0]["lr"] = 0.05
        item(torch.tensor([[3]])).sum().backward()
        optimizer.step()
        expected = self.weight.detach()[3] - 0.05 / (0.1 + 1) ** 0.5
        torch.testing.assert_close(torch.from_numpy(self.table.pull([3]))[0], expected, rtol=1e-6, atol=1e-6)


if __name__ == "__main__":
    harness.main()
