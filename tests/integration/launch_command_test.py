#!/usr/bin/env python3
"""starling-launch with programs of the user as workers: on this machine, and with scripts in place of
ssh, srun and scontrol. starling-ps is a shell script, but in RealServers."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import time

import harness
from launch_test import FAKE_SCONTROL, FAKE_SRUN, FAKE_SSH, NEEDS_LOCALHOST, LaunchTest

SHOW = ("sh", "-c", 'env | grep -E "^(RANK|WORLD_SIZE|LOCAL_|MASTER_|STARLING_|TF_CONFIG)"')

# Words that a shell would change.
WORDS = ("it's", '"', "$HOME `id` $(id)", "a  b", "", "\\", "*", "two\nlines", "-x", "A=1", "~", ";exit 3")
PRINT = ("printf", "<%s>\\n")
PRINTED = "".join(f"<{word}>\n" for word in WORDS).splitlines()

# The first time that worker 1 runs, it is killed.
ONCE = """
echo "rank $RANK of $WORLD_SIZE"
if [ "$RANK" = 1 ] && [ ! -e "$FOLDER/ended" ]; then touch "$FOLDER/ended"; kill -9 $$; fi
"""


class CommandTest(LaunchTest):
    def places(self, output):
        """The variables that SHOW printed, by worker, as strings; TF_CONFIG is parsed."""
        places = {}
        for worker, name, value in re.findall(r"(?m)^\[worker/(\d+)\] (\w+)=(.*)$", output):
            places.setdefault(int(worker), {})[name] = json.loads(value) if name == "TF_CONFIG" else value
        return [places[index] for index in range(len(places))]

    def check_places(self, output, hosts, coordinators, master_port=None):
        """hosts: of the workers; coordinators: the control endpoints of all servers."""
        places = self.places(output)
        self.assertEqual(len(places), len(hosts), output)
        for index, (place, host) in enumerate(zip(places, hosts)):
            self.assertEqual(place["RANK"], str(index))
            self.assertEqual(place["WORLD_SIZE"], str(len(hosts)))
            self.assertEqual(place["LOCAL_RANK"], str(hosts[:index].count(host)))
            self.assertEqual(place["LOCAL_WORLD_SIZE"], str(hosts.count(host)))
            self.assertEqual(place["MASTER_ADDR"], hosts[0].strip("[]"))
            self.assertEqual(place["MASTER_PORT"], str(master_port or places[0]["MASTER_PORT"]))
            self.assertEqual(place["STARLING_COORDINATOR"], coordinators[0])
            self.assertEqual(place["TF_CONFIG"], {"cluster": {"ps": coordinators, "worker": hosts},
                                                  "task": {"type": "worker", "index": index}})
        return places

    def check_words(self, output):
        """What PRINT printed of WORDS."""
        printed = [line[len("[worker/0] "):] for line in output.splitlines()
                   if line.startswith("[worker/0] ") and not line.startswith("[worker/0] ss")]
        self.assertEqual([line for line in printed if not line.startswith("srun ")], PRINTED)

    def bad_commands(self):
        """(command, exit status of a shell, reason)"""
        script = self.file("plain file", "#!/bin/sh\necho started\n")
        os.chmod(script, stat.S_IRUSR | stat.S_IWUSR)
        return (("no-such-command", 127, "No such file or directory"),
                (self.folder + "/missing", 127, "No such file or directory"),
                (script, 126, "Permission denied"))

    def is_gone(self, pid):
        end = time.monotonic() + harness.DEADLINE_S
        while time.monotonic() < end:
            try:
                with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                    if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                        return
            except (ProcessLookupError, FileNotFoundError):
                return
            time.sleep(0.02)
        self.fail(f"process {pid} is still there")

    def check_nothing_is_left(self, job):
        """job(*command) runs a script that leaves a process behind, whose output is the script's."""
        job("sh", "-c", 'sleep 600 & echo $! > "$FOLDER/left"')
        with open(os.path.join(self.folder, "left"), encoding="ascii") as file:
            self.is_gone(int(file.read()))

    def check_once(self, job):
        """job(*command) runs two workers; one is restarted, and keeps its rank."""
        output = job("sh", "-c", ONCE)
        self.assertEqual(output.count("[worker/0] rank 0 of 2"), 1, output)
        self.assertEqual(output.count("[worker/1] rank 1 of 2"), 2, output)
        self.assertRegex(output, r"worker/1.* failed: .*; restarting in 1 s \(restart 1 of 1\)")


