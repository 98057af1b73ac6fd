"""A client of the parameter server, written from docs/protocol.md alone: it shares no code with the
C client, so that the page, the server and this file check each other. Standard library only.

From the bottom up: checksum, protobuf, frames, partition, sections, Connection, Client."""

import collections
import contextlib
import hashlib
import hmac
import math
import os
import random
import select
import socket
import struct
import time

VERSION = 3
MAGIC = 0x534C
CONTROL, REQUEST, REPLY, CREDIT, DATA = 1, 2, 3, 4, 5
FLAG_CHECKSUM = 1
PAYLOAD_MAX = {CONTROL: 1 << 20, REQUEST: 4 << 20, REPLY: 4 << 20, CREDIT: 0, DATA: 4 << 20}

PURPOSE_CONTROL, PURPOSE_DATA, PURPOSE_REPLICA, PURPOSE_TRANSFER = 1, 2, 3, 4
SHARD_SHIFT = 52  # in the ids of requests, and of messages on data connections
NUMBER_MASK = (1 << SHARD_SHIFT) - 1
ROLE_PS, ROLE_WORKER, ROLE_CLIENT = 1, 2, 3
SPARSE, DENSE, KV = 0, 1, 2
ASP, BSP, SSP = 0, 1, 2
CLOCK_FINISHED = 0xFFFFFFFF

INVALID, DEADLINE, CLOSED, REFUSED, PROTOCOL, OTHER_VERSION, NOT_FOUND, EXISTS = 1, 3, 4, 5, 6, 7, 8, 9
WRONG_SHARD, AGAIN, UNSUPPORTED, TOO_LARGE = 10, 11, 14, 15

PULL, PULL_POOLED, PUSH, PUSH_PULL = 1, 2, 3, 4
DENSE_PULL, DENSE_PUSH, DENSE_PUSH_PULL, TICK = 5, 6, 7, 8
KV_PUSH, KV_PULL, KV_PUSH_PULL, KV_LENGTHS = 9, 10, 11, 12
ASSIGN, DENSE_ASSIGN = 13, 14
ERASE = 15
FIND, SCAN = 16, 17
FLAG_LENS = 1
F32, F16, BF16, INT8 = 0, 1, 2, 3
ARRAY_ROW = 256  # values of a row of dense and KV tables, where a precision needs rows

WAIT_S = 90.0  # for any answer; no wait is endless


class Closed(Exception):
    """The other side ended the connection."""


class Refused(Exception):
    """An Error message, or a reply whose status is not 0."""

    def __init__(self, code, text):
        super().__init__(f"code {code}: {text}")
        self.code = code
        self.text = text


# ---- Checksum ----


def _crc32c_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC_TABLE = _crc32c_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


# ---- The part of protobuf that the page uses ----

