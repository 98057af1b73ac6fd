#!/usr/bin/env python3
"""Collections of starling.torch with features of TorchRec, and replace(). torchrec is no Debian package: stand-ins with its
interface take its place, whose collections compute with torch's own embeddings."""

import dataclasses
import enum
import functools
import os
import sys
import tempfile
import types

import support
from support import harness, numpy, starling
from torch_support import torch

RATE, ROWS, BATCH = 0.5, 20, 6
DataType = enum.Enum("DataType", {name: name for name in ("FP32", "FP16", "BF16", "INT8", "INT4", "UINT8")})
PoolingType = enum.Enum("PoolingType", {name: name for name in ("SUM", "MEAN", "NONE")})
init = torch.nn.init
WIDE = functools.partial(init.uniform_, a=-1.0, b=1.0)


class KeyedJaggedTensor:
    def __init__(self, keys, values, lengths, weights=None):
        self.parts = keys, values, lengths, weights

    def keys(self):
        return self.parts[0]

    def values(self):
        return self.parts[1]

    def lengths(self):
        return self.parts[2]

    def weights_or_none(self):
        return self.parts[3]


@dataclasses.dataclass
class Config:
    """EmbeddingBagConfig and EmbeddingConfig."""

    name: str
    feature_names: list = dataclasses.field(default_factory=list)
    pooling: PoolingType = PoolingType.SUM
    embedding_dim: int = 4
    num_embeddings: int = ROWS
    data_type: DataType = DataType.FP32
    init_fn: object = WIDE
    virtual_table_eviction_policy: object = None

    def get_weight_init_min(self):
        return -0.25

    def get_weight_init_max(self):
        return 0.25


class _Collection(torch.nn.Module):
    """Its forward pass returns a list of (name, values, lengths) in TorchRec's order."""

    def __init__(self, configs):
        super().__init__()
        self.configs = configs
        self.tables = torch.nn.ModuleList(self.embedding_of(config) for config in configs)

    def look_up(self, features, compute):
        lengths = features.lengths().reshape(len(features.keys()), -1)
        counts = lengths.sum(1).tolist()
        weights = features.weights_or_none()
        weights = features.values() if weights is None else weights
        parts = dict(zip(features.keys(), zip(features.values().split(counts), lengths, weights.split(counts))))
        every = [name for config in self.configs for name in config.feature_names or [config.name]]
        return [(name if every.count(name) == 1 else f"{name}@{config.name}", compute(table, *parts[name]), parts[name][1])
                for config, table in zip(self.configs, self.tables) for name in config.feature_names or [config.name]]


class EmbeddingBagCollection(_Collection):
    def __init__(self, configs, weighted=False):
        super().__init__(configs)
        self.weighted = weighted

    def embedding_of(self, config):
        return torch.nn.EmbeddingBag(config.num_embeddings, config.embedding_dim, mode=config.pooling.value.lower())

    def embedding_bag_configs(self):
        return self.configs

    def is_weighted(self):
        return self.weighted

    def forward(self, features):
        def compute(table, keys, lengths, weights):
            return table(keys, lengths.cumsum(0) - lengths, weights if self.weighted else None)
        found = self.look_up(features, compute)
        dims = [values.shape[1] for _, values, _ in found]
        return starling.torch.KeyedTensor([name for name, _, _ in found], dims, torch.cat([values for _, values, _ in found], 1))


class EmbeddingCollection(_Collection):
    def __init__(self, configs, indices=False):
        super().__init__(configs)
        self.indices = indices

    def embedding_of(self, config):
        return torch.nn.Embedding(config.num_embeddings, config.embedding_dim)

    def embedding_configs(self):
        return self.configs

    def need_indices(self):
        return self.indices

    def forward(self, features):
        found = self.look_up(features, lambda table, keys, *_: table(keys))
        return {name: starling.torch.JaggedTensor(values, lengths=lengths) for name, values, lengths in found}


def configs():
    """Tables of two dims; "b" is a feature of two tables, and "user" that of the table without feature_names."""
    return [Config("t1", ["b", "a"]), Config("user", pooling=PoolingType.MEAN, embedding_dim=3), Config("t3", ["b", "c"], PoolingType.MEAN)]


