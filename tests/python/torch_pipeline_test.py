#!/usr/bin/env python3
"""starling.torch.Pipeline: the same values as without it, and epochs that end early."""

import unittest.mock

from support import harness, starling
from torch_support import Model, ModelTest, batches, torch

STEPS = 12


def pipeline_of(model, loader, ahead=0):
    return starling.torch.Pipeline(loader, lambda batch: {model.bags: batch[0]}, model.optimizer, ahead)


class PipelineTest(ModelTest):
    def setUp(self):
        super().setUp()
        self.model = Model(self.client, starling.Adagrad(lr=0.2))

    def pipeline(self, loader, ahead=0):
        return pipeline_of(self.model, loader, ahead)

    def expected(self, *epochs, train=Model.train):
        """The values of the same training without a Pipeline, on other servers."""
        with starling.local_cluster(2, timeout=harness.DEADLINE_S) as cluster, cluster.connect(task=0) as client:
            model = Model(client, starling.Adagrad(lr=0.2))
            for each in epochs:
                train(model, each)
            return model.values()

    def assert_expected(self, *epochs, **options):
        torch.testing.assert_close(self.model.values(), self.expected(*epochs, **options), rtol=0, atol=0)


class Exact(PipelineTest):
    def test_same_values_and_no_other_pulls(self):
        with unittest.mock.patch("starling.torch.embedding.look_up") as look_up:  # of a plain pull
            look_up.side_effect = starling.torch.pipeline.look_up
            self.model.train(self.pipeline(batches(STEPS)))
        self.assertEqual([len(call.args[0]) for call in look_up.call_args_list],
                         [2] + (STEPS - 1) * [0])  # features of the first batch, before any step
        self.assert_expected(batches(STEPS))

    def test_rows_travel_with_the_step(self):
        pipeline = iter(self.pipeline(batches(2)))
        self.model.train([next(pipeline)])
        features, labels = next(pipeline)
        with unittest.mock.patch.object(starling.SparseTable, "pull") as pull:
            self.model.loss(features, labels)
        pull.assert_not_called()

    def test_two_epochs(self):
        pipeline = self.pipeline(batches(5))
        self.assertEqual(len(pipeline), 5)
        for _ in range(2):
            self.model.train(pipeline)
        self.assert_expected(batches(5), batches(5))

    def test_several_batches_a_step(self):
        def train(model, given):
            for index, (features, labels) in enumerate(given):
                model.loss(features, labels).backward()
                if index % 3 == 2:
                    model.optimizer.step()
                    model.optimizer.zero_grad()

        train(self.model, self.pipeline(batches(STEPS)))
        self.assert_expected(batches(STEPS), train=train)

    def test_several_steps_a_batch(self):
        def train(model, given):
            for batch in given:
                model.train([batch, batch])

        train(self.model, self.pipeline(batches(STEPS)))
        self.assert_expected(batches(STEPS), train=train)

    def test_evaluation_and_other_keys_between(self):
        other = batches(1, seed=9)[0]
        for index, batch in enumerate(self.pipeline(batches(STEPS))):
            with torch.no_grad():
                plain = self.model.loss(*batch)
            torch.testing.assert_close(self.model.loss(*batch), plain, rtol=0, atol=0)
            self.model.train([other if index == 4 else batch])
        given = batches(STEPS)
        self.assert_expected([*given[:4], other, *given[5:]])


class SharedTables(ModelTest):
    def test_same_values(self):
        table = self.client.sparse("shared", 3, starling.Adagrad(lr=0.2), starling.Normal(std=0.5))
        kept = table.pull(range(30))
        values = []
        for is_early in (False, True):
            table.assign(range(30), kept)
            bag = starling.torch.EmbeddingBag(table, "mean", padding_idx=0)
            bags = starling.torch.EmbeddingBagCollection({"a": bag, "b": bag, "c": starling.torch.EmbeddingBag(table)})
            optimizer = starling.torch.Optimizer([bags])
            given = [{"a": a, "b": b, "c": a} for (features, _) in batches(STEPS) for (a,), (b,) in [features.values()]]
            if is_early:
                given = starling.torch.Pipeline(given, lambda features: {bags: features}, optimizer)
            pulled, steps = table.stats().pulled_rows, table.stats().steps
            for features in given:
                optimizer.zero_grad()
                sum(each.square().sum() for each in bags(features).values()).backward()
                optimizer.step()
            self.assertEqual(table.stats().steps - steps, STEPS)
            values.append((table.stats().pulled_rows - pulled, table.pull(range(30))))
        self.assertEqual(values[0][0], values[1][0])
        torch.testing.assert_close(values[0][1], values[1][1], rtol=0, atol=0)


class Workers(ModelTest):
    workers = 2

    def test_bsp(self):
        plain = self.run_job(6)
        self.setUp()
        torch.testing.assert_close(self.run_job(6, pipeline_of), plain, rtol=0, atol=0)


