"""tests/rdma-vm/rdma-vm itself: what a command finds in the machine, how its end and the machine's are
told; and run-list, which runs several commands in one machine."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True

import cache  # noqa: E402

TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rdma-vm")
RUN_LIST = os.path.join(os.path.dirname(TOOL), "guest", "run-list")
SKIPPED = 77


def start(*arguments, **more):
    environment = {**os.environ, **more.pop("env", {})}
    return subprocess.Popen([sys.executable, TOOL, *arguments], env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


def run(*arguments, **more):
    """(status, output, errors) of a run."""
    with start(*arguments, **more) as process:
        output, errors = process.communicate()
        return process.returncode, output, errors


def shell(text, *options, **more):
    return run(*options, "--", "sh", "-c", text, **more)


class RdmaVmTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_what_a_command_finds(self):
        given = os.path.join(self.folder, "given")
        with open(given, "w", encoding="ascii") as file:
            file.write("found\n")
        status, output, errors = shell(
            f"cd {self.folder}; cat given; echo taken >given; echo lost >../lost.rdma_vm; echo $MARK $RDMA_DEV;"
            "cat; echo errors >&2; date +%s; sleep 1000 & exit 3",
            "--rw", self.folder, env={"MARK": "it's \"all\" $here"})
        self.assertEqual(status, 3, errors)
        *lines, seconds = output.split("\n")[:-1]
        self.assertEqual(lines, ["found", "it's \"all\" $here rxe0"])
        self.assertLess(abs(int(seconds) - time.time()), 60)
        self.assertEqual(errors, "errors\n")
        with open(given, encoding="ascii") as file:
            self.assertEqual(file.read(), "taken\n")
        self.assertFalse(os.path.exists(os.path.join(self.folder, "..", "lost.rdma_vm")))

    def test_much_output(self):
        bytes_each = 1_000_000
        status, output, errors = shell(f"yes out | head -c {bytes_each} & yes err | head -c {bytes_each} >&2; wait")
        self.assertEqual((status, len(output), len(errors)), (0, bytes_each, bytes_each))
        self.assertEqual((set(output.split()), set(errors.split())), ({"out"}, {"err"}))

    def test_a_command_that_takes_too_long(self):
        status, _, errors = shell("sleep 1000", "--timeout", "1")
        self.assertEqual(status, 124, errors)
        self.assertIn("still ran after 1 s", errors)

    def test_a_device_that_goes_and_comes_back(self):
        status, output, errors = shell(
            "states() { cat /sys/class/infiniband/*/ports/1/state; }; states;"
            "ip link set $RDMA_NETDEV down; states; ip link set $RDMA_NETDEV up; states;"
            "rdma link delete $RDMA_DEV; ls /sys/class/infiniband;"
            "rdma link add $RDMA_DEV type $RDMA_KIND netdev $RDMA_NETDEV; states")
        self.assertEqual(status, 0, errors)
        self.assertEqual(output.split("\n"), ["4: ACTIVE", "1: DOWN", "4: ACTIVE", "4: ACTIVE", ""])

    def test_two_machines_on_one_wire(self):
        wire = os.path.join(self.folder, "wire")
        numbers = "od -An -N8 -tx1 /dev/urandom"
        serve = f"busybox nc -l -p 7 -e {numbers}; busybox nc -l -p 8"
        options = ["--link", wire, "--timeout", "120"]
        with start(*options, "--ip", "10.9.0.1/24", "--", "sh", "-c", serve) as server:
            status, output, errors = shell(
                f"until busybox nc 10.9.0.1 7; do sleep 0.1; done; {numbers};"
                "busybox ping6 -c 1 fd09::1 >&2 && until busybox nc 10.9.0.1 8; do sleep 0.1; done",
                *options, "--ip", "10.9.0.2/24")
            _, server_errors = server.communicate()
        self.assertEqual((status, server.returncode), (0, 0), errors + server_errors)
        theirs, ours = output.rstrip().split("\n")
        self.assertNotEqual(theirs, ours)  # resumed from one state, they must not draw the same numbers
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_killed_one_leaves_no_machine(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            with start("--", "sleep", "1000") as process:
                machine = self.wait_until(lambda: self.machine_of(process))
                process.send_signal(number)
                process.communicate()
                self.wait_until(lambda: not self.runs(machine))

    def wait_until(self, condition):
        end = time.monotonic() + 60
        while not (found := condition()):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)
        return found

    @staticmethod
    def machine_of(process):
        """The process of the machine that this rdma-vm has started, or None."""
        with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="ascii") as file:
            for child in file.read().split():
                with contextlib.suppress(OSError), open(f"/proc/{child}/comm", encoding="ascii") as name:
                    if name.read().startswith("qemu"):
                        return int(child)
        return None

    @staticmethod
    def runs(pid):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                return file.read().rsplit(")", 1)[1].split()[0] != "Z"
        except (FileNotFoundError, ProcessLookupError):
            return False

    def without_an_archive(self):
        """apt's settings, as a file."""
        settings = os.path.join(self.folder, "apt.conf")
        with open(settings, "w", encoding="ascii") as file:
            file.write('Dir::Etc::sourcelist "/dev/null"; Dir::Etc::sourceparts "/dev/null";')
        return settings

    def test_what_is_missing_is_said(self):
        no_archive = self.without_an_archive()
        status, output, errors = run("--", "true", env={
            "APT_CONFIG": no_archive, "STARLING_RDMA_VM_CACHE": self.folder,
            "STARLING_RDMA_VM_KERNEL": "linux-image-of-nowhere"})
        self.assertEqual((status, output), (SKIPPED, ""))
        self.assertIn("cannot download linux-image-of-nowhere", errors)
        status, _, errors = run("--", "true", env={"PATH": self.folder})
        self.assertEqual(status, SKIPPED)
        self.assertIn("apt-get install --no-install-recommends qemu-system-x86", errors)

    def test_arguments_that_make_no_sense(self):
        for arguments in ([], ["--prepare", "--", "true"], ["--rw", "/nowhere", "--", "true"], ["--what"]):
            status, _, errors = run(*arguments)
            self.assertEqual(status, 2, arguments)
            self.assertIn("usage:", errors)


