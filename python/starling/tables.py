"""Tables and steps.

In this module keys are int64 or uint64 (n,), contiguous; other integers are converted. Values are
contiguous float32: arrays of NumPy or CPU tensors of torch, which are not copied. Those of float16 and
bfloat16 are converted, once; `out` receives the nearest values that it can have. `timeout` is in
seconds; None means the client's. A bad argument is a TypeError or ValueError that says what is
accepted; then nothing is sent. Other errors are of the class StarlingError: DeadlineError,
ClosedError and others. Any thread may use a table.

With `step`, an operation becomes a part of that step, and takes effect and fails with it.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Iterator, NamedTuple, Optional, Protocol, Sequence, Tuple, Type, TypeVar, Union, overload

import numpy
from numpy.typing import NDArray

from . import _native
from .specs import PRECISIONS, Consistency, Encoding, Optimizer, check_integer, encoding_of


class Tensor(Protocol):
    """A CPU tensor of torch."""

    def detach(self) -> Any: ...

    def numpy(self) -> Any: ...


Floats = Union[NDArray[numpy.float32], Tensor]
Keys = Union[NDArray[numpy.signedinteger[Any]], NDArray[numpy.unsignedinteger[Any]], Sequence[int], Tensor]
_Out = TypeVar("_Out", bound=Floats)
_Seconds = Optional[float]
# Operations of native/table.c.
_PULL, _PUSH, _PUSH_PULL, _ASSIGN, _ERASE = range(5)
_PULL_BAGS = {"sum": 5, "mean": 6}
_FIND = 7


class TableStats(NamedTuple):
    """Statistics of a table on all shards, in the order of struct sl_table_info (starling_table.h)."""

    rows: int  #: keys that have a row; of a dense table: elements
    bytes: int  #: memory of the rows and of what the optimizer remembers
    pulled_rows: int  #: visits: a pull of 10 keys counts 10
    pushed_rows: int
    steps: int  #: pushes and other writes, of the shard with rows that has applied the fewest
    evicted_ttl: int  #: rows that the policy let go for their age
    evicted_count: int  #: for their count
    evicted_l2: int  #: for their norm
    evicted_room: int  #: to make room
    rows_created: int  #: rows, rows_erased, and what the policy let go, together
    rows_erased: int
    admitted: int  #: keys that got their row later than with their first push
    refused: int  #: pushes of keys that got none
    waiting: int  #: keys that wait for their row
    bytes_rows: int  #: part of bytes: records of rows, also unused ones
    bytes_index: int  #: part of bytes: the index
    bytes_admission: int  #: part of bytes: what admission remembers


class ScanBatch(NamedTuple):
    """Rows of one shard, of SparseTable.scan."""

    keys: NDArray[numpy.uint64]  #: (n,)
    rows: NDArray[numpy.float32]  #: (n, dim)
    slots: NDArray[numpy.float32]  #: (n, m): what the optimizer keeps of the rows; m is 0 if not asked for
    last_steps: NDArray[numpy.uint32]  #: (n,): of the shard at the last push or assign, modulo 2**32
    counts: NDArray[numpy.uint32]  #: (n,): pushes
    shard: int
    step: int  #: of the shard: pushes and assigns so far


class Table(_native.Table):
    """Base of the tables. Members: name, client; optimizer and consistency, as it was opened."""

    __slots__ = ("optimizer", "consistency")
    optimizer: Optimizer
    consistency: Consistency

    def set_encoding(self, encoding: Encoding, *, error_feedback: int = 0) -> None:
        """Sets how values travel in the steps that begin after the call: "f32", "f16", "bf16" or "int8", or a pair
        of those, for pulls and for pushes.

        Arrays stay float32. Gradients are rounded randomly, so that they are right on average; pulls to the nearest.
        "int8" has a scale for each row. Dense tables are not pulled so: ("bf16", "int8").
        error_feedback: bytes of memory at this client, which add what rounding took from a gradient to the next
        gradient of its row; 0: none. Raises InvalidError, VersionError (an older server). No step may use the
        table meanwhile.
        """
        check_integer("error_feedback", error_feedback, 0, 2**63 - 1)
        self._set_encoding(*encoding_of(encoding), error_feedback)

    def stats(self, timeout: _Seconds = None) -> TableStats:
        """Asks all shards for the table's TableStats. Each answers of its own moment."""
        return TableStats(*self._stats(timeout))


