#!/usr/bin/env python3
"""Jobs whose coordinator outlives the process that hosts it, by an etcd that the test starts. Skipped
where there is none ($STARLING_ETCD, which CTest sets; else one that is installed)."""

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
import unittest
import urllib.error
import urllib.request

import dmlc_test
import harness
import protocol_client
import sum_job

ETCD = os.environ.get("STARLING_ETCD") or shutil.which("etcd") or "/usr/bin/etcd"
PREFIX = "/jobs/test"
LEASE_S = 10  # the leader has half of it: a process that stops for 3 s stays leader
GONE = "does not host the coordinator any more"
HOSTS = "is elected leader and hosts the coordinator"


class Etcd:
    """An etcd of one or more servers on loopback, with its data below a folder of the test's."""

    def __init__(self, test, count=1):
        if not os.access(ETCD, os.X_OK):
            raise unittest.SkipTest(f"{ETCD} is not there: apt-get install etcd-server")
        self._folder = test.folder
        ports = harness.free_ports(2 * count)
        self.clients, self._peers = ports[:count], ports[count:]
        self._children = [self._start(i) for i in range(count)]
        test.addCleanup(self.stop)
        self.wait()

    def _start(self, index):
        def url(port):
            return f"http://127.0.0.1:{port}"

        cluster = ",".join(f"e{i}={url(port)}" for i, port in enumerate(self._peers))
        log = open(os.path.join(self._folder, f"etcd-{index}.log"), "ab")  # the child's
        with log:
            return subprocess.Popen(
                [*harness.END_WITH_PARENT, ETCD, "--name", f"e{index}", "--data-dir", os.path.join(self._folder, f"etcd-{index}"),
                 "--listen-client-urls", url(self.clients[index]), "--advertise-client-urls",
                 url(self.clients[index]), "--listen-peer-urls", url(self._peers[index]),
                 "--initial-advertise-peer-urls", url(self._peers[index]), "--initial-cluster", cluster],
                stdout=log, stderr=log)

    def _post(self, index, path, **fields):
        request = urllib.request.Request(f"http://127.0.0.1:{self.clients[index]}/v3/{path}",
                                         json.dumps(fields).encode())
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.load(answer)

    def _ask(self, path, **fields):
        """Of whichever server answers."""
        end = time.monotonic() + harness.DEADLINE_S
        while True:
            for index in range(len(self.clients)):
                try:
                    return self._post(index, path, **fields)
                except (OSError, urllib.error.URLError) as error:
                    last = error
            if time.monotonic() > end:
                raise AssertionError(f"etcd does not answer: {last}")
            time.sleep(0.1)

    def wait(self):
        self.get("none")

    @property
    def url(self):
        return f"etcd://{','.join(f'127.0.0.1:{port}' for port in self.clients)}{PREFIX}"

    def get(self, key, prefix=f"{PREFIX}/"):
        """The value under the prefix and the key, or None."""
        asked = base64.b64encode(f"{prefix}{key}".encode()).decode()
        pairs = self._ask("kv/range", key=asked).get("kvs", [])
        return base64.b64decode(pairs[0]["value"]).decode(errors="replace") if pairs else None

    def put(self, key, value):
        """Without a prefix."""
        key, value = (base64.b64encode(text.encode()).decode() for text in (key, value))
        self._ask("kv/put", key=key, value=value)

    def count(self):
        begin, end = (base64.b64encode(text.encode()).decode() for text in (PREFIX, PREFIX + "0"))
        return int(self._ask("kv/range", key=begin, range_end=end, count_only=True).get("count", 0))

    def coordinator(self, other_than=None):
        """(name, endpoint) of the process that hosts it, as soon as that is not `other_than`."""
        end = time.monotonic() + harness.DEADLINE_S
        while time.monotonic() < end:
            value = self.get("coordinator")
            leader = json.loads(value) if value else {"name": other_than}
            if leader["name"] != other_than:
                return leader["name"], leader["endpoint"].removeprefix("tcp://")
            time.sleep(0.05)
        raise AssertionError(f"nobody hosts the coordinator but {other_than}")

    def kill_leader(self):
        """Of the servers, the one that the others follow; while they elect one, none names a leader."""
        end = time.monotonic() + harness.DEADLINE_S
        while time.monotonic() < end:
            for index, child in enumerate(self._children):
                with contextlib.suppress(OSError):
                    status = self._post(index, "maintenance/status")
                    if status.get("leader") == status["header"]["member_id"]:
                        child.kill()
                        child.wait()
                        return
            time.sleep(0.1)
        raise AssertionError("no server leads")

    def stop(self):
        for child in self._children:
            child.kill()
            child.wait()

    def lose_all(self):
        """It is started again without its records."""
        self.stop()
        for index in range(len(self.clients)):
            shutil.rmtree(os.path.join(self._folder, f"etcd-{index}"))
        self.start()

    def start(self):
        self._children = [self._start(i) for i in range(len(self.clients))]
        self.wait()


