#!/usr/bin/env python3
"""starling-serve deploy: models that are published to a directory and to a storage, what their objects have, and
files that are refused, with nothing published. starling-serve check: what would be served, and differences of outputs. starling-serve
generate: models of templates, and bad lists."""

import os
import subprocess
import sys

import harness
import objects_test

try:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(harness.SKIPPED)


def weight(name, *shape):
    return numpy_helper.from_array(np.random.default_rng(len(name)).standard_normal(shape).astype(np.float32), name)


def mlp(op_type="Relu", **attributes):
    """x [N, 32] -> Gemm -> an operator -> MatMul -> y [N, 8]."""
    nodes = [helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], name="first"),
             helper.make_node(op_type, ["h"], ["r"], name="middle", **attributes),
             helper.make_node("MatMul", ["r", "w2"], ["y"], name="second")]
    graph = helper.make_graph(nodes, "mlp", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 32])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 8])],
                              [weight("w1", 32, 64), weight("b1", 64), weight("w2", 64, 8)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])


class ModelsTest(objects_test.ObjectsTest):
    def save(self, name, model):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        onnx.save(model, path)
        return path


class Deploy(ModelsTest):
    def deploy(self, *words, status=0):
        return self.run_to_end("starling-serve", "deploy", *words, status=status)

    def names(self, catalogue):
        return [f"{entry['name']}@{entry['version']}" for entry in self.entries(catalogue, "ls")]

    def test_directory(self):
        self.save("models/small.onnx", mlp())
        self.save("models/other.onnx", mlp("Tanh"))
        output = self.deploy(self.path("models"), "--dir", self.path("store"))
        self.assertIn("small@1: ", output)
        self.assertIn(", 2 layers, ", output)
        self.deploy(self.path("models/small.onnx"), "--dir", self.path("store"))
        server, catalogue = self.serve("--dir", self.path("store"))
        self.assertEqual(self.names(catalogue), ["other@1", "small@1", "small@2"])
        bytes_of_weights = (32 * 64 + 64 + 64 * 8) * 4
        for entry in self.entries(catalogue, "ls"):
            self.assertGreater(entry["bytes"], bytes_of_weights)
            self.assertLess(entry["bytes"], bytes_of_weights + 1024)
        self.end(server)

    def test_storage(self):
        path = self.save("small.onnx", mlp())
        server, catalogue = self.serve("--dir", self.path("store"))
        self.deploy(path, "--catalogue", catalogue)
        self.deploy(path, "--catalogue", catalogue, "--name", "team/model")
        self.assertEqual(self.names(catalogue), ["small@1", "team/model@1"])
        self.end(server)

    def test_directory_that_is_served(self):
        path = self.save("small.onnx", mlp())
        server, catalogue = self.serve("--dir", self.path("store"))
        output = self.deploy(path, "--dir", self.path("store"), status=1)
        self.assertIn("another process stores versions in this directory", output)
        self.end(server)
        self.deploy(path, "--dir", self.path("store"))

    def check_refused(self, path, *texts):
        """One good model and a bad one: none is published."""
        good = self.save("good/a.onnx", mlp())
        server, catalogue = self.serve("--dir", self.path("store"))
        output = self.deploy(good, path, "--catalogue", catalogue, status=1)
        for text in (path, *texts):
            self.assertIn(text, output)
        self.assertEqual(self.names(catalogue), [])
        self.end(server)

    def test_operator_that_is_not_supported(self):
        self.check_refused(self.save("bad.onnx", mlp("Hardmax")), 'node "middle" (Hardmax)', "not supported")

    def test_attribute_of_another_type(self):
        self.check_refused(self.save("bad.onnx", mlp("Softmax", axis=1.0)), 'node "middle" (Softmax)', '"axis"')

    def test_file_that_ends_early(self):
        data = mlp().SerializeToString()
        self.check_refused(self.file("bad.onnx", data[:-5]), "no ONNX model")

    def test_operators_that_are_not_supported_are_listed(self):
        model = mlp("Hardmax")
        model.graph.node[0].op_type = "TopK"
        self.check_refused(self.save("bad.onnx", model), 'node "first" (TopK)', "not supported", "Hardmax")

    def test_work_that_would_not_end(self):
        node = helper.make_node("MaxPool", ["x"], ["y"], name="pool", kernel_shape=[2 ** 30] * 2,
                                strides=[2 ** 30] * 2, pads=[2 ** 29] * 4)
        infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 1, 1, 1]) for name in "xy"]
        model = helper.make_model(helper.make_graph([node], "pool", infos[:1], infos[1:]),
                                  opset_imports=[helper.make_opsetid("", 13)])
        self.check_refused(self.save("bad.onnx", model), 'node "pool" (MaxPool)', "operations", "at most 1e+13")

    def test_files_of_other_kinds(self):
        for data, text in ((b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "git lfs pull"),
                           (b"\x1f\x8b\x08\0\0\0\0\0", "gzip"), (b"<!doctype html><html>", "HTML"),
                           (b"PK\x03\x04" + bytes(40), "zip"), (b'{"error": 1}', "JSON"), (b"", "empty")):
            self.assertIn(text, self.deploy(self.file("bad.onnx", data), "--dir", "store", status=1))
        os.mkfifo(self.path("pipe.onnx"))
        self.assertIn("not a regular file", self.deploy(self.path("pipe.onnx"), "--dir", "store", status=1))

    def save_external(self, path, location):
        """The same model, with its weights in another file, which its location names."""
        model = mlp()
        onnx.external_data_helper.convert_model_to_external_data(model, location=location, size_threshold=0)
        for tensor in model.graph.initializer:  # onnx checks locations when it writes data
            data = tensor.raw_data
            with open(self.path("weights"), "ab") as file:
                onnx.external_data_helper.set_external_data(tensor, location, offset=file.tell(), length=len(data))
                file.write(data)
            tensor.ClearField("raw_data")
        with open(self.path(path), "wb") as file:
            file.write(model.SerializeToString())
        return self.path(path)

    def test_weights_in_another_file(self):
        os.makedirs(self.path("one/w"))
        external = self.save_external("one/m.onnx", "w/data.bin")
        os.rename(self.path("weights"), self.path("one/w/data.bin"))
        self.deploy(external, "--dir", self.path("store"))
        self.deploy(self.save("two/m.onnx", mlp()), "--dir", self.path("store"), "--name", "whole")
        server, catalogue = self.serve("--dir", self.path("store"))
        contents = []
        for name in ("m", "whole"):
            self.run_to_end("starling-objects", "get", name, self.path("got"), "--catalogue", catalogue)
            with open(self.path(f"got/{name}.safetensors"), "rb") as file:
                contents.append(file.read())
        self.assertEqual(contents[0], contents[1])
        self.end(server)

    def test_weights_that_are_not_beside_the_model(self):
        for location in ("../weights", self.path("weights"), "w/../../weights", "link", "gone.bin"):
            os.makedirs(self.path("one/w"), exist_ok=True)
            external = self.save_external("one/m.onnx", location)
            if not os.path.lexists(self.path("one/link")):
                os.symlink("../weights", self.path("one/link"))
            output = self.deploy(external, "--dir", "store", status=1)
            self.assertIn('tensor "w1": ', output)
            self.assertIn("No such file" if location == "gone.bin" else "out of the model's folder", output)

    def test_weights_that_share_bytes(self):
        """A small file is no reason to take much memory: 80 tensors of 1 MiB are the same MiB, under two names."""
        os.mkdir(self.path("one"))
        self.file("one/data.bin", bytes(1 << 20))
        model = mlp()
        for i in range(80):
            tensor = model.graph.initializer.add(name=f"t{i}", data_type=TensorProto.FLOAT, dims=[1 << 18],
                                                 data_location=TensorProto.EXTERNAL)
            tensor.external_data.add(key="location", value=("data.bin", "./data.bin")[i % 2])
        output = self.deploy(self.save("one/m.onnx", model), "--dir", "store", status=1)
        self.assertIn("no memory, or tensors share bytes of", output)

    def test_weights_that_are_too_short(self):
        os.mkdir(self.path("one"))
        external = self.save_external("one/m.onnx", "data.bin")
        self.file("one/data.bin", b"version https://git-lfs.github.com/spec/v1\n")
        output = self.deploy(external, "--dir", "store", status=1)
        for text in ('tensor "w1": ', "8192 bytes at 0 of data.bin, which has 43", "git lfs pull"):
            self.assertIn(text, output)

    def test_names_that_are_too_long(self):
        for old, new in (("w2", "w" * 256), ("y", "y" * 64)):
            model = mlp()
            for names in (model.graph.initializer, model.graph.output):
                for item in names:
                    item.name = new if item.name == old else item.name
            node = model.graph.node[2]
            node.input[1] = new if old == "w2" else "w2"
            node.output[0] = new if old == "y" else "y"
            self.check_refused(self.save("bad.onnx", model), new, "printable UTF-8")

    def test_files(self):
        os.mkdir(self.path("empty"))
        for words, text in ((["none.onnx"], "none.onnx"), ([self.path("empty")], "no file ends with .onnx")):
            self.assertIn(text, self.deploy(*words, "--dir", "store", status=1))
        self.assertFalse(os.path.exists(self.path("store")))

    def test_model_that_is_larger_than_the_pool(self):
        path = self.save("small.onnx", mlp())
        output = self.deploy(path, "--dir", "store", "--pool-memory", "4096", status=1)
        self.assertIn("takes 524288 bytes of a pool, which has 4096", output)

    def test_names(self):
        paths = [self.save("a/m.onnx", mlp()), self.save("b/m.onnx", mlp())]
        self.assertIn('are both named "m"', self.deploy(*paths, "--dir", "store", status=1))
        self.assertIn("--name", self.deploy(*paths, "--dir", "store", "--name", "x", status=1))
        self.assertIn("no @", self.deploy(paths[0], "--dir", "store", "--name", "x@1", status=1))

    def test_inputs_that_change(self):
        other = mlp()
        other.graph.input[0].name = other.graph.node[0].input[0] = "z"
        paths = [self.save("a/m.onnx", mlp()), self.save("b/m.onnx", other)]
        self.assertNotIn("requests for the old one", self.deploy(paths[0], "--dir", self.path("store")))
        self.assertNotIn("requests for the old one", self.deploy(paths[0], "--dir", self.path("store")))
        output = self.deploy(paths[1], "--dir", self.path("store"))
        self.assertIn('m@2 is "onnx: x FP32 [rows,32] to y FP32 [rows,8]", the new version "onnx: z FP32 [rows,32] to y FP32 '
                      '[rows,8]": requests for the old one may fail; starling-serve rollback m', output)
        self.assertIn("m@3: ", output)

    def test_rollback(self):
        def rollback(*words, status=0):
            return self.run_to_end("starling-serve", "rollback", *words, status=status)

        path = self.save("m.onnx", mlp())
        for _ in range(3):
            self.deploy(path, "--dir", self.path("store"))
        self.deploy(path, "--dir", self.path("store"), "--name", "m2")
        self.assertEqual(rollback("m", "--dir", self.path("store")), "m@2 is the newest version; 3 was")
        server, catalogue = self.serve("--dir", self.path("store"))
        self.assertEqual([name for name in self.names(catalogue) if name.startswith("m@")], ["m@1", "m@2"])
        self.deploy(path, "--catalogue", catalogue)
        newest = self.names(catalogue)[2][2:]
        self.assertGreater(int(newest), 3)  # no number is used twice
        for to in (newest, 3, 2**62):
            self.assertIn(f"m has the versions 1, 2, {newest}: accepted is a version below the newest",
                          rollback("m", "--catalogue", catalogue, "--to", to, status=1))
        self.assertEqual(rollback("m", "--catalogue", catalogue, "--to", 1), f"m@1 is the newest version; {newest} was")
        self.assertIn("m has the version 1: accepted", rollback("m", "--catalogue", catalogue, status=1))
        config = self.file("config", f"[deploy]\npool-memory = 1G\n[rollback]\nto = 9\n[ctl]\ntimeout = 5s\n[all]\ncatalogue = {catalogue}\n")
        self.assertIn("no model other", rollback("other", "--config", config, status=1))
        self.assertEqual([name.partition("@")[0] for name in self.names(catalogue)], ["m", "m2"])
        self.end(server)
        for words in ([], ["m"], ["m", "n", "--dir", "d"], ["m", "--dir", "d", "--to", "0"]):
            self.assertIn("usage: starling-serve rollback", rollback(*words, status=2))

    def test_command_line(self):
        for words in ([], ["m.onnx"], ["m.onnx", "--dir", "d", "--catalogue", "c:1"], ["--dir", "d"]):
            self.assertIn("usage: starling-serve deploy", self.deploy(*words, status=2))


