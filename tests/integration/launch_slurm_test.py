#!/usr/bin/env python3
"""starling-launch under a real Slurm of two nodes, 127.0.0.1 and 127.0.0.2."""

import contextlib
import os
import re
import signal
import tempfile
import time

import daemons
import harness

WORKER = harness.program("example_worker")  # 100 iterations of BSP
LAUNCH = harness.program("starling-launch")
# Writes its node and its process id; runs until it gets a signal, to which it answers.
STAY = ('echo "on $SLURMD_NODENAME"; echo $$ > "$1/pid-$RANK"; trap "echo got INT; exit 0" INT; '
        'trap "echo got TERM; exit 0" TERM; while :; do sleep 0.05; done')


class SlurmTest(daemons.JobTest):
    @classmethod
    def setUpClass(cls):
        # The last slurmstepd may still remove its files.
        folder = tempfile.TemporaryDirectory(prefix="starling-slurm-", ignore_cleanup_errors=True)
        cls.addClassCleanup(folder.cleanup)
        cls.slurm = daemons.Slurm(folder.name)
        cls.addClassCleanup(cls.slurm.stop)

    def job(self, *args):
        """A program of Slurm's; what is left of its job is cancelled before the program itself is killed."""
        process = self.start(*args, env=self.slurm.env)
        self.addCleanup(self.cancel)
        return process

    def cancel(self):
        self.run_to_end(self.slurm.scancel, f"--user={os.getuid()}", env=self.slurm.env)

    def flags(self, *args):
        return ["--slurm", "--insecure", "--ps-reactors", 1, "--port-base", harness.free_ports(8)[0], *args]

    def servers(self, job):
        """The process ids of the servers of a job, by the port that each has in its command."""
        return daemons.servers(re.search(r"127\.0\.0\.1:(\d+)", job.wait_line("ps/0 ready: "))[1])

    def check_job(self, output, nodes):
        """Of three workers, on these nodes, and a server, which drained."""
        for index, node in enumerate(nodes):
            self.assertIn(f"[worker/{index}] on {node}\n", output)
            self.assertIn(f"[worker/{index}] worker {index} of 3: 300", output)
        self.assertRegex(output, r"(?m)^\[ps/0\] ps/0 done: ")


SHOW = ("sh", "-c", f"echo on $SLURMD_NODENAME; exec {WORKER}")


