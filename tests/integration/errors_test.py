#!/usr/bin/env python3
"""Bad input to the programs: each gives an error that names what was wrong and what is accepted, and
a non-zero exit."""

import contextlib
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time

import harness

PR_CAPBSET_DROP, CAP_NET_BIND_SERVICE = 24, 10


def without_low_ports():
    """In a child that is root's, before exec: ports for root only are refused to the program."""
    harness.LIBC.prctl(PR_CAPBSET_DROP, CAP_NET_BIND_SERVICE, 0, 0, 0)


def with_one_thread():
    """In a child, before exec: the program can start no second thread. No such limit is root's."""
    resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
    if os.getuid() == 0:
        number = 40000 + os.getpid() % 20000  # a user of whom there is nothing else
        os.setgroups([])
        os.setgid(number)
        os.setuid(number)


class FlagErrors(harness.StarlingTest):
    def refuses(self, name, args, *words, env=None, status=2):
        output = self.run_to_end(name, *args, env=env, status=status)
        for word in words:
            self.assertIn(word, output)

    def test_unknown_flag_names_the_nearest(self):
        for name in ("starling-ps", "starling-worker"):
            self.refuses(name, ["--ps-host", "127.0.0.1:1"], "--ps-host", "--ps-hosts")
        self.refuses("starling-launch", ["--worker", "1"], "--worker", "--workers")
        self.refuses("starling-worker", ["-e", "2"], "-e", "two dashes")
        self.refuses("starling-ps", ["docter"], "docter", "doctor")

    def test_settings_without_effect(self):
        for args, words in ((["--staleness", "3"], ("--staleness", "asp")),
                            (["--staleness", "1"], ("--staleness", "asp")),  # the default's value
                            (["--consistency", "ssp:2", "--staleness", "3"], ("--staleness", "ssp:2")),
                            (["--beta1", "0.5"], ("--beta1", "adagrad", "adam")),
                            (["--factors", "8"], ("--factors", "lr", "fm"))):
            self.refuses("starling-worker", ["--ps-hosts", "127.0.0.1:1", "--worker-hosts", "a", "--data",
                                             "d", *args], *words)

    def test_settings_of_optimizers(self):
        """Each optimizer takes the settings that its formula reads, and no others: those that it takes together, and the
        error of each setting, which lists the optimizers that take it."""
        adams = ("adam", "adamw", "adam_async", "rowwise_adam", "lamb")
        adagrads = ("adagrad", "adagrad_decay", "rowwise_adagrad")
        ftrls = ("ftrl", "ftrl_group")
        every = ("sum", "sgd", "momentum", "rmsprop", "adadelta", "lion", *adams, *adagrads, *ftrls)
        reads = {"--momentum": ("momentum", "rmsprop"), "--rho": ("rmsprop", "adadelta", "adagrad_decay"),
                 "--beta1": (*adams, "lion"), "--epsilon": (*adams, *adagrads, "rmsprop", "adadelta"),
                 "--weight-decay": ("adamw", "lamb"), "--initial-accumulator": (*adagrads, *ftrls),
                 "--l1": ftrls, "--decay-baseline": ("adagrad_decay",), "--clip-norm": every, "--value-bound": every}
        decays = [optimizer for optimizer in every if optimizer not in ("sum", "adamw", "lamb", *ftrls)]
        reads["--decay"], reads["--weight-decay"] = decays, [*decays, "adamw", "lamb"]
        for optimizer in every:
            settings = [(setting, "l2" if setting == "--decay" else "0.5") for setting, owners in reads.items()
                        if optimizer in owners]
            self.takes(optimizer, "no servers: give", *(word for setting in settings for word in setting))
            if optimizer in decays:
                self.takes(optimizer, f"--weight-decay has no effect with --optimizer {optimizer} without --decay",
                           "--weight-decay", "0.5", "--decay", "none")
        for setting, owners in reads.items():
            for optimizer in [optimizer for optimizer in every if optimizer not in owners][:1]:
                output = self.takes(optimizer, f"{setting} has no effect with --optimizer {optimizer}", setting,
                                    "l2" if setting == "--decay" else "0.5")
                self.assertEqual(set(output.rpartition("it is a setting of ")[2].strip().split(", ")), set(owners))

    def takes(self, optimizer, words, *settings):
        with self.subTest(settings=settings, optimizer=optimizer):
            output = self.run_to_end("starling-worker", "--data", "d", "--optimizer", optimizer, *settings, status=2)
            self.assertIn(words, output)
            return output

    def test_no_cluster(self):
        self.refuses("starling-worker", ["--data", "d"], "--ps-hosts", "TF_CONFIG")

    def test_bad_endpoint(self):
        self.refuses("starling-ps", ["--ps-hosts", "127.0.0.1:99999", "--worker-hosts", "a",
                                     "--job-name", "ps", "--task-index", "0"], "99999", "65535")

    def test_task_index_outside(self):
        self.refuses("starling-ps", ["--ps-hosts", "127.0.0.1:1", "--worker-hosts", "a", "--job-name",
                                     "ps", "--task-index", "3"], "task-index", "3")

    def test_wrong_role(self):
        self.refuses("starling-worker", ["--ps-hosts", "127.0.0.1:1", "--worker-hosts", "a",
                                         "--job-name", "ps", "--task-index", "0"], "job-name")

    def test_rdma(self):
        ps = ["--ps-hosts", "127.0.0.1:1", "--worker-hosts", "a"]
        for name in ("starling-ps", "starling-worker"):
            self.refuses(name, ps + ["--rdma-device", "a,,b"], "--rdma-device=a,,b", "mlx5_0")
            self.refuses(name, ps + ["--rdma-gid-index", "first"], "--rdma-gid-index=first", "0 to 65535")
        alone = ["--endpoint-map", self.file("alone", "127.0.0.1:1=rdma://127.0.0.1:1\n"), "--worker-hosts", "a"]
        for name, args in (("starling-ps", ps + ["--rdma"]), ("starling-worker", alone)):
            self.refuses(name, args, "MC_GID_INDEX is 3", "NCCL_IB_GID_INDEX is 1", "--rdma-gid-index",
                         env={"MC_GID_INDEX": "3", "NCCL_IB_GID_INDEX": "1"})
            self.refuses(name, args, "NCCL_IB_GID_INDEX=auto", "0 to 65535", env={"NCCL_IB_GID_INDEX": "auto"})
        near = self.file("near", "127.0.0.1:1=shm://near:1\n")
        self.refuses("starling-ps", ["--endpoint-map", near, "--rdma"], "--rdma", "shm://near:1")

    def test_dpdk(self):
        """With the plug-in or without."""
        ps = ["--ps-hosts", "127.0.0.1:1", "--worker-hosts", "a"]
        alone = ["--endpoint-map", self.file("alone", "127.0.0.1:1=dpdk://10.0.0.1:1\n"), "--worker-hosts", "a"]
        for name in ("starling-ps", "starling-worker"):
            self.refuses(name, ps + ["--dpdk-device", "net_memif0"], "--dpdk-device", "net_memif0",
                         "addr is missing")
            self.refuses(name, ps, "STARLING_DPDK_DEVICE", "mtu is not a number",
                         env={"STARLING_DPDK_DEVICE": "a?addr=10.0.0.1&mtu=x"})
            self.refuses(name, alone, "data endpoint dpdk://10.0.0.1:1: ")
        self.refuses("starling-ps", alone + ["--dpdk-device", "a?addr=10.0.0.2"], "dpdk://10.0.0.1:1")
        self.refuses("starling-ps", ps + ["--rdma", "--dpdk-device", "a?addr=10.0.0.2"], "RDMA", "--dpdk-device")

    def test_shards(self):
        two = ["--ps-hosts", "127.0.0.1:1,127.0.0.1:2", "--task-index", 0, "--reactors", 3, "--shards"]
        for shards, *words in ((7, "--shards 7", "multiples of 2 from 6 to 512"), (4, "from 6"), (514, "to 512"),
                               (0, "1 to 4096"), (5000, "1 to 4096"), ("many", "--shards")):
            self.refuses("starling-ps", [*two, shards], *words)

    def test_bad_model(self):
        self.refuses("starling-worker", ["--model", "svm"], "svm", "lr", "deepfm")

    def test_help_and_version(self):
        for name in ("starling-ps", "starling-worker", "starling-launch", "starling-bench"):
            self.assertIn("usage", self.run_to_end(name, "--help").lower())
            self.assertRegex(self.run_to_end(name, "--version"), r"\d+\.\d+\.\d+")