class TorchrecTest(support.ClusterTest):
    def setUp(self):
        super().setUp()
        self.random = torch.Generator().manual_seed(5)
        self.prefix = self.id().rpartition(".")[2] + "."

    def replace(self, model, **options):
        return starling.torch.replace(model, self.client, starling.SGD(lr=RATE), prefix=self.prefix, **options)

    def features(self, keys=("c", "unused", "user", "a", "b"), weighted=False):
        """With empty bags, and several times the same key."""
        lengths = torch.randint(0, 4, (len(keys) * BATCH,), generator=self.random)
        count = int(lengths.sum())
        return KeyedJaggedTensor(list(keys), torch.randint(0, ROWS, (count,), generator=self.random), lengths,
                                 torch.randn(count, generator=self.random) if weighted else None)

    def copy_rows(self, peer, bags):
        """The peer gets the rows that the tables have."""
        for config, embedding in zip(peer.configs, peer.tables):
            table = next(bag.table for bag in bags.bags.values() if bag.table.name == self.prefix + config.name)
            with torch.no_grad():
                embedding.weight.copy_(torch.from_numpy(table.pull(range(ROWS))))

    def assert_same_rows(self, peer, bags):
        expected = [embedding.weight.detach().clone() for embedding in peer.tables]
        self.copy_rows(peer, bags)
        for embedding, each in zip(peer.tables, expected):
            torch.testing.assert_close(embedding.weight.detach(), each, rtol=1e-4, atol=1e-5)