# Message name -> {field name: (number, type)}; a type in brackets is repeated, one with a capital
# letter is a message. "packed64": repeated fixed64, which protobuf packs.
SCHEMA = {
    "Control": {
        "id": (1, "uint"), "hello": (2, "Hello"), "welcome": (3, "Welcome"), "error": (4, "Error"),
        "register": (5, "Register"), "cluster": (6, "Cluster"), "waiting": (7, "Waiting"),
        "table_open": (8, "TableOpen"), "table_opened": (9, "TableOpened"),
        "barrier": (10, "Barrier"), "barrier_done": (11, "BarrierDone"),
        "stats_get": (12, "StatsGet"), "stats": (13, "Stats"), "goodbye": (14, "Goodbye"),
        "challenge": (15, "Challenge"), "proof": (16, "Proof"), "heartbeat": (17, "Heartbeat"),
        "expired": (18, "Expired"), "join": (19, "Join"), "joined": (20, "Joined"), "ended": (21, "Ended"),
        "checkpoint": (22, "Checkpoint"), "checkpoint_part": (23, "CheckpointPart"),
        "checkpoint_publish": (24, "CheckpointPublish"),
        "checkpoint_ask": (25, "CheckpointAsk"), "checkpoint_done": (26, "CheckpointDone"),
        "segment_get": (27, "SegmentGet"), "segment": (28, "Segment"), "buffer_added": (29, "BufferAdded"),
        "buffer_gone": (30, "BufferGone"), "buffer_released": (31, "BufferReleased"),
        "notice": (32, "Notice"), "notice_taken": (33, "NoticeTaken"), "fence": (34, "Fence"),
        "fenced": (35, "Fenced"), "report": (36, "bytes"), "attach": (47, "Attach")},
    "Attach": {},
    "Hello": {
        "protocol_version": (1, "uint"), "purpose": (2, "uint"), "role": (3, "uint"),
        "task_index": (4, "uint"), "client_id": (5, "uint"), "shard": (6, "uint"),
        "software": (7, "string"), "checksum": (8, "uint"), "nonce": (9, "bytes"),
        "join_running": (10, "uint"), "any_task": (11, "uint"), "epoch": (12, "uint"),
        "state": (13, "uint"), "incarnation": (14, "uint"), "lane": (15, "uint"),
        "lane_epoch": (16, "uint"), "secret": (17, "uint")},
    "Welcome": {
        "protocol_version": (1, "uint"), "credit_bytes": (2, "uint"),
        "credit_requests": (3, "uint"), "shard": (4, "uint"), "shard_count": (5, "uint"),
        "payload_bytes_max": (6, "uint"), "software": (7, "string"), "incarnation": (8, "uint"),
        "resumed": (9, "uint"), "clock": (10, "uint"), "counts": (11, "uint"),
        "lease_ms": (12, "uint"), "task_index": (13, "uint"), "restored": (14, "uint"),
        "position": (15, "uint"), "wants_reports": (16, "uint"), "http": (17, "string"),
        "spread_ms": (18, "uint"), "knows": (19, "uint")},
    "Error": {"code": (1, "uint"), "text": (2, "string"), "coordinator": (3, "string")},
    "Register": {
        "data_endpoint": (1, "string"), "shard_count": (2, "uint"), "ps_count": (3, "uint"),
        "worker_count": (4, "uint"), "host": (5, "string"), "bypass_endpoint": (6, "string"),
        "restore": (7, "uint"), "checkpoint_newest": (8, "uint"), "serving": (9, "uint"),
        "replicas": (10, "uint"), "replica_reports": (11, ["ReplicaReport"]),
        "reactor_count": (18, "uint")},
    "ReplicaReport": {"shard": (6, "uint"), "epoch": (2, "uint"), "in_sync": (3, "uint"), "role": (4, "uint"),
             "is_undecided": (5, "uint")},
    "Cluster": {"ps": (1, ["Ps"]), "worker_count": (2, "uint"), "restore": (3, "uint"),
                "placements": (10, ["Placement"])},
    "Ps": {"task_index": (1, "uint"), "data_endpoint": (2, "string"), "shard_count": (3, "uint"),
           "host": (4, "string"), "bypass_endpoint": (5, "string"),
           "reactor_count": (10, "uint"), "first_shard": (11, "uint")},
    "Placement": {"epoch": (1, "uint"), "primary": (2, "uint"), "backup_plus_1": (3, "uint"),
                  "in_sync": (4, "uint"), "moves": (5, "uint")},
    "Waiting": {"missing": (1, ["string"])},
    "Optimizer": {
        "kind": (1, "uint"), "lr": (2, "float"), "momentum": (3, "float"), "rho": (4, "float"),
        "beta1": (5, "float"), "beta2": (6, "float"), "epsilon": (7, "float"),
        "weight_decay": (8, "float"), "initial_accumulator": (9, "float"), "l1": (10, "float"),
        "l2": (11, "float"), "lr_power": (12, "float"), "decay_steps": (13, "uint"),
        "decay_baseline": (14, "float")},
    "Initializer": {
        "kind": (1, "uint"), "a": (2, "float"), "b": (3, "float"), "seed": (4, "uint")},
    "Consistency": {"mode": (1, "uint"), "staleness": (2, "uint"), "worker_count": (3, "uint")},
    "TableSpec": {
        "name": (1, "string"), "kind": (2, "uint"), "dim": (3, "uint"), "length": (4, "uint"),
        "optimizer": (5, "Optimizer"), "initializer": (6, "Initializer"),
        "consistency": (7, "Consistency"), "reject_nonfinite": (8, "uint"), "policy": (9, "Policy"),
        "update": (10, "Update"), "values": (11, "uint"), "slots": (12, "uint")},
    "Update": {"decay": (1, "uint"), "clip_norm": (2, "float"), "value_bound": (3, "float")},
    "Policy": {"ttl_steps": (1, "uint"), "protect_steps": (2, "uint"), "count_below": (3, "uint"), "l2_below": (4, "float"),
               "rows_max": (5, "uint"), "order": (6, "uint"), "half_life_steps": (7, "uint"), "admission": (8, "uint"),
               "admit_count": (9, "uint"), "admit_age_steps": (10, "uint"), "admit_probability": (11, "float"), "ttl_seconds": (12, "uint"),
               "slot_shift": (13, "uint"), "slot_bits": (14, "uint"), "slots": (15, ["PolicySlot"]), "keys_expected": (16, "uint"), "false_positives": (17, "float")},
    "PolicySlot": {"ttl_steps": (1, "uint"), "admit_count": (2, "uint")},
    "TableOpen": {"spec": (1, "TableSpec"), "table_id": (2, "uint"), "keep_id": (3, "uint"),
                  "ask": (4, "uint"), "is_restored": (5, "uint")},
    "TableOpened": {"table_id": (1, "uint"), "reject_nonfinite": (2, "uint"), "knows": (3, "uint"),
                    "policy": (4, "Policy")},
    "Barrier": {"name": (1, "string"), "count": (2, "uint"), "timeout_ms": (3, "uint")},
    "BarrierDone": {},
    "StatsGet": {},
    "Stats": {
        "tables": (1, ["StatsTable"]), "requests": (2, "uint"), "bytes_in": (3, "uint"),
        "bytes_out": (4, "uint"), "stalls": (5, "uint"), "degraded_writes": (6, "uint"),
        "degraded_ms": (7, "uint"), "degraded_shards": (8, "uint")},
    "StatsTable": {
        "name": (1, "string"), "rows": (2, "uint"), "bytes": (3, "uint"),
        "pulled_rows": (4, "uint"), "pushed_rows": (5, "uint"),
        "steps": (6, "uint")},
    "Goodbye": {},
    "Challenge": {"nonce": (1, "bytes")},
    "Proof": {"proof": (1, "bytes")},
    "Heartbeat": {},
    "Expired": {"role": (1, "uint"), "task_index": (2, "uint"), "client_id": (3, "uint"),
             "why": (4, "string")},
    "Ended": {"why": (1, "string")},
    "Join": {"clock": (1, "uint")},
    "Joined": {"clock": (1, "uint")},
    "Checkpoint": {"number": (1, "uint"), "base_number": (2, "uint")},
    "CheckpointFile": {
        "name": (1, "string"), "shard": (2, "uint"), "bytes": (3, "uint"), "hash": (4, "uint"),
        "rows": (5, "uint")},
    "CheckpointPart": {
        "number": (1, "uint"), "files": (2, ["CheckpointFile"]), "code": (3, "uint"),
        "text": (4, "string")},
    "CheckpointPublish": {
        "number": (1, "uint"), "base_number": (2, "uint"), "files": (3, ["CheckpointFile"]),
        "time_ms": (4, "uint")},
    "CheckpointAsk": {"timeout_ms": (1, "uint")},
    "CheckpointDone": {"number": (1, "uint")},
    "SegmentGet": {"above": (1, "uint")},
    "Token": {"endpoint": (1, "uint"), "token": (2, "bytes")},
    "Buffer": {"key": (1, "fixed64"), "address": (2, "uint"), "bytes": (3, "uint"), "access": (4, "uint"),
               "location": (5, "string"), "tokens": (6, ["Token"])},
    "SegmentEndpoint": {"endpoint": (1, "string"), "device": (2, "string")},
    "Segment": {"incarnation": (1, "uint"), "host": (2, "string"), "endpoints": (3, ["SegmentEndpoint"]),
                "matrix": (4, "string"), "buffers": (5, ["Buffer"]), "more": (6, "uint")},
    "BufferAdded": {"buffers": (1, ["Buffer"])},
    "BufferGone": {"keys": (1, "packed64")},
    "BufferReleased": {"keys": (1, "packed64")},
    "Notice": {"sequence": (1, "uint"), "sender": (2, "string"), "name": (3, "string"), "text": (4, "bytes"),
               "asks": (5, "uint")},
    "NoticeTaken": {"text": (1, "bytes")},
    "Fence": {"lane": (1, "uint"), "epoch": (2, "uint")},
    "Fenced": {},
    # The bytes of a report
    "Report": {
        "uptime_ms": (1, "uint"), "http": (2, "string"), "memory": (3, "uint"), "memory_limit": (4, "uint"),
        "shards": (5, ["ReportShard"]), "tables": (6, ["ReportTable"]), "client": (10, "ReportClient")},
    "ReportShard": {"shard": (1, "uint"), "requests": (4, "uint")},
    "ReportTable": {"name": (1, "string"), "rows": (2, "uint")},
    "ReportClient": {
        "clock": (1, "uint"), "steps": (2, "uint"), "requests": (3, "uint"), "step_p99_us": (5, "uint"),
        "in_flight": (6, "uint")},
}