class EnvironmentErrors(harness.StarlingTest):
    CLUSTER = ["--ps-hosts", "127.0.0.1:1", "--worker-hosts", "a", "--job-name", "ps", "--task-index",
               "0"]

    def refuses(self, variable, value, *words, status=2):
        output = self.run_to_end("starling-ps", *self.CLUSTER, env={variable: value}, status=status)
        for word in (variable, value, *words):
            self.assertIn(word, output)

    def test_reactors(self):
        for value in ("0", "-1", "many", "1000000"):
            self.refuses("NETWORK_PS_CORE_NUMBER", value, "1", "256")

    def test_restore_without_a_folder(self):
        self.refuses("STARLING_RESTORE", "newest", "--checkpoint-dir")


class EndpointMapErrors(harness.StarlingTest):
    def refuses(self, text, *words):
        path = self.file("map", text)
        output = self.run_to_end("starling-ps", "--endpoint-map", path, "--worker-hosts", "a",
                                 "--job-name", "ps", "--task-index", "0", status=2)
        for word in (path, *words):
            self.assertIn(word, output)

    def test_line_without_equals(self):
        self.refuses("# comment\n\n127.0.0.1:3333\n", ":3:")

    def test_a_map_without_this_ps(self):
        for text, words in (("127.0.0.1:4444=127.0.0.1:1\n", ("no line for ps/0", "127.0.0.1:3333=DATA_URI")),
                            ("# nothing\n", ("no line for ps/0",))):
            path = self.file("map", text)
            output = self.run_to_end("starling-ps", "--endpoint-map", path, "--ps-hosts", "127.0.0.1:3333",
                                     "--worker-hosts", "a", status=2)
            for word in (path, *words):
                self.assertIn(word, output)

    def test_missing_file(self):
        output = self.run_to_end("starling-ps", "--endpoint-map", "/nonexistent/map", status=2)
        self.assertIn("/nonexistent/map", output)


