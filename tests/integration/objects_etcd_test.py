#!/usr/bin/env python3
"""Objects whose catalogue is where a key in etcd says: its host is killed, etcd is killed. Skipped where there is
no etcd."""

import os
import signal
import time

import etcd_test
import harness
import objects_test


class EtcdTest(objects_test.ObjectsTest):
    """Of the tool the option --catalogue is the metadata store."""

    def setUp(self):
        super().setUp()
        self.etcd = etcd_test.Etcd(self)
        self.store = f"{self.etcd.url}/deep"

    def start_objects(self, *words):
        return self.start("starling-objects", *words, "--metadata", self.store)

    def tool(self, *words, status=0):
        return self.run_to_end("starling-objects", *words, "--metadata", self.store, status=status)

    def key(self, name="catalogue"):
        return self.etcd.get(name, "jobs/test/deep/starling/objects/")

    def host(self, other_than=None):
        """The address of the host, as soon as it is another one."""
        end = time.monotonic() + harness.DEADLINE_S
        while time.monotonic() < end:
            address = (self.key() or "").split("\0")[0]  # the number of its last write follows
            if address not in ("", other_than):
                return address
            time.sleep(0.05)
        raise AssertionError("no process hosts the catalogue")

    def serve_and_put(self, name, content):
        """The host, which serves nothing, and a publisher."""
        server = self.start_objects("serve")
        address = server.wait_line("serves").split(" ")[0]
        self.assertEqual(self.host(), address)
        publisher = self.start_objects("put", f"{name}@1", self.file("f", content))
        publisher.wait_line("serves them")
        return server, address, publisher

    def check(self, name, content):
        self.tool("get", name, self.path("out"))
        self.assertEqual(objects_test.tree(self.path("out"))["f"], content)


class Host(EtcdTest):
    def test_killed(self):
        content = os.urandom(700000)
        server, address, publisher = self.serve_and_put("team/m", content)
        self.assertIsNotNone(self.key("names/team/m@1"))
        second = self.start_objects("put", "other@5", self.file("g", b"g"))
        second.wait_line("serves them")
        server.signal(signal.SIGKILL)
        server.wait()
        third = self.start_objects("put", "team/m", self.file("f", content[:-1]))
        third.wait_line("serves them")
        self.assertGreater(self.version_of(third), 1)
        self.assertNotEqual(self.host(other_than=address), address)
        self.check("team/m@1", content)
        self.check("team/m", content[:-1])
        self.assertIn("other@5", self.tool("ls"))
        self.end(publisher, second, third)

    def test_ends(self):
        """Another process hosts it at once, not after the lease."""
        content = b"1" * 1000
        server, address, publisher = self.serve_and_put("m", content)
        self.end(server)
        self.assertNotEqual(self.host(other_than=address), address)
        self.check("m", content)
        self.end(publisher)
        self.assertIsNone(self.key())

    def test_stands_still(self):
        """It learns that another has the key before it answers anybody."""
        server, address, publisher = self.serve_and_put("m", b"1")
        server.signal(signal.SIGSTOP)
        second = self.start_objects("put", "m@2", self.file("f", b"2"))
        second.wait_line("m@2")
        self.assertNotEqual(self.host(other_than=address), address)
        server.signal(signal.SIGCONT)
        third = self.start_objects("put", "m@3", self.file("f", b"3"))
        third.wait_line("m@3")
        for version, content in ((1, b"1"), (2, b"2"), (3, b"3")):
            self.check(f"m@{version}", content)
        self.end(publisher, second, third, server)
        self.assertIn("does not host the catalogue any more", server.output)

    def test_numbers_outlive_all_processes(self):
        server, _, publisher = self.serve_and_put("m", b"1")
        for process in (server, publisher):
            process.signal(signal.SIGKILL)
            process.wait()
        again = self.start_objects("put", "m", self.file("f", b"2"))
        again.wait_line("serves them")
        self.assertGreater(self.version_of(again), 1)
        self.end(again)


