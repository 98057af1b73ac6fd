#!/usr/bin/env python3
"""starling.torch.Optimizer against torch's optimizers, and in jobs of several workers."""

import signal
import threading
import unittest.mock

from support import harness, starling, wait_until
from torch_support import DIM, Model, ModelTest, Peer, batches, head, torch

SGD, ADAGRAD = starling.SGD(lr=0.1), starling.Adagrad(lr=0.1)
PEERS = {SGD: (torch.optim.SGD, {"lr": 0.1}),
         ADAGRAD: (torch.optim.Adagrad, {"lr": 0.1, "initial_accumulator_value": 0.1, "eps": 1e-8})}


class Training(ModelTest):
    def pair(self, optimizer=SGD):
        """A model, and torch's with the same values."""
        model = Model(self.client, optimizer)
        kind, options = PEERS[optimizer]
        return model, Peer(model, kind, **options)

    def test_sgd_and_adagrad_equal_torch(self):
        for optimizer in PEERS:
            with self.subTest(optimizer):
                model, peer = self.pair(optimizer)
                before = self.client.clock
                for each in (model, peer):
                    each.train(batches(50))
                self.assert_close(model, peer)
                self.assertEqual(self.client.clock - before, 50)
            self.setUp()

    def test_worker_is_started_again(self):
        model, peer = self.pair()
        model.train(batches(5))
        self.client.leave()
        client = self.connect(task=0)
        again = Model(client, SGD, seed=1)
        again.train(batches(12)[client.clock:])
        peer.train(batches(12))
        self.assert_close(again, peer)

    def test_step_is_one_step_of_the_client(self):
        model, _ = self.pair()
        features, labels = batches(1)[0]
        model.loss(features, labels).backward()
        with unittest.mock.patch.object(starling.Client, "step", autospec=True, side_effect=starling.Client.step) as step:
            model.optimizer.step()
        self.assertEqual(step.call_count, 1)

    def test_several_backward_passes_are_one_push(self):
        model, peer = self.pair(ADAGRAD)  # two pushes would add two squares
        for each in (model, peer):
            for features, labels in batches(4):
                each.loss(features, labels).backward()
            each.optimizer.step()
        self.assert_close(model, peer)

    def test_zero_grad(self):
        model, peer = self.pair()
        (first, labels), (second, _) = batches(2)
        for each in (model, peer):
            each.loss(second, labels).backward()  # forgotten
            loss = each.loss(first, labels)
            each.optimizer.zero_grad()
            loss.backward()
            each.optimizer.step()
        self.assert_close(model, peer)

    def test_closure(self):
        model, peer = self.pair()
        features, labels = batches(1)[0]
        losses = []
        for each in (model, peer):
            def closure(each=each):
                each.optimizer.zero_grad()
                loss = each.loss(features, labels)
                loss.backward()
                return loss
            losses.append(each.optimizer.step(closure))
        torch.testing.assert_close(*losses)
        self.assert_close(model, peer)

    def test_schedulers(self):
        model, peer = self.pair(ADAGRAD)
        for each in (model, peer):
            scheduler = torch.optim.lr_scheduler.LambdaLR(each.optimizer, lambda epoch: (1, 0.25, 2)[epoch % 3])
            for batch in batches(12):
                each.train([batch])
                scheduler.step()
        self.assert_close(model, peer)

    def test_rate_of_zero_pushes_nothing(self):
        model, _ = self.pair()
        before, steps = model.values(), model.tables["a"].stats().steps
        for group in model.optimizer.param_groups:
            group["lr"] = 0
        model.train(batches(3))
        torch.testing.assert_close(model.values(), before, rtol=0, atol=0)
        self.assertEqual(model.tables["a"].stats().steps, steps)
        self.assertEqual(model.tables["a"].stats().rows, 0)

    def test_state_is_the_groups(self):
        model, _ = self.pair()
        groups = model.optimizer.param_groups
        self.assertEqual([(group["name"], group["lr"]) for group in groups], [("a", 0.1), ("b", 0.1), ("head", 0.1)])
        groups[1]["lr"] = 0.5
        state = model.optimizer.state_dict()
        self.assertEqual(state["state"], {})
        other = starling.torch.Optimizer([model.bags, model.dense])
        other.load_state_dict(state)
        self.assertEqual([group["lr"] for group in other.param_groups], [0.1, 0.5, 0.1])

    def test_evaluation_only_pulls(self):
        model, _ = self.pair()
        features, labels = batches(1)[0]
        with torch.no_grad():
            model.loss(features, labels)
        model.bags.eval()
        model.loss(features, labels).backward()  # of the head
        model.optimizer.zero_grad()
        before = model.values()
        model.optimizer.step()
        torch.testing.assert_close(model.values(), before, rtol=0, atol=0)
        self.assertEqual(model.tables["a"].stats().rows, 0)


