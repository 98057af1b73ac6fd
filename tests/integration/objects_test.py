#!/usr/bin/env python3
"""starling-objects between real processes: what is fetched is what was put; versions, removal, a publisher
that ends; a secret; wrong words."""

import collections
import contextlib
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import time

import harness
import transfer_test


def safetensors(tensors):
    """A file of {name: (type, shape, bytes)}, with metadata."""
    head, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (kind, shape, piece) in tensors.items():
        head[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    text = json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + data


def tree(folder):
    """{path: bytes} of all files below."""
    found = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, folder)] = file.read()
    return found


class ObjectsTest(harness.StarlingTest):
    def serve(self, *flags):
        server = self.start("starling-objects", "serve", *flags)
        return server, server.wait_line("serves the catalogue").split(" ")[0]

    def put(self, catalogue, name, *words):
        """A publisher that has published, and serves."""
        publisher = self.start("starling-objects", "put", name, *words, "--catalogue", catalogue)
        publisher.wait_line("serves them")
        return publisher

    def version_of(self, publisher):
        """The number may leave some out: a catalogue that is asked again chooses another."""
        return int(re.search(r"@(\d+): .* serves them", publisher.output)[1])

    def tool(self, catalogue, *words, status=0):
        return self.run_to_end("starling-objects", *words, "--catalogue", catalogue, status=status)

    def entries(self, catalogue, *words):
        """What the command prints as JSON, among lines of the log."""
        lines = self.tool(catalogue, *words, "--json").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def wait_for(self, condition):
        end = time.monotonic() + harness.DEADLINE_S
        while not condition():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)

    def end(self, *processes, number=signal.SIGTERM):
        for process in processes:
            process.signal(number)
            self.assertEqual(process.wait(), 0, process.output)

    def path(self, name):
        return os.path.join(self.folder, name)

    def fill(self, name, files):
        for path, content in files.items():
            os.makedirs(os.path.dirname(self.path(f"{name}/{path}")), exist_ok=True)
            self.file(f"{name}/{path}", content)
        return self.path(name)


