"""What the tests of starling.torch share."""

import sys
import threading
import unittest

from support import harness, starling

try:
    import torch  # noqa: F401
except ImportError:
    print("skipped: this interpreter has no torch (Debian: python3-torch)")
    sys.exit(harness.SKIPPED)

import starling.torch  # noqa: E402

KEYS, DIM, NAMES = 30, 4, ("a", "b")
_seed_lock = threading.Lock()


def head(seed=0):
    """A model above the pooled rows of the tables NAMES."""
    with _seed_lock:  # the generator is that of all threads
        torch.manual_seed(seed)
        return torch.nn.Sequential(torch.nn.Linear(len(NAMES) * DIM, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))


def batches(count, seed=0, size=8):
    """(keys of each table, labels) of so many batches, with repeated keys."""
    generator = torch.Generator().manual_seed(seed)
    return [({name: (torch.randint(0, KEYS, (size, 3), generator=generator),) for name in NAMES},
             torch.randn(size, 1, generator=generator)) for _ in range(count)]


class Model:
    """A collection and a head on the tables of a client, with their optimizer."""

    def __init__(self, client, optimizer, consistency=starling.ASP, seed=0, **options):
        self.tables = {name: client.sparse(name, DIM, optimizer, starling.Normal(std=0.5, seed=ord(name)), consistency)
                       for name in NAMES}
        self.bags = starling.torch.EmbeddingBagCollection(
            {name: starling.torch.EmbeddingBag(table, "sum") for name, table in self.tables.items()})
        self.head = head(seed)
        self.dense = starling.torch.DenseParameters(self.head, client, "head", optimizer, consistency)
        self.optimizer = starling.torch.Optimizer([self.bags, self.dense], **options)

    def loss(self, features, labels):
        pooled = self.bags(features)
        outputs = self.head(torch.cat([pooled[name] for name in NAMES], 1))
        return torch.nn.functional.mse_loss(outputs, labels)

    def train(self, given):
        for features, labels in given:
            self.optimizer.zero_grad()
            self.loss(features, labels).backward()
            self.optimizer.step()

    def rows(self):
        return [torch.from_numpy(table.pull(range(KEYS))) for table in self.tables.values()]

    def values(self):
        """All values of the model: of the servers, and of the head's parameters."""
        return [*self.rows(), torch.cat([each.detach().reshape(-1) for each in self.head.parameters()])]


class Peer(Model):
    """The same model in torch alone, with the values that the other has now."""

    def __init__(self, model, optimizer, **options):
        self.embeddings = [torch.nn.EmbeddingBag.from_pretrained(rows, freeze=False, mode="sum")
                           for rows in model.rows()]
        self.head = head()
        self.head.load_state_dict(model.head.state_dict())
        self.optimizer = optimizer([*(each.weight for each in self.embeddings), *self.head.parameters()], **options)

    def bags(self, features):
        return {name: each(*features[name]) for name, each in zip(NAMES, self.embeddings)}

    def rows(self):
        return [each.weight.detach() for each in self.embeddings]


class ModelTest(unittest.TestCase):
    """Each test has servers, because each trains the same tables."""

    workers = 1

    def setUp(self):
        self.cluster = starling.local_cluster(2, workers=self.workers, timeout=harness.DEADLINE_S)
        self.addCleanup(self.cluster.close)
        self.client = self.connect(task=0) if self.workers == 1 else None

    def connect(self, **options):
        client = self.cluster.connect(timeout=harness.DEADLINE_S, **options)
        self.addCleanup(client.leave)
        return client

    def assert_close(self, model, peer):
        for got, expected in zip(model.values(), peer.values()):
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)

    def run_job(self, steps, loader=lambda model, given: given):
        """Trains with all workers of a BSP job. Returns the values that each has at the end.

        loader(model, batches): what the worker iterates over.
        """
        values = {}

        def run(task):
            with self.connect(task=task) as client:
                model = Model(client, starling.Adagrad(lr=0.1), starling.BSP, seed=task)
                model.train(loader(model, batches(steps, seed=task)))
                values[task] = model.values()

        threads = [threading.Thread(target=run, args=(task,)) for task in range(self.workers)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(harness.DEADLINE_S)
        self.assertEqual(len(values), self.workers)
        return values