def _varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _encode_field(number, kind, value):
    if kind == "uint":
        return _varint(number << 3) + _varint(value) if value else b""
    if kind == "float":
        return _varint(number << 3 | 5) + struct.pack("<f", value) if value else b""
    if kind == "fixed64":
        return _varint(number << 3 | 1) + struct.pack("<Q", value) if value else b""
    if kind == "packed64":
        kind, value = "bytes", _u64(value)
    content = (value if kind == "bytes" else value.encode() if kind == "string"
               else encode(kind, value))
    if kind in ("string", "bytes") and not content:
        return b""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def encode(message, fields):
    """Encodes a dict; a message-typed field is present when its key is, even if it is empty."""
    out = b""
    for name, (number, kind) in SCHEMA[message].items():
        if name not in fields:
            continue
        values = fields[name] if isinstance(kind, list) else [fields[name]]
        for value in values:
            out += _encode_field(number, kind[0] if isinstance(kind, list) else kind, value)
    return out


def _read_value(data, at, wire):
    """Returns the raw value of a field and the offset behind it."""
    if wire == 0:
        return _read_varint(data, at)
    if wire == 2:
        size, at = _read_varint(data, at)
        if at + size > len(data):
            raise ValueError("a field runs over the end of its message")
        return data[at:at + size], at + size
    size = {1: 8, 5: 4}[wire]
    return data[at:at + size], at + size


def _default(kind):
    if isinstance(kind, list):
        return []
    return {"uint": 0, "float": 0.0, "string": "", "bytes": b"", "fixed64": 0, "packed64": []}[kind]


def _decode_value(kind, raw):
    if kind == "uint":
        return raw
    if kind == "float":
        return struct.unpack("<f", raw)[0]
    if kind == "fixed64":
        return struct.unpack("<Q", raw)[0]
    if kind == "packed64":
        return list(struct.unpack(f"<{len(raw) // 8}Q", raw))
    if kind == "bytes":
        return raw
    return raw.decode() if kind == "string" else decode(kind, raw)


def decode(message, data):
    """Decodes to a dict: absent scalars as 0, absent lists as [], absent messages not at all."""
    schema = SCHEMA[message]
    by_number = {number: (name, kind) for name, (number, kind) in schema.items()}
    fields = {name: _default(kind) for name, (_, kind) in schema.items()
              if isinstance(kind, list) or not kind[0].isupper()}
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        raw, at = _read_value(data, at, tag & 7)
        name, kind = by_number.get(tag >> 3, (None, None))
        if name is None:
            continue  # unknown fields are skipped
        if isinstance(kind, list):
            fields[name].append(_decode_value(kind[0], raw))
        else:
            fields[name] = _decode_value(kind, raw)
    return fields


# ---- Authentication ----


