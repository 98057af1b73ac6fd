"""The worst load for the memory of ps processes: tables, BSP staging, requests that stop half-way,
replies that nobody reads, floods of control messages, connections and sessions. Standard library
only."""

import contextlib
import random
import struct
import threading
import time

from protocol_client import (ASP, BSP, CONTROL, DENSE, DENSE_PUSH, HEADER, KV, KV_PULL, KV_PUSH,
                             PURPOSE_DATA, REQUEST, ROLE_CLIENT, ROLE_WORKER, Client, Closed,
                             Connection, Frame, Refused, Section, encode, frame_bytes,
                             request_payload)

NO_MEMORY = 2
ARRAY = 1000000  # values of an array, about a frame of them
VALUES = bytes(4 * ARRAY)
FAILURES = (Closed, Refused, OSError, TimeoutError, ValueError)


def resident(process):
    """The memory that the process has now, in bytes."""
    with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
        sizes = dict(line.split(":") for line in file)
    return int(sizes["VmRSS"].split()[0]) << 10


class Watch:
    """Samples the resident memory of processes until the end of a `with`."""

    def __init__(self, processes):
        self._processes = processes
        self.most = [0] * len(processes)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        while not self._stop.wait(0.05):
            with contextlib.suppress(OSError, KeyError):
                for i, process in enumerate(self._processes):
                    self.most[i] = max(self.most[i], resident(process))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


class Load:
    """The load on all shards of a cluster whose coordinator is at this endpoint. A seed decides what
    comes after what."""

    def __init__(self, coordinator, seed):
        self._seed = seed
        self._client = Client(coordinator)
        servers = {ps["task_index"]: ps for ps in self._client.cluster["ps"]}
        self._places = [servers[place["primary"]] for place in self._client.cluster["placements"]]
        count = len(self._places)
        self._bsp = self._client.open(name="bsp", kind=DENSE, length=count * 512 * 1024,
                                      consistency={"mode": BSP, "worker_count": 2},
                                      optimizer={"kind": 1, "lr": 0.1})
        self._kv = self._client.open(name="kv", kind=KV, dim=4, consistency={"mode": ASP})
        self.refusals = []  # texts of the first refusal of each kind on each shard

    def _connect(self, place, role=ROLE_CLIENT, task=0):
        server = self._places[place]
        return Connection(server["data_endpoint"], PURPOSE_DATA, role=role, task_index=task,
                          shard=place, reactor=place % (server["reactor_count"] or 1))

    def _key(self, place, number):
        return (place << 64) // len(self._places) + 1 + number

    def _array(self, op, place, number):
        body = struct.pack("<Q", self._key(place, number)) + (VALUES if op == KV_PUSH else b"")
        return Section(op, self._kv.id, body, key_count=1, count=ARRAY,
                       returns=0 if op == KV_PUSH else ARRAY)

    def _until_refused(self, connection, sections, **options):
        for section in sections:
            try:
                connection.do(section, **options)
            except Refused as refused:
                self.refusals.append((refused.code, refused.text))
                return

    def _dense_range(self, place):
        """The range of the dense table that the shard owns."""
        count = len(self._places)
        return (place - self._bsp.id) % count * 512 * 1024

    def fill(self, place):
        """BSP staging, then tables, each until the shard refuses more."""
        push = Section(DENSE_PUSH, self._bsp.id, bytes(4 * 512 * 1024),
                       start=self._dense_range(place), count=512 * 1024)
        worker = self._connect(place, ROLE_WORKER)
        self._until_refused(worker, (push for _ in range(1 << 20)))
        client = self._connect(place)
        self._until_refused(client,
                            (self._array(KV_PUSH, place, number) for number in range(1 << 20)))
        client.close()
        return worker

    def _unread(self, place, connection):
        """Asks for as many replies as the credit pays, and reads none."""
        pulls = [self._array(KV_PULL, place, 0)]
        small = [Section(KV_PULL, self._kv.id, struct.pack("<Q", self._key(place, 0)), key_count=1,
                         bag_count=ARRAY, count=3000) for _ in range(80)]
        for _ in range(2):
            connection.start_raw(request_payload(pulls), 30)
            connection.start_raw(request_payload(small), 30)

    def _half(self, place, connection):
        """Stops within a long push."""
        frame = frame_bytes(Frame(REQUEST, request_payload([self._array(KV_PUSH, place, 0)]), 1,
                                  60 * 1000 * 1000))
        connection.socket.sendall(frame[:len(frame) - 4096])

    def _flood(self, _, connection):
        """Asks for counters, and reads none."""
        payload = encode("Control", {"id": 7, "stats_get": {}})
        connection.socket.sendall(frame_bytes(Frame(CONTROL, payload)) * 400)

    def _failing(self, place, connection):
        """A session with failed writes, which stays when its connection closes."""
        for _ in range(100):
            request = connection.start_raw(request_payload(
                [Section(KV_PUSH, self._kv.id, struct.pack("<Q", self._key(place, 0)) + bytes(8),
                         key_count=1, count=1)]), 30)
        connection.reply(request)
        connection.close()

    def _idle(self, *_):
        """A connection that does nothing."""

    def worst(self, place, seconds, number):
        """All kinds of load on one shard, with the newest of many connections held open. The number
        is that of the thread among those that do this to the shard."""
        chance = random.Random(f"{self._seed} {place} {number}")
        kinds = (self._unread, self._half, self._flood, self._failing, self._idle)
        held, end = [], time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(*FAILURES):
                held.append(self._connect(place))
                held[-1].socket.settimeout(2)
                chance.choice(kinds)(place, held[-1])
            while len(held) > 100:
                held.pop(0).close()
        for connection in held:
            connection.close()

    def on_all(self, run, *args):
        """Runs it for each shard, side by side; returns what it returned."""
        results = [None] * len(self._places)

        def one(place):
            results[place] = run(place, *args)

        threads = [threading.Thread(target=one, args=(place,)) for place in range(len(results))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    def close(self):
        self._client.close()