class RunListTest(unittest.TestCase):
    """The list of commands, which needs no machine."""

    def run_list(self, text, *names):
        with tempfile.NamedTemporaryFile("w", suffix=".list") as file:
            file.write(text)
            file.flush()
            done = subprocess.run([RUN_LIST, file.name, *names], capture_output=True, text=True, check=False)
            return done.returncode, done.stdout

    def test_each_failure_is_named(self):
        status, output = self.run_list("9 good echo fine\n9 bad echo ill; exit 3\n1 slow sleep 99\n9 none exit 77\n")
        self.assertEqual(status, 1)
        *_, summary, good, bad, slow, none = output.rstrip().split("\n")
        self.assertEqual(summary, "== 1 ok, 2 failed, of 4")
        self.assertRegex(good, r"^ok +good \(\d+ ms\)$")
        self.assertEqual(bad, "FAILED   bad: status 3")
        self.assertEqual(slow, "FAILED   slow: still ran after 1 s")
        self.assertEqual(none, "skipped  none")
        self.assertIn("== bad\nill\n", output)

    def test_names_choose(self):
        text = "9 one echo 1\n9 two exit 2\n9 three 'echo' 'a b'\n9 none exit 77\n"
        status, output = self.run_list(text, "three", "one")
        self.assertEqual((status, output.count("ok  ")), (0, 2))
        self.assertIn("a b\n", output)
        self.assertEqual(self.run_list(text, "none")[0], SKIPPED)
        self.assertEqual(self.run_list(text, "unknown")[0], 1)


if __name__ == "__main__":
    prepared = run("--prepare", "--prepare-timeout", "300")
    if prepared[0] == SKIPPED:
        print(prepared[2], end="")
        sys.exit(SKIPPED)
    unittest.main()
