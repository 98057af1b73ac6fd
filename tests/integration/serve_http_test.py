#!/usr/bin/env python3
"""The Open Inference Protocol, version 2, spoken to a gateway by a client that is written here from its
specification, and by curl. Storage, agent, gateway and workers are processes; models are made by onnx."""

import http.client
import json
import os
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import time

try:
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper, save
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

import harness

TYPES = {"BOOL": "?", "INT8": "i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8", "UINT8": "u1", "UINT16": "<u2",
         "UINT32": "<u4", "UINT64": "<u8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8"}


class Model:
    """y = relu(x w + b), with 4 columns to 3."""

    def __init__(self, seed):
        random = np.random.default_rng(seed)
        self.w = random.standard_normal((4, 3)).astype("f4")
        self.b = random.standard_normal(3).astype("f4")

    def save(self, path):
        graph = helper.make_graph(
            [helper.make_node("Gemm", ["x", "w", "b"], ["s"]), helper.make_node("Relu", ["s"], ["y"])], "mlp",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
            [numpy_helper.from_array(self.w, "w"), numpy_helper.from_array(self.b, "b")])
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)

    def compute(self, x):
        return np.maximum(x.astype("f8") @ self.w + self.b, 0)


class Oip:
    """A client of the protocol, on one connection, which a server closes that hears nothing for 10 s. Its requests
    have long deadlines, unless the headers say otherwise: a process may stand still for seconds."""

    def __init__(self, address, context=None, token=None):
        host, port = address.rsplit(":", 1)
        kind = http.client.HTTPSConnection if context else http.client.HTTPConnection
        self.connection = kind(host, int(port), timeout=harness.DEADLINE_S, **({"context": context} if context else {}))
        self.token = token

    def ask(self, method, path, body=None, headers=()):
        headers = {"Starling-Timeout-Ms": "60000", **dict(headers)}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        self.connection.request(method, path, body, headers)
        answer = self.connection.getresponse()
        self.headers = answer.headers
        return answer.status, answer.read()

    def json(self, method, path, body=None, headers=()):
        status, text = self.ask(method, path, None if body is None else json.dumps(body), headers)
        return status, json.loads(text) if text else None

    def infer(self, model, inputs, binary_in=False, binary_out=False, outputs=None, headers=(), **more):
        """inputs: {name: (datatype, array)}. Returns the status and the answer, with arrays as `data`."""
        request, tail = {"inputs": [], **more}, b""
        for name, (datatype, array) in inputs.items():
            tensor = {"name": name, "datatype": datatype, "shape": list(array.shape)}
            if binary_in:
                piece = array.astype(TYPES[datatype]).tobytes()
                tensor["parameters"] = {"binary_data_size": len(piece)}
                tail += piece
            else:
                tensor["data"] = array.tolist()
            request["inputs"].append(tensor)
        if binary_out:
            request["parameters"] = {"binary_data_output": True}
        if outputs is not None:
            request["outputs"] = outputs
        head = json.dumps(request).encode()
        headers = dict(headers)
        if binary_in:
            headers["Inference-Header-Content-Length"] = str(len(head))
        status, text = self.ask("POST", f"/v2/models/{model}/infer", head + tail, headers)
        size = int(self.headers.get("Inference-Header-Content-Length", len(text)))
        answer, at = json.loads(text[:size]), size
        for tensor in answer.get("outputs", []):
            count = tensor.get("parameters", {}).get("binary_data_size")
            if count is not None:
                tensor["data"] = np.frombuffer(text[at:at + count], TYPES[tensor["datatype"]])
                at += count
            tensor["data"] = np.array(tensor["data"]).reshape(tensor["shape"])
        assert at == len(text), (at, len(text))
        return status, answer


