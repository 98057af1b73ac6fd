"""Features and results of collections in the form that TorchRec gives them. torchrec itself is not needed: a
KeyedJaggedTensor is known by its methods."""

from __future__ import annotations

import sys
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

import torch

_METHODS = ("keys", "values", "lengths", "weights_or_none")


class KeyedTensor:
    """What an EmbeddingBagCollection returns for a KeyedJaggedTensor, with the methods of TorchRec's class.

    keys: a name for each group of columns. length_per_key: columns of each. values: (batch, sum of length_per_key).
    """

    def __init__(self, keys: Sequence[str], length_per_key: Sequence[int], values: torch.Tensor) -> None:
        self._keys = list(keys)
        self._lengths = list(length_per_key)
        self._values = values

    def keys(self) -> List[str]:
        """Returns the names, in the order of their columns."""
        return self._keys

    def values(self) -> torch.Tensor:
        """Returns the columns of all names, (batch, sum of length_per_key())."""
        return self._values

    def key_dim(self) -> int:
        """Returns 1, the dimension in which the names follow each other."""
        return 1

    def length_per_key(self) -> List[int]:
        """Returns how many columns each name has."""
        return self._lengths

    def offset_per_key(self) -> List[int]:
        """Returns the first column of each name, then the number of all columns."""
        return [sum(self._lengths[:count]) for count in range(len(self._lengths) + 1)]

    def to_dict(self) -> Dict[str, torch.Tensor]:
        """Returns the columns of each name: views (batch, its length)."""
        return dict(zip(self._keys, self._values.split(self._lengths, dim=1)))

    def __getitem__(self, key: str) -> torch.Tensor:
        return self.to_dict()[key]


class JaggedTensor:
    """Values whose number differs from row to row of a batch, with the methods of TorchRec's class.

    values: (n, ...). lengths: integers (batch,), how many values each row has. weights: (n,), or None.
    """

    def __init__(self, values: torch.Tensor, weights: Optional[torch.Tensor] = None, *, lengths: torch.Tensor) -> None:
        self._values = values
        self._weights = weights
        self._lengths = lengths

    def values(self) -> torch.Tensor:
        """Returns the values of all rows of the batch, one after the other: (n, ...)."""
        return self._values

    def lengths(self) -> torch.Tensor:
        """Returns how many values each row has: integers (batch,)."""
        return self._lengths

    def offsets(self) -> torch.Tensor:
        """Returns the first value of each row, then n: integers (batch + 1,) of the type of lengths()."""
        return torch.nn.functional.pad(self._lengths.cumsum(0), (1, 0)).to(self._lengths.dtype)

    def weights(self) -> torch.Tensor:
        """Returns the weights, (n,). Raises ValueError if there are none."""
        if self._weights is None:
            raise ValueError("weights: none; weights_or_none() returns None then")
        return self._weights

    def weights_or_none(self) -> Optional[torch.Tensor]:
        """Returns the weights, (n,), or None."""
        return self._weights


def is_jagged(features: Any) -> bool:
    """Returns whether the features have the methods of a KeyedJaggedTensor."""
    return all(callable(getattr(features, each, None)) for each in _METHODS)


def split(what: str, features: Any) -> Dict[str, JaggedTensor]:
    """Returns the part of each key of a KeyedJaggedTensor, after checking it. The parts are views.

    As in TorchRec, lengths has the batch of the first key, then that of the second one, and so on. Raises
    TypeError and ValueError, which begin with `what`.
    """
    if not is_jagged(features):
        raise TypeError(f"{what}: {type(features).__name__}; accepted: a KeyedJaggedTensor with "
                        f"{', '.join(f'{each}()' for each in _METHODS)}")
    if _ask(features, "variable_stride_per_key") or _ask(features, "inverse_indices_or_none") is not None:
        raise ValueError(f"{what}: variable_stride_per_key or inverse_indices; accepted: as many rows of the batch for each key")
    keys, weights = list(features.keys()), features.weights_or_none()
    tensors = {"values": features.values(), "lengths": features.lengths(), **({} if weights is None else {"weights": weights})}
    for name, each in tensors.items():
        if not isinstance(each, torch.Tensor) or each.device.type != "cpu" or each.dim() != 1:
            raise TypeError(f"{what}: {name} is {_kind_of(each)}; accepted: a tensor of one dimension in CPU memory")
    values, lengths = tensors["values"], tensors["lengths"]
    if lengths.dtype not in (torch.int64, torch.int32) or (lengths < 0).any() or \
            any(len(each) != lengths.sum() for name, each in tensors.items() if name != "lengths"):
        sizes = ", ".join(f"{len(each)} {name}" for name, each in tensors.items())
        raise ValueError(f"{what}: {sizes}, with the sum {lengths.sum()} of the lengths, {lengths.dtype}; accepted: lengths "
                         "of int64 or int32, 0 or more, whose sum is the number of values and of weights")
    if not keys or len(lengths) % len(keys):
        raise ValueError(f"{what}: {len(lengths)} lengths for {len(keys)} keys; accepted: as many for each key, at least one key")
    of_keys = lengths.reshape(len(keys), -1)
    counts = of_keys.sum(1).tolist()
    weights_of_keys: Iterable[Any] = [None] * len(keys) if weights is None else weights.split(counts)
    return {key: JaggedTensor(part, weight, lengths=length)
            for key, part, weight, length in zip(keys, values.split(counts), weights_of_keys, of_keys)}


def result_types(features: Any) -> Tuple[Any, Any]:
    """Returns the classes of results, KeyedTensor and JaggedTensor: TorchRec's own for its own KeyedJaggedTensor, since
    its functions and those of its users check for them."""
    name = type(features).__module__
    module = sys.modules[name if name.startswith("torchrec.") else __name__]
    return module.KeyedTensor, module.JaggedTensor


def _ask(features: Any, method: str) -> Any:
    """Returns the result of a method that not all KeyedJaggedTensors have; None without it."""
    found = getattr(features, method, None)
    return found() if callable(found) else None


def _kind_of(each: Any) -> str:
    return f"{tuple(each.shape)} on {each.device}" if isinstance(each, torch.Tensor) else type(each).__name__