class Files(ObjectsTest):
    def contents(self):
        chance = random.Random(5)
        return {
            "config.json": b"{}",
            "deep/er/weights.bin": chance.randbytes(3_000_001),
            "empty": b"",
            "model-1.safetensors": safetensors({
                "layer.0": ("F32", [1000, 300], chance.randbytes(1_200_000)),
                "layer.1": ("BF16", [7], chance.randbytes(14)),
                "mask": ("BOOL", [3], b"\0\1\1"),
                "scale": ("F64", [], chance.randbytes(8))}),
            "model-2.safetensors": safetensors({"layer.2": ("F8_E4M3", [2, 5], chance.randbytes(10)),
                                                "scales": ("F8_E8M0", [3], chance.randbytes(3)),
                                                "quarters": ("F4", [3, 2], chance.randbytes(3))}),
        }

    def check(self, *flags):
        server, catalogue = self.serve()
        files = self.contents()
        publisher = self.put(catalogue, "team/model@1", self.fill("in", files), *flags)
        self.assertIn("team/model@1", publisher.output)
        self.assertIn("5 files", publisher.output)
        output = self.tool(catalogue, "get", "team/model", self.path("out"))
        self.assertIn("5 files", output)
        self.assertEqual(tree(self.path("out")), files)
        self.tool(catalogue, "get", "team/model@1", self.path("out"))
        self.assertEqual(tree(self.path("out")), files)
        self.end(publisher, number=signal.SIGINT)
        self.end(server)

    def test_served_from_the_memory_of_the_caller(self):
        self.check()

    def test_served_from_the_pool_of_the_node(self):
        self.check("--origin", "host")

    def test_followed_names_are_those_that_were_named(self):
        server, catalogue = self.serve()
        names = ",".join(f"a-name-of-some-length-{number:03}" for number in range(300))
        agent = self.start("starling-objects", "serve", "--agent", "--agent-name", self.folder, "--catalogue",
                           catalogue, "--pool-memory", "16M", "--follow", names)
        agent.wait_line("serves readers")
        publisher = self.put(catalogue, "a-name-of-some-length-299", self.file("f", b"f"))
        self.wait_for(lambda: len(self.entries(catalogue, "stat", "a-name-of-some-length-299", "--followers")) == 2)
        self.end(publisher, agent, server)

    def test_many_small_files(self):
        server, catalogue = self.serve()
        files = {f"{i % 9}/{i}": bytes([i % 251]) * (i % 1000) for i in range(4200)}
        publisher = self.put(catalogue, "m", self.fill("in", files))
        self.tool(catalogue, "get", "m", self.path("out"))
        self.assertTrue(tree(self.path("out")) == files)  # no difference of so many files is printed
        self.end(publisher, server)

    def test_single_files(self):
        server, catalogue = self.serve()
        path = self.file("one.bin", b"1" * 300000)
        empty = self.file("nothing", b"")
        publishers = [self.put(catalogue, "one@1", path), self.put(catalogue, "zero", empty),
                      self.put(catalogue, "both", path, empty)]
        self.assertIn("one@1: 300000 bytes, 1 file;", publishers[0].output)
        for name, files in (("one", {"one.bin": b"1" * 300000}), ("zero", {"nothing": b""}),
                            ("both", {"one.bin": b"1" * 300000, "nothing": b""})):
            self.tool(catalogue, "get", name, self.path(f"out-{name}"))
            self.assertEqual(tree(self.path(f"out-{name}")), files)
        self.end(*publishers, server)

    def is_writing(self, getter):
        """Whether the process has a file of the folder "out" open."""
        with contextlib.suppress(OSError):
            for number in os.listdir(f"/proc/{getter.pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{getter.pid}/fd/{number}").startswith(self.path("out/")):
                        return True
        return False

    def test_an_interrupted_get_leaves_nothing(self):
        server, catalogue = self.serve()
        publisher = self.put(catalogue, "m", self.file("big", bytes(96 << 20)))
        status = 0
        for _ in range(20):  # the get may end before this test sees that it writes
            getter = self.start("starling-objects", "get", "m", self.path("out"), "--catalogue", catalogue)
            while getter.running() and not self.is_writing(getter):
                pass
            if getter.running():
                getter.signal(signal.SIGINT)
            status = getter.wait()
            self.assertLessEqual(set(os.listdir(self.path("out"))), {"big"})
            if status != 0:
                break
        self.assertEqual(status, -signal.SIGINT)
        self.end(publisher, server)

    def test_files_without_a_size(self):
        server, catalogue = self.serve()
        with open("/proc/version", "rb") as file:
            version = file.read()
        publisher = self.put(catalogue, "m", "/proc/version")
        self.tool(catalogue, "get", "m", self.path("out"))
        self.assertEqual(tree(self.path("out")), {"version": version})
        self.end(publisher, server)


