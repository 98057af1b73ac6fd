#!/usr/bin/env python3
"""Jobs that are started as ps-lite's are: by DMLC_ROLE and its like, with a scheduler of their own, in
any order. STARLING_DMLC_ORDERS says how many shuffled orders of start are tried."""

import glob
import json
import os
import random
import re
import signal
import time
import unittest

import harness

ORDERS = int(os.environ.get("STARLING_DMLC_ORDERS", "6"))
SERVERS, WORKERS = 2, 4


def rows(count, seed=7):
    """LIBSVM rows whose labels a linear model can learn: more small features than large ones."""
    rng = random.Random(seed)
    lines = []
    for _ in range(count):
        features = sorted(rng.sample(range(1, 60), 8))
        label = int(sum(1 for f in features if f < 30) > 4)
        lines.append(f"{label} " + " ".join(f"{f}:1" for f in features))
    return "\n".join(lines) + "\n"


class DmlcTest(harness.StarlingTest):
    ENDLESS = ["--epochs", "100000", "--quiet=false", "--log", "debug"]  # more of a model's flags: it trains for long

    def setUp(self):
        super().setUp()
        self.data = self.file("data", rows(1000))
        self.model = ["--data", self.data, "--test", self.data, "--format", "libsvm", "--model", "lr",
                      "--epochs", "2", "--batch-size", "50", "--quiet"]
        self.job = {"DMLC_NUM_WORKER": str(WORKERS), "DMLC_NUM_SERVER": str(SERVERS),
                    "DMLC_PS_ROOT_URI": "127.0.0.1",
                    "DMLC_PS_ROOT_PORT": str(harness.free_ports(1)[0]),
                    "NETWORK_PS_CORE_NUMBER": "1", "NETWORK_WORKER_CORE_NUMBER": "1"}

    def start_role(self, role, *args, env=None):
        variables = dict(self.job, DMLC_ROLE=role)
        variables.update(env or {})
        if role == "scheduler":  # where one that was killed may have been
            harness.wait_unheard("127.0.0.1", int(variables["DMLC_PS_ROOT_PORT"]))
        if role == "worker":
            return self.start("starling-worker", *self.model, *args, env=variables)
        return self.start("starling-ps", *args, env=variables)

    def start_job(self, roles=None, ps_args=(), worker_args=(), env=None, pause=0.0):
        """Starts the roles in their order; returns (scheduler, servers, workers)."""
        roles = roles or ["scheduler"] + ["server"] * SERVERS + ["worker"] * WORKERS
        started = {"scheduler": [], "server": [], "worker": []}
        for role in roles:
            time.sleep(random.random() * pause)
            args = worker_args if role == "worker" else ps_args
            started[role].append(self.start_role(role, *args, env=env))
        return (started["scheduler"] or [None])[0], started["server"], started["worker"]

    def ends_well(self, scheduler, servers, workers):
        self.end_well(workers + servers + [scheduler])
        self.assertIn(f"the job has ended: all {WORKERS} workers have left", scheduler.output)
        for server in servers:
            self.assertIn("the job has ended", server.output)

    def endless(self, role_env=None, ps_args=()):
        """A job that begins and then goes on for long."""
        self.model += self.ENDLESS
        scheduler, servers, workers = self.start_job(ps_args=ps_args, env=dict(role_env or {}))
        scheduler.wait_line("the job has begun")
        for worker in workers:
            worker.wait_line("/100000  ")  # before, a signal just ends it
        return scheduler, servers, workers

    def stop(self, workers):
        for worker in workers:
            worker.signal(signal.SIGTERM)
        for worker in workers:
            self.assertEqual(worker.wait(), 128 + signal.SIGTERM, worker.output)

    def refuses(self, program, env, *words, args=()):
        output = self.run_to_end(program, *args, env=env, status=2)
        for word in words:
            self.assertIn(word, output)