class Http(harness.StarlingTest):
    def start_all(self, *flags, models=(("mlp", 1),), worker_count=1):
        self.models = {name: Model(seed) for name, seed in models}
        self.agent = f"serve-{os.getpid()}-{self.id().rsplit('.', 1)[1]}"
        storage = self.start("starling-objects", "serve", "--dir", os.path.join(self.folder, "objects"), "--name",
                             "127.0.0.1:0")
        self.catalogue = storage.wait_line("serves the catalogue").split(" ")[0]
        agent = self.start("starling-objects", "serve", "--agent", "--agent-name", self.agent, "--catalogue",
                           self.catalogue, "--pool-memory", "64M")
        agent.wait_line("serves readers of this host")
        for name, model in self.models.items():
            self.deploy(name, model)
        self.gateway = self.start("starling-serve", "gateway", "--listen", "127.0.0.1:0", "--catalogue", self.catalogue,
                                  "--http", "127.0.0.1:0", *flags)
        line = self.gateway.wait_line("serves http")
        self.address = line.strip().rsplit("//", 1)[1]
        for _ in range(worker_count):
            worker = self.start("starling-serve", "worker", "--gateway", line.split(" ")[0], "--agent-name", self.agent)
            worker.wait_line("")

    def deploy(self, name, model):
        path = os.path.join(self.folder, f"{name}.onnx")
        model.save(path)
        self.run_to_end("starling-serve", "deploy", path, "--catalogue", self.catalogue)

    def oip(self, *words):
        client = Oip(self.address, *words)
        self.addCleanup(client.connection.close)
        return client

    def ready(self):
        client, end = self.oip(), time.monotonic() + harness.DEADLINE_S
        while client.ask("GET", "/v2/health/ready")[0] != 200:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        return client

    def check(self, answer, model, x):
        (y,) = answer["outputs"]
        self.assertEqual((y["name"], y["datatype"], y["shape"]), ("y", "FP32", [len(x), 3]))
        np.testing.assert_allclose(y["data"], model.compute(x), rtol=1e-4, atol=1e-5)


