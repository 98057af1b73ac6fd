"""An initiator of transfers, written from docs/protocol.md alone, as protocol_client.py is: it reads and
writes registered memory of an engine. Standard library only."""

import collections
import random
import struct

import protocol_client as pc

READ, WRITE = 1, 2
SLICES_MAX = 256
SLICE_BYTES_MAX = 4 << 20
PREFIX = struct.Struct("<II")
SLICE = struct.Struct("<QQIB3x")

# `data`: of a WRITE.
Slice = collections.namedtuple("Slice", "op key offset bytes data", defaults=(b"",))


def read(buffer, offset, size):
    return Slice(READ, buffer["key"], offset, size)


def write(buffer, offset, data):
    return Slice(WRITE, buffer["key"], offset, len(data), data)


def request_payload(slices, count=None):
    return (PREFIX.pack(len(slices) if count is None else count, 0)
            + b"".join(SLICE.pack(s.key, s.offset, s.bytes, s.op) for s in slices))


def data_frames(first_id, slices):
    return [pc.Frame(pc.DATA, s.data, first_id + i) for i, s in enumerate(slices) if s.op == WRITE]


class Lane(pc.Connection):
    """A data connection: sends slices as credit allows, and keeps the answer of each."""

    def __init__(self, endpoint, client_id, lane, lane_epoch=1, **hello):
        super().__init__(endpoint, pc.PURPOSE_TRANSFER, client_id=client_id, lane=lane,
                         lane_epoch=lane_epoch, **hello)
        self.next_id = 1
        self.writes = set()   # ids of WRITEs without an answer
        self.answers = {}     # id -> bytes of a READ, None of a WRITE, or Refused

    def start(self, slices, budget_s=30.0):
        """Sends one request and its data frames; returns the ids of its slices."""
        cost = sum(s.bytes for s in slices)
        while self.credit_requests < len(slices) or self.credit_bytes < cost:
            self.take()
        self.credit_requests -= len(slices)
        self.credit_bytes -= cost
        ids = range(self.next_id, self.next_id + len(slices))
        self.next_id += len(slices)
        self.writes |= {i for i, s in zip(ids, slices) if s.op == WRITE}
        frames = [pc.Frame(pc.REQUEST, request_payload(slices), ids[0], int(budget_s * 1e6))]
        for frame in frames + data_frames(ids[0], slices):
            self.send(frame)
        return ids

    def take(self):
        """Receives a frame, and books the answers in it."""
        frame = self.receive()
        if frame.type != pc.REPLY:
            return
        first = frame.request_id
        if frame.status:
            self._answer(first, pc.Refused(frame.status, frame.payload.decode()))
        elif first in self.writes:
            count, zero = PREFIX.unpack(frame.payload)
            if zero or not 1 <= count <= SLICES_MAX:
                raise ValueError(f"{count} slices are applied, and {zero}")
            for applied in range(first, first + count):
                self._answer(applied, None)
        else:
            self._answer(first, frame.payload)

    def _answer(self, slice_id, answer):
        if answer is None:
            self.writes.remove(slice_id)
        self.writes.discard(slice_id)
        self.answers[slice_id] = answer

    def finish(self, ids):
        """Waits for the answers of the slices."""
        while not all(i in self.answers for i in ids):
            self.take()
        return [self.answers.pop(i) for i in ids]

    def do(self, *slices, budget_s=30.0):
        """The answer of each slice; raises the first refusal."""
        answers = self.finish(self.start(slices, budget_s))
        for answer in answers:
            if isinstance(answer, pc.Refused):
                raise answer
        return answers


class Segment:
    """An engine's memory: its control connection, its buffers, and lanes to it."""

    def __init__(self, name, secret=b"", checksum=False):
        self._hello = {"secret": secret, "checksum": checksum}
        self.client_id = random.getrandbits(63) + 1
        self.name = name
        self.control = pc.Connection(name, pc.PURPOSE_TRANSFER, client_id=self.client_id, **self._hello)
        self.incarnation = self.control.welcome["incarnation"]
        self.connections = [self.control]
        page = self.control.ask("segment_get", "segment")
        self.endpoints = [entry["endpoint"] for entry in page["endpoints"] if entry["endpoint"].startswith("tcp:")]
        self.buffers = page["buffers"]
        while page["more"]:
            page = self.control.ask("segment_get", "segment", above=self.buffers[-1]["address"])
            self.buffers += page["buffers"]

    def lane(self, number=1, epoch=1, incarnation=None):
        lane = Lane(self.endpoints[(number - 1) % len(self.endpoints)], self.client_id, number, epoch,
                    incarnation=self.incarnation if incarnation is None else incarnation, **self._hello)
        self.connections.append(lane)
        return lane

    def close(self):
        for connection in self.connections:
            connection.close()
