"""Installs libstarling and its sister libraries into a temporary prefix and uses them as a stranger would:
the examples are compiled with pkg-config and with CMake, against the shared and against the static
libraries, and each program is run: against a real starling-ps, or as a whole job of its own. The
shared libraries must show the functions of the public headers and nothing else.

Usage: client_package_test.py SOURCE_DIR BUILD_DIR COMPILER"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD, COMPILER = sys.argv[1:4]
os.environ["STARLING_BIN"] = os.path.join(BUILD, "bin")
sys.path.insert(0, os.path.join(SOURCE, "tests/integration"))
import harness  # noqa: E402: needs STARLING_BIN

EXAMPLE = os.path.join(SOURCE, "examples/push_pull.c")
KV_EXAMPLE = os.path.join(SOURCE, "examples/kv_handler.c")
TRANSFER_EXAMPLE = os.path.join(SOURCE, "examples/transfer.c")
OBJECTS_EXAMPLE = os.path.join(SOURCE, "examples/objects.c")
EXPECTED = "7: 1 2\n42: 3 4\n1000: 5 6\n18446744073709551615: 7 8\n"


def run(*command, **options):
    """Returns what the command wrote to stdout."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300,
                          **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: status {done.returncode}\n"
                             f"{done.stdout}{done.stderr}")
    return done.stdout


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.directory = holder.name
        cls.prefix = os.path.join(cls.directory, "prefix")
        run("cmake", "--install", BUILD, "--prefix", cls.prefix, "--component", "libstarling")
        cls.libdir = next(root for root, _, files in os.walk(cls.prefix)
                          if "libstarling.so.0" in files)
        cls.environment = dict(os.environ, LD_LIBRARY_PATH=cls.libdir,
                               PKG_CONFIG_PATH=os.path.join(cls.libdir, "pkgconfig"))

    def compile(self, source, program, package, is_static=False):
        """Compiles an example with what pkg-config says of the package; returns the program's path."""
        path = os.path.join(self.directory, program)
        flags = run("pkg-config", *(["--static"] if is_static else []), "--cflags", "--libs", package,
                    env=self.environment).split()
        library = package.replace("-", "_")
        run(COMPILER, source, "-o", path,
            *(f"-l:lib{library}.a" if is_static and flag == f"-l{library}" else flag for flag in flags))
        return path

    def check(self, program, shared):
        needed = run("readelf", "-d", program)
        self.assertEqual("libstarling.so.0" in needed, shared)
        port, = harness.free_ports(1)
        host = f"127.0.0.1:{port}"
        ps = harness.Process("starling-ps", ["--ps-hosts", host, "--worker-hosts", "127.0.0.1",
                                             "--job-name", "ps", "--task-index", 0],
                             env={"NETWORK_PS_CORE_NUMBER": "2"}, cwd=self.directory)
        self.addCleanup(ps.end)
        self.assertEqual(run(program, host, env=self.environment), EXPECTED)

    def check_kv(self, program, shared):
        needed = run("readelf", "-d", program)
        self.assertEqual("libstarling_kv.so.0" in needed, shared)
        self.assertNotIn("libstarling.so", needed)
        port, = harness.free_ports(1)
        lines = run(program, "--local", str(port), env=harness.environment(self.environment),
                    cwd=self.directory).splitlines()
        self.assertEqual(sorted(line for line in lines if line.startswith("worker ")),
                         [f"worker {rank} of 3, 2 servers: 20 rounds: as expected"
                          for rank in range(3)])

    def check_transfer(self, program, shared, library="libstarling_transfer.so.0", command="read"):
        needed = run("readelf", "-d", program)
        self.assertEqual(library in needed, shared)
        self.assertNotIn("libstarling.so", needed)
        publisher = subprocess.Popen([program, "publish", "a text"], stdout=subprocess.PIPE, text=True,
                                     env=self.environment)
        self.addCleanup(publisher.kill)
        name = publisher.stdout.readline().strip()
        self.assertEqual(run(program, command, name, env=self.environment), "a text\n")
        publisher.send_signal(signal.SIGINT)
        publisher.communicate(timeout=30)
        self.assertEqual(publisher.returncode, 0)

    def check_objects(self, program, shared):
        self.check_transfer(program, shared, library="libstarling_objects.so.0", command="get")

    def by_pkg_config(self, check, source, package):
        for is_static in (False, True):
            program = self.compile(source, "by_pkg_config", package, is_static)
            check(program, shared=not is_static)

    def test_pkg_config(self):
        self.by_pkg_config(self.check, EXAMPLE, "starling")

    def test_pkg_config_kv(self):
        self.by_pkg_config(self.check_kv, KV_EXAMPLE, "starling-kv")

    def test_pkg_config_transfer(self):
        self.by_pkg_config(self.check_transfer, TRANSFER_EXAMPLE, "starling-transfer")

    def test_pkg_config_objects(self):
        self.by_pkg_config(self.check_objects, OBJECTS_EXAMPLE, "starling-objects")

    def test_cmake(self):
        build = os.path.join(self.directory, "examples")
        run("cmake", "-S", os.path.join(SOURCE, "examples"), "-B", build, "-G", "Ninja",
            f"-DCMAKE_C_COMPILER={COMPILER}", f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run("cmake", "--build", build)
        self.check(os.path.join(build, "push_pull"), shared=True)
        self.check(os.path.join(build, "push_pull_static"), shared=False)
        self.check_kv(os.path.join(build, "kv_handler"), shared=True)
        self.check_kv(os.path.join(build, "kv_handler_static"), shared=False)
        self.check_transfer(os.path.join(build, "transfer"), shared=True)
        self.check_transfer(os.path.join(build, "transfer_static"), shared=False)
        self.check_objects(os.path.join(build, "objects"), shared=True)
        self.check_objects(os.path.join(build, "objects_static"), shared=False)

    def check_shown(self, library, headers, others=()):
        public = set(others)
        for header in headers:
            with open(os.path.join(SOURCE, "include", header), encoding="ascii") as file:
                text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.DOTALL)
            public |= set(re.findall(r"SL_API[^;(]*?\b(sl_\w+)\(", text))
        self.assertGreater(len(public), 10 * len(headers))
        symbols = run("nm", "--dynamic", "--defined-only", os.path.join(self.libdir, library))
        self.assertEqual({line.split()[-1] for line in symbols.splitlines()}, public)

    def test_shows_the_public_functions_only(self):
        self.check_shown("libstarling.so.0", ["starling.h", "starling_table.h", "starling_encoding.h", "starling_placement.h", "starling_rows.h", "starling_training.h"])
        self.check_shown("libstarling_kv.so.0", ["starling.h", "starling_table.h", "starling_encoding.h", "starling_placement.h", "starling_rows.h", "starling_training.h", "starling_kv.h"])
        self.check_shown("libstarling_transfer.so.0", ["starling_transfer.h"],
                         {"sl_err_name", "sl_optimizer_defaults", "sl_version"})
        self.check_shown("libstarling_objects.so.0", ["starling_objects.h", "starling_transfer.h"],
                         {"sl_err_name", "sl_optimizer_defaults", "sl_version"})

    def compile_strictly(self, text, language, standard):
        run(COMPILER, "-x", language, f"-std={standard}", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only",
            f"-I{self.prefix}/include", "-", input=text)

    def test_headers_compile_alone(self):
        headers = [name for name in os.listdir(os.path.join(SOURCE, "include")) if name.endswith(".h")]
        # below include/starling are those of other systems
        self.assertEqual({*headers, "starling"}, set(os.listdir(os.path.join(self.prefix, "include"))))
        for header in headers:
            with open(os.path.join(SOURCE, "include", header), encoding="ascii") as file:
                initializers = re.findall(r"#define (SL_\w+_INIT) SL_STRUCT_INIT\((struct \w+)\)", file.read())
            uses = "".join(f"{kind} at_start_{i} = {name}; size_t size_{i}(void);\n"
                           f"size_t size_{i}(void) {{ {kind} own = {name}; own = at_start_{i}; return own.struct_size; }}\n"
                           for i, (name, kind) in enumerate(initializers))
            for language, standard in (("c", "c11"), ("c++", "c++11"), ("c++", "c++17")):
                self.compile_strictly(f"#include <{header}>\n{uses}", language, standard)
            self.assertEqual(bool(uses), header in ("starling.h", "starling_table.h", "starling_encoding.h", "starling_training.h"), header)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
