#!/usr/bin/env python3
"""docs/protocol.md against real ps processes: protocol_client.py, written from the page, must get
the answers that the page promises, and a peer that breaks its rules must hurt nobody else."""

import contextlib
import os
import random
import re
import socket
import struct
import time
import unittest

import harness
import protocol_client as pc
from protocol_client import Client, Connection, Frame, Section, Table

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/protocol.md")
LAST_KEY = (1 << 64) - 1
KEYS = [0, LAST_KEY, 1 << 63] + list(range(1, 200))
PARKED_S = 0.1  # how long nothing must come before a request counts as parked
SPARSE_SUM = {"name": "sum", "dim": 3}
DENSE_SUM = {"name": "array", "kind": pc.DENSE, "length": 10000}
INITIALIZERS = {
    "constant": {"kind": 1, "a": 0.1},
    "uniform": {"kind": 2, "a": -1, "b": 2, "seed": 7},
    "normal": {"kind": 3, "a": 1, "b": 0.5, "seed": LAST_KEY},
    "truncated": {"kind": 4, "a": 0, "b": 2},
}


def bits(values):
    """Floats as bytes: equal only where every bit is."""
    return struct.pack(f"<{len(values)}f", *values)


SHARD_1 = 1 << pc.SHARD_SHIFT  # of the page


class ClusterTest(harness.StarlingTest):
    """Helpers: clusters, clients that close with the test, and what a refusal looks like."""

    def cluster(self, ps_count=1, reactors=2, worker_count=2, lease_s=60, extra=()):
        """Starts ps processes; returns the coordinator's endpoint. The lease is longer than any of
        these clients, which send no heartbeats, is silent."""
        self.servers, flags = self.start_ps(ps_count, worker_count, extra=["--lease", lease_s, *extra],
                                            env={"NETWORK_PS_CORE_NUMBER": str(reactors)})
        harness.wait_lines(self.servers, "ready")
        self.coordinator = "tcp://" + flags[1].split(",")[0]
        return self.coordinator

    def setUp(self):
        super().setUp()
        self.servers = []
        self.peers = contextlib.ExitStack()
        self.addCleanup(self.peers.close)

    def tearDown(self):
        """Whatever happened to a ps, it ends well: this is where a sanitizer's finding shows."""
        self.peers.close()
        self.drain([server for server in self.servers if server.running()])
        super().tearDown()

    def client(self, coordinator=None, **member):
        client = Client(coordinator or self.coordinator, **member)
        self.peers.callback(client.close)
        return client

    def worker(self, index):
        return self.client(role=pc.ROLE_WORKER, task_index=index)

    def connection(self, purpose=pc.PURPOSE_CONTROL, **member):
        connection = Connection(self.coordinator, purpose, **member)
        self.peers.callback(connection.close)
        return connection

    def raw(self, data=b""):
        """A TCP connection that sends bytes of its own choice instead of a hello."""
        peer = socket.create_connection(pc.endpoint_address(self.coordinator), timeout=pc.WAIT_S)
        self.peers.callback(peer.close)
        peer.sendall(data)
        return peer

    @contextlib.contextmanager
    def refused(self, code, *texts):
        with self.assertRaises(pc.Refused) as caught:
            yield
        self.assertEqual(caught.exception.code, code, caught.exception)
        for text in texts:
            self.assertIn(text, caught.exception.text)

    def assert_parked(self, connection, request_id):
        end = time.monotonic() + PARKED_S
        while connection.readable(max(0, end - time.monotonic())):
            connection.receive()
        self.assertNotIn(request_id, connection.replies)

    def assert_raw_ended(self, peer):
        """The peer must read its end; returns what came before."""
        received = b""
        with contextlib.suppress(ConnectionError):
            while part := peer.recv(65536):
                received += part
        return received


class Page(unittest.TestCase):
    """The library against the page's own tables and frames, without a server."""

    @classmethod
    def setUpClass(cls):
        with open(PAGE, encoding="utf-8") as file:
            cls.blocks = re.findall(r"```(\w+) ?([\w-]*)\n(.*?)```", file.read(), re.DOTALL)

    def lines(self, wanted):
        """The words of each line of the one block of that kind."""
        return [line.split() for kind, _, text in self.blocks if kind == wanted
                for line in text.strip().splitlines()]

    def frame(self, wanted):
        for kind, name, text in self.blocks:
            if (kind, name) == ("hex", wanted):
                return bytes.fromhex("".join(line.split(":")[1] for line in text.splitlines()))
        raise AssertionError(wanted)

    def control(self, wanted):
        return pc.decode("Control", self.frame(wanted)[32:])

    def test_checksum(self):
        self.assertEqual(pc.crc32c(b"123456789"), 0xE3069283)
        frame = Frame(pc.CREDIT, credit_bytes=4096, credit_requests=2)
        self.assertEqual(pc.frame_bytes(frame, checksum=True), self.frame("credit"))
        data = self.frame("credit")
        self.assertEqual(pc.parse_frame(data, b"").credit_bytes, 4096)
        with self.assertRaises(ValueError):
            pc.parse_frame(data[:24] + b"\1" + data[25:], b"")

    def test_partition(self):
        for key, hashed, *shards in self.lines("partition"):
            self.assertEqual(pc.hash_key(int(key)), int(hashed, 16))
            got = [pc.shard_of(int(key), count) for count in (2, 3, 7, 4096)]
            self.assertEqual(got, [int(shard) for shard in shards])

    def test_kv_partition(self):
        for key, *shards in self.lines("kv-partition"):
            got = [pc.kv_shard_of(int(key), count) for count in (2, 3, 7, 4096)]
            self.assertEqual(got, [int(shard) for shard in shards])

    def test_ranges(self):
        for line in self.lines("ranges"):
            length, count, table, shard, index, start, end = map(int, line)
            self.assertEqual(pc.dense_ranges(length, count, table)[index], (shard, start, end))

    def test_control_messages(self):
        names = ("hello", "welcome", "hello-with-nonce", "challenge", "proof-of-the-client",
                 "proof-of-the-server", "register", "cluster",
                 "heartbeat", "lost", "barrier", "table-open", "table-opened", "table-ask", "join",
                 "joined",
                 "goodbye")
        for name in names:
            data = pc.encode("Control", self.control(name))
            self.assertEqual(pc.frame_bytes(Frame(pc.CONTROL, data)), self.frame(name), name)
        self.assertEqual(self.control("hello")["hello"]["task_index"], 3)
        self.assertEqual(self.control("cluster")["cluster"]["ps"][1]["data_endpoint"],
                         "tcp://10.0.0.2:5555")

    def test_authentication(self):
        secret = b"the secret of this cluster"
        hello = self.control("hello-with-nonce")["hello"]
        challenge = self.control("challenge")["challenge"]
        self.assertEqual(list(challenge), ["nonce"])
        for side in ("client", "server"):
            self.assertEqual(pc.prove(secret, side.encode(), hello, challenge["nonce"]),
                             self.control("proof-of-the-" + side)["proof"]["proof"])

    def test_requests(self):
        table = Table(5, {"dim": 3})
        sections = [pc.pull(table, [2, 4, 5])]
        frame = Frame(pc.REQUEST, pc.request_payload(sections), SHARD_1 | 1, 5000000)
        self.assertEqual(pc.frame_bytes(frame), self.frame("pull-request"))
        payload = self.frame("pull-reply")[32:]
        self.assertEqual(pc.split_reply(sections, payload)[0],
                         (0.5, -0.5, 1, 2, 0.25, -1, 0, 3, 8))
        payload = pc.request_payload([pc.push(table, [2], [(0.125, 0, -1)]), pc.tick()])
        self.assertEqual(pc.frame_bytes(Frame(pc.REQUEST, payload, SHARD_1 | 2, 5000000)),
                         self.frame("push-request"))
        array = Table(7, {"kind": pc.DENSE, "length": 10000})
        encoded = pc.push_pull(table, [2, 4], [(0.125, 0, -1), (100, -3, 2)], pushed=pc.INT8,
                               returned=pc.BF16)
        for request_id, name, section in (
                (5, "assign-request", pc.assign(table, [2], [(0.5, -0.5, 1)])),
                (6, "dense-assign-request", pc.dense_assign(array, 2048, [1, 2, -1])),
                (7, "erase-request", pc.erase(table, [2, 4])),
                (8, "rate-request", pc.push(table, [2], [(0.125, 0, -1)], rate=0.5)),
                (9, "find-request", pc.Find(table, [2])),
                (10, "scan-request", pc.Scan(table, 2, since=3)),
                (11, "encoded-request", encoded)):
            payload = pc.request_payload([section], clock=1)
            self.assertEqual(pc.frame_bytes(Frame(pc.REQUEST, payload, SHARD_1 | request_id, 5000000)),
                             self.frame(name))
        payload = self.frame("find-reply")[32:]
        self.assertEqual(pc.split_reply([pc.Find(table, [2])], payload), [(0.5, -0.5, 1, 1)])
        payload = self.frame("scan-reply")[32:]
        self.assertEqual(pc.split_reply([pc.Scan(table, 2)], payload),
                         [(77, LAST_KEY, 5, 9, 1, 6, 2, 0, 4, 3, 0, 0, 0.5, -0.5, 1, 0, 0, 0)])

        payload = self.frame("encoded-reply")[32:]
        self.assertEqual(pc.split_reply([encoded], payload), [(0.625, -0.5, 0, 100, -3, 2)])

    def test_kv_requests(self):
        table = Table(6, {"kind": pc.KV, "dim": 4})
        sections = [pc.kv_push_pull(table, [1 << 63, 3 << 62 | 1], [[0.5], [1, 2, -1]], command=7),
                    pc.kv_lengths(table, [LAST_KEY])]
        frame = Frame(pc.REQUEST, pc.request_payload(sections), SHARD_1 | 4, 5000000)
        self.assertEqual(pc.frame_bytes(frame), self.frame("kv-request"))
        payload = self.frame("kv-reply")[32:]
        self.assertEqual(pc.split_reply(sections, payload), [(1.5, 1, 2, 0), (0,)])