def proof_text(side, hello, server_nonce):
    """What a proof is the HMAC of; `side` is b"client" or b"server", `hello` its fields."""
    text = ((b"starling " + side).ljust(16, b"\0") + hello["nonce"] + server_nonce
            + struct.pack("<5IQ2B", hello["protocol_version"], hello["purpose"], hello["role"],
                          hello["task_index"], hello["shard"], hello["client_id"],
                          hello["checksum"], hello.get("join_running", 0) + 2 * hello.get("any_task", 0)))
    if hello["purpose"] == PURPOSE_TRANSFER:
        text += struct.pack("<QIQ", hello.get("incarnation", 0), hello.get("lane", 0),
                            hello.get("lane_epoch", 0))
    return text


def prove(secret, side, hello, server_nonce):
    return hmac.new(secret, proof_text(side, hello, server_nonce), hashlib.sha256).digest()


# ---- Frames ----

HEADER = struct.Struct("<IHBBQIIIHBB")

Frame = collections.namedtuple(
    "Frame", "type payload request_id budget_us credit_bytes credit_requests flags status",
    defaults=(b"", 0, 0, 0, 0, 0, 0))


def frame_bytes(frame, checksum=False, version=VERSION):
    """The bytes of a frame; `checksum` sets the flag and fills in the field."""
    flags = frame.flags | (FLAG_CHECKSUM if checksum else 0)

    def header(crc):
        return HEADER.pack(len(frame.payload), MAGIC, version, frame.type, frame.request_id,
                           frame.budget_us, crc, frame.credit_bytes, frame.credit_requests, flags,
                           frame.status)

    crc = crc32c(header(0) + frame.payload) if checksum else 0
    return header(crc) + frame.payload


def check_header(header):
    """Checks what the page says a receiver refuses; returns the payload's length."""
    size, magic, version, kind, _, _, crc, _, _, flags, _ = HEADER.unpack(header)
    if magic != MAGIC or version != VERSION:
        raise ValueError(f"magic {magic:#x}, version {version}")
    if kind not in PAYLOAD_MAX or size > PAYLOAD_MAX[kind]:
        raise ValueError(f"type {kind} with {size} bytes")
    if flags & ~FLAG_CHECKSUM or (crc and not flags):
        raise ValueError(f"flags {flags}, checksum {crc:#x}")
    return size


def parse_frame(header, payload):
    _, _, _, kind, request_id, budget, crc, credit, requests, flags, status = HEADER.unpack(header)
    if flags & FLAG_CHECKSUM:
        if crc32c(header[:20] + bytes(4) + header[24:] + payload) != crc:
            raise ValueError("the checksum does not match")
    return Frame(kind, payload, request_id, budget, credit, requests, flags, status)


# ---- Which shard owns what ----


def hash_key(key):
    mask = (1 << 64) - 1
    key = ((key ^ key >> 30) * 0xBF58476D1CE4E5B9) & mask
    key = ((key ^ key >> 27) * 0x94D049BB133111EB) & mask
    return key ^ key >> 31


def shard_of(key, shard_count):
    return ((hash_key(key) >> 48) * shard_count) >> 16


def kv_shard_of(key, shard_count):
    return key * shard_count >> 64


