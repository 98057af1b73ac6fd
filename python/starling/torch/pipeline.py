"""Pulls of rows before the batch that needs them."""

from __future__ import annotations

import collections
from typing import Any, Callable, Deque, Iterable, Iterator, Mapping, Optional, Union

from ..specs import check_integer
from ..tables import Step
from .embedding import EmbeddingBag, EmbeddingBagCollection, arguments_of, look_up
from .optimizer import Optimizer

_AHEAD_MAX = 64
_END = object()
KeysOf = Callable[[Any], Mapping[Union[EmbeddingBag, EmbeddingBagCollection], Any]]


class Pipeline:
    """Iterates over the batches of a loader, and pulls their rows early. Each iteration is an epoch.

    ahead=0 is exact: optimizer.step() pushes this batch, pulls the rows of the next one in the same
    message, and loads the batch after it meanwhile. Values equal those without it, unless another
    worker or call writes the rows between step() and the next forward pass.
    ahead=n, for tables in ASP and SSP: pulls leave n batches earlier, so that they travel during the
    computation; rows lack the updates of the last n batches.

    A forward pass with the keys of keys_of uses these rows. Others pull as usual; so do evaluation
    and, if ahead is 0, a batch without a step() before it. An error of the loader or of keys_of is
    raised after the batches before it. An iteration that ends early leaves nothing behind. The loader
    is up to max(ahead, 2) batches ahead: give a random one its own torch.Generator.

    loader: an iterable of batches. keys_of: a function of a batch that returns the keys of each EmbeddingBag as
    its forward pass gets them; of a collection its features: {name: keys or (keys, ...)}, or a KeyedJaggedTensor.
    ahead: 0 to 64.
    Raises ValueError for an `ahead` that the tables do not allow. The optimizer's thread.
    """

    def __init__(self, loader: Iterable[Any], keys_of: KeysOf, optimizer: Optimizer, ahead: int = 0) -> None:
        check_integer("ahead", ahead, 0, _AHEAD_MAX)
        for part in optimizer._parts:
            if ahead and isinstance(part, EmbeddingBag) and part.table.consistency.mode == "bsp":
                raise ValueError(f"ahead: {ahead}, and table {part.table.name} is BSP, whose pulls see all earlier "
                                 "pushes; accepted: 0, or tables in ASP or SSP")
        self._loader = loader
        self._keys_of = keys_of
        self._optimizer = optimizer
        self._ahead = ahead

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        epoch = _Epoch(iter(self._loader), self._keys_of, self._optimizer, self._ahead)
        self._optimizer._run = epoch.run
        current: Optional[_Batch] = None
        try:
            while (current := epoch.next()) is not None:
                current.hand_over()
                yield current.batch
                current.forget()
        finally:
            if self._optimizer._run == epoch.run:
                self._optimizer._run = None
            if current is not None:
                current.forget()


class _Batch:
    """A batch of the loader, and the rows of its keys if they are pulled early."""

    def __init__(self, batch: Any, keys: Mapping[Any, Any]) -> None:
        self.batch = batch
        self.is_pulled = False
        self.step: Optional[Step] = None  # the pull to wait for, if ahead > 0
        if not isinstance(keys, Mapping):
            raise TypeError(f"keys_of: returned {type(keys).__name__}; accepted: a dict of EmbeddingBag to keys, or of "
                            "EmbeddingBagCollection to features")
        features = []
        for part, each in keys.items():
            if isinstance(part, EmbeddingBag):
                features.append((part, arguments_of(f"keys_of: table {part.table.name}", each)))
            elif isinstance(part, EmbeddingBagCollection):
                features += part._arguments_of("keys_of", each)
            else:
                raise TypeError(f"keys_of: a key {part!r}; accepted: EmbeddingBag, EmbeddingBagCollection")
        self.bags = [bag for bag, _ in features]
        self.lookups, self.requests = look_up([(bag, given[0]) for bag, given in features])

    def pull(self, step: Step) -> None:
        for request in self.requests:
            request.pull(step)

    def hand_over(self) -> None:
        """Waits for the rows and gives them to the bags."""
        if self.step is not None:
            self.step.wait()
        self.forget()
        if self.is_pulled:
            for bag, lookup in zip(self.bags, self.lookups):
                bag._prefetched.append(lookup)

    def forget(self) -> None:
        for bag in self.bags:
            bag._prefetched = []


class _Epoch:
    """One iteration of a Pipeline: the batches that are loaded, and not yielded yet."""

    def __init__(self, batches: Iterator[Any], keys_of: KeysOf, optimizer: Optimizer, ahead: int) -> None:
        self._batches = batches
        self._keys_of = keys_of
        self._optimizer = optimizer
        self._ahead = ahead
        self._loaded: Deque[_Batch] = collections.deque()
        self._error: Optional[Exception] = None

    def next(self) -> Optional[_Batch]:
        """Returns the next batch, or None at the end, after loading as many as shall follow it."""
        for _ in range(max(self._ahead, 1) + 1 - len(self._loaded)):
            self._load()
        if self._loaded:
            return self._loaded.popleft()
        if self._error is not None:
            raise self._error
        return None

    def _load(self) -> None:
        try:
            batch = next(self._batches, _END)
            if batch is _END:
                self._batches = iter(())
                return
            loaded = _Batch(batch, self._keys_of(batch))
            if self._ahead:
                loaded.step = self._optimizer._client.step()
                loaded.pull(loaded.step)
                loaded.step.submit()
                loaded.is_pulled = True
        except Exception as error:  # of user code, mostly: its turn comes after the batches before it
            self._batches, self._error = iter(()), error
        else:
            self._loaded.append(loaded)

    def run(self, step: Step) -> None:
        """If ahead is 0, adds the pull of the next batch to the optimizer's step, and runs it."""
        following = self._loaded[0] if self._loaded and not self._ahead else None
        if following is None or not following.requests:
            return  # Optimizer.step() runs it
        following.is_pulled = False  # until the step has succeeded
        following.pull(step)
        step.submit()
        if len(self._loaded) == 1:
            self._load()  # while the servers work
        step.wait()
        following.is_pulled = True