class Collections(TorchrecTest):
    def train(self, bags, peer, compute, weighted=False):
        """Both compute the same, and their rows are the same after some steps of SGD."""
        self.copy_rows(peer, bags)
        optimizer = torch.optim.SGD(peer.parameters(), lr=RATE)
        for _ in range(4):
            features = self.features(weighted=weighted)
            optimizer.zero_grad()
            losses = [compute(each, features) for each in (bags, peer)]
            torch.testing.assert_close(losses[0], losses[1], rtol=1e-5, atol=1e-5)
            for loss in losses:
                loss.square().mean().backward()
            bags.push()
            optimizer.step()
        self.assert_same_rows(peer, bags)

    def test_bags(self):
        peer = EmbeddingBagCollection(configs())
        bags = self.replace(EmbeddingBagCollection(configs()))
        self.train(bags, peer, lambda each, features: each(features).values())
        result, features = bags(self.features()), self.features()
        self.assertEqual(result.keys(), ["b@t1", "a", "user", "b@t3", "c"])
        self.assertEqual((result.length_per_key(), result.offset_per_key(), result.key_dim()), ([4, 4, 3, 4, 4], [0, 4, 8, 11, 15, 19], 1))
        self.assertEqual(result.values().shape, (BATCH, 19))
        self.assertEqual(list(result.to_dict()), result.keys())
        for i, name in enumerate(result.keys()):
            begin, end = result.offset_per_key()[i:i + 2]
            torch.testing.assert_close(result[name], result.values()[:, begin:end])
        self.assertEqual((bags.is_weighted(), bags.embedding_bag_configs()), (False, configs()))
        weighted = KeyedJaggedTensor(*features.parts[:3], torch.randn(len(features.values())))
        torch.testing.assert_close(bags(weighted).values(), bags(features).values())  # not is_weighted

    def test_weights(self):
        tables = [Config("t1", ["b", "a"]), Config("t3", ["c", "b"])]
        bags, peer = self.replace(EmbeddingBagCollection(tables, True)), EmbeddingBagCollection(tables, True)
        self.assertTrue(bags.is_weighted())
        self.train(bags, peer, lambda each, features: each(features).values(), weighted=True)
        grads = []
        features = self.features(weighted=True)
        for each in (bags, peer):
            weights = features.weights_or_none().clone().requires_grad_()
            each(KeyedJaggedTensor(*features.parts[:3], weights)).values().square().sum().backward()
            grads.append(weights.grad)
        torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-5)
        with self.assertRaisesRegex(ValueError, "^features: no weights; accepted: weights, because"):
            bags(self.features())

    def test_sequences(self):
        tables = [Config("t1", ["b", "a"]), Config("user"), Config("t3", ["b", "c"])]
        bags, peer = self.replace(EmbeddingCollection(tables, True)), EmbeddingCollection(tables)

        def compute(each, features):
            return torch.cat([part.values() for part in each(features).values()])

        self.train(bags, peer, compute)
        features = self.features()
        found, expected = bags(features), peer(features)
        self.assertEqual(list(found), ["b@t1", "a", "user", "b@t3", "c"])
        for name, each in found.items():
            torch.testing.assert_close(each.lengths(), expected[name].lengths())
            ends = each.lengths().cumsum(0).tolist()
            self.assertEqual(each.offsets().tolist(), [0, *ends])
            keys = features.values()[:ends[-1]] if name == "c" else each.weights()
            torch.testing.assert_close(each.weights(), keys)
        self.assertEqual((bags.need_indices(), bags.embedding_dim(), bags.embedding_configs()), (True, 4, tables))
        empty = bags(KeyedJaggedTensor(["user", "a", "b", "c"], torch.tensor([3]), torch.tensor([1, 0, 0, 0], dtype=torch.int32)))
        self.assertEqual([tuple(each.values().shape) for each in empty.values()], [(0, 4), (0, 4), (1, 4), (0, 4), (0, 4)])
        with self.assertRaisesRegex(TypeError, "^features: dict; accepted: a KeyedJaggedTensor with keys"):
            bags({"user": torch.tensor([1])})

    def test_made_by_hand(self):
        """The collections need no configuration; a dict goes as before."""
        table = self.sparse(4, starling.SGD(lr=RATE), starling.Normal(std=1.0))
        bag = starling.torch.EmbeddingBag(table, "mean")
        bags = starling.torch.EmbeddingBagCollection({"a": bag, "b@t": bag})
        features = KeyedJaggedTensor(["b", "a"], torch.tensor([1, 2, 3], dtype=torch.int32), torch.tensor([2, 0, 0, 1]))
        rows = torch.from_numpy(table.pull([1, 2, 3]))
        expected = torch.stack([torch.cat([torch.zeros(4), rows[:2].mean(0)]), torch.cat([rows[2], torch.zeros(4)])])
        torch.testing.assert_close(bags(features).values(), expected)
        self.assertEqual(list(bags({"a": torch.tensor([[1]])})), ["a"])
        self.assertEqual(bags.embedding_bag_configs(), [])
        rows_of = starling.torch.EmbeddingCollection({"b@t": bag})(features)["b@t"]
        torch.testing.assert_close(rows_of.values(), rows[:2])
        self.assertIsNone(rows_of.weights_or_none())
        with self.assertRaisesRegex(ValueError, "weights: none"):
            rows_of.weights()

    def test_torchrec_gets_its_own_classes(self):
        module = types.ModuleType("torchrec.sparse.jagged_tensor")
        for base in (KeyedJaggedTensor, starling.torch.KeyedTensor, starling.torch.JaggedTensor):
            setattr(module, base.__name__, type(base.__name__, (base,), {"__module__": module.__name__}))
        sys.modules[module.__name__] = module
        self.addCleanup(sys.modules.pop, module.__name__)
        features = module.KeyedJaggedTensor(*self.features(("a",)).parts)
        bag = starling.torch.EmbeddingBag(self.sparse(4), "sum")
        self.assertIs(type(starling.torch.EmbeddingBagCollection({"a": bag})(features)), module.KeyedTensor)
        self.assertIs(type(starling.torch.EmbeddingCollection({"a": bag})(features)["a"]), module.JaggedTensor)

    def test_types_and_first_values(self):
        fns = {"f32": (DataType.FP32, WIDE), "f16": (DataType.FP16, functools.partial(init.normal_, std=0.5)),
               "bf16": (DataType.BF16, functools.partial(init.constant_, val=0.5)), "int8": (DataType.INT8, init.zeros_),
               "ones": (DataType.FP32, init.ones_), "default": (DataType.FP32, None), "again": (DataType.FP32, WIDE),
               "cut": (DataType.FP32, functools.partial(init.trunc_normal_, 1.0, 0.25, a=0.5, b=1.5)),
               "plain": (DataType.FP32, init.trunc_normal_), "lambda": (DataType.FP32, lambda tensor: tensor.fill_(1))}
        tables = [Config(name, data_type=kind, init_fn=function, embedding_dim=64, num_embeddings=1000)
                  for name, (kind, function) in fns.items()]
        bags = self.replace(EmbeddingBagCollection(tables), init={"lambda": starling.Constant(2.0)}).bags
        rows = {name: bag.table.pull(range(1000)) for name, bag in bags.items()}
        for name in ("f32", "f16", "bf16", "int8"):
            self.assertEqual(bags[name].table.values, name)
        for name, value in (("bf16", 0.5), ("int8", 0), ("ones", 1), ("lambda", 2)):
            self.assert_rows(rows[name], numpy.full((1000, 64), value))
        for name, most in (("f32", 1.0), ("default", 0.25)):
            self.assertTrue(0.99 * most < rows[name].max() < most and -most <= rows[name].min() < -0.99 * most)
        self.assertAlmostEqual(rows["f16"].std(), 0.5, places=2)
        self.assertTrue(0.5 <= rows["cut"].min() < 0.51 and 1.49 < rows["cut"].max() <= 1.5)
        self.assertFalse((rows["f32"] == rows["again"]).any())
        self.assertTrue(1.9 < rows["plain"].max() <= 2)
        for name, bag in bags.items():
            self.assertEqual(bag(torch.tensor([[1]])).dtype, torch.float32, name)

    def test_rows_beyond_num_embeddings(self):
        def push(table, begin, count):
            table.push(range(begin, begin + count), numpy.ones((count, 4), numpy.float32))

        tables = [Config("t1", num_embeddings=100, init_fn=init.zeros_)]
        table = self.replace(EmbeddingBagCollection(tables)).bags["t1"].table
        for _ in range(20):
            push(table, 0, 100)  # a shard has 55 of these keys
        self.assertEqual((table.stats().rows, table.stats().evicted_room), (100, 0))
        for begin in range(0, 20000, 1000):
            push(table, begin, 1000)
        support.wait_until(lambda: table.stats().rows <= 100 + 64 * 10, "eviction")
        self.assertGreater(table.stats().evicted_room, 0)
        self.prefix += "kept."
        table = self.replace(EmbeddingBagCollection(tables), policy=starling.Policy()).bags["t1"].table
        for begin in range(0, 20000, 1000):
            push(table, begin, 1000)
        self.assertEqual(table.stats().rows, 20000)

    def test_bad_features(self):
        bags = self.replace(EmbeddingBagCollection([Config("t1", ["a", "b"])]))
        keys, lengths = torch.tensor([1, 2, 3]), torch.tensor([1, 0, 2, 0])
        for given, text in (
                ((["a", "b"], keys, torch.tensor([1, 0, 1, 0])), "3 values, 4 lengths, with the sum 2"),
                ((["a", "b"], keys, torch.tensor([4, 0, -1, 0])), "3 values, 4 lengths, with the sum 3"),
                ((["a", "b"], keys, lengths.float()), "torch.float32; accepted: lengths of int64"),
                ((["a", "b"], keys, lengths, torch.ones(2)), "2 weights"),
                ((["a", "b"], keys, torch.tensor([1, 0, 2])), "3 lengths for 2 keys"),
                (([], keys[:0], lengths[:0]), "0 lengths for 0 keys")):
            with self.assertRaisesRegex(ValueError, "^features: .*" + text):
                bags(KeyedJaggedTensor(*given))
        with self.assertRaisesRegex(KeyError, "features: none for 'b' among 'a', 'c'; accepted"):
            bags(KeyedJaggedTensor(["a", "c"], keys, lengths))
        with self.assertRaisesRegex(TypeError, "^a: keys of torch.float32"):
            bags(KeyedJaggedTensor(["a", "b"], keys.float(), lengths))
        for given in ((keys.tolist(), lengths), (keys.reshape(1, 3), lengths), (keys, None)):
            with self.assertRaisesRegex(TypeError, "^features: (values|lengths) is .*; accepted: a tensor of one dimension in CPU"):
                bags(KeyedJaggedTensor(["a", "b"], *given))
        varying = KeyedJaggedTensor(["a", "b"], keys, lengths)
        varying.variable_stride_per_key = lambda: True
        with self.assertRaisesRegex(ValueError, "^features: variable_stride_per_key or inverse_indices; accepted"):
            bags(varying)
        self.assertEqual(self.client.open(self.prefix + "t1").stats().rows, 0)

    def test_what_cannot_be_replaced(self):
        evicting = type("CountBasedEvictionPolicy", (), {})()
        for config, text in (
                (Config("t", data_type=DataType.INT4), "table t: data_type INT4; accepted: FP32, FP16, BF16, INT8"),
                (Config("t", data_type=DataType.UINT8), "table t: data_type UINT8"),
                (Config("t", pooling=PoolingType.NONE), "table t: pooling NONE; accepted: SUM, and MEAN"),
                (Config("t", init_fn=lambda tensor: tensor.fill_(1)), "table t: init_fn <function .*replace.init={'t'"),
                (Config("t", init_fn=init.xavier_normal_), "table t: init_fn <function xavier_normal_"),
                (Config("t", init_fn=functools.partial(init.trunc_normal_, std=0.1)), "table t: init_fn .*trunc_normal_"),
                (Config("t", num_embeddings=0), "table t: num_embeddings: 0"),
                (Config("t", ["a", "a"]), r"table t: feature_names \['a', 'a'\]; accepted: each name once"),
                (Config("t", virtual_table_eviction_policy=evicting), "virtual_table_eviction_policy CountBasedEvictionPolicy")):
            model = torch.nn.Sequential(EmbeddingBagCollection([Config("first")]), EmbeddingBagCollection([Config("t")]))
            model[1].configs = [config]
            with self.assertRaisesRegex(ValueError, text):
                self.replace(model)
            self.assertIs(type(model[0]), EmbeddingBagCollection)
        self.assertNotIn(self.prefix + "first", [entry.name for entry in self.client.tables()])
        weighted = EmbeddingBagCollection([Config("t", pooling=PoolingType.MEAN)], True)
        with self.assertRaisesRegex(ValueError, "table t: pooling MEAN with is_weighted; accepted: SUM"):
            self.replace(weighted)
        with self.assertRaisesRegex(ValueError, "is_weighted: the bag 'a' is 'mean'"):
            starling.torch.EmbeddingBagCollection({"a": starling.torch.EmbeddingBag(self.sparse(4))}, True)
        two = torch.nn.ModuleList([EmbeddingBagCollection([Config("t")]), EmbeddingCollection([Config("t")])])
        with self.assertRaisesRegex(ValueError, r"\.t: two configurations have this name; accepted: one; replace each"):
            self.replace(two)
        with self.assertRaisesRegex(ValueError, "init: 'x'; accepted: 't'"):
            self.replace(two[0], init={"x": starling.Zeros()})
        with self.assertRaisesRegex(ValueError, "policy: None, .*accepted with BSP"):
            self.replace(two[0], consistency=starling.BSP)
        with self.assertRaisesRegex(ValueError, "EmbeddingBagCollection: no configurations"):
            self.replace(EmbeddingBagCollection([]))
        for model in (torch.nn.Linear(1, 1), self.replace(two[0])):
            with self.assertRaisesRegex(ValueError, r"^model: .*; accepted: a model that has a module with embedding_bag_configs"):
                self.replace(model)


