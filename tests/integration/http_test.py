#!/usr/bin/env python3
"""HTTP for operators: health, readiness, and what bad input gets, from real servers."""

import contextlib
import ctypes
import gzip
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time

import harness

TOKEN = "0123456789abcdef0123456789abcdef"
EC_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")
PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17
WAIT_ALL = 0x40000000  # waitpid: threads too


class Http(harness.StarlingTest):
    def start_server(self, *extra, env=None):
        """A server of one task; returns (process, HOST:PORT)."""
        (process,), _ = self.start_ps(extra=("--reactors", 2, *extra), env=env)
        return process, self.address(process)

    def address(self, process):
        return process.wait_line(" ready: ").rsplit(" ", 1)[1]

    def ask(self, address, path, method="GET", context=None, **headers):
        """Returns the status, the headers and the body of an answer."""
        host, port = address.rsplit(":", 1)
        kind = http.client.HTTPSConnection if context else http.client.HTTPConnection
        more = {"context": context} if context else {}
        connection = kind(host, int(port), timeout=harness.DEADLINE_S, **more)
        with contextlib.closing(connection):
            connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()

    def expect(self, status, text, address, path, **more):
        """Checks the status, and that the error, in JSON, has the text; returns the headers."""
        got, headers, body = self.ask(address, path, **more)
        self.assertEqual(got, status, body)
        self.assertEqual(headers["Content-Type"], "application/json")
        self.assertIn(text, json.loads(body)["error"])
        return headers

    def raw(self, address, request):
        """Sends bytes; returns all that comes until the end, or until the server closes."""
        host, port = address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), harness.DEADLINE_S) as connection:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(request)
            return self.receive(connection)

    def receive(self, connection):
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := connection.recv(65536):
                received += piece
        return received

    def wait_status(self, address, path, status):
        """Until the path has the status; returns the body."""
        end = time.monotonic() + harness.DEADLINE_S
        while True:
            got, _, body = self.ask(address, path)
            if got == status:
                return json.loads(body)
            self.assertLess(time.monotonic(), end, body)
            time.sleep(0.02)