class Cluster(sum_job.Cluster):
    """With a cluster store: the coordinator is wherever that says."""

    def __init__(self, test, etcd, extra=(), **options):
        self.etcd = etcd
        super().__init__(test, proxied=False, lease_s=LEASE_S,
                         extra=["--cluster-store", etcd.url, *extra], **options)
        harness.wait_lines(self.ps, "ready")

    @property
    def coordinator(self):
        return ",".join(f"{self.behind}:{control}" for control, _ in self.ports)

    @property
    def worker_flags(self):
        return [*super().worker_flags, "--cluster-store", self.etcd.url]

    @property
    def found(self):
        return self.etcd.coordinator()[1]

    def reach(self, kind, *more):
        """A connection or client of the coordinator's host, as soon as a ps hosts it."""
        end = time.monotonic() + harness.DEADLINE_S
        while True:
            try:
                return kind(self.found, *more)
            except (protocol_client.Refused, protocol_client.Closed, OSError):
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)

    def client(self):
        return self.reach(protocol_client.Client)

    def registered(self):
        """What the coordinator answers to somebody who comes late."""
        def register(place):
            late = protocol_client.Connection(place, protocol_client.PURPOSE_CONTROL)
            with contextlib.closing(late):
                answer = late.ask("register", "cluster", worker_count=0)
                late.goodbye()
            return answer

        return self.reach(register)

    def host(self, other_than=None):
        """Index of the ps that hosts the coordinator."""
        return int(self.etcd.coordinator(other_than)[0].removeprefix("ps/"))


class StoreTest(harness.StarlingTest):
    def sum_job(self, etcd, consistency="asp", ps_count=2, extra=(), **options):
        cluster = Cluster(self, etcd, ps_count=ps_count, extra=extra)
        job = sum_job.SumJob(self, cluster, consistency, gated=True, **options)
        workers = job.start_all()
        harness.wait_lines(workers, "iteration 0")
        return cluster, job, workers

    def connect(self, cluster):
        return cluster.reach(protocol_client.Connection, protocol_client.PURPOSE_CONTROL)

    def ends_after_restart(self, cluster, job, workers, host):
        cluster.ps[host] = cluster.start_ps(host)
        cluster.ps[host].wait_line("ready")
        harness.wait_lines(workers, "connected again: the server was restarted")
        job.open_gate()
        self.end_well(workers)
        job.check(restarted={host})
        cluster.drain()