class Orders(DmlcTest):
    def test_any_order_of_start(self):
        seed = int(os.environ.get("STARLING_DMLC_SEED", random.randrange(1 << 32)))
        for turn in range(ORDERS):
            rng = random.Random(seed + turn)
            roles = ["scheduler"] + ["server"] * SERVERS + ["worker"] * WORKERS
            rng.shuffle(roles)
            with self.subTest(seed=seed, turn=turn, roles=roles):
                report = os.path.join(self.folder, f"report{turn}.json")
                self.job["DMLC_PS_ROOT_PORT"] = str(harness.free_ports(1)[0])
                scheduler, servers, workers = self.start_job(
                    roles, worker_args=["--report", report], pause=0.1)
                self.ends_well(scheduler, servers, workers)
                self.assertIn(f"the job has begun: {SERVERS} servers with {SERVERS} shards, {WORKERS} "
                              "workers", scheduler.output)
                ranks = sorted(re.search(r"ps/(\d+) ready", s.output).group(1) for s in servers)
                self.assertEqual(ranks, [str(i) for i in range(SERVERS)])
                with open(report, encoding="utf-8") as file:
                    self.assertGreater(json.load(file)["test"]["auc"], 0.95)
                for rank in range(1, WORKERS):
                    self.assertTrue(os.path.exists(f"{report}.{rank}"))


class Results(DmlcTest):
    def test_the_result_is_that_of_flags(self):
        # In BSP with one worker the sums have one order: the same to the bit.
        args = self.model + ["--consistency", "bsp"]
        by_flags = self.train(args, ps_count=1, worker_count=1,
                              ps_env={"NETWORK_PS_CORE_NUMBER": "1"},
                              worker_env={"NETWORK_WORKER_CORE_NUMBER": "1"})
        self.job.update(DMLC_NUM_WORKER="1", DMLC_NUM_SERVER="1")
        report = os.path.join(self.folder, "dmlc.json")
        scheduler, servers, workers = self.start_job(
            ["scheduler", "server", "worker"], worker_args=["--consistency", "bsp", "--report", report])
        self.end_well(workers + servers + [scheduler])
        with open(report, encoding="utf-8") as file:
            by_dmlc = json.load(file)
        self.assertEqual(by_dmlc["test"], by_flags["test"])


class Ranks(DmlcTest):
    def test_ranks_that_are_said(self):
        scheduler = self.start_role("scheduler")
        servers = [self.start_role("server", env={"DMLC_RANK": str(i)}) for i in (1, 0)]
        workers = [self.start_role("worker", env={"DMLC_WORKER_ID": str(i)}) for i in (3, 1, 2, 0)]
        self.ends_well(scheduler, servers, workers)
        self.assertIn("ps/1 ready", servers[0].output)
        self.assertIn("ps/0 ready", servers[1].output)
        for worker, rank in zip(workers, (3, 1, 2, 0)):
            self.assertIn(f"worker {rank} of 4", worker.output)

    def test_one_too_many_finds_no_place(self):
        scheduler, servers, workers = self.start_job(
            ["scheduler"] + ["server"] * SERVERS + ["worker"] * 3)
        scheduler.wait_line("waiting for worker/3")  # so the servers are there
        third = self.start_role("server", "--start-timeout", "10")
        self.assertEqual(third.wait(), 1, third.output)
        self.assertIn("the job has 2 servers, and all of them are there", third.output)
        workers.append(self.start_role("worker"))
        self.ends_well(scheduler, servers, workers)

    def test_shards_by_group_size(self):
        del self.job["NETWORK_PS_CORE_NUMBER"]
        self.job.update(DMLC_NUM_SERVER="1", DMLC_NUM_WORKER="1")
        scheduler, servers, workers = self.start_job(["scheduler", "server", "worker"])
        self.end_well(workers + servers + [scheduler])
        self.job["DMLC_PS_ROOT_PORT"] = str(harness.free_ports(1)[0])
        scheduler = self.start_role("scheduler")
        server = self.start_role("server", env={"DMLC_GROUP_SIZE": "3"})
        worker = self.start_role("worker")
        server.wait_line("shards 0-2 of 3")
        self.end_well((worker, server, scheduler))


class Places(DmlcTest):
    def one_server(self, env):
        self.job.update(DMLC_NUM_SERVER="1", DMLC_NUM_WORKER="1")
        scheduler, (server,), (worker,) = self.start_job(["scheduler", "server", "worker"], env=env)
        line = server.wait_line("ready")
        self.end_well((worker, server, scheduler))
        return line

    def test_where_a_server_listens(self):
        port = harness.free_ports(1)[0]
        self.assertIn(f"data tcp://127.0.0.1:{port}", self.one_server({"DMLC_PORT": str(port)}))
        self.job["DMLC_PS_ROOT_PORT"] = str(harness.free_ports(1)[0])
        self.assertIn("data tcp://127.0.0.1:", self.one_server({"DMLC_INTERFACE": "lo"}))
        self.job["DMLC_PS_ROOT_PORT"] = str(harness.free_ports(1)[0])
        self.assertIn("data tcp://127.0.0.1:", self.one_server({"DMLC_NODE_HOST": "localhost"}))

    def test_an_interface_that_does_not_exist(self):
        self.refuses("starling-ps", dict(self.job, DMLC_ROLE="server", DMLC_INTERFACE="nosuch0"),
                     "DMLC_INTERFACE=nosuch0", "lo")

    def test_secrets(self):
        secret = self.file("secret", "the secret of this cluster")
        os.chmod(secret, 0o600)
        self.ends_well(*self.start_job(env={"STARLING_SECRET_FILE": secret}))

    def test_a_network_needs_a_secret(self):
        self.refuses("starling-ps", dict(self.job, DMLC_ROLE="scheduler", DMLC_PS_ROOT_URI="0.0.0.0"),
                     "open to the network", "--secret-file")
        self.refuses("starling-ps", dict(self.job, DMLC_ROLE="server", DMLC_NODE_HOST="0.0.0.0"),
                     "open to the network", "--secret-file")