class Requests(Http):
    def test_routes(self):
        process, address = self.start_server()
        for path in ("/healthz", "/readyz"):
            self.wait_status(address, path, 200)
        status, headers, body = self.ask(address, "/api/process")
        self.assertEqual(status, 200)
        self.assertEqual((headers["X-Content-Type-Options"], headers["Content-Security-Policy"]),
                         ("nosniff", "default-src 'self'"))
        shown = json.loads(body)
        self.assertEqual((shown["name"], shown["role"], shown["task"], shown["pid"], shown["http"]),
                         ("ps/0", "ps", 0, process.pid, address))
        self.assertEqual([reactor["index"] for reactor in shown["reactors"]], [0, 1])
        self.drain([process])

    def test_page(self):
        _, address = self.start_server()
        status, headers, body = self.ask(address, "/", Accept_Encoding="br, gzip")
        self.assertEqual((status, headers["Content-Encoding"]), (200, "gzip"))
        self.assertTrue(headers["Content-Type"].startswith("text/html"))
        plain = gzip.decompress(body)
        self.assertIn(b"<html", plain)
        for accepted in ("identity", "gzip;q=0, *"):
            status, headers, body = self.ask(address, "/", Accept_Encoding=accepted)
            self.assertEqual((status, headers["Content-Encoding"], body), (200, None, plain))

    def test_metrics(self):
        _, address = self.start_server()
        status, headers, body = self.ask(address, "/metrics")
        self.assertEqual((status, headers["Content-Type"]), (200, "text/plain; version=0.0.4; charset=utf-8"))
        self.assertIn(b"# TYPE starling_build_info gauge\n", body)
        self.assertEqual(self.ask(address, "/metrics?detail=shard")[0], 200)
        self.expect(400, "shard is accepted", address, "/metrics?detail=table")

    def test_head_has_no_body(self):
        _, address = self.start_server()
        status, headers, body = self.ask(address, "/api/process", method="HEAD")
        self.assertEqual((status, body), (200, b""))
        self.assertGreater(int(headers["Content-Length"]), 0)

    def test_bad_requests(self):
        _, address = self.start_server()
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            headers = self.expect(405, method, address, "/healthz", method=method)
            self.assertEqual(headers["Allow"], "GET, HEAD")
        self.expect(404, "/nowhere", address, "/nowhere")
        self.expect(404, "/healthz/", address, "/healthz/")
        self.expect(400, '"x"', address, "/healthz?x=1")
        self.expect(421, "evil.example", address, "/healthz", Host="evil.example")
        head = b"\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        for size in (3000, 200000):
            self.assertIn(b" 414 ", self.raw(address, b"GET /" + b"a" * size + b" HTTP/1.1" + head))
        for size in (20000, 200000):
            self.assertIn(b" 431 ", self.raw(address, b"GET /healthz HTTP/1.1\r\nX: " + b"a" * size + head))
        for framing in (b"Content-Length: 0\r\nContent-Length: 5", b"Content-Length: 5\r\nTransfer-Encoding: chunked"):
            answer = self.raw(address, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + framing + b"\r\n\r\nhello")
            self.assertIn(b" 400 ", answer)
            self.assertEqual(answer.count(b"HTTP/1.1 "), 1)
        body = b"b" * 300000
        answer = self.raw(address, b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
                          % len(body) + body)
        self.assertIn(b" 405 ", answer)
        self.raw(address, b"\x16\x03\x01\x00\xff" * 100 + b"\r\n\r\n")
        self.wait_status(address, "/healthz", 200)

    def test_own_names(self):
        _, address = self.start_server()
        for host in (address, "localhost", "LOCALHOST:1", "127.0.0.1", socket.gethostname()):
            self.assertEqual(self.ask(address, "/api/process", Host=host)[0], 200, host)

    def test_slow_sender(self):
        _, address = self.start_server()
        host, port = address.rsplit(":", 1)
        begin = time.monotonic()
        with socket.create_connection((host, int(port)), harness.DEADLINE_S) as connection:
            ended = threading.Event()

            def send():
                with contextlib.suppress(OSError):
                    connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ")
                    while not ended.wait(0.2):
                        connection.sendall(b"a")
            sender = threading.Thread(target=send, daemon=True)
            sender.start()
            self.receive(connection)
            ended.set()
            sender.join()
            self.assertGreaterEqual(time.monotonic() - begin, 9)
        self.wait_status(address, "/healthz", 200)

    def test_thousand_connections(self):
        process, address = self.start_server()
        self.wait_status(address, "/healthz", 200)
        host, port = address.rsplit(":", 1)
        begin = self.resident(process)
        head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 15000
        with contextlib.ExitStack() as stack:
            connections = []
            for _ in range(1000):
                connection = stack.enter_context(socket.create_connection((host, int(port)), harness.DEADLINE_S))
                connection.sendall(head)
                connections.append(connection)
            # The connection before these may still count, and another take its place.
            statuses = [self.receive(connection)[:13] for connection in connections[80:]]
            self.assertLess(self.resident(process) - begin, 16 << 20)
            # Each gets an answer, the first one while 64 are open.
            self.assertEqual(statuses[0], b"HTTP/1.1 503 ")
            self.assertLessEqual(statuses.count(b""), 64, "closed without an answer")
            self.assertEqual(set(statuses) - {b""}, {b"HTTP/1.1 503 "})
        self.wait_status(address, "/healthz", 200)

    def resident(self, process):
        with open(f"/proc/{process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


class Settings(Http):
    """What the process says at its start, and which exit status it has."""

    def fail(self, status, *texts, extra=(), env=None):
        port, = harness.free_ports(1)
        output = self.run_to_end("starling-ps", "--ps-hosts", f"127.0.0.1:{port}", "--num-workers", 1, *extra, env=env,
                                 status=status)
        for text in texts:
            self.assertIn(text, output)
        self.assertNotIn(" ready: ", output)

    def test_wrong_addresses(self):
        self.fail(2, "--http=nonsense", "HOST:PORT", "off", extra=("--http", "nonsense"))
        self.fail(2, "STARLING_HTTP=nonsense", "HOST:PORT", env={"STARLING_HTTP": "nonsense"})
        self.fail(1, "--http=192.0.2.1:80", "Cannot assign requested address", "or off",
                  extra=("--http", "192.0.2.1:80", "--insecure"))
        with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
            where = f"127.0.0.1:{taken.getsockname()[1]}"
            self.fail(1, f"--http={where}", "Address already in use", "a free port", "STARLING_HTTP to ps/0 alone",
                      extra=("--http", where))
            self.fail(1, f"STARLING_HTTP={where}", env={"STARLING_HTTP": where})

    def test_beyond_loopback(self):
        self.fail(2, "--http=0.0.0.0:0", "--http-token-file", "--insecure", extra=("--http", "0.0.0.0:0"))
        path = self.file("token", TOKEN)
        os.chmod(path, 0o644)
        self.fail(2, "--http-token-file", "chmod 600", extra=("--http", "0.0.0.0:0", "--http-token-file", path))
        self.fail(2, "--http-token-file", "No such file", extra=("--http-token-file", path + "x"))
        process, address = self.start_server("--http", "0.0.0.0:0", "--insecure")
        self.assertEqual(self.ask("127.0.0.1:" + address.rsplit(":", 1)[1], "/api/process")[0], 200)
        self.drain([process])

    def test_off(self):
        process, address = self.start_server("--http", "off")
        self.assertEqual(address, "off")
        self.drain([process])

    def test_token(self):
        path = self.file("token", TOKEN + "\n")
        os.chmod(path, 0o600)
        _, address = self.start_server(env={"STARLING_HTTP_TOKEN_FILE": path})
        for shown in ({}, {"Authorization": "Bearer " + TOKEN[:-1]}, {"Authorization": "Basic " + TOKEN}):
            headers = self.expect(401, "token", address, "/healthz", **shown)
            self.assertEqual(headers["WWW-Authenticate"], "Bearer")
        self.expect(401, "token", address, "/nowhere")
        self.assertEqual(self.ask(address, "/api/process", Authorization="Bearer " + TOKEN)[0], 200)
        name = {"Host": "ps-0.ns.svc:9480"}
        self.assertEqual(self.ask(address, "/api/process", Authorization="Bearer " + TOKEN, **name)[0], 200)
        self.assertEqual(self.ask(address, "/api/process", Authorization="Bearer " + TOKEN[1:], **name)[0], 421)

    def test_tls(self):
        if shutil.which("openssl") is None:
            self.skipTest("no openssl to make certificates with")
        subprocess.run(["openssl", "req", "-x509", "-nodes", *EC_KEY, "-days", "60", "-keyout", "key", "-out", "cert", "-subj",
                        "/CN=starling", "-addext", "subjectAltName=IP:127.0.0.1"], cwd=self.folder, check=True,
                       capture_output=True, timeout=harness.DEADLINE_S)
        os.chmod(os.path.join(self.folder, "key"), 0o600)
        _, address = self.start_server("--tls-cert", "cert", "--tls-key", "key", "--tls-ca", "cert")
        context = ssl.create_default_context(cafile=os.path.join(self.folder, "cert"))
        self.assertEqual(self.ask(address, "/api/process", context=context)[0], 200)
        self.assertNotIn(b" 200 ", self.raw(address, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"))


class Health(Http):
    def test_missing_member_is_named(self):
        hosts = ",".join(f"127.0.0.1:{port}" for port in harness.free_ports(2))
        port, = harness.free_ports(1)
        flags = ["--ps-hosts", hosts, "--num-workers", 1, "--reactors", 1]
        first = self.start("starling-ps", *flags, "--task-index", 0, "--http", f"127.0.0.1:{port}")
        first.wait_line("waiting for")
        address = f"127.0.0.1:{port}"
        end = time.monotonic() + harness.DEADLINE_S
        while "ps/1" not in self.wait_status(address, "/readyz", 503)["error"]:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        self.wait_status(address, "/healthz", 200)
        second = self.start("starling-ps", *flags, "--task-index", 1)
        self.wait_status(address, "/readyz", 200)
        other = self.address(second)
        self.wait_status(other, "/", 307)
        self.assertEqual(self.ask(other, "/")[1]["Location"], f"http://{address}/")
        first.signal(signal.SIGKILL)
        first.wait()
        while "coordinator" not in self.wait_status(other, "/readyz", 503)["error"]:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)

    def test_scheduler_names_the_missing(self):
        port, = harness.free_ports(1)
        variables = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": str(port), "DMLC_NUM_SERVER": "1",
                     "DMLC_NUM_WORKER": "1", "DMLC_NODE_HOST": "127.0.0.1"}
        scheduler = self.start("starling-ps", env={**variables, "DMLC_ROLE": "scheduler"})
        address = self.address(scheduler)
        end = time.monotonic() + harness.DEADLINE_S
        while "worker/0" not in self.wait_status(address, "/readyz", 503)["error"]:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        self.assertEqual(json.loads(self.ask(address, "/api/process")[2])["role"], "scheduler")
        server = self.start("starling-ps", "--reactors", 1, env={**variables, "DMLC_ROLE": "server"})
        self.start("starling-worker", "--data", self.file("data.libsvm", "1 3:1\n0 2:1\n" * 50), "--epochs", 1000000,
                   "--reactors", 1, env={**variables, "DMLC_ROLE": "worker"})
        self.wait_status(address, "/readyz", 200)
        found = {tuple(target["labels"].values()) for target in self.targets(address, 3)}
        self.assertEqual({role for role, _ in found}, {"scheduler", "ps", "worker"})
        self.wait_status(self.address(server), "/sd", 307)
        self.assertEqual(self.ask(self.address(server), "/api/history?of=job&since=1")[1]["Location"],
                         f"http://{address}/api/history?of=job&since=1")

    def targets(self, address, count):
        """Of Prometheus, until there are so many."""
        end = time.monotonic() + harness.DEADLINE_S
        while len(found := json.loads(self.ask(address, "/sd")[2])) < count:
            self.assertLess(time.monotonic(), end, found)
            time.sleep(0.05)
        return found

    def test_hanging_reactor_is_named(self):
        process, address = self.start_server()
        self.wait_status(address, "/healthz", 200)
        with stopped_thread(self, process.pid, "ps0.1"):
            self.assertIn("ps0.1", self.wait_status(address, "/healthz", 503)["error"])
        self.wait_status(address, "/healthz", 200)
        self.drain([process])


class Worker(Http):
    def test_worker(self):
        data = self.file("data.libsvm", "1 3:1 7:1\n0 2:1 9:1\n" * 50)
        port, = harness.free_ports(1)
        cluster = ["--ps-hosts", f"127.0.0.1:{port}", "--num-workers", 1]
        worker = self.start("starling-worker", *cluster, "--data", data, "--epochs", 1000000, "--reactors", 1)
        address = worker.wait_line(" http 127.0.0.1:").rsplit(" ", 1)[1]
        self.assertIn("waits for the servers", self.wait_status(address, "/readyz", 503)["error"])
        self.wait_status(address, "/healthz", 200)
        self.start("starling-ps", *cluster, "--reactors", 1)
        self.wait_status(address, "/readyz", 200)
        self.wait_status(address, "/healthz", 200)
        shown = json.loads(self.ask(address, "/api/process")[2])
        self.assertEqual((shown["name"], shown["role"], shown["pid"]), ("worker/0", "worker", worker.pid))
        self.assertIn({"name": "epochs", "value": "1000000", "source": "flag"}, shown["options"])
        page = self.ask(address, "/metrics")[2].decode()
        for name in ("starling_build_info", "starling_client_requests_total", "starling_training_batches_total"):
            self.assertEqual(page.count(f"# TYPE {name} "), 1, name)
        self.expect(404, "/api/cluster", address, "/api/cluster")
        worker.signal(signal.SIGTERM)
        self.assertEqual(worker.wait(), 128 + signal.SIGTERM, worker.output)

    def test_port_in_use(self):
        data = self.file("data.libsvm", "1 3:1\n")
        with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
            where = f"127.0.0.1:{taken.getsockname()[1]}"
            output = self.run_to_end("starling-worker", "--ps-hosts", "127.0.0.1:1", "--num-workers", 1, "--data", data,
                                     "--http", where, status=1)
            self.assertIn(f"--http={where}: Address already in use", output)


@contextlib.contextmanager
def stopped_thread(test, pid, name):
    """Stops one thread of a child, which a signal cannot: by ptrace(2)."""
    thread, = [int(path.parent.name) for path in pathlib.Path(f"/proc/{pid}/task").glob("*/comm")
               if path.read_text(encoding="ascii").strip() == name]
    ptrace = harness.LIBC.ptrace
    ptrace.argtypes, ptrace.restype = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p], ctypes.c_long
    if ptrace(PTRACE_SEIZE, thread, None, None) != 0:
        test.skipTest("ptrace is not allowed here")
    test.assertEqual(ptrace(PTRACE_INTERRUPT, thread, None, None), 0)
    os.waitpid(thread, WAIT_ALL)
    try:
        yield
    finally:
        test.assertEqual(ptrace(PTRACE_DETACH, thread, None, None), 0)


if __name__ == "__main__":
    harness.main()
