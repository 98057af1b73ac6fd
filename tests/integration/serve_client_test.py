#!/usr/bin/env python3
"""starling-serve client against a server that is written here from the Open Inference Protocol: what it
sends, in which order and how many at one time; what it prints; bad lists."""

import http.server
import json
import re
import threading
import time

import harness

INPUTS = [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}, {"name": "k", "datatype": "INT64", "shape": [-1]}]
TITLE = "model_name, batch_size, send_interval\n"
TIMEOUT_MS = 25000  # longer than this process may stand still


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 65536

    def log_message(self, *words):
        pass

    def answer(self, status, value, binary=b"", headers=()):
        text = json.dumps(value).encode()
        self.send_response(status)
        for name, content in headers:
            self.send_header(name, content)
        if binary:
            self.send_header("Inference-Header-Content-Length", len(text))
        self.send_header("Content-Length", len(text + binary))
        self.end_headers()
        self.wfile.write(text + binary)

    def do_GET(self):
        name = self.path.removeprefix("/v2/models/")
        if name.startswith("none"):
            self.answer(404, {"error": "model none is unknown"})
        else:
            self.answer(200, {"name": name, "inputs": INPUTS, "outputs": []})

    def do_POST(self):
        server = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        name = re.fullmatch("/v2/models/(.*)/infer", self.path).group(1)
        with server.lock:
            server.running += 1
            server.most = max(server.most, server.running)
            server.requests.append((name, dict(self.headers), body))
        server.gate.wait()
        with server.lock:
            server.running -= 1
        if name == "busy":
            self.answer(503, {"error": "busy"}, headers=[("Retry-After", "1")])
        else:
            self.answer(200, {"parameters": {"queue_us": 1000, "load_us": 2000, "compute_us": 3000}}, b"\xff" * 8)


class Client(harness.StarlingTest):
    def setUp(self):
        super().setUp()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", harness.free_ports(1)[0]), Handler)
        self.server.daemon_threads = True
        self.server.lock, self.server.gate = threading.Lock(), threading.Event()
        self.server.running = self.server.most = 0
        self.server.requests = []
        self.server.gate.set()
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.address = "127.0.0.1:%d" % self.server.server_port

    def client(self, text, *flags, status=0, **more):
        return self.run_to_end("starling-serve", "client", self.file("list.txt", TITLE + text), self.address, "--timeout-ms",
                               TIMEOUT_MS, *flags, status=status, **more)

    def test_one_after_the_other(self):
        text = self.client("a, 2, 0.5\nb/c, 1, 0.25\n\na, 2, 0\n", "--seed", "7")
        lines = text.splitlines()
        for i, name in enumerate(["a", "b/c", "a"]):
            self.assertRegex(lines[i], rf"^{i} {name} Latency: [0-9.]+ ms$")
        self.assertRegex(lines[3], r"^Average Latency: [0-9.]+ \([0-9.]+\)$")
        result = json.loads("\n".join(lines[4:]))
        self.assertEqual((result["requests"], result["answers"], result["errors"]), (3, 3, {}))
        self.assertEqual([result[f"{phase}_mean_ms"] for phase in ("queue", "load", "compute")], [1, 2, 3])
        times = [result[f"{name}_ms"] for name in ("p50", "p90", "p99", "p999", "max")]
        self.assertEqual(times, sorted(times))
        self.assertEqual(self.server.most, 1)
        names = [name for name, _, _ in self.server.requests]
        self.assertEqual(names, ["a", "b%2Fc", "a"])
        _, headers, body = self.server.requests[0]
        self.assertEqual(headers["Starling-Timeout-Ms"], str(TIMEOUT_MS))
        size = int(headers["Inference-Header-Content-Length"])
        request = json.loads(body[:size])
        self.assertEqual([(t["shape"], t["parameters"]["binary_data_size"]) for t in request["inputs"]],
                         [([2, 3], 24), ([2], 16)])
        self.assertEqual(request["parameters"], {"binary_data_output": True})
        self.assertEqual(len(body) - size, 40)
        self.client("a, 2, 0\n", "--seed", "7")
        self.assertEqual(self.server.requests[3][2], body)
        self.client("a, 2, 0\n", "--seed", "8")
        self.assertNotEqual(self.server.requests[4][2], body)

    def test_as_many_as_allowed_at_one_time(self):
        self.server.gate.clear()
        process = self.start("starling-serve", "client", self.file("list.txt", TITLE + "a,1,0\n"), self.address,
                             "--mode", "max", "--concurrency", "5", "--requests", "40", "--json", "--timeout-ms", TIMEOUT_MS)
        end = time.monotonic() + harness.DEADLINE_S
        while self.server.running < 5 and time.monotonic() < end:
            time.sleep(0.01)
        self.server.gate.set()
        self.assertEqual(process.wait(), 0)
        self.assertEqual(json.loads(process.output.splitlines()[-1])["answers"], 40)
        self.assertEqual(self.server.most, 5)

    def test_at_the_intervals_of_the_list(self):
        begun = time.monotonic()
        self.client("a, 1, 0.125\n", "--mode", "rate", "--requests", "5")
        self.assertEqual(len(self.server.requests), 5)
        self.assertGreater(time.monotonic() - begun, 0.5)

    def test_zipf_draws_the_first_most_often(self):
        self.client("a,1,0\nb,1,0\nc,1,0\n", "--zipf", "1.5", "--requests", "200")
        names = [name for name, _, _ in self.server.requests]
        self.assertGreater(names.count("a"), names.count("b"))
        self.assertGreater(names.count("b"), names.count("c"))
        self.assertGreater(names.count("c"), 0)

    def test_errors_are_counted_by_status(self):
        result = json.loads(self.client("a,1,0\nbusy,1,0\n", "--requests", "6", "--json"))
        self.assertEqual((result["answers"], result["errors"]), (3, {"503": 3}))
        text = self.client("busy,1,0\n", status=1)
        self.assertIn('0 busy Error: 503 {"error": "busy"}', text)
        self.assertIn("no request was answered", text)
        self.assertIn("model none is unknown", self.client("none,1,0\n", status=1))
        self.server.shutdown()
        self.server.server_close()
        self.assertIn(self.address, self.client("a,1,0\n", status=1))

    def test_bad_lists(self):
        for text, line, reason in [("a,1\n", 2, "model_name, batch_size, send_interval"),
                                   ("a,1,0\n\nb,0,0\n", 4, "batch size"),
                                   ("a,x,0\n", 2, "batch size"),
                                   ("a,1,-1\n", 2, "interval"),
                                   ("a,1,nan\n", 2, "interval"),
                                   ("a,1,1s\n", 2, "interval"),
                                   ("a,1,1,1\n", 2, "accepted is"),
                                   ("a b,1,1\n", 2, "accepted is"),
                                   ("n" * 200 + ",1,1\n", 2, "accepted is")]:
            said = self.client(text, status=1)
            self.assertIn(f"list.txt:{line}: ", said)
            self.assertIn(reason, said)
        self.assertIn("no request", self.client("", status=1))
        self.assertIn("nowhere.txt", self.run_to_end("starling-serve", "client", "nowhere.txt", self.address, status=1))
        self.assertIn("one|rate|max", self.client("a,1,0\n", "--mode", "two", status=2))
        self.assertIn("usage", self.run_to_end("starling-serve", "client", "list.txt", status=2))
        self.assertEqual(self.server.requests, [])


if __name__ == "__main__":
    harness.main()