class SparseTable(Table):
    """A table of rows by key: key -> float32 (dim,). Client.sparse opens it."""

    __slots__ = ()

    @property
    def values(self) -> str:
        """How the servers store rows: "f32", "f16", "bf16" or "int8"."""
        return PRECISIONS[self._members()["values"]]

    @property
    def slots(self) -> str:
        """How they store what the optimizer keeps of rows."""
        return PRECISIONS[self._members()["optimizer_slots"]]

    @overload
    def pull(self, keys: Keys, out: None = None, *, step: Optional[Step] = None,
             timeout: _Seconds = None) -> NDArray[numpy.float32]: ...

    @overload
    def pull(self, keys: Keys, out: _Out, *, step: Optional[Step] = None, timeout: _Seconds = None) -> _Out: ...

    def pull(self, keys: Keys, out: Any = None, *, step: Optional[Step] = None, timeout: _Seconds = None) -> Any:
        """Returns the rows of the keys, float32 (n, dim), in their order.

        A key without a row gets the row that the initializer gives it.
        out: (n, dim), receives the rows; it is returned.
        """
        return self._run(_PULL, step, timeout, keys, None, None, out)

    def find(self, keys: Keys, *, step: Optional[Step] = None,
             timeout: _Seconds = None) -> Tuple[NDArray[numpy.float32], NDArray[numpy.bool_]]:
        """Returns the rows of the keys, as pull does, and which keys have a row, bool (n,)."""
        found = numpy.zeros(_length_of(keys), numpy.bool_)
        return self._run(_FIND, step, timeout, keys, found, None, None), found

    def push(self, keys: Keys, grads: Floats, *, step: Optional[Step] = None, timeout: _Seconds = None) -> None:
        """Applies gradients, (n, dim), with the table's optimizer.

        Gradients of equal keys are added first. Rows that do not exist are created.
        """
        self._run(_PUSH, step, timeout, keys, None, grads, None)

    @overload
    def push_pull(self, keys: Keys, grads: Floats, out: None = None, *, step: Optional[Step] = None,
                  timeout: _Seconds = None) -> NDArray[numpy.float32]: ...

    @overload
    def push_pull(self, keys: Keys, grads: Floats, out: _Out, *, step: Optional[Step] = None,
                  timeout: _Seconds = None) -> _Out: ...

    def push_pull(self, keys: Keys, grads: Floats, out: Any = None, *, step: Optional[Step] = None,
                  timeout: _Seconds = None) -> Any:
        """Pushes, then pulls the new rows, in one round trip."""
        return self._run(_PUSH_PULL, step, timeout, keys, None, grads, out)

    @overload
    def pull_bags(self, keys: Keys, offsets: Keys, mode: str = "sum", out: None = None, *,
                  step: Optional[Step] = None, timeout: _Seconds = None) -> NDArray[numpy.float32]: ...

    @overload
    def pull_bags(self, keys: Keys, offsets: Keys, mode: str, out: _Out, *, step: Optional[Step] = None,
                  timeout: _Seconds = None) -> _Out: ...

    def pull_bags(self, keys: Keys, offsets: Keys, mode: str = "sum", out: Any = None, *,
                  step: Optional[Step] = None, timeout: _Seconds = None) -> Any:
        """Returns the "sum" or "mean" (mode) of the rows of each bag, float32 (bags, dim).

        offsets: integers (bags,), ascending from 0: the first key of each bag, as of
        torch.nn.EmbeddingBag. An empty bag gives zeros. The servers add: one row per bag and shard
        travels.
        """
        if mode not in _PULL_BAGS:
            raise ValueError(f"mode: {mode!r}; accepted: 'sum', 'mean'")
        return self._run(_PULL_BAGS[mode], step, timeout, keys, offsets, None, out)

    def assign(self, keys: Keys, rows: Floats, *, step: Optional[Step] = None, timeout: _Seconds = None) -> None:
        """Replaces rows, (n, dim), and resets what the optimizer remembers of them.

        Takes effect at once in every consistency mode. Rows that do not exist are created.
        """
        self._run(_ASSIGN, step, timeout, keys, None, rows, None)

    def scan(self, *, slots: bool = False, since: int = 0, count_min: int = 0,
             timeout: _Seconds = None) -> Iterator[ScanBatch]:
        """Yields all rows, in batches of some thousands, while the table is in use.

        A row that exists throughout comes exactly once; one that comes or goes may be left out. slots: also
        what the optimizer keeps. since: only rows pushed or assigned after this step of their shard
        (TableStats.steps). count_min: only rows pushed so often. timeout: of each batch. Raises ClosedError
        if a server is restarted, or replaced by its backup: then scan again.
        """
        for name, value, end in (("since", since, 1 << 64), ("count_min", count_min, 1 << 32)):
            if not 0 <= value < end:
                raise ValueError(f"{name}: {value}; accepted: 0 to {end - 1}")
        return self._batches(self._scan(slots, since, count_min, timeout))

    def _batches(self, scan: _native.Scan) -> Iterator[ScanBatch]:
        while True:
            batch = scan.next()
            if batch is None:
                return
            keys, values, marks, width, shard, shard_step = batch
            rows = numpy.frombuffer(values, numpy.float32).reshape(-1, width)
            pairs = numpy.frombuffer(marks, numpy.uint32).reshape(-1, 2)
            yield ScanBatch(numpy.frombuffer(keys, numpy.uint64), rows[:, :self.dim], rows[:, self.dim:],
                            pairs[:, 0], pairs[:, 1], shard, shard_step)

    def erase(self, keys: Keys, *, step: Optional[Step] = None, timeout: _Seconds = None) -> None:
        """Removes rows at once. A key without a row is no error."""
        self._run(_ERASE, step, timeout, keys, None, None, None)

    def evict(self, *, ttl_steps: int = 0, count_below: int = 0, l2_below: float = 0.0,
              timeout: _Seconds = None) -> int:
        """Evicts rows now, by these thresholds or those of the table's policy; returns how many went.

        Every server judges each row once while it serves; rows that the policy's protect_steps protect stay.
        ttl_steps: rows not pushed for so many steps go; count_below: rows with fewer pushes; l2_below: rows with a
        lower Euclidean norm. timeout: if it passes, the servers go on. Raises InvalidError without any
        threshold here and in the policy, ClosedError if a connection is lost meanwhile.
        """
        for name, value, end in (("ttl_steps", ttl_steps, (1 << 31) + 1), ("count_below", count_below, 1 << 32)):
            if not 0 <= value < end:
                raise ValueError(f"{name}: {value}; accepted: 0 to {end - 1}")
        if not 0 <= l2_below <= float(numpy.finfo(numpy.float32).max):
            raise ValueError(f"l2_below: {l2_below}; accepted: a finite number of at least 0")
        return self._evict(ttl_steps, count_below, l2_below, timeout)

    def __repr__(self) -> str:
        return f"<starling.SparseTable {self.name}, dim {self.dim}>"


