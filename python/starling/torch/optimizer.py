"""The optimizer of a model on Starling's servers."""

from __future__ import annotations

import math
import threading
from typing import Any, Callable, Dict, Iterable, List, Optional, Union

import torch

from ..tables import Step
from .dense import DenseParameters, client_of
from .embedding import EmbeddingBag, EmbeddingBagCollection, push_bags

Part = Union[EmbeddingBag, DenseParameters]


class Optimizer(torch.optim.Optimizer):
    """A torch.optim.Optimizer whose updates happen on the servers.

    step() pushes the gradients of all parts, ends the iteration of a client that has a task, and pulls
    the dense values: one message per shard. The servers apply the optimizers of the tables.

    param_groups has a group for each table, with its name and learning rate `lr`, which schedulers may
    change; with 0 nothing is pushed. Bags on one table, also of several collections, are one push.
    Gradients of several backward passes are pushed together: those of embeddings until step() or
    zero_grad(), those of dense parameters until zero_grad().

    parts: an iterable of EmbeddingBag, EmbeddingBagCollection, EmbeddingCollection and DenseParameters. check_finite: step()
    raises FloatingPointError for a gradient that is NaN or infinite, before anything is sent.
    Raises ValueError or TypeError for other parts. Only the thread that made it may use it.
    """

    def __init__(self, parts: Iterable[Union[Part, EmbeddingBagCollection]], check_finite: bool = False) -> None:
        self._parts = _flat(parts)
        self._client = client_of("parts", [part.table for part in self._parts])
        self._tables = _by_table(self._parts)
        self._check_finite = check_finite
        self._thread = threading.get_ident()
        self._run: Optional[Callable[[Step], None]] = None  # runs a step together with a Pipeline
        super().__init__([_group(parts[0]) for parts in self._tables], {})

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Raises TypeError: the parts are given to Optimizer()."""
        if len(self.param_groups) == len(self._tables):
            raise TypeError("add_param_group: an Optimizer has a group for each table; give all parts to Optimizer()")
        super().add_param_group(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients of all parts. set_to_none: of dense parameters, as in torch."""
        super().zero_grad(set_to_none)
        for part in self._parts:
            if isinstance(part, EmbeddingBag):
                part.zero_grad()

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Pushes the gradients, ends the iteration, pulls the dense values, and waits for that.

        closure: computes the loss again, which is returned. Raises a StarlingError: after it the
        gradients of embeddings are gone, and may or may not have been applied. FloatingPointError,
        ValueError, for a bad learning rate, and CorruptError, for a server that was restarted without its
        values, come before anything is sent.
        """
        if threading.get_ident() != self._thread:
            raise RuntimeError("step: only the thread that made this Optimizer may use it; make one in this thread")
        self._client._check_values()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        rates = [_rate(parts[0], group) for parts, group in zip(self._tables, self.param_groups)]
        if self._check_finite:
            for part in self._parts:
                part._check_finite()
        with self._client.step() as step:
            self._add(step, rates)
            if self._run is not None:
                self._run(step)
        return loss

    def _add(self, step: Step, rates: List[float]) -> None:
        current = 1.0
        for parts, rate in zip(self._tables, rates):
            if rate not in (0, current):
                step.set_rate(rate)
                current = rate
            bags = [part for part in parts if isinstance(part, EmbeddingBag)]
            if rate == 0:
                for bag in bags:
                    bag._take()
            elif bags:
                push_bags(bags, step)
            else:
                parts[0].push(step=step)
        if self._client.task >= 0:
            step.advance()
        for part in self._parts:
            if isinstance(part, DenseParameters):
                part.pull(step=step)


def _flat(parts: Iterable[Union[Part, EmbeddingBagCollection]]) -> List[Part]:
    """Returns the parts with the bags of collections, each once, after checking them."""
    flat: List[Part] = []
    for part in parts:
        flat += part.bags.values() if isinstance(part, EmbeddingBagCollection) else [part]
    for part in flat:
        if not isinstance(part, (EmbeddingBag, DenseParameters)):
            raise TypeError(f"parts: {part!r}; accepted: EmbeddingBag, EmbeddingBagCollection, DenseParameters")
        if _table_rate(part) <= 0:
            raise ValueError(f"parts: table {part.table.name} has the optimizer {part.table.optimizer}; "
                             "accepted: optimizers with a learning rate above 0")
    return list(dict.fromkeys(flat))


def _by_table(parts: List[Part]) -> List[List[Part]]:
    """Returns the parts of each table: bags, or one DenseParameters."""
    tables: Dict[str, List[Part]] = {}
    for part in parts:
        tables.setdefault(part.table.name, []).append(part)
        if isinstance(part, DenseParameters) and len(tables[part.table.name]) > 1:
            raise ValueError(f"parts: two DenseParameters on table {part.table.name}; accepted: one for each table")
    return list(tables.values())


def _group(part: Part) -> Dict[str, Any]:
    # torch wants at least one parameter in a group.
    parameters = part.parameters() if isinstance(part, DenseParameters) else torch.empty(0, requires_grad=True)
    return {"params": parameters, "lr": _table_rate(part), "name": part.table.name}


def _table_rate(part: Part) -> float:
    """Returns the learning rate that the table was opened with; 0: its optimizer has none."""
    return getattr(part.table.optimizer, "lr", 0.0)


def _rate(part: Part, group: Dict[str, Any]) -> float:
    rate: float = group["lr"] / _table_rate(part)
    if not 0 <= rate < math.inf:
        raise ValueError(f"lr of table {part.table.name}: {group['lr']}; accepted: a finite number, 0 or more")
    return rate
