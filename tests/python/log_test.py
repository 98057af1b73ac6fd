#!/usr/bin/env python3
"""Log lines of the library in Python's logging."""

import inspect
import logging
import os
import signal
import unittest

import support
from support import harness, starling


def lose(pid, table):
    """Kills a server, and waits until the connection to it is lost."""
    os.kill(pid, signal.SIGKILL)
    error = None
    while "not connected" not in str(error):
        try:
            table.pull(range(100), timeout=1)
        except (starling.DeadlineError, starling.ClosedError) as raised:
            error = raised


# Prints what its logging writes on standard error.
SCRIPT = "import logging, os, signal, starling\n" + inspect.getsource(lose) + """
{setup}
cluster = starling.local_cluster()
client = cluster.connect()
lose(cluster.pids[0], client.sparse("t", 2))
"""
FORK = """
process = os.fork()
if process == 0:
    logging.getLogger().handlers[0].setFormatter(logging.Formatter("child %(message)s"))
    with starling.local_cluster() as own, own.connect() as mine:
        lose(own.pids[0], mine.sparse("t", 2))
    starling._log._stop()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
"""


class Lines(unittest.TestCase):
    def setUp(self):
        self.cluster = starling.local_cluster(2, timeout=harness.DEADLINE_S)
        self.addCleanup(self.cluster.close)

    def test_line_arrives_while_python_waits(self):
        class Interrupt(logging.Handler):
            def emit(self, record):
                if "connection lost" in record.getMessage():
                    os.kill(os.getpid(), signal.SIGALRM)

        def interrupt(number, frame):
            raise KeyboardInterrupt

        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, interrupt))
        with self.assertLogs("starling", "INFO") as logs:
            client = self.cluster.connect()
            self.addCleanup(client.leave)
            table = client.sparse("t", 2)
            table.pull(range(100))
            logging.getLogger("starling").addHandler(Interrupt())
            with self.assertRaises(KeyboardInterrupt):
                os.kill(self.cluster.pids[1], signal.SIGKILL)
                table.pull(range(100), timeout=5)  # leave() waits for the interrupted step
        self.assertRegex("\n".join(logs.output), "(?m)^WARNING:starling:ps/1 reactor [0-9] .*: connection lost: ")

    def test_full_pipe_drops_lines_and_counts_them(self):
        client = self.cluster.connect()
        self.addCleanup(client.leave)
        table = client.sparse("t", 2)
        lines, end = os.pipe()
        self.addCleanup(os.close, lines)
        self.addCleanup(os.close, end)
        os.set_blocking(end, False)
        self.addCleanup(starling._log.start)
        starling._native.log_to(end, 1)
        with self.assertRaises(BlockingIOError):
            while True:
                os.write(end, bytes(1))
        lose(self.cluster.pids[1], table)
        os.set_blocking(lines, False)
        while os.read(lines, 1 << 20).count(0) == 1 << 20:
            pass
        self.cluster.close()
        os.set_blocking(lines, True)
        received = b""
        while b"connection lost" not in received:
            received += os.read(lines, 1 << 16)
        self.assertRegex(received.decode(), "^2[0-9]+ log lines were dropped: Python was busy\n(.*\n)*2.*connection lost")


class Programs(unittest.TestCase):
    def errors_of(self, setup, end=""):
        script = support.run_script(SCRIPT.format(setup=setup) + end)
        self.assertEqual(script.returncode, 0, script.stderr)
        self.assertNotIn("Traceback", script.stderr)
        return script.stderr

    def test_without_configuration(self):
        self.assertRegex(self.errors_of(""), "(?m)^ps/0 reactor 0 .*: connection lost: ")

    def test_level_of_the_logger(self):
        self.assertEqual(self.errors_of("logging.getLogger('starling').setLevel('ERROR')"), "")

    def test_format_and_end_of_the_interpreter(self):
        """Lines that were logged just before the end are not lost."""
        setup = "logging.basicConfig(format='%(name)s %(levelname)s %(message)s')"
        self.assertRegex(self.errors_of(setup), "(?m)^starling WARNING ps/0 reactor 0 .*: connection lost: ")

    def test_forked_process(self):
        """It has a logging of its own once it connects, and its end does not end its parent's."""
        errors = self.errors_of("logging.basicConfig(format='parent %(message)s')", FORK + "cluster.close()")
        self.assertRegex(errors, "(?m)^parent ps/0 reactor 0 .*: connection lost: ")
        self.assertRegex(errors, "(?m)^child ps/0 reactor 0 .*: connection lost: ")


if __name__ == "__main__":
    harness.main()