def servers(output, count):
    """--ps-hosts, as the fake servers print them."""
    hosts = re.search(r"(?m)^\[ps/0\] ps args: --ps-hosts (\S+) ", output)[1].split(",")
    assert len(hosts) == count, output
    return hosts


UP = 'until [ -e "$FOLDER/up-0" ]; do sleep 0.02; done; '


class Local(CommandTest):
    def show(self, *args, **more):
        command = (*SHOW[:2], UP + SHOW[2])
        return self.launched(*args, "--", *command, **more)

    def test_environment(self):
        stale = {"RANK": "77", "WORLD_SIZE": "78", "MASTER_ADDR": "stale", "TF_CONFIG": "stale",
                 "STARLING_COORDINATOR": "stale:1"}
        output = self.show("--ps", 2, "--workers", 3, env=stale)
        hosts = servers(output, 2)
        places = self.check_places(output, ["127.0.0.1"] * 3, hosts)
        self.assertNotIn(places[0]["MASTER_PORT"], [host.rsplit(":", 1)[1] for host in hosts])

    def test_environment_with_ipv6_and_a_port(self):
        output = self.show("--workers", 2, "--bind", "::1", "--master-port", 4321)
        self.check_places(output, ["[::1]"] * 2, servers(output, 1), 4321)

    def test_workers_of_starling_have_it_too(self):
        self.worker(SHOW[2] + "\n")
        output = self.launched("--workers", 2)
        self.check_places(output, ["127.0.0.1"] * 2, servers(output, 1))

    def test_any_server_may_host_the_coordinator(self):
        output = self.show("--ps", 2, "--cluster-store", "etcd://127.0.0.1:1/job")
        place = self.places(output)[0]
        self.assertEqual(place["STARLING_COORDINATOR"], ",".join(servers(output, 2)))
        self.assertEqual(place["STARLING_CLUSTER_STORE"], "etcd://127.0.0.1:1/job")

    def test_flags_of_workers_become_variables(self):
        secret = self.file("secret", "0123456789abcdef")
        os.chmod(secret, 0o600)
        place = self.places(self.show("--secret-file", secret, "--worker-reactors", 3,
                                      env={"STARLING_SECRET_FILE": "stale"}))[0]
        self.assertEqual(place["STARLING_SECRET_FILE"], secret)
        self.assertEqual(place["STARLING_WORKER_REACTORS"], "3")

    def test_words_arrive_as_they_are(self):
        self.check_words(self.launched("--", *PRINT, *WORDS))

    def test_failing_command_is_named(self):
        output = self.launched("--workers", 3, "--", "sh", "-c", '[ $RANK != 1 ] || exit 7; sleep 600',
                               status=1)
        self.assertIn("worker/1 failed: exit status 7\n", output)

    def test_killed_command_is_restarted_and_keeps_its_rank(self):
        self.check_once(lambda *command: self.launched("--workers", 2, "--restart-workers", 1, "--", *command))

    def test_killed_command_ends_the_job(self):
        output = self.launched("--", "sh", "-c", "kill -9 $$", status=1)
        self.assertIn("worker/0 failed: killed by signal 9 (Killed)", output)

    def test_bad_commands(self):
        bad = [(command, reason) for command, _, reason in self.bad_commands()]
        for command, reason in [*bad, (self.folder, "Is a directory")]:
            output = self.launched("--restart-workers", 5, "--on-worker-loss", "continue", "--", command, "x",
                                   status=1)
            self.assertIn(f"worker/0: cannot run {command} on {socket.gethostname()}: {reason}", output)
            self.assertNotIn("restarting", output)

    def test_command_in_a_shell_that_does_not_exist(self):
        """As much a mistake as without the shell."""
        output = self.launched("--restart-workers", 5, "--", "sh", "-c", "no-such-command", status=1)
        self.assertIn("worker/0 failed: exit status 127: sh, or a command that it runs, was not found", output)
        self.assertNotIn("restarting", output)

    def test_nothing_of_a_script_is_left(self):
        self.check_nothing_is_left(lambda *command: self.launched("--", *command))
        self.check_nothing_is_left(lambda *command: self.launched(
            "--", *command[:2], command[2] + "; kill -9 $$", status=1))

    def test_output_goes_to_logs(self):
        logs = os.path.join(self.folder, "logs")
        output = self.launched("--workers", 2, "--log-dir", logs, "--", "sh", "-c", "echo out $RANK")
        self.assertIn("out 0", output.splitlines())
        self.assertNotIn("out 1", output)
        with open(os.path.join(logs, "worker-1.log"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "out 1\n")

    def test_closed_output_is_no_other_file(self):
        """The number of a closed stream must not become that of a pipe or socket, which then gets the output."""
        for closed in (">&-", "<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"):
            script = (f'"$0" --bin-dir "$FOLDER" --log-dir "$FOLDER/logs" -- sh -c "echo out; echo err >&2" {closed}; '
                      'echo status $?')
            job = subprocess.run(["sh", "-c", script, harness.program("starling-launch")], capture_output=True,
                                 env=harness.environment({"FOLDER": self.folder}), text=True, check=False,
                                 timeout=harness.DEADLINE_S)
            self.assertEqual(job.stdout, "status 0\n", job.stderr)
            with open(os.path.join(self.folder, "logs", "worker-0.log"), encoding="utf-8") as log:
                self.assertEqual(sorted(log.read().split())[-2:], ["err", "out"])

    def test_text_that_cannot_be_printed_is_an_error(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        for program in ("starling-launch", "starling-worker"):
            for flag in ("--help", "--version", "--show-config"):
                with open("/dev/full", "wb") as full:
                    done = subprocess.run([harness.program(program), flag], stdout=full, stderr=subprocess.PIPE,
                                          env=harness.environment({}), text=True, check=False,
                                          timeout=harness.DEADLINE_S)
                self.assertNotEqual(done.returncode, 0, (program, flag))
                self.assertIn("cannot write to the standard output", done.stderr)

    def test_signal_reaches_the_command(self):
        process = self.launch("--", "sh", "-c", UP + "trap 'echo told; exit 0' TERM; echo up; "
                              "while :; do sleep 0.05; done")
        process.wait_line("[worker/0] up")
        self.stop(process, signal.SIGTERM)
        self.assertIn("[worker/0] told", process.output)

    def test_bad_flags(self):
        for args, words in ((["--", "A=1", "x"], "A=1: accepts a command without =; for a variable write: env"),
                            (["--worker-dpdk-device", "m?addr=10.0.0.1", "--", "x"], "STARLING_DPDK_DEVICE"),
                            (["--master-port", 0], "--master-port=0: accepts a whole number from 1"),
                            (["--master-port", 65536], "--master-port=65536: accepts a whole number from 1")):
            self.assertIn(words, self.launched(*args, status=2))


@NEEDS_LOCALHOST
class Ssh(CommandTest):
    def setUp(self):
        super().setUp()
        self.ssh = self.script("fake ssh", FAKE_SSH)

    def by_ssh(self, hosts, *args, status=0, env=None):
        return self.launched("--ssh", f"'{self.ssh}'", "--insecure", "--host-list", self.file("hosts", hosts),
                             *args, status=status, env=env)

    def test_environment(self):
        hosts = "node0 ps\nme@node1:2 worker\n[::1] worker\nnode1 worker\n"
        workers = ["node1", "node1", "[::1]", "node1"]
        output = self.by_ssh(hosts, "--", *SHOW, env={"RANK": "77", "STARLING_COORDINATOR": "stale:1"})
        self.check_places(output, workers, ["node0:20000"], 29500)
        output = self.by_ssh(hosts, "--master-port", 4321, "--secret-file", "there", "--", *SHOW)
        places = self.check_places(output, workers, ["node0:20000"], 4321)
        self.assertEqual({place["STARLING_SECRET_FILE"] for place in places}, {"there"})

    def test_words_arrive_as_they_are(self):
        self.check_words(self.by_ssh("a ps\nb worker\n", "--", *PRINT, *WORDS))

    def test_killed_command_is_restarted_and_keeps_its_rank(self):
        self.check_once(lambda *command: self.by_ssh("a ps\nb:2 worker\n", "--restart-workers", 1, "--", *command))

    def test_bad_commands(self):
        """env(1) gives the reason there, the launcher the command and the host."""
        for command, code, reason in (*self.bad_commands(), (self.folder, 126, "Permission denied")):
            output = self.by_ssh("a ps\nb worker\n", "--restart-workers", 5, "--", command, "x", status=1)
            self.assertIn(f"worker/0 on b failed: exit status {code}: {command}, or a command that it runs, ",
                          output)
            self.assertRegex(output, rf"(?m)^\[worker/0\] env: .*{re.escape(command)}.*: {reason}$")
            self.assertNotIn("restarting", output)

    def test_nothing_of_a_script_is_left(self):
        self.check_nothing_is_left(lambda *command: self.by_ssh("a ps\nb worker\n", "--", *command))


@NEEDS_LOCALHOST
class Slurm(CommandTest):
    def setUp(self):
        super().setUp()
        self.script("scontrol", FAKE_SCONTROL)
        self.script("srun", FAKE_SRUN)
        self.env = {"PATH": f"{self.folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "4711",
                    "SLURM_JOB_NODELIST": "node[0-1]"}

    def by_steps(self, tasks, *args, status=0, env=None):
        """As a batch script does."""
        return self.launched("--slurm", *args, status=status,
                             env={**self.env, "SLURM_NTASKS": str(tasks), "SLURM_PROCID": "0", **(env or {})})

    def by_srun(self, tasks, *args, **more):
        """srun starts one launcher per task, which finds its place from all the others'."""
        env = {**self.env, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": str(tasks),
               "SLURM_STEP_NODELIST": "node[0-1]", "SLURM_STEP_TASKS_PER_NODE": f"{tasks - 2},2", **more}
        return [self.launch("--slurm", *args, env={**env, "SLURM_PROCID": str(proc)}) for proc in range(tasks)]

    def test_environment_of_steps(self):
        output = self.by_steps(4, "--port-base", 12000, "--", *SHOW)
        self.check_places(output, ["127.0.0.1", "localhost", "127.0.0.1"], ["localhost:12000"], 29500)

    def test_environment_of_tasks(self):
        for distribution, workers in (("block", ["localhost", "localhost", "127.0.0.1", "127.0.0.1"]),
                                      ("cyclic", ["127.0.0.1", "localhost", "127.0.0.1", "localhost"])):
            port = harness.free_ports(2)[0]
            processes = self.by_srun(5, "--port-base", port, "--master-port", 4321, "--", *SHOW,
                                     SLURM_DISTRIBUTION=distribution)
            self.end_well(processes)
            output = "".join(process.output + "\n" for process in processes)
            self.check_places(output, workers, [f"localhost:{port}"], 4321)

    def test_words_arrive_as_they_are(self):
        self.check_words(self.by_steps(2, "--", *PRINT, *WORDS))

    def test_killed_command_is_restarted_and_keeps_its_rank(self):
        self.check_once(lambda *command: self.by_steps(3, "--restart-workers", 1, "--", *command))

    def test_bad_commands_of_steps(self):
        for command, code, reason in (*self.bad_commands(), (self.folder, 126, "Permission denied")):
            output = self.by_steps(2, "--restart-workers", 5, "--", command, "x", status=1)
            self.assertIn(f"worker/0 on 127.0.0.1 failed: exit status {code}: {command}, ", output)
            self.assertRegex(output, rf"(?m)^\[worker/0\] .*{re.escape(command)}.*: {reason}$")
            self.assertNotIn("restarting", output)

    def test_bad_command_of_tasks(self):
        """Every launcher ends, the server's too."""
        processes = self.by_srun(3, "--port-base", harness.free_ports(2)[0], "--", "no-such-command")
        self.assertEqual([process.wait() for process in processes], [1, 1, 1])
        self.assertIn(f"worker/1: cannot run no-such-command on {socket.gethostname()}: No such file",
                      processes[2].output)
        self.assertRegex(processes[0].output, r"worker/\d failed: its launcher reports status 1")


class RealServers(harness.StarlingTest):
    def test_workers_may_end_before_the_servers_have_started(self):
        for _ in range(5):
            self.run_to_end("starling-launch", "--ps", 3, "--ps-reactors", 1, "--", "true")


class OwnWorker(harness.StarlingTest):
    """examples/worker.c, which knows its job from the environment alone: 100 iterations of BSP."""

    WORKER = harness.program("example_worker")

    def check(self, output, workers):
        for index in range(workers):
            self.assertIn(f"worker {index} of {workers}: {100 * workers}\n", output + "\n")

    def script(self, name, text):
        path = self.file(name, text)
        os.chmod(path, stat.S_IRWXU)
        return path

    def launched(self, *args, env=None):
        return self.run_to_end("starling-launch", "--ps-reactors", 1, *args, "--", *self.command, env=env)

    command = (WORKER,)

    def test_on_this_machine(self):
        self.check(self.launched("--ps", 2, "--workers", 3, env={"STARLING_TASK_INDEX": "2", "RANK": "2"}), 3)

    def test_with_a_secret(self):
        secret = self.file("secret", "0123456789abcdef")
        os.chmod(secret, 0o600)
        self.check(self.launched("--workers", 2, "--secret-file", secret), 2)

    def test_restarted(self):
        self.command = ("sh", "-c", f"[ $RANK = 0 ] || [ -e ended ] || {{ touch ended; kill -9 $$; }}; exec {self.WORKER}")
        output = self.launched("--workers", 2, "--restart-workers", 1)
        self.assertIn("(restart 1 of 1)", output)
        self.check(output, 2)

    @NEEDS_LOCALHOST
    def test_by_ssh(self):
        self.check(self.launched("--ssh", self.script("ssh", FAKE_SSH), "--port-base", harness.free_ports(1)[0],
                                 "--host-list", self.file("hosts", "localhost ps\nlocalhost:2 worker\n")), 2)

    @NEEDS_LOCALHOST
    def test_under_slurm(self):
        self.script("scontrol", FAKE_SCONTROL)
        self.script("srun", FAKE_SRUN)
        env = {"PATH": f"{self.folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "4711", "SLURM_NTASKS": "3",
               "SLURM_JOB_NODELIST": "node[0-1]"}
        self.check(self.launched("--slurm", "--port-base", harness.free_ports(2)[0], env=env), 2)

    def check_started_by(self, environment):
        """By another launcher, beside servers that run: environment(index) are its variables of a worker."""
        servers, flags = self.start_ps(worker_count=2)
        workers = [self.start("example_worker", env={"STARLING_COORDINATOR": flags[1], **environment(index)})
                   for index in range(2)]
        self.end_well(workers)
        self.check("\n".join(worker.output for worker in workers), 2)
        self.drain(servers)

    def test_under_torchrun(self):
        self.check_started_by(lambda index: {"RANK": str(index), "WORLD_SIZE": "2", "LOCAL_RANK": str(index),
                                             "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"})

    def test_under_srun(self):
        self.check_started_by(lambda index: {"SLURM_PROCID": str(index), "SLURM_NTASKS": "2"})

    def test_without_a_source(self):
        worker = self.start("example_worker", env={"RANK": "0", "WORLD_SIZE": "1"})
        self.assertEqual(worker.wait(), 1)
        self.assertIn("worker: client: no coordinator: give --starling-coordinator=", worker.output)


if __name__ == "__main__":
    harness.main()