class Parameters(ClusterTest):
    """What pushes and pulls do, over every shard of a cluster."""

    def test_one_ps_with_two_shards(self):
        self.cluster(1, 2)
        self.check_everything(shard_count=2)

    def test_two_ps_with_two_shards_each(self):
        self.cluster(2, 2)
        self.check_everything(shard_count=4)

    def test_reactors_with_several_shards_each(self):
        self.cluster(2, 2, extra=["--shards", 8])
        self.check_everything(shard_count=8)

    def test_shards_of_a_reactor_share_a_connection(self):
        """One that is refused leaves the others as they are; one that is not attached ends all."""
        self.cluster(1, 1, extra=["--shards", 8])
        self.client()
        shared = self.connection(pc.PURPOSE_DATA, shard=0)
        for shard in range(1, 8):
            self.assertEqual(shared.attach(shard)["shard"], shard)
        with self.refused(pc.AGAIN, "shard 8 is not on this reactor of ps/0"):
            shared.attach(8, wait_s=0)
        for shard in range(8):
            shared.shard = shard
            shared.ask("stats_get", "stats")
        shared.shard = 9
        shared.tell("stats_get", 1)
        shared.wait_closed()

    def check_everything(self, shard_count):
        client = self.client()
        self.check_cluster(client, shard_count)
        self.check_sparse(client)
        self.check_dense(client)
        self.check_kv(client)
        self.check_erase(client)
        self.check_sections(client)
        self.check_stats(client)
        client.goodbye()
        for server in self.servers:
            self.assertNotIn("vanished", server.output)
        self.drain(self.servers)

    def check_cluster(self, client, shard_count):
        self.assertEqual(sum(ps["shard_count"] for ps in client.cluster["ps"]), shard_count)
        self.assertEqual(client.cluster["worker_count"], 2)
        for index, shard in enumerate(client.shards):
            self.assertEqual(shard.welcome["shard"], index)
            self.assertEqual(shard.welcome["shard_count"], shard_count)
            self.assertGreater(shard.welcome["credit_bytes"], 1 << 20)

    def check_sparse(self, client):
        table = client.open(**SPARSE_SUM)
        self.assertEqual({pc.shard_of(key, len(client.shards)) for key in KEYS},
                         set(range(len(client.shards))))
        self.assertEqual(client.pull(table, KEYS), [(0, 0, 0)] * len(KEYS))
        rows = [(i, -i, 0.5) for i in range(len(KEYS))]
        client.push(table, KEYS, rows)
        self.assertEqual(client.pull(table, KEYS), rows)
        client.push(table, KEYS, rows)
        doubled = [(2 * i, -2 * i, 1) for i in range(len(KEYS))]
        self.assertEqual(client.pull(table, KEYS), doubled)
        self.check_repeated_keys(client, table, doubled)
        self.check_pooled(client, table, doubled)
        got = client.push_pull(table, KEYS, [(0, 0, 1)] * len(KEYS))
        self.assertEqual(got, [(a, b, 2) for a, b, _ in doubled])
        table = client.open(name="assigned", dim=1)
        client.push(table, KEYS, [(1,)] * len(KEYS))
        client.assign(table, [5000, 0, LAST_KEY, 0], [(1,), (2,), (3,), (4,)])
        self.assertEqual(client.pull(table, [0, LAST_KEY, 5000, 1]), [(4,), (3,), (1,), (1,)])

    def check_repeated_keys(self, client, table, rows):
        self.assertEqual(client.pull(table, [0, LAST_KEY, 0]), [rows[0], rows[1], rows[0]])
        client.push(table, [0, LAST_KEY, 0, 0], [(1, 0, 0), (0, 8, 0), (2, 0, 0), (4, 0, 0)])
        self.assertEqual(client.pull(table, [0, LAST_KEY]), [(7, 0, 1), (2, 6, 1)])
        client.push(table, [0, LAST_KEY], [(-7, 0, 0), (0, -8, 0)])

    def check_pooled(self, client, table, rows):
        bags = [[0], [], KEYS, [KEYS[5], KEYS[5], LAST_KEY], []]
        found = [[(0, 0, 0)] + [rows[KEYS.index(key)] for key in bag] for bag in bags]
        wanted = [tuple(sum(column) for column in zip(*bag)) for bag in found]
        self.assertEqual(client.pull_pooled(table, bags), wanted)

    def check_erase(self, client):
        table = client.open(name="erase", dim=1)
        client.push(table, KEYS, [(i + 1,) for i in range(len(KEYS))])
        gone = KEYS[::2]
        client.erase(table, gone + [1234567])
        found = client.find(table, KEYS)
        self.assertEqual([key for key, (_, has_row) in zip(KEYS, found) if not has_row], gone)
        self.assertEqual([row for row, _ in found], client.pull(table, KEYS))
        left = {key: (i + 1,) for i, key in enumerate(KEYS) if i % 2}
        for rows_max in (1, 7, 4096):
            self.assertEqual(client.scan(table, rows_max), (left, len(left)))
        with self.refused(pc.CLOSED, "another copy of the shard"):
            client.shards[0].do(pc.Scan(table, 1, copy=1))
        self.assertEqual(client.pull(table, KEYS),
                         [(i + 1 if i % 2 else 0,) for i in range(len(KEYS))])
        client.push(table, gone, [(5,)] * len(gone))
        self.assertEqual(client.pull(table, gone), [(5,)] * len(gone))

    def check_dense(self, client):
        table = client.open(**DENSE_SUM)
        values = [float(i) for i in range(table.length)]
        self.assertEqual(client.dense_pull(table, 0, table.length), [0.0] * table.length)
        client.dense_push(table, 0, values)
        self.assertEqual(client.dense_pull(table, 0, table.length), values)
        for start, count in ((0, 1), (1023, 2), (3071, 2049), (table.length - 1, 1)):
            self.assertEqual(client.dense_pull(table, start, count), values[start:start + count])
        got = client.dense_push_pull(table, 1000, [1.0] * 5001)
        self.assertEqual(got, [value + 1 for value in values[1000:6001]])
        self.assertEqual(client.dense_pull(table, 999, 2), [999, 1001])
        self.assertEqual(client.dense_pull(table, 6000, 2), [6001, 6001])
        client.dense_assign(table, 1000, values[1000:6001])
        self.assertEqual(client.dense_pull(table, 0, table.length), values)

    def check_kv(self, client):
        """Arrays of a KV table, on the shard of each."""
        floats = client.open(name="kv", kind=pc.KV, dim=4)
        octets = client.open(name="octets", kind=pc.KV, dim=1)
        for index, shard in enumerate(client.shards):
            step = (1 << 64) // len(client.shards)
            keys = [index * step, index * step + 1, (index + 1) * step - 1]
            self.assertEqual({pc.kv_shard_of(key, len(client.shards)) for key in keys}, {index})
            arrays = [(1, 2, 3), (4,), (5, 6)]
            got = shard.do(pc.kv_push(floats, keys, arrays), pc.kv_push(octets, keys, arrays),
                           pc.kv_push_pull(floats, keys, arrays),
                           pc.kv_push_pull(octets, keys[:1], [(9, 8, 7)], lens=False),
                           pc.kv_lengths(floats, keys + [keys[0] + 2]),
                           pc.kv_pull(octets, keys, [3, 1, 2]))
            self.assertEqual(got, [(), (), (2, 4, 6, 8, 10, 12), (9, 8, 7), (3, 1, 2, 0),
                                   (9, 8, 7, 4, 5, 6)])
            self.check_kv_pieces(shard, octets, keys[0] + 5)
            self.check_kv_errors(shard, floats, keys, (index + 1) * step % (1 << 64),
                                 len(client.shards))

    def check_kv_pieces(self, shard, table, key):
        whole = 200000
        values = random.Random(5).randbytes(whole)
        for start in range(0, whole, 70000):
            shard.do(pc.kv_piece(pc.KV_PUSH, table, key, start, whole, values[start:start + 70000]))
        got, = shard.do(pc.kv_pull(table, [key], [whole]))
        self.assertEqual(bytes(got), values)
        got, = shard.do(pc.kv_piece(pc.KV_PULL, table, key, 1, whole, range(150000)))
        self.assertEqual(bytes(got), values[1:150001])

    def check_kv_errors(self, shard, table, keys, foreign, shard_count):
        """The connection goes on, and nothing of the section has been done."""
        fresh = keys[0] + 7
        with self.refused(pc.INVALID, f"key {keys[0]} has 3 values"):
            shard.do(pc.kv_push(table, [fresh, keys[0]], [(1,), (1,)]))
        with self.refused(pc.NOT_FOUND, f"key {fresh}"):
            shard.do(pc.kv_pull(table, [keys[0], fresh], [3, 1]))
        if shard_count > 1:
            with self.refused(pc.WRONG_SHARD, f"key {foreign}"):
                shard.do(pc.kv_push(table, [fresh, foreign], [(1,), (1,)]))
        self.assertEqual(shard.do(pc.kv_lengths(table, [fresh])), [(0,)])

    def check_sections(self, client):
        """Several sections of one message are done in order, each on what the last one left."""
        table, array = client.open(name="s", dim=1), client.open(**DENSE_SUM)
        for index, first, end in pc.dense_ranges(array.length, len(client.shards), array.id):
            keys = [key for key in KEYS if pc.shard_of(key, len(client.shards)) == index][:3]
            before, = client.shards[index].do(pc.dense_pull(array, first, 1))
            got = client.shards[index].do(
                pc.pull(table, keys), pc.push(table, keys, [(1,), (2,), (4,)]),
                pc.pull_pooled(table, [keys, keys[1:2]]), pc.dense_push(array, first, [0.5]),
                pc.dense_pull(array, first, 1), pc.push_pull(table, keys[:1], [(8,)]),
                pc.dense_push_pull(array, end - 1, [-1.0]), pc.pull(table, keys))
            last = got.pop(6)[0] + 1
            self.assertEqual(got, [(0, 0, 0), (), (7, 2), (), (before[0] + 0.5,), (9,), (9, 2, 4)])
            client.dense_push(array, first, [-0.5])
            client.dense_push(array, end - 1, [1.0])
            self.assertEqual(client.dense_pull(array, end - 1, 1), [last])

    def check_stats(self, client):
        """A shard counts what it holds and did; the coordinator knows the tables."""
        stats = [shard.ask("stats_get", "stats") for shard in client.shards]
        by_table = [{table["name"]: table for table in part["tables"]} for part in stats]
        self.assertEqual(sum(part["sum"]["rows"] for part in by_table), len(KEYS))
        self.assertEqual(sum(part["array"]["rows"] for part in by_table), 10000)
        for part, tables in zip(stats, by_table):
            self.assertGreater(tables["sum"]["pulled_rows"], tables["sum"]["rows"])
            self.assertGreater(tables["sum"]["pushed_rows"], tables["sum"]["rows"])
            self.assertGreater(tables["sum"]["bytes"], 12 * tables["sum"]["rows"])
            self.assertGreater(tables["sum"]["steps"], 1)
            for name in ("requests", "bytes_in", "bytes_out"):
                self.assertGreater(part[name], 0, name)
        known = client.control.ask("stats_get", "stats")["tables"]
        self.assertLessEqual({"sum", "array", "s"}, {table["name"] for table in known})

    def test_precisions(self):
        """What is pushed has its widened values, and what is returned those of f32, rounded."""
        self.cluster()
        client = self.client()
        self.check_rows_of_precisions(client)
        self.check_dense_of_precisions(client)
        self.check_kv_of_precisions(client)

    def draw(self, count):
        """Values of many sizes."""
        values = random.Random(count)
        return [values.uniform(-1, 1) * 2.0 ** values.randrange(-12, 12) for _ in range(count)]

    def rounded(self, precision, values, width):
        """The values as they arrive in this precision, in rows of this width."""
        rows = [values[i:i + width] for i in range(0, len(values), width)]
        return [value for row in rows for value in pc.widen(precision, pc.narrow(precision, row))]

    def check_rows_of_precisions(self, client):
        dim = 5
        for pushed in (pc.F16, pc.BF16, pc.INT8):
            table = client.open(name=f"pushed{pushed}", dim=dim)
            values = self.draw(dim * len(KEYS))
            client.push(table, KEYS, pc.rows_of(values, dim), pushed=pushed)
            wanted = self.rounded(pushed, values, dim)
            self.assertEqual(client.pull(table, KEYS), pc.rows_of(wanted, dim))
            client.push(table, [7, 7], [(1, 2, 0, 0, 0), (3, 0, -4, 0, 0)], pushed=pushed)
            before = wanted[dim * KEYS.index(7):][:3]
            after, = client.pull(table, [7])
            self.assertEqual(bits(after[:3]), bits([before[0] + 4, before[1] + 2, before[2] - 4]))
            for returned in (pc.F16, pc.BF16, pc.INT8):
                rows = client.pull(table, KEYS)
                wanted = [tuple(self.rounded(returned, row, dim)) for row in rows]
                self.assertEqual(client.pull(table, KEYS, returned=returned), wanted)
                self.assertEqual(client.push_pull(table, KEYS, [[0] * dim] * len(KEYS), pushed=pushed,
                                                  returned=returned), wanted)
                shard = client.owner(7)
                self.assertEqual(shard.do(pc.pull_pooled(table, [[7], []], returned=returned))[0],
                                 wanted[KEYS.index(7)] + (0,) * dim)

    def check_dense_of_precisions(self, client):
        table = client.open(name="precise", kind=pc.DENSE, length=100000)
        start, count = 300, 99000
        ranges = [(max(first, start), min(end, start + count))
                  for _, first, end in pc.dense_ranges(table.length, len(client.shards), table.id)]
        for pushed in (pc.F16, pc.BF16, pc.INT8):
            values = self.draw(count)
            client.dense_assign(table, 0, [0] * table.length)
            client.dense_push(table, start, values, pushed=pushed)
            wanted = [value for first, end in ranges
                      for value in self.rounded(pushed, values[first - start:end - start], pc.ARRAY_ROW)]
            self.assertEqual(client.dense_pull(table, start, count), wanted)
            for returned in (pc.F16, pc.BF16):
                got = self.rounded(returned, wanted, pc.ARRAY_ROW)
                self.assertEqual(client.dense_pull(table, start, count, returned=returned), got)
                self.assertEqual(client.dense_push_pull(table, start, [0] * count, pushed=pushed,
                                                        returned=returned), got)

    def check_kv_of_precisions(self, client):
        floats = client.open(name="precise-kv", kind=pc.KV, dim=4)
        halves = client.open(name="half-kv", kind=pc.KV, dim=2, values=pc.F16)
        shard, sizes = client.shards[0], [1, 700, 80000]
        for pushed in (pc.F16, pc.BF16, pc.INT8):
            keys = [10 * pushed + i for i in range(3)]
            values = self.draw(sum(sizes))
            arrays = [values[:1], values[1:701], values[701:]]
            wanted = self.rounded(pushed, values, pc.ARRAY_ROW)
            got = shard.do(pc.kv_push(floats, keys, arrays, pushed=pushed), pc.kv_pull(floats, keys, sizes))
            self.assertEqual(got[1], tuple(wanted))
            for returned in (pc.F16, pc.BF16):
                got = shard.do(pc.kv_pull(floats, keys, sizes, returned=returned),
                               pc.kv_piece(pc.KV_PULL, floats, keys[2], 3, 80000, range(79000),
                                           returned=returned))
                wanted_now = self.rounded(returned, wanted, pc.ARRAY_ROW)
                self.assertEqual(got, [tuple(wanted_now), tuple(wanted_now[704:79704])])
                got, = shard.do(pc.kv_piece(pc.KV_PULL, floats, keys[2], 3, 80000, range(79000),
                                            returned=returned))
                self.assertEqual(got, tuple(wanted_now[704:79704]))
        got = shard.do(*[pc.kv_push_pull(halves, [1, 2], [[1, 2049], [0.5]])] * 2)
        self.assertEqual(got, [(1, 2048, 0.5), (2, 4096, 1)])
        with self.refused(pc.PROTOCOL, "the body does not fit"):
            shard.do(pc.kv_pull(halves, [1], [2], returned=pc.F16))

    def test_rate(self):
        """It scales one push, sparse or dense, of any mode."""
        self.cluster()
        client = self.client()
        sgd = {"kind": 1, "lr": 0.5}
        for mode in (pc.ASP, pc.BSP):
            consistency = {"mode": mode, "worker_count": 2 if mode else 0}
            table = client.open(name=f"rows{mode}", dim=1, optimizer=sgd, consistency=consistency)
            array = client.open(name=f"array{mode}", kind=pc.DENSE, length=5000, optimizer=sgd,
                                consistency=consistency)
            for rate in (1, 0.25, 8):
                client.push(table, [1, 2], [(2,), (4,)], rate=rate)
                client.dense_push(array, 0, [2] * 5000, rate=rate)
            self.assertEqual(client.pull(table, [1, 2]), [(-9.25,), (-18.5,)])
            self.assertEqual(client.dense_pull(array, 0, 5000), [-9.25] * 5000)

    def test_repeated_key_is_one_step(self):
        """With a stateful optimizer, two steps would not equal one with the summed gradient."""
        self.cluster()
        client = self.client()
        table = client.open(name="adagrad", dim=2, optimizer={
            "kind": 3, "lr": 0.5, "epsilon": 1e-6, "initial_accumulator": 0.25})
        client.push(table, [0, LAST_KEY, 0], [(1, 2), (4, -1), (3, -3)])
        one, two = client.pull(table, [0, LAST_KEY])
        self.assertEqual(one, two)
        self.assertNotEqual(one, (0, 0))

    def test_initial_values_do_not_depend_on_the_cluster(self):
        one, three = self.initial_values(1), self.initial_values(3)
        for name in INITIALIZERS:
            self.assertEqual(one[name], three[name], name)
        self.assertEqual(len(set(one.values())), len(one))

    def initial_values(self, reactors):
        """Bits of a sparse and a dense table for each initializer; table ids differ by cluster."""
        self.cluster(1, reactors)
        client = self.client()
        for i in range(reactors):
            client.open(name=f"other{i}", dim=1)
        found = {}
        for name, initializer in INITIALIZERS.items():
            table = client.open(name=name, dim=5, initializer=initializer)
            array = client.open(name=name + "-dense", kind=pc.DENSE, length=5000,
                                initializer=initializer)
            rows = client.pull(table, KEYS)
            found[name] = (b"".join(map(bits, rows)), bits(client.dense_pull(array, 0, 5000)))
        return found

    def test_credit_comes_back(self):
        """Far more work than the first credit pays for; at rest all of it reconnected."""
        self.cluster()
        client = self.client()
        table = client.open(name="wide", dim=4096)
        shard = client.owner(0)
        first = (shard.credit_bytes, shard.credit_requests)
        keys = [0] * 200
        ids = [shard.start(pc.push(table, [0], [[1.0] * 4096]), pc.pull(table, keys))
               for _ in range(12)]
        for count, request_id in enumerate(ids, 1):
            got = shard.finish(request_id)[1]
            self.assertEqual((got[0], got[-1], len(got)), (count, count, 200 * 4096))
        ids = [shard.start(pc.pull(table, [0])) for _ in range(600)]
        for request_id in ids:
            self.assertEqual(shard.finish(request_id)[0][0], 12)
        self.assertEqual((shard.credit_bytes, shard.credit_requests), first)

    def test_checksummed_frames(self):
        self.cluster()
        client = self.client(checksum=True)
        table = client.open(**SPARSE_SUM)
        client.push(table, KEYS, [(1, 2, 3)] * len(KEYS))
        self.assertEqual(client.pull(table, KEYS), [(1, 2, 3)] * len(KEYS))


