#!/usr/bin/env python3
"""starling-bench transfer between real processes: what is read is what was written; peers that end or stop
while bytes move; names in a metadata store; wrong flags."""

import http.server
import json
import os
import shutil
import signal
import ssl
import subprocess
import threading
import time
import urllib.parse

import etcd_test
import harness
import protocol_client

SIZES = ["--buffer_size=33554432", "--block_size=65536", "--batch_size=32"]


class TransferTest(harness.StarlingTest):
    def start_target(self, *flags, env=None):
        target = self.start("starling-bench", "transfer", "--mode=target", "--protocol=tcp",
                            *SIZES, *flags, env=env)
        return target, target.wait_line("serves").split(" ")[0]

    def initiate(self, name, *flags, status=0, env=None):
        return self.run_to_end("starling-bench", "transfer", "--protocol=tcp", f"--segment_id={name}",
                               *SIZES, *flags, status=status, env=env)

    def end(self, target):
        target.signal(signal.SIGINT)
        self.assertEqual(target.wait(), 0, target.output)

    def begin(self, name, *flags):
        """An initiator that moves bytes for long, from when they move."""
        initiator = self.start("starling-bench", "transfer", "--protocol=tcp", f"--segment_id={name}",
                               *SIZES, "--threads=2", "--duration=60", *flags)
        initiator.wait_line("is open")
        return initiator


class Moves(TransferTest):
    def test_what_is_read_is_what_was_written(self):
        target, name = self.start_target()
        for threads in ("1", "3"):
            output = self.initiate(name, "--verify", "--duration=0.3", f"--threads={threads}")
            self.assertRegex(output, r"Verified: [1-9]\d* bytes, 0 wrong")
        self.end(target)

    def test_output_of_mooncake(self):
        target, name = self.start_target()
        for operation in ("read", "write"):
            output = self.initiate(name, f"--operation={operation}", "--duration=0.2", "--threads=2",
                                   "--report_unit=MiB", "--report_precision=1")
            self.assertIn("Worker 0 stopped!", output)
            self.assertIn("Worker 1 stopped!", output)
            self.assertRegex(output, r"Test completed: duration \d+\.\d\d, batch count [1-9]\d*, "
                                     r"throughput \d+\.\d MiB/s")
        self.end(target)

    def test_flags_as_mooncake_accepts_them(self):
        target = self.start("transfer_engine_bench", "-mode=target", "--protocol", "tcp", "--device_name=mlx5_2",
                            "-buffer-size=33554432", env={"MC_GID_INDEX": "3"})
        name = target.wait_line("serves").split(" ")[0]
        self.assertNotIn("ignored", target.output)
        output = self.run_to_end("transfer_engine_bench", "--segment-id", name, "-protocol=tcp", "--auto_discovery", "--use_vram=false",
                                 "-threads", "1", *SIZES, "--duration", "0.1", "-report_unit=GiB")
        self.assertIn(" GiB/s", output)
        self.end(target)

    def test_variables_of_mooncake(self):
        target, name = self.start_target(env={"MC_SLICE_SIZE": "65536", "MC_NO_SUCH": "1"})
        self.assertIn("MC_NO_SUCH is ignored", target.output)
        self.initiate(name, "--duration=0.1", "--threads=1", env={"MC_SLICE_SIZE": "4096"})
        for variable in ("MC_SLICE_SIZE", "MC_GID_INDEX"):
            output = self.initiate(name, env={variable: "much"}, status=2)
            self.assertIn(f"{variable}=much", output)
        self.end(target)


class SharedMemory(TransferTest):
    FLAGS = ["--protocol=shm", "--memory=shared", *SIZES]

    def mapped(self, process):
        """The inodes of the shared memory, as large as the buffers, that the process has mapped."""
        with open(f"/proc/{process.pid}/maps", encoding="utf-8") as file:
            rows = [line.split() for line in file if "/memfd:" in line]
        ranges = [([int(at, 16) for at in row[0].split("-")], row[4]) for row in rows]
        return {inode for (start, end), inode in ranges if end - start >= 33554432}

    def test_what_is_read_is_what_was_written(self):
        target = self.start("starling-bench", "transfer", "--mode=target", *self.FLAGS)
        name = target.wait_line("serves").split(" ")[0]
        moves = ["starling-bench", "transfer", f"--segment_id={name}"]
        for threads in ("1", "3"):
            output = self.run_to_end(*moves, *self.FLAGS, "--verify", "--duration=0.3", f"--threads={threads}")
            self.assertRegex(output, r"Verified: [1-9]\d* bytes, 0 wrong")
        initiator = self.start(*moves, *self.FLAGS, "--threads=1", "--duration=5")
        end = time.monotonic() + harness.DEADLINE_S
        while not self.mapped(initiator) & self.mapped(target):
            self.assertLess(time.monotonic(), end, initiator.output)
            time.sleep(0.01)
        target.signal(signal.SIGSTOP)  # from then on it takes no part
        self.assertEqual(initiator.wait(), 0, initiator.output)
        target.signal(signal.SIGCONT)
        self.initiate(name, "--verify", "--duration=0.1", "--threads=1")  # --protocol=tcp
        self.end(target)