class Failures(DmlcTest):
    def gives_up(self, begin, *said):
        """A scheduler says that when it gives up. Returns those whom begin() starts beside it. Its time is
        short, unless something stood still, so that they had not come by then."""
        for seconds in (2, 10, 40):
            self.job["DMLC_PS_ROOT_PORT"] = str(harness.free_ports(1)[0])
            scheduler = self.start_role("scheduler", "--start-timeout", seconds)
            others = begin()
            self.assertEqual(scheduler.wait(), 1, scheduler.output)
            if all(re.search(words, scheduler.output) for words in said):
                break
        for words in said:
            self.assertRegex(scheduler.output, words)
        return others

    def test_who_is_missing_is_named(self):
        """It is the scheduler who gives up; the others end with it, not by a timeout of their own."""
        def begin():
            return [self.start_role(role, "--start-timeout", "600") for role in ["server"] + ["worker"] * 3]

        why = r"(?m)the job has not begun: still waiting after \d+ s for ps/1, worker/3$"
        others = self.gives_up(begin, "waiting for ps/1, worker/3", why)
        for process in others:
            self.assertEqual(process.wait(), 1, process.output)
            self.assertRegex(process.output, why)

    def test_who_came_and_left_is_named_apart(self):
        """As those that have the scheduler's timeout, and began a little before it."""
        def begin():
            servers = [self.start_role("server", "--start-timeout", "600", env={"DMLC_RANK": str(i)})
                       for i in range(SERVERS)]
            while servers[1].running() and "waiting for" not in servers[1].output:
                time.sleep(0.02)
            servers[1].signal(signal.SIGTERM)  # it has come
            servers[1].wait()
            return servers

        servers = self.gives_up(begin, r"still waiting after \d+ s for worker/0, worker/1, worker/2, "
                                   "worker/3; came and left: ps/1")
        self.assertEqual(servers[0].wait(), 1, servers[0].output)

    def test_without_a_scheduler(self):
        worker = self.start_role("worker", "--start-timeout", "5")
        self.assertEqual(worker.wait(), 1, worker.output)
        self.assertIn("no process listens there yet", worker.output)

    def test_signals_end_the_scheduler_in_order(self):
        scheduler = self.start_role("scheduler")
        scheduler.wait_line(f"for {SERVERS} servers and {WORKERS} workers")
        scheduler.signal(signal.SIGTERM)
        self.assertEqual(scheduler.wait(), 0, scheduler.output)
        self.assertIn("scheduler done", scheduler.output)

    def test_a_scheduler_that_is_told_to_end_ends_the_job(self):
        for number, name in ((signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "SIGINT")):
            self.job["DMLC_PS_ROOT_PORT"] = str(harness.free_ports(1)[0])
            scheduler, servers, workers = self.endless()
            scheduler.signal(number)
            self.assertEqual(scheduler.wait(), 1, scheduler.output)
            why = f"the job has ended: {name} came before worker/0, worker/1, worker/2, worker/3 had left"
            for process in servers + [scheduler]:
                self.assertEqual(process.wait(), 0 if process is not scheduler else 1, process.output)
                self.assertIn(why, process.output)
            for worker in workers:
                worker.signal(signal.SIGKILL)
                worker.wait()

    def test_a_scheduler_that_is_told_to_end_before_the_job_has_begun(self):
        scheduler, servers, workers = self.start_job(["scheduler", "server", "worker"])
        harness.wait_lines(servers + workers, "waiting for")
        scheduler.signal(signal.SIGTERM)
        for process in [scheduler] + servers + workers:
            self.assertEqual(process.wait(), 1, process.output)
            self.assertIn("the job has ended: SIGTERM came before it had begun", process.output)

    def test_a_server_without_scheduler_and_workers_ends(self):
        self.job.update(DMLC_NUM_SERVER="1", DMLC_NUM_WORKER="1", NETWORK_PS_CORE_NUMBER="2")
        self.model += self.ENDLESS
        scheduler = self.start_role("scheduler")
        server = self.start_role("server", "--start-timeout", "8")
        workers = [self.start_role("worker")]
        workers[0].wait_line("/100000  ")
        self.assertRegex(scheduler.wait_line("the job has begun"), r"1 server with 2 shards, 1 worker$")
        scheduler.signal(signal.SIGKILL)
        scheduler.wait()
        server.wait_line("lost the coordinator")
        time.sleep(10)
        self.assertTrue(server.running(), server.output)  # for the worker
        self.stop(workers)
        self.assertEqual(server.wait(), 1, server.output)
        self.assertIn("no connection to the scheduler for 8 s, and no worker is left: ends",
                      server.output)

    def test_a_scheduler_that_cannot_be_found(self):
        env = dict(self.job, DMLC_ROLE="server", DMLC_PS_ROOT_URI="nosuch.invalid")
        output = self.run_to_end("starling-ps", "--start-timeout", "200ms", env=env, status=1)
        self.assertIn("DMLC_PS_ROOT_URI=nosuch.invalid", output)

    def test_a_job_outlives_its_scheduler(self):
        scheduler, servers, workers = self.endless()
        scheduler.signal(signal.SIGKILL)
        scheduler.wait()
        servers[0].wait_line("lost the coordinator")
        again = self.start_role("scheduler")
        again.wait_line("the job has begun")
        self.stop(workers)
        self.assertEqual(again.wait(), 0, again.output)
        self.end_well(servers)


