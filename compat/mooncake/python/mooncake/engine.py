"""Mooncake's class TransferEngine on starling.transfer: programs that were written for it run unmodified.

Calls return what Mooncake's return: 0, or a negative number; addresses, and numbers of batches, 0 if they failed. The reason
goes to `logging`, as "mooncake.engine". docs/mooncake.md has the differences.

A transfer ends at its deadline: MC_TRANSFER_TIMEOUT seconds, by default 30, and one more for each GB.
"""

from __future__ import annotations

import ctypes
import enum
import functools
import glob
import itertools
import json
import logging
import mmap
import os
import threading
import time
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy

from starling import ClosedError, DeadlineError, InUseError, InvalidError, NotFoundError, StarlingError
from starling.transfer import Batch, Engine, Segment

from ._memory import Memory

__all__ = ["TransferEngine", "TransferNotify", "TransferOpcode"]

SUPPORT_CUDA = SUPPORT_EFA = SUPPORT_HIP = SUPPORT_INTRA_NVLINK = SUPPORT_MNNVL = SUPPORT_MUSA = False

_log = logging.getLogger(__name__)
_PROTOCOLS = ("tcp", "shm", "rdma")
_P2P = "P2PHANDSHAKE"
_HANDSHAKE_PORT = 12001  # of names without a port, with a metadata store
_OPEN_S, _PROBE_S = 5.0, 2.0
_KNOWN_S, _LOOK_S = 1.0, 0.001  # until a peer is known to have registered memory
_BYTES_PER_S = 1e9
_TIMEOUT_S, _TIMEOUT_S_MAX = 30, 3600
_REQUESTS_MAX = 65536


class TransferOpcode(enum.IntEnum):
    """The direction of a transfer."""

    Read = 0
    Write = 1


Read, Write = TransferOpcode.Read, TransferOpcode.Write


class TransferNotify:
    """A message to a peer, or of one."""

    def __init__(self, name: str = "", msg: str = "") -> None:
        self.name, self.msg = name, msg