def _length_of(values: Any) -> int:
    """Returns the first dimension; 0 without one: the extension then says what is accepted."""
    try:
        return len(values)
    except TypeError:
        return 0


class DenseTable(Table):
    """A table that is one array: float32 (length,). Client.dense opens it.

    Arrays have one dimension. Those that are sent stand for the elements from `start` on; without
    `start` they have all elements.
    """

    __slots__ = ()

    @overload
    def pull(self, out: None = None, *, start: int = 0, count: Optional[int] = None, step: Optional[Step] = None,
             timeout: _Seconds = None) -> NDArray[numpy.float32]: ...

    @overload
    def pull(self, out: _Out, *, start: int = 0, count: Optional[int] = None, step: Optional[Step] = None,
             timeout: _Seconds = None) -> _Out: ...

    def pull(self, out: Any = None, *, start: int = 0, count: Optional[int] = None, step: Optional[Step] = None,
             timeout: _Seconds = None) -> Any:
        """Returns `count` elements: by default as many as `out` has, or all from `start` on.

        out: receives the elements; it is returned.
        """
        if count is None:
            count = self.length - start if out is None else _length_of(out)
        self._check(start, count)
        return self._run(_PULL, step, timeout, start, count, None, out)

    def push(self, grads: Floats, *, start: Optional[int] = None, step: Optional[Step] = None,
             timeout: _Seconds = None) -> None:
        """Applies gradients with the table's optimizer."""
        self._run(_PUSH, step, timeout, *self._place(grads, start), grads, None)

    @overload
    def push_pull(self, grads: Floats, out: None = None, *, start: Optional[int] = None, step: Optional[Step] = None,
                  timeout: _Seconds = None) -> NDArray[numpy.float32]: ...

    @overload
    def push_pull(self, grads: Floats, out: _Out, *, start: Optional[int] = None, step: Optional[Step] = None,
                  timeout: _Seconds = None) -> _Out: ...

    def push_pull(self, grads: Floats, out: Any = None, *, start: Optional[int] = None, step: Optional[Step] = None,
                  timeout: _Seconds = None) -> Any:
        """Pushes, then pulls the same elements, in one round trip."""
        return self._run(_PUSH_PULL, step, timeout, *self._place(grads, start), grads, out)

    def assign(self, values: Floats, *, start: Optional[int] = None, step: Optional[Step] = None,
               timeout: _Seconds = None) -> None:
        """Replaces elements at once, and resets what the optimizer remembers of them."""
        self._run(_ASSIGN, step, timeout, *self._place(values, start), values, None)

    def _place(self, values: Any, start: Optional[int]) -> Tuple[int, int]:
        """Returns the first element and the number of values, after checking that they are in the table."""
        count = _length_of(values)
        if start is None and count != self.length and numpy.ndim(values) == 1:
            raise ValueError(f"{count} elements; accepted without start: all {self.length} of table {self.name}")
        self._check(start or 0, count)
        return start or 0, count

    def _check(self, start: int, count: int) -> None:
        if not 0 <= start <= start + count <= self.length:
            raise ValueError(f"start: {start}, with {count} elements; "
                             f"accepted: elements 0 to {self.length - 1} of table {self.name}")

    def __repr__(self) -> str:
        return f"<starling.DenseTable {self.name}, length {self.length}>"


