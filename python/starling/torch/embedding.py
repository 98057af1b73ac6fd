"""Embeddings whose rows are those of sparse tables."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.nn.functional as functional

from ..client import Client
from ..keys import unique
from ..tables import SparseTable, Step
from .dense import check_finite, check_values

_MODES = ("mean", "sum")
_NEEDS_GRADIENT = torch.empty(0, requires_grad=True)


class Lookup(NamedTuple):
    """Keys of a forward pass: distinct[inverse] is keys."""

    keys: torch.Tensor
    distinct: Any
    inverse: torch.Tensor


def look_up(keys: torch.Tensor) -> Lookup:
    keys = keys.reshape(-1).clone()  # the caller may use the memory of a batch again
    distinct, inverse, _ = unique(keys.numpy())
    return Lookup(keys, distinct, torch.from_numpy(inverse))


def arguments_of(name: str, given: Any) -> Tuple[Any, ...]:
    """Returns the arguments of EmbeddingBag.forward from those of a feature. A tensor is the keys, also if it
    has several rows: it is never unpacked."""
    arguments = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    if not 1 <= len(arguments) <= 3 or not all(isinstance(each, torch.Tensor) or (at > 0 and each is None)
                                               for at, each in enumerate(arguments)):
        kinds = ", ".join(type(each).__name__ for each in arguments[:4])
        raise TypeError(f"{name}: {type(given).__name__} of {kinds or 'nothing'}; accepted: keys, (keys,), (keys, offsets) "
                        "or (keys, offsets, per_sample_weights), all tensors")
    return arguments


class _Rows(torch.autograd.Function):
    """Pulled rows as tensors whose gradients go to the bags. uses: (bag, its pushes, keys) of each."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, uses: List[Tuple[EmbeddingBag, int, torch.Tensor]],  # type: ignore
                *pulled: Any) -> Tuple[torch.Tensor, ...]:
        ctx.uses = uses
        ctx.set_materialize_grads(False)
        tensors = tuple(torch.from_numpy(rows) for rows in pulled)
        ctx.mark_non_differentiable(*(rows for (bag, *_), rows in zip(uses, tensors) if not bag.training))
        return tensors

    @staticmethod
    def backward(ctx: Any, *grads: Optional[torch.Tensor]) -> Tuple[None, ...]:
        for (bag, pushes, keys), grad in zip(ctx.uses, grads):
            if grad is not None:
                bag._add(keys, grad, pushes)
        return (None,) * (2 + len(grads))