class TfConfigErrors(harness.StarlingTest):
    def refuses(self, text, *words):
        output = self.run_to_end("starling-ps", env={"TF_CONFIG": text}, status=2)
        for word in ("TF_CONFIG", *words):
            self.assertIn(word, output)

    def test_not_json(self):
        self.refuses("{", "line 1")


class DataErrors(harness.StarlingTest):
    def worker_says(self, name, text, kind, *words):
        path = self.file(name, text)
        servers, flags = self.start_ps()
        worker = self.start_workers(flags, 1, ["--data", path, "--test", path, "--format", kind,
                                               "--model", "lr"])[0]
        self.assertEqual(worker.wait(), 1, worker.output)
        for word in (path, *words):
            self.assertIn(word, worker.output)
        self.drain(servers)

    def test_libsvm_bad_index(self):
        self.worker_says("d", "1 3:1\n0 x:1\n", "libsvm", ":2")

    def test_criteo_too_few_fields(self):
        self.worker_says("d", "1\t2\t3\n", "criteo", ":1", "40")

    def test_binary_rubbish(self):
        self.worker_says("d", bytes(range(256)) * 64, "libsvm", ":1")

    def test_no_row(self):
        self.worker_says("d", "\n# nothing\n", "libsvm", "no row")

    def test_rows_of_many_features(self):
        """Only deepfm has a limit: its tower has an input for each field."""
        features = " ".join(f"{key}:1" for key in range(5000))
        path = self.file("d", f"1 {features}\n0 {features}\n")
        servers, flags = self.start_ps()
        worker = self.start_workers(flags, 1, ["--data", path, "--model", "lr"])[0]
        self.assertEqual(worker.wait(), 0, worker.output)
        self.drain(servers)
        worker = self.start_workers(flags, 1, ["--data", path, "--model", "deepfm"])[0]
        self.assertEqual(worker.wait(), 1, worker.output)
        self.assertIn("5000 features", worker.output)
        self.assertIn("4096 fields", worker.output)

    def test_compressed(self):
        self.worker_says("d", b"\x1f\x8b\x08" + bytes(16), "libsvm", "gzip")

    def test_model_that_diverges(self):
        """The worker fails at the loss that is no number, and pushes nothing of it."""
        path = self.file("d", "1 1:1e30 2:1e30\n0 1:1e30 2:1e30\n" * 200)
        servers, flags = self.start_ps()
        worker = self.start_workers(flags, 1, ["--data", path, "--model", "fm", "--optimizer", "sgd",
                                               "--lr", "1e6", "--epochs", "50"])[0]
        self.assertEqual(worker.wait(), 1, worker.output)
        self.assertIn("diverged", worker.output)
        self.drain(servers)

    def test_test_data_is_read_before_the_training(self):
        """Servers are not even looked for."""
        data = self.file("d", "1 1:1\n0 2:1\n")
        for text, word in (("1 1:1\n", "0 rows of label 0 and 1 of label 1"), ("1 1:1\n0 2:1\n0 2:", ":3:")):
            output = self.run_to_end("starling-worker", "--ps-hosts", "127.0.0.1:1", "--num-workers", 1, "--task-index", 0,
                                     "--data", data, "--test", self.file("t", text), "--model", "lr", status=1)
            self.assertIn(word, output)
            self.assertNotIn("127.0.0.1:1", output)

    def test_missing_file(self):
        servers, flags = self.start_ps()
        worker = self.start_workers(flags, 1, ["--data", "/nonexistent", "--test", "/nonexistent"])[0]
        self.assertNotEqual(worker.wait(), 0)
        self.assertIn("/nonexistent", worker.output)
        self.drain(servers)