class Members(ClusterTest):
    """Hello, register, tables, barriers: what is answered, and what is refused."""

    def setUp(self):
        super().setUp()
        if self._testMethodName not in ("test_waits_for_a_ps_that_is_missing",
                                        "test_silence_before_the_hello"):
            self.cluster()

    def test_waits_for_a_ps_that_is_missing(self):
        first, second = harness.free_ports(2)
        flags = ["--ps-hosts", f"127.0.0.1:{first},127.0.0.1:{second}", "--worker-hosts", "a",
                 "--lease", 60, "--job-name", "ps", "--task-index"]
        env = {"NETWORK_PS_CORE_NUMBER": "1"}
        self.start("starling-ps", *flags, 0, env=env).wait_line("ps/1")
        self.coordinator = f"tcp://127.0.0.1:{first}"
        control = self.connection()
        request_id = control.start_asking("register")
        control.receive()
        self.assertEqual(control.messages.pop()["waiting"]["missing"], ["ps/1"])
        self.start("starling-ps", *flags, 1, env=env)
        cluster = control.answer(request_id, "cluster")
        self.assertEqual([ps["task_index"] for ps in cluster["ps"]], [0, 1])

    def test_hellos_that_are_refused(self):
        with self.refused(pc.INVALID, "no reactor 2"):
            self.connection(pc.PURPOSE_DATA, shard=2)
        with self.refused(pc.INVALID, "worker/2"):
            self.connection(role=pc.ROLE_WORKER, task_index=2)
        member = self.connection(role=pc.ROLE_WORKER, task_index=1)
        with self.refused(pc.AGAIN, "worker/1"):
            self.connection(role=pc.ROLE_WORKER, task_index=1, client_id=5)
        member.ask("stats_get", "stats")  # so it is alive
        with self.refused(pc.EXISTS, "worker/1"):
            self.connection(role=pc.ROLE_WORKER, task_index=1, client_id=5)
        first = self.connection(pc.PURPOSE_DATA, role=pc.ROLE_WORKER, task_index=1)
        with self.refused(pc.AGAIN, "worker/1"):
            self.connection(pc.PURPOSE_DATA, role=pc.ROLE_WORKER, task_index=1)
        self.connection(pc.PURPOSE_DATA, role=pc.ROLE_WORKER, task_index=1, shard=1)
        first.ask("stats_get", "stats")
        for broken in ({"purpose": 3}, {"purpose": pc.PURPOSE_DATA, "shard": 4096},
                       {"role": 0}, {"role": pc.ROLE_CLIENT, "task_index": 1}):
            with self.assertRaises(pc.Closed, msg=broken):
                self.connection(**broken)

    def test_another_version(self):
        """Be it the frame's or the hello's: an error that names both versions, then the end."""
        hello = {"protocol_version": pc.VERSION, "purpose": pc.PURPOSE_CONTROL, "role": pc.ROLE_CLIENT}
        later = pc.encode("Control", {"id": 1, "hello": {**hello, "protocol_version": 77}})
        for data in (pc.frame_bytes(Frame(9, b"\xff" * 40, flags=254), version=77),
                     pc.frame_bytes(Frame(pc.CONTROL, later))):
            received = self.assert_raw_ended(self.raw(data))
            self.assertEqual(pc.check_header(received[:32]), len(received) - 32)
            error = pc.decode("Control", received[32:])["error"]
            self.assertEqual(error["code"], pc.OTHER_VERSION)
            self.assertRegex(error["text"], rf"version {pc.VERSION}\b.*version 77\b")

    def test_counts_that_members_expect(self):
        with self.refused(pc.INVALID, "5", "2"):
            self.client(worker_count=5)
        self.client(worker_count=2)

    def test_tables(self):
        client, other = self.client(), self.client()
        table = client.open(**SPARSE_SUM)
        opened = self.connection().ask("table_open", "table_opened", spec=SPARSE_SUM)
        self.assertEqual(opened["table_id"], table.id)
        self.assertEqual(other.open(**SPARSE_SUM).id, table.id)
        spec = {"name": "sum", "dim": 4}
        told = self.connection().ask("table_open", "table_open", spec={"name": "sum"}, ask=1)
        self.assertEqual(told["table_id"], table.id)
        shard = other.shards[0]
        again = shard.ask("table_open", "table_opened", spec=told["spec"], table_id=table.id)
        self.assertEqual(again["table_id"], table.id)
        with self.refused(pc.NOT_FOUND, "no client has opened a table"):
            self.connection().ask("table_open", "table_open", spec={"name": "summ"}, ask=1)
        with self.refused(pc.INVALID, "the coordinator is"):
            shard.ask("table_open", "table_open", spec={"name": "sum"}, ask=1)
        with self.refused(pc.EXISTS, "dim"):
            other.open(**spec)
        with self.refused(pc.EXISTS, "dim"):
            other.shards[0].ask("table_open", "table_opened", spec=spec, table_id=table.id)
        with self.refused(pc.EXISTS, "lr"):
            other.open(**SPARSE_SUM, optimizer={"kind": 0, "lr": 2})
        client.push(table, KEYS, [(1, 1, 1)] * len(KEYS))
        self.assertEqual(other.pull(table, [0]), [(1, 1, 1)])

    def test_barrier(self):
        one, two = self.client(), self.client()
        first = one.control.start_asking("barrier", name="b", count=2)
        self.assert_parked(one.control, None)
        two.control.ask("barrier", "barrier_done", name="b", count=2)
        one.control.answer(first, "barrier_done")
        one.control.start_asking("barrier", name="c", count=2)
        with self.refused(pc.INVALID, "3", "2"):
            two.control.ask("barrier", "barrier_done", name="c", count=3)
        with self.refused(pc.PROTOCOL):
            two.shards[0].ask("barrier", "barrier_done", name="c", count=1)

    def test_goodbye_of_the_ps(self):
        client = self.client()
        self.drain(self.servers)
        for connection in [client.control] + client.shards:
            self.assertIn("goodbye", connection.wait_closed()[-1])

    def test_silence_before_the_hello(self):
        """The ten seconds pass for all of these at once; who is welcome may be silent for longer."""
        self.cluster()
        hello = pc.frame_bytes(Frame(pc.CONTROL, bytes(20)))
        client, start = self.client(), time.monotonic()
        peers = [self.raw(data) for data in (b"", b"GET / HTTP/1.0\r\n\r\n", hello[:40])]
        for peer in peers:
            self.assert_raw_ended(peer)
        self.assertGreater(time.monotonic() - start, 8)
        self.assertEqual(client.pull(client.open(**SPARSE_SUM), [0]), [(0, 0, 0)])


