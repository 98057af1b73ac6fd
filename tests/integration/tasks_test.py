#!/usr/bin/env python3
"""The commands of docs/tasks.md, run as they stand there: each does what its output on the page says."""

import os
import re
import signal
import subprocess
import tempfile
import threading
import unittest

import harness

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "tasks.md")
END = "end of the output"


def commands(text):
    """(command, lines of its output) of all blocks."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", text, re.S):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif line.startswith("> "):
                found[-1] = (found[-1][0] + "\n" + line[2:], [])
            else:
                found[-1][1].append(line)
    return found


def pattern(line):
    """A line of the page: any number stands for any other, any space for any, "..." for anything."""
    line = re.escape(line).replace(re.escape("..."), ".*")
    line = re.sub(r"(\\\ )+", r"\\s+", line)
    return re.compile(re.sub(r"\d+", r"\\d+(e-\\d+)?", line))


class Shell:
    """An interactive user's bash, with jobs; what it has started ends with it."""

    def __init__(self, test, folder):
        package = os.path.join(os.path.dirname(harness.program("starling-ps")), "..", "python")
        env = {**harness.environment(), "PYTHONPATH": package,
               "PATH": os.path.dirname(harness.program("starling-ps")) + ":/usr/bin:/bin"}
        self._child = subprocess.Popen([*harness.END_WITH_PARENT, "bash", "--norc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, text=True, cwd=folder, env=env)
        self._timer = threading.Timer(4 * harness.DEADLINE_S, self._child.kill)
        self._timer.start()
        test.addCleanup(self.close)
        self.run("set -m")

    def run(self, command):
        """Returns its output and its status, which stays in $?."""
        self._child.stdin.write(f"{command}\nstatus=$?; echo; echo {END}: $status; (exit $status)\n")
        self._child.stdin.flush()
        lines = []
        for line in self._child.stdout:
            if line.startswith(END):
                return lines[:-1] if lines[-1:] == [""] else lines, int(line.split()[-1])
            lines.append(line.rstrip("\n"))
        raise AssertionError("\n".join(["bash ended, or took too long:", command, *lines]))

    def close(self):
        self._timer.cancel()
        with self._child.stdin:
            self._child.stdin.write("kill -KILL $(jobs -p) 2>&-\n")
        self._child.stdout.read()
        self._child.wait()
        self._child.stdout.close()


class Tasks(unittest.TestCase):
    def test_page(self):
        with open(PAGE, encoding="utf-8") as file:
            found = commands(file.read())
        self.assertGreater(len(found), 10)
        with tempfile.TemporaryDirectory() as folder:
            shell = Shell(self, folder)
            following = [command for command, _ in found[1:]] + [""]
            for (command, expected), after in zip(found, following):
                with self.subTest(command=command):
                    lines, status = shell.run(command)
                    self.assert_shown(expected, lines)
                    self.assertTrue(status == 0 or after == "echo $?", (status, lines))
            self.doCleanups()

    def assert_shown(self, expected, lines):
        """The lines in this order; without "..." no others."""
        rest, may_skip = list(lines), False
        for line in expected:
            if line == "...":
                may_skip = True
                continue
            while may_skip and rest and not pattern(line).fullmatch(rest[0]):
                rest.pop(0)
            self.assertTrue(rest and pattern(line).fullmatch(rest[0]), (line, lines))
            rest.pop(0)
            may_skip = False
        self.assertTrue(may_skip or not rest, lines)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    harness.main()
