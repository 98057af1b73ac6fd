#!/usr/bin/env python3
"""starling-launch over a real sshd: 127.0.0.1 and 127.0.0.2 are the two hosts."""

import os
import re
import signal
import tempfile

import daemons
import harness

WORKER = harness.program("example_worker")  # 100 iterations of BSP
LIST = "127.0.0.1 ps\n127.0.0.2 ps\n127.0.0.1 worker\n127.0.0.2:2 worker\n"
# Writes where it came in, and its process id; runs until it gets a signal, to which it answers.
STAY = ('echo "at $SSH_CONNECTION"; echo $$ > "$1/pid-$RANK"; trap "echo got TERM; exit 0" TERM; '
        'while :; do sleep 0.05; done')


class Ssh(daemons.JobTest):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="starling-sshd-")
        cls.addClassCleanup(folder.cleanup)
        cls.sshd = daemons.Sshd(folder.name)
        cls.addClassCleanup(cls.sshd.stop)

    def launch(self, hosts, *args):
        return self.start("starling-launch", "--ssh", self.sshd.ssh, "--insecure", "--ps-reactors", 1, "--port-base",
                          harness.free_ports(4)[0], "--host-list", self.file("hosts", hosts), *args)

    def launched(self, hosts, *args, status=0):
        process = self.launch(hosts, *args)
        self.assertEqual(process.wait(), status, process.output)
        return process.output

    def servers(self, job):
        """The process ids of the servers of a job, by the port that each has in its command."""
        job.wait_line("ps/1 ready: ")
        return daemons.servers(re.search(r"127\.0\.0\.1:(\d+)", job.wait_line("ps/0 ready: "))[1])

    def test_job(self):
        output = self.launched(LIST, "--", "sh", "-c", f'echo "at $SSH_CONNECTION"; exec {WORKER}')
        for index, host in enumerate(("127.0.0.1", "127.0.0.2", "127.0.0.2")):
            self.assertRegex(output, rf"(?m)^\[worker/{index}\] at 127\.\S+ \d+ {host} \d+$")
            self.assertIn(f"[worker/{index}] worker {index} of 3: 300", output)
        for index in range(2):
            self.assertRegex(output, rf"(?m)^\[ps/{index}\] ps/{index} done: ")

    def test_words_arrive_as_they_are(self):
        words = ("two words", "a'b", 'a"b', "$HOME", "*", "", "back\\slash", "new\nline", "`date`", "#")
        output = self.launched("127.0.0.1 ps\n127.0.0.2 worker\n", "--", "python3", "-c",
                               "import sys; print(sys.argv[1:])", *words)
        self.assertIn(f"[worker/0] {list(words)}\n", output)

    def test_killed_worker_is_restarted(self):
        once = f'[ $RANK = 0 ] || [ -e ended ] || {{ touch ended; kill -9 $$; }}; exec {WORKER}'
        output = self.launched("127.0.0.1 ps\n127.0.0.1 worker\n127.0.0.2 worker\n", "--restart-workers", 1, "--",
                               "sh", "-c", once)
        self.assertIn("worker/1 on 127.0.0.2 failed: exit status 137; restarting in 1 s (restart 1 of 1)", output)
        self.assertIn("[worker/1] worker 1 of 2: 200", output)

    def test_bad_command_and_directory(self):
        output = self.launched("127.0.0.1 ps\n127.0.0.2 worker\n", "--restart-workers", 5, "--", "no-such-command",
                               status=1)
        self.assertIn("worker/0 on 127.0.0.2 failed: exit status 127: no-such-command, or a command that it runs, "
                      "was not found", output)
        self.assertNotIn("restarting", output)

    def test_host_that_does_not_answer(self):
        """Nobody listens at the third address, and its key is not known either."""
        output = self.launched("127.0.0.1 ps\n127.0.0.3 worker\n", "--", "true", status=1)
        self.assertIn("worker/0 on 127.0.0.3 failed: exit status 255, by which ssh says that it could not connect",
                      output)
        self.assertRegex(output, r"(?m)^\[worker/0\] ssh: connect to host 127\.0\.0\.3 port \d+: Connection refused")

    def test_signal_reaches_the_commands(self):
        job = self.launch(LIST, "--", "sh", "-c", STAY, "sh", self.folder)
        pids = [self.pid(rank) for rank in range(3)] + self.servers(job)
        self.assertEqual(len(pids), 5)
        job.signal(signal.SIGINT)
        self.assertEqual(job.wait(), 128 + signal.SIGINT, job.output)
        self.assertEqual(job.output.count("got TERM"), 3, job.output)
        self.assertEqual(len(re.findall(r"(?m)^\[ps/\d\] ps/\d done: ", job.output)), 2, job.output)
        self.are_gone(pids)

    def test_nothing_outlives_the_launcher(self):
        job = self.launch(LIST, "--", "sh", "-c", STAY, "sh", self.folder)
        pids = [self.pid(rank) for rank in range(3)] + self.servers(job)
        self.assertEqual(len(pids), 5)
        job.signal(signal.SIGKILL)
        job.wait()
        self.are_gone(pids)

    def test_broken_connection(self):
        """The process at the other end of a broken connection ends; the launcher names the host, and restarts it."""
        job = self.launch("127.0.0.1 ps\n127.0.0.2 worker\n", "--restart-workers", 1, "--", "sh", "-c", STAY, "sh",
                          self.folder)
        first = self.pid(0)
        session = first
        while not daemons.command(session).startswith("sshd: "):
            with open(f"/proc/{session}/stat", encoding="ascii") as file:
                session = int(file.read().rsplit(")", 1)[1].split()[1])
        os.unlink(os.path.join(self.folder, "pid-0"))
        os.kill(session, signal.SIGKILL)
        job.wait_line("worker/0 on 127.0.0.2 failed: exit status 255, by which ssh says that it could not connect; "
                      "restarting")
        self.are_gone([first])
        second = self.pid(0)
        self.assertNotEqual(first, second)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 128 + signal.SIGTERM, job.output)
        self.are_gone([second])


if __name__ == "__main__":
    harness.main()
