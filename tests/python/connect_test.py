#!/usr/bin/env python3
"""connect: its arguments, the variables, secrets, TLS and other versions; close with arrays in use."""

import json
import os
import shutil
import socket
import subprocess
import threading
import unittest
from unittest import mock

import support
from support import harness, numpy, starling

import protocol_client as pc  # after support, which adds its folder

PLACE = "127.0.0.1:9"


class Sources(support.ClusterTest):
    """An argument counts before a variable, and these in the order of docs/configuration.md."""

    workers = 3

    def variables(self):
        host, port = self.cluster.coordinator.split(":")
        return ({"STARLING_COORDINATOR": self.cluster.coordinator, "STARLING_TASK_INDEX": "2", "STARLING_NUM_WORKERS": "3"},
                {"TF_CONFIG": json.dumps({"cluster": {"ps": [self.cluster.coordinator, "other:1"], "worker": ["a", "b", "c"]},
                                          "task": {"type": "worker", "index": 2}})},
                {"DMLC_ROLE": "worker", "DMLC_PS_ROOT_URI": host, "DMLC_PS_ROOT_PORT": port, "DMLC_NUM_SERVER": "2",
                 "DMLC_NUM_WORKER": "3", "DMLC_RANK": "2"},
                {"STARLING_COORDINATOR": self.cluster.coordinator, "RANK": "2", "WORLD_SIZE": "3"},
                {"STARLING_COORDINATOR": self.cluster.coordinator, "SLURM_PROCID": "2", "SLURM_NTASKS": "3"})

    def test_each_source(self):
        for variables in self.variables():
            with self.subTest(**variables), mock.patch.dict(os.environ, variables):
                client = starling.connect(timeout=harness.DEADLINE_S)
                self.assertEqual((client.task, client.worker_count), (2, 3))
                client.leave()

    def test_arguments_count_first(self):
        for variables in self.variables():
            with self.subTest(**variables), mock.patch.dict(os.environ, {**variables, "STARLING_START_TIMEOUT": "1s"}):
                client = starling.connect(self.cluster.coordinator, task=1, timeout=harness.DEADLINE_S)
                self.assertEqual((client.task, client.worker_count), (1, 3))
                client.leave()
                client = starling.connect(self.cluster.coordinator, task=-1, workers=3, timeout=harness.DEADLINE_S)
                self.assertEqual(client.task, -1)

    def test_other_options(self):
        with mock.patch.dict(os.environ, STARLING_NUM_SERVERS="3"):
            with self.assertRaises(starling.InvalidError) as raised:
                self.connect()
        self.assertRegex(str(raised.exception), "3 servers.* 2")

    def test_other_number_of_workers(self):
        with self.assertRaises(starling.InvalidError) as raised:
            self.connect(workers=7)
        self.assertRegex(str(raised.exception), r"7 workers.*--num-workers\) 3")


class BadValues(unittest.TestCase):
    def refuses(self, kind, words, *args, variables=(), **options):
        with mock.patch.dict(os.environ, variables), self.assertRaises(kind) as raised:
            starling.connect(*args, **options)
        for word in ("connect: ", *words):
            self.assertIn(word, str(raised.exception))
        self.assertNotIn("--starling", str(raised.exception))

    def test_no_source_of_the_coordinator(self):
        self.refuses(starling.NotFoundError, ["coordinator=HOST:PORT", "STARLING_COORDINATOR", "TF_CONFIG", "starling-launch"])

    def test_variables(self):
        for name, value, accepted in (("RANK", "one", "0 to 16383"), ("WORLD_SIZE", "0", "1 to 16384"),
                                      ("SLURM_PROCID", "-1", "0 to 16383"), ("STARLING_TASK_INDEX", "2.5", "any or none"),
                                      ("STARLING_COORDINATOR", "nowhere", "HOST:PORT"),
                                      ("STARLING_START_TIMEOUT", "soon", "duration")):
            self.refuses(starling.InvalidError, [f"{name}={value}", accepted],
                         variables={"STARLING_COORDINATOR": PLACE, name: value})
        self.refuses(starling.InvalidError, ["TF_CONFIG"], variables={"TF_CONFIG": "{"})

    def test_arguments(self):
        self.refuses(starling.InvalidError, ["coordinator=nowhere: accepts HOST:PORT"], "nowhere")
        self.refuses(starling.InvalidError, ["coordinator=: accepts HOST:PORT"], "")
        self.refuses(starling.InvalidError, ["task=1.5: accepts an index from 0 to 16383"], PLACE, task=1.5)
        self.refuses(starling.InvalidError, ["workers=two: accepts a whole number"], PLACE, workers="two")
        self.refuses(starling.InvalidError, ["no task index", "4", "give task"], PLACE, workers=4)
        self.refuses(starling.InvalidError, ["task=5", "0 to 3"], PLACE, workers=4, task=5)
        self.refuses(starling.NotFoundError, ["/no/such/file"], PLACE, secret_file="/no/such/file")
        self.refuses(starling.InvalidError, ["tls_key is missing", "tls_authority"], PLACE, tls_certificate="/no/such/file")