class Allocation(SlurmTest):
    """The launcher in a shell of salloc, or in a batch script: it starts a step for each process."""

    def launch(self, *args, tasks=4):
        return self.job(self.slurm.salloc, "--nodes=2", f"--ntasks={tasks}", LAUNCH, *self.flags(*args))

    def launched(self, *args, tasks=4, status=0):
        process = self.launch(*args, tasks=tasks)
        self.assertEqual(process.wait(), status, process.output)
        return process.output

    def launcher(self, job):
        """The process id of the launcher in the allocation."""
        for pid in os.listdir("/proc"):
            if pid.isdigit() and daemons.command(int(pid)).startswith(LAUNCH):
                with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="ascii") as file:
                    if int(file.read().rsplit(")", 1)[1].split()[1]) == job.pid:
                        return int(pid)
        return self.fail("the launcher does not run")

    def test_job(self):
        self.check_job(self.launched("--", *SHOW), ("127.0.0.2", "127.0.0.1", "127.0.0.2"))

    def test_batch_script(self):
        script = self.file("batch", "#!/bin/sh\n#SBATCH --nodes=2 --ntasks=4\n"
                           f"exec {LAUNCH} {' '.join(map(str, self.flags()))} -- {SHOW[0]} {SHOW[1]} '{SHOW[2]}'\n")
        self.addCleanup(self.cancel)
        self.run_to_end(self.slurm.sbatch, "--output=out", script, env=self.slurm.env)
        end, output = time.monotonic() + harness.DEADLINE_S, ""
        while not re.search(r"\[ps/0\] ps/0 done: .*\n", output):
            self.assertLess(time.monotonic(), end, output)
            time.sleep(0.05)
            with contextlib.suppress(FileNotFoundError), open(os.path.join(self.folder, "out"), encoding="utf-8") as file:
                output = file.read()
        self.check_job(output, ("127.0.0.2", "127.0.0.1", "127.0.0.2"))

    def test_words_arrive_as_they_are(self):
        words = ("two words", "a'b", 'a"b', "$HOME", "*", "", "back\\slash", "new\nline", "`date`", "#")
        output = self.launched("--", "python3", "-c", "import sys; print(sys.argv[1:])", *words, tasks=2)
        self.assertIn(f"[worker/0] {list(words)}\n", output)

    def test_killed_worker_is_restarted(self):
        once = f'[ $RANK = 0 ] || [ -e ended ] || {{ touch ended; kill -9 $$; }}; exec {WORKER}'
        output = self.launched("--restart-workers", 1, "--", "sh", "-c", once, tasks=3)
        self.assertIn("worker/1 on 127.0.0.1 failed: exit status 137; restarting in 1 s (restart 1 of 1)", output)
        self.assertIn("[worker/1] worker 1 of 2: 200", output)

    def test_bad_command(self):
        output = self.launched("--restart-workers", 5, "--", "no-such-command", tasks=2, status=1)
        self.assertIn("worker/0 on 127.0.0.2 failed: exit status 127: no-such-command, or a command that it runs, "
                      "was not found", output)
        self.assertNotIn("restarting", output)

    def test_signal_reaches_the_commands(self):
        """Servers and workers end on their own; Slurm kills none."""
        job = self.launch("--", "sh", "-c", STAY, "sh", self.folder)
        pids = [self.pid(rank) for rank in range(3)] + self.servers(job)
        self.assertEqual(len(pids), 4)
        os.kill(self.launcher(job), signal.SIGTERM)
        job.wait()
        self.assertEqual(job.output.count("got INT"), 3, job.output)
        self.assertRegex(job.output, r"(?m)^\[ps/0\] ps/0 done: ")
        self.assertNotRegex(job.output, "CANCELLED|Killed|is killed")
        self.are_gone(pids)

    def test_nothing_outlives_the_launcher(self):
        """Nor the job's steps, while the allocation goes on."""
        job = self.job(self.slurm.salloc, "--nodes=2", "--ntasks=4", "--kill-command", "sh", "-c",
                       '"$@"; echo "the launcher ended: $?"; exec sleep 600', "sh", LAUNCH,
                       *self.flags("--", "sh", "-c", STAY, "sh", self.folder))
        pids = [self.pid(rank) for rank in range(3)] + self.servers(job)
        self.assertEqual(len(pids), 4)
        shell = harness.children_of(job.pid)[0]
        os.kill(harness.children_of(shell)[0], signal.SIGKILL)
        job.wait_line("the launcher ended: 137")
        self.are_gone(pids)

    def test_broken_connection(self):
        """An srun that is killed takes its process with it; the launcher restarts it."""
        job = self.launch("--restart-workers", 1, "--", "sh", "-c", STAY, "sh", self.folder, tasks=2)
        first = self.pid(0)
        sruns = [pid for pid in harness.children_of(self.launcher(job)) if "RANK=0" in daemons.command(pid)]
        os.unlink(os.path.join(self.folder, "pid-0"))
        self.assertEqual(len(sruns), 1)
        os.kill(sruns[0], signal.SIGKILL)
        job.wait_line("worker/0 on 127.0.0.2 failed: killed by signal 9 (Killed); restarting")
        self.are_gone([first])
        second = self.pid(0)
        os.kill(self.launcher(job), signal.SIGTERM)
        job.wait()
        self.are_gone([second])

    def test_cancel(self):
        job = self.launch("--", "sh", "-c", STAY, "sh", self.folder)
        pids = [self.pid(rank) for rank in range(3)] + self.servers(job)
        self.cancel()
        job.wait()
        self.are_gone(pids)


class Tasks(SlurmTest):
    """srun starts a launcher for each process."""

    def launch(self, *args, tasks=4, srun=()):
        return self.job(self.slurm.srun, "--nodes=2", f"--ntasks={tasks}", *srun, LAUNCH, *self.flags(*args))

    def launched(self, *args, status=0, **more):
        process = self.launch(*args, **more)
        self.assertEqual(process.wait(), status, process.output)
        return process.output

    def test_job(self):
        """Where the tasks run depends on the distribution; each launcher finds its place and that of the server."""
        for flags, nodes in (([], ("127.0.0.1", "127.0.0.1", "127.0.0.2")),
                             (["--ntasks-per-node=2"], ("127.0.0.1", "127.0.0.2", "127.0.0.2")),
                             (["--distribution=cyclic", "--ntasks-per-node=2"], ("127.0.0.2", "127.0.0.1", "127.0.0.2"))):
            self.check_job(self.launched("--", *SHOW, srun=flags), nodes)

    def test_killed_worker_is_restarted(self):
        once = f'[ $RANK = 0 ] || [ -e ended ] || {{ touch ended; kill -9 $$; }}; exec {WORKER}'
        output = self.launched("--restart-workers", 1, "--", "sh", "-c", once, tasks=3)
        self.assertRegex(output, r"worker/1 failed: killed by signal 9 \(Killed\); restarting in 1 s \(restart 1 of 1\)")
        self.assertIn("[worker/1] worker 1 of 2: 200", output)

    def test_failing_worker_ends_the_job(self):
        output = self.launched("--", "sh", "-c", f"[ $RANK = 0 ] || exit 7; exec {WORKER}", tasks=3, status=1)
        self.assertIn("worker/1 failed: exit status 7", output)

    def test_cancel(self):
        job = self.launch("--", "sh", "-c", STAY, "sh", self.folder)
        pids = [self.pid(rank) for rank in range(3)] + self.servers(job)
        job.signal(signal.SIGTERM)
        job.wait()
        self.are_gone(pids)


if __name__ == "__main__":
    harness.main()