class SmallDisk(ObjectsTest):
    """Storage on a disk of 1 MiB: what put acknowledges is there after SIGKILL, and what rm removes stays away."""

    PAGE = 4096
    DATA_PAGES = 65  # of a version: a block with the manifest, and 3,000 bytes

    def setUp(self):
        super().setUp()
        os.mkdir(self.path("disk"))
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", self.path("disk")],
                                 check=False, capture_output=True)
        if mounted.returncode != 0:
            self.skipTest(f"no small disk can be made: {mounted.stderr.decode().strip()}")
        self.addCleanup(subprocess.run, ["umount", self.path("disk")], check=True)
        self.content = random.Random(9).randbytes(3000)

    def leave(self, pages):
        """Fills the disk but for so many pages."""
        free = os.statvfs(self.path("disk")).f_bavail
        with open(self.path("disk/filler"), "wb") as filler:
            filler.write(bytes((free - pages) * self.PAGE))

    def put_once(self, catalogue):
        put = self.start("starling-objects", "put", "m", self.file("model", self.content), "--origin", "ps",
                         "--catalogue", catalogue)
        return put.wait(), put.output

    def check(self, catalogue):
        self.tool(catalogue, "get", "m", self.path("out"))
        self.assertEqual(tree(self.path("out")), {"model": self.content})

    def test_put_tells_the_truth_whatever_the_disk_has_room_for(self):
        seen = collections.Counter()
        for pages in range(self.DATA_PAGES - 1, self.DATA_PAGES + 4):
            folder = f"disk/{pages}"
            server, catalogue = self.serve("--dir", self.path(folder))
            self.leave(pages)
            status, output = self.put_once(catalogue)
            kind = "stored" if status == 0 else "visible" if "is visible, but" in output else "refused"
            seen[kind] += 1
            if kind != "stored":
                self.assertEqual(status, 1)
                self.assertIn("No space left on device", output)
                self.assertIn(self.path(folder), output)
            if kind == "visible":  # it is recorded when there is room
                os.unlink(self.path("disk/filler"))
                server.wait_line("is recorded now")
            server.signal(signal.SIGKILL)
            server.wait()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path("disk/filler"))
            if kind != "refused":
                server, catalogue = self.serve("--dir", self.path(folder))
                self.check(catalogue)
                self.end(server)
            shutil.rmtree(self.path(folder))
        self.assertEqual(set(seen), {"stored", "visible", "refused"})

    def test_a_failed_put_leaves_no_folder(self):
        server, catalogue = self.serve("--dir", self.path("disk/s"))
        self.leave(self.DATA_PAGES - 1)
        self.assertEqual(self.put_once(catalogue)[0], 1)
        self.wait_for(lambda: os.listdir(self.path("disk/s")) == ["numbers"])
        self.end(server)

    def remount(self, option):
        subprocess.run(["mount", "-o", f"remount,{option}", self.path("disk")], check=True)

    def test_a_removal_that_fails_is_repeated(self):
        server, catalogue = self.serve("--dir", self.path("disk/s"))
        self.assertEqual(self.put_once(catalogue)[0], 0)
        self.remount("ro")
        self.addCleanup(self.remount, "rw")
        self.tool(catalogue, "rm", "m")
        server.wait_line("a removed version keeps its files: cannot")
        self.remount("rw")
        server.wait_line(".data is removed now")
        self.assertEqual(os.listdir(self.path("disk/s")), ["numbers"])
        self.end(server)

    def test_a_start_keeps_and_names_what_it_does_not_know(self):
        self.fill("disk/s", {"m/9.0.data": b"data", "n/1.0.record": b"of a later version", "n/notes": b"",
                             "o/2.0.data~": b"unfinished"})
        server, _ = self.serve("--dir", self.path("disk/s"))
        self.assertIn("3 files of 2 names are not of this version of the program, and stay: m 1, n 2", server.output)
        self.assertIn("1 file of 1 name are removed", server.output)
        self.assertEqual(sorted(tree(self.path("disk/s"))), ["m/9.0.data", "n/1.0.record", "n/notes"])
        self.end(server)