class Verbose(DmlcTest):
    def test_connections_and_messages(self):
        self.job.update(DMLC_NUM_SERVER="1", DMLC_NUM_WORKER="1")
        for level, expected in (("1", False), ("2", True)):
            self.job["DMLC_PS_ROOT_PORT"] = str(harness.free_ports(1)[0])
            scheduler, (server,), (worker,) = self.start_job(
                ["scheduler", "server", "worker"], env={"PS_VERBOSE": level})
            self.end_well((worker, server, scheduler))
            self.assertRegex(worker.output, r"connection made: tcp://127\.0\.0\.1:\d+ over tcp")
            self.assertRegex(scheduler.output, r"connection accepted: tcp://127\.0\.0\.1:\d+ over tcp")
            self.assertIn("connection closed: ", server.output)
            self.assertEqual(bool(re.search(r"sent request \d+, \d+ bytes, \S+ over ", worker.output)),
                             expected)
            self.assertEqual(
                bool(re.search(r"received reply \d+, \d+ bytes, \S+ over ", worker.output)), expected)
            self.assertEqual("received control" in scheduler.output, expected)


class Rdma(DmlcTest):
    @unittest.skipIf(glob.glob("/sys/class/infiniband/*"), "this machine has RDMA")
    def test_tcp_where_there_is_none(self):
        job = self.start_job(env={"DMLC_ENABLE_RDMA": "ibverbs"})
        self.ends_well(*job)
        for server in job[1]:
            self.assertRegex(server.output, r"rdma://127\.0\.0\.1:0: .*\bdoctor\b")
        for worker in job[2]:
            self.assertRegex(worker.output, r"DMLC_ENABLE_RDMA=ibverbs, but there is no RDMA here: \w+")

    def test_a_scheduler_serves_nothing(self):
        scheduler = self.start_role("scheduler", "--rdma")
        scheduler.wait_line(f"for {SERVERS} servers and {WORKERS} workers")
        self.assertNotIn("rdma", scheduler.output)


class BadValues(DmlcTest):
    def test_each_that_is_missing(self):
        for variable in ("DMLC_NUM_WORKER", "DMLC_NUM_SERVER", "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT"):
            env = dict(self.job, DMLC_ROLE="worker")
            del env[variable]
            self.refuses("starling-worker", env, f"{variable} is not set", args=self.model)

    def test_counts_that_disagree(self):
        scheduler = self.start_role("scheduler")
        scheduler.wait_line("scheduler ready")
        worker = self.start_role("worker", env={"DMLC_NUM_WORKER": "5"})
        self.assertEqual(worker.wait(), 1, worker.output)
        self.assertIn("expects 5 workers", worker.output)


if __name__ == "__main__":
    harness.main()
