#!/usr/bin/env python3
"""Models that a job saves: the file by the rules of its format, its scores without servers and when it is served, the end of the training
where the test data gains nothing, and files that are no models."""

import json
import math
import os
import re
import signal
import struct

import harness

ROWS = "1 1:1 2:1\n0 3:1 4:1\n" * 500
INVERTED = "0 1:1 2:1\n1 3:1 4:1\n" * 10  # the more is learnt, the worse


def read(path):
    """({tensor: (dtype, shape, bytes)}, metadata) by https://github.com/huggingface/safetensors, "Format"."""
    with open(path, "rb") as file:
        data = file.read()
    length, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", {})
    if any(not isinstance(value, str) for value in metadata.values()):
        raise ValueError("a value of the metadata is not a string")
    at = 0
    for tensor in sorted(header.values(), key=lambda tensor: tensor["data_offsets"]):
        begin, end = tensor["data_offsets"]
        if begin != at or end - begin != math.prod(tensor["shape"]) * {"I64": 8, "F32": 4}[tensor["dtype"]]:
            raise ValueError(f"{tensor} does not begin at {at}, or has another size")
        at = end
    if 8 + length + at != len(data):
        raise ValueError("bytes before or behind the tensors")
    return {name: (tensor["dtype"], tensor["shape"], data[8 + length:][slice(*tensor["data_offsets"])])
            for name, tensor in header.items()}, metadata


def write(path, tensors, metadata):
    header, data = {"__metadata__": metadata}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    return path


class ModelFileTest(harness.StarlingTest):
    def path(self, name):
        return os.path.join(self.folder, name)

    def save(self, args, **options):
        """Trains, and returns (worker 0's report, what predict says of the test file)."""
        report = self.train([*args, "--save", self.path("m.safetensors")], **options)
        self.assertEqual(report["saved"], self.path("m.safetensors"))
        output = self.run_to_end("starling-worker", "predict", "--model", self.path("m.safetensors"), "--data",
                                 args[args.index("--test") + 1], "--out", self.path("scores"))
        return report, re.search(r"(\d+) rows, loss (\S+), AUC ([^,\s]+)", output).groups()