class Stored(ObjectsTest):
    """Keepers have what was put after their publisher has ended, and after their own restart."""

    def start_all(self):
        self.files = {"a.bin": random.Random(7).randbytes(1_500_000), "b": b"b"}
        self.server, self.catalogue = self.serve("--replicas", "1")
        return self.keeper("first"), self.keeper("second")

    def keeper(self, folder):
        keeper = self.start("starling-objects", "serve", "--dir", self.path(folder), "--catalogue", self.catalogue)
        keeper.wait_line("serves stored versions")
        return keeper

    def holders(self, name="m"):
        return [one["holders"] for one in self.entries(self.catalogue, "ls", name)][-1:]

    def store(self):
        """Until both keepers are attached, one stores the version alone. Returns its number."""
        words = ("put", "m", self.fill("in", self.files), "--origin", "ps")

        def is_stored():
            self.assertIn("keepers have stored them", self.tool(self.catalogue, *words))
            return self.holders() == [2]
        self.wait_for(is_stored)
        entry = self.entries(self.catalogue, "stat", "m")[-1]
        self.assertEqual(entry["origin"], "ps")
        return entry["version"]

    def check(self, version=""):
        self.tool(self.catalogue, "get", f"m{version}", self.path("out"))
        self.assertEqual(tree(self.path("out")), self.files)

    def kill(self, *processes):
        for process in processes:
            process.signal(signal.SIGKILL)
            process.wait()

    def test_a_keeper_is_killed_and_restarts(self):
        first, second = self.start_all()
        self.store()
        self.check()
        self.kill(second)
        self.check()
        self.wait_for(lambda: self.holders() == [1])
        second = self.keeper("second")
        self.wait_for(lambda: self.holders() == [2])
        self.end(first)
        self.check()
        self.end(second, self.server)

    def test_all_processes_are_killed_and_restart(self):
        processes = self.start_all()
        version = self.store()
        self.kill(*processes, self.server)
        self.server, self.catalogue = self.serve()
        first, second = self.keeper("first"), self.keeper("second")
        self.wait_for(lambda: self.holders() == [2])
        self.check(f"@{version}")
        self.end(first, second, self.server)

    def test_a_damaged_byte_comes_from_the_other_keeper(self):
        first, second = self.start_all()
        path = self.path(f"first/m/{self.store()}.0.data")
        self.end(first)
        with open(path, "rb") as file:
            data = file.read()
        with open(path, "r+b") as file:
            file.seek(700_000)
            file.write(bytes([data[700_000] ^ 1]))
        first = self.keeper("first")
        self.wait_for(lambda: self.holders() == [2])
        self.end(second)  # so that the other one is the first source on this host
        second = self.keeper("second")
        self.wait_for(lambda: self.holders() == [2])

        def is_found():
            self.check()
            return f"does not match its digest from {path}" in first.output

        def is_written_again():
            with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
                return file.read() == data
            return False
        self.wait_for(is_found)  # a get takes nothing from a keeper that stands still
        self.wait_for(is_written_again)
        self.wait_for(lambda: self.holders() == [2])
        self.end(first, second, self.server)

    def test_a_version_that_was_removed_is_gone(self):
        first, second = self.start_all()
        version = self.store()
        self.tool(self.catalogue, "rm", "m")
        for folder in ("first", "second"):
            self.wait_for(lambda: not os.path.exists(self.path(f"{folder}/m/{version}.0.record")))
        self.tool(self.catalogue, "get", "m", self.path("out"), status=1)
        self.end(first, second, self.server)


class Versions(ObjectsTest):
    def test_newest_older_and_removed(self):
        server, catalogue = self.serve()
        watcher = self.start("starling-objects", "watch", "m", "--catalogue", catalogue)
        first = self.put(catalogue, "m@1", self.file("f", b"first"))
        watcher.wait_line("m@1")
        second = self.put(catalogue, "m@2", self.file("f", b"second"))
        watcher.wait_line("m@2")
        other = self.put(catalogue, "other@7", self.file("g", b"g"), "--origin", "host")
        self.tool(catalogue, "get", "m", self.path("out"))
        self.assertEqual(tree(self.path("out")), {"f": b"second"})
        self.tool(catalogue, "get", "m@1", self.path("out"))
        self.assertEqual(tree(self.path("out")), {"f": b"first"})

        self.assertEqual([(one["name"], one["version"]) for one in self.entries(catalogue, "ls")],
                         [("m", 1), ("m", 2), ("other", 7)])
        self.assertEqual([one["origin"] for one in self.entries(catalogue, "ls", "o")], ["host"])
        self.assertEqual(self.entries(catalogue, "stat", "m@2")[0]["bytes"], 6)
        self.assertIn("other@7", self.tool(catalogue, "ls", "ot"))
        self.assertEqual(self.entries(catalogue, "ls", "none"), [])

        self.tool(catalogue, "rm", "m@1")
        output = self.tool(catalogue, "get", "m@1", self.path("out"), status=1)
        self.assertIn("m has no version 1", output)
        self.assertIn("newest 2", output)
        self.tool(catalogue, "rm", "m")
        self.assertIn('no "m"', self.tool(catalogue, "stat", "m", status=1))
        self.end(watcher, first, second, other, server)

    def test_catalogue_starts_again(self):
        name = f"127.0.0.1:{harness.free_ports(1)[0]}"
        server, catalogue = self.serve("--name", name)
        self.assertEqual(catalogue, name)
        publisher = self.put(catalogue, "m", self.file("f", b"first"))
        server.signal(signal.SIGKILL)
        server.wait()
        server, _ = self.serve("--name", name)
        end = time.monotonic() + harness.DEADLINE_S
        while not self.entries(catalogue, "ls") and time.monotonic() < end:
            time.sleep(0.1)
        self.tool(catalogue, "get", "m", self.path("out"))
        self.assertEqual(tree(self.path("out")), {"f": b"first"})
        second = self.put(catalogue, "m", self.file("f", b"second"))
        self.assertGreater(self.version_of(second), self.version_of(publisher))
        self.end(publisher, second, server)

    def test_version_without_a_copy_is_forgotten(self):
        server, catalogue = self.serve()
        publisher = self.put(catalogue, "m", self.file("f", b"bytes"))
        self.end(publisher)
        end = time.monotonic() + harness.DEADLINE_S
        while self.entries(catalogue, "ls") and time.monotonic() < end:
            time.sleep(0.1)
        self.assertEqual(self.entries(catalogue, "ls"), [])
        self.end(server)


