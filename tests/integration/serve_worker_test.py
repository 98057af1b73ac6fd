#!/usr/bin/env python3
"""Workers of model serving as processes: started before their agent and gateway, killed and ended under load; an
agent and a gateway that are killed and come again; new versions during requests; more models than memory."""

import os
import signal
import socket
import threading
import time

import serve_http_test  # skips without numpy and onnx
import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

import harness

WIDTH = 256


class Mlp:
    """y = relu(x w + b) w + b: its 0.5 MB are three blocks of the pool."""

    def __init__(self, seed):
        random = np.random.default_rng(seed)
        self.w = [(random.standard_normal((WIDTH, WIDTH)) / 16).astype("f4") for _ in range(2)]
        self.b = [random.standard_normal(WIDTH).astype("f4") for _ in range(2)]

    def save(self, path):
        nodes = [helper.make_node("Gemm", ["x", "w0", "b0"], ["g"]), helper.make_node("Relu", ["g"], ["r"]),
                 helper.make_node("Gemm", ["r", "w1", "b1"], ["y"])]
        weights = [numpy_helper.from_array(part[i], f"{name}{i}") for i in (0, 1)
                   for name, part in (("w", self.w), ("b", self.b))]
        graph = helper.make_graph(nodes, "mlp", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", WIDTH])],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", WIDTH])], weights)
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)

    def compute(self, x):
        return np.maximum(x.astype("f8") @ self.w[0] + self.b[0], 0) @ self.w[1] + self.b[1]


class Load:
    """Threads that send requests, and keep each status with the text of errors."""

    def __init__(self, test, names, count=3):
        self.test, self.names, self.ends = test, names, False
        self.answers, self.errors = 0, []
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(count)]
        for thread in self.threads:
            thread.start()

    def run(self, index):
        client, i = serve_http_test.Oip(self.test.address), index
        while not self.ends:
            name = self.names[i % len(self.names)]
            x = np.full((1 + i % 3, WIDTH), i % 7, "f4")
            status, answer = client.infer(name, {"x": ("FP32", x)}, True, True)
            if status != 200:
                self.errors.append((status, answer))
            else:
                good = [model.compute(x) for model in self.test.versions[name]]
                y = answer["outputs"][0]["data"]
                if not any(np.allclose(y, each, rtol=1e-3, atol=1e-4) for each in good):
                    self.errors.append((name, answer["model_version"], "other values"))
                self.answers += 1
            i += 1
        client.connection.close()

    def more(self, count):
        """Waits for so many further answers."""
        goal, end = self.answers + count, time.monotonic() + harness.DEADLINE_S
        while self.answers < goal:
            self.test.assertLess(time.monotonic(), end, self.errors)
            time.sleep(0.01)

    def end(self):
        self.ends = True
        for thread in self.threads:
            thread.join()
        return self.errors


