"""Embeddings whose rows are those of sparse tables."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy
import torch
import torch.nn.functional as functional

from ..client import Client
from ..keys import unique
from ..specs import check_integer
from ..tables import SparseTable, Step
from .dense import DTYPES, check_finite, client_of
from .jagged import JaggedTensor, is_jagged, result_types, split

_MODES = ("mean", "sum")
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_NEEDS_GRADIENT = torch.empty(0, requires_grad=True)


class Lookup(NamedTuple):
    """Keys of a feature in a forward pass: request.distinct[inverse] is keys."""

    keys: torch.Tensor
    inverse: torch.Tensor
    request: Request


class Request:
    """The distinct keys of all features of a table in a forward pass, which are one pull."""

    def __init__(self, table: SparseTable, distinct: Any) -> None:
        self.table = table
        self.distinct = distinct
        self.rows: Any = None

    def pull(self, step: Step) -> None:
        self.rows = step.pull(self.table, self.distinct)


def look_up(features: Sequence[Tuple[EmbeddingBag, torch.Tensor]]) -> Tuple[List[Lookup], List[Request]]:
    """Returns a Lookup for each feature, and a Request for each table. features: a bag and its keys."""
    by_table: Dict[str, List[int]] = {}
    for index, (bag, _) in enumerate(features):
        by_table.setdefault(bag.table.name, []).append(index)
    lookups: Dict[int, Lookup] = {}
    requests = []
    for indices in by_table.values():
        parts = [features[index][1].reshape(-1).long().numpy() for index in indices]
        keys = numpy.concatenate(parts)  # a copy: the caller may use the memory of a batch again
        distinct, inverse, _ = unique(keys)
        request, begin = Request(features[indices[0]][0].table, distinct), 0
        for index, part in zip(indices, parts):
            end = begin + len(part)
            lookups[index] = Lookup(torch.from_numpy(keys[begin:end]), torch.from_numpy(inverse[begin:end]), request)
            begin = end
        requests.append(request)
    return [lookups[index] for index in range(len(features))], requests


def arguments_of(name: str, given: Any) -> Tuple[Any, ...]:
    """Returns the arguments of EmbeddingBag.forward from those of a feature. A tensor is the keys, also if it
    has several rows: it is never unpacked."""
    arguments = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    if not 1 <= len(arguments) <= 3 or not all(isinstance(each, torch.Tensor) or (at > 0 and each is None)
                                               for at, each in enumerate(arguments)):
        kinds = ", ".join(type(each).__name__ for each in arguments[:4])
        raise TypeError(f"{name}: {type(given).__name__} of {kinds or 'nothing'}; accepted: keys, (keys,), (keys, offsets) "
                        "or (keys, offsets, per_sample_weights), all tensors")
    if arguments[0].dtype not in _INTEGERS:
        raise TypeError(f"{name}: keys of {arguments[0].dtype}; accepted: integers; convert with .long()")
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

    table: as Client.sparse returns it; several bags may share one. mode: "mean" or "sum".
    padding_idx: the key that fills up bags, such as 0 or -1: as in torch it adds nothing to sum and mean, and
    gets no gradient. dtype: of the pooled rows, which are added in float32: torch.float32, torch.bfloat16 or
    torch.float16. One thread at a time.
    """

    def __init__(self, table: SparseTable, mode: str = "mean", padding_idx: Optional[int] = None, *,
                 dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        if not isinstance(table, SparseTable):
            raise TypeError(f"table: {table!r}; accepted: a table that Client.sparse returned")
        if mode not in _MODES:
            raise ValueError(f"mode: {mode!r}; accepted: 'mean', 'sum'")
        if padding_idx is not None:
            check_integer("padding_idx", padding_idx, -2**63, 2**63 - 1)
        if dtype not in DTYPES:
            raise ValueError(f"dtype: {dtype}; accepted: {', '.join(map(str, DTYPES))}")
        self.table = table
        self.dtype = dtype
        self.mode = mode
        self.padding_idx = padding_idx
        self._grads: List[Tuple[torch.Tensor, torch.Tensor]] = []  # keys and gradients, until the push
        self._pushes = 0  # so far; a backward pass belongs to the push after its forward pass
        self._prefetched: List[Lookup] = []  # whose rows a Pipeline has pulled

    def forward(self, keys: torch.Tensor, offsets: Optional[torch.Tensor] = None,
                per_sample_weights: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Returns (bags, dim) of the module's dtype.

        keys: integers (n,) with offsets (bags,), the first key of each bag; or (bags, length) without.
        per_sample_weights: float32 of the shape of keys, with mode "sum". Raises what the table's pull
        raises, and what torch.nn.functional.embedding_bag raises.
        """
        return _forward(self.table.client, [(self, arguments_of(self.table.name, (keys, offsets, per_sample_weights)))])[0]

    def _find_prefetched(self, keys: torch.Tensor) -> Optional[Lookup]:
        """Returns the lookup of these keys whose rows were prefetched, or None."""
        if self._prefetched and self.training and torch.is_grad_enabled():
            flat = keys.reshape(-1).long()
            return next((lookup for lookup in self._prefetched if torch.equal(lookup.keys, flat)), None)
        return None

    def _pool(self, lookup: Lookup, rows: torch.Tensor, keys: torch.Tensor, offsets: Optional[torch.Tensor] = None,
              weights: Optional[torch.Tensor] = None) -> torch.Tensor:
        padding = lookup.inverse[lookup.keys == self.padding_idx][:1] if self.padding_idx is not None else ()
        # sparse: the gradient has a row for each key. The servers add those of equal keys, faster than torch.
        pooled = functional.embedding_bag(lookup.inverse.view(keys.shape), rows, offsets, mode=self.mode, sparse=True,
                                          per_sample_weights=weights, padding_idx=int(padding[0]) if len(padding) else None)
        return pooled.to(self.dtype)

    def _add(self, keys: torch.Tensor, grad: torch.Tensor, pushes: int) -> None:
        """Keeps the gradient of a backward pass, which is sparse: a row for each key but padding."""
        if pushes != self._pushes:
            raise RuntimeError(f"backward, table {self.table.name}: the gradients since its forward pass were pushed "
                               "already; accepted: backward before step() or push(), else forward again")
        self._grads.append((keys if self.padding_idx is None else keys[keys != self.padding_idx], grad._values()))

    def _check_finite(self) -> None:
        for _, grads in self._grads:
            check_finite(f"table {self.table.name}", grads)

    def _take(self) -> List[Tuple[torch.Tensor, torch.Tensor]]:
        """Ends the batch: returns the keys and gradients of its backward passes."""
        taken, self._grads = self._grads, []
        self._pushes += 1
        self._prefetched = []
        return taken

    def push(self, *, step: Optional[Step] = None) -> None:
        """Pushes the gradients of all backward passes since the last push, as one push of the table.

        With a step it becomes a part of that step. A later backward pass of an earlier forward pass
        raises RuntimeError. CorruptError: a server has lost its values.
        """
        push_bags([self], step)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients."""
        self._grads.clear()

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.table.name}, dim={self.table.dim}, mode={self.mode}{padding}"


class EmbeddingBagCollection(torch.nn.Module):
    """An EmbeddingBag for each feature, by name. Their rows travel together: one message per shard and pass.

    Features share a table if they have the same bag, or bags on the same table, such as "sum" for an item and
    "mean" for a history of items: a key of several features is pulled once, and the sum of its gradients is
    pushed once.

    bags: at least one; all tables are of one client. Bags of one feature of a KeyedJaggedTensor are named
    "feature@table", as in TorchRec. is_weighted: whether its weights count; then all bags are "sum", as in torch.
    One thread at a time.
    """

    def __init__(self, bags: Mapping[str, EmbeddingBag], is_weighted: bool = False) -> None:
        super().__init__()
        if not isinstance(bags, Mapping) or not all(isinstance(bag, EmbeddingBag) for bag in bags.values()):
            raise TypeError(f"bags: {type(bags).__name__}; accepted: a dict of name to EmbeddingBag")
        self._client = client_of("bags", [bag.table for bag in bags.values()])
        means = [name for name, bag in bags.items() if bag.mode != "sum"]
        if is_weighted and means:
            raise ValueError(f"is_weighted: the bag {means[0]!r} is 'mean'; accepted with weights: 'sum', as in torch")
        self.bags = dict(bags)
        self._is_weighted = is_weighted
        self._configs: List[Any] = []
        self._modules_of_bags = torch.nn.ModuleList(self.bags.values())  # a ModuleDict refuses names such as "items"

    def forward(self, features: Any) -> Any:
        """Returns (bags, dim) for each feature, of the dtype of its bag: a dict for a dict, and for a
        KeyedJaggedTensor a KeyedTensor with the columns of all bags, (batch, sum of their dims).

        features: the arguments of EmbeddingBag.forward for each name: keys, (keys,), (keys, offsets) or
        (keys, offsets, per_sample_weights); or a KeyedJaggedTensor with the features of all bags. An empty bag
        gives zeros. Raises KeyError for an unknown name or a feature that is missing, TypeError or ValueError for
        other arguments.
        """
        pooled = _forward(self._client, self._arguments_of("features", features))
        if isinstance(features, Mapping):
            return dict(zip(features, pooled))
        dims = [bag.table.dim for bag in self.bags.values()]
        return result_types(features)[0](keys=list(self.bags), length_per_key=dims, values=torch.cat(pooled, 1))

    def is_weighted(self) -> bool:
        """Returns whether the weights of a KeyedJaggedTensor count."""
        return self._is_weighted

    def embedding_bag_configs(self) -> List[Any]:
        """Returns the configurations of the collection that replace() replaced by this one; else none."""
        return self._configs

    def _arguments_of(self, what: str, features: Any) -> List[Tuple[EmbeddingBag, Tuple[Any, ...]]]:
        """Returns the bag of each feature and the arguments of its forward pass, after checking them."""
        if isinstance(features, Mapping):
            unknown = [name for name in features if name not in self.bags]
            if unknown:
                raise KeyError(f"{what}: {unknown[0]!r}; accepted: {', '.join(map(repr, self.bags))}")
            return [(self.bags[name], arguments_of(name, given)) for name, given in features.items()]
        if not is_jagged(features):
            raise TypeError(f"{what}: {type(features).__name__}; accepted: a dict of name to keys or (keys, ...), or a "
                            "KeyedJaggedTensor")
        return self._arguments_of_parts(what, self._parts_of(what, features))

    def _arguments_of_parts(self, what: str, parts: List[Tuple[str, JaggedTensor]]) -> List[Tuple[EmbeddingBag, Tuple[Any, ...]]]:
        if self._is_weighted and parts[0][1].weights_or_none() is None:
            raise ValueError(f"{what}: no weights; accepted: weights, because the collection is_weighted")
        return [(self.bags[name], arguments_of(name, (part.values(), part.offsets()[:-1].long(),
                                                      part.weights().float() if self._is_weighted else None)))
                for name, part in parts]

    def _parts_of(self, what: str, features: Any) -> List[Tuple[str, JaggedTensor]]:
        """Returns the name of each bag and the part of its feature of a KeyedJaggedTensor."""
        parts = split(what, features)
        found = [(name, parts.get(name, parts.get(name.rpartition("@")[0]))) for name in self.bags]
        missing = [name for name, part in found if part is None]
        if missing:
            raise KeyError(f"{what}: none for {missing[0]!r} among {', '.join(map(repr, parts))}; accepted: one for each bag")
        return found  # type: ignore

    def push(self, *, step: Optional[Step] = None) -> None:
        """Pushes the gradients of all bags, in one step: the caller's, or one of its own."""
        if step is None:
            with self._client.step() as own:
                self.push(step=own)
        else:
            push_bags(self.bags.values(), step)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients of all bags."""
        for bag in self.bags.values():
            bag.zero_grad()

    def extra_repr(self) -> str:
        return ", ".join(map(repr, self.bags))


class EmbeddingCollection(EmbeddingBagCollection):
    """An EmbeddingBagCollection that pools nothing: it returns the row of each key of a KeyedJaggedTensor.

    bags: at least one; their tables have one dim. need_indices: whether the results have the keys, as weights.
    One thread at a time.
    """

    def __init__(self, bags: Mapping[str, EmbeddingBag], need_indices: bool = False) -> None:
        super().__init__(bags)
        dims = {bag.table.dim: name for name, bag in bags.items()}
        if len(dims) > 1:
            raise ValueError(f"bags: tables of {' and '.join(map(str, dims))} columns, of {' and '.join(dims.values())}; accepted: "
                             "one dim for all")
        self._need_indices = need_indices

    def forward(self, features: Any) -> Dict[str, Any]:
        """Returns a JaggedTensor for each bag: values (n, dim), for the n keys of its feature, and their lengths.

        features: a KeyedJaggedTensor with the features of all bags. Raises KeyError for a feature that is missing,
        TypeError or ValueError for other arguments.
        """
        parts = self._parts_of("features", features)
        rows = _forward(self._client, self._arguments_of_parts("features", parts))
        jagged = result_types(features)[1]
        return {name: jagged(values=values, lengths=part.lengths(), weights=part.values() if self._need_indices else None)
                for values, (name, part) in zip(rows, parts)}

    def need_indices(self) -> bool:
        """Returns whether the results have the keys, as weights."""
        return self._need_indices

    def embedding_dim(self) -> int:
        """Returns the columns of each row."""
        return next(iter(self.bags.values())).table.dim

    def embedding_configs(self) -> List[Any]:
        """Returns the configurations of the collection that replace() replaced by this one; else none."""
        return self._configs

    def _arguments_of(self, what: str, features: Any) -> List[Tuple[EmbeddingBag, Tuple[Any, ...]]]:
        return self._arguments_of_parts(what, self._parts_of(what, features))

    def _arguments_of_parts(self, what: str, parts: List[Tuple[str, JaggedTensor]]) -> List[Tuple[EmbeddingBag, Tuple[Any, ...]]]:
        return [(self.bags[name], arguments_of(name, part.values().reshape(-1, 1))) for name, part in parts]


def _forward(client: Client, features: List[Tuple[EmbeddingBag, Tuple[Any, ...]]]) -> List[torch.Tensor]:
    """The forward pass of several features, as one step. features: a bag and the arguments of its forward pass."""
    client._check_values()
    prefetched = [bag._find_prefetched(given[0]) for bag, given in features]
    others, requests = look_up([(bag, given[0]) for (bag, given), lookup in zip(features, prefetched) if lookup is None])
    with client.step() as step:
        for request in requests:
            request.pull(step)
    pulled = iter(others)
    lookups = [next(pulled) if lookup is None else lookup for lookup in prefetched]
    arrays = [lookup.request.rows for lookup in lookups]
    if torch.is_grad_enabled() and any(bag.training for bag, _ in features):
        uses = [(bag, bag._pushes, lookup.keys) for (bag, _), lookup in zip(features, lookups)]
        tensors = _Rows.apply(_NEEDS_GRADIENT, uses, *arrays)
    else:
        tensors = [torch.from_numpy(rows) for rows in arrays]
    return [bag._pool(lookup, rows, *given) for (bag, given), lookup, rows in zip(features, lookups, tensors)]


def push_bags(bags: Iterable[EmbeddingBag], step: Optional[Step]) -> None:
    """Pushes the gradients of bags, as one push of each table."""
    by_table: Dict[str, Tuple[SparseTable, List[Tuple[torch.Tensor, torch.Tensor]]]] = {}
    for bag in bags:
        bag.table.client._check_values()
        by_table.setdefault(bag.table.name, (bag.table, []))[1].extend(bag._take())
    for table, taken in by_table.values():
        if len(taken) > 1:
            taken = [(torch.cat([keys for keys, _ in taken]), torch.cat([grads for _, grads in taken]))]
        for keys, grads in taken:
            table.push(keys.numpy(), grads.numpy(), step=step)
