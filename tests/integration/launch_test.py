#!/usr/bin/env python3
"""starling-launch with small shell scripts in place of starling-ps and starling-worker, so that every
way in which a process can end is at hand; and with scripts in place of ssh, srun and scontrol."""

import array
import contextlib
import fcntl
import os
import signal
import socket
import stat
import subprocess
import termios
import time
import unittest

import harness

# Says that it is up once it knows how to drain.
PS = """#!/bin/sh
echo "ps args: $*"
echo "tf: ${TF_CONFIG-none}"
echo "http: $STARLING_HTTP"
trap 'echo drained; exit 0' TERM INT
echo $$ > "$FOLDER/ps.pid"
while [ "$1" != --task-index ]; do shift; done
touch "$FOLDER/up-$2"
while :; do sleep 0.05; done
"""

# What a worker begins with: it waits for every ps of --ps-hosts, as a real one does.
UP = """#!/bin/sh
count=$(echo "$2" | tr , '\\n' | wc -l)
until [ "$(ls "$FOLDER" | grep -c '^up-')" -ge "$count" ]; do sleep 0.05; done
"""

WORKER = 'echo "worker args: $*"\necho "http: $STARLING_HTTP"\n'

SLEEP = "exec sleep 600\n"

# Of a job that they end in its middle: the second for where it was not there by the first, as something
# stood still.
TIMEOUTS = ("800ms", 4, 20)

PIPE_BYTES = 60000  # what a pipe holds, but for what a line may leave free


def held(pipe):
    """How many bytes a pipe holds."""
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


def knows_localhost():
    """Some systems, a chroot without /etc/hosts, do not."""
    with contextlib.suppress(OSError):
        return bool(socket.getaddrinfo("localhost", 1))
    return False


NEEDS_LOCALHOST = unittest.skipUnless(knows_localhost(),
                                      "this system does not know the host localhost")


# Those of the job go along to other machines, as they are; those of one process do not.
OF_THE_JOB = {"STARLING_CLUSTER_STORE": "etcd://h:1/job", "STARLING_CLUSTER_STORE_USER_FILE": "u",
              "STARLING_DPDK_EAL_ARGS": "/" + "x" * 3000}
OF_A_PROCESS = {"STARLING_DPDK_DEVICE": "one's own"}


class LaunchTest(harness.StarlingTest):
    def setUp(self):
        super().setUp()
        self.script("starling-ps", PS)
        self.worker(WORKER)

    def script(self, name, text):
        path = self.file(name, text)
        os.chmod(path, stat.S_IRWXU)
        return path

    def worker(self, body):
        self.script("starling-worker", UP + body)

    def forget(self):
        """Removes what the fake ps of an earlier job left in the directory."""
        for name in os.listdir(self.folder):
            if name == "ps.pid" or name.startswith("up-"):
                os.unlink(os.path.join(self.folder, name))

    def launch(self, *args, env=None):
        return self.start("starling-launch", "--bin-dir", self.folder, *args,
                          env={"FOLDER": self.folder, **(env or {})})

    def launched(self, *args, status=0, env=None):
        process = self.launch(*args, env=env)
        self.assertEqual(process.wait(), status, process.output)
        return process.output

    def stop(self, process, number):
        process.signal(number)
        self.assertEqual(process.wait(), 128 + number, process.output)

    def kill_launcher(self, process):
        """None of its processes outlives it."""
        while not self.ps_was_up():
            time.sleep(0.02)
        process.signal(signal.SIGKILL)
        process.wait()
        self.ps_is_gone()

    def check_variables(self, job):
        """Of a job, which is started with variables of both kinds, the worker has the right ones."""
        self.worker("env | grep STARLING_ | sort\n")
        output = job({**OF_THE_JOB, **OF_A_PROCESS})
        for name, value in OF_THE_JOB.items():
            self.assertTrue(f"[worker/0] {name}={value}\n" in output + "\n", f"{name}\n{output}")
        for name in OF_A_PROCESS:
            self.assertNotIn(f"[worker/0] {name}=", output)

    def ps_was_up(self):
        return os.path.exists(os.path.join(self.folder, "ps.pid"))

    def ps_is_gone(self):
        """The fake ps wrote its pid; it must not run any more."""
        with open(os.path.join(self.folder, "ps.pid"), encoding="ascii") as file:
            pid = int(file.read())
        end = time.monotonic() + harness.DEADLINE_S
        while time.monotonic() < end:
            try:
                os.kill(pid, 0)
                with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                    if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                        return
            except (ProcessLookupError, FileNotFoundError):
                return
            time.sleep(0.02)
        self.fail(f"the ps, pid {pid}, is still there")