class KilledHost(StoreTest):
    """kill -9 of the ps that hosts the coordinator, in the middle of a job."""

    def test_another_ps_goes_on(self):
        cluster, job, workers = self.sum_job(Etcd(self), goes_on=True, timeout_ms=20000)
        host = cluster.host()
        other = 1 - host
        cluster.ps[host].signal(signal.SIGKILL)
        cluster.ps[other].wait_line(HOSTS)
        self.assertEqual(cluster.host(f"ps/{host}"), other)
        self.tables_and_barriers(cluster)
        self.shows_the_job(cluster.ps[other], f"ps/{other}")
        self.ends_after_restart(cluster, job, workers, host)

    def shows_the_job(self, server, name):
        """The members report to the new coordinator. For a second, its server may lead to the one before."""
        http = server.wait_line(" ready: ").rsplit(", http ", 1)[1]
        end = time.monotonic() + harness.DEADLINE_S
        shown = None
        while shown is None or shown["coordinator"] != name or any(
                worker["state"] == "running" and worker["clock"] is None for worker in shown["workers"]):
            self.assertLess(time.monotonic(), end, shown)
            time.sleep(0.1)
            with contextlib.suppress(urllib.error.URLError):
                with urllib.request.urlopen(f"http://{http}/api/cluster", timeout=harness.DEADLINE_S) as answer:
                    shown = json.load(answer)
        self.assertTrue(shown["workers"])

    def tables_and_barriers(self, cluster):
        """The new coordinator gives the same answers as the one before."""
        clients = [self.connect(cluster) for _ in range(2)]
        spec = {"kind": protocol_client.SPARSE, "dim": 1, "initializer": {},
                "optimizer": {"kind": sum_job.TABLES[0][1], "lr": 1.0},
                "consistency": {"mode": 0, "staleness": 0, "worker_count": 0}}
        ids = [clients[0].ask("table_open", "table_opened", spec={"name": name, **spec})["table_id"]
               for name in ("sum", "new", "newer")]
        self.assertEqual(ids, [0, 2, 3])  # "sum" and "sgd" are those of the job
        waits = [client.start_asking("barrier", name="b", count=2) for client in clients]
        for client, wait in zip(clients, waits):
            client.answer(wait, "barrier_done")
            client.goodbye()

    def test_it_is_told_to_end(self):
        """A leader that is stopped orderly is replaced at once."""
        cluster, job, workers = self.sum_job(Etcd(self), ps_count=3, goes_on=True, timeout_ms=20000)
        host = cluster.host()
        cluster.ps[host].signal(signal.SIGTERM)
        self.assertEqual(cluster.ps[host].wait(), 0, cluster.ps[host].output)
        self.assertNotEqual(cluster.host(f"ps/{host}"), host)
        self.ends_after_restart(cluster, job, workers, host)


class KilledStore(StoreTest):
    def test_the_leader_of_etcd(self):
        etcd = Etcd(self, 3)
        cluster, job, workers = self.sum_job(etcd, "bsp")
        etcd.kill_leader()
        self.assertIn(cluster.host(), (0, 1))
        self.assertTrue(cluster.registered()["ps"])
        job.open_gate()
        self.end_well(workers)
        job.check()
        cluster.drain()

    def test_all_of_etcd(self):
        """Serving goes on without it; the coordinator waits, and goes on when it reconnected."""
        etcd = Etcd(self)
        cluster, job, workers = self.sum_job(etcd, iterations=1500, pause_ms=10)
        host = cluster.ps[cluster.host()]
        etcd.stop()
        host.wait_line(GONE)
        harness.wait_lines(cluster.ps, "the cluster store is out of reach: ")
        before = max(i for _, _, i in job.noted("acknowledged"))
        harness.wait_lines(workers, f"iteration {(before // 8 + 2) * 8}")
        etcd.start()
        harness.wait_lines(cluster.ps, "the cluster store answers again")
        self.assertIn(cluster.host(), (0, 1))
        self.assertTrue(cluster.registered()["ps"])
        job.open_gate()
        self.end_well(workers)
        job.check()
        cluster.drain()

    def test_it_loses_its_records(self):
        """The members write theirs again, and the job goes on."""
        self.loses_its_records(ps_count=2)

    def test_it_loses_its_records_and_elects_the_same_server(self):
        self.loses_its_records(ps_count=1)

    def loses_its_records(self, ps_count):
        etcd = Etcd(self)
        cluster, job, workers = self.sum_job(etcd, ps_count=ps_count, goes_on=True, timeout_ms=20000)
        records = etcd.count()
        etcd.lose_all()
        self.assertIn(cluster.host(), range(ps_count))
        end = time.monotonic() + harness.DEADLINE_S
        while etcd.count() < records:
            self.assertLess(time.monotonic(), end, f"{etcd.count()} of {records} records")
            time.sleep(0.1)
        self.assertTrue(cluster.registered()["ps"])
        job.open_gate()
        self.end_well(workers)
        job.check()
        cluster.drain()

    def test_none_at_the_start(self):
        port, = harness.free_ports(1)
        said = ("the cluster store is out of reach: ", "no process hosts the coordinator at the moment")
        for seconds in (3, 20):  # the second for where it stood still until its time was up
            ps, _ = self.start_ps(extra=["--cluster-store", f"etcd://127.0.0.1:{port}/a", "--start-timeout", seconds])
            self.assertEqual(ps[0].wait(), 1, ps[0].output)
            if all(words in ps[0].output for words in said):
                return
        for words in said:
            self.assertIn(words, ps[0].output)


