"""Embeddings whose rows are those of sparse tables."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as functional

from ..client import Client
from ..tables import SparseTable, Step

_MODES = ("mean", "sum")


class _Batch(NamedTuple):
    """What a forward pass looks up: bags of the rows of distinct keys."""

    distinct: torch.Tensor
    inverse: torch.Tensor
    offsets: Optional[torch.Tensor]
    weights: Optional[torch.Tensor]


def _batch_of(keys: torch.Tensor, offsets: Optional[torch.Tensor] = None,
              weights: Optional[torch.Tensor] = None) -> _Batch:
    if keys.dim() == 2 and offsets is None:
        offsets = torch.arange(0, keys.numel(), max(keys.shape[1], 1))[:keys.shape[0]]
        keys = keys.reshape(-1)
        weights = None if weights is None else weights.reshape(-1)
    distinct, inverse = torch.unique(keys, return_inverse=True)
    return _Batch(distinct, inverse, offsets, weights)


class EmbeddingBag(torch.nn.Module):
    """torch.nn.EmbeddingBag whose rows are those of a SparseTable.

    The forward pass pulls the rows of the distinct keys of the batch. The backward pass leaves one
    gradient row for each; push() sends them, and the servers apply the table's optimizer. Under
    no_grad and after eval() the module only pulls.

    table: as Client.sparse returns it. mode: "mean" or "sum". One thread at a time.
    """

    def __init__(self, table: SparseTable, mode: str = "mean") -> None:
        super().__init__()
        if mode not in _MODES:
            raise ValueError(f"mode: {mode!r}; accepted: 'mean', 'sum'")
        self.table = table
        self.mode = mode
        self._passes: List[Tuple[torch.Tensor, torch.Tensor]] = []  # keys and rows, until the push

    def forward(self, keys: torch.Tensor, offsets: Optional[torch.Tensor] = None,
                per_sample_weights: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Returns float32 (bags, dim).

        keys: integers (n,) with offsets (bags,), the first key of each bag; or (bags, length) without.
        per_sample_weights: float32 of the shape of keys, with mode "sum". Raises what the table's pull
        raises, and what torch.nn.functional.embedding_bag raises.
        """
        batch = _batch_of(keys, offsets, per_sample_weights)
        return self._pool(batch, self.table.pull(batch.distinct.numpy()))

    def _pool(self, batch: _Batch, pulled: Any) -> torch.Tensor:
        rows: torch.Tensor = torch.from_numpy(pulled)
        if self.training and torch.is_grad_enabled():
            rows.requires_grad_()
            self._passes.append((batch.distinct, rows))
        return functional.embedding_bag(batch.inverse, rows, batch.offsets, mode=self.mode,
                                        per_sample_weights=batch.weights)

    def push(self, *, step: Optional[Step] = None) -> None:
        """Pushes the gradients of all backward passes since the last push, as one push of the table.

        With a step it becomes a part of that step. Forward passes without a backward pass are
        forgotten.
        """
        passes = [(keys, rows.grad) for keys, rows in self._passes if rows.grad is not None]
        self._passes.clear()
        if passes:
            self.table.push(torch.cat([keys for keys, _ in passes]), torch.cat([grads for _, grads in passes]),
                            step=step)

    def extra_repr(self) -> str:
        return f"{self.table.name}, dim={self.table.dim}, mode={self.mode}"


class EmbeddingBagCollection(torch.nn.Module):
    """Several EmbeddingBags by name, whose rows travel together: one message per shard and pass.

    bags: at least one, each with a table of its own; all tables are of one client. One thread at a
    time.
    """

    def __init__(self, bags: Mapping[str, EmbeddingBag]) -> None:
        super().__init__()
        tables = {bag.table.name for bag in bags.values()}
        clients = {bag.table.client for bag in bags.values()}
        if len(tables) != len(bags) or len(clients) != 1:
            raise ValueError(f"bags: {len(bags)} bags on {len(tables)} tables of {len(clients)} clients; "
                             "accepted: at least one bag, as many tables, one client")
        self._client: Client = clients.pop()
        self.bags = torch.nn.ModuleDict(bags)

    def forward(self, features: Mapping[str, Tuple[Any, ...]]) -> Dict[str, torch.Tensor]:
        """Returns float32 (bags, dim) for each feature.

        features: the arguments of EmbeddingBag.forward for each name: (keys,), (keys, offsets) or
        (keys, offsets, per_sample_weights). Raises KeyError for an unknown name.
        """
        batches = [(self.bags[name], _batch_of(*given)) for name, given in features.items()]
        with self._client.step() as step:
            pulled = [step.pull(bag.table, batch.distinct.numpy()) for bag, batch in batches]
        return {name: bag._pool(batch, rows) for name, (bag, batch), rows in zip(features, batches, pulled)}

    def push(self, *, step: Optional[Step] = None) -> None:
        """Pushes the gradients of all bags, in one step: the caller's, or one of its own."""
        if step is None:
            with self._client.step() as own:
                self.push(step=own)
        else:
            for bag in self.bags.values():
                bag.push(step=step)