class Saved(ModelFileTest):
    def setUp(self):
        super().setUp()
        self.run_to_end("starling-worker", "generate", "--out", self.folder, "--rows", 6000, "--test-rows", 1500)

    def check(self, model, sparse, *flags, delta=0):
        """The scores are those of the job's own evaluation: loss and AUC agree in all digits of the report. With narrow rows
        almost: servers round also the initial rows of keys that the training has not seen."""
        args = ["--data", self.path("train.tsv"), "--test", self.path("test.tsv"), "--format", "criteo", "--model", model,
                *flags]
        report, (rows, loss, auc) = self.save(args, ps_count=2, worker_count=2)
        wanted = report["test"]
        self.assertEqual(int(rows), wanted["samples"])
        self.assertAlmostEqual(float(loss), wanted["loss"], delta=delta)
        self.assertAlmostEqual(float(auc), wanted["auc"], delta=delta)
        wanted = {"samples": int(rows), "loss": float(loss), "auc": float(auc)}
        with open(self.path("scores"), encoding="ascii") as file:
            scores = [float(line) for line in file]
        with open(self.path("test.tsv"), encoding="ascii") as file:
            labels = [line[0] == "1" for line in file]
        losses = [-math.log(score if label else 1 - score) for score, label in zip(scores, labels, strict=True)]
        self.assertAlmostEqual(sum(losses) / len(losses), wanted["loss"], delta=1e-6)
        self.check_served(model, wanted)
        tensors, metadata = read(self.path("m.safetensors"))
        self.assertIn(f"model={model} ", metadata["starling.model"])
        self.assertEqual(metadata["starling.data"], "criteo")
        for table, dim in sparse.items():
            dtype, shape, keys = tensors[f"{table}.keys"]
            self.assertEqual((dtype, len(shape)), ("I64", 1))
            self.assertEqual(len(set(struct.unpack(f"<{shape[0]}Q", keys))), shape[0])
            self.assertGreater(shape[0], 1000)
            self.assertEqual(tensors[f"{table}.values"][:2], ("F32", [shape[0], dim]))
            self.assertIn("optimizer=adagrad", metadata[f"starling.table.{table}"])
        self.assertEqual(tensors[f"{model}/bias"][:2], ("F32", [1]))
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("m.s")], ["m.safetensors"])
        return tensors

    def check_served(self, model, wanted):
        """The engine that serves the file's model computes what the job's evaluation computed."""
        self.run_to_end("starling-serve", "deploy", self.path("m.safetensors"), "--dir", self.path("models"), "--name", model)
        storage = self.start("starling-objects", "serve", "--dir", self.path("models"))
        catalogue = storage.wait_line("serves the catalogue").split(" ")[0]
        found = self.run_to_end("ctr_scores", catalogue, model, self.path("test.tsv"))
        auc, loss, rows = map(float, re.search(r"auc (\S+) loss (\S+) rows (\d+)", found).groups())
        self.assertEqual(rows, wanted["samples"])
        self.assertAlmostEqual(auc, wanted["auc"], delta=1e-5)
        self.assertAlmostEqual(loss, wanted["loss"], delta=1e-5)
        storage.signal(signal.SIGTERM)
        self.end_well([storage])

    def test_lr(self):
        self.check("lr", {"lr/weights": 1})

    def test_fm(self):
        """The import of starling-ckpt makes a checkpoint of the file, with the tables' properties."""
        tensors = self.check("fm", {"fm/weights": 1, "fm/factors": 5}, "--factors", 5)
        self.run_to_end("starling-ckpt", "import", self.path("m.safetensors"), "--out", self.path("checkpoints"))
        self.run_to_end("starling-ckpt", "export", self.path("checkpoints"), "--out", self.path("again.safetensors"))
        again = read(self.path("again.safetensors"))[0]
        self.assertEqual(again["fm/bias"], tensors["fm/bias"])
        self.assertEqual(self.rows(again, "fm/factors", 5), self.rows(tensors, "fm/factors", 5))

    @staticmethod
    def rows(tensors, table, dim):
        keys, values = tensors[f"{table}.keys"][2], tensors[f"{table}.values"][2]
        return {keys[8 * i:8 * i + 8]: values[4 * dim * i:4 * dim * (i + 1)] for i in range(len(keys) // 8)}

    def test_narrow(self):
        """Rows of int8, slots and messages of bf16: the scores of file and engine are those of the evaluation, which is
        near that of f32."""
        args = ["--data", self.path("train.tsv"), "--test", self.path("test.tsv"), "--format", "criteo", "--model", "fm",
                "--factors", 5, "--consistency", "bsp"]
        wanted = self.train(args, ps_count=2, worker_count=2)["test"]["auc"]
        for flags in (["--values", "int8", "--slots", "bf16", "--encoding", "bf16"], ["--values", "bf16", "--encoding", "int8"]):
            tensors = self.check("fm", {"fm/weights": 1, "fm/factors": 5}, *args[-4:], *flags, delta=1e-4)
            with open(self.path("report.json"), encoding="utf-8") as file:
                report = json.load(file)
            self.assertEqual(report["job"]["encoding"], flags[-1])
            self.assertAlmostEqual(report["test"]["auc"], wanted, delta=0.003)
            self.assertGreater(len(set(tensors["fm/factors.values"][2])), 1)
            with open(self.path("m.safetensors"), "rb") as file:
                self.assertIn(f"values={flags[1]},".encode(), file.read())

    def test_deepfm(self):
        tensors = self.check("deepfm", {"deepfm/weights": 1, "deepfm/factors": 4}, "--factors", 4, "--hidden", "32,16",
                             "--seed", 9)
        self.assertEqual(tensors["deepfm/tower1"][1], [(39 * 4 + 1) * 32])


class Stopped(ModelFileTest):
    def test_patience(self):
        """What is saved is the best model, not the last one; the other workers end too."""
        data, test = self.file("data", ROWS), self.file("test", INVERTED)
        report, (_, _, auc) = self.save(["--data", data, "--test", test, "--model", "lr", "--epochs", 1000000,
                                         "--test-every", "0.5", "--patience", 3, "--lr", "1e-5"], worker_count=3)
        self.assertTrue(report["complete"])
        self.assertLess(report["samples"], 1000 / 3 * 4)
        self.assertEqual(float(auc), report["test"]["best_auc"])
        self.assertAlmostEqual(report["test"]["best_epoch"], 0.5, delta=0.2)  # behind a whole batch

    def test_bsp(self):
        data, test = self.file("data", ROWS), self.file("test", ROWS)
        report, (_, _, auc) = self.save(["--data", data, "--test", test, "--model", "lr", "--epochs", 3, "--test-every", 1,
                                         "--patience", 9, "--consistency", "bsp"], worker_count=2)
        self.assertEqual(report["samples"], 1500)
        self.assertEqual(float(auc), 1)

    def test_restart(self):
        """A replacement of worker 0 keeps the model of the best AUC, and counts on."""
        test, report = self.file("test", ROWS), self.path("report.json")
        args = ["--data", self.file("data", ROWS), "--test", test, "--model", "lr", "--epochs", 1000000, "--test-every", 1,
                "--save", self.path("m.safetensors"), "--report", report, "--patience"]
        servers, flags = self.start_ps()
        worker = self.start_workers(flags, 1, [*args, 1000000])[0]
        worker.wait_line("AUC 1.000000, the best so far")
        worker.wait_line("epoch 3: ")
        saved = os.stat(self.path("m.safetensors")).st_ino
        worker.signal(signal.SIGKILL)
        worker.wait()
        replacement = self.start_workers(flags, 1, [*args, 2])[0]
        self.end_well([replacement])
        self.assertIn("the best test AUC so far is 1.000000 of epoch 1", replacement.output)
        self.assertRegex(replacement.output, r"model +\S*/m\.safetensors \(4 rows\)")
        self.assertEqual(os.stat(self.path("m.safetensors")).st_ino, saved)
        with open(report, encoding="utf-8") as file:
            self.assertEqual(json.load(file)["saved"], self.path("m.safetensors"))
        self.drain(servers)

    def test_without_test_data(self):
        data = self.file("data", ROWS)
        servers, flags = self.start_ps()
        worker = self.start_workers(flags, 1, ["--data", data, "--save", self.path("m.safetensors")])[0]
        self.end_well([worker])
        self.assertRegex(worker.output, r"model +\S*/m\.safetensors \(4 rows\)")
        self.drain(servers)

    def test_not_saved(self):
        """The end says so, and which flag would."""
        servers, flags = self.start_ps()
        worker = self.start_workers(flags, 1, ["--data", self.file("data", ROWS)])[0]
        self.end_well([worker])
        self.assertIn("not saved: --save FILE keeps it", worker.output)
        self.drain(servers)

    def test_interrupted(self):
        """Ctrl-C of a launched job: worker 0 saves what the servers have before they stop."""
        job = self.start("starling-launch", "--ps", 2, "--workers", 2, "--", "--data", self.file("data", ROWS), "--epochs", 1000000,
                         "--save", self.path("m.safetensors"))
        job.wait_line("/1000000")
        job.signal(signal.SIGINT)
        self.assertEqual(job.wait(), 130)
        self.assertRegex(job.output, r"model +\S*/m\.safetensors \(4 rows\)")
        self.assertIn("1000 rows, loss", self.run_to_end("starling-worker", "predict", "--model", self.path("m.safetensors"),
                                                         "--data", self.path("data"), "--out", self.path("scores")))


class Refused(ModelFileTest):
    def test_flags(self):
        data = self.file("data", ROWS)
        for status, args, word in ((2, ["--save", self.path("model")], "ends in .safetensors"),
                                   (1, ["--save", self.path("none/m.safetensors")], "cannot write to"),
                                   (2, ["--test-every", 1], "--test-every has no effect without --test"),
                                   (2, ["--rows-max", 5], "--rows-max needs --evict lru, lfu or l2"),
                                   (2, ["--l2-below", 5], "--l2-below needs --protect-steps"),
                                   (2, ["--test", data, "--patience", 1], "--patience has no effect without --test-every"),
                                   (2, ["--test", data, "--test-every", -1], "-1"),
                                   (2, ["--test", data, "--test-every", "nan"], "nan")):
            output = self.run_to_end("starling-worker", "--ps-hosts", "127.0.0.1:1", "--num-workers", 1, "--task-index", 0,
                                     "--data", data, *args, status=status)
            self.assertIn(word, output)

    def predict(self, model, data, status=1):
        return self.run_to_end("starling-worker", "predict", "--model", model, "--data", data, "--out", self.path("scores"),
                               status=status)

    def test_models(self):
        data = self.file("data", ROWS)
        metadata = {"starling.model": "model=lr fields=0 factors=8 hidden=64,32 seed=1", "starling.data": "libsvm"}
        tensors = {"lr/weights.keys": ("I64", [2], struct.pack("<2Q", 1, 2)),
                   "lr/weights.values": ("F32", [2, 1], struct.pack("<2f", 1, -1)),
                   "lr/bias": ("F32", [1], bytes(4))}
        good = write(self.path("good.safetensors"), tensors, metadata)
        output = self.predict(good, data, status=0)
        self.assertRegex(output, r"1000 rows, loss \S+, AUC 0.5, 50 % of the features are not in the model")
        self.assertNotIn("most of the features", output)
        output = self.predict(good, self.file("other", "1 3:1 4:1 1:1\n"), status=0)
        self.assertIn("66.7 % of the features", output)
        self.assertIn("does not have most of the features", output)
        output = self.predict(good, self.file("other", "1 1:2\n1:2 2:1\n"), status=0)
        self.assertRegex(output, r" 2 rows, 0 % of the features")
        with open(self.path("scores"), encoding="ascii") as file:
            self.assertEqual([round(float(line), 3) for line in file], [0.881, 0.731])
        self.predict(good, data, status=0)
        with open(self.path("scores"), encoding="ascii") as file:
            self.assertEqual(set(file), {"0.5\n"})  # 1 - 1, and rows that the file does not have
        for change, word in (({"lr/bias": ("F32", [2], bytes(8))}, "lr/bias"),
                             ({"lr/weights.keys": ("I64", [2], struct.pack("<2Q", 1, 1))}, "has key 1 twice"),
                             ({"lr/weights.values": ("F32", [1, 2], bytes(8))}, "lr/weights.values"),
                             ({"lr/weights.keys": ("F32", [2], bytes(8))}, "lr/weights.keys")):
            bad = write(self.path("bad.safetensors"), {**tensors, **change}, metadata)
            self.assertIn(word, self.predict(bad, data))
        for change, word in (({"starling.model": "model=xgboost"}, "model=xgboost"), ({"starling.data": "csv"}, "starling.data")):
            self.assertIn(word, self.predict(write(self.path("bad.safetensors"), tensors, {**metadata, **change}), data))
        self.assertIn("__metadata__", self.predict(write(self.path("bad.safetensors"), tensors, {}), data))
        with open(good, "rb") as file:
            cut = self.file("cut.safetensors", file.read()[:-2])
        for model, word in ((cut, "bytes of tensors"), (self.path("none"), "none"), (data, "safetensors")):
            self.assertIn(word, self.predict(model, data))
        for name, word in (("cut", "bytes of tensors"), ("bad", "__metadata__"), ("none", "No such file")):
            self.assertIn(word, self.run_to_end("starling-serve", "deploy", self.path(f"{name}.safetensors"), "--dir",
                                                self.path("models"), status=1))

    def test_data(self):
        metadata = {"starling.model": "model=lr fields=0 factors=8 hidden=64,32 seed=1", "starling.data": "libsvm"}
        nan = write(self.path("nan.safetensors"), {"lr/weights.keys": ("I64", [0], b""), "lr/weights.values": ("F32", [0, 1], b""),
                                                   "lr/bias": ("F32", [1], struct.pack("<f", math.nan))}, metadata)
        self.file("scores", "0.25\n")
        self.assertIn("not a number", self.predict(nan, self.file("data", ROWS)))
        self.assertIn(":2:", self.predict(nan, self.file("bad", "\nx\n")))
        with open(self.path("scores"), encoding="ascii") as file:
            self.assertEqual(file.read(), "0.25\n")
        self.assertFalse(os.path.exists(self.path("scores.part")))
        self.run_to_end("starling-worker", "predict", "--model", nan, status=2)
        output = self.run_to_end("starling-worker", "predict", "--model", nan, "--data", self.path("none"), status=1)
        self.assertIn(self.path("none"), output)


if __name__ == "__main__":
    harness.main()