class Peers(TransferTest):
    def test_a_killed_target_ends_the_initiator(self):
        target, name = self.start_target()
        initiator = self.begin(name, "--timeout=20s")
        target.signal(signal.SIGKILL)
        self.assertEqual(initiator.wait(), 1, initiator.output)
        self.assertIn(name, initiator.output)

    def test_a_target_that_shuts_down_ends_the_initiator(self):
        target, name = self.start_target()
        initiator = self.begin(name, "--timeout=20s")
        self.end(target)
        self.assertEqual(initiator.wait(), 1, initiator.output)
        self.assertRegex(initiator.output, f"{name}.*has shut down")

    def test_a_stopped_target_ends_the_initiator_by_the_deadline(self):
        target, name = self.start_target()
        initiator = self.begin(name, "--timeout=1s")
        target.signal(signal.SIGSTOP)
        self.assertEqual(initiator.wait(), 1, initiator.output)
        self.assertIn(name, initiator.output)
        target.signal(signal.SIGCONT)
        self.initiate(name, "--duration=0.1", "--threads=1", "--verify")  # it serves others again
        self.end(target)

    def test_a_killed_initiator_leaves_the_target_serving(self):
        target, name = self.start_target()
        initiator = self.begin(name, "--operation=write")
        initiator.signal(signal.SIGKILL)
        initiator.wait()
        self.initiate(name, "--duration=0.1", "--threads=1", "--verify")
        self.end(target)

    def test_nobody_there(self):
        port = harness.free_ports(1)[0]
        output = self.initiate(f"127.0.0.1:{port}", "--duration=0.1", status=1)
        self.assertIn(str(port), output)


class MetadataServer:
    """As Mooncake's: GET, PUT and DELETE of ?key=KEY."""

    def __init__(self, test, context=None):
        """context: for https."""
        values = self._values = {}

        class Handler(http.server.BaseHTTPRequestHandler):
            def key(self):
                return urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)["key"][0]

            def answer(self, value):
                self.send_response(200 if value is not None else 404)
                self.end_headers()
                self.wfile.write((value or "").encode())

            def do_GET(self):
                self.answer(values.get(self.key()))

            def do_PUT(self):
                values[self.key()] = self.rfile.read(int(self.headers["Content-Length"])).decode()
                self.answer("")

            def do_DELETE(self):
                self.answer(values.pop(self.key(), None))

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        test.addCleanup(server.server_close)
        test.addCleanup(thread.join)
        test.addCleanup(server.shutdown)
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{server.server_port}/metadata"

    def get(self, key):
        return self._values.get(key)

    def put(self, key, value):
        self._values[key] = value

    def lose_all(self):
        self._values.clear()


class EtcdServer:
    def __init__(self, test):
        self._etcd = etcd_test.Etcd(test)
        self.url = f"etcd://127.0.0.1:{self._etcd.clients[0]}"

    def get(self, key):
        return self._etcd.get(key, "")

    def put(self, key, value):
        self._etcd.put(key, value)

    def lose_all(self):
        self._etcd.lose_all()


