"""A client of the servers, and its tables."""

from __future__ import annotations

import atexit
import math
import os
import re
import weakref
from types import TracebackType
from typing import Any, Dict, List, NamedTuple, NoReturn, Optional, Sequence, Tuple, Type, TypeVar, Union

import numpy
from numpy.typing import NDArray

from . import _log, _native
from .errors import StarlingError, TableMismatch, of
from .specs import (ASP, SGD, Consistency, Encoding, Initializer, Optimizer, Policy, Zeros, check_integer,
                    encoding_of, optimizer_of, precision_of)
from .tables import DenseTable, SparseTable, Step, Table

_Table = TypeVar("_Table", bound=Table)
_SPARSE, _DENSE = 0, 1
_KINDS = ("sparse", "dense", "kv")
_Path = Union[str, "os.PathLike[str]"]
# Argument of connect -> flag of sl_client_options_from_env.
_FLAGS = {"coordinator": "coordinator", "task": "task-index", "workers": "num-workers", "secret_file": "secret-file",
          "tls_certificate": "tls-cert", "tls_key": "tls-key", "tls_authority": "tls-ca"}
_open_clients: weakref.WeakSet[Client] = weakref.WeakSet()
os.register_at_fork(after_in_child=_open_clients.clear)


class TableEntry(NamedTuple):
    """A table in the list of Client.tables."""

    name: str
    kind: str  #: "sparse", "dense" or "kv"
    dim: int  #: columns of a row; KV: bytes of a value; dense: 0
    length: int  #: dense: elements; else 0


def connect(coordinator: Optional[str] = None, *, task: Optional[int] = None, workers: Optional[int] = None,
            timeout: Optional[float] = None, secret_file: Optional[_Path] = None, tls_certificate: Optional[_Path] = None,
            tls_key: Optional[_Path] = None, tls_authority: Optional[_Path] = None, accept_loss: bool = False) -> Client:
    """Connects this process to the servers of a job and returns its Client.

    Arguments that are None, and all other options, come from the environment, which starling-launch,
    torchrun and Slurm set: docs/configuration.md lists the variables.

    coordinator: "host:port" of server 0 or of a scheduler.
    task: index of this worker, from 0; -1: a client without a clock. Without a source: worker 0.
    workers: workers of the job; BSP and SSP need it.
    timeout: seconds; the default of all calls of the client, and the longest wait for the servers.
    secret_file: file with the cluster's secret.
    tls_certificate, tls_key, tls_authority: PEM files for TLS; all three, or none.
    accept_loss: whether tables go on after a server was restarted without its values: its rows then begin
    anew, and values_lost says so. By default each operation of a table then raises CorruptError.

    Raises InvalidError or NotFoundError for a bad or missing setting, DeadlineError, RefusedError
    (another secret), VersionError. Any thread; a client belongs to the process.
    """
    given = {"coordinator": coordinator, "task": "none" if task == -1 else task, "workers": workers,
             "secret_file": secret_file, "tls_certificate": tls_certificate, "tls_key": tls_key,
             "tls_authority": tls_authority}
    _log.start()
    try:
        client = Client(tuple(f"--starling-{_FLAGS[name]}={value}" for name, value in given.items() if value is not None),
                        timeout, accept_loss)
    except StarlingError as error:
        raise of(error.code, _in_words_of_connect(str(error))) from None
    _open_clients.add(client)
    return client


def _in_words_of_connect(text: str) -> str:
    """Replaces the library's flags by the arguments that they come from. Flags in parentheses are servers'."""
    arguments = {flag: name for name, flag in _FLAGS.items()}
    return re.sub(rf"(?<!\()--(?:starling-)?({'|'.join(arguments)})", lambda found: arguments[found[1]],
                  text.replace("client: ", "", 1))