class StartErrors(harness.StarlingTest):
    def test_port_in_use(self):
        with contextlib.closing(socket.socket()) as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            port = holder.getsockname()[1]
            output = self.run_to_end("starling-ps", "--ps-hosts", f"127.0.0.1:{port}",
                                     "--worker-hosts", "a", "--job-name", "ps", "--task-index", "0",
                                     status=1)
            self.assertIn(f"127.0.0.1:{port}", output)
            self.assertIn("in use", output)

    def test_port_that_is_not_allowed(self):
        bind = "import socket; socket.socket().bind(('127.0.0.1', 1))"
        tried = subprocess.run([sys.executable, "-c", bind], preexec_fn=without_low_ports, check=False,
                               capture_output=True, text=True, timeout=harness.DEADLINE_S)
        if "PermissionError" not in tried.stderr:
            self.skipTest("port 1 is refused to nobody here (net.ipv4.ip_unprivileged_port_start)")
        output = self.run_to_end("starling-ps", "--ps-hosts", "127.0.0.1:1", "--worker-hosts", "a",
                                 "--job-name", "ps", "--task-index", "0", before=without_low_ports, status=1)
        self.assertRegex(output, r"cannot listen on \S*127\.0\.0\.1:1: Permission denied")

    def test_limit_on_threads_is_named(self):
        os.chmod(self.folder, 0o755)  # another user has to enter it
        env = {"ASAN_OPTIONS": "detect_leaks=0"}  # the search for leaks takes a thread
        try:
            process = self.start("starling-ps", "--version", env=env, before=with_one_thread)
        except (OSError, subprocess.SubprocessError) as error:
            self.skipTest(f"no program can be run as a user who has a limit on threads: {error}")
        self.assertEqual(process.wait(), 0, process.output)
        port = harness.free_ports(1)[0]
        output = self.run_to_end("starling-ps", "--ps-hosts", f"127.0.0.1:{port}", "--worker-hosts", "a",
                                 "--job-name", "ps", "--task-index", "0", env=env, before=with_one_thread,
                                 status=1)
        self.assertIn("the user's or the container's limit on threads is reached (ulimit -u, pids.max)", output)

    def test_missing_ps_is_named(self):
        first, second = harness.free_ports(2)
        hosts = f"127.0.0.1:{first},127.0.0.1:{second}"
        for timeout in ("1s", "10s"):  # the second if the machine stood still
            server = self.start("starling-ps", "--ps-hosts", hosts, "--num-workers", 1, "--start-timeout", timeout,
                                "--job-name", "ps", "--task-index", "0")
            self.assertEqual(server.wait(), 1, server.output)
            if "ps/1" in server.output:
                break
        self.assertIn("ps/1", server.output)

    def test_missing_coordinator_is_named(self):
        port = harness.free_ports(1)[0]
        data = self.file("d", "1 1:1\n0 1:1\n")
        output = self.run_to_end("starling-worker", "--ps-hosts", f"127.0.0.1:{port}",
                                 "--worker-hosts", "a", "--job-name", "worker", "--task-index", "0",
                                 "--start-timeout", "300ms", "--data", data, "--test", data, status=1)
        self.assertIn(f"127.0.0.1:{port}", output)
        self.assertIn("coordinator", output)

    def test_counts_of_workers_that_disagree(self):
        """Else a part of the data would be nobody's."""
        data = self.file("d", "1 1:1 2:1\n0 3:1 4:1\n" * 50)
        servers, flags = self.start_ps(worker_count=2)
        servers[0].wait_line("ready")
        args = ["--job-name", "worker", "--data", data, "--model", "lr", "--start-timeout", "10"]
        hosts = flags[1]
        tf_config = json.dumps({"cluster": {"ps": [hosts], "worker": ["a:1", "b:1", "c:1"]}})
        for more, env, source in ((["--ps-hosts", hosts, "--worker-hosts", "a,b,c"], {}, "--worker-hosts"),
                                  ([], {"TF_CONFIG": tf_config}, "TF_CONFIG")):
            workers = [self.start("starling-worker", *args, *more, "--task-index", i, env=env)
                       for i in range(2)]
            for i, worker in enumerate(workers):
                self.assertEqual(worker.wait(), 1, worker.output)
                self.assertIn(f"worker/{i} expects 3 workers, the coordinator (--worker-hosts) 2",
                              worker.output)
                self.assertIn(f"by {source} 3 workers", worker.output)
        self.drain(servers)

    def test_servers_that_were_told_other_counts(self):
        hosts = ",".join(f"127.0.0.1:{port}" for port in harness.free_ports(2))
        first, second = [self.start("starling-ps", "--ps-hosts", hosts, "--worker-hosts", workers,
                                    "--job-name", "ps", "--task-index", i)
                         for i, workers in enumerate(("a,b", "a,b,c"))]
        second.wait()
        self.assertIn("ps/1 expects 3 workers, the coordinator (--worker-hosts) 2", second.output)
        self.assertIn("it was told 2 servers and 3 workers, by --worker-hosts", second.output)
        first.signal(signal.SIGTERM)
        self.assertEqual(first.wait(), 0, first.output)

    def test_table_opened_with_another_dim(self):
        data = self.file("d", "1 1:1 2:1\n0 3:1 4:1\n" * 500)
        servers, flags = self.start_ps(worker_count=2)
        args = ["--data", data, "--test", data, "--model", "fm"]
        first = self.start("starling-worker", *flags, "--job-name", "worker", "--task-index", 0, *args,
                           "--factors", "8")
        servers[0].wait_line("ready")
        second = self.start("starling-worker", *flags, "--job-name", "worker", "--task-index", 1, *args,
                            "--factors", "4")
        while first.running() and second.running():  # the other waits for its like
            time.sleep(0.05)
        refused, waits = (second, first) if first.running() else (first, second)
        self.assertEqual(refused.wait(), 1, refused.output)
        self.assertIn("dim", refused.output)
        waits.signal(signal.SIGKILL)
        waits.wait()
        self.drain(servers)

    def test_full_disk_is_an_error(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        data = self.file("d", "1 1:1 2:1\n0 3:1 4:1\n" * 50)
        servers, flags = self.start_ps()
        worker = self.start_workers(flags, 1, ["--data", data, "--test", data, "--model", "lr",
                                               "--report", "/dev/full"])[0]
        self.assertEqual(worker.wait(), 1, worker.output)
        self.assertIn("/dev/full", worker.output)
        self.drain(servers)

    def test_part_of_generated_data_is_removed(self):
        """A file may not grow beyond a limit: what a full disk does to one."""
        folder = os.path.join(self.folder, "generated")
        done = subprocess.run(["sh", "-c", 'trap "" XFSZ; ulimit -f 20; exec "$0" generate --out "$1" --rows 4000',
                               harness.program("starling-worker"), folder], stderr=subprocess.PIPE, text=True,
                              env=harness.environment({}), check=False, timeout=harness.DEADLINE_S)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("train.tsv: File too large", done.stderr)
        self.assertEqual(os.listdir(folder), [])

    def test_report_into_a_missing_folder(self):
        data = self.file("d", "1 1:1\n")
        output = self.run_to_end("starling-worker", "--ps-hosts", "127.0.0.1:1", "--worker-hosts", "a", "--data",
                                 data, "--report", "/nonexistent/report", status=2)
        self.assertIn("--report /nonexistent/report", output)


class Pages(harness.StarlingTest):
    """What docs/configuration.md says of the client library."""

    def page(self, *path):
        docs = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs")
        with open(os.path.join(docs, *path), encoding="utf-8") as file:
            return file.read()

    def client_library(self):
        return re.search(r"## Client library\n.*?(?=\n## )", self.page("configuration.md"), re.DOTALL).group()

    def test_client_library_has_the_documented_flags(self):
        flags = set(re.findall(r"`(--starling-[a-z-]+)", self.client_library()))
        self.assertGreater(len(flags), 7)
        for flag in flags:
            self.assertNotIn("unknown flag", self.run_to_end("example_worker", f"{flag}=?", status=1))

    def test_client_library_has_the_documented_variables(self):
        pairs = re.findall(r"\| `(--starling-[a-z-]+)(?:=N)?` \| `([A-Z_]+)` \|", self.client_library())
        self.assertEqual(len(pairs), 4)
        for flag, variable in pairs:
            self.assertIn(f"{flag}=?: accepts", self.run_to_end("example_worker", f"{flag}=?", status=1))
            self.assertIn(f"{variable}=?: accepts",
                          self.run_to_end("example_worker", env={variable: "?"}, status=1))


if __name__ == "__main__":
    harness.main()