class Sessions(ClusterTest):
    """What a shard remembers of a client whose connection breaks, and for how long."""

    def data(self, **member):
        return self.connection(pc.PURPOSE_DATA, shard=pc.shard_of(0, 2), **member)

    def again(self, last):
        """The same client on a new connection, as if the last reply had not come: its last id is
        free to be sent again."""
        last.close()
        connection = self.data(client_id=last.client_id)
        connection.last_request_id = last.last_request_id - 1
        return connection

    def test_a_push_sent_again_counts_once(self):
        self.cluster()
        client = self.client()
        table = client.open(**SPARSE_SUM)
        first = self.data()
        self.assertFalse(first.welcome["resumed"])
        push = pc.push(table, [0], [(1, 2, 3)])
        first.do(push)
        second = self.again(first)
        self.assertTrue(second.welcome["resumed"])
        self.assertEqual(second.welcome["incarnation"], first.welcome["incarnation"])
        second.do(push)
        self.assertEqual(client.pull(table, [0]), [(1, 2, 3)])
        second.do(push)
        self.assertEqual(client.pull(table, [0]), [(2, 4, 6)])
        third = self.again(second)
        both = third.do(pc.push_pull(table, [0], [(9, 9, 9)]))
        self.assertEqual(both, [(2, 4, 6)])  # its id has pushed: only the pull is done

    def test_a_failure_told_again(self):
        self.cluster()
        table = self.client().open(**SPARSE_SUM)
        stranger = next(key for key in KEYS if pc.shard_of(key, 2) != pc.shard_of(0, 2))
        first = self.data()
        first.ask("stats_get", "stats")
        for connection in (first, None):
            connection = connection or self.again(first)
            with self.refused(pc.WRONG_SHARD):
                connection.do(pc.push(table, [stranger], [(1, 1, 1)]))

    def test_a_second_connection_takes_the_place(self):
        self.cluster()
        table = self.client().open(**SPARSE_SUM)
        first = self.data()
        first.do(pc.push(table, [0], [(1, 1, 1)]))
        second = self.data(client_id=first.client_id)
        first.wait_closed()
        second.last_request_id = first.last_request_id
        self.assertEqual(second.do(pc.pull(table, [0])), [(1, 1, 1)])

    def test_a_goodbye_ends_the_session(self):
        self.cluster()
        first = self.data()
        first.ask("stats_get", "stats")
        first.goodbye()
        self.assertFalse(self.data(client_id=first.client_id).welcome["resumed"])

    def test_the_lease_ends_it_too(self):
        self.cluster(lease_s="300ms")
        self.assertEqual(self.connection().welcome["lease_ms"], 300)
        first = self.data()
        first.ask("stats_get", "stats")
        first.close()
        end = time.monotonic() + pc.WAIT_S
        resumed = True
        while resumed:  # a connection that says nothing renews nothing, but takes a place
            self.assertLess(time.monotonic(), end)
            time.sleep(0.5)
            connection = self.data(client_id=first.client_id)
            resumed = connection.welcome["resumed"]
            connection.close()


