#!/usr/bin/env python3
"""Models of starling.torch, published while their job runs, over HTTP: starling-serve answers what torch computes."""

import json
import os
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import torch_support  # skips without torch
from support import PRELOAD, harness, numpy, starling
import torch

import objects_cluster_test
import starling.torch

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "python", "examples"))
import dlrm_criteo  # noqa: E402
import two_tower  # noqa: E402
from training import auc, parser, read  # noqa: E402

TYPES = {torch.int64: "INT64", torch.float32: "FP32", torch.bool: "BOOL"}


def padded(bags, length, padding):
    return torch.tensor([(bag + [padding] * length)[:length] for bag in bags])


class Mixed(torch.nn.Module):
    """Bags with offsets, keys that forward computes, several bags a row, a dict, a part without keys, and tables of each
    precision."""

    def __init__(self, client):
        super().__init__()
        tables = [client.sparse(values, 3, starling.SGD(0.1), init, starling.ASP, values=values) for values, init in (
            ("int8", starling.Uniform(-1, 1, seed=2**64 - 5)), ("bf16", starling.Constant(0.5)),
            ("f16", starling.TruncatedNormal(std=0.5, seed=3)))]
        bag = starling.torch.EmbeddingBag
        self.words = bag(tables[0], "mean", padding_idx=-7)
        self.pairs = starling.torch.EmbeddingBagCollection({
            "each": bag(tables[1], "sum"), "all": bag(tables[1], "mean"), "signed": bag(tables[2], "sum")})
        self.top = torch.nn.Sequential(torch.nn.BatchNorm1d(3 * 7 + 2), torch.nn.Linear(3 * 7 + 2, 4), torch.nn.LayerNorm(4),
                                       torch.nn.GELU(), torch.nn.Dropout(), torch.nn.Linear(4, 2))

    def forward(self, words, features, flag=True):
        keys = features["ids"]  # (rows, 4)
        found = self.pairs({"each": keys.reshape(-1, 1), "all": keys[:, 1:3], "signed": (keys * 3 - 2**62,)})
        parts = [self.words(*words), found["each"].reshape(-1, 12), found["all"], found["signed"], features["price"]]
        score = torch.nn.functional.normalize(self.top(torch.cat(parts, 1)))
        return score.softmax(1), score[:, :].sum(1)


class Serving(objects_cluster_test.Cluster):
    """A job, and what serves its models."""

    WORKERS = 1

    def setUp(self):
        super().setUp()
        self.servers, hosts, self.catalogue = self.start_cluster()
        self.clients = [starling.connect(hosts[0], task=task, workers=self.WORKERS, timeout=harness.DEADLINE_S)
                        for task in range(self.WORKERS)]
        self.client = self.clients[0]
        for client in self.clients:
            self.addCleanup(client.leave)
        name = f"torch-serve-{os.getpid()}"
        agent = self.start("starling-objects", "serve", "--agent", "--agent-name", name, "--catalogue", self.catalogue,
                           "--pool-memory", "64M")
        agent.wait_line("serves readers")
        gateway = self.start("starling-serve", "gateway", "--http", "127.0.0.1:0", "--listen", "127.0.0.1:0",
                             "--catalogue", self.catalogue)
        joined, self.http = re.search(r"(\S+) is joined by workers, and serves (\S+)",
                                      gateway.wait_line("serves http")).groups()
        self.worker = self.start("starling-serve", "worker", "--gateway", joined, "--agent-name", name, "--batch-max", 64)
        self.worker.wait_line("joins")

    def publish(self, model, name, inputs, **options):
        return starling.torch.publish(model, name, inputs, catalogue=self.catalogue, timeout=harness.DEADLINE_S, **options)

    def ask(self, name, tensors, version, status=200):
        """The outputs by name; or the text of the error."""
        body = [{"name": each, "shape": list(tensor.shape), "datatype": TYPES[tensor.dtype], "data": tensor.flatten().tolist()}
                for each, tensor in tensors.items()]
        request = urllib.request.Request(f"{self.http}/v2/models/{name}/versions/{version}/infer",
                                         json.dumps({"inputs": body}).encode(), {"Starling-Timeout-Ms": "60000"})
        try:
            with urllib.request.urlopen(request, timeout=harness.DEADLINE_S) as answer:
                found, is_status = json.load(answer), answer.status
        except urllib.error.HTTPError as error:
            found, is_status = json.load(error), error.code
        self.assertEqual(is_status, status, found)
        if status != 200:
            return found["error"]
        return {each["name"]: torch.tensor(each["data"], dtype=torch.float64).reshape(each["shape"]) for each in found["outputs"]}

    def check(self, model, name, inputs, tensors, version):
        """The served outputs of these tensors are the model's of these inputs."""
        model.eval()
        with torch.no_grad():
            wanted = model(*inputs)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        found = self.ask(name, tensors, version)
        self.assertEqual(list(found), ["output", "output.1"][:len(wanted)] + ["unknown_keys"])
        for got, expected in zip(found.values(), wanted):
            torch.testing.assert_close(got.float(), expected, rtol=0, atol=1e-5)
        model.train()
        return found


