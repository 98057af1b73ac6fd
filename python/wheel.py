#!/usr/bin/env python3
"""Makes a wheel of the package in a build folder, with the library and the programs inside. It needs no network
and no packages.

    python/wheel.py BUILD OUT    BUILD: such as build/release. Writes OUT/starling_ps-VERSION-....whl
"""

import base64
import glob
import hashlib
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

PROGRAMS = ("starling-ps", "starling-launch", "starling-ckpt", "starling-objects")
EPOCH = (1980, 1, 1, 0, 0, 0)  # the same files give the same wheel

METADATA = """Metadata-Version: 2.1
Name: starling-ps
Version: {version}
Summary: A parameter server for recommendation models
Requires-Python: >=3.11
Requires-Dist: numpy
"""
WHEEL = """Wheel-Version: 1.0
Generator: python/wheel.py
Root-Is-Purelib: {pure}
Tag: {tag}
"""


def stripped(path):
    """The content of a program or library, without debug information."""
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(["strip", "--strip-debug", "-o", out.name, path], check=True)
        return out.read()


def content(build):
    """{path in the wheel: bytes} of the package."""
    found = {}
    package = os.path.join(build, "python", "starling")
    for path in [name for each in ("*.py*", "py.typed", "adapters/*.py", "torch/*.py") for name in glob.glob(each, root_dir=package)]:
        with open(os.path.join(package, path), "rb") as file:
            found[f"starling/{path}"] = file.read()
    found["starling/_native.abi3.so"] = stripped(os.path.join(package, "_native.abi3.so"))
    found["starling/libstarling.so.0"] = stripped(os.path.join(build, "worker", "client", "libstarling.so.0"))
    found["starling/libstarling_objects.so.0"] = stripped(os.path.join(build, "objects", "libstarling_objects.so.0"))
    for name in PROGRAMS:
        found[f"starling/bin/{name}"] = stripped(os.path.join(build, "bin", name))
    return found


def version_of(build):
    with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as file:
        return re.search(r"^CMAKE_PROJECT_VERSION:\w+=(\S+)$", file.read(), re.M).group(1)


def record(files, name):
    """The list of files with their hashes, as a wheel has it."""
    lines = []
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(data)}\n")
    return "".join([*lines, f"{name},,\n"]).encode()


def write(out, name, tag, files, metadata, entry_points=""):
    """Writes out/NAME-TAG.whl with {path: bytes}; name: with the version."""
    info = f"{name}.dist-info"
    files = {**files, f"{info}/METADATA": metadata.encode(), f"{info}/WHEEL": WHEEL.format(tag=tag, pure=str("any" in tag).lower()).encode()}
    if entry_points:
        files[f"{info}/entry_points.txt"] = entry_points.encode()
    files[f"{info}/RECORD"] = record(files, f"{info}/RECORD")
    os.makedirs(out, exist_ok=True)
    path = os.path.join(out, f"{name}-{tag}.whl")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for each, data in files.items():
            entry = zipfile.ZipInfo(each, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if "/bin/" in each else 0o100644) << 16
            wheel.writestr(entry, data)
    print(path)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build, out = sys.argv[1:]
    version = version_of(build)
    tag = "cp311-abi3-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")
    scripts = [f"{name} = starling._programs:{name.replace('-', '_')}\n" for name in PROGRAMS]
    write(out, f"starling_ps-{version}", tag, content(build), METADATA.format(version=version), "".join(["[console_scripts]\n", *scripts]))


if __name__ == "__main__":
    main()