class Ends(PipelineTest):
    def test_early_end(self):
        for index, batch in enumerate(self.pipeline(batches(STEPS))):
            if index == 3:
                break
            self.model.train([batch])
        self.assertIsNone(self.model.optimizer._run)
        self.model.train(self.pipeline(batches(4)))
        self.assert_expected(batches(STEPS)[:3], batches(4))

    def test_empty_loader(self):
        self.assertEqual(list(self.pipeline([])), [])

    def test_batches_without_keys(self):
        bag = starling.torch.EmbeddingBag(self.connect().sparse("none", 2, starling.SGD(lr=0.1)))
        optimizer = starling.torch.Optimizer([bag])
        for _ in starling.torch.Pipeline([1, 2, 3], lambda batch: {}, optimizer):
            optimizer.step()

    def test_failed_step(self):
        pipeline = iter(self.pipeline(batches(3)))
        self.model.train([next(pipeline)])
        batch = next(pipeline)
        self.model.train([batch])
        with unittest.mock.patch.object(starling.Step, "wait", side_effect=starling.DeadlineError("late")):
            with self.assertRaises(starling.DeadlineError):
                self.model.train([batch])
        self.model.train([next(pipeline)])  # pulls as usual
        given = batches(3)
        self.assert_expected([given[0], given[1], given[1], given[2]])

    def test_errors_of_the_loader_and_of_keys_of(self):
        def loader(error):
            yield from batches(3)
            raise error

        for ahead in (0, 2):
            with self.assertRaisesRegex(OSError, "lost"):
                self.model.train(self.pipeline(loader(OSError("lost")), ahead))
            self.assertEqual(self.client.clock, 3)
            with self.assertRaises(KeyError):
                self.model.train(starling.torch.Pipeline([1], lambda batch: {}[batch], self.model.optimizer, ahead))
            with self.assertRaisesRegex(RuntimeError, "StopIteration"):
                self.model.train(starling.torch.Pipeline([1], lambda batch: next(iter([])), self.model.optimizer, ahead))
            self.model.train(self.pipeline(batches(2), ahead))
            if ahead == 0:
                self.assert_expected(batches(3), batches(2))
            self.setUp()

    def test_interrupts(self):
        def loader(count):
            yield from batches(count)
            raise KeyboardInterrupt

        for ahead in (0, 3):
            for count in (0, 1, 4):
                with self.assertRaises(KeyboardInterrupt):
                    self.model.train(self.pipeline(loader(count), ahead))
                self.assertIsNone(self.model.optimizer._run)
                self.model.train(self.pipeline(batches(2), ahead))


class Ahead(PipelineTest):
    def test_one_pull_a_batch(self):
        for consistency in (starling.ASP, starling.SSP(2)):
            with starling.local_cluster(2, timeout=harness.DEADLINE_S) as cluster, cluster.connect(task=0) as client:
                model, given = Model(client, starling.SGD(lr=0.1), consistency), batches(STEPS)
                with unittest.mock.patch("starling.torch.embedding.look_up", return_value=([], [])) as look_up:
                    model.train(pipeline_of(model, given, 3))
                self.assertEqual(look_up.call_args_list, STEPS * [unittest.mock.call([])])
                self.assertEqual(client.clock, STEPS)

    def test_rows_of_earlier_values(self):
        before = self.model.rows()
        batch = batches(1)[0]
        for index, given in enumerate(self.pipeline([batch] * 4, 2)):
            pooled = self.model.bags(given[0])["a"]
            expected = torch.nn.functional.embedding_bag(given[0]["a"][0], before[0], mode="sum")
            (torch.testing.assert_close if index <= 2 else self.assert_differs)(pooled, expected)
            self.model.train([given])

    def assert_differs(self, one, other):
        self.assertFalse(torch.equal(one, other))

    def test_bad_arguments(self):
        for ahead, text in ((-1, "ahead: -1; accepted: 0 to 64"), (65, "ahead: 65; accepted: 0 to 64")):
            with self.assertRaisesRegex(ValueError, text):
                self.pipeline([], ahead)
        bag = starling.torch.EmbeddingBag(self.client.sparse("bsp", 2, consistency=starling.BSP))
        optimizer = starling.torch.Optimizer([bag])
        with self.assertRaisesRegex(ValueError, "ahead: 1, and table bsp is BSP, .* accepted: 0, or tables in ASP or SSP"):
            starling.torch.Pipeline([], dict, optimizer, ahead=1)
        with self.assertRaisesRegex(TypeError, "keys_of: a key 'words'; accepted: EmbeddingBag, "):
            list(starling.torch.Pipeline([{"words": torch.tensor([1])}], dict, optimizer))
        with self.assertRaisesRegex(TypeError, "keys_of: table bsp: list of int, int; accepted: keys"):
            list(starling.torch.Pipeline([[1, 2]], lambda batch: {bag: batch}, optimizer))
        bags = starling.torch.EmbeddingBagCollection({"words": bag})
        with self.assertRaisesRegex(TypeError, "keys_of: Tensor; accepted: a dict of name to keys"):
            list(starling.torch.Pipeline([torch.tensor([1])], lambda batch: {bags: batch}, optimizer))
        with self.assertRaisesRegex(KeyError, "keys_of: 'word'; accepted: 'words'"):
            list(starling.torch.Pipeline([torch.tensor([1])], lambda batch: {bags: {"word": batch}}, optimizer))
        with self.assertRaisesRegex(TypeError, "keys_of: returned list; accepted: a dict"):
            list(starling.torch.Pipeline([[1, 2]], list, optimizer))


if __name__ == "__main__":
    harness.main()
