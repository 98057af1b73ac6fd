"""Embeddings on Starling's servers, for models of torch. Needs torch (Debian: python3-torch)."""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

import torch
import torch.nn.functional as functional

from .tables import SparseTable, Step

_MODES = ("mean", "sum")


class EmbeddingBag(torch.nn.Module):
    """torch.nn.EmbeddingBag whose rows are those of a SparseTable.

    The forward pass pulls the rows of the distinct keys of the batch. The backward pass leaves one
    gradient row for each; push() sends them, and the servers apply the table's optimizer. Under
    no_grad and after eval() the module only pulls, which creates no rows.

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
        if keys.dim() == 2 and offsets is None:
            offsets = torch.arange(0, keys.numel(), max(keys.shape[1], 1))[:keys.shape[0]]
            keys = keys.reshape(-1)
            per_sample_weights = None if per_sample_weights is None else per_sample_weights.reshape(-1)
        distinct, inverse = torch.unique(keys, return_inverse=True)
        rows = torch.from_numpy(self.table.pull(distinct.numpy()))
        if self.training and torch.is_grad_enabled():
            rows.requires_grad_()
            self._passes.append((distinct, rows))
        return functional.embedding_bag(inverse, rows, offsets, mode=self.mode, per_sample_weights=per_sample_weights)

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
