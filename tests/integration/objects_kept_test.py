#!/usr/bin/env python3
"""What keepers have stored stays: with many versions, and under a catalogue that has restarted or has other
settings."""

import base64
import os
import zlib

import harness
import objects_test

# The directory of a keeper of release 0.1.0, whose number of a version was not stored: old@1, compressed.
OLD = {
    "1.0.record": (
        "eNrjYMAD8nNSGBjRxBhBgnDR31X7jsQlsjHU1vWoLGKEijNq1e1f056jnyb7kOOgT90dVwk0MwyBGADfrhAs"),
    "1.0.data": (
        "eNrtwSEKwlAAANC/arMZDP8EgmASLAaDTAxG08A/EMYGc2FX8CZq9xKCF/ASegSDt5D33i7fLteb1TQLIWTlsUrzctL1XchG4ecx"
        "HvaX6/35ep8/i/1tFgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAACAf9fUKTZlLOrYVIfUxjZVqTilwReoOBeJ"),
}


class Kept(objects_test.ObjectsTest):
    def keeper(self, folder, *flags):
        """A process with that directory; without flags it hosts the catalogue."""
        keeper = self.start("starling-objects", "serve", "--dir", self.path(folder), *flags)
        return keeper, keeper.wait_line("serves").split(" ")[0]

    def store(self, catalogue, name, content):
        self.tool(catalogue, "put", name, self.file("content", content), "--origin", "ps")

    def versions(self, catalogue, name):
        return [entry["version"] for entry in self.entries(catalogue, "ls", name)]

    def stored(self, folder):
        return sum(name.endswith(".data") for _, _, names in os.walk(self.path(folder)) for name in names)

    def test_many_versions(self):
        """A keeper reports thousands of versions; all are listed, and none goes."""
        count = 16000
        keeper, catalogue = self.keeper("seed")
        self.store(catalogue, "n00000", "seed")
        self.end(keeper)
        with open(self.path("seed/n00000/1.0.record"), "rb") as file:
            record = file.read()
        os.mkdir(self.path("many"))
        for i in range(count):
            name = f"n{i:05}"
            os.mkdir(self.path(f"many/{name}"))
            os.link(self.path("seed/n00000/1.0.data"), self.path(f"many/{name}/1.0.data"))
            with open(self.path(f"many/{name}/1.0.record"), "wb") as file:
                file.write(record.replace(b"n00000", name.encode()))
        server, catalogue = self.serve()
        keeper, _ = self.keeper("many", "--catalogue", catalogue)
        self.wait_for(lambda: len(self.tool(catalogue, "ls").splitlines()) >= count)
        self.assertEqual(self.stored("many"), count)
        self.assertNotIn("is lost", keeper.output)
        self.end(keeper, server)

    def test_directory_of_an_older_release(self):
        """Its versions are served, and the next number is above them."""
        os.makedirs(self.path("older/old"))
        for name, text in OLD.items():
            with open(self.path(f"older/old/{name}"), "wb") as file:
                file.write(zlib.decompress(base64.b64decode(text)))
        keeper, catalogue = self.keeper("older")
        self.tool(catalogue, "get", "old@1", self.path("got"))
        with open(self.path("got/f.txt"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "one of an older release\n")
        self.store(catalogue, "old", "new")
        self.assertGreater(self.versions(catalogue, "old")[-1], 1)
        self.assertEqual(self.stored("older"), 2)
        self.end(keeper)

    def test_lower_keep_versions(self):
        """A catalogue that keeps fewer versions removes some at the next commit of a name, and says so."""
        keeper, catalogue = self.keeper("kept", "--keep-versions", "10")
        for i in range(6):
            self.store(catalogue, "m", f"{i}")
        self.end(keeper)
        keeper, catalogue = self.keeper("kept")
        self.wait_for(lambda: len(self.versions(catalogue, "m")) == 6)
        self.store(catalogue, "other", "o")
        self.assertEqual(self.stored("kept"), 7)
        self.store(catalogue, "m", "6")
        keeper.wait_line("4 versions of m are removed")
        self.wait_for(lambda: self.stored("kept") == 4)
        self.assertEqual(len(self.versions(catalogue, "m")), 3)
        self.end(keeper)

    def check_numbers(self, *flags):
        """A keeper is away while the catalogue restarts, and what is published then is newer."""
        address = f"127.0.0.1:{harness.free_ports(1)[0]}"

        def start(folder):
            keeper, _ = self.keeper(folder, "--catalogue", address)
            return keeper

        server, _ = self.serve("--name", address, *flags)
        old = start("old")
        for i in range(4):
            self.tool(address, "put", "m", self.file("content", f"old {i}"), "--origin", "ps")
        before = self.versions(address, "m")
        self.end(old, server)
        server, _ = self.serve("--name", address, *flags)
        new = start("new")
        self.tool(address, "put", "m", self.file("content", "new"), "--origin", "ps")
        after = self.versions(address, "m")[-1]
        self.assertGreater(after, before[-1])
        old = start("old")
        self.wait_for(lambda: self.versions(address, "m") == before + [after])
        self.tool(address, "get", "m", self.path("out"))
        with open(self.path("out/content"), encoding="ascii") as file:
            self.assertEqual(file.read(), "new")
        self.end(old, new, server)

    def test_numbers_of_a_catalogue_in_memory(self):
        self.check_numbers()

    def test_numbers_of_a_catalogue_with_a_directory(self):
        """Numbers go on after a restart, also above a version that was removed."""
        keeper, catalogue = self.keeper("kept")
        for i in range(3):
            self.store(catalogue, "m", f"{i}")
        before = self.versions(catalogue, "m")
        self.assertEqual(before[0], 1)
        self.tool(catalogue, "rm", "m")
        self.end(keeper)
        keeper, catalogue = self.keeper("kept")
        self.store(catalogue, "m", "again")
        after = self.versions(catalogue, "m")
        self.assertGreater(after[0], before[-1])
        self.assertLess(after[0], before[-1] + 10)
        self.end(keeper)

    def test_a_publisher_says_that_its_version_was_removed(self):
        server, catalogue = self.serve()
        publisher = self.put(catalogue, "m", self.file("content", "x" * 1000))
        self.tool(catalogue, "rm", "m")
        publisher.wait_line("m@1 was removed; its 1000 bytes stay in memory of this process")
        self.end(publisher, server)

    def test_an_agent_says_its_name(self):
        server, catalogue = self.serve()
        name = f"kept-{os.getpid()}"
        agent = self.start("starling-objects", "serve", "--agent", "--agent-name", name, "--catalogue", catalogue)
        agent.wait_line(f"serves readers of this host as agent {name} until")
        self.end(agent, server)


if __name__ == "__main__":
    harness.main()