class Secret(ClusterTest):
    """Who may connect to a cluster that has a secret."""

    def test_authentication(self):
        path = os.path.join(self.folder, "secret")
        with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
            file.write(b"sixteen bytes and more\n")
        secret = b"sixteen bytes and more"
        self.cluster(extra=["--secret-file", path])
        client = self.client(secret=secret)
        table = client.open(**SPARSE_SUM)
        client.push(table, KEYS, [(1, 2, 3)] * len(KEYS))
        self.assertEqual(client.pull(table, KEYS), [(1, 2, 3)] * len(KEYS))
        for purpose in (pc.PURPOSE_CONTROL, pc.PURPOSE_DATA):
            with self.refused(pc.REFUSED, "secret"):
                self.connection(purpose)
            with self.refused(pc.REFUSED, "secret"):
                self.impostor(purpose)
        self.assertEqual(client.pull(table, [0]), [(1, 2, 3)])
        for connection in [client.control] + client.shards:
            connection.goodbye()

    def impostor(self, purpose):
        """Has no secret, and sends back all that the server has sent."""
        connection = self.raw()
        hello = {"protocol_version": pc.VERSION, "purpose": purpose, "role": pc.ROLE_CLIENT,
                 "client_id": 5, "nonce": bytes(32)}
        message = pc.encode("Control", {"id": 1, "hello": hello})
        connection.sendall(pc.frame_bytes(Frame(pc.CONTROL, message)))
        size = pc.check_header(connection.recv(32, socket.MSG_WAITALL))
        challenge = connection.recv(size, socket.MSG_WAITALL)
        nonce = pc.decode("Control", challenge)["challenge"]["nonce"]
        # Nothing that depends on the secret comes before the proof.
        self.assertEqual(challenge, pc.encode("Control", {"id": 1, "challenge": {"nonce": nonce}}))
        proof = pc.encode("Control", {"id": 1, "proof": {"proof": nonce}})
        connection.sendall(pc.frame_bytes(Frame(pc.CONTROL, proof)))
        received = self.assert_raw_ended(connection)
        error = pc.decode("Control", received[32:])["error"]
        raise pc.Refused(error["code"], error["text"])