def _answers(failure: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The call returns `failure` in the place of an exception, whose text it logs."""
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            try:
                return function(*arguments, **named)
            except (StarlingError, ValueError, TypeError, OSError) as error:
                _log.error("%s: %s", function.__name__, error)
                return failure
        return call
    return decorate


def _name(name: str, port: int) -> str:
    """host:port of a name, which may lack the port."""
    if name.count(":") > 1 and "]" not in name:
        name = f"[{name}]"
    return name if ":" in name.rpartition("]")[2] else f"{name}:{port}"


def _timeout_s() -> int:
    text = os.environ.get("MC_TRANSFER_TIMEOUT") or str(_TIMEOUT_S)
    if not text.isdecimal() or not 1 <= int(text) <= _TIMEOUT_S_MAX:
        raise ValueError(f"MC_TRANSFER_TIMEOUT={text}: accepted are seconds, 1 to {_TIMEOUT_S_MAX}")
    return int(text)


class _Move:
    """Requests that run: addresses of this process and of the peer, and lengths."""

    def __init__(self, peer: str, op: str, rows: numpy.ndarray[Any, Any], timeout: float, notice: Optional[Tuple[str, bytes]]) -> None:
        self.peer, self.op, self.rows, self.notice = peer, op, rows, notice
        self.begun = time.monotonic()
        self.end = self.begun + timeout
        self.batch: Optional[Batch] = None

    def submit(self, engine: Engine, segment: Segment) -> None:
        self.batch = engine.move(self.op, segment, *self.rows, timeout=max(0.001, self.end - time.monotonic()), notice=self.notice)

    def unknown(self) -> List[int]:
        """The requests that were refused: perhaps the peer registered the memory a moment ago. None, if time has passed."""
        assert self.batch is not None
        refused = [index for index, status in enumerate(self.batch.status()) if status.state == "invalid" or "not registered" in status.reason]
        return refused if time.monotonic() < self.begun + _KNOWN_S else []


class TransferEngine:
    """An engine: memory that peers read and write, and transfers with them. Any thread."""

    TransferOpcode = TransferOpcode

    def __init__(self) -> None:
        self._engine: Optional[Engine] = None
        self._lock = threading.Lock()
        self._segments: Dict[str, Segment] = {}
        self._moves: Dict[int, List[_Move]] = {}
        self._numbers = itertools.count(1)
        self._buffers: Dict[int, mmap.mmap] = {}

    # Start and end

    def initialize(self, local_hostname: str, metadata_server: str, protocol: str, device_name: str) -> int:
        """Starts the engine. local_hostname: "host" or "host:port"; metadata_server: "P2PHANDSHAKE", "etcd://host:port", "host:port"
        (etcd) or "http://host:port/path"; protocol: "tcp", "shm" or "rdma"; device_name: of RDMA, "": all."""
        return self.initialize_ext(local_hostname, metadata_server, protocol, device_name, "etcd")

    @_answers(-1)
    def initialize_ext(self, local_hostname: str, metadata_server: str, protocol: str, device_name: str, metadata_type: str) -> int:
        """The same with the store's type, "etcd" or "http", for a server without a scheme."""
        if protocol and protocol not in _PROTOCOLS:
            raise InvalidError(f"protocol {protocol!r} is not supported: {', '.join(_PROTOCOLS)} are; there is no memory of devices")
        is_p2p = metadata_server.upper() == _P2P
        if not is_p2p and "://" not in metadata_server:
            metadata_server = f"{metadata_type or 'etcd'}://{metadata_server}"
        options: Dict[str, Any] = {"metadata": metadata_server, "insecure": _is_insecure()}
        if protocol != "rdma" or os.environ.get("MC_FORCE_TCP"):
            options["endpoints"] = "shm://"  # and TCP, always
        elif device_name or glob.glob("/sys/class/infiniband/*"):
            options["rdma_device"] = device_name or None
        else:
            _log.warning("initialize: this host has no RDMA device: TCP is used")
        self._timeout = _timeout_s()
        self._is_p2p = is_p2p
        self.close()
        name = _name(local_hostname, 0 if is_p2p else _HANDSHAKE_PORT)
        try:
            self._engine = Engine(name, **options)
        except InUseError as error:
            if not is_p2p:
                raise
            _log.warning("initialize: %s: another port is used", error)
            self._engine = Engine(f"{name.rpartition(':')[0]}:0", **options)
        self._memory = Memory(self._engine)
        weakref.finalize(self, self._engine.close).atexit = False
        return 0

    def close(self) -> None:
        """Ends the engine; Mooncake's ends with its object, as this one does."""
        with self._lock:
            engine, self._engine = self._engine, None
            self._segments.clear()
            self._moves.clear()
        if engine is not None:
            engine.close()
        self._buffers.clear()

    def _running(self) -> Engine:
        if self._engine is None:
            raise InvalidError("the engine is not initialized")
        return self._engine

    def get_engine(self) -> Engine:
        """The starling.transfer.Engine."""
        return self._running()

    @_answers(-1)
    def get_rpc_port(self) -> int:
        """The port where peers find the engine."""
        return int(self._running().name.rpartition(":")[2])

    # Memory

    @_answers(-1)
    def register_memory(self, buffer_addr: int, capacity: int, location: str = "*") -> int:
        """Registers memory of the host: ranges may overlap, and be registered several times."""
        self._running()
        self._memory.add(buffer_addr, capacity, location)
        return 0

    @_answers(-1)
    def unregister_memory(self, buffer_addr: int) -> int:
        """Ends the last registration that began there."""
        self._running()
        self._memory.remove(buffer_addr)
        return 0

    def batch_register_memory(self, buffer_addresses: Sequence[int], capacities: Sequence[int], location: str = "*") -> int:
        """Registers all ranges or none."""
        if len(buffer_addresses) != len(capacities):
            _log.error("batch_register_memory: %d addresses, %d capacities", len(buffer_addresses), len(capacities))
            return -1
        for index, (address, capacity) in enumerate(zip(buffer_addresses, capacities)):
            if self.register_memory(address, capacity, location) != 0:
                self.batch_unregister_memory(buffer_addresses[:index])
                return -1
        return 0

    def batch_unregister_memory(self, buffer_addresses: Sequence[int]) -> int:
        """Unregisters all of them, also if one fails."""
        return min([self.unregister_memory(address) for address in reversed(buffer_addresses)], default=0)

    @_answers(0)
    def allocate_managed_buffer(self, length: int) -> int:
        """Returns the address of new registered memory, zeroed."""
        self._running()
        memory = mmap.mmap(-1, length)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._memory.add(address, length, "*")
        self._buffers[address] = memory
        return address

    @_answers(-1)
    def free_managed_buffer(self, buffer_addr: int, length: int) -> int:
        """Frees memory of allocate_managed_buffer."""
        if buffer_addr not in self._buffers:
            raise InvalidError(f"no managed buffer begins at {buffer_addr:#x}")
        self._memory.remove(buffer_addr)
        self._buffers.pop(buffer_addr).close()
        return 0

    @_answers(-1)
    def write_bytes_to_buffer(self, dest_address: int, src_ptr: Any, length: int) -> int:
        """Copies bytes into registered memory."""
        source = src_ptr.encode() if isinstance(src_ptr, str) else bytes(src_ptr)
        self._check(dest_address, length)
        if length > len(source):
            raise InvalidError(f"{length} bytes of {len(source)}")
        ctypes.memmove(dest_address, source, length)
        return 0

    def read_bytes_from_buffer(self, source_address: int, length: int) -> bytes:
        """Returns bytes of registered memory. Raises InvalidError."""
        self._check(source_address, length)
        return ctypes.string_at(source_address, length)

    def _check(self, address: int, length: int) -> None:
        self._running()
        if not self._memory.has(address, length):
            raise InvalidError(f"memory at {address:#x} of {length} bytes is not registered")

    @_answers(0)
    def get_first_buffer_address(self, segment_name: str) -> int:
        """The lowest address of a peer's registered memory; 0: it has none."""
        if self._peer(segment_name) == self._running().name:
            return self._memory.first()
        return next((each.address for each in self._segment(segment_name).buffers()), 0)

    # Peers

    def _peer(self, name: str) -> str:
        return _name(name, _HANDSHAKE_PORT)

    def _segment(self, peer: str) -> Segment:
        """The open segment of a peer; it is opened anew after the peer has ended."""
        with self._lock:
            found = self._segments.get(peer)
        if found is None:
            opened = self._running().open(self._peer(peer), timeout=_OPEN_S)
            with self._lock:
                found = self._segments.setdefault(peer, opened)
            if found is not opened:
                opened.close()
        return found

    def _forget(self, peer: str) -> None:
        with self._lock:
            gone = self._segments.pop(peer, None)
        if gone is not None:
            gone.close()

    @_answers(-1)
    def send_probe(self, peer_server_name: str) -> int:
        """0: the peer can be reached."""
        self._running().open(self._peer(peer_server_name), timeout=_PROBE_S).close()
        return 0

    @_answers([])
    def get_notifies(self) -> List[TransferNotify]:
        """Takes the messages of peers that have come."""
        return [TransferNotify(each.name, each.text.decode(errors="replace")) for each in self._running().notices(0.001)]

    def warmup_efa_segment(self, segment_name: str) -> int:
        """Nothing to do."""
        return 0

    def get_local_topology(self, device_name: Optional[str] = None) -> str:
        """The NIC priority matrix of this host, JSON: of each NUMA node the RDMA devices there, and the others."""
        chosen = device_name.split(",") if device_name else None
        devices = {os.path.basename(path): _read_number(f"{path}/device/numa_node") for path in sorted(glob.glob("/sys/class/infiniband/*"))}
        devices = {name: node for name, node in devices.items() if chosen is None or name in chosen}
        nodes = sorted(int(path.rpartition("node")[2]) for path in glob.glob("/sys/devices/system/node/node[0-9]*")) or [0]
        return json.dumps({f"cpu:{node}": [[name for name, at in devices.items() if at == node], [name for name, at in devices.items() if at != node]]
                           for node in nodes})

    # Transfers. transport_hint is accepted: the preferred transport that both sides have is used.

    def _begin(self, peer: str, op: int, buffers: Sequence[int], remotes: Sequence[int], lengths: Sequence[int],
               notify: Optional[TransferNotify] = None) -> List[_Move]:
        """Submits the requests, up to _REQUESTS_MAX in a batch."""
        engine = self._running()
        if not len(buffers) == len(remotes) == len(lengths):
            raise InvalidError(f"{len(buffers)} buffers, {len(remotes)} peer_buffer_addresses, {len(lengths)} lengths: not as many")
        rows = numpy.array([buffers, remotes, lengths], dtype=numpy.uint64)
        if not len(buffers) or notify is not None and len(buffers) > _REQUESTS_MAX:
            raise InvalidError(f"{len(buffers)} requests: accepted are 1 to {_REQUESTS_MAX} with a message, else 1 or more")
        timeout = min(self._timeout + int(rows[2].sum()) / _BYTES_PER_S, _TIMEOUT_S_MAX)
        notice = None if notify is None else (notify.name, notify.msg.encode())
        moves = [_Move(peer, ("read", "write")[op], rows[:, first:first + _REQUESTS_MAX], timeout, notice)
                 for first in range(0, len(buffers), _REQUESTS_MAX)]
        for move in moves:
            move.submit(engine, self._segment(peer))
        return moves

    def _finish(self, moves: List[_Move]) -> None:
        """Waits for the requests. Raises the error of the first that failed."""
        error: Optional[StarlingError] = None
        for move in moves:
            try:
                self._wait(move)
            except StarlingError as raised:
                error = error or raised
        if error is not None:
            raise error

    def _wait(self, move: _Move) -> None:
        assert move.batch is not None
        while True:
            try:
                move.batch.wait()
            except (InvalidError, NotFoundError):
                again = move.unknown()
                if not again:
                    raise
                time.sleep(_LOOK_S)
                move.rows = move.rows[:, again]
            except ClosedError:
                self._forget(move.peer)
                raise
            else:
                return
            finally:
                move.batch.close()
            move.submit(self._running(), self._segment(move.peer))

    @_answers(-1)
    def batch_transfer_sync(self, target_hostname: str, buffers: Sequence[int], peer_buffer_addresses: Sequence[int],
                            lengths: Sequence[int], opcode: TransferOpcode, notify: Optional[TransferNotify] = None,
                            transport_hint: str = "") -> int:
        """Moves all ranges, and waits for that. notify: for the peer, when all have been moved."""
        self._finish(self._begin(target_hostname, opcode, buffers, peer_buffer_addresses, lengths, notify))
        return 0

    def batch_transfer_sync_write(self, target_hostname: str, buffers: Sequence[int], peer_buffer_addresses: Sequence[int],
                                  lengths: Sequence[int], transport_hint: str = "") -> int:
        return self.batch_transfer_sync(target_hostname, buffers, peer_buffer_addresses, lengths, Write)

    def batch_transfer_sync_read(self, target_hostname: str, buffers: Sequence[int], peer_buffer_addresses: Sequence[int],
                                 lengths: Sequence[int], transport_hint: str = "") -> int:
        return self.batch_transfer_sync(target_hostname, buffers, peer_buffer_addresses, lengths, Read)

    def transfer_sync(self, target_hostname: str, buffer: int, peer_buffer_address: int, length: int, opcode: TransferOpcode,
                      notify: Optional[TransferNotify] = None, transport_hint: str = "") -> int:
        """The same with one range."""
        return self.batch_transfer_sync(target_hostname, [buffer], [peer_buffer_address], [length], opcode, notify)

    def transfer_sync_write(self, target_hostname: str, buffer: int, peer_buffer_address: int, length: int, transport_hint: str = "") -> int:
        return self.transfer_sync(target_hostname, buffer, peer_buffer_address, length, Write)

    def transfer_sync_read(self, target_hostname: str, buffer: int, peer_buffer_address: int, length: int, transport_hint: str = "") -> int:
        return self.transfer_sync(target_hostname, buffer, peer_buffer_address, length, Read)

    @_answers(0)
    def batch_transfer_async(self, target_hostname: str, buffers: Sequence[int], peer_buffer_addresses: Sequence[int],
                             lengths: Sequence[int], opcode: TransferOpcode, transport_hint: str = "") -> int:
        """Begins to move all ranges. Returns the batch's number, for get_batch_transfer_status; 0: it failed."""
        moves = self._begin(target_hostname, opcode, buffers, peer_buffer_addresses, lengths)
        with self._lock:
            number = next(self._numbers)
            self._moves[number] = moves
        return number

    def batch_transfer_async_write(self, target_hostname: str, buffers: Sequence[int], peer_buffer_addresses: Sequence[int],
                                   lengths: Sequence[int], transport_hint: str = "") -> int:
        return self.batch_transfer_async(target_hostname, buffers, peer_buffer_addresses, lengths, Write)

    def batch_transfer_async_read(self, target_hostname: str, buffers: Sequence[int], peer_buffer_addresses: Sequence[int],
                                  lengths: Sequence[int], transport_hint: str = "") -> int:
        return self.batch_transfer_async(target_hostname, buffers, peer_buffer_addresses, lengths, Read)

    def _take(self, number: int) -> List[_Move]:
        with self._lock:
            found = self._moves.pop(number, None)
        if found is None:
            raise InvalidError(f"there is no batch {number!r}")
        return found

    def get_batch_transfer_status(self, batch_ids: Sequence[int]) -> int:
        """Waits for the batches, and frees them. 0: all ranges have been moved."""
        return min([self._result_of(number) for number in batch_ids], default=0)

    @_answers(-1)
    def _result_of(self, number: int) -> int:
        self._finish(self._take(number))
        return 0

    def transfer_submit_write(self, target_hostname: str, buffer: int, peer_buffer_address: int, length: int, transport_hint: str = "") -> int:
        """Begins to write one range. Returns its number, for transfer_check_status; 0: it failed."""
        return self.batch_transfer_async_write(target_hostname, [buffer], [peer_buffer_address], [length])

    @_answers(-1)
    def transfer_check_status(self, batch_id: int) -> int:
        """1: it has been written; 0: not yet; -1: it failed; -2: its deadline has passed. Frees it, unless 0."""
        with self._lock:
            moves = self._moves.get(batch_id, [])
        if moves and not all(move.batch is None or move.batch.done for move in moves):
            return 0
        try:
            self._finish(self._take(batch_id))
        except DeadlineError as error:
            _log.error("transfer_check_status: %s", error)
            return -2
        return 1


def _is_insecure() -> bool:
    text = os.environ.get("STARLING_INSECURE", "").lower()
    if text not in ("", "0", "1", "false", "true"):
        raise ValueError(f"STARLING_INSECURE={text}: accepted are 0, 1, true and false")
    return text in ("1", "true")


def _read_number(path: str) -> int:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return -1