class Protocol(Http):
    def test_metadata_and_inference(self):
        self.start_all()
        oip = self.ready()
        self.assertEqual(oip.ask("GET", "/v2/health/live")[0], 200)
        status, server = oip.json("GET", "/v2")
        self.assertEqual((status, server["name"]), (200, "starling-serve"))
        self.assertLess({"binary_tensor_data", "model_repository"}, set(server["extensions"]))
        status, metadata = oip.json("GET", "/v2/models/mlp")
        self.assertEqual(status, 200, metadata)
        self.assertEqual((metadata["name"], metadata["inputs"], metadata["outputs"]),
                         ("mlp", [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
                          [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}]))
        (version,) = metadata["versions"]
        self.assertEqual(oip.json("GET", f"/v2/models/mlp/versions/{version}")[1]["versions"], [version])
        self.assertEqual(oip.ask("GET", "/v2/models/mlp/ready")[0], 200)
        model = self.models["mlp"]
        random = np.random.default_rng(5)
        for rows in (1, 2, 7):
            x = random.standard_normal((rows, 4)).astype("f4")
            for binary_in in (False, True):
                for binary_out in (False, True):
                    status, answer = oip.infer("mlp", {"x": ("FP32", x)}, binary_in, binary_out, id=f"r{rows}")
                    self.assertEqual(status, 200, answer)
                    self.assertEqual((answer["model_name"], answer["model_version"], answer["id"]),
                                     ("mlp", version, f"r{rows}"))
                    self.assertEqual(set(answer["parameters"]), {"queue_us", "load_us", "compute_us"})
                    self.check(answer, model, x)
        x = np.ones((1, 4), "f4")
        status, answer = oip.infer(f"mlp/versions/{version}", {"x": ("FP32", x)},
                                   outputs=[{"name": "y", "parameters": {"binary_data": True}}])
        self.assertEqual((status, answer["model_version"]), (200, version))
        self.check(answer, model, x)
        metrics = oip.ask("GET", "/metrics")[1].decode()
        self.assertRegex(metrics, r'\nstarling_serve_requests_total\{result="answered"\} [1-9]')
        self.curl(model)
        self.client()

    def curl(self, model):
        body = '{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]}'
        if shutil.which("curl") is None:
            return
        text = subprocess.run(["curl", "-sf", f"http://{self.address}/v2/models/mlp/infer", "-d", body, "-H",
                               "Starling-Timeout-Ms: 60000"], check=True, capture_output=True,
                              timeout=harness.DEADLINE_S).stdout
        (y,) = json.loads(text)["outputs"]
        np.testing.assert_allclose(y["data"], model.compute(np.array([[1, 2, 3, 4]]))[0], rtol=1e-4, atol=1e-5)

    def client(self):
        """starling-serve client, which asks for the inputs and sends them in binary."""
        path = self.file("list.txt", "model_name, batch_size, send_interval\nmlp, 2, 0\nmlp, 1, 0.001\n")
        for flags in (["--mode", "one"], ["--mode", "rate"], ["--mode", "max", "--concurrency", "4"]):
            text = self.run_to_end("starling-serve", "client", path, self.address, "--requests", "20", "--json",
                                   "--timeout-ms", "60000", *flags)
            self.assertEqual(json.loads(text)["answers"], 20)

    def test_bad_requests(self):
        self.start_all()
        oip = self.ready()
        x = np.zeros((1, 4), "f4")
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [0, 0, 0, 0]}
        for body, words in [
                ("", "JSON"), ("[", "JSON"), ({}, "inputs"), ({"inputs": []}, "inputs"),
                ({"inputs": [tensor, tensor]}, '`x` is given twice'),
                ({"inputs": [{**tensor, "name": "z"}]}, '`z`'),
                ({"inputs": [{**tensor, "shape": [1, 5]}]}, '`x`'),
                ({"inputs": [{**tensor, "shape": [1, 2, 2]}]}, '`x`'),
                ({"inputs": [{**tensor, "shape": [2, 2]}]}, '`x`'),
                ({"inputs": [{**tensor, "datatype": "INT32"}]}, '`x`'),
                ({"inputs": [{**tensor, "datatype": "FP31"}]}, "FP31"),
                ({"inputs": [{**tensor, "data": [1, 2, 3]}]}, '`x`'),
                ({"inputs": [{**tensor, "data": [[1, 2], [3, 4]]}]}, '`x`'),
                ({"inputs": [tensor, {**tensor, "name": "more"}]}, "more"),
                ({"inputs": [tensor], "outputs": [{"name": "z"}]}, '`z`'),
                ({"inputs": [{**tensor, "name": "x\u0001"}]}, "control characters"),
                ({"inputs": [tensor], "parameters": {"priority": 1}}, "parameters.priority"),
                ({"inputs": [tensor], "outputs": [{"name": "y", "parameters": {"classification": 2}}]},
                 "parameters.classification")]:
            text = body if isinstance(body, str) else json.dumps(body)
            status, answer = oip.ask("POST", "/v2/models/mlp/infer", text)
            self.assertEqual(status, 400, (body, answer))
            self.assertIn(words, json.loads(answer)["error"], body)
        head = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4],
                                       "parameters": {"binary_data_size": 16}}]})
        for tail in (b"\0" * 15, b"\0" * 17, b""):
            status, answer = oip.ask("POST", "/v2/models/mlp/infer", head.encode() + tail,
                                     {"Inference-Header-Content-Length": str(len(head))})
            self.assertEqual(status, 400, answer)
        version = oip.json("GET", "/v2/models/mlp")[1]["versions"][0]
        for path in ("/v2/models/none/infer", "/v2/models/mlp/versions/987654321/infer"):
            status, answer = oip.json("POST", path, {"inputs": [tensor]})
            self.assertEqual(status, 404, answer)
        self.assertIn(version, answer["error"])
        self.assertEqual(oip.json("GET", "/v2/models/none")[0], 404)
        self.assertEqual(oip.json("GET", "/v2/models/none/ready")[0], 404)
        for value in ("0", "3600001", "x"):
            status, answer = oip.infer("mlp", {"x": ("FP32", x)}, headers={"Starling-Timeout-Ms": value})
            self.assertEqual(status, 400)
            self.assertIn("Starling-Timeout-Ms", answer["error"])
        self.assertEqual(oip.json("GET", "/v2/models/mlp/infer")[0], 405)
        self.assertEqual(oip.headers["Allow"], "POST")
        self.assertEqual(oip.json("PUT", "/v2/models/mlp")[0], 405)
        self.assertEqual(oip.json("GET", "/v1/models/mlp")[0], 404)
        status, answer = oip.json("POST", "/v2/models/mlp/infer", headers={"Content-Length": str(1 << 50)})
        self.assertEqual(status, 413)
        oip.connection.close()
        status, answer = oip.ask("POST", "/v2/models/mlp/infer", bytes((64 << 20) + 1))
        self.assertEqual((status, json.loads(answer)["error"].count("67108864")), (413, 1))
        self.check(oip.infer("mlp", {"x": ("FP32", x)})[1], self.models["mlp"], x)
        self.assertIn("no such route", oip.json("GET", "/v2/models/mlp/about")[1]["error"])
        oip = self.oip()
        status, answer = oip.ask("POST", "/v2/repository/index", b"[" + b"{}," * 100000 + b"0]")
        self.assertEqual((status, json.loads(answer)["error"].count("4096")), (413, 1))
        status, answer = oip.json("POST", "/v2/repository/models/mlp/load", {"parameters": {"config": "{}"}})
        self.assertEqual((status, answer["error"].count("parameters.config")), (400, 1))
        self.assertEqual(oip.json("POST", "/v2/repository/models/mlp/versions/1/unload")[0], 404)
        self.hold_memory()
        self.check(oip.infer("mlp", {"x": ("FP32", x)})[1], self.models["mlp"], x)
        metrics = oip.ask("GET", "/metrics")[1].decode()
        self.assertIn('starling_serve_model_requests_total{model="mlp",result="failed"} 0\n', metrics)
        self.assertRegex(metrics, r'starling_serve_model_requests_total\{model="mlp",result="invalid"\} [1-9]')

    def hold_memory(self):
        """Connections that announce more tensors than the gateway has memory for, and send nothing of them."""
        host, port = self.address.rsplit(":", 1)
        for count in [(64 << 20) - 256] * 4 + [704]:
            body = json.dumps({"inputs": [{"name": "x", "shape": [count], "datatype": "UINT8",
                                           "parameters": {"binary_data_size": count}}]}).encode()
            connection = socket.create_connection((host, int(port)), harness.DEADLINE_S)
            self.addCleanup(connection.close)
            connection.sendall(b"POST /v2/models/mlp/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n"
                               b"Inference-Header-Content-Length: %d\r\n\r\n" % (len(body) + count, len(body)) + body)

    def test_repository_and_new_versions(self):
        self.start_all(models=(("mlp", 1), ("other", 2)), worker_count=2)
        oip = self.ready()
        status, index = oip.json("POST", "/v2/repository/index", {})
        self.assertEqual((status, [(m["name"], m["state"]) for m in index]),
                         (200, [("mlp", "READY"), ("other", "READY")]))
        x = np.ones((2, 4), "f4")
        self.assertEqual(oip.ask("POST", "/v2/repository/models/mlp/load")[0], 200)
        self.assertEqual(oip.ask("POST", "/v2/repository/models/none/load")[0], 404)
        self.assertEqual(oip.ask("POST", "/v2/repository/models/mlp/unload")[0], 200)
        self.assertEqual(oip.infer("mlp", {"x": ("FP32", x)})[0], 404)
        self.assertEqual(oip.ask("GET", "/v2/models/mlp/ready")[0], 404)
        states = {m["name"]: m["state"] for m in oip.json("POST", "/v2/repository/index")[1]}
        self.assertEqual(states, {"mlp": "UNAVAILABLE", "other": "READY"})
        self.assertEqual([m["name"] for m in oip.json("POST", "/v2/repository/index", {"ready": True})[1]], ["other"])
        self.check(oip.infer("other", {"x": ("FP32", x)})[1], self.models["other"], x)
        self.assertEqual(oip.ask("POST", "/v2/repository/models/mlp/load")[0], 200)
        old = oip.infer("mlp", {"x": ("FP32", x)})[1]
        self.check(old, self.models["mlp"], x)
        renewed = Model(9)
        self.deploy("mlp", renewed)
        oip, end = self.oip(), time.monotonic() + harness.DEADLINE_S
        while True:
            answer = oip.infer("mlp", {"x": ("FP32", x)})[1]
            if answer["model_version"] != old["model_version"]:
                break
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        self.check(answer, renewed, x)
        status, answer = oip.infer(f"mlp/versions/{old['model_version']}", {"x": ("FP32", x)})
        self.assertEqual((status, answer["model_version"]), (200, old["model_version"]))
        self.check(answer, self.models["mlp"], x)
        self.check_removed(oip, x, old["model_version"])

    def check_removed(self, oip, x, old):
        """The newest version is removed: the older one answers; then all: there is no model."""
        def wait_for(status, version):
            end = time.monotonic() + harness.DEADLINE_S
            while True:
                got, answer = oip.infer("mlp", {"x": ("FP32", x)})
                if (got, answer.get("model_version")) == (status, version):
                    return answer
                self.assertIn(got, (200, 404), answer)
                self.assertLess(time.monotonic(), end)
                time.sleep(0.05)

        newest = oip.infer("mlp", {"x": ("FP32", x)})[1]["model_version"]
        self.run_to_end("starling-objects", "rm", f"mlp@{newest}", "--catalogue", self.catalogue)
        self.check(wait_for(200, old), self.models["mlp"], x)
        self.run_to_end("starling-objects", "rm", "mlp", "--catalogue", self.catalogue)
        wait_for(404, None)


