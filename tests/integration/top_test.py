#!/usr/bin/python3
"""starling-top: its screen in a pseudo-terminal, its output to a pipe, and what it says of bad input."""

import contextlib
import fcntl
import http.server
import json
import os
import pty
import select
import struct
import subprocess
import tempfile
import termios
import threading
import time
import unittest

import harness
from harness import environment, free_ports, main, program
from observed_job import LEASE_S, TITLE, ObservedTest

try:
    import pyte
except ImportError:
    pyte = None


def run(*args, **variables):
    return subprocess.run([program("starling-top"), *args], env=environment(variables), capture_output=True, text=True,
                          check=False, timeout=harness.DEADLINE_S)


class Refused(unittest.TestCase):
    def test_nobody_listens(self):
        url = f"http://127.0.0.1:{free_ports(1)[0]}"
        for more in ([], ["--json"], ["--once"]):
            for words in ([url, *more], [*more, url]):
                result = run(*words)
                self.assertEqual(result.returncode, 1)
                self.assertEqual(result.stdout, "")
                self.assertIn(f"starling-top: {url}: ", result.stderr)
                self.assertIn("connect", result.stderr)

    def test_not_an_url(self):
        for url in ("ftp://127.0.0.1", "http://", "http://" + "h" * 1000):
            result = run(url)
            self.assertEqual(result.returncode, 1)
            self.assertIn("not an URL such as http://127.0.0.1:9480", result.stderr)

    def test_hostile_server(self):
        """What it sends does not control the terminal."""
        class Hostile(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(500)
                self.end_headers()
                self.wfile.write(b'{"error": "\\u001b[2Jgone\\u009b1m"}')

            def log_message(self, *_):
                pass

        with http.server.HTTPServer(("127.0.0.1", 0), Hostile) as server:
            thread = threading.Thread(target=server.handle_request)
            thread.start()
            result = run(f"127.0.0.1:{server.server_port}")
            thread.join()
        self.assertEqual(result.returncode, 1)
        self.assertIn("status 500, \\x1b[2Jgone??1m\n", result.stderr)

    def test_history(self):
        """A saved state; a file that is none is refused with its path."""
        with tempfile.TemporaryDirectory(prefix="starling-test-") as folder:
            def refused(text, reason):
                path = os.path.join(folder, "state.json")
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                result = run("--history", path)
                self.assertEqual((result.returncode, result.stdout), (1, ""))
                self.assertIn(f"starling-top: {path}: {reason}", result.stderr)
            refused('{"cluster": 1}', "not a state that the live page")
            refused("[", "")
            self.assertIn("No such file", run("--history", os.path.join(folder, "none")).stderr)
            self.assertEqual(run("--history", "x", "http://127.0.0.1:1").returncode, 1)

    def test_bad_interval(self):
        result = run("--interval", "1ms")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--interval=1ms: accepts", result.stderr)

    def test_no_token_file(self):
        result = run("--http-token-file", "/nonexistent/token")
        self.assertEqual(result.returncode, 1)
        self.assertIn("/nonexistent/token", result.stderr)


class Terminal:
    """starling-top in a pseudo-terminal."""

    def __init__(self, url, columns=120, lines=30, **variables):
        self.screen = pyte.Screen(columns, lines)
        self.stream = pyte.ByteStream(self.screen)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            path = program("starling-top")
            os.execve(path, [path, url, "--interval", "200ms"],
                      environment({"TERM": "linux", "LC_ALL": "C.UTF-8", "COLUMNS": str(columns), "LINES": str(lines),
                                   **variables}))
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys):
        os.write(self.fd, keys.encode())

    def wait(self, condition, seconds=harness.DEADLINE_S):
        """Until the lines of the screen satisfy it."""
        end = time.monotonic() + seconds
        while not condition(self.screen.display):
            if time.monotonic() > end:
                raise AssertionError("\n".join(self.screen.display))
            if select.select([self.fd], [], [], 0.1)[0]:
                self.stream.feed(os.read(self.fd, 65536))

    def wait_text(self, text):
        self.wait(lambda lines: any(text in line for line in lines))

    def rows(self, title):
        """The lines below the one that begins with the title, up to an empty one."""
        lines = [line.rstrip() for line in self.screen.display]
        first = next((i for i, line in enumerate(lines) if line.startswith(title)), len(lines)) + 1
        return lines[first:next((i for i in range(first, len(lines)) if not lines[i]), len(lines))]

    def end(self):
        """Quits; returns the exit status."""
        with contextlib.suppress(OSError):
            self.press("q")
            while os.read(self.fd, 65536):
                pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@unittest.skipIf(os.environ.get("STARLING_SANITIZED"), "once is enough: without a sanitizer")
class Job(ObservedTest):
    def test_text_and_json(self):
        self.start_job()
        text = run(self.url).stdout
        for line in (f"{TITLE}  job running", "\nepochs ", " of 1000000  loss ", "SERVER ", "ps/1 ", "worker/7 ", "\nkeys\n", "\nslow\n"):
            self.assertIn(line, text)
        self.assertTrue(run(self.url, LC_ALL="C").stdout.isascii())
        self.assertEqual(run(self.url, "--once").returncode, 0)
        state = json.loads(run(self.url, "--json").stdout)
        self.assertEqual(len(state["cluster"]["workers"]), 8)
        self.assertEqual(set(state), {"cluster", "slow", "hot"})
        shown = run("--history", self.file("state.json", json.dumps(state)))
        self.assertEqual((shown.returncode, shown.stderr), (0, ""))
        self.assertIn("worker/7 ", shown.stdout)
        # Another server leads to the coordinator.
        other = "http://" + self.servers[1].wait_line("ready").rsplit("http ", 1)[1]
        self.assertIn("worker/7 ", run(other).stdout)

    @unittest.skipIf(pyte is None, "needs python3-pyte")
    def test_screen(self):
        self.start_job()
        top = Terminal(self.url)
        top.wait(lambda _: len(top.rows("SERVER")) == 4)
        for line in (1, 2):  # the training and the totals move
            before = top.screen.display[line]
            top.wait(lambda lines, line=line, before=before: lines[line] != before)
        top.press("2")
        top.wait(lambda _: len(top.rows("WORKER")) == 8)
        top.press("/er/3\r")
        top.wait(lambda _: [row.split()[0] for row in top.rows("WORKER")] == ["worker/3"])
        top.press("/\r")
        top.wait(lambda _: len(top.rows("WORKER")) == 8)
        self.stop_worker(3)
        top.wait(lambda _: top.rows("WORKER")[:1] and top.rows("WORKER")[0].startswith("worker/3 "), LEASE_S)
        self.continue_worker(3)
        top.press("s")
        top.wait_text("s sort: CLOCK")
        top.press("p")
        top.wait_text("paused")
        top.press("p")
        self.kill_server(1)
        top.press("1")
        top.wait_text("disconnected")
        # Of the one that is gone there is a row without a shard.
        top.wait(lambda _: [row.split()[3] for row in top.rows("SERVER")] == ["ps/0"] * 4 + ["-"])
        self.kill_server(0)
        top.wait_text("s old: http://")
        self.assertEqual(len(top.rows("SERVER")), 5)  # the last state
        self.assertEqual(top.end(), 0)

    @unittest.skipIf(pyte is None, "needs python3-pyte")
    def test_small_terminal(self):
        self.start_job()
        top = Terminal(self.url, columns=20, lines=5)
        top.wait(lambda lines: "".join(lines).strip() == "The terminal is smaller than 40 x 8.")
        self.assertEqual(top.end(), 0)


if __name__ == "__main__":
    main()