class Errors(ObjectsTest):
    def check(self, words, *texts, status=2):
        output = self.run_to_end("starling-objects", *words, status=status)
        for text in texts:
            self.assertIn(text, output)
        return output

    def test_configuration_file(self):
        path = self.file("f.conf", b"[all]\nlease = 1s\nreplicas = 1\n[objects]\nname = 10.0.0.1:7\nagent = true\n")
        output = self.check(["serve", "--config", path, "--host=h", "--show-config"], "[objects]", f"agent = true  ; file {path}:6",
                            "host = h  ; flag", f"name = 10.0.0.1:7  ; file {path}:5", "; replicas = 0  ; default", status=0)
        self.assertNotIn("lease", output)
        path = self.file("g.conf", b"[objects]\nlisten = 10.0.0.1:7\n")
        self.check(["serve", "--config", path], f"{path}:2: unknown key listen in [objects]")

    def test_command_line(self):
        self.check([], "starling-objects put NAME", "starling-objects serve")
        self.check(["copy"], 'unknown command "copy"')
        self.check(["--help"], "starling-objects get NAME", status=0)
        self.check(["put", "--help"], "--origin", "caller|host", "--secret-file", status=0)
        self.check(["--version"], "starling-objects ", status=0)
        self.check(["ls"], "--catalogue is missing")
        self.check(["put", "m", "--catalogue", "127.0.0.1:1"], "an argument is missing", "usage:")
        self.check(["get", "m", "a", "b", "--catalogue", "127.0.0.1:1"], "unexpected argument", '"b"')
        self.check(["ls", "--catalogue", "there"], 'catalogue: "there"', "port", status=1)
        self.check(["ls", "--metadata", "etcd://"], "etcd://host:port")
        self.check(["ls", "--catalog", "127.0.0.1:1"], "--catalogue")
        self.check(["put", "m", "f", "--origin", "me", "--catalogue", "127.0.0.1:1"], "caller|host")
        self.check(["ls", "--timeout", "2d", "--catalogue", "127.0.0.1:1"], "--timeout", "2d")
        for name in ("m@0", "m@x", "m@", "@1", "a b", "n" * 192):
            self.check(["get", name, "out", "--catalogue", "127.0.0.1:1"], f'"{name}"', "accepted")
        self.check(["watch", "m@1", "--catalogue", "127.0.0.1:1"], "without blanks and @")
        names = [f"model{number}" for number in range(1025)]
        for flag in ("--follow", "--keep"):
            self.check(["serve", "--agent", flag, ",".join(names)], f"{flag} has 1025 names", "1024", status=1)
        self.check(["serve", "--agent", "--follow", ",".join(names[:600]), "--keep", ",".join(names[600:])],
                   "has 600 names and --keep 425", "1024", status=1)

    def test_files(self):
        flags = ["--catalogue", "127.0.0.1:1"]
        self.check(["put", "m", self.path("absent"), *flags], self.path("absent"), status=1)
        os.mkdir(self.path("empty"))
        self.check(["put", "m", self.path("empty"), *flags], "has no file", status=1)
        damaged = self.file("x.safetensors", b"not one")
        self.check(["put", "m", damaged, *flags], damaged, status=1)
        pointer = self.file("p.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
        self.check(["put", "m", pointer, *flags], pointer, "run git lfs pull", status=1)
        self.assertNotIn("\x1b", self.check(["put", "m", self.path("a\x1b[2J"), *flags], r"a\x1b[2J", status=1))

    def test_catalogue_that_is_not_there(self):
        address = f"127.0.0.1:{harness.free_ports(1)[0]}"
        self.check(["ls", "--catalogue", address, "--timeout", "1s"], address, status=1)
        self.check(["put", "m", self.file("f", b"f"), "--catalogue", address, "--timeout", "1s"], address,
                   status=1)

    def test_directory_that_is_a_file(self):
        server, catalogue = self.serve()
        publisher = self.put(catalogue, "m", self.file("f", b"f"))
        output = self.tool(catalogue, "get", "m", self.file("g", b"g"), status=1)
        self.assertIn(self.path("g"), output)
        self.assertIn('no "x"', self.tool(catalogue, "get", "x", self.path("out"), status=1))
        self.assertFalse(os.path.exists(self.path("out")))
        self.end(publisher, server)


class Loops(ObjectsTest):
    def test_the_example_needs_no_etcd(self):
        server, catalogue = self.serve()
        flags = ("example", "--catalogue", catalogue, "--file_size_mb", 1)
        trainer = self.start("starling-objects", *flags, "--cmd", "trainer")
        trainer.wait_line("registration done")
        self.run_to_end("starling-objects", *flags, "--cmd", "inferencer", "--hold", 0)
        trainer.signal(signal.SIGTERM)
        trainer.wait()
        self.end(server)

    def test_a_trainer_and_two_actors(self):
        trainer = self.start("objects_loops", "train")
        catalogue = trainer.wait_line("127.0.0.1:").strip()
        actors = [self.start("objects_loops", "act", catalogue) for _ in range(2)]
        for actor in actors:
            self.assertEqual(actor.wait(), 0, actor.output)
            self.assertRegex(actor.output, r"version ([89]|\d\d): weights are ")
        self.end(trainer)

    def test_an_actor_reads_from_an_agent(self):
        name = f"test-{os.getpid()}"
        actor = self.start("objects_loops", "act-by-agent", name)  # waits for the agent
        trainer = self.start("objects_loops", "train")
        catalogue = trainer.wait_line("127.0.0.1:").strip()
        agent = self.start("starling-objects", "serve", "--agent", "--agent-name", name, "--catalogue", catalogue,
                           "--pool-memory", "64M")
        self.assertEqual(actor.wait(), 0, actor.output)
        self.assertRegex(actor.output, r"version ([89]|\d\d): weights are ")
        self.end(agent, trainer)


class Agent(ObjectsTest):
    def agent(self, catalogue, name, *flags):
        agent = self.start("starling-objects", "serve", "--agent", "--agent-name", name, "--catalogue", catalogue,
                           "--pool-memory", "16M", *flags)
        agent.wait_line("serves readers")
        return agent

    def watch(self, catalogue, name):
        return self.start("starling-objects", "watch", "m", "--catalogue", catalogue, "--agent-name", name)

    def kill(self, process):
        process.signal(signal.SIGKILL)
        process.wait()

    def test_killed(self):
        """Readers go on with the next agent; a reader that is killed disturbs nobody."""
        server, catalogue = self.serve()
        name = f"test-{os.getpid()}"
        first = self.put(catalogue, "m@1", self.file("f", b"first"))
        agent = self.agent(catalogue, name, "--keep", "m")
        readers = [self.watch(catalogue, name) for _ in range(2)]
        harness.wait_lines(readers, "m@1")
        self.kill(readers[1])
        self.kill(agent)
        agent = self.agent(catalogue, name, "--follow", "m,n")
        second = self.put(catalogue, "m@2", self.file("f", b"second"))
        readers[0].wait_line("m@2")
        self.end(readers[0], second, first, agent, server)

    def wait_followers(self, catalogue, *expected):
        def is_reported():
            entries = self.entries(catalogue, "stat", "m", "--followers")
            return [(one["in_use"], one["behind"]) for one in entries if "follower" in one] == [*expected]

        self.wait_for(is_reported)

    def test_staleness(self):
        server, catalogue = self.serve()
        name = f"test-{os.getpid()}"
        agent = self.agent(catalogue, name)
        first = self.put(catalogue, "m@1", self.file("f", b"first"))
        watcher = self.start("starling-objects", "watch", "m", "--catalogue", catalogue, "--agent-name", name,
                             "--staleness", "--json")
        watcher.wait_line('"version":1')
        second = self.put(catalogue, "m@3", self.file("f", b"second"))
        watcher.wait_line('"version":3')
        self.wait_followers(catalogue, (3, 0))
        self.end(watcher)
        self.wait_followers(catalogue)
        found = json.loads(watcher.lines[-1])
        self.assertEqual((found["version"], found["newest"], found["opened"], found["skipped"]), (3, 3, 2, 1))
        self.assertEqual(sum(found["visible_us_histogram"]), 2)
        self.assertLessEqual(sum(found["behind_histogram"]), found["measured_us"])
        self.end(first, second, agent, server)

    def test_reader_that_stands(self):
        server, catalogue = self.serve()
        name = f"test-{os.getpid()}"
        agent = self.agent(catalogue, name, "--follow", "m")
        first = self.put(catalogue, "m@1", self.file("f", b"first"))
        self.wait_followers(catalogue, (0, 0))
        watcher = self.start("starling-objects", "watch", "m", "--catalogue", catalogue, "--agent-name", name,
                             "--staleness")
        watcher.wait_line("m@1")
        watcher.signal(signal.SIGSTOP)
        second = self.put(catalogue, "m@4", self.file("f", b"second"))
        self.wait_followers(catalogue, (1, 3))
        watcher.signal(signal.SIGKILL)
        self.wait_followers(catalogue, (0, 0))
        self.end(first, second, agent, server)

    def test_wrong_words(self):
        server, catalogue = self.serve()
        name = f"test-{os.getpid()}"
        agent = self.agent(catalogue, name)
        other = self.tool(catalogue, "serve", "--agent", "--agent-name", name, status=1)
        self.assertIn("another process is this agent", other)
        self.assertIn("no name", self.tool(catalogue, "serve", "--agent", "--follow", "a b", status=1))
        self.assertIn("--agent-name", self.tool(catalogue, "serve", "--agent", "--agent-name", "off", status=1))
        self.end(agent, server)


class Connections(ObjectsTest):
    def check(self, flags, refused):
        """Members with the flags share versions; processes with those of `refused` do not."""
        server, catalogue = self.serve(*flags)
        publisher = self.put(catalogue, "m", self.file("f", b"f"), *flags)
        self.tool(catalogue, "get", "m", self.path("out"), *flags)
        self.assertEqual(tree(self.path("out")), {"f": b"f"})
        for others in refused:
            self.tool(catalogue, "get", "m", self.path("none"), "--timeout", "1s", *others, status=1)
        self.assertFalse(os.path.exists(self.path("none")))
        self.end(publisher, server)

    def test_secret(self):
        secret, other = self.file("secret", "s" * 32), self.file("other", "o" * 32)
        os.chmod(secret, 0o600)
        os.chmod(other, 0o600)
        self.check(["--secret-file", secret], [[], ["--secret-file", other]])

    def test_tls(self):
        authority, certificate, private = transfer_test.certificates(self)
        self.check(["--tls-ca", authority, "--tls-cert", certificate, "--tls-key", private], [[]])

    def test_names_in_a_metadata_store(self):
        self.check(["--metadata", transfer_test.MetadataServer(self).url], [])


if __name__ == "__main__":
    harness.main()