class StoreTest(TransferTest):
    def open_store(self, server):
        self.store = server(self)
        self.flag = f"--metadata_server={self.store.url}"
        self.name = f"127.0.0.1:{harness.free_ports(1)[0]}"

    def start_named(self):
        return self.start_target(self.flag, f"--local_server_name={self.name}")[0]

    def record(self):
        text = self.store.get(f"starling/ram/{self.name}")
        return json.loads(text) if text is not None else None

    def move(self):
        self.assertIn(" 0 wrong", self.initiate(self.name, self.flag, "--verify", "--duration=0.1", "--threads=1"))

    def check_life(self):
        """From the start of a target to its end."""
        target = self.start_named()
        record = self.record()
        self.assertEqual(record["name"], self.name)
        self.assertEqual(f"{record['ip_or_host_name']}:{record['rpc_port']}", self.name)
        self.assertEqual(record["protocol"], "starling")
        self.assertIn("tcp://127.0.0.1:", str(record["endpoints"]))
        self.move()
        self.end(target)
        self.assertIsNone(self.record())
        self.assertIn(self.name, self.initiate(self.name, self.flag, status=1))

    def check_written_again(self):
        """The store loses its records: a live target writes its record again."""
        target = self.start_named()
        record = self.record()
        self.store.lose_all()
        target.wait_line(f"the metadata store has the record of {self.name} again")
        self.assertEqual(self.record(), record)
        self.move()
        self.end(target)

    def check_stale(self):
        """The record of a target that was killed: the initiator does not wait until its deadline."""
        output = self.initiate(self.name, self.flag, status=1)
        self.assertRegex(output, rf" refused: {self.name}.*127\.0\.0\.1 port \d+, written \d+ s ago")

    def kill(self, target):
        target.signal(signal.SIGKILL)
        target.wait()


class HttpStore(StoreTest):
    def setUp(self):
        super().setUp()
        self.open_store(MetadataServer)

    def test_from_start_to_end(self):
        self.check_life()

    def test_it_loses_its_records(self):
        self.check_written_again()

    def test_a_killed_target_is_started_again_at_once(self):
        self.kill(self.start_named())
        killed = self.record()
        self.check_stale()
        target = self.start_named()
        self.assertNotEqual(self.record()["incarnation"], killed["incarnation"])
        self.move()
        self.store.put(f"starling/ram/{self.name}", json.dumps(killed))  # as if it had not been written
        self.assertIn("another incarnation", self.initiate(self.name, self.flag, status=1))
        self.end(target)


def certificates(test):
    """Paths of an authority, a certificate for 127.0.0.1, and its key; skips the test without openssl."""
    def openssl(*args):
        subprocess.run(["openssl", *args], cwd=test.folder, check=True, capture_output=True,
                       timeout=harness.DEADLINE_S)

    if shutil.which("openssl") is None:
        test.skipTest("no openssl to make certificates with")
    test.file("names", "subjectAltName=IP:127.0.0.1\n")
    key = ["-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca", "-subj", "/CN=ca")
    openssl("req", "-new", *key, "-keyout", "key", "-out", "request", "-subj", "/CN=node")
    openssl("x509", "-req", "-in", "request", "-CA", "ca", "-CAkey", "ca.key", "-CAcreateserial",
            "-extfile", "names", "-out", "certificate")
    return (os.path.join(test.folder, name) for name in ("ca", "certificate", "key"))


class HttpsStore(StoreTest):
    def test_with_the_certificates_of_the_engine(self):
        authority, certificate, private = certificates(self)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority)
        context.load_cert_chain(certificate, private)
        context.verify_mode = ssl.CERT_REQUIRED
        self.open_store(lambda test: MetadataServer(test, context))
        flags = [f"--tls-ca={authority}", f"--tls-cert={certificate}", f"--tls-key={private}"]
        target = self.start_target(self.flag, f"--local_server_name={self.name}", *flags)[0]
        self.assertEqual(self.record()["name"], self.name)
        self.initiate(self.name, self.flag, *flags, "--verify", "--duration=0.1", "--threads=1")
        self.assertIn("certificate", self.initiate(self.name, self.flag, status=1))
        self.end(target)


class EtcdStore(StoreTest):
    def setUp(self):
        super().setUp()
        self.open_store(EtcdServer)

    def test_from_start_to_end(self):
        self.check_life()

    def test_it_loses_its_records(self):
        self.check_written_again()

    def test_a_killed_target_is_started_again_at_once(self):
        self.kill(self.start_named())
        self.check_stale()
        target = self.start_named()
        self.move()
        self.end(target)

    def test_a_cluster_has_keys_of_its_own(self):
        cluster = {"MC_METADATA_CLUSTER_ID": "blue"}
        target = self.start_target(self.flag, f"--local_server_name={self.name}", env=cluster)[0]
        self.assertIsNone(self.record())
        self.assertIn(self.name, self.store.get(f"blue/starling/ram/{self.name}"))
        moves = [self.name, self.flag, "--duration=0.1", "--threads=1"]
        self.initiate(*moves, env=cluster)
        self.assertIn("no record", self.initiate(*moves, status=1))
        self.end(target)

    def test_a_name_that_is_alive_elsewhere(self):
        other = {"name": self.name, "protocol": "starling", "ip_or_host_name": "10.9.8.7", "rpc_port": 1,
                 "incarnation": "7", "timestamp": "2026-01-01T00:00:00Z"}
        self.store.put(f"starling/ram/{self.name}", json.dumps(other))
        output = self.run_to_end("starling-bench", "transfer", "--mode=target", "--protocol=tcp", *SIZES,
                                 self.flag, f"--local_server_name={self.name}", status=1)
        self.assertIn("10.9.8.7", output)
        self.assertEqual(self.record(), other)