class Store(EtcdTest):
    def test_killed(self):
        content = os.urandom(70000)
        server, _, publisher = self.serve_and_put("m", content)
        self.etcd.stop()
        output = self.tool("ls", "--timeout", "3s", status=1)
        self.assertIn("metadata store", output)
        self.assertIn(self.etcd.url.split("/")[2], output)
        self.etcd.start()
        self.check("m", content)
        self.end(publisher, server)

    def test_loses_its_records(self):
        """The elected node writes them again, from the reports of the nodes, and gives no number twice."""
        content = os.urandom(70000)
        server, _, publisher = self.serve_and_put("m", content)
        keeper = self.start_objects("serve", "--dir", self.path("kept"))
        keeper.wait_line("serves")
        for name in ("stored", "gone"):
            self.tool("put", name, self.file("f", content), "--origin", "ps")
        self.tool("rm", "gone@1")
        self.etcd.lose_all()
        end = time.monotonic() + harness.DEADLINE_S
        while not all(self.key(f"names/{name}") for name in ("m@1", "stored@1")):
            self.assertLess(time.monotonic(), end, server.output)
            time.sleep(0.1)
        for name in ("m", "stored@1"):
            self.check(name, content)
        output = self.tool("put", "gone", self.file("f", b"2"), "--origin", "ps")
        self.assertNotIn("gone@1:", output)
        self.check("gone", b"2")
        self.end(publisher, keeper, server)


class Example(EtcdTest):
    """Mooncake's example: its flags, and its lines."""

    def example(self, command, *flags, program="p2p-store-example"):
        words = ["example"] if program == "starling-objects" else []
        return self.start(program, *words, f"--cmd={command}", "--metadata_server", self.store, "--device_name",
                          "mlx5_2", *flags)

    def trainer(self, *flags):
        trainer = self.example("trainer", "--local_server_name=127.0.0.1:0", *flags)
        trainer.wait_line(r"Object registration done: duration (ms) ")
        return trainer

    def test_trainer_and_inferencers(self):
        trainer = self.trainer("--file_size_mb", "16", "--hold=1000")
        inferencers = [self.example("inferencer", "--file_size_mb=16", "--hold", "1", program=program)
                       for program in ("p2p-store-example", "starling-objects")]
        for inferencer in inferencers:
            self.assertEqual(inferencer.wait(), 0, inferencer.output)
            self.assertRegex(inferencer.output,
                             r"Object retrieval done: duration \(ms\) \d+ throughput \(GB/s\) [0-9.]+\nALL DONE")
        self.end(trainer)
        self.assertIn("foo/bar@1: 16777216 bytes, holders: 1", trainer.output)
        self.assertTrue(trainer.output.endswith("ALL DONE"), trainer.output)

    def test_trainer_is_killed_when_another_has_all(self):
        """It hosted the catalogue, too."""
        trainer = self.trainer("--file_size_mb=8")
        first = self.example("inferencer", "--file_size_mb=8", "--hold=1000")
        first.wait_line("Object retrieval done: ")
        trainer.signal(signal.SIGKILL)
        trainer.wait()
        second = self.example("inferencer", "--file_size_mb=8", "--hold=0")
        self.assertEqual(second.wait(), 0, second.output)
        self.assertIn("ALL DONE", second.output)
        self.end(first)

    def test_trainer_is_killed_earlier(self):
        trainer = self.trainer("--file_size_mb=64", "--rate=4M")
        inferencers = [self.example("inferencer", "--file_size_mb=64", "--timeout=20s") for _ in range(2)]
        time.sleep(3)
        trainer.signal(signal.SIGKILL)
        trainer.wait()
        for inferencer in inferencers:
            self.assertEqual(inferencer.wait(), 1, inferencer.output)
            self.assertRegex(inferencer.output, "blocks.* missing|missing.* blocks")

    def test_wrong_flags(self):
        for words, text in ((["--cmd", "other"], "trainer|inferencer"), (["--metadata_server=P2PHANDSHAKE"],
                            "--catalogue"), (["--metadata_server=http://127.0.0.1:1/m"], "--catalogue")):
            self.assertIn(text, self.run_to_end("p2p-store-example", *words, status=2))


if __name__ == "__main__":
    harness.main()
