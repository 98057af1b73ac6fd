#!/usr/bin/env python3
"""`cmake --install` as docs/install.md describes it: a page for each program, the examples, the Python package, and the
page's own build with CMake and with pkg-config. Usage: install_test.py [TEST...]; STARLING_BIN is below the build folder."""

import glob
import os
import re
import subprocess
import sys

import harness

SOURCE = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
BUILD = os.path.dirname(os.path.abspath(harness.BIN))
PROGRAM = """#include <starling.h>
#include <stdio.h>
int main(void) { struct sl_client_options options = SL_CLIENT_OPTIONS_INIT; return printf("%s\\n", sl_version()) < (int)options.reactor_count; }
"""


class Install(harness.StarlingTest):
    def run_command(self, *command, env=None, cwd=None):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, cwd=cwd,
                              env={**os.environ, **(env or {})}, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout.strip()

    def setUp(self):
        super().setUp()
        self.prefix = os.path.join(self.folder, "prefix")
        self.run_command("cmake", "--install", BUILD, "--prefix", self.prefix)

    def found(self, *pattern):
        return sorted(glob.glob(os.path.join(self.prefix, *pattern), recursive=True))

    def test_tree(self):
        pages = {os.path.basename(page)[:-2] for page in self.found("share/man/man1/*.1")}
        programs = {os.path.basename(program) for program in self.found("bin/*")}
        self.assertGreaterEqual(programs, {"starling-ps", "starling-bench", "transfer_engine_bench"})
        self.assertEqual(programs - pages, {"p2p-store-example"})  # Mooncake's name of `starling-objects example`
        self.assertEqual(pages - programs, set())
        examples = self.found("share/doc/starling/examples/*")
        self.assertEqual([os.path.basename(path) for path in examples], sorted([*os.listdir(f"{SOURCE}/examples"), "python"]))
        self.assertTrue(self.found("share/doc/starling/examples/python/dlrm_criteo.py"))

    def test_python(self):
        """The package of a tree that was moved, without a path to the library."""
        moved = os.path.join(self.folder, "moved")
        os.rename(self.prefix, moved)
        packages, = glob.glob(os.path.join(moved, "lib/python3*/*-packages"))
        installed = {os.path.relpath(path, packages) for path in glob.glob(f"{packages}/starling/**/*.py", recursive=True)}
        ours = {os.path.relpath(path, f"{SOURCE}/python") for path in glob.glob(f"{SOURCE}/python/starling/**/*.py", recursive=True)}
        self.assertEqual(installed, ours - {"starling/_programs.py"})
        self.assertTrue(os.path.exists(f"{packages}/starling/py.typed"))
        self.assertEqual(self.run_command("/usr/bin/python3", "-c", "import starling; print(starling.__file__)",
                                          env={"PYTHONPATH": packages}), f"{packages}/starling/__init__.py")

    def test_program_of_the_page(self):
        with open(os.path.join(SOURCE, "docs/install.md"), encoding="utf-8") as file:
            page = file.read()
        self.file("CMakeLists.txt", re.search(r"```cmake\n(.*?)```", page, re.DOTALL)[1])
        self.file("mine.c", PROGRAM)
        commands = [line[4:].replace("/opt/starling", self.prefix) for line in page.splitlines()
                    if re.match("    (cmake|export PKG|cc)", line)]
        self.assertEqual(len(commands), 4)
        libraries = os.path.dirname(self.found("**/libstarling.so.0")[0])
        commands = [command.replace(f"{self.prefix}/lib", libraries) for command in commands]
        self.run_command("sh", "-e", "-c", "\n".join(commands), cwd=self.folder)
        version, = re.findall(r'#define SL_VERSION +"(.*)"', open(f"{SOURCE}/include/starling.h", encoding="utf-8").read())
        for program in ("mine", "build/mine"):
            self.assertEqual(self.run_command(os.path.join(self.folder, program)), version)

    def test_program_of_mooncake(self):
        """By pkg-config, in a tree that was moved; then as one that was linked with a library elsewhere."""
        moved = os.path.join(self.folder, "moved")
        os.rename(self.prefix, moved)
        self.prefix = moved
        folder = os.path.dirname(self.found("**/libtransfer_engine.so")[0])
        environment = {"PKG_CONFIG_PATH": os.path.dirname(self.found("**/starling-mooncake.pc")[0])}
        source = f"{SOURCE}/tests/integration/mooncake_peer.c"
        self.run_command("sh", "-e", "-c", f"cc -o one {source} $(pkg-config --cflags --libs starling-mooncake)\n"
                         f"cc -o two {source} $(pkg-config --cflags starling-mooncake) {folder}/libtransfer_engine.so", cwd=self.folder, env=environment)
        for program, found in (("one", {}), ("two", {"LD_LIBRARY_PATH": folder})):
            done = subprocess.run([os.path.join(self.folder, program), "target", "P2PHANDSHAKE", "127.0.0.1"], env={**os.environ, **found},
                                  input=b"\n", capture_output=True, check=False, timeout=300)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(b"serves 127.0.0.1:", done.stdout)

    def test_headers_of_ps_lite(self):
        self.file("mine.cc", '#include <ps/ps.h>\nint main() { ps::SArray<ps::Key> keys{1, 2}; return keys.size() == 2 ? 0 : 1; }\n')
        libraries = os.path.dirname(self.found("**/libstarling_kv.so.0")[0])
        for fork in ("ps-lite", "ps-lite-byteps"):
            self.run_command("sh", "-e", "-c", f"g++ -std=c++14 -Wall -Wextra -Werror mine.cc $(pkg-config --cflags --libs starling-{fork}) "
                             f"-Wl,-rpath,{libraries} -o mine && ./mine", cwd=self.folder, env={"PKG_CONFIG_PATH": f"{libraries}/pkgconfig"})


if __name__ == "__main__":
    harness.main()