class Errors(ModelTest):
    def test_not_finite(self):
        model = Model(self.client, SGD, check_finite=True)
        features, labels = batches(1)[0]
        before, clock = model.values(), self.client.clock
        for factor in (float("nan"), float("inf")):
            (model.bags(features)["b"] * factor).sum().backward()
            with self.assertRaisesRegex(FloatingPointError, "gradient of table b: NaN or infinite; nothing was sent"):
                model.optimizer.step()
            model.optimizer.zero_grad()
            model.head[2].bias.grad = torch.tensor([factor])
            with self.assertRaisesRegex(FloatingPointError, "gradient of parameter 2.bias"):
                model.optimizer.step()
            model.optimizer.zero_grad()
        torch.testing.assert_close(model.values(), before, rtol=0, atol=0)
        self.assertEqual(self.client.clock, clock)
        model.train(batches(1))

    def test_backward_after_step(self):
        model = Model(self.client, SGD)
        loss = model.bags(batches(1)[0][0])["a"].sum()
        loss.backward(retain_graph=True)
        model.optimizer.step()
        with self.assertRaisesRegex(RuntimeError, "backward, table a: .* accepted: backward before step"):
            loss.backward()
        model.train(batches(1))

    def test_another_thread(self):
        model, raised = Model(self.client, SGD), []

        def run():
            try:
                model.optimizer.step()
            except RuntimeError as error:
                raised.append(str(error))

        thread = threading.Thread(target=run)
        thread.start()
        thread.join(harness.DEADLINE_S)
        self.assertIn("only the thread that made this Optimizer", raised[0])

    def test_rates(self):
        model = Model(self.client, SGD)
        for rate in (-0.1, float("nan"), float("inf")):
            model.optimizer.param_groups[1]["lr"] = rate
            with self.assertRaisesRegex(ValueError, f"lr of table b: {rate}; accepted: a finite number, 0 or more"):
                model.optimizer.step()

    def test_parts(self):
        model = Model(self.client, SGD)
        bag = starling.torch.EmbeddingBag
        for parts, error, text in (
                ([], ValueError, "parts: none; accepted: at least one"),
                ([model.dense, model.bags, starling.torch.DenseParameters(head(), self.client, "head", SGD)], ValueError,
                 "parts: two DenseParameters on table head; accepted: one for each table"),
                ([model.head], TypeError, "(?s)parts: Sequential.*; accepted: EmbeddingBag, "),
                ([bag(self.client.sparse("sum", DIM, starling.Sum()))], ValueError,
                 r"table sum has the optimizer Sum\(\); accepted: optimizers with a learning rate"),
                ([model.dense, bag(self.connect().sparse("a", DIM, SGD, starling.Normal(std=0.5, seed=97)))],
                 ValueError, "parts: tables head and a were opened by 2 clients; accepted: tables of one client")):
            with self.subTest(text), self.assertRaisesRegex(error, text):
                starling.torch.Optimizer(parts)
        with self.assertRaisesRegex(TypeError, "add_param_group: an Optimizer has a group for each table"):
            model.optimizer.add_param_group({"params": [torch.zeros(1)]})

    def test_closed_client(self):
        model = Model(self.client, SGD)
        self.client.close()
        with self.assertRaises(starling.ClosedError):
            model.optimizer.step()


class ServerWithoutItsValues(harness.StarlingTest):
    def restart_the_last(self, count):
        """Trains on so many servers, and starts the last one again without its values. Returns hosts, client, model."""
        servers, flags = self.start_ps(count)
        for server in servers:
            server.wait_line("ready")
        hosts = flags[1].split(",")
        client = starling.connect(hosts[0], task=0, workers=1, timeout=harness.DEADLINE_S)
        self.addCleanup(client.leave)
        model = Model(client, SGD)
        model.train(batches(2))
        self.assertFalse(client.values_lost)
        servers[-1].signal(signal.SIGKILL)
        servers[-1].wait()
        harness.wait_unheard("127.0.0.1", int(hosts[-1].split(":")[1]))
        self.start("starling-ps", *flags, "--job-name", "ps", "--task-index", count - 1).wait_line("ready")
        return hosts, client, model

    def test_training_on_a_lone_server_ends(self):
        _, _, model = self.restart_the_last(1)
        with self.assertRaisesRegex(starling.CorruptError, "ps/0 was restarted without its values"):
            wait_until(lambda: model.train(batches(1)), "the error")

    def test_step_names_server_and_remedy(self):
        hosts, client, model = self.restart_the_last(2)
        wait_until(lambda: client.values_lost, "values_lost")
        before = client.clock
        for use in (model.optimizer.step, lambda: model.bags(batches(1)[0][0]), model.bags.push, model.dense.push,
                    model.dense.pull):
            with self.assertRaisesRegex(starling.CorruptError, "ps/1 was restarted without its values.*--restore newest"):
                use()
        self.assertEqual(client.clock, before)
        another = starling.connect(hosts[0], task=-1, workers=1, timeout=harness.DEADLINE_S)
        self.addCleanup(another.leave)
        with self.assertRaisesRegex(starling.CorruptError, "ps/1 was restarted"):  # and assigns no first values
            starling.torch.DenseParameters(head(), another, "head", SGD)


class Workers(ModelTest):
    workers = 4

    def test_bsp_repeats_bit_for_bit(self):
        first = self.run_job(12)
        self.setUp()
        again = self.run_job(12)
        for task in first:
            torch.testing.assert_close(again[task], first[task], rtol=0, atol=0)
            torch.testing.assert_close(first[task], first[0], rtol=0, atol=0)


if __name__ == "__main__":
    harness.main()
