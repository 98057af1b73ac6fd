"""Jobs of sum_worker: integers whose sums tell afterwards whether a push was lost or carried out
twice; and clusters with a proxy before every endpoint, through which faults come."""

import collections
import os
import tempfile

import harness
import protocol_client
import proxy

BEHIND, BEFORE = "127.0.0.1", "127.0.0.2"  # where the ps listen, and where their proxies do

# As sum_worker.c opens them. What the consistency says is added.
TABLES = (("sum", 0), ("sgd", 1))
WITNESS_BITS = 16


class Cluster:
    """Ps processes, each with a port for control and one for data; with `proxied`, workers reach
    them through self.control and self.data, and ps reach the coordinator through self.control."""

    behind = BEHIND

    def __init__(self, test, ps_count=2, worker_count=4, lease_s=10, reactors=1, proxied=True,
                 extra=()):
        self.test = test
        self.worker_count = worker_count
        self.ports = list(zip(*[iter(harness.free_ports(2 * ps_count))] * 2))
        self.control, self.data = None, []
        if proxied:
            self._start_proxies()
        self.start_flags = ["--lease", lease_s, *extra]
        self._env = {"NETWORK_PS_CORE_NUMBER": str(reactors)}
        self.ps = [self.start_ps(i) for i in range(ps_count)]

    def _start_proxies(self):
        def start(port, replace=None):
            it = proxy.Proxy((BEHIND, port), (BEFORE, port), replace)
            self.test.addCleanup(it.close)
            return it

        swap = (f"tcp://{BEHIND}:".encode(), f"tcp://{BEFORE}:".encode())
        self.control = start(self.ports[0][0], swap)
        self.data = [start(data) for _, data in self.ports]

    def hosts(self, first):
        """--ps-hosts, of which the first, the coordinator, is reached at `first`."""
        return ",".join(f"{first if i == 0 else self.behind}:{control}"
                        for i, (control, _) in enumerate(self.ports))

    @property
    def coordinator(self):
        """Where workers find it."""
        return f"{BEFORE if self.control else self.behind}:{self.ports[0][0]}"

    @property
    def found(self):
        """Where the coordinator is, without a proxy."""
        return f"{self.behind}:{self.ports[0][0]}"

    def client(self):
        return protocol_client.Client(self.found)

    def host(self):
        """Index of the ps that hosts the coordinator."""
        return 0

    @property
    def worker_flags(self):
        return ["--ps-hosts", self.hosts(BEFORE if self.control else self.behind), "--worker-hosts",
                ",".join("abcdefgh"[:self.worker_count])]

    def data_endpoint(self, port):
        """As the endpoint map has it."""
        return f"tcp://{self.behind}:{port}"

    def extend(self, *flags):
        """More flags for the ps that are started from now on."""
        self.start_flags = [*self.start_flags, *flags]

    def start_ps(self, index):
        """Starts ps `index`; the one that ran before must have ended."""
        for port in self.ports[index]:
            harness.wait_unheard(self.behind, port)
        hosts = self.hosts(BEFORE if self.control and index > 0 else self.behind)
        lines = [f"{host}={self.data_endpoint(data)}" for host, (_, data) in zip(hosts.split(","),
                                                                                 self.ports)]
        path = self.test.file(f"map-{index}", "\n".join(lines) + "\n")
        return self.test.start(
            "starling-ps", "--ps-hosts", hosts, "--worker-hosts",
            ",".join("abcdefgh"[:self.worker_count]), "--endpoint-map", path, "--job-name", "ps",
            "--task-index", index, *self.start_flags, env=self._env)

    def drain(self):
        self.test.drain(self.ps)


