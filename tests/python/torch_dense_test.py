#!/usr/bin/env python3
"""starling.torch.DenseParameters: parameters of several workers in one table."""

import itertools
import tempfile
import threading
import unittest.mock

import support
from support import harness, starling
from torch_support import torch

RATE = 0.5


def model(seed, width=4):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.ReLU(), torch.nn.Linear(width, 2))


def flat(module):
    return torch.cat([each.detach().reshape(-1) for each in module.parameters()])


class Dense(support.ClusterTest):
    workers = 2

    def dense(self, module, client=None, **options):
        """The module's parameters in the table of this test."""
        return starling.torch.DenseParameters(module, client or self.client, self.id().rpartition(".")[2],
                                              starling.SGD(lr=RATE), **options)

    def assert_equal(self, got, expected):
        torch.testing.assert_close(got, expected, rtol=0, atol=0)

    def test_views_of_initial_values(self):
        module, peer = model(1), model(1)
        dense = self.dense(module)
        self.assert_equal(flat(module), flat(peer))
        self.assert_equal(torch.from_numpy(dense.table.pull()), flat(peer))
        dense.values.fill_(3)
        self.assertTrue((flat(module) == 3).all())
        dense.pull()
        self.assert_equal(flat(module), flat(peer))

    def test_training_equals_torch(self):
        for set_to_none in (False, True):
            module, peer = model(1), model(1)
            dense = starling.torch.DenseParameters(module, self.client, f"training-{set_to_none}", starling.SGD(lr=RATE))
            optimizer = torch.optim.SGD(peer.parameters(), lr=RATE)
            for batch in range(20):
                features = torch.randn(8, 3)
                for each in (module, peer):
                    each.zero_grad(set_to_none)
                    each(features).square().sum().mul(0.01).backward()
                dense.push()
                dense.pull()
                optimizer.step()
                torch.testing.assert_close(flat(module), flat(peer))

    def test_narrow_parameters(self):
        """The servers keep the sum of steps that are too small for the module's parameters."""
        for dtype in (torch.bfloat16, torch.float16):
            module = model(1).to(dtype)
            dense = starling.torch.DenseParameters(module, self.client, f"narrow-{dtype}", starling.SGD(lr=2**-13))
            first = flat(module).clone()
            self.assertEqual((first.dtype, dense.values.dtype), (dtype, dtype))
            self.assert_equal(torch.from_numpy(dense.table.pull()), first.float())
            for _ in range(64):
                for each in module.parameters():
                    each.grad = torch.ones_like(each)
                dense.push()
            dense.pull()
            self.assert_equal(flat(module), (first.float() - 64 * 2**-13).to(dtype))

    def test_parameters_without_gradient(self):
        module, peer = model(1), model(1)
        dense = self.dense(module)
        dense.push()
        self.assertEqual(dense.table.stats().steps, 1)  # the assign: nothing was pushed
        module[0](torch.ones(1, 3)).sum().backward()
        dense.push()
        dense.pull()
        self.assertTrue((module[0].bias != peer[0].bias).all())
        self.assert_equal(module[2].weight, peer[2].weight)

    def test_frozen_parameters_stay(self):
        module = model(1)
        module[0].requires_grad_(False)
        dense = self.dense(module)
        self.assertEqual(dense.table.length, sum(each.numel() for each in module[2].parameters()))

    def test_others_wait_for_worker_0(self):
        other, started = {}, threading.Event()

        def run():
            client = self.connect(task=1)
            polls = starling.DenseTable.stats

            def stats(table):
                started.set()
                return polls(table)

            with unittest.mock.patch.object(starling.DenseTable, "stats", stats):
                self.dense(other.setdefault("module", model(2)), client, consistency=starling.BSP)

        thread = threading.Thread(target=run)
        thread.start()
        self.assertTrue(started.wait(harness.DEADLINE_S))
        module = model(1)
        self.dense(module, self.connect(task=0), consistency=starling.BSP)
        thread.join(harness.DEADLINE_S)
        self.assert_equal(flat(module), flat(model(1)))
        self.assert_equal(flat(other["module"]), flat(module))

    def test_no_worker_0(self):
        client = self.connect(task=1)
        with unittest.mock.patch("starling.torch.dense.monotonic", side_effect=itertools.count(0, 1e9).__next__):
            with self.assertRaisesRegex(starling.DeadlineError, "worker 0 has not assigned .* test_no_worker_0 within"):
                self.dense(model(1), client)

    def test_worker_0_is_started_again(self):
        with self.connect(task=0) as client:
            trained = self.dense(model(1), client)
            trained.table.push(torch.ones(trained.table.length))
            client.leave()
        module = model(2)
        self.dense(module, self.connect(task=0))
        torch.testing.assert_close(flat(module), flat(model(1)) - RATE)

    def test_worker_0_is_started_again_during_its_assign(self):
        table = self.client.dense("partial", flat(model(1, 2000)).numel(), starling.SGD(lr=RATE))
        table.assign(torch.ones(1024), start=0)
        self.assertEqual(table.stats().steps, 0)  # one of two servers has none
        module = model(1, 2000)
        starling.torch.DenseParameters(module, self.client, "partial", starling.SGD(lr=RATE))
        self.assert_equal(flat(module), flat(model(1, 2000)))

    def test_restored_job(self):
        with tempfile.TemporaryDirectory() as folder:
            for restore, seed in ((None, 1), ("newest", 2)):
                with starling.local_cluster(2, checkpoint_dir=folder, restore=restore) as cluster, \
                        cluster.connect(task=0, timeout=harness.DEADLINE_S) as client:
                    module = model(seed)
                    self.dense(module, client)
                    self.assert_equal(flat(module), flat(model(1)))
                    client.checkpoint()

    def test_backward_after_the_parameters_changed(self):
        module = model(1)
        dense = self.dense(module)
        loss = module(torch.ones(1, 3)).sum()
        dense.pull()
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()

    def test_bad_modules(self):
        for module, text in ((torch.nn.ReLU(), "module: none of its parameters requires a gradient"),
                             (model(1).double(), r"parameter 0.weight: torch.float64 on cpu; .*module.float\(\)"),
                             (torch.nn.Sequential(model(1), model(1).half()), "parameter 1.0.weight: torch.float16 .*one for all")):
            with self.assertRaisesRegex(ValueError, text):
                self.dense(module)
        module = model(1)
        dense = self.dense(module)
        with self.assertRaises(starling.TableMismatch):
            self.dense(model(1, 5))
        module.double()
        with self.assertRaisesRegex(RuntimeError, "parameter 0.weight: its memory was replaced"):
            dense.pull()


if __name__ == "__main__":
    harness.main()
