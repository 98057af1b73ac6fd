#!/usr/bin/env python3
"""Makes a wheel of the package mooncake, which needs the wheel of starling (python/wheel.py). It needs no network and no
packages.

    compat/mooncake/python/wheel.py BUILD OUT    BUILD: such as build/release. Writes OUT/starling_mooncake-VERSION-....whl
"""

import glob
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
METADATA = """Metadata-Version: 2.1
Name: starling-mooncake
Version: {version}
Summary: The Python interface of Mooncake's Transfer Engine, on Starling
Requires-Python: >=3.11
Requires-Dist: starling-ps=={version}
"""


def load():
    """The script that makes the wheel of starling."""
    spec = importlib.util.spec_from_file_location("starling_wheel", os.path.join(HERE, "..", "..", "..", "python", "wheel.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build, out = sys.argv[1:]
    wheel = load()
    version = wheel.version_of(build)
    files = {}
    for path in sorted(glob.glob("mooncake/*.py", root_dir=HERE)):
        with open(os.path.join(HERE, path), "rb") as file:
            files[path] = file.read()
    wheel.write(out, f"starling_mooncake-{version}", "py3-none-any", files, METADATA.format(version=version))


if __name__ == "__main__":
    main()