class Served(Serving):
    def train(self, model, optimizer, steps, inputs):
        for seed in range(steps):
            optimizer.zero_grad()
            loss = (model(*inputs(seed, 32)) - 1).square().sum()
            loss.backward()
            optimizer.step()

    def test_dlrm(self):
        args = parser("", epochs=1, batch=32, dim=8, lr=0.05).parse_args(["--train", "-", "--test", "-"])
        model, optimizer = dlrm_criteo.build(args, self.client)

        def inputs(seed, rows):
            random = torch.Generator().manual_seed(seed)
            return (torch.randint(0, 64, (rows, 13), generator=random, dtype=torch.uint8),
                    torch.randint(0, 50, (rows, 26), generator=random))

        for number in (1, 2):
            self.train(model, optimizer, 3, inputs)
            version = self.publish(model, "dlrm", inputs(0, 2))
            self.assertEqual(version, number)
            for rows in (1, 64):
                classes, keys = inputs(77, rows)
                found = self.check(model, "dlrm", (classes, keys), {"classes": classes.long(), "keys": keys}, version)
                rare = [[not each for each in self.client.open(f"dlrm/{i}").find(keys[:, i])[1]] for i in range(26)]
                self.assertEqual(found["unknown_keys"].tolist(), numpy.sum(rare, 0).tolist())
        classes = torch.zeros(1, 13, dtype=torch.int64)
        tensors = {"classes": classes, "keys": torch.zeros(1, 26, dtype=torch.int64)}
        for change, text in (({"keys": None}, "`keys` is missing; expected: INT64 [-1, 26]"),
                             ({"keys": torch.zeros(1, 25).long()}, "`keys` is INT64 [1, 25]; expected: INT64 [-1, 26]"),
                             ({"keys": torch.zeros(1, 26)}, "`keys` is FP32 [1, 26]; expected: INT64"),
                             ({"keys": torch.zeros(2, 26).long()}, "`classes` has 1 rows, `keys` has 2"),
                             ({"rows:3": torch.zeros(1, 8)}, "`rows:3` is no input"),
                             ({"classes": classes + 64}, "index 832 of"),
                             ({"classes": classes - 10**6}, "which has 832")):
            wrong = {name: tensor for name, tensor in {**tensors, **change}.items() if tensor is not None}
            self.assertIn(text, self.ask("dlrm", wrong, 1, status=400))
        self.ask("dlrm", tensors, 1)

    def test_two_tower(self):
        two_tower.generate(self.folder, (2000, 300))
        path = os.path.join(self.folder, "test.tsv")
        args = parser("", epochs=1, batch=32, dim=4, lr=0.05).parse_args(["--train", "-", "--test", path])
        model, optimizer = two_tower.build(args, self.client)
        data = two_tower.tensors(read(os.path.join(self.folder, "train.tsv"), two_tower.parse)[0])
        two_tower.train(args, self.client, model, optimizer, data, 2000 // args.batch)
        version = self.publish(model, "two_tower", tuple(each[:2] for each in data[1:]))
        labels, *inputs = two_tower.tensors(read(path, two_tower.parse)[0])
        scores = []
        for at in range(0, 300, 60):
            part = [each[at:at + 60] for each in inputs]
            found = self.check(model, "two_tower", part, dict(zip(("user", "item", "history"), part)), version)
            scores += found["output"].tolist()
        self.check(model, "two_tower", [each[:1] for each in inputs],
                   {name: each[:1] for name, each in zip(("user", "item", "history"), inputs)}, version)
        with torch.no_grad():
            trained = model.eval()(*inputs)
        self.assertAlmostEqual(auc(labels.numpy(), numpy.float32(scores)), auc(labels.numpy(), trained.numpy()), delta=1e-5)

    def test_any_keys(self):
        model = Mixed(self.client)
        bags = [[4, -7, 2**62], [], [9, 9], [-2]]
        offsets = torch.tensor([0, 3, 3, 5])
        random = torch.Generator().manual_seed(1)
        ids = torch.randint(-9, 9, (4, 4), generator=random)
        features = {"ids": ids, "price": torch.randn(4, 2, generator=random)}
        inputs = ((torch.tensor(sum(bags, [])), offsets), features)
        optimizer = starling.torch.Optimizer([model.words, model.pairs])
        for _ in range(3):
            optimizer.zero_grad()
            model(*inputs)[1].sum().backward()
            optimizer.step()
        self.assertTrue(model.training)
        version = self.publish(model, "mixed", inputs, lengths={"words": 5})
        self.assertTrue(model.training and model.top[4].training and "forward" not in model.words.__dict__)
        tensors = {"words": padded(bags, 5, -7), "ids": ids, "price": features["price"], "signed": ids * 3 - 2**62}
        found = self.check(model, "mixed", inputs, tensors, version)
        self.assertEqual(found["unknown_keys"].tolist(), [0, 0, 0, 0])
        again = self.ask("mixed", {**tensors, "words": padded([[1], [4, 1], [], [-7]], 5, -7)}, version)
        self.assertEqual(again["unknown_keys"].tolist(), [1, 1, 0, 0])

    def test_refusals(self):
        table = self.client.sparse("a", 2)
        bag = starling.torch.EmbeddingBag(table, "sum")
        keys = torch.tensor([[1, 2], [3, 4]])

        class Once(torch.nn.Module):
            def __init__(self, forward):
                super().__init__()
                self.bag = bag
                self.of = forward

            def forward(self, keys):
                return self.of(self.bag, keys)

        for forward, text in ((lambda bag, keys: bag(keys) + bag(keys), "looked up twice"),
                              (lambda bag, keys: bag(keys, None, torch.ones(2, 2)), "without weights"),
                              (lambda bag, keys: bag(keys) * keys.float(), "also computes with them"),
                              (lambda bag, keys: (bag(keys), torch.ones(2, 1) * 2)[1], "does not use its rows"),
                              (lambda bag, keys: bag(keys.flatten(), torch.tensor([0, 2])), "padding_idx"),
                              (lambda bag, keys: bag(keys)[:1], "2 bags for 1 rows"),
                              (lambda bag, keys: (), "returned no tensor"),
              (lambda bag, keys: bag(keys).repeat(2, 1) * keys.repeat(2, 1), r"2 bags for 4 rows")):
            with self.assertRaisesRegex((ValueError, RuntimeError), text):
                starling.torch.export(Once(forward), self.path("model.onnx"), (keys,))
        with self.assertRaisesRegex(TypeError, "accepted: a tuple"):
            starling.torch.export(Once(lambda bag, keys: bag(keys)), self.path("model.onnx"), keys)
        with self.assertRaisesRegex(starling.StarlingError, "starling-serve deploy: .*CumSum.*not supported"):
            self.publish(Once(lambda bag, keys: bag(keys).cumsum(1)), "cumsum", (keys,))
        model = Once(lambda bag, keys: bag(keys) * 2)
        starling.torch.export(model, self.path("model.onnx"), (keys,))
        table.push([1], numpy.ones((1, 2), numpy.float32))
        self.client.drop("a")
        output = self.run_to_end("starling-serve", "deploy", self.path("model.onnx"), "--catalogue", self.catalogue, status=1)
        self.assertIn("a", output)
        other = self.client.sparse("a", 3)
        other.push([1], numpy.ones((1, 3), numpy.float32))
        output = self.run_to_end("starling-serve", "deploy", self.path("model.onnx"), "--catalogue", self.catalogue)
        version = re.search(r"model@(\d+): .*, and the tables a", output)[1]
        text = self.ask("model", {"keys": keys}, version, status=503)  # the model is wrong, not the request
        self.assertIn("table a: ", text)
        self.assertIn("u8 [n, 6]; its rows have another dim", text)

    def path(self, name):
        return os.path.join(self.folder, name)

    def test_files(self):
        """What deploy refuses of a file's metadata."""
        bag = starling.torch.EmbeddingBag(self.client.sparse("a", 2), "sum")
        starling.torch.export(torch.nn.Sequential(bag, torch.nn.Linear(2, 1)), self.path("model.onnx"), (torch.ones(2, 3).long(),))
        with open(self.path("model.onnx"), "rb") as file:
            whole = file.read()
        at = whole.rindex(b'{"inputs"')
        good = json.loads(whole[at:])
        graph = whole[:whole.rindex(b"\x0a\x0fstarling.lookup")]
        graph = graph[:graph.rindex(b"\x72")]

        def deploy(text):
            with open(self.path("wrong.onnx"), "wb") as file:
                file.write(graph + starling.torch.serving._metadata(text))
            return self.run_to_end("starling-serve", "deploy", self.path("wrong.onnx"), "--dir", self.path("dir"), status=1)

        self.assertIn("reads tables of a job (a)", deploy(json.dumps(good)))
        for text in ("", "{", "[]", "{}", '{"inputs": [], "features": 1}', '{"inputs": 1, "features": []}',
                     "[" * 3000, '{"inputs": [], "features": [], "more": 1}'):
            self.assertIn("of the model: " if "features" not in text or "more" in text else "features", deploy(text))
        for change, error in (({"rows": "other"}, "1 features feed 0 inputs"), ({"input": 1}, "not those of an input"),
                              ({"input": -1}, "not those of an input"), ({"first": 1}, "not those of an input"),
                              ({"first": -1}, "not those of an input"), ({"first": 2**62}, "not those of an input"),
                              ({"columns": 0}, "not those of an input"), ({"columns": 2**62}, "not those of an input"),
                              ({"bags": 2**62}, "not those of an input"), ({"bags": 0}, "not those of an input"),
                              ({"bags": 3, "columns": 1}, "[rows, 3 * dim]"), ({"mode": "max"}, "neither sum nor mean"),
                              ({"padding": "x"}, "is no key"), ({"table": 7}, "a feature of the model"),
                              ({"init": [9, 0, 0, 0]}, "init"), ({"init": [3, 0, -1, 0]}, "init"),
                              ({"init": [2, 1, 1, 0]}, "init"), ({"init": [1, 1e300, 0, 0]}, "init"),
                              ({"init": [3, 0, 1e38, 0]}, "init"), ({"init": [0]}, "a feature of the model"),
                              ({"init": [0, 0, 0, 0, 0]}, "a feature of the model"), ({"extra": 1}, "a feature of the model")):
            output = deploy(json.dumps({**good, "features": [{**good["features"][0], **change}]}))
            self.assertIn(error, output, change)
        for inputs, error in (([["input", 0]], "1 to 4096 columns"), ([["input", 5000]], "1 to 4096 columns"),
                              ([["input"]], "1 to 4096 columns"), ([["input", 3]] * 2, "two inputs are named"),
                              ([["input", 3]] * 17, "at most 16"), ([["", 3]], 'input ""')):
            self.assertIn(error, deploy(json.dumps({**good, "inputs": inputs})), inputs)
        self.assertIn("300 features", deploy(json.dumps({**good, "features": good["features"] * 300})))

    def test_evicted_keys_leave(self):
        table = self.client.sparse("forgets", 1, starling.Sum(), policy=starling.Policy(ttl_steps=8))
        bag = starling.torch.EmbeddingBag(table, "sum")
        model = torch.nn.Sequential(bag, torch.nn.Identity())

        def push(key):
            table.push([key], numpy.ones((1, 1), numpy.float32))

        push(5)
        keys = torch.tensor([[5]])
        version = self.publish(torch.nn.Sequential(bag, torch.nn.Flatten()), "forgets", (keys,))
        found = self.ask("forgets", {"input": keys}, version)
        self.assertEqual((found["output"].item(), found["unknown_keys"].item()), (1, 0))
        while table.find([5])[1][0]:  # each shard counts its own steps
            for key in range(100, 140):
                push(key)
        self.assertEqual(self.ask("forgets", {"input": keys}, version)["unknown_keys"].item(), 0)
        version = self.publish(torch.nn.Sequential(bag, torch.nn.Flatten()), "forgets", (keys,))
        found = self.ask("forgets", {"input": keys}, version)
        self.assertEqual((found["output"].item(), found["unknown_keys"].item()), (0, 1))
        self.assertTrue(model.training)


class Meanwhile(Serving):
    WORKERS = 2

    def check_mode(self, mode):
        """While workers add 1 to their keys in each iteration, each version has the rows of one moment."""
        tables = [client.sparse("sums", 1, starling.Sum(), consistency=mode) for client in self.clients]
        ends, counts = threading.Event(), [0, 0]

        def run(task):
            table, client = tables[task], self.clients[task]
            while counts[task] < 200 or not (ends.is_set() and counts[task] >= max(counts)):
                with client.step() as step:
                    step.push(table, numpy.arange(50) + 1000 * task, numpy.ones((50, 1), numpy.float32))
                    step.advance()
                counts[task] += 1

        threads = [threading.Thread(target=run, args=(task,)) for task in range(2)]
        for each in threads:
            each.start()
        try:
            model = torch.nn.Sequential(starling.torch.EmbeddingBag(tables[0], "sum"), torch.nn.Flatten())
            keys, before = torch.tensor([[1], [7], [1001], [1007]]), -1
            for _ in range(5):
                found = self.ask("sums", {"input": keys}, self.publish(model, "sums", (keys[:2],)))["output"].flatten().tolist()
                self.assertGreaterEqual(found[0], before)
                if mode == starling.BSP:
                    self.assertEqual(found, found[:1] * 4)
                before = found[0]
        finally:
            ends.set()
            for each in threads:
                each.join(harness.DEADLINE_S)

    def test_asp(self):
        self.check_mode(starling.ASP)

    def test_bsp(self):
        self.check_mode(starling.BSP)


class Page(harness.StarlingTest):
    def test_commands(self):
        """The commands of the page, one after the other, as they stand there but for the port."""
        with open(os.path.join(ROOT, "docs", "serving.md"), encoding="utf-8") as file:
            section = file.read().partition("## From torch to an answer by curl\n")[2].partition("\n## ")[0]
        commands = re.search(r"```\n(.*?)```", section, re.S)[1].replace("\\\n", " ")
        commands = commands.replace("127.0.0.1:8080", f"127.0.0.1:{harness.free_ports(1)[0]}")
        commands = [command for command in commands.split("\n") if command.strip()]
        self.assertLessEqual(len(commands), 4)
        os.symlink(os.path.abspath(os.path.join(ROOT, "python")), os.path.join(self.folder, "python"))
        with open(os.path.join(self.folder, "python3"), "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\nexec {sys.executable} \"$@\"\n")
        os.chmod(os.path.join(self.folder, "python3"), 0o755)
        environment = {"PATH": f"{self.folder}:{harness.BIN}:{os.environ['PATH']}", **PRELOAD}
        outputs = []
        for command in commands:
            if command.startswith("starling-serve"):
                server = self.start("/bin/sh", "-c", f"exec {command}", env=environment, cwd=self.folder)
                server.wait_line("serves the models")
            else:
                done = subprocess.run(command, shell=True, cwd=self.folder, env={**os.environ, **environment},
                                      capture_output=True, text=True, check=False, timeout=harness.DEADLINE_S)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                outputs.append(done.stdout)
        self.assertRegex("".join(outputs), r"published two_tower@1\b")
        answer = json.loads(outputs[-1])
        self.assertEqual([each["name"] for each in answer["outputs"]], ["output", "unknown_keys"])
        trained = re.search(r"test AUC (\S+)", "".join(outputs))[1]
        url = re.search(r"http://[0-9.:]+", server.output)[0]
        served = self.run_to_end(sys.executable, os.path.join(ROOT, "python", "examples", "served.py"), url, "two_tower",
                                 "two_tower", os.path.join(self.folder, "log", "test.tsv"), env=PRELOAD)
        self.assertIn(f"served AUC {trained}", served)


if __name__ == "__main__":
    harness.main()