class Security(harness.StarlingTest):
    def secret(self, name, text):
        path = self.file(name, text)
        os.chmod(path, 0o600)
        return path

    def test_secret(self):
        right, wrong = self.secret("right", "r" * 32), self.secret("wrong", "w" * 32)
        with starling.local_cluster(args=["--secret-file", right]) as cluster:
            with self.assertRaises(starling.RefusedError) as raised:
                cluster.connect()
            self.assertIn("needs a secret: give the same secret_file", str(raised.exception))
            with self.assertRaises(starling.RefusedError) as raised:
                cluster.connect(secret_file=wrong, timeout=5)
            self.assertIn("secret: the one that was used is another", str(raised.exception))
            with cluster.connect(secret_file=right) as client:
                self.assertEqual(client.sparse("t", 2).pull([1]).shape, (1, 2))
            with mock.patch.dict(os.environ, STARLING_SECRET_FILE=right), cluster.connect() as client:
                self.assertEqual(client.shard_count, 1)

    @unittest.skipUnless(shutil.which("openssl"), "no openssl to make a certificate with")
    def test_tls(self):
        certificate, key = self.file("certificate", ""), self.file("key", "")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days",
                        "1", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out",
                        certificate], check=True, capture_output=True)
        os.chmod(key, 0o600)
        flags = ["--tls-cert", certificate, "--tls-key", key, "--tls-ca", certificate]
        with starling.local_cluster(args=flags) as cluster, \
                cluster.connect(tls_certificate=certificate, tls_key=key, tls_authority=certificate) as client:
            self.assertEqual(client.sparse("t", 2).pull([1]).shape, (1, 2))


class OtherVersion(unittest.TestCase):
    def test_server(self):
        def answer():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(pc.frame_bytes(pc.Frame(9, b""), version=77))

        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=answer)
            thread.start()
            with self.assertRaises(starling.VersionError) as raised:
                starling.connect(f"127.0.0.1:{listener.getsockname()[1]}", task=-1, timeout=5)
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
        self.assertIn("version", str(raised.exception))


class Close(support.ClusterTest):
    """A client ends although arrays of its memory are in use."""

    workers = 2

    def setUp(self):
        pass

    def mappings(self):
        with open("/proc/self/maps", encoding="utf-8") as file:
            return file.read().count("starling-buffer")

    def table(self, client):
        return client.sparse("t", 2, starling.Sum(), consistency=starling.BSP)

    def test_no_worker_waits_and_arrays_stay(self):
        closed, other = self.connect(task=0, workers=2), self.connect(task=1, workers=2)
        before = self.mappings()
        array = self.table(closed).pull([1], closed.empty((1, 2)))
        table = self.table(other)
        part = array[0, 1:]
        array[:] = 7
        closed.close()
        other.barrier("all that are left")
        for _ in range(3):
            with other.step() as step:
                step.push(table, [1], numpy.ones((1, 2), numpy.float32))
                step.advance()
                rows = step.pull(table, [1])
        self.assert_rows(rows, [[3, 3]])
        self.assert_rows(array, [[7, 7]])
        self.assertEqual(self.mappings(), before + 1)
        del array
        part += 1
        self.assert_rows(part, [8])
        del part
        self.assertEqual(self.mappings(), before)

    def test_another_process_takes_the_place_of_one_that_left(self):
        client = self.connect(task=0, workers=2)
        array = self.table(client).pull([1], client.empty((1, 2)))
        array[:] = 7
        client.leave()
        self.connect(task=0, workers=2).leave()
        self.assert_rows(array, [[7, 7]])


if __name__ == "__main__":
    harness.main()