class Wrapper(torch.nn.Module):
    """As TorchRec's wrappers of a collection: it has the configurations of what it wraps, and changes the features."""

    def __init__(self, bags):
        super().__init__()
        self.bags = bags

    def embedding_bag_configs(self):
        return self.bags.embedding_bag_configs()

    def forward(self, features):
        return self.bags(KeyedJaggedTensor(features.keys(), (features.values() + 1) % ROWS, *features.parts[2:]))


class Remapper(torch.nn.Module):
    """As ManagedCollisionCollection: it has configurations, and no rows."""

    def embedding_configs(self):
        return configs()

    def evict(self):
        return {}


class Dlrm(torch.nn.Module):
    """Dense features, pooled bags and the sum of a sequence, and the products of them all."""

    def __init__(self):
        super().__init__()
        self.bags = Wrapper(EmbeddingBagCollection([Config("t1", ["b", "a"]), Config("user", pooling=PoolingType.MEAN)]))
        self.same = torch.nn.ModuleDict({"shared": self.bags.bags})
        self.sequences = EmbeddingCollection([Config("t3", ["c"])])
        self.remapper = Remapper()
        self.bottom, self.top = torch.nn.Linear(3, 4), torch.nn.Linear(14, 1)

    def forward(self, dense, features):
        pooled = self.bags(features).to_dict()
        sequence = self.sequences(features)["c"]
        rows = torch.repeat_interleave(torch.arange(BATCH), sequence.lengths())
        summed = torch.zeros(BATCH, 4).index_add(0, rows, sequence.values())
        vectors = torch.stack([self.bottom(dense), pooled["a"], pooled["b"], pooled["user"], summed], 1)
        i, j = torch.triu_indices(5, 5, 1)
        return self.top(torch.cat([vectors[:, 0], (vectors @ vectors.transpose(1, 2))[:, i, j]], 1))


