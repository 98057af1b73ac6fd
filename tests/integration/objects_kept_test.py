#!/usr/bin/env python3
"""What keepers have stored stays: with many versions, and under a catalogue that has restarted or has other
settings."""

import os

import harness
import objects_test


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


if __name__ == "__main__":
    harness.main()