class Local(LaunchTest):
    def test_job_with_every_flag(self):
        output = self.launched("--ps", 2, "--workers", 3, "--ps-reactors", 5, "--worker-reactors", 6,
                               "--ps-args", "--one 'two words'", "--", "--data", "a file", "--x",
                               env={"TF_CONFIG": "rubbish", "STARLING_HTTP": "[::1]:9480"})
        self.assertIn("tf: none", output)
        for name in ("ps/0", "ps/1", "worker/0", "worker/2"):
            self.assertIn(f"[{name}] http: [::1]:{9480 if name == 'ps/0' else 0}\n", output + "\n")
        for index in range(2):
            self.assertRegex(output, rf"(?m)^\[ps/{index}\] ps args: --ps-hosts 127\.0\.0\.1:\d+,"
                             rf"127\.0\.0\.1:\d+ --num-workers 3 --job-name ps --task-index {index} "
                             rf"--reactors 5 --one two words$")
        for index in range(3):
            self.assertRegex(output, rf"(?m)^\[worker/{index}\] worker args: .* --job-name worker "
                             rf"--task-index {index} --reactors 6 --data a file --x$")
        self.assertEqual(output.count("drained"), 2)

    def test_ports_are_distinct_and_not_ephemeral(self):
        output = self.launched("--ps", 8, "--bind", "::1")
        hosts = output.split("--ps-hosts ")[1].split()[0].split(",")
        ports = [int(host.rsplit(":", 1)[1]) for host in hosts]
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
            first, last = map(int, file.read().split())
        self.assertEqual(len(set(ports)), 8)
        for host, port in zip(hosts, ports):
            self.assertTrue(host.startswith("[::1]:"), host)
            self.assertFalse(first <= port <= last, port)

    def test_failing_worker_is_named(self):
        self.worker("case \"$*\" in *'index 1'*) exit 7;; esac\n"
                    "exec sleep 600\n")
        output = self.launched("--workers", 3, status=1)
        self.assertIn("worker/1 failed: exit status 7", output)
        self.ps_is_gone()

    def test_crashing_worker_is_named(self):
        self.worker("kill -SEGV $$\n")
        self.assertIn("worker/0 failed: killed by signal 11 (Segmentation fault)",
                      self.launched(status=1))

    def test_ps_that_ends_early_is_named(self):
        self.worker(SLEEP)
        for end, words in (("exit 0", "exit status 0"), ("kill -9 $$", "signal 9 (Killed)")):
            self.script("starling-ps", f"#!/bin/sh\n{end}\n")
            output = self.launched("--workers", 2, status=1)
            self.assertIn("ps/0 ended early: ", output)
            self.assertIn(words, output)

    def test_ps_that_fails_to_drain_is_named(self):
        self.script("starling-ps", "#!/bin/sh\ntrap 'exit 3' TERM\ntouch \"$FOLDER/up-0\"\n"
                    "while :; do sleep 0.05; done\n")
        self.worker("")
        self.assertIn("ps/0 failed: exit status 3", self.launched(status=1))

    def test_missing_program_is_named(self):
        os.unlink(os.path.join(self.folder, "starling-worker"))
        output = self.launched(status=1)
        self.assertIn("worker/0: cannot run", output)
        self.assertIn(f"starling-worker on {socket.gethostname()}: No such file", output)

    def test_stubborn_process_is_killed_after_grace(self):
        self.worker("trap '' TERM\ntouch \"$FOLDER/stubborn\"\n"
                    "while :; do sleep 0.05; done\n")
        self.script("starling-ps", "#!/bin/sh\ntouch \"$FOLDER/up-0\"\n"
                    "until [ -e \"$FOLDER/stubborn\" ]; do sleep 0.05; done\n"
                    "exit 4\n")
        output = self.launched("--grace", "200ms", status=1)
        self.assertIn("ps/0 ended early: exit status 4", output)
        self.assertIn("worker/0 is killed", output)

    def test_timeout(self):
        self.worker(SLEEP)
        for seconds in TIMEOUTS:
            self.forget()
            self.assertIn("--job-timeout", self.launched("--job-timeout", seconds, status=124))
            if self.ps_was_up():
                break
        self.ps_is_gone()

    def test_timeout_while_stopping_changes_nothing(self):
        self.worker("trap '' TERM\necho up\nwhile :; do sleep 0.05; done\n")
        for seconds in (2, 8):  # the second for where the time was over before the signal came
            self.forget()
            process = self.launch("--job-timeout", seconds, "--grace", seconds + 1)
            while process.running() and "[worker/0] up" not in process.output:
                time.sleep(0.02)
            process.signal(signal.SIGTERM)
            status = process.wait()
            if "the job is stopped (SIGQUIT" in process.output:
                break
        self.assertEqual(status, 128 + signal.SIGTERM, process.output)
        self.assertNotIn("--job-timeout", process.output)

    def test_no_reactor_thread_of_workers(self):
        self.assertRegex(self.launched("--worker-reactors", 0), r"worker args: .* --reactors 0\n")
        self.assertIn("STARLING_PS_REACTORS=0: accepts a whole number from 1",
                      self.launched(status=2, env={"STARLING_PS_REACTORS": "0"}))

    def test_signals_are_passed_on(self):
        self.worker("trap 'echo told INT; exit 0' INT\n"
                    "trap 'echo told TERM; exit 0' TERM\necho up\nwhile :; do sleep 0.05; done\n")
        for number, name in ((signal.SIGINT, "INT"), (signal.SIGTERM, "TERM")):
            self.forget()
            process = self.launch("--workers", 2)
            process.wait_line("[worker/0] up")
            process.wait_line("[worker/1] up")
            self.stop(process, number)
            self.assertIn(f"[worker/0] told {name}", process.output)
            self.assertIn(f"[worker/1] told {name}", process.output)
            self.ps_is_gone()

    def test_ps_stay_until_the_workers_have_ended(self):
        """A worker that was asked to end needs them for its last step."""
        self.worker("trap 'sleep 0.5; echo last step; exit 0' TERM\necho up\n"
                    "while :; do sleep 0.05; done\n")
        process = self.launch("--workers", 2)
        process.wait_line("[worker/0] up")
        process.wait_line("[worker/1] up")
        self.stop(process, signal.SIGTERM)
        self.assertEqual(process.output.count("last step"), 2)
        self.assertLess(process.output.rindex("last step"), process.output.index("drained"))

    def test_ps_end_before_workers_that_wait(self):
        """For one that has failed, say: only the end of the ps ends their steps."""
        self.worker("trap '' TERM\necho up\n"
                    "while kill -0 $(cat \"$FOLDER/ps.pid\"); do sleep 0.05; done\n")
        process = self.launch()
        process.wait_line("[worker/0] up")
        self.stop(process, signal.SIGTERM)
        self.assertIn("[ps/0] drained", process.output)
        self.assertNotIn("is killed", process.output)

    def test_repeated_signals_change_nothing(self):
        """A control group, timeout(1) and a batch system send it to the launcher more than once."""
        self.worker("trap 'echo told; while [ ! -e \"$FOLDER/end\" ]; do sleep 0.05; done; echo end; "
                    "exit 0' TERM\necho up\nwhile :; do sleep 0.05; done\n")
        process = self.launch()
        process.wait_line("[worker/0] up")
        process.signal(signal.SIGTERM)
        process.wait_line("[worker/0] told")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            process.signal(number)
            time.sleep(0.1)
        self.file("end", "")
        self.assertEqual(process.wait(), 128 + signal.SIGTERM, process.output)
        self.assertIn("[worker/0] end", process.output)
        self.assertIn("[ps/0] drained", process.output)
        self.assertNotIn("killed", process.output.replace("SIGQUIT kills it", ""))

    def test_quit_kills(self):
        self.worker("trap 'echo no' TERM\necho up\n"
                    "while :; do sleep 0.05; done\n")
        process = self.launch()
        process.wait_line("[worker/0] up")
        process.signal(signal.SIGTERM)
        process.wait_line("[worker/0] no")
        process.signal(signal.SIGQUIT)
        self.assertEqual(process.wait(), 128 + signal.SIGTERM, process.output)
        self.ps_is_gone()
        self.forget()
        process = self.launch()
        process.wait_line("[worker/0] up")
        self.stop(process, signal.SIGQUIT)
        self.ps_is_gone()

    def test_ends_though_nobody_reads(self):
        """Neither a signal nor --job-timeout waits for who should read the output."""
        self.worker("exec yes\n")
        for timeout in (None, *TIMEOUTS):
            self.forget()
            args = ["--job-timeout", str(timeout)] if timeout else []
            read_end, write_end = os.pipe()
            self.addCleanup(os.close, read_end)
            launcher = subprocess.Popen(
                [harness.program("starling-launch"), "--bin-dir", self.folder, *args],
                env=harness.environment({"FOLDER": self.folder}), stdin=subprocess.DEVNULL,
                stdout=write_end, stderr=subprocess.DEVNULL)
            os.close(write_end)
            self.addCleanup(launcher.wait)
            self.addCleanup(launcher.kill)
            while held(read_end) < PIPE_BYTES and launcher.poll() is None:
                time.sleep(0.02)
            is_full = held(read_end) >= PIPE_BYTES
            if not timeout:
                launcher.send_signal(signal.SIGTERM)
            self.assertEqual(launcher.wait(harness.DEADLINE_S), 124 if timeout else 128 + signal.SIGTERM)
            if is_full:
                self.ps_is_gone()
                if timeout:
                    break
            self.assertTrue(is_full or timeout == TIMEOUTS[0], "nothing was there to be read")

    def test_no_child_survives_the_launcher(self):
        self.worker("echo up\nexec sleep 600\n")
        process = self.launch()
        process.wait_line("[worker/0] up")
        process.wait_line("[ps/0] tf: ")
        self.kill_launcher(process)

    def test_logs(self):
        self.worker("echo \"out $*\"\necho noise >&2\n")
        logs = os.path.join(self.folder, "logs")
        output = self.launched("--workers", 2, "--log-dir", logs, "--", "--flag")
        shown = [line for line in output.splitlines() if "out " in line]
        self.assertEqual(len(shown), 1, output)
        self.assertTrue(shown[0].startswith("out ") and "--task-index 0 --flag" in shown[0], shown)
        self.assertNotIn("noise", output)
        for name, words in (("ps-0", "drained"), ("worker-0", "--task-index 0"),
                            ("worker-0", "noise"), ("worker-1", "--task-index 1")):
            with open(os.path.join(logs, f"{name}.log"), encoding="utf-8") as file:
                self.assertIn(words, file.read())

    def test_failure_names_the_log(self):
        self.worker("exit 1\n")
        logs = os.path.join(self.folder, "logs")
        self.assertIn(f"see {logs}/worker-0.log", self.launched("--log-dir", logs, status=1))

    def test_long_and_unfinished_lines_arrive(self):
        self.worker("head -c 20000 /dev/zero | tr '\\0' x\n"
                    "printf '\\nlast line without end'\n")
        lines = self.launched().splitlines()
        longs = [line[len("[worker/0] "):] for line in lines if "xxx" in line]
        self.assertEqual("".join(longs), "x" * 20000)
        self.assertIn("[worker/0] last line without end", lines)

    def test_more_polling_reactors_than_cores_is_a_warning(self):
        cores = os.cpu_count()
        output = self.launched("--workers", cores, "--worker-reactors", 2, env={"WORKER_ENABLE_POLLING": "1"})
        self.assertIn(f"{2 * cores} reactors of this job poll on {cores} cores", output)
        self.assertIn("WORKER_ENABLE_POLLING=2: accepts", self.launched(status=2, env={"WORKER_ENABLE_POLLING": "2"}))

    def test_output_that_cannot_be_written_is_an_error(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        with open("/dev/full", "wb") as full:
            launcher = subprocess.run([harness.program("starling-launch"), "--bin-dir", self.folder], stdout=full,
                                      stderr=subprocess.PIPE, timeout=harness.DEADLINE_S, check=False,
                                      env=harness.environment({"FOLDER": self.folder}), text=True)
        self.assertEqual(launcher.returncode, 1, launcher.stderr)
        self.assertIn("some of its output is lost: No space left on device", launcher.stderr)

    def test_bad_flags(self):
        for args, words in ((["--worker", "3"], "--workers"), (["--bind", "0.0.0.0"], "127.0.0.1 or ::1"),
                            (["--ps-args", "'open"], "a quote is not closed"),
                            (["--ps", "2", "--ps-args", "--x --replicas=1"], "--ps-args has --replicas: give it"),
                            (["--slurm", "--host-list", "x"], "contradict"),
                            (["--ps", "0"], "--ps=0: accepts a whole number from 1"),
                            (["--workers", "0"], "--workers=0: accepts a whole number from 1"),
                            (["--slurm"], "SLURM_JOB_ID"), (["data"], "unexpected argument"),
                            (["--host-list", "/nonexistent"], "/nonexistent")):
            self.assertIn(words, self.launched(*args, status=2))


# Worker 1 ends as $END says the first $TIMES times that it runs; the others run until $UNTIL is there.
LOSSY = """
while [ "$1" != --task-index ]; do shift; done
index=$2
if [ "$index" = 1 ]; then
    echo run >> "$FOLDER/runs"
    echo "this is run $(wc -l < "$FOLDER/runs")"
    [ "$(wc -l < "$FOLDER/runs")" -gt "$TIMES" ] || eval "$END"
    touch "$FOLDER/done"
fi
until [ -z "$UNTIL" ] || [ -e "$FOLDER/$UNTIL" ]; do sleep 0.05; done
echo "worker $index is done"
"""


class Losses(LaunchTest):
    """Workers that end badly: started again, gone on without, or the end of the job."""

    def setUp(self):
        super().setUp()
        self.worker(LOSSY)

    def lossy(self, *args, end="kill -9 $$", times=1, until="", status=0):
        return self.launched("--workers", 3, *args, status=status,
                             env={"END": end, "TIMES": str(times), "UNTIL": until})

    def runs(self):
        with open(os.path.join(self.folder, "runs"), encoding="ascii") as file:
            return len(file.readlines())

    def test_killed_worker_is_started_again(self):
        output = self.lossy("--restart-workers", 1, until="done")
        self.assertIn("worker/1 failed: killed by signal 9 (Killed); restarting in 1 s "
                      "(restart 1 of 1)", output)
        for index in range(3):
            self.assertIn(f"[worker/{index}] worker {index} is done", output)
        self.assertEqual(self.runs(), 2)
        self.assertIn("[ps/0] drained", output)

    def test_ps_do_not_drain_while_a_worker_rests(self):
        """All others may be done when the last one is started again."""
        output = self.lossy("--restart-workers", 1, end="exit 1")
        self.assertLess(output.index("worker 1 is done"), output.index("drained"))

    def test_restarts_are_counted(self):
        output = self.lossy("--restart-workers", 2, end="exit 7", times=3, until="never", status=1)
        self.assertIn("exit status 7; restarting in 1 s (restart 1 of 2)", output)
        self.assertIn("exit status 7; restarting in 2 s (restart 2 of 2)", output)
        self.assertIn("worker/1 failed: exit status 7\n", output)
        self.assertEqual(self.runs(), 3)
        self.ps_is_gone()

    def test_job_goes_on_without_the_lost(self):
        output = self.lossy("--on-worker-loss", "continue", times=9)
        self.assertIn("worker/1 failed: killed by signal 9 (Killed); the job continues without it",
                      output)
        self.assertIn("the job ends without worker/1, which failed", output)
        self.assertIn("worker 0 is done", output)
        self.assertIn("worker 2 is done", output)
        self.assertIn("[ps/0] drained", output)

    def test_many_lost_are_counted(self):
        self.worker('[ "$8" = 0 ] || exit 1\n')
        output = self.launched("--workers", 14, "--on-worker-loss", "continue")
        self.assertRegex(output, r"ends without (worker/\d+, ){9}worker/\d+ and 3 more, which failed")

    def test_restarts_come_before_a_loss(self):
        output = self.lossy("--on-worker-loss", "continue", "--restart-workers", 1, times=9)
        self.assertEqual(self.runs(), 2)
        self.assertIn("the job ends without worker/1", output)

    def test_job_fails_when_all_are_lost(self):
        self.worker("exit 1\n")
        output = self.launched("--workers", 2, "--on-worker-loss", "continue", status=1)
        self.assertIn("worker/0 failed: exit status 1", output)
        self.assertIn("worker/1 failed: exit status 1", output)
        self.assertIn("no worker is left", output)
        self.ps_is_gone()

    def test_stop_while_a_worker_rests(self):
        process = self.launch("--workers", 2, "--restart-workers", 9,
                              env={"END": "exit 1", "TIMES": "9", "UNTIL": "never"})
        process.wait_line("restart 3 of 9")
        self.stop(process, signal.SIGTERM)
        self.assertEqual(self.runs(), process.output.count("restarting in"))
        self.ps_is_gone()

    def test_log_has_every_run(self):
        logs = os.path.join(self.folder, "logs")
        self.lossy("--restart-workers", 1, "--log-dir", logs)
        with open(os.path.join(logs, "worker-1.log"), encoding="utf-8") as file:
            log = file.read()
        self.assertIn("this is run 1", log)
        self.assertIn("this is run 2", log)

    def test_worker_0_is_shown_after_a_restart(self):
        self.worker("[ -e \"$FOLDER/second\" ] && { echo 'the report'; exit 0; }\n"
                    "touch \"$FOLDER/second\"\nexit 1\n")
        logs = os.path.join(self.folder, "logs")
        self.assertIn("the report", self.launched("--restart-workers", 1, "--log-dir", logs))


# Ps $VICTIMS end as $END says, the first $TIMES times that one of them runs.
LOSSY_PS = """#!/bin/sh
all="$*"
while [ "$1" != --task-index ]; do shift; done
index=$2
trap 'echo drained; exit 0' TERM
echo "ps args: $all"
touch "$FOLDER/up-$index"
case " $VICTIMS " in *" $index "*)
    echo run >> "$FOLDER/runs-$index"
    [ "$(wc -l < "$FOLDER/runs-$index")" -gt "$TIMES" ] || eval "$END"
    echo "ps/$index goes on"
esac
while :; do sleep 0.05; done
"""


class Replicas(LaunchTest):
    """Ps that end badly, where their shards have backups. The worker ends when the test says so."""

    def lossy(self, *args, victims="1", end="kill -9 $$", times=1, ps=3, **env):
        self.script("starling-ps", LOSSY_PS)
        self.worker('until [ -e "$FOLDER/enough" ]; do sleep 0.05; done\n')
        return self.launch("--ps", ps, "--replicas", 1, *args,
                           env={"VICTIMS": victims, "END": end, "TIMES": str(times), **env})

    def ends(self, process, status=0):
        self.file("enough", "")
        self.assertEqual(process.wait(), status, process.output)
        return process.output

    def fails(self, process):
        self.assertEqual(process.wait(), 1, process.output)
        return process.output

    def test_a_ps_is_started_again(self):
        process = self.lossy("--restart-ps", 1)
        process.wait_line("ps/1 failed: killed by signal 9 (Killed); restarting in 1 s "
                          "(restart 1 of 1)")
        process.wait_line("ps/1 goes on")
        output = self.ends(process)
        self.assertEqual(output.count("--task-index 1 --replicas 1"), 2)
        self.assertEqual(output.count("drained"), 3)

    def test_the_job_goes_on_without_one(self):
        process = self.lossy("--restart-ps", 1, end="exit 1", times=9)
        process.wait_line("ps/1 failed: exit status 1; the job continues without it")
        output = self.ends(process)
        self.assertIn("(restart 1 of 1)", output)
        self.assertIn("the job ends without ps/1, which failed", output)
        self.assertEqual(output.count("drained"), 2)

    def test_the_job_ends_with_a_ps_and_its_backup(self):
        for victims in ("1 2", "2 3", "1 0"):
            with self.subTest(victims=victims):
                output = self.fails(self.lossy(
                    victims=victims, ps=4, times=99,
                    STARLING_CLUSTER_STORE="etcd://127.0.0.1:1/x"))
                self.assertIn("ended early: killed by signal 9", output)

    def test_ps_0_hosts_the_coordinator(self):
        output = self.fails(self.lossy(victims="0", times=99))
        self.assertIn("ps/0 died and hosted the coordinator", output)
        self.assertIn("ps/0 ended early: killed by signal 9", output)

    def test_ps_0_is_started_again(self):
        process = self.lossy("--restart-ps", 1, victims="0")
        process.wait_line("ps/0 goes on")
        self.ends(process)

    def test_a_bad_flag_ends_the_job(self):
        self.assertIn("ps/1 ended early: exit status 2",
                      self.fails(self.lossy("--restart-ps", 9, end="exit 2", times=99)))


class Rdma(LaunchTest):
    def test_every_ps_is_told(self):
        output = self.launched("--ps", 2, "--rdma")
        for index in range(2):
            self.assertRegex(output, rf"(?m)^\[ps/{index}\] ps args: .* --serve-rdma$")
        self.assertNotRegex(output, r"(?m)^\[worker/0\] worker args: .* --rdma")


class Security(LaunchTest):
    def test_flags_reach_all_processes(self):
        """Read before anything is started, where this is the machine that they must be on."""
        secret = self.file("secret", "0123456789abcdef")
        os.chmod(secret, 0o600)
        c, k, a = (self.file(name, "") for name in "cka")
        output = self.launched("--secret-file", secret, "--tls-cert", c, "--tls-key", k,
                               "--tls-ca", a, "--lease", 3)
        words = f"--secret-file {secret} --tls-cert {c} --tls-key {k} --tls-ca {a}"
        self.assertRegex(output, rf"(?m)^\[ps/0\] ps args: .* --task-index 0 --lease 3 {words}$")
        self.assertRegex(output, rf"(?m)^\[worker/0\] worker args: .* {words}$")
        os.chmod(secret, 0o644)
        self.assertIn(secret, self.launched("--secret-file", secret, status=2))
        self.assertIn("/nonexistent", self.launched(status=2,
                                                    env={"STARLING_SECRET_FILE": "/nonexistent"}))
        self.assertIn("--tls-key is missing", self.launched("--tls-cert", c, status=2))
        self.assertIn("--tls-ca=gone: No such file",
                      self.launched("--tls-cert", c, "--tls-key", k, "--tls-ca", "gone", status=2))


FAKE_SSH = """#!/bin/sh
# As ssh does: the command is one string for the login shell of the other machine, whose environment
# is its own.
echo "ssh to $1" >&2
[ "$1" = unreachable ] && exit 255
[ "$1" = bare ] && set -- bare "$(echo "$2" | sed "s,$PWD,$PWD/not-there,")"
exec env -i PATH="$PATH" FOLDER="$FOLDER" sh -c "$2"
"""


@NEEDS_LOCALHOST
class Ssh(LaunchTest):
    def setUp(self):
        super().setUp()
        self.ssh = self.script("fake ssh", FAKE_SSH)

    def hosts(self, text):
        return self.file("hosts", text)

    def by_ssh(self, hosts, *args, status=0, env=None):
        return self.launched("--ssh", f"'{self.ssh}'", "--insecure", "--host-list",
                             self.hosts(hosts), *args, status=status, env=env)

    def test_other_machines_need_a_secret(self):
        args = ("--ssh", f"'{self.ssh}'", "--host-list", self.hosts("node0 ps\nnode1 worker\n"))
        output = self.launched(*args, status=2)
        self.assertIn("ps/0: control endpoint tcp://node0:20000 is open to the network, and the cluster has no secret", output)
        self.assertIn("--insecure", output)
        self.assertNotIn("ssh to", output)
        output = self.launched(*args, "--insecure")
        self.assertRegex(output, r"(?m)^\[ps/0\] ps args: .* --insecure$")
        self.assertNotRegex(output, r"(?m)^\[worker/0\] worker args: .* --insecure")
        self.forget()
        output = self.launched(*args, "--secret-file", "there/secret")
        self.assertRegex(output, r"(?m)^\[ps/0\] ps args: .* --secret-file there/secret$")
        self.assertRegex(output, r"(?m)^\[worker/0\] worker args: .* --secret-file there/secret$")

    def test_worker_is_started_again(self):
        self.worker("[ -e \"$FOLDER/second\" ] && exit 0\ntouch \"$FOLDER/second\"\nkill -9 $$\n")
        output = self.by_ssh("a ps\nb worker\n", "--restart-workers", 1)
        self.assertIn("worker/0 on b failed: exit status 137; restarting", output)
        self.assertEqual(output.count("[worker/0] ssh to b"), 2)

    def test_job(self):
        output = self.by_ssh("# two machines\n\nlearner@node0 ps\nnode1:2\tworker\n[::1] worker\n",
                             "--ps-reactors", 3, "--port-base", 12000, "--", "-x", "it's", "$HOME",
                             "a  b", '"', env={"STARLING_LOG": "info"})
        self.assertIn("[ps/0] ssh to learner@node0", output)
        self.assertIn("[worker/2] ssh to ::1", output)
        self.assertRegex(output, r"(?m)^\[ps/0\] ps args: .* --reactors 3 --insecure$")
        self.assertRegex(output, r"(?m)^\[worker/1\] worker args: --ps-hosts node0:12000 "
                         r"--num-workers 3 --job-name worker --task-index 1 -x it's \$HOME a  b \"$")
        self.assertIn("[ps/0] drained", output)
        self.ps_is_gone()

    def test_working_folder_goes_along(self):
        self.worker("pwd\n")
        self.assertIn(f"[worker/0] {os.path.realpath(self.folder)}", self.by_ssh("a ps\nb worker\n"))

    def test_missing_working_folder_ends_the_start(self):
        self.worker("echo started\n")
        output = self.by_ssh("a ps\nbare worker\n", status=1)
        self.assertIn(f"cannot enter the working directory {os.path.realpath(self.folder)}/not-there on bare",
                      output)
        self.assertIn("worker/0 on bare failed: exit status 127", output)
        self.assertNotIn("started", output)

    def test_variables_go_along_uncut(self):
        self.check_variables(lambda env: self.by_ssh("a ps\nb worker\n", env=env))

    def test_status_of_a_failing_worker(self):
        self.worker("exit 9\n")
        self.assertIn("worker/0 on b failed: exit status 9", self.by_ssh("a ps\nb worker\n", status=1))
        self.ps_is_gone()

    def test_unreachable_host_is_named(self):
        output = self.by_ssh("a ps\nunreachable worker\n", status=1)
        self.assertIn("worker/0 on unreachable failed: exit status 255", output)
        self.assertIn("could not connect", output)

    def test_remote_ends_when_the_launcher_is_killed(self):
        self.worker("echo up\nexec sleep 600\n")
        process = self.launch("--ssh", f"'{self.ssh}'", "--insecure", "--host-list",
                              self.hosts("a ps\nb worker\n"))
        process.wait_line("[worker/0] up")
        self.kill_launcher(process)

    def test_signal_ends_the_remote(self):
        self.worker("trap 'echo told; exit 0' TERM\necho up\n"
                    "while :; do sleep 0.05; done\n")
        process = self.launch("--ssh", f"'{self.ssh}'", "--insecure", "--host-list",
                              self.hosts("a ps\nb worker\n"))
        process.wait_line("[worker/0] up")
        self.stop(process, signal.SIGINT)
        self.assertIn("[worker/0] told", process.output)

    def test_bad_host_lists(self):
        for text, words in (("a ps\nb\n", ":2: "), ("a ps\nb server\n", ":2: "),
                            ("a ps x\n", "more than a host"), ("a:0 ps\n", "slots"),
                            ("a:x ps\n", "slots"), ("::1 ps\n", "slots"), ("[::1 ps\n", "slots"),
                            ("-oProxyCommand=x ps\n", "not a host"), ("x@-y ps\n", "not a host"),
                            ("a;b ps\n", "not a host"), ("a:2000 ps\n", "more than 1024"),
                            ("a ps\n", "1 server and 0 workers"), ("a" * 600 + " ps\n", "too long"),
                            ("a\0b ps\n" + "x" * 600, ":1: "), ("", "0 servers and 0 workers")):
            output = self.by_ssh(text, status=2)
            self.assertIn("hosts", output)
            self.assertIn(words, output)
        self.assertIn("leave them out", self.by_ssh("a ps\nb worker\n", "--workers", 2, status=2))


FAKE_SCONTROL = """#!/bin/sh
[ "$1 $2" = "show hostnames" ] || exit 1
case "$3" in
    'node[0-1]') printf 'localhost\\n127.0.0.1\\n';;
    *) echo "Invalid hostlist: $3" >&2; exit 1;;
esac
"""

FAKE_SRUN = """#!/bin/sh
# As srun does where --export=NONE was said: of the environment nothing goes along.
echo "srun $1 $2 $3 $4 $5 $6"
shift 6
exec env -i PATH="$PATH" FOLDER="$FOLDER" "$@"
"""


@NEEDS_LOCALHOST
class Slurm(LaunchTest):
    def setUp(self):
        super().setUp()
        self.script("scontrol", FAKE_SCONTROL)
        self.script("srun", FAKE_SRUN)
        self.env = {"PATH": f"{self.folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "4711",
                    "SLURM_JOB_NODELIST": "node[0-1]"}

    def step(self, proc, tasks, **more):
        return {**self.env, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": str(tasks),
                "SLURM_STEP_NODELIST": "node[0-1]", "SLURM_PROCID": str(proc),
                "SLURM_STEP_TASKS_PER_NODE": f"{tasks - 1},1", **more}

    def test_from_the_batch_script(self):
        output = self.launched("--slurm", "--", "--x", env={**self.env, "SLURM_NTASKS": "4"})
        self.assertIn("[ps/0] srun --nodes=1 --ntasks=1 --overlap --quiet --disable-status "
                      "--nodelist=localhost",
                      output)
        self.assertIn("--nodelist=127.0.0.1", output)
        self.assertRegex(output, r"\[worker/2\] worker args: --ps-hosts localhost:\d+ "
                         r"--num-workers 3 --job-name worker --task-index 2 --x")
        self.assertIn("[ps/0] drained", output)

    def test_variables_go_along_uncut(self):
        self.check_variables(lambda env: self.launched("--slurm", env={**self.env, **env}))

    def start_step(self, tasks, *args, **more):
        return [self.launch("--slurm", *args, env=self.step(proc, tasks, **more))
                for proc in range(tasks)]

    def test_one_launcher_a_task(self):
        base = harness.free_ports(2)[0]
        processes = self.start_step(4, "--ps", 2, "--port-base", base)
        self.end_well(processes)
        self.assertIn("[ps/1] drained", processes[1].output)
        self.assertIn(f"[worker/1] worker args: --ps-hosts localhost:{base},localhost:{base + 1} ",
                      processes[3].output)

    def test_cyclic_distribution(self):
        base = harness.free_ports(2)[0]
        processes = self.start_step(4, "--ps", 2, "--port-base", base, SLURM_DISTRIBUTION="cyclic")
        self.end_well(processes)
        self.assertIn(f"--ps-hosts localhost:{base},127.0.0.1:{base + 1} ", processes[2].output)

    def test_failing_worker_of_another_launcher_is_named(self):
        self.worker("case \"$*\" in *'index 1'*) exit 7;; esac\n")
        processes = self.start_step(3, "--port-base", harness.free_ports(1)[0])
        self.assertEqual([process.wait() for process in processes], [1, 0, 1])
        self.assertIn("worker/1 failed", processes[0].output)
        self.assertIn("worker/1 failed: exit status 7", processes[2].output)

    def test_lost_worker_of_another_launcher(self):
        """The job goes on; the lost worker's own launcher has nothing that it could call done."""
        self.worker("case \"$*\" in *'index 1'*) kill -9 $$;; esac\n")
        processes = self.start_step(3, "--port-base", harness.free_ports(1)[0], "--on-worker-loss",
                                    "continue")
        self.assertEqual([process.wait() for process in processes], [0, 0, 1])
        self.assertIn("worker/1 ended: its launcher reports status 1", processes[0].output)
        self.assertIn("the job ends without worker/1", processes[0].output)
        self.assertIn("[ps/0] drained", processes[0].output)
        self.assertIn("worker/1 failed", processes[2].output)
        self.assertNotIn("all failed", processes[2].output)

    def test_bad_environment(self):
        for env, words in (({"SLURM_JOB_ID": "x"}, "SLURM_JOB_ID=x"),
                           ({"SLURM_JOB_NODELIST": "rubbish; touch x"}, "SLURM_JOB_NODELIST=rubbish"),
                           (self.step(5, 3), "SLURM_PROCID=5"),
                           ({"SLURM_NTASKS": "16386"}, "leave 16385 workers"),
                           ({"SLURM_NTASKS": "17409"}, "SLURM_NTASKS=17409"),
                           (self.step(0, 3, SLURM_DISTRIBUTION="plane=2"), "block or cyclic"),
                           (self.step(0, 3, SLURM_STEP_TASKS_PER_NODE="x"), "where every task is")):
            self.assertIn(words, self.launched("--slurm", env={**self.env, **env}, status=2))
        self.assertIn("srun started 3 tasks",
                      self.launched("--slurm", "--workers", 9, env=self.step(0, 3), status=2))
        self.assertFalse(os.path.exists(os.path.join(self.folder, "x")))


class RealPrograms(LaunchTest):
    """The programs themselves, found beside the launcher."""

    def job(self, *args, workers):
        self.run_to_end("starling-worker", "generate", "--out", self.folder, "--rows", "2000",
                        "--test-rows", "500", "--seed", "7")
        report = os.path.join(self.folder, "report.json")
        output = self.run_to_end("starling-launch", *args, "--worker-reactors", 1, "--ps-reactors", 2,
                                 "--", "--data", "train.tsv", "--test", "test.tsv", "--format",
                                 "criteo", "--model", "lr", "--report", report)
        for index in range(workers):
            self.assertIn(f"[worker/{index}] ", output)
        self.assertTrue(os.path.exists(report), output)

    def test_on_this_machine(self):
        self.job("--ps", 2, "--workers", 3, "--bind", "::1", workers=3)

    def test_by_ssh(self):
        hosts = self.file("hosts", "localhost ps\nlocalhost:2 worker\n")
        self.job("--ssh", self.script("ssh", FAKE_SSH), "--host-list", hosts, "--port-base",
                 harness.free_ports(1)[0], workers=2)


if __name__ == "__main__":
    harness.main()