class Clocks(ClusterTest):
    """Two workers in one thread: what waits, what passes it, and what it sees in the end."""

    def setUp(self):
        super().setUp()
        self.cluster()
        self.a, self.b, self.observer = self.worker(0), self.worker(1), self.client()

    def open(self, mode, staleness=0):
        spec = {"name": f"mode{mode}", "dim": 1, "consistency": {
            "mode": mode, "staleness": staleness, "worker_count": 2 if mode else 0}}
        return [member.open(**spec) for member in (self.a, self.b, self.observer)][0]

    def test_bsp(self):
        table = self.open(pc.BSP)
        for step in range(3):
            before = [(11 * step,)] * len(KEYS)
            self.assertEqual(self.a.pull(table, KEYS, clock=step), before)
            self.a.push(table, KEYS, [(1,)] * len(KEYS), clock=step)
            self.b.push(table, KEYS, [(10,)] * len(KEYS), clock=step)
            self.a.tick(step)
            self.assertEqual(self.observer.pull(table, KEYS), before)
            shard = self.a.owner(0)
            parked = shard.start(pc.pull(table, [0]), clock=step + 1)
            self.assert_parked(shard, parked)
            self.assertEqual(self.b.pull(table, KEYS, clock=step), before)
            self.b.tick(step)
            reply = shard.reply(parked)
            self.assertEqual((reply.status, reply.floor), (0, step + 1))
            self.assertEqual(struct.unpack("<f4x", reply.payload)[0], 11 * (step + 1))
        self.assertEqual(self.observer.pull(table, KEYS), [(33,)] * len(KEYS))

    def test_what_passes_a_parked_request(self):
        table, free = self.open(pc.BSP), self.open(pc.ASP)
        shard = self.a.owner(0)
        self.a.tick(0)
        pull = shard.start(pc.pull(table, [0]), clock=1)
        push = shard.start(pc.push(free, [0], [(1,)]), clock=1)
        shard.finish(push)  # a waiting pull lets pushes pass
        both = shard.start(pc.push_pull(table, [0], [(1,)]), clock=1)
        later = [shard.start(section, clock=1) for section in (
            pc.pull(free, [0]), pc.push(free, [0], [(1,)]), pc.pull(free, [0]))]
        self.assertEqual(shard.finish(later[0]), [(1,)])
        self.assert_parked(shard, later[1])
        self.assertNotIn(later[2], shard.replies)
        self.b.tick(0)
        self.assertEqual(shard.finish(both), [(0,)])  # its push counts from iteration 2 on
        self.assertEqual(shard.finish(pull), [(0,)])
        self.assertEqual([shard.finish(r) for r in later[1:]], [[()], [(2,)]])

    def test_ssp(self):
        table = self.open(pc.SSP, staleness=1)
        shard = self.a.owner(0)
        self.a.push(table, [0], [(1,)], clock=0)
        self.assertEqual(self.observer.pull(table, [0]), [(1,)])
        self.a.tick(0)
        self.assertEqual(self.a.pull(table, [0], clock=1), [(1,)])
        self.a.tick(1)
        parked = shard.start(pc.pull(table, [0]), clock=2)
        self.assert_parked(shard, parked)
        self.b.push(table, [0], [(10,)], clock=0)
        self.b.tick(0)
        self.assertEqual(shard.finish(parked), [(11,)])

    def test_deadline_of_a_parked_pull(self):
        table = self.open(pc.BSP)
        shard = self.a.owner(0)
        credit = (shard.credit_bytes, shard.credit_requests)
        start = time.monotonic()
        parked = shard.start(pc.pull(table, [0]), clock=1, budget_s=0.2)
        with self.refused(pc.DEADLINE):
            shard.finish(parked)
        self.assertGreater(time.monotonic() - start, 0.15)
        self.assertEqual((shard.credit_bytes, shard.credit_requests), credit)
        self.assertEqual(shard.do(pc.pull(table, [0]), clock=0), [(0,)])

    def test_workers_that_finish_or_leave_hold_nobody_up(self):
        table = self.open(pc.BSP)
        shard = self.a.owner(0)
        self.a.push(table, [0], [(1,)], clock=0)
        self.a.tick(0)
        parked = shard.start(pc.pull(table, [0]), clock=1)
        self.assert_parked(shard, parked)
        self.b.goodbye()
        self.assertEqual(shard.finish(parked), [(1,)])
        self.a.tick(pc.CLOCK_FINISHED)
        observer = self.observer.owner(0)
        last = observer.reply(observer.start(pc.pull(table, [0])))
        self.assertEqual(last.floor, 0xFFFFFFFF)

    def test_a_worker_that_left_does_not_count_again(self):
        table = self.open(pc.BSP)
        self.b.close()
        again = self.connection(pc.PURPOSE_DATA, role=pc.ROLE_WORKER, task_index=1,
                                shard=pc.shard_of(0, 2))
        self.a.tick(0)
        self.assertEqual(self.a.pull(table, [0], clock=1), [(0,)])
        again.do(pc.tick(), clock=5)

    def test_sections_before_the_one_that_waits_are_done(self):
        table, free = self.open(pc.BSP), self.open(pc.ASP)
        shard = self.a.owner(0)
        self.a.tick(0)
        parked = shard.start(pc.push(free, [0], [(1,)]), pc.pull(table, [0]), clock=1, budget_s=2)
        with self.refused(pc.DEADLINE):
            shard.finish(parked)
        self.assertEqual(self.observer.pull(free, [0]), [(1,)])

    def test_clocks_that_break_the_rules(self):
        """Refused, but both sides still agree: these connections go on."""
        table = self.open(pc.BSP)
        shard = self.a.owner(0)
        with self.refused(pc.PROTOCOL, "iteration 1"):
            shard.do(pc.tick(), clock=1)
        with self.refused(pc.PROTOCOL, "iteration 1"):
            shard.do(pc.push(table, [0], [(1,)]), clock=1)
        self.assertEqual(shard.do(pc.pull(table, [0]), clock=0), [(0,)])
        with self.refused(pc.PROTOCOL, "clock"):
            self.observer.owner(0).do(pc.tick())
        self.observer.owner(0).wait_closed()