class Check(ModelsTest):
    def setUp(self):
        super().setUp()
        self.model = mlp()
        self.save("m.onnx", self.model)
        self.x = np.random.default_rng(1).standard_normal((3, 32)).astype(np.float32)
        w = {tensor.name: numpy_helper.to_array(tensor) for tensor in self.model.graph.initializer}
        self.y = np.maximum(self.x @ w["w1"] + w["b1"], 0) @ w["w2"]

    def check(self, *words, status=0):
        return self.run_to_end("starling-serve", "check", self.path("m.onnx"), *words, status=status)

    def arrays(self, name, save=np.savez, **arrays):
        save(self.path(name), **arrays)
        return self.path(name)

    def test_what_is_served(self):
        output = self.check()
        for text in ("input x FP32 [rows,32]", "output y FP32 [rows,8]", "layers 2", "MB in a worker for 32 rows",
                     f"work {2 * (32 * 64 + 64 * 8) / 1e9 + 64e-9:.4g} GFLOP a row"):
            self.assertIn(text, output)

    def test_differences(self):
        x = self.arrays("x.npz", x=self.x, other=np.zeros(3))
        self.assertIn("computed 3 rows in ", self.check("--inputs", x))
        output = self.check("--inputs", x, "--outputs", self.arrays("y.npz", y=self.y))
        self.assertLess(float(output.split("difference y: at most ")[1].split(",")[0]), 1e-4)
        self.y[1, 2] += 1000
        output = self.check("--inputs", x, "--outputs", self.arrays("y.npz", y=self.y))
        self.assertIn("difference y: at most 1e+03, ", output)

    def test_bad_arrays(self):
        good = self.arrays("good.npz", x=self.x)
        with open(good, "rb") as file:
            data = file.read()
        cases = {"z": (self.arrays("z.npz", z=self.x), 'no array "x"'),
                 "type": (self.arrays("type.npz", x=self.x.astype(np.int64)), "not the type and shape"),
                 "shape": (self.arrays("shape.npz", x=self.x[:, 1:]), "not the type and shape"),
                 "wide": (self.arrays("wide.npz", x=self.x.astype(np.float64)), "accepted are float32"),
                 "order": (self.arrays("order.npz", x=np.asfortranarray(self.x)), "in C order"),
                 "packed": (self.arrays("packed.npz", np.savez_compressed, x=self.x), "without compression"),
                 "rows": (self.arrays("rows.npz", x=np.zeros((70000, 32), np.float32)), "1 to 65536 rows"),
                 "none": (self.arrays("none.npz", x=self.x[:0]), "1 to 65536 rows"),
                 "text": (self.file("text.npz", "nothing"), "no npz file"),
                 "empty": (self.file("empty.npz", ""), "not a file with arrays"),
                 "folder": (self.folder, "not a file with arrays"),
                 "absent": (self.path("absent.npz"), "No such file")}
        for path, reason in cases.values():
            self.assertIn(reason, self.check("--inputs", path, status=1))
        self.assertIn("has 2 rows, the inputs 3", self.check("--inputs", good, "--outputs", self.arrays("y.npz", y=self.y[:2]),
                                                             status=1))
        path = self.path("damaged.npz")
        for at in range(0, len(data), 7):
            for damaged in (data[:at], data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1:]):
                if at % 3 == 0 or at > len(data) - 150 or at < 150:
                    with open(path, "wb") as file:
                        file.write(damaged)
                    self.assertIn(self.run_status("check", self.path("m.onnx"), "--inputs", path), (0, 1), at)

    def run_status(self, *words):
        return subprocess.run([os.path.join(os.environ["STARLING_BIN"], "starling-serve"), *words], capture_output=True, timeout=60,
                              check=False).returncode

    def test_refused(self):
        self.save("m.onnx", mlp("Hardmax"))
        self.assertIn('m.onnx: node "middle" (Hardmax): the operator is not supported', self.check(status=1))
        self.assertIn("--outputs needs --inputs", self.check("--outputs", "y.npz", status=2))
        self.assertIn("a model is missing", self.run_to_end("starling-serve", "check", status=2))