class Workers(harness.StarlingTest):
    def setUp(self):
        super().setUp()
        self.agent_name = f"worker-{os.getpid()}-{self.id().rsplit('.', 1)[1]}"
        self.listen = f"127.0.0.1:{harness.free_ports(1)[0]}"
        self.versions, self.workers, self.agent = {}, [], None

    def start_storage(self):
        folder = os.path.join(self.folder, "objects")
        os.makedirs(folder, exist_ok=True)
        self.storage = self.start("starling-objects", "serve", "--dir", folder, "--name", "127.0.0.1:0")
        self.catalogue = self.storage.wait_line("serves the catalogue").split(" ")[0]

    def start_agent(self, pool="64M"):
        self.agent = self.start("starling-objects", "serve", "--agent", "--agent-name", self.agent_name, "--catalogue",
                                self.catalogue, "--name", "127.0.0.1:0", "--pool-memory", pool)
        self.agent.wait_line("serves readers")

    def start_gateway(self):
        """Also in the place of one that was killed."""
        self.gateway = self.start("starling-serve", "gateway", "--listen", self.listen, "--catalogue", self.catalogue,
                                  "--http", "127.0.0.1:0")
        self.address = self.gateway.wait_line("serves http").strip().rsplit("//", 1)[1]

    def start_worker(self, *flags):
        worker = self.start("starling-serve", "worker", "--gateway", self.listen, "--agent-name", self.agent_name,
                            *flags)
        worker.wait_line("computes models")
        self.workers.append(worker)

    def deploy(self, name, seed):
        path = os.path.join(self.folder, f"{name}.onnx")
        model = Mlp(seed)
        self.versions.setdefault(name, []).append(model)
        model.save(path)
        self.run_to_end("starling-serve", "deploy", path, "--catalogue", self.catalogue)

    def start_all(self, models=1, workers=2, pool="64M"):
        self.start_storage()
        for i in range(models):
            self.deploy(f"m{i}", i)
        self.start_agent(pool)
        self.start_gateway()
        for _ in range(workers):
            self.start_worker()
        client, end = serve_http_test.Oip(self.address), time.monotonic() + harness.DEADLINE_S
        while client.ask("GET", "/v2/health/ready")[0] != 200:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        client.connection.close()
        return [f"m{i}" for i in range(models)]

    def end_all(self):
        """What is left ends by SIGTERM with status 0."""
        for process in (*self.workers, self.gateway, self.agent, self.storage):
            process.signal(signal.SIGTERM)
            self.assertEqual(process.wait(), 0, process.output)

    def test_started_before_agent_and_gateway(self):
        self.start_storage()
        self.deploy("m0", 0)
        self.start_gateway()
        self.gateway.signal(signal.SIGKILL)
        self.gateway.wait()
        worker = self.start("starling-serve", "worker", "--gateway", self.listen, "--agent-name", self.agent_name)
        worker.wait_line("waits for its agent")
        self.start_agent()
        worker.wait_line("computes models")
        worker.wait_line(f"waits for gateway {self.listen}")
        self.workers.append(worker)
        self.start_gateway()
        load = Load(self, ["m0"], 1)
        load.more(3)
        self.assertEqual(load.end(), [])
        self.end_all()

    def test_a_worker_is_killed_and_another_ends(self):
        load = Load(self, self.start_all(2, 3))
        load.more(20)
        self.workers[0].signal(signal.SIGKILL)
        self.workers.pop(0).wait()
        load.more(20)
        ending = self.workers.pop(0)
        ending.signal(signal.SIGTERM)
        self.assertEqual(ending.wait(), 0, ending.output)
        load.more(20)
        self.assertEqual(load.end(), [])
        self.end_all()

    def test_the_gateway_is_killed(self):
        names = self.start_all()
        load = Load(self, names, 1)
        load.more(5)
        self.assertEqual(load.end(), [])
        self.gateway.signal(signal.SIGKILL)
        self.gateway.wait()
        self.start_gateway()
        load = Load(self, names, 1)
        load.more(5)
        self.assertEqual(load.end(), [])
        self.end_all()

    def test_the_agent_is_killed(self):
        load = Load(self, self.start_all(3))
        load.more(10)
        self.agent.signal(signal.SIGKILL)
        self.agent.wait()
        self.start_agent()
        load.more(30)
        self.assertEqual(load.end(), [])
        self.end_all()

    def test_a_gateway_by_another_name(self):
        """A name that leads to the gateway, and is not the one under which its notices come."""
        try:
            socket.gethostbyname("localhost")
        except OSError:
            self.skipTest("this system does not know the host localhost")
        self.start_storage()
        self.deploy("m0", 0)
        self.start_agent()
        self.start_gateway()
        self.listen = self.listen.replace("127.0.0.1", "localhost")
        self.start_worker()
        load = Load(self, ["m0"], 1)
        load.more(3)
        self.assertEqual(load.end(), [])
        self.end_all()

    def test_the_storage_is_stopped(self):
        """A model that cannot be read now does not keep the worker from another one."""
        self.start_all(2, 1)
        load = Load(self, ["m0"], 1)
        load.more(3)
        self.storage.signal(signal.SIGSTOP)
        cold = Load(self, ["m1"], 1)
        load.more(30)
        self.assertEqual(cold.answers, 0)
        self.storage.signal(signal.SIGCONT)
        cold.more(3)
        self.assertEqual(load.end() + cold.end(), [])
        self.end_all()

    def test_new_versions_during_requests(self):
        load = Load(self, self.start_all())
        for seed in range(1, 5):
            load.more(10)
            self.deploy("m0", seed)
            client = serve_http_test.Oip(self.address)
            x, end = np.ones((1, WIDTH), "f4"), time.monotonic() + harness.DEADLINE_S
            newest = self.versions["m0"][-1].compute(x)
            while not np.allclose(client.infer("m0", {"x": ("FP32", x)})[1]["outputs"][0]["data"], newest, rtol=1e-3,
                                  atol=1e-4):
                self.assertLess(time.monotonic(), end)
            client.connection.close()
        self.assertEqual(load.end(), [])
        self.end_all()

    def test_more_models_than_memory(self):
        """A model takes four blocks: the pool has room for three of twelve."""
        load = Load(self, self.start_all(12, 2, "3M"))
        load.more(100)
        self.assertEqual(load.end(), [])
        self.end_all()

    def test_a_model_that_is_larger_than_the_pool(self):
        names = self.start_all(1, 1, "512K")
        client = serve_http_test.Oip(self.address)
        status, answer = client.infer(names[0], {"x": ("FP32", np.ones((1, WIDTH), "f4"))})
        self.assertGreaterEqual(status, 400)
        self.assertIn("pool", str(answer))
        client.connection.close()
        self.end_all()

    def test_bad_flags(self):
        for words, text in ((["--gateway", ""], "--gateway"), ([], "--gateway is missing"),
                            (["--gateway", "a:1", "--batch-max", "0"], "--batch-max"),
                            (["--gateway", "a:1", "--schedule", "best"], "optimal, layer, whole"),
                            (["--gateway", "a:1", "--host", "x" * 64], "up to 63")):
            self.assertIn(text, self.run_to_end("starling-serve", "worker", *words, status=2))


if __name__ == "__main__":
    harness.main()