def dense_ranges(length, shard_count, table_id):
    """The ranges of a dense array, in order: (shard, first element, end)."""
    blocks = -(-length // 1024)
    starts = [r * blocks // shard_count * 1024 for r in range(shard_count)] + [length]
    return [((table_id + r) % shard_count, starts[r], starts[r + 1]) for r in range(shard_count)]


# ---- Sections ----


def pad(data):
    return data + bytes(-len(data) % 8)


def padded(size):
    return size + -size % 8


def _bf16(value):
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return min(bits + 0x7FFF + (bits >> 16 & 1) >> 16 & 0x7FFF, 0x7F7F) | bits >> 31 << 15


def narrow(precision, row):
    """The bytes of a row of finite values, each rounded to the nearest."""
    if precision == BF16:
        return struct.pack(f"<{len(row)}H", *map(_bf16, row))
    if precision != INT8:
        return struct.pack(f"<{len(row)}{'fe'[precision]}", *row)
    largest = max(map(abs, row))
    scale = 2.0 ** max(-126, math.frexp(largest)[1] - 7) if largest else 0.0
    scale *= 2 if largest > 127 * scale else 1
    return struct.pack(f"<f{len(row)}b", scale, *(round(value / scale) if scale else 0 for value in row))


def widen(precision, data):
    """The values of a row."""
    if precision == BF16:
        return [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]
    if precision != INT8:
        return struct.unpack(f"<{len(data) // (4, 2)[precision]}{'fe'[precision]}", data)
    scale, *quanta = struct.unpack(f"<f{len(data) - 4}b", data)
    return [scale * q for q in quanta]


def _rows(rows, precision):
    return pad(b"".join(narrow(precision, row) for row in rows))


def _array(values, precision):
    return _rows([values[i:i + ARRAY_ROW] for i in range(0, len(values), ARRAY_ROW)], precision)


class Section:
    """One op of a request: its bytes, and the shape of what it returns: in rows of `width` values."""

    def __init__(self, op, table_id=0, body=b"", key_count=0, bag_count=0, start=0, count=0,
                 returns=0, flags=0, command=0, what="f", pushed=F32, returned=F32, width=ARRAY_ROW):
        flags |= pushed << 2 | returned << 4
        self.data = struct.pack("<BBHIIIQQ", op, flags, table_id, key_count, bag_count, command,
                                start, count) + body
        self.returns = f"<{returns}{what}"
        self.returned = returned
        self.widths = [width] * (returns // width) + [returns % width] * (returns % width > 0)

    def returns_bytes(self):
        if self.returned:
            return sum(len(narrow(self.returned, [0] * width)) for width in self.widths)
        return struct.calcsize(self.returns)

    def values(self, payload, at):
        """What it returns, at this offset of the reply."""
        if not self.returned:
            return struct.unpack_from(self.returns, payload, at)
        values = []
        for width in self.widths:
            end = at + len(narrow(self.returned, [0] * width))
            values += widen(self.returned, payload[at:end])
            at = end
        return tuple(values)


def _u64(values):
    return struct.pack(f"<{len(values)}Q", *values)


def _flat(rows):
    return [value for row in rows for value in row]


def pull(table, keys, returned=F32):
    return Section(PULL, table.id, _u64(keys), key_count=len(keys), returns=len(keys) * table.dim,
                   returned=returned, width=table.dim)


def pull_pooled(table, bags, returned=F32):
    keys = _flat(bags)
    ends = [sum(len(bag) for bag in bags[:i + 1]) for i in range(len(bags))]
    body = _u64(keys) + pad(struct.pack(f"<{len(ends)}I", *ends))
    return Section(PULL_POOLED, table.id, body, key_count=len(keys), bag_count=len(bags),
                   returns=len(bags) * table.dim, returned=returned, width=table.dim)


def _rate(rate):
    """The command of a push: the bits of its rate, 0 for 1."""
    return 0 if rate == 1 else struct.unpack("<I", struct.pack("<f", rate))[0]


def push(table, keys, rows, rate=1, pushed=F32):
    return Section(PUSH, table.id, _u64(keys) + _rows(rows, pushed), key_count=len(keys),
                   command=_rate(rate), pushed=pushed)


def push_pull(table, keys, rows, rate=1, pushed=F32, returned=F32):
    return Section(PUSH_PULL, table.id, _u64(keys) + _rows(rows, pushed), key_count=len(keys),
                   returns=len(keys) * table.dim, command=_rate(rate), pushed=pushed,
                   returned=returned, width=table.dim)


def assign(table, keys, rows):
    return Section(ASSIGN, table.id, _u64(keys) + _rows(rows, F32), key_count=len(keys))


def dense_assign(table, start, values):
    return Section(DENSE_ASSIGN, table.id, _array(values, F32), start=start, count=len(values))


def erase(table, keys):
    return Section(ERASE, table.id, _u64(keys), key_count=len(keys))


class Find(Section):
    """Returns rows of floats, then a byte for each key."""

    def __init__(self, table, keys):
        rows = len(keys) * table.dim
        super().__init__(FIND, table.id, _u64(keys), key_count=len(keys))
        self.returns = f"<{rows}f{-rows % 2 * 4}x{len(keys)}B"


class Scan(Section):
    """Returns a head (copy, next, records, step, row_count, width_max), keys, pairs of step and count,
    and rows of `width` floats."""

    def __init__(self, table, rows, start=0, width=None, copy=0, end=(1 << 64) - 1, since=0, count_min=0):
        width = table.dim if width is None else width
        super().__init__(SCAN, table.id, struct.pack("<QQQ", copy, end, since), bag_count=width,
                         command=count_min, start=start, count=rows)
        self.returns = f"<4Q2I{rows}Q{2 * rows}I{rows * width}f"


def dense_pull(table, start, count, returned=F32):
    return Section(DENSE_PULL, table.id, start=start, count=count, returns=count, returned=returned)


def dense_push(table, start, values, rate=1, pushed=F32):
    return Section(DENSE_PUSH, table.id, _array(values, pushed), start=start, count=len(values),
                   command=_rate(rate), pushed=pushed)


def dense_push_pull(table, start, values, pushed=F32, returned=F32):
    return Section(DENSE_PUSH_PULL, table.id, _array(values, pushed), start=start, count=len(values),
                   returns=len(values), pushed=pushed, returned=returned)


KV_KINDS = {1: "B", 2: "e", 4: "f"}  # of 2 bytes a value, f16


def _values(table, values, pushed):
    """Of a KV table: a list of floats, or bytes."""
    return (_array(values, pushed) if table.dim == 4
            else pad(struct.pack(f"<{len(values)}{KV_KINDS[table.dim]}", *values)))


def _arrays(op, table, keys, arrays, lens, command, pushed=F32, returned=F32):
    """Whole arrays of a KV table; `lens`: whether each key says its own length."""
    sizes = [len(array) for array in arrays]
    body = _u64(keys) + (pad(struct.pack(f"<{len(sizes)}I", *sizes)) if lens else b"")
    if op != KV_PULL:
        body += _values(table, _flat(arrays), pushed)
    return Section(op, table.id, body, key_count=len(keys), count=sum(sizes),
                   returns=0 if op == KV_PUSH else sum(sizes), flags=FLAG_LENS if lens else 0,
                   command=command, what=KV_KINDS[table.dim], pushed=pushed, returned=returned)


def kv_push(table, keys, arrays, lens=True, command=0, **precisions):
    return _arrays(KV_PUSH, table, keys, arrays, lens, command, **precisions)


def kv_pull(table, keys, sizes, lens=True, command=0, **precisions):
    return _arrays(KV_PULL, table, keys, [range(size) for size in sizes], lens, command, **precisions)


def kv_push_pull(table, keys, arrays, lens=True, command=0, **precisions):
    return _arrays(KV_PUSH_PULL, table, keys, arrays, lens, command, **precisions)


def kv_piece(op, table, key, start, whole, values, pushed=F32, returned=F32):
    """A piece of one array; of a pull only the number of values counts."""
    return Section(op, table.id, _u64([key]) + (b"" if op == KV_PULL else _values(table, values, pushed)),
                   key_count=1, bag_count=whole, start=start, count=len(values),
                   returns=0 if op == KV_PUSH else len(values),
                   what=KV_KINDS[table.dim], pushed=pushed, returned=returned)


def kv_lengths(table, keys):
    return Section(KV_LENGTHS, table.id, _u64(keys), key_count=len(keys), returns=len(keys),
                   what="I")


def tick():
    return Section(TICK)


def request_payload(sections, clock=0, section_count=None):
    count = len(sections) if section_count is None else section_count
    return struct.pack("<II", count, clock) + b"".join(s.data for s in sections)


def reply_size(sections):
    return sum(padded(section.returns_bytes()) for section in sections)


def split_reply(sections, payload):
    """Cuts a reply into one tuple of values per section; its shape follows from the request."""
    if len(payload) != reply_size(sections):
        raise ValueError(f"a reply of {len(payload)} bytes for {reply_size(sections)}")
    values, at = [], 0
    for section in sections:
        values.append(section.values(payload, at))
        at += padded(section.returns_bytes())
    return values


def rows_of(values, dim):
    return [tuple(values[i:i + dim]) for i in range(0, len(values), dim)]


# ---- Connections ----


def endpoint_address(endpoint):
    """"tcp://host:port", IPv6 hosts in brackets, as a pair for socket."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    return host.strip("[]"), int(port)


Reply = collections.namedtuple("Reply", "status payload floor")


class Connection:
    """One connection after its hello: control messages, requests, and the credit they spend."""

    def __init__(self, endpoint, purpose, role=ROLE_CLIENT, task_index=0, client_id=0, shard=0,
                 reactor=None, checksum=False, secret=b"", wait_s=WAIT_S, **more):
        """A data connection is to a reactor, by default that of the number of the shard, which it
        attaches. more: further fields of the hello."""
        self.socket = socket.create_connection(endpoint_address(endpoint), timeout=WAIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.checksum = checksum
        self.shard = 0  # of the messages and requests that follow
        self.last_control_id = self.last_request_id = 0
        self.credit_bytes = self.credit_requests = 0
        self.replies = {}    # request id -> Reply
        self.reply_order = []
        self.messages = []   # control messages that nobody has asked for yet
        self.sections = {}   # request id -> its sections, from which a reply's shape follows
        self.client_id = client_id or random.getrandbits(64)
        hello = {"protocol_version": VERSION, "purpose": purpose, "role": role,
                 "task_index": task_index, "client_id": self.client_id,
                 "shard": shard if reactor is None else reactor,
                 "software": "protocol_client.py", "checksum": checksum, **more}
        self.welcome = self._greet(hello, secret, wait_s)
        if purpose == PURPOSE_DATA:
            try:
                self.welcome = {**self.welcome, **self.attach(shard, wait_s),
                                "credit_bytes": self.credit_bytes,
                                "credit_requests": self.credit_requests}
            except BaseException:
                self.close()
                raise

    def _greet(self, hello, secret, wait_s):
        try:
            if secret:
                hello["nonce"] = os.urandom(32)
                self._authenticate(hello, secret, wait_s)
                welcome = self.answer(1, "welcome", wait_s)
            else:
                welcome = self.ask("hello", "welcome", wait_s, **hello)
        except BaseException:
            self.close()
            raise
        self.credit_bytes += welcome["credit_bytes"]
        self.credit_requests += welcome["credit_requests"]
        return welcome

    def attach(self, shard, wait_s=WAIT_S):
        """Attaches a shard, also one that does not serve yet; what follows is for it."""
        end = time.monotonic() + wait_s
        self.shard = shard
        while True:
            try:
                return self.ask("attach", "welcome")
            except Refused as refused:
                if refused.code != 11 or not refused.text.startswith("shard ") or time.monotonic() >= end:
                    raise
            time.sleep(0.02)

    def _authenticate(self, hello, secret, wait_s):
        challenge = self.ask("hello", "challenge", wait_s, **hello)
        self.tell("proof", 1, proof=prove(secret, b"client", hello, challenge["nonce"]))
        answer = self.answer(1, "proof", wait_s)
        if answer["proof"] != prove(secret, b"server", hello, challenge["nonce"]):
            raise ValueError("the server has another secret")

    def close(self):
        self.socket.close()

    def _receive(self, count, end):
        data = b""
        while len(data) < count:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.socket], [], [], left)[0]:
                raise TimeoutError("the server does not answer")
            try:
                part = self.socket.recv(count - len(data))
            except ConnectionError:
                part = b""
            if not part:
                raise Closed(f"with {len(data)} bytes of {count}")
            data += part
        return data

    def send(self, frame):
        try:
            self.socket.sendall(frame_bytes(frame, self.checksum))
        except ConnectionError:
            raise Closed("while sending") from None

    def receive(self, wait_s=WAIT_S):
        """Receives one frame and books its credit, whatever its type."""
        end = time.monotonic() + wait_s
        header = self._receive(HEADER.size, end)
        frame = parse_frame(header, self._receive(check_header(header), end))
        if self.checksum and not frame.flags & FLAG_CHECKSUM:
            raise ValueError("a frame without the checksum that the hello asked for")
        self.credit_bytes += frame.credit_bytes
        self.credit_requests += frame.credit_requests
        if frame.type == REPLY:
            request_id = frame.request_id & NUMBER_MASK
            assert frame.request_id >> SHARD_SHIFT == self.shard, (frame.request_id, self.shard)
            self.replies[request_id] = Reply(frame.status, frame.payload, frame.budget_us)
            self.reply_order.append(request_id)
        elif frame.type == CONTROL:
            self.messages.append(decode("Control", frame.payload))
        return frame

    def readable(self, wait_s):
        return bool(select.select([self.socket], [], [], wait_s)[0])

    # Control messages

    def tell(self, body, message_id, **fields):
        if message_id:
            message_id |= self.shard << SHARD_SHIFT
        payload = encode("Control", {"id": message_id, body: fields})
        self.send(Frame(CONTROL, payload))

    def report(self, content):
        """Sends the bytes of a report, or those of a dict."""
        content = encode("Report", content) if isinstance(content, dict) else content
        self.send(Frame(CONTROL, encode("Control", {"report": content})))

    def start_asking(self, body, **fields):
        self.last_control_id += 1
        self.tell(body, self.last_control_id, **fields)
        return self.last_control_id

    def answer(self, message_id, body, wait_s=WAIT_S):
        """Waits for the answer; a Waiting before it is skipped."""
        end = time.monotonic() + wait_s
        message_id |= self.shard << SHARD_SHIFT
        while True:
            for message in self.messages:
                if "error" in message and message["id"] in (0, message_id):
                    self.messages.remove(message)
                    raise Refused(message["error"]["code"], message["error"]["text"])
                if message["id"] == message_id and body in message:
                    self.messages.remove(message)
                    return message[body]
            self.receive(end - time.monotonic())

    def ask(self, body, answer, wait_s=WAIT_S, **fields):
        return self.answer(self.start_asking(body, **fields), answer, wait_s)

    def ask_alive(self, body, answer, wait_s, **fields):
        """Likewise, with heartbeats meanwhile: what is asked for may take longer than its lease."""
        asked = self.start_asking(body, **fields)
        end = time.monotonic() + wait_s
        while time.monotonic() < end:
            if not self.readable(0.3):
                self.tell("heartbeat", 0)
                continue
            self.receive()
            if any(message["id"] == asked for message in self.messages):
                break
        return self.answer(asked, answer)

    def goodbye(self):
        """Says goodbye and waits for the other side's close, then closes too."""
        self.tell("goodbye", 0)
        self.wait_closed()
        self.close()

    def wait_closed(self, wait_s=WAIT_S):
        """Receives until the other side closes; returns the control messages that came before."""
        end = time.monotonic() + wait_s
        with contextlib.suppress(Closed):
            while True:
                self.receive(end - time.monotonic())
        return self.messages

    # Requests

    def start(self, *sections, clock=0, budget_s=WAIT_S):
        """Sends a request as soon as there is credit for it; returns its id."""
        payload = request_payload(sections, clock)
        cost = max(len(payload), reply_size(sections)) + HEADER.size
        while self.credit_bytes < cost or self.credit_requests < 1:
            self.receive()
        self.credit_bytes -= cost
        self.credit_requests -= 1
        request_id = self.start_raw(payload, budget_s)
        self.sections[request_id] = sections
        return request_id

    def start_raw(self, payload, budget_s=WAIT_S):
        """Sends a payload as a request, without looking at credit: for breaking rules, and for
        sending a request again, after its id has been taken back."""
        self.last_request_id += 1
        self.send(Frame(REQUEST, payload, self.shard << SHARD_SHIFT | self.last_request_id,
                        max(1, int(budget_s * 1e6))))
        return self.last_request_id

    def reply(self, request_id, wait_s=WAIT_S):
        end = time.monotonic() + wait_s
        while request_id not in self.replies:
            self.receive(end - time.monotonic())
        return self.replies.pop(request_id)

    def finish(self, request_id, wait_s=WAIT_S):
        """Waits for a reply; returns one tuple of floats per section."""
        reply = self.reply(request_id, wait_s)
        sections = self.sections.pop(request_id, ())
        if reply.status:
            raise Refused(reply.status, reply.payload.decode())
        return split_reply(sections, reply.payload)

    def do(self, *sections, clock=0, budget_s=WAIT_S):
        return self.finish(self.start(*sections, clock=clock, budget_s=budget_s))


# ---- A member of the cluster ----


class Table:
    def __init__(self, table_id, spec):
        self.id = table_id
        self.dim = spec.get("dim", 0)
        self.length = spec.get("length", 0)


class Client:
    """A control connection and one data connection per shard, with work spread over them."""

    def __init__(self, coordinator, role=ROLE_CLIENT, task_index=0, checksum=False, worker_count=0,
                 secret=b""):
        self._member = {"role": role, "task_index": task_index, "checksum": checksum,
                        "client_id": random.getrandbits(64), "secret": secret}
        self.shards = []
        self.control = Connection(coordinator, PURPOSE_CONTROL, **self._member)
        try:
            self.cluster = self.control.ask("register", "cluster", worker_count=worker_count)
            self._connect_shards()
        except BaseException:
            self.close()
            raise

    def _connect_shards(self):
        servers = {ps["task_index"]: ps for ps in self.cluster["ps"]}
        for shard, placement in enumerate(self.cluster["placements"]):
            server = servers[placement["primary"]]
            self.shards.append(Connection(server["data_endpoint"], PURPOSE_DATA, shard=shard,
                                          reactor=shard % (server["reactor_count"] or 1),
                                          **self._member))

    def close(self):
        for connection in [self.control] + self.shards:
            connection.close()

    def goodbye(self):
        for connection in self.shards + [self.control]:
            connection.goodbye()

    def open(self, **spec):
        """Opens a table at the coordinator, then on every shard."""
        opened = self.control.ask("table_open", "table_opened", spec=spec)
        for shard in self.shards:
            again = shard.ask("table_open", "table_opened", spec=spec, table_id=opened["table_id"])
            assert again == opened, (again, opened)
        return Table(opened["table_id"], spec)

    def owner(self, key):
        return self.shards[shard_of(key, len(self.shards))]

    def _by_shard(self, keys):
        """Positions in `keys`, per connection; connections without any are left out."""
        positions = collections.defaultdict(list)
        for i, key in enumerate(keys):
            positions[self.owner(key)].append(i)
        return positions

    def _keyed(self, keys, make, dim, clock):
        """Sends each shard its keys, all before the first wait; returns the rows in keys' order."""
        parts = {s: (at, s.start(make(at), clock=clock)) for s, at in self._by_shard(keys).items()}
        rows = [None] * len(keys)
        for shard, (at, request_id) in parts.items():
            for i, row in zip(at, rows_of(shard.finish(request_id)[0], dim)):
                rows[i] = row
        return rows

    def pull(self, table, keys, clock=0, **precisions):
        return self._keyed(keys, lambda at: pull(table, [keys[i] for i in at], **precisions),
                           table.dim, clock)

    def push(self, table, keys, rows, clock=0, **how):
        self._keyed(
            keys, lambda at: push(table, [keys[i] for i in at], [rows[i] for i in at], **how),
            table.dim, clock)

    def assign(self, table, keys, rows, clock=0):
        self._keyed(keys, lambda at: assign(table, [keys[i] for i in at], [rows[i] for i in at]),
                    table.dim, clock)

    def push_pull(self, table, keys, rows, clock=0, **how):
        return self._keyed(
            keys, lambda at: push_pull(table, [keys[i] for i in at], [rows[i] for i in at], **how),
            table.dim, clock)

    def erase(self, table, keys, clock=0):
        self._keyed(keys, lambda at: erase(table, [keys[i] for i in at]), table.dim, clock)

    def find(self, table, keys, clock=0):
        """Returns, per key, its row and whether it has one."""
        answers = [self.owner(key).do(Find(table, [key]), clock=clock)[0] for key in keys]
        return [(answer[:table.dim], answer[table.dim]) for answer in answers]

    def scan(self, table, rows_max):
        """Returns {key: row} of all rows, and how many came."""
        rows, came = {}, 0
        for shard in self.shards:
            start, copy = 0, 0
            while start != (1 << 64) - 1:
                answer = shard.do(Scan(table, rows_max, start, copy=copy))[0]
                copy, start, _, _, count, _ = answer[:6]
                at = 6 + 3 * rows_max
                for i in range(count):
                    rows[answer[6 + i]] = answer[at + i * table.dim:at + (i + 1) * table.dim]
                came += count
        return rows, came

    def pull_pooled(self, table, bags, clock=0, **precisions):
        """Each shard sums its part of each bag; the parts are added here."""
        asked = []
        for index, shard in enumerate(self.shards):
            part = [[k for k in bag if shard_of(k, len(self.shards)) == index] for bag in bags]
            asked.append((shard, shard.start(pull_pooled(table, part, **precisions), clock=clock)))
        parts = [rows_of(shard.finish(request_id)[0], table.dim) for shard, request_id in asked]
        return [tuple(sum(column) for column in zip(*rows)) for rows in zip(*parts)]

    def _dense(self, table, start, count, make, clock):
        """Cuts a range at the shards' borders; returns the values in the array's order."""
        asked = []
        for index, first, end in dense_ranges(table.length, len(self.shards), table.id):
            first, end = max(first, start), min(end, start + count)
            if first < end:
                shard = self.shards[index]
                asked.append((shard, shard.start(make(first, end), clock=clock)))
        return _flat(shard.finish(request_id)[0] for shard, request_id in asked)

    def dense_pull(self, table, start, count, clock=0, **precisions):
        return self._dense(
            table, start, count,
            lambda first, end: dense_pull(table, first, end - first, **precisions), clock)

    def dense_push(self, table, start, values, clock=0, **how):
        self._dense(
            table, start, len(values),
            lambda first, end: dense_push(table, first, values[first - start:end - start], **how),
            clock)

    def dense_assign(self, table, start, values, clock=0):
        self._dense(
            table, start, len(values),
            lambda first, end: dense_assign(table, first, values[first - start:end - start]),
            clock)

    def dense_push_pull(self, table, start, values, clock=0, **precisions):
        return self._dense(
            table, start, len(values),
            lambda first, end: dense_push_pull(table, first, values[first - start:end - start],
                                               **precisions), clock)

    def tick(self, clock):
        """Ends iteration `clock` on every shard: each keeps clocks of its own."""
        asked = [(shard, shard.start(tick(), clock=clock)) for shard in self.shards]
        for shard, request_id in asked:
            shard.finish(request_id)