class Generate(ModelsTest):
    def setUp(self):
        super().setUp()
        self.save("templates/mlp.onnx", mlp())
        self.save("templates/mlp-wide.onnx", mlp("Tanh"))

    def generate(self, text, out, *words, status=0):
        return self.run_to_end("starling-serve", "generate", self.file("list.txt", text), "--templates",
                               self.path("templates"), "--out", self.path(out), *words, status=status)

    def weights(self, path):
        """{name: array}, and the operator in the middle."""
        graph = onnx.load(self.path(path)).graph
        return {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}, graph.node[1].op_type

    def test_variants(self):
        self.generate("model_name\nmlp-1, 7\nmlp-2\nmlp-wide-1\n", "out")
        self.assertEqual(sorted(os.listdir(self.path("out"))), ["mlp-1.onnx", "mlp-2.onnx", "mlp-wide-1.onnx"])
        template, _ = self.weights("templates/mlp.onnx")
        one, op = self.weights("out/mlp-1.onnx")
        two, _ = self.weights("out/mlp-2.onnx")
        self.assertEqual(op, "Relu")
        self.assertEqual(self.weights("out/mlp-wide-1.onnx")[1], "Tanh")
        self.assertEqual(sorted(one), ["b1", "w1", "w2"])
        for name, weights in one.items():
            ratio = weights / template[name]
            self.assertGreaterEqual(ratio.min(), 1 - 1 / 16 - 1e-6)
            self.assertLessEqual(ratio.max(), 1 + 1 / 16 + 1e-6)
            self.assertGreater(ratio.std(), 0.03)
            self.assertLess((weights == two[name]).mean(), 0.01)
        output = self.run_to_end("starling-serve", "deploy", self.path("out"), "--dir", self.path("store"))
        self.assertIn("mlp-wide-1@1: ", output)

    def test_seed(self):
        for out, seed in (("a", "1"), ("b", "1"), ("c", "2")):
            self.generate("model_name\nmlp-1\n", out, "--seed", seed)
        contents = []
        for out in "abc":
            with open(self.path(f"{out}/mlp-1.onnx"), "rb") as file:
                contents.append(file.read())
        self.assertEqual(contents[0], contents[1])
        self.assertNotEqual(contents[0], contents[2])

    def test_bad_lists(self):
        for text, reason in (("", "list.txt: accepted are"), ("model_name\n", "list.txt: accepted are"),
                             ("model_name\nmlp-1\nresnet18-1\n", 'list.txt:3: no template for "resnet18-1"'),
                             ("model_name\nmlp-1\nmlp-1\n", 'list.txt:3: "mlp-1" is there twice'),
                             ("model_name\nmlp 1\n", 'list.txt:2: "mlp 1" is no name'),
                             ("model_name\n../mlp\n", 'list.txt:2: "../mlp" is no name'),
                             ("model_name\n\n", 'list.txt:2: "" is no name')):
            self.assertIn(reason, self.generate(text, "out", status=1))
        self.assertFalse(os.path.exists(self.path("out")))

    def test_command_line(self):
        for words in ([], ["list.txt"], ["list.txt", "--out", "o"], ["list.txt", "--templates", "t"]):
            self.assertIn("is missing", self.run_to_end("starling-serve", "generate", *words, status=2))


if __name__ == "__main__":
    harness.main()