class Models(TorchrecTest):
    def test_dlrm(self):
        for pipelined in (False, True):
            with self.subTest(pipelined=pipelined):
                self.check_dlrm(pipelined)

    def check_dlrm(self, pipelined):
        self.prefix = f"{pipelined}."
        torch.manual_seed(7)
        peer = Dlrm()
        model = Dlrm()
        model.load_state_dict(peer.state_dict())
        self.assertIs(self.replace(model, init={}), model)
        self.assertIsInstance(model.bags, Wrapper)
        self.assertIsInstance(model.remapper, Remapper)
        bags, sequences = model.bags.bags, model.sequences
        self.assertIs(type(bags), starling.torch.EmbeddingBagCollection)
        self.assertIs(model.same["shared"], bags)
        self.assertIs(type(sequences), starling.torch.EmbeddingCollection)
        self.assertEqual([name for name, _ in model.named_parameters()], ["bottom.weight", "bottom.bias", "top.weight", "top.bias"])
        for each, collection in ((peer.bags.bags, bags), (peer.sequences, sequences)):
            self.copy_rows(each, collection)
        dense = starling.torch.DenseParameters(model, self.client, self.prefix + "dense", starling.SGD(lr=0.1))
        optimizer = starling.torch.Optimizer([bags, sequences, dense])
        for group in optimizer.param_groups:
            group["lr"] = 0.1
        other = torch.optim.SGD(peer.parameters(), lr=0.1)
        batches = [(torch.randn(BATCH, 3), self.features(("c", "user", "a", "b")), torch.randn(BATCH, 1)) for _ in range(5)]
        loader = starling.torch.Pipeline(batches, lambda batch: {sequences: batch[1]}, optimizer) if pipelined else batches
        losses = []
        for values, features, labels in loader:
            for each, its in ((model, optimizer), (peer, other)):
                its.zero_grad()
                losses.append(torch.nn.functional.mse_loss(each(values, features), labels))
                losses[-1].backward()
                its.step()
        torch.testing.assert_close(losses[::2], losses[1::2], rtol=1e-4, atol=1e-5)
        for each, expected in zip(dense.parameters(), [*peer.bottom.parameters(), *peer.top.parameters()]):
            torch.testing.assert_close(each, expected, rtol=1e-4, atol=1e-5)
        for each, collection in ((peer.bags.bags, bags), (peer.sequences, sequences)):
            self.assert_same_rows(each, collection)

    def test_evaluation(self):
        """A model in evaluation stays so, and leaves no gradients."""
        bags = self.replace(torch.nn.Sequential(EmbeddingBagCollection(configs())).eval())
        self.assertFalse(bags(self.features()).values().requires_grad)

    def test_cannot_be_served(self):
        class Served(torch.nn.Module):
            def __init__(self, bags):
                super().__init__()
                self.bags = bags

            def forward(self, keys):
                return self.bags(KeyedJaggedTensor(["a"], keys, torch.ones_like(keys))).values()

        model = Served(self.replace(EmbeddingBagCollection([Config("t1", ["a"])])))
        with tempfile.TemporaryDirectory() as folder, \
                self.assertRaisesRegex(ValueError, "^bags: EmbeddingBagCollection of KeyedJaggedTensor; accepted in a served model: "
                                                   "EmbeddingBagCollection of a dict"):
            starling.torch.export(model, os.path.join(folder, "model.onnx"), (torch.tensor([1, 2]),))


if __name__ == "__main__":
    harness.main()