class EmbeddingBag(torch.nn.Module):
    """torch.nn.EmbeddingBag whose rows are those of a SparseTable.

    The forward pass pulls the rows of the distinct keys of the batch. The backward pass leaves a gradient
    for each key; Optimizer.step() or push() sends them, and the servers apply the table's optimizer.
    Under no_grad and after eval() the module only pulls.

    table: as Client.sparse returns it. mode: "mean" or "sum". One thread at a time.
    """

    def __init__(self, table: SparseTable, mode: str = "mean") -> None:
        super().__init__()
        if mode not in _MODES:
            raise ValueError(f"mode: {mode!r}; accepted: 'mean', 'sum'")
        self.table = table
        self.mode = mode
        self._grads: List[Tuple[torch.Tensor, torch.Tensor]] = []  # keys and gradients, until the push
        self._pushes = 0  # so far; a backward pass belongs to the push after its forward pass
        self._prefetched: Optional[Tuple[Lookup, Any]] = None  # rows that a Pipeline has pulled

    def forward(self, keys: torch.Tensor, offsets: Optional[torch.Tensor] = None,
                per_sample_weights: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Returns float32 (bags, dim).

        keys: integers (n,) with offsets (bags,), the first key of each bag; or (bags, length) without.
        per_sample_weights: float32 of the shape of keys, with mode "sum". Raises what the table's pull
        raises, and what torch.nn.functional.embedding_bag raises.
        """
        return _forward(self.table.client, {self.table.name: self},
                        {self.table.name: (keys, offsets, per_sample_weights)})[0]

    def _pull(self, keys: torch.Tensor, step: Step) -> Tuple[Lookup, Any]:
        """Returns the rows that were prefetched for these keys, or adds a pull to the step."""
        if self._prefetched is not None and self.training and torch.is_grad_enabled():
            expected = self._prefetched[0].keys
            if expected.dtype == keys.dtype and torch.equal(expected, keys.reshape(-1)):
                return self._prefetched
        lookup = look_up(keys)
        return lookup, step.pull(self.table, lookup.distinct)

    def _add(self, keys: torch.Tensor, grad: torch.Tensor, pushes: int) -> None:
        """Keeps the gradient of a backward pass, which is sparse: a row for each key."""
        if pushes != self._pushes:
            raise RuntimeError(f"backward, table {self.table.name}: the gradients since its forward pass were pushed "
                               "already; accepted: backward before step() or push(), else forward again")
        self._grads.append((keys, grad._values()))

    def _check_finite(self) -> None:
        for _, grads in self._grads:
            check_finite(f"table {self.table.name}", grads)

    def _take(self) -> Optional[Tuple[torch.Tensor, torch.Tensor]]:
        """Ends the batch: returns its keys and gradients, or None."""
        taken, self._grads = self._grads, []
        self._pushes += 1
        self._prefetched = None
        if len(taken) > 1:
            return torch.cat([keys for keys, _ in taken]), torch.cat([grads for _, grads in taken])
        return taken[0] if taken else None

    def push(self, *, step: Optional[Step] = None) -> None:
        """Pushes the gradients of all backward passes since the last push, as one push of the table.

        With a step it becomes a part of that step. A later backward pass of an earlier forward pass
        raises RuntimeError. CorruptError: a server has lost its values.
        """
        check_values(self.table.client)
        taken = self._take()
        if taken is not None:
            keys, grads = taken
            self.table.push(keys.numpy(), grads.numpy(), step=step)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients."""
        self._grads.clear()

    def extra_repr(self) -> str:
        return f"{self.table.name}, dim={self.table.dim}, mode={self.mode}"


class EmbeddingBagCollection(torch.nn.Module):
    """Several EmbeddingBags by name, whose rows travel together: one message per shard and pass.

    bags: at least one, each with a table of its own; all tables are of one client. One thread at a
    time.
    """

    def __init__(self, bags: Mapping[str, EmbeddingBag]) -> None:
        super().__init__()
        if not isinstance(bags, Mapping) or not all(isinstance(bag, EmbeddingBag) for bag in bags.values()):
            raise TypeError(f"bags: {type(bags).__name__}; accepted: a dict of name to EmbeddingBag")
        tables = {bag.table.name for bag in bags.values()}
        clients = {bag.table.client for bag in bags.values()}
        if len(tables) != len(bags) or len(clients) != 1:
            raise ValueError(f"bags: {len(bags)} bags on {len(tables)} tables of {len(clients)} clients; "
                             "accepted: at least one bag, as many tables, one client")
        self._client: Client = clients.pop()
        self.bags = torch.nn.ModuleDict(bags)

    def forward(self, features: Mapping[str, Any]) -> Dict[str, torch.Tensor]:
        """Returns float32 (bags, dim) for each feature.

        features: the arguments of EmbeddingBag.forward for each name: keys, (keys,), (keys, offsets) or
        (keys, offsets, per_sample_weights). Raises KeyError for an unknown name, TypeError for other
        arguments.
        """
        if not isinstance(features, Mapping):
            raise TypeError(f"features: {type(features).__name__}; accepted: a dict of name to keys or (keys, ...)")
        pooled = _forward(self._client, {name: self.bags[name] for name in features}, features)
        return dict(zip(features, pooled))

    def push(self, *, step: Optional[Step] = None) -> None:
        """Pushes the gradients of all bags, in one step: the caller's, or one of its own."""
        if step is None:
            with self._client.step() as own:
                self.push(step=own)
        else:
            for bag in self.bags.values():
                bag.push(step=step)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients of all bags."""
        for bag in self.bags.values():
            bag.zero_grad()


def _forward(client: Client, named: Mapping[str, EmbeddingBag], features: Mapping[str, Any]) -> List[torch.Tensor]:
    """The forward pass of several bags, as one step. features: of EmbeddingBagCollection.forward."""
    check_values(client)
    bags: Sequence[EmbeddingBag] = list(named.values())
    inputs = [arguments_of(name, given) for name, given in features.items()]
    with client.step() as step:
        pulled = [bag._pull(given[0], step) for bag, given in zip(bags, inputs)]
    arrays = [rows for _, rows in pulled]
    if torch.is_grad_enabled() and any(bag.training for bag in bags):
        uses = [(bag, bag._pushes, lookup.keys) for bag, (lookup, _) in zip(bags, pulled)]
        tensors = _Rows.apply(_NEEDS_GRADIENT, uses, *arrays)
    else:
        tensors = [torch.from_numpy(rows) for rows in arrays]
    return [_pool(bag.mode, lookup, rows, *given)
            for bag, (lookup, _), rows, given in zip(bags, pulled, tensors, inputs)]


def _pool(mode: str, lookup: Lookup, rows: torch.Tensor, keys: torch.Tensor, offsets: Optional[torch.Tensor] = None,
          weights: Optional[torch.Tensor] = None) -> torch.Tensor:
    # sparse: the gradient has a row for each key. The servers add those of equal keys, faster than torch.
    return functional.embedding_bag(lookup.inverse.view(keys.shape), rows, offsets, mode=mode, sparse=True,
                                    per_sample_weights=weights)