class Matrix(TransferTest):
    def ask(self, name):
        client = protocol_client.Connection(name, protocol_client.PURPOSE_TRANSFER)
        self.addCleanup(client.close)
        segment = client.ask("segment_get", "segment")
        self.assertEqual(segment["incarnation"], client.welcome["incarnation"])
        return json.loads(segment["matrix"])

    def test_peers_receive_it(self):
        path = self.file("matrix", '{"cpu:0": [[],\n []], "cpu:7": [[], []]}')
        target, name = self.start_target(f"--nic_priority_matrix={path}")
        self.assertEqual(self.ask(name), {"cpu:0": [[], []], "cpu:7": [[], []]})
        self.end(target)
        target, name = self.start_target()
        self.assertIn("cpu:0", self.ask(name))
        self.end(target)

    def test_what_the_doctor_prints(self):
        text = self.run_to_end("starling-ps", "doctor", status=None).split("nic_priority_matrix", 1)[1].split("\n", 1)[1]
        target, name = self.start_target(f"--nic_priority_matrix={self.file('matrix', text)}")
        self.assertEqual(self.ask(name), json.loads(text))
        self.end(target)

    def test_devices_that_do_not_exist(self):
        path = self.file("matrix", '{"cpu:0": [["mlx5_77"], []]}')
        output = self.run_to_end("starling-bench", "transfer", "--mode=target", *SIZES,
                                 f"--nic_priority_matrix={path}", status=1)
        self.assertIn("mlx5_77", output)
        self.assertIn("this host has", output)


class Secrets(TransferTest):
    def secret(self, name, text):
        path = self.file(name, text)
        os.chmod(path, 0o600)
        return f"--secret-file={path}"

    def test_only_who_has_the_secret(self):
        right = self.secret("right", "a secret of the cluster")
        wrong = self.secret("wrong", "another one of the like")
        target, name = self.start_target(right)
        self.initiate(name, right, "--duration=0.1", "--threads=1", "--verify")
        self.assertIn("refused", self.initiate(name, wrong, status=1))
        self.assertIn("secret", self.initiate(name, status=1))
        self.initiate(name, "--duration=0.1", "--threads=1",
                      env={"STARLING_SECRET_FILE": right.partition("=")[2]})
        self.end(target)

    def test_compare_gives_its_secret_to_its_target(self):
        output = self.run_to_end("starling-bench", "transfer", "--compare", "--rounds=1", "--duration=0.01",
                                 self.secret("secret", "a secret of the cluster"))
        self.assertIn("READ, 1 MB", output)

    def test_beyond_loopback(self):
        output = self.run_to_end("starling-bench", "transfer", "--mode=target", "--protocol=tcp",
                                 "--local_server_name=10.255.255.254:0", *SIZES, status=1)
        self.assertIn("--secret-file", output)
        self.assertIn("--insecure", output)


class Flags(TransferTest):
    def test_wrong_flags(self):
        for flags, words in ((["--mode=initiator"], ["--segment_id"]),
                             (["--protocol=nvlink", "--segment_id=x"], ["protocol", "tcp"]),
                             (["--segment_id=x", "--report_unit=Gbit"], ["report_unit", "GiB"]),
                             (["--segment_id=x", "--timeout=0s"], ["timeout"]),
                             (["--segment_id=x", "--buffer_size=4096"], ["buffer_size"]),
                             (["--segment_id=x", "--nic_priority_matrix=/none"], ["/none"]),
                             (["--mode=target", "--use_vram=true"], ["use_vram", "false"]),
                             (["--no_such_flag"], ["no-such-flag"])):
            output = self.run_to_end("starling-bench", "transfer", *flags, status=2)
            for word in words:
                self.assertIn(word, output, flags)

    def test_stores_that_are_none(self):
        output = self.run_to_end("starling-bench", "transfer", "--mode=target", *SIZES,
                                 "--metadata_server=redis://127.0.0.1:6379", status=1)
        self.assertIn("redis", output)
        self.assertIn("P2PHANDSHAKE", output)


if __name__ == "__main__":
    harness.main()