class Client(_native.Client):
    """A connection to all servers. starling.connect makes one. Any thread may use it.

    As a context manager it is closed at the end of the block; after an exception it leaves, so that
    another process may take the worker's place.
    """

    __slots__ = ("__weakref__",)

    def sparse(self, name: str, dim: int, optimizer: Optimizer = SGD(), init: Initializer = Zeros(),
               consistency: Consistency = ASP, *, policy: Policy = Policy(), reject_nonfinite: Optional[bool] = None,
               values: str = "f32", slots: str = "f32", encoding: Encoding = "f32", error_feedback: int = 0,
               timeout: Optional[float] = None) -> SparseTable:
        """Opens or creates a table of rows by key and returns its SparseTable.

        name: 1 to 63 printable characters without spaces. dim: columns of a row, 1 to 4096.
        policy: which rows the servers forget; with BSP without an order.
        reject_nonfinite: whether a push or an assign of NaN or infinite values raises InvalidError and
        changes nothing; None: yes for a new table, as it is for an existing one.
        values, slots: how the servers store rows, and what the optimizer keeps of them: "f32", "f16", "bf16", and
        values "int8" with a scale for each row. Each update is computed in f32 and rounded randomly.
        encoding, error_feedback: how values travel for this client, as of Table.set_encoding.
        Raises TableMismatch if the table exists with another specification. Any thread.
        """
        check_integer("dim", dim, 1, 4096)
        _check_type("policy", policy, Policy, "Policy(ttl_steps=100000)")
        order, rows = policy._spec()
        rows.update(values=precision_of("values", values), optimizer_slots=precision_of("slots", slots, 3))
        return self._open(SparseTable, (name, _SPARSE, dim, 0), optimizer, init, consistency, (order, rows),
                          reject_nonfinite, encoding, error_feedback, timeout)

    def dense(self, name: str, length: int, optimizer: Optimizer = SGD(), init: Initializer = Zeros(),
              consistency: Consistency = ASP, *, reject_nonfinite: Optional[bool] = None, encoding: Encoding = "f32",
              error_feedback: int = 0, timeout: Optional[float] = None) -> DenseTable:
        """Opens or creates a table that is one array and returns its DenseTable.

        length: elements, 1 to 2**36. Otherwise as sparse.
        """
        check_integer("length", length, 1, 2**36)
        return self._open(DenseTable, (name, _DENSE, 0, length), optimizer, init, consistency, Policy()._spec(),
                          reject_nonfinite, encoding, error_feedback, timeout)

    def tables(self, timeout: Optional[float] = None) -> List[TableEntry]:
        """Lists the tables of the job, in the order in which they were opened first.

        Raises VersionError if the coordinator is older than this. Any thread.
        """
        return [TableEntry(name, _KINDS[kind], dim, length) for name, kind, dim, length in self._tables(timeout)]

    def open(self, name: str, timeout: Optional[float] = None) -> Union[SparseTable, DenseTable]:
        """Opens an existing table, as whatever it is, and returns its SparseTable or DenseTable.

        Raises NotFoundError, and UnsupportedError for a KV table. Any thread.
        """
        entry = next((entry for entry in self.tables(timeout) if entry.name == name), None)
        if entry is None:
            raise of(-8, f"{name}: no client has opened a table of this name")
        if entry.kind == "kv":
            raise of(-14, f"{name}: it is a KV table, which libstarling_kv opens")
        kind: Type[Union[SparseTable, DenseTable]] = SparseTable if entry.kind == "sparse" else DenseTable
        table = kind(self, name, timeout)
        members = table._members()
        table.optimizer = optimizer_of(members)
        table.consistency = Consistency(("asp", "bsp", "ssp")[members["mode"]], members["staleness"])
        return table

    def _open(self, kind: Type[_Table], what: Tuple[str, int, int, int], optimizer: Optimizer, init: Initializer,
              consistency: Consistency, rows: Tuple[int, Dict[str, Any]], reject_nonfinite: Optional[bool],
              encoding: Encoding, error_feedback: int, timeout: Optional[float]) -> _Table:
        _check_type("optimizer", optimizer, Optimizer, "SGD(lr=0.01)")
        _check_type("init", init, Initializer, "Normal(std=0.01)")
        _check_type("consistency", consistency, Consistency, "ASP")
        if reject_nonfinite not in (None, True, False):
            raise TypeError(f"reject_nonfinite: {reject_nonfinite!r}; accepted: True, False, None")
        encoding_of(encoding)
        check_integer("error_feedback", error_feedback, 0, 2**63 - 1)
        spec = *what, optimizer._spec(), init._spec(), consistency._spec(self.worker_count), rows
        try:
            table = kind(self, *spec, reject_nonfinite is not False, timeout)
        except TableMismatch as error:
            if reject_nonfinite is not None or "reject_nonfinite 0" not in str(error):
                raise
            table = kind(self, *spec, False, timeout)
        table.optimizer, table.consistency = optimizer, consistency
        if encoding != "f32" or error_feedback:
            table.set_encoding(encoding, error_feedback=error_feedback)
        return table

    def empty(self, shape: Union[int, Sequence[int]]) -> NDArray[numpy.float32]:
        """Returns a zeroed float32 array in memory that servers of this host and RDMA devices access
        directly: pulls into it and pushes from it avoid copies.

        At most 64 such arrays exist at a time. The memory lives as long as arrays use it, also after the
        client is closed.
        """
        sizes: Tuple[int, ...] = (shape,) if isinstance(shape, int) else tuple(shape)
        for size in sizes:
            check_integer("shape", size, 0, 2**48)
        count = math.prod(sizes)
        if count == 0:
            return numpy.empty(sizes, numpy.float32)
        memory: Any = _native.Memory(self, 4 * count)
        array: NDArray[numpy.float32] = numpy.frombuffer(memory, numpy.float32)
        return array.reshape(sizes)

    def step(self, clock: Optional[int] = None) -> Step:
        """Begins a Step of iteration `clock`; None: the current iteration of this worker."""
        if clock is None:
            clock = self.clock
        check_integer("clock", clock, 0, 2**32 - 2)
        return Step(self, clock)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        if kind is None:
            self.close()
        else:
            self.leave()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Client cannot be pickled: it belongs to its process; "
                        "call starling.connect in the other process")

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"task {self.task}, {self.shard_count} shards"
        return f"<starling.Client, {state}>"


def _check_type(name: str, value: Any, kind: type, example: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name}: {value!r}; accepted: a starling.{kind.__name__}, such as starling.{example}")


@atexit.register
def leave_all() -> None:
    """Ends the open clients of this process, as the interpreter does at its end."""
    for client in list(_open_clients):
        if not client.closed:
            client.leave()