class OtherJobs(StoreTest):
    def test_a_job_that_was_killed_does_not_haunt_the_next(self):
        etcd = Etcd(self)
        cluster, _, workers = self.sum_job(etcd)
        for process in workers + cluster.ps:
            process.signal(signal.SIGKILL)
        self.assertGreater(etcd.count(), 4)
        cluster, job, workers = self.sum_job(etcd)
        job.open_gate()
        self.end_well(workers)
        job.check()
        said = "".join(ps.output for ps in cluster.ps)
        self.assertIn("the cluster store has records of a job without a living server: they are dropped", said)
        cluster.drain()

    def test_of_another_shape(self):
        etcd = Etcd(self)
        cluster, _, workers = self.sum_job(etcd)
        for process in workers + cluster.ps:
            process.signal(signal.SIGKILL)
        ps, _ = self.start_ps(extra=["--cluster-store", etcd.url, "--start-timeout", "20"])
        ps[0].wait_line("it is of a job with 2 servers and 4 workers")
        ps[0].wait_line("give another prefix")


class Scheduler(dmlc_test.DmlcTest):
    """The same with a scheduler of its own, which holds no parameters: nothing is lost with it."""

    def setUp(self):
        super().setUp()
        self.etcd = Etcd(self)
        self.job["STARLING_CLUSTER_STORE"] = self.etcd.url

    def start_running(self):
        """A job that has begun, as far as the store knows, and goes on until it is told to end."""
        scheduler, servers, workers = self.endless(ps_args=["--lease", LEASE_S])
        end = time.monotonic() + harness.DEADLINE_S
        while '"running"' not in (self.etcd.get("state/job/00000") or ""):
            self.assertLess(time.monotonic(), end, scheduler.output)
            time.sleep(0.05)
        return scheduler, servers, workers

    def start_standby(self):
        """Another scheduler, at another place."""
        standby = self.start_role("scheduler", "--lease", LEASE_S,
                                  env={"DMLC_PS_ROOT_PORT": str(harness.free_ports(1)[0])})
        standby.wait_line("scheduler hosts the coordinator, at")
        return standby

    def goes_on(self, servers, workers, heir, *beside):
        """Those beside it end with it, and may host the coordinator for a moment then."""
        heir.wait_line(HOSTS)
        harness.wait_lines(servers, "the coordinator is reachable again")
        for worker in workers:
            worker.wait_line("): connected again")
        self.stop(workers)
        self.end_well([*servers, heir, *beside])
        for server in servers:
            self.assertIn("the job has ended: all 4 workers have left", server.output)
        self.assertIn("the job has ended: all 4 workers have left", heir.output)
        self.assertEqual(self.etcd.count(), 0)

    def test_it_is_started_again(self):
        scheduler, servers, workers = self.start_running()
        scheduler.signal(signal.SIGKILL)
        scheduler.wait()
        heir = self.start_role("scheduler", "--lease", LEASE_S)
        self.goes_on(servers, workers, heir)
        self.assertIn("the job continues", heir.output)
        self.assertNotIn("the job has begun", heir.output)

    def test_a_standby_takes_over(self):
        """Somewhere else: the servers know it by the store. Workers, who know only where the first
        was, are led there by another process at that place."""
        scheduler, servers, workers = self.start_running()
        standby = self.start_standby()
        scheduler.signal(signal.SIGKILL)
        standby.wait_line(HOSTS)
        scheduler.wait()
        guide = self.start_role("scheduler", "--lease", LEASE_S)
        self.goes_on(servers, workers, standby, guide)
        self.assertIn("the job is over", guide.output)

    def test_the_job_ends_beside_a_standby(self):
        scheduler = self.start_role("scheduler", "--lease", LEASE_S)
        self.etcd.coordinator()
        standby = self.start_standby()
        _, servers, workers = self.start_job(["server"] * 2 + ["worker"] * 4)
        self.ends_well(scheduler, servers, workers)
        self.assertEqual(standby.wait(), 0, standby.output)
        self.assertIn("the job is over: the cluster store knows no more of it", standby.output)


if __name__ == "__main__":
    harness.main()