class SumJob:
    """Workers of one job, and what they have written down. With `gated`, none of them ends before
    open_gate: what the test has to do meanwhile may take it long."""

    def __init__(self, test, cluster, consistency, iterations=120, timeout_ms=60000, pause_ms=4,
                 goes_on=False, gated=False, flags=()):
        self.test = test
        self.cluster = cluster
        self.consistency = consistency
        self.iterations = iterations
        self._flags = ["--consistency", consistency, "--iterations", iterations, "--timeout-ms",
                       timeout_ms, "--pause-ms", pause_ms, *flags] + (["--goes-on"] if goes_on else [])
        self.runs = collections.Counter()  # by worker
        self._records = tempfile.mkdtemp(prefix="records-", dir=test.folder)
        self._gate = os.path.join(self._records, "gate")
        if gated:
            self._flags += ["--gate", self._gate]

    def start(self, index):
        """Starts worker `index`, or another in its place."""
        run = self.runs[index]
        self.runs[index] += 1
        return self.test.start("sum_worker", "--coordinator", self.cluster.coordinator,
                               "--task-index", index, "--workers", self.cluster.worker_count,
                               "--run", run, "--record", self._record(index), *self._flags)

    def open_gate(self):
        """Lets the workers that wait before their last iteration go on, and those that reach it later."""
        with open(self._gate, "xb"):
            pass

    def start_all(self):
        return [self.start(index) for index in range(self.cluster.worker_count)]

    def _record(self, index):
        return os.path.join(self._records, str(index))

    def noted(self, what):
        """(worker, run, iteration) of what was "asked" or "acknowledged"."""
        found = set()
        for index in self.runs:
            with open(self._record(index), encoding="ascii") as file:
                for line in file:
                    word, run, iteration = line.split()
                    if word == what:
                        found.add((index, int(run), int(iteration)))
        return found

    def _spec(self, name, kind):
        mode, _, staleness = self.consistency.partition(":")
        consistency = {"mode": ("asp", "bsp", "ssp").index(mode), "staleness": int(staleness or 0),
                       "worker_count": 0 if mode == "asp" else self.cluster.worker_count}
        return {"name": name, "kind": protocol_client.SPARSE, "dim": 1,
                "optimizer": {"kind": kind, "lr": 1.0}, "initializer": {},
                "consistency": consistency}

    def check(self, restarted=(), held=frozenset(), last=True):
        """Every push that was acknowledged was carried out once, every other one at most once, and
        the shared keys hold the sums of those and nothing else. Returns how many were acknowledged.
        Shards that were started anew in between may have lost what came before, but for what was
        `held`, by a checkpoint; with `last`, the last push of each worker must be there."""
        asked, acknowledged = self.noted("asked"), self.noted("acknowledged")
        client = self.cluster.client()
        try:
            for name, kind in TABLES:
                table = client.open(**self._spec(name, kind))
                kept = held | {push for push in acknowledged
                               if last and push[2] == self.iterations - 1}
                self._check_table(client, table, asked, acknowledged, restarted, kept)
        finally:
            client.goodbye()
        return len(acknowledged)

    def _check_table(self, client, table, asked, acknowledged, restarted, kept):
        shards = range(len(client.shards))
        pushes = [(push, shard) for push in sorted(asked) for shard in shards]
        keys = [self._key(shard, len(shards), witness_base(*push)) for push, shard in pushes]
        values = pull(client, table, keys)
        sums = [0] * len(shards)
        for (push, shard), value in zip(pushes, values):
            number = 1 + (push[2] + push[0]) % 7
            self.test.assertIn(value, (0, number), f"{push} was not carried out once at most")
            if push in acknowledged and (shard not in restarted or push in kept):
                self.test.assertEqual(value, number, f"{push} was acknowledged, but not carried out")
            sums[shard] += value
        shared = pull(client, table, [self._key(shard, len(shards), 0) for shard in shards])
        self.test.assertEqual(shared, sums)

    @staticmethod
    def _key(shard, shard_count, base):
        while protocol_client.shard_of(base, shard_count) != shard:
            base += 1
        return base


def witness_base(worker, run, iteration):
    """As sum_worker.c has it."""
    return (((worker + 1) << 8 | run) << 24 | iteration) << WITNESS_BITS


def pull(client, table, keys, batch=1000):
    values = []
    for at in range(0, len(keys), batch):
        client.control.tell("heartbeat", 0)  # it has a lease, too
        values += [row[0] for row in client.pull(table, keys[at:at + batch])]
    return values