class Access(Http):
    def test_token_and_tls(self):
        token = self.file("token", "0123456789abcdef\n")
        os.chmod(token, 0o600)
        certificate, key = os.path.join(self.folder, "c.pem"), os.path.join(self.folder, "k.pem")
        if shutil.which("openssl") is None:
            self.skipTest("there is no openssl")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=localhost", "-addext",
                        "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
        self.start_all("--http-token-file", token, "--http-tls-cert", certificate, "--http-tls-key", key)
        context = ssl.create_default_context(cafile=certificate)
        self.assertEqual(self.oip(context).ask("GET", "/v2")[0], 401)
        self.assertEqual(self.oip(context, "0123456789abcdeF").ask("GET", "/v2")[0], 403)
        oip, x = self.oip(context, "0123456789abcdef"), np.ones((2, 4), "f4")
        end = time.monotonic() + harness.DEADLINE_S
        while oip.ask("GET", "/v2/health/ready")[0] != 200 and time.monotonic() < end:
            time.sleep(0.02)
        status, answer = oip.infer("mlp", {"x": ("FP32", x)}, True, True)
        self.assertEqual(status, 200, answer)
        self.check(answer, self.models["mlp"], x)

    def test_bad_flags(self):
        def refused(words, *flags):
            self.assertIn(words, self.run_to_end("starling-serve", "gateway", "--catalogue", "127.0.0.1:1", *flags,
                                                 status=2))

        refused("--http-token-file", "--http", "0.0.0.0:0")
        refused("HOST:PORT", "--http", "here")
        refused("nowhere", "--http-token-file", "nowhere")
        refused("basic|cost", "--strategy", "best")


if __name__ == "__main__":
    harness.main()