class Abuse(ClusterTest):
    """Peers that break rules: their connection ends or is bounded, others are served as before."""

    def setUp(self):
        super().setUp()
        self.cluster()
        self.witness = self.client()
        self.table = self.witness.open(**SPARSE_SUM)
        self.array = self.witness.open(**DENSE_SUM)
        self.pushed = 0
        self.key = next(key for key in KEYS if pc.shard_of(key, 2) == 0)

    def check_served(self):
        """Old and new clients get exact values; nothing of a broken peer's work is among them."""
        self.pushed += 1
        rows = [(self.pushed, 0, 0)] * len(KEYS)
        self.witness.push(self.table, KEYS, [(1, 0, 0)] * len(KEYS))
        self.assertEqual(self.witness.pull(self.table, KEYS), rows)
        newcomer = Client(self.coordinator)
        try:
            self.assertEqual(newcomer.pull(self.table, KEYS), rows)
            newcomer.goodbye()
        finally:
            newcomer.close()
        self.assertTrue(self.servers[0].running(), self.servers[0].output)

    def data(self):
        return self.connection(pc.PURPOSE_DATA, shard=0)

    def push_payload(self):
        return pc.request_payload([pc.push(self.table, [self.key], [(1000, 0, 0)])])

    def assert_refused_and_ended(self, connection, payload, code, why):
        """Answered with the code, then closed."""
        request_id = connection.start_raw(payload)
        self.assertEqual(connection.reply(request_id).status, code, why)
        with self.assertRaises(pc.Closed, msg=why):
            connection.receive()

    def test_bytes_that_are_no_frames(self):
        garbage = random.Random(1)
        cases = [garbage.randbytes(size) for size in (32, 33, 4096, 1 << 20)]
        cases += [b"GET / HTTP/1.1\r\nHost: starling\r\nUser-Agent: test\r\n\r\n",
                  b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + garbage.randbytes(200)]
        for case in cases:
            peer = self.raw()
            with contextlib.suppress(ConnectionError):
                peer.sendall(case)
            self.assertEqual(self.assert_raw_ended(peer), b"")
        self.check_served()

    def test_headers_that_break_the_rules(self):
        push, frame = self.push_payload(), pc.frame_bytes
        nothing = pc.request_payload([pc.pull(self.table, [])])
        cases = {
            "too long": frame(Frame(pc.REQUEST, b"", 1, 10**6)),
            "request number": frame(Frame(pc.REQUEST, push, 0, 10**6)),
            "a number again": 2 * frame(Frame(pc.REQUEST, nothing, 3, 10**6)),
            "no budget": frame(Frame(pc.REQUEST, push, 1, 0)),
            "status": frame(Frame(pc.REQUEST, push, 1, 10**6, status=1)),
            "flags": frame(Frame(pc.REQUEST, push, 1, 10**6, flags=2)),
            "type": frame(Frame(5, push, 1, 10**6)),
            "reply": frame(Frame(pc.REPLY, b"", 1)),
            "credit": frame(Frame(pc.CREDIT, credit_bytes=5)),
            "control with a status": frame(Frame(pc.CONTROL, b"\x08\x01\x62\x00", status=1)),
            "control without a body": frame(Frame(pc.CONTROL, b"\x08\x01")),
            "control that is cut": frame(Frame(pc.CONTROL, b"\x08\x01\x62\x05")),
        }
        cases["too long"] = struct.pack("<I", (4 << 20) + 1) + cases["too long"][4:]
        cases["far too long"] = b"\xff\xff\xff\xff" + cases["too long"][4:]
        control = frame(Frame(pc.CONTROL))
        cases["long control"] = struct.pack("<I", (1 << 20) + 1) + control[4:]
        cases["checksum without flag"] = self.with_byte(frame(Frame(pc.REQUEST, push, 1, 9**6)), 20)
        for why, data in cases.items():
            connection = self.data()
            connection.socket.sendall(data)
            with self.assertRaises(pc.Closed, msg=why):
                while True:
                    connection.receive()
        self.check_served()

    def with_byte(self, data, offset):
        """The data with one bit of one byte turned."""
        return data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1:]

    def test_corrupted_checksums(self):
        good = pc.frame_bytes(Frame(pc.REQUEST, self.push_payload(), 1, 10**7), checksum=True)
        for offset in (8, 16, 20, 32, len(good) - 8):  # number, budget, checksum, payload
            connection = self.data()
            connection.socket.sendall(self.with_byte(good, offset))
            with self.assertRaises(pc.Closed, msg=offset):
                connection.receive()
        connection = self.connection()
        stats = pc.frame_bytes(Frame(pc.CONTROL, b"\x08\x02\x62\x00"), checksum=True)
        connection.socket.sendall(self.with_byte(stats, 20))
        with self.assertRaises(pc.Closed):
            connection.receive()
        self.check_served()

    def test_a_frame_that_ends_in_the_middle(self):
        frame = pc.frame_bytes(Frame(pc.REQUEST, self.push_payload(), 1, 10**7))
        for end in (1, 31, 32, 40, len(frame) - 1):
            connection = self.data()
            connection.socket.sendall(frame[:end])
            connection.close()
        self.check_served()

    def malformed(self):
        """Payloads that are no valid requests."""
        keys = struct.pack("<Q", self.key)
        row = bytes(16)
        table, array = self.table.id, self.array.id
        make, good = pc.request_payload, pc.pull(self.table, [self.key])
        sections = {
            "op 0": Section(0), "op 9": Section(9, table), "op 255": Section(255),
            "fewer keys": Section(pc.PULL, table, keys * 2, key_count=1),
            "more keys": Section(pc.PULL, table, keys, key_count=2),
            "far more keys": Section(pc.PULL, table, keys, key_count=0xFFFFFFFF),
            "no gradients": Section(pc.PUSH, table, keys, key_count=1),
            "bags in a pull": Section(pc.PULL, table, keys, key_count=1, bag_count=1),
            "range in a pull": Section(pc.PULL, table, keys, key_count=1, start=1),
            "keys in a range": Section(pc.DENSE_PULL, array, keys, key_count=1, count=1),
            "empty range": Section(pc.DENSE_PULL, array),
            "range beyond every array": Section(pc.DENSE_PULL, array, start=0, count=1 << 40),
            "range around the end": Section(pc.DENSE_PULL, array, start=LAST_KEY, count=2),
            "tick of a table": Section(pc.TICK, 1),
            "sparse op on an array": Section(pc.PULL, array, keys, key_count=1),
            "dense op on a sparse table": Section(pc.DENSE_PULL, table, count=1),
            "bag beyond": Section(pc.PULL_POOLED, table, keys + struct.pack("<II", 2, 0), 1, 1),
            "bags short": Section(pc.PULL_POOLED, table, keys + struct.pack("<II", 0, 0), 1, 1),
            "bags descend": Section(pc.PULL_POOLED, table, keys + struct.pack("<II", 1, 0), 1, 2),
            "many bags": Section(pc.PULL_POOLED, table, keys, 1, bag_count=0xFFFFFFFF),
            "padding": Section(pc.PUSH, table, keys + row[:15] + b"\1", key_count=1),
            "assign to an array": Section(pc.ASSIGN, array, keys, key_count=1),
            "dense assign to a sparse table": Section(pc.DENSE_ASSIGN, table, row, count=4),
            "no values": Section(pc.DENSE_ASSIGN, array, count=1),
            "erase of an array": Section(pc.ERASE, array, keys, key_count=1),
            "find in an array": Section(pc.FIND, array, keys, key_count=1),
            "find with a range": Section(pc.FIND, table, keys, key_count=1, count=1),
            "scan of an array": pc.Scan(Table(array, {"dim": 1}), 1),
            "scan of another width": pc.Scan(self.table, 1, width=self.table.dim + 1),
            "scan of many rows": pc.Scan(self.table, 4097),
            "scan with keys": Section(pc.SCAN, table, keys * 3, key_count=1, bag_count=3, count=1),
            "half a scan": Section(pc.SCAN, table, keys * 2, bag_count=3, count=1),
            "a rate below 0": pc.push(self.table, [self.key], [(1, 0, 0)], rate=-1),
            "an infinite rate": pc.push(self.table, [self.key], [(1, 0, 0)], rate=float("inf")),
            "no rate": pc.push(self.table, [self.key], [(1, 0, 0)], rate=float("nan")),
            "a rate of a pull": Section(pc.PULL, table, keys, key_count=1, command=1),
            "a rate of an assign": Section(pc.ASSIGN, table, keys + row, key_count=1, command=1),
        }
        cases = {why: make([section]) for why, section in sections.items()}
        zero = bytearray(make([good]))
        zero[8 + 1] = 1
        cases["zero at 1"] = bytes(zero)
        zero[8 + 1], zero[8 + 12] = 0, 1
        cases["zero at 12"] = bytes(zero)
        for count in (0, 2, 4096, 4097, 0xFFFFFFFF):
            cases[f"{count} sections"] = make([good], section_count=count)
        cases.update({"nothing": b"", "no sections": make([]), "tail": make([good]) + bytes(8),
                      "half a count": b"\1\0"})
        return cases

    def test_malformed_requests(self):
        for why, payload in self.malformed().items():
            self.assert_refused_and_ended(self.data(), payload, pc.PROTOCOL, why)
        self.check_served()

    def test_requests_for_what_is_not_there(self):
        make = pc.request_payload
        unknown = make([pc.pull(Table(1000, {"dim": 1}), [self.key])])
        self.assert_refused_and_ended(self.data(), unknown, pc.NOT_FOUND, "unknown table")
        other = next(start for shard, start, _ in pc.dense_ranges(10000, 2, self.array.id) if shard)
        for start, count in ((other, 1), (0, 10000), (9999, 2), (0, 1 << 36)):
            payload = make([Section(pc.DENSE_PULL, self.array.id, start=start, count=count)])
            self.assert_refused_and_ended(self.data(), payload, pc.WRONG_SHARD, (start, count))
        long = make([pc.pull(self.table, [self.key] * 350000)])
        self.assert_refused_and_ended(self.data(), long, pc.TOO_LARGE, "reply over 4 MiB")
        self.check_served()

    def test_key_of_another_shard(self):
        """The request stops there; the connection goes on, and its credit comes back."""
        connection = self.data()
        credit = connection.credit_bytes
        other = next(key for key in KEYS if pc.shard_of(key, 2) == 1)
        with self.refused(pc.WRONG_SHARD, str(other)):
            connection.do(pc.push(self.table, [self.key], [(0, 7, 0)]),
                          pc.push(self.table, [other], [(1000, 0, 0)]))
        self.assertEqual(connection.credit_bytes, credit)
        got = connection.do(pc.push_pull(self.table, [self.key], [(0, -7, 0)]))
        self.assertEqual(got, [(0, 0, 0)])  # so the first section had been done
        self.check_served()

    def test_requests_overspent(self):
        """As many parked requests as the welcome grants; the next one ends the connection."""
        spec = {"name": "bsp", "dim": 3, "consistency": {"mode": pc.BSP, "worker_count": 2}}
        table = self.witness.open(**spec)
        spender = self.connection(pc.PURPOSE_DATA, role=pc.ROLE_WORKER)
        idle = self.connection(pc.PURPOSE_DATA, role=pc.ROLE_WORKER, task_index=1)
        payload = pc.request_payload([pc.pull(table, [self.key])], clock=1)
        for _ in range(spender.credit_requests):
            request_id = spender.start_raw(payload)
        self.assert_parked(spender, request_id)
        spender.start_raw(payload)
        with self.assertRaises(pc.Closed):
            spender.receive()
        self.assertEqual(idle.do(pc.pull(table, [self.key]), clock=0), [(0, 0, 0)])
        self.check_served()

    def test_bytes_overspent(self):
        """Large replies that nobody reads use up the credit, then the connection ends."""
        payload = pc.request_payload([pc.pull(self.table, [self.key] * 300000)])
        spender = self.data()
        with self.assertRaises(pc.Closed):
            for _ in range(100000):
                spender.start_raw(payload)
        spender.wait_closed()
        self.check_served()

    def stats_get(self, **fields):
        return pc.Frame(pc.CONTROL, pc.encode("Control", {"id": 1, "stats_get": {}}), **fields)

    def test_a_flood_of_control_messages(self):
        """Who asks on and on without reading is closed; others keep their connections."""
        burst = pc.frame_bytes(self.stats_get()) * 1000
        for flood in (self.connection(), self.data()):
            with contextlib.suppress(OSError):
                for _ in range(1000):
                    flood.socket.sendall(burst)
            answered = 0
            with contextlib.suppress(ConnectionError):
                while data := flood.socket.recv(1 << 16):  # a time-out is a failure
                    answered += len(data)
            self.assertLess(answered, len(burst) * 10)
            self.check_served()

    def test_control_frames_with_request_fields(self):
        for field in ("request_id", "budget_us"):
            peer = self.connection()
            peer.send(self.stats_get(**{field: 1}))
            self.assertEqual(peer.wait_closed(), [])
        self.check_served()

    def test_a_peer_that_never_reads(self):
        """100 requests within its credit: the ps keeps the replies, and goes on with others. A peer that
        takes nothing for 10 s is closed."""
        connection = self.data()
        wide = self.witness.open(name="wide", dim=1024)
        ids = [connection.start(pc.push(wide, [self.key], [[1.0] * 1024]),
                                pc.pull(wide, [self.key] * 19)) for _ in range(100)]
        self.check_served()
        end = time.monotonic() + harness.DEADLINE_S
        while self.witness.pull(wide, [self.key])[0][0] != 100:  # it reads none of the replies
            self.assertLess(time.monotonic(), end)
        for count, request_id in enumerate(ids, 1):
            self.assertEqual(set(connection.finish(request_id)[1]), {count})
        silent = self.data()
        for _ in range(200):
            silent.start(pc.pull(wide, [self.key] * 19))
        silent.close()
        self.check_served()


if __name__ == "__main__":
    harness.main()