class Step(_native.Step):
    """Operations on any number of tables that are sent together. Client.step begins one.

    Only the thread that began it may use it. As a context manager it is submitted and waited for at
    the end of the block, as far as that was not done, and dropped after an exception. The arrays of
    its operations must not change until it is complete; the step keeps them so long.
    """

    __slots__ = ()

    def set_encoding(self, encoding: Encoding) -> None:
        """Sets how values travel for the operations that are added after this call, instead of as their tables say.

        encoding: as of Table.set_encoding. An operation raises InvalidError if its table cannot be pulled so.
        """
        self._set_encoding(*encoding_of(encoding))

    def pull(self, table: Table, *arguments: Any, **options: Any) -> Any:
        """Adds table.pull(...). Returns the array, which has its values after the wait."""
        return self._of(table, "pull")(*arguments, step=self, **options)

    def push(self, table: Table, *arguments: Any, **options: Any) -> None:
        """Adds table.push(...)."""
        self._of(table, "push")(*arguments, step=self, **options)

    def find(self, table: SparseTable, *arguments: Any, **options: Any) -> Any:
        """Adds table.find(...). Returns the arrays, which have their values after the wait."""
        return self._of(table, "find")(*arguments, step=self, **options)

    def push_pull(self, table: Table, *arguments: Any, **options: Any) -> Any:
        """Adds table.push_pull(...). Returns the array, which has its values after the wait."""
        return self._of(table, "push_pull")(*arguments, step=self, **options)

    def pull_bags(self, table: SparseTable, *arguments: Any, **options: Any) -> Any:
        """Adds table.pull_bags(...). Returns the array, which has its values after the wait."""
        return self._of(table, "pull_bags")(*arguments, step=self, **options)

    def assign(self, table: Table, *arguments: Any, **options: Any) -> None:
        """Adds table.assign(...)."""
        self._of(table, "assign")(*arguments, step=self, **options)

    def erase(self, table: SparseTable, *arguments: Any, **options: Any) -> None:
        """Adds table.erase(...)."""
        self._of(table, "erase")(*arguments, step=self, **options)

    @staticmethod
    def _of(table: Table, name: str) -> Any:
        if not isinstance(table, Table) or not hasattr(table, name):
            raise TypeError(f"table: {table!r}; accepted: a table that has {name}")
        return getattr(table, name)

    def submit(self, timeout: _Seconds = None) -> None:
        """Sends the step and returns. timeout: seconds until its deadline.

        Raises RuntimeError for a step that was submitted, BusyError if too many are under way.
        """
        self._submit(timeout)

    def wait(self, timeout: _Seconds = None) -> bool:
        """Waits until the step is complete and returns True; or False after `timeout` seconds, and the
        step continues. None: until its deadline. Raises the step's StarlingError."""
        return self._wait(timeout)

    def __enter__(self) -> Step:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        if kind is not None or not (self._has_content or self.done):
            self._drop()
            return
        if not self._is_submitted:
            self._submit(None)
        self._wait(None)
