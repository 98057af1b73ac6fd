#!/usr/bin/env python3
"""Gateways of model serving as processes, under load: workers that are killed, one beside another, and drained."""

import http.client
import os
import signal
import threading
import time

import serve_http_test  # skips without numpy and onnx
import numpy as np

import harness

TIMEOUT_MS = 30000  # longer than a process may stand still
HANGS_S = 20  # an answer that takes so long is none; the machine may be loaded


class Load:
    """Threads that send requests to one gateway, and keep how often each status came, and how late the last answer."""

    def __init__(self, test, address, count=3, timeout_ms=TIMEOUT_MS):
        self.test, self.address, self.timeout_ms, self.ends = test, address, timeout_ms, False
        self.statuses, self.wrong, self.late_s = {}, [], 0.0
        self.threads = [threading.Thread(target=self.run, args=(i,), daemon=True) for i in range(count)]
        for thread in self.threads:
            thread.start()

    def run(self, index):
        client = serve_http_test.Oip(self.address)
        while not self.ends:
            began = time.monotonic()
            name = list(self.test.models)[index % len(self.test.models)]
            x = np.full((1 + index % 3, 4), index % 7, "f4")
            index += 1
            try:
                status, answer = client.infer(name, {"x": ("FP32", x)}, True, True,
                                              headers={"Starling-Timeout-Ms": str(self.timeout_ms)})
            except (OSError, http.client.HTTPException) as error:
                status = type(error).__name__
                client.connection.close()
                time.sleep(0.01)
            self.statuses[status] = self.statuses.get(status, 0) + 1
            self.late_s = max(self.late_s, time.monotonic() - began - self.timeout_ms / 1000)
            if status == 200 and not np.allclose(answer["outputs"][0]["data"], self.test.models[name].compute(x),
                                                 rtol=1e-3, atol=1e-4):
                self.wrong.append((name, x.tolist(), answer))
        client.connection.close()

    def more(self, count, status=200):
        goal, end = self.statuses.get(status, 0) + count, time.monotonic() + harness.DEADLINE_S
        while self.statuses.get(status, 0) < goal:
            self.test.assertLess(time.monotonic(), end, self.statuses)
            time.sleep(0.01)

    def end(self, *statuses):
        """No other status came."""
        self.ends = True
        for thread in self.threads:
            thread.join()
        print(f"{self.statuses}, at most {self.late_s * 1000:.0f} ms after the deadline", flush=True)
        self.test.assertEqual(self.wrong, [])
        self.test.assertEqual(set(self.statuses) - {200, *statuses}, set(), self.statuses)
        self.test.assertLess(self.late_s, HANGS_S)


class Gateways(harness.StarlingTest):
    def setUp(self):
        super().setUp()
        self.agent = f"gateway-{os.getpid()}-{self.id().rsplit('.', 1)[1][:32]}"
        self.models = {f"m{i}": serve_http_test.Model(i) for i in range(3)}
        folder, files = os.path.join(self.folder, "objects"), os.path.join(self.folder, "models")
        os.makedirs(files)
        for name, model in self.models.items():
            model.save(os.path.join(files, f"{name}.onnx"))
        self.run_to_end("starling-serve", "deploy", files, "--dir", folder)
        self.catalogue = f"127.0.0.1:{harness.free_ports(1)[0]}"
        self.storage = self.start("starling-objects", "serve", "--dir", folder, "--name", self.catalogue, "--agent",
                                  "--agent-name", self.agent, "--pool-memory", "16M")
        self.storage.wait_line("serves the catalogue")

    def start_gateway(self, listen="127.0.0.1:0", http_address="127.0.0.1:0"):
        """Returns the process, the address that workers join, and that of HTTP."""
        gateway = self.start("starling-serve", "gateway", "--listen", listen, "--catalogue", self.catalogue, "--http",
                             http_address)
        line = gateway.wait_line("serves http").strip()
        return gateway, line.split(" ")[0], line.rsplit("//", 1)[1]

    def start_worker(self, *gateways):
        worker = self.start("starling-serve", "worker", "--gateway", ",".join(gateways), "--agent-name", self.agent)
        worker.wait_line("computes models")
        return worker

    def kill(self, process):
        process.signal(signal.SIGKILL)
        process.wait()

    def test_each_request_is_answered_while_workers_are_killed(self):
        _, join, address = self.start_gateway()
        workers = [self.start_worker(join) for _ in range(2)]
        load = Load(self, address, 6)
        load.more(50)
        for _ in range(3):
            self.kill(workers.pop(0))
            load.more(20)
            workers.append(self.start_worker(join))
        for worker in workers:  # nobody is left
            self.kill(worker)
        refused = Load(self, address, timeout_ms=500)
        refused.more(5, 503)
        refused.end(503)
        self.start_worker(join)
        load.more(50)
        load.end(503)

    def test_two_gateways_share_workers_and_no_state(self):
        ports = harness.free_ports(2)
        join_one, address_one = (f"127.0.0.1:{port}" for port in ports)
        one, _, _ = self.start_gateway(join_one, address_one)
        _, join_two, address_two = self.start_gateway()
        for _ in range(2):
            self.start_worker(join_one, join_two)
        loads = [Load(self, address) for address in (address_one, address_two)]
        for load in loads:
            load.more(50)
        loads[0].end(503)
        self.kill(one)
        loads[1].more(50)
        for port in ports:
            harness.wait_unheard("127.0.0.1", port)
        self.start_gateway(join_one, address_one)
        loads[0] = Load(self, address_one)
        for load in loads:
            load.more(50)
        for load in loads:
            load.end(503)

    def test_drain_answers_what_was_accepted(self):
        gateway, join, address = self.start_gateway(http_address=f"127.0.0.1:{harness.free_ports(1)[0]}")
        worker = self.start_worker(join)
        load = Load(self, address, 6)
        load.more(50)
        gateway.signal(signal.SIGTERM)
        self.assertEqual(gateway.wait(), 0, gateway.output)
        load.end(503, "ConnectionRefusedError", "ConnectionResetError", "RemoteDisconnected", "BrokenPipeError")
        self.assertTrue(worker.running())

    def test_bad_flags(self):
        for words, text in ((["--strategy", "best"], "basic"), (["--memory", "1M"], "above 64M"),
                            (["--listen", "nowhere"], "--listen nowhere"), (["--http", "x"], "--http x"),
                            (["--http", "0.0.0.0:0"], "--http-token-file")):
            status = 1 if "--listen" in words else 2
            self.assertIn(text, self.run_to_end("starling-serve", "gateway", "--catalogue", self.catalogue, *words,
                                                status=status))
        self.assertIn("--catalogue is missing", self.run_to_end("starling-serve", "gateway", status=2))

    def test_it_names_what_it_waits_for(self):
        self.storage.signal(signal.SIGTERM)
        self.storage.wait()
        gateway, join, _ = self.start_gateway()
        gateway.wait_line(f"waiting for the catalogue at {self.catalogue}")
        folder = os.path.join(self.folder, "objects")
        self.start("starling-objects", "serve", "--dir", folder, "--name", self.catalogue)
        gateway.wait_line(f"waiting for a worker: starling-serve worker --gateway {join}")


if __name__ == "__main__":
    harness.main()
