#!/usr/bin/env python3
"""The types of the package, and of a script that uses it, under mypy --strict."""

import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

from support import harness, starling

import starling.objects
import starling.transfer

SCRIPT = """
import numpy
import starling
import starling.objects
import starling.transfer

client = starling.connect("host:1", task=0, workers=2)
table = client.sparse("t", 8, starling.Adagrad(lr=0.1), starling.Normal(std=0.1), starling.SSP(2))
rows = table.pull(numpy.arange(3))
out = table.pull([1, 2], client.empty((2, 8)), timeout=1.5)
rows += out
with client.step() as step:
    step.push(table, [1], rows)
    step.advance()
    bags = step.pull_bags(table, [1, 2], [0], "mean")
reveal_type(table.dim)
with starling.objects.serve() as node:
    version: int = node.publish("w", {"a": rows})
    for got in node.follow("w", into={"a": rows}):
        version = got.version + got.skipped
    with node.view("w") as view:
        rows += view["a"]
engine = starling.transfer.Engine("127.0.0.1:0", lanes=1)
engine.register(rows)
with engine.open(engine.name) as segment:
    engine.read(rows, segment, segment.buffers()[0].address)
"""
BAD = "import starling\nstarling.SGD(lr='fast')\n"
CONFIG = "[mypy]\n[mypy-torch.*]\nfollow_imports = skip\nignore_missing_imports = True\n"  # torch has 1,200 files


@unittest.skipUnless(importlib.util.find_spec("mypy"), "needs mypy (Debian: mypy)")
class Types(unittest.TestCase):
    def mypy(self, config, *paths):
        with tempfile.TemporaryDirectory() as cache:
            return subprocess.run([sys.executable, "-m", "mypy", "--strict", "--exclude", "torch|adapters", "--config-file", config,
                                   "--cache-dir", cache, *paths],
                                  capture_output=True, text=True, check=False,
                                  env={**os.environ, "MYPYPATH": os.path.dirname(os.path.dirname(starling.__file__))})

    def test_package_and_script(self):
        with tempfile.TemporaryDirectory() as folder:
            script, bad, config = (os.path.join(folder, name) for name in ("script.py", "bad.py", "config"))
            for path, text in ((script, SCRIPT), (bad, BAD), (config, CONFIG)):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            found = self.mypy(config, os.path.dirname(starling.__file__), script, bad).stdout.splitlines()
        errors = [line for line in found if "error:" in line]
        self.assertEqual(len(errors), 1, "\n".join(found))
        self.assertIn('bad.py:2: error: Argument "lr" to "SGD" has incompatible type "str"', errors[0])
        self.assertIn('Revealed type is "builtins.int"', "\n".join(found))


class Docstrings(unittest.TestCase):
    def test_every_public_name_has_one(self):
        missing = []
        public = [(module, name) for module in (starling, starling.objects, starling.transfer) for name in module.__all__]
        for module, name in public:
            each = getattr(module, name)
            if not getattr(each, "__doc__", None):
                missing.append(name)
            members = vars(each).items() if isinstance(each, type) else ()
            missing += [f"{name}.{member}" for member, value in members
                        if not member.startswith("_") and callable(value) and not value.__doc__]
        self.assertEqual(missing, [])


if __name__ == "__main__":
    harness.main()
