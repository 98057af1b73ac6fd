"""Optimizers, initializers and consistency modes of tables: immutable, compared by value.

The servers apply the optimizer to the gradients of a push. Members and defaults are those of the C
API (sl_optimizer_defaults), where docs/training.md and the files ps/optimizer/opt_*.c give formulas.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import KW_ONLY, asdict, dataclass, field, fields
from typing import Any, ClassVar, Dict, List, Mapping, Optional, Tuple, Type, Union

import numpy

from . import _native
from .errors import InvalidError

# Members that are integers, and their ranges. A negative seed stands for the unsigned one with the same bits.
_INTEGERS = {"decay_steps": (1, 2**32 - 1), "seed": (-2**63, 2**64 - 1)}


def check_integer(name: str, value: Any, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, numpy.integer)):
        raise TypeError(f"{name}: {value!r}; accepted: an integer from {least} to {most}")
    if not least <= value <= most:
        raise ValueError(f"{name}: {value}; accepted: {least} to {most}")


PRECISIONS = ("f32", "f16", "bf16", "int8")
Encoding = Union[str, Tuple[str, str]]


def precision_of(name: str, value: Any, count: int = len(PRECISIONS)) -> int:
    """Returns the number of a precision, one of the first `count`."""
    if value not in PRECISIONS[:count]:
        raise ValueError(f"{name}: {value!r}; accepted: {', '.join(map(repr, PRECISIONS[:count]))}")
    return PRECISIONS.index(value)


def encoding_of(value: Encoding) -> Tuple[int, int]:
    """Returns the numbers of the precisions of pulls and of pushes."""
    pair = value if isinstance(value, (tuple, list)) else (value, value)
    if len(pair) != 2:
        raise ValueError(f"encoding: {value!r}; accepted: one precision, or (of pulls, of pushes)")
    return precision_of("encoding", pair[0]), precision_of("encoding", pair[1])


@dataclass(frozen=True)
class _Spec:
    _kind: ClassVar[int]  # in the C API

    def __init_subclass__(cls, kind: int = 0) -> None:
        cls._kind = kind
        setattr(cls, "__repr__", _Spec.__repr__)  # and not that of dataclass

    def __repr__(self) -> str:
        """Without members of all optimizers that have their default."""
        shown = (member.name for member in sorted(fields(self), key=lambda member: bool(member.kw_only))
                 if not member.kw_only or getattr(self, member.name) != member.default)
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    def __post_init__(self) -> None:
        """Checks the members by the ranges of the C API. Raises TypeError or ValueError."""
        name, values = type(self).__name__, self._spec()[1]
        for member, value in values.items():
            if member in _INTEGERS:
                check_integer(f"{name}: {member}", value, *_INTEGERS[member])
            elif not hasattr(value, "__float__") and not hasattr(value, "__index__"):
                raise TypeError(f"{name}: {member}: {value!r}; accepted: a number")
            elif isinstance(self, Initializer) and not math.isfinite(value):
                raise InvalidError(f"{name}: {member} is {value}; accepted is finite")
        try:
            _native.check_spec(*((0, self._kind) if isinstance(self, Initializer) else (self._kind, 0)), values)
        except InvalidError as error:
            text = re.sub(r".*: |optimizer\.|initializer\.|update\.", "", str(error)).replace("stddev", "std")
            given = "decay" if getattr(self, "decay", None) else "weight_decay"  # the library knows the kind alone
            text = re.sub(r"decay is .* is 0 \(none\)", f"{given} is {getattr(self, given, None)!r}; "
                          f"accepted is {getattr(type(self), given, None)!r}", text)
            raise InvalidError(f"{name}: {text}") from None

    def _spec(self) -> Tuple[int, Dict[str, float]]:
        return self._kind, asdict(self)


@dataclass(frozen=True)
class Optimizer(_Spec):
    """Base of the optimizers. All have these members, by keyword only, which are 0 or more:

    weight_decay, decay: "l2" adds weight_decay * w to the gradient, "decoupled" multiplies w by
    1 - lr * weight_decay before the update; None: "l2". AdamW and Lamb have their own decay, with None;
    Sum, FTRL and FTRLGroup accept no decay.
    clip_norm: a longer gradient of a row is scaled to this Euclidean norm; 0: no limit.
    value_bound: an update holds values in [-value_bound, value_bound]; 0: no limit.

    lr, the learning rate, is above 0 in all that have it.
    """

    _: KW_ONLY
    weight_decay: float = 0.0
    decay: Optional[str] = None
    clip_norm: float = 0.0
    value_bound: float = 0.0

    _decays_itself: ClassVar[bool] = False

    def _spec(self) -> Tuple[int, Dict[str, float]]:
        if self.decay not in (None, "l2", "decoupled"):
            raise ValueError(f"{type(self).__name__}: decay: {self.decay!r}; accepted: 'l2', 'decoupled', None")
        kind, values = super()._spec()
        is_l2 = self.decay == "l2" or (self.decay is None and self.weight_decay and not self._decays_itself)
        values["decay"] = 2 if self.decay == "decoupled" else 1 if is_l2 else 0
        if not values["decay"] and not self._decays_itself:
            del values["weight_decay"]  # not used: as the library has it
        return kind, values


@dataclass(frozen=True)
class Sum(Optimizer):
    """Adds: w += g."""


@dataclass(frozen=True)
class SGD(Optimizer, kind=1):
    """Stochastic gradient descent: w -= lr * g."""

    lr: float = 0.01


@dataclass(frozen=True)
class Momentum(Optimizer, kind=2):
    """SGD with momentum, from 0 to below 1."""

    lr: float = 0.01
    momentum: float = 0.9


@dataclass(frozen=True)
class Adagrad(Optimizer, kind=3):
    """a += g^2, w -= lr * g / (sqrt(a) + epsilon); a begins with initial_accumulator.

    epsilon, initial_accumulator: 0 or more, one of them above 0.
    """

    lr: float = 0.01
    epsilon: float = 1e-8
    initial_accumulator: float = 0.1


@dataclass(frozen=True)
class AdagradDecay(Optimizer, kind=4):
    """Adagrad whose accumulator decays by rho every decay_steps steps, to decay_baseline at least.

    rho: 0 to 1. decay_steps: 1 or more. decay_baseline: above 0. epsilon, initial_accumulator: as of Adagrad.
    """

    lr: float = 0.01
    rho: float = 0.9
    epsilon: float = 1e-8
    initial_accumulator: float = 0.1
    decay_steps: int = 100000
    decay_baseline: float = 0.1


@dataclass(frozen=True)
class RMSProp(Optimizer, kind=5):
    """RMSProp with momentum; epsilon is inside the root.

    momentum: 0 to below 1. rho: 0 to 1. epsilon: above 0.
    """

    lr: float = 0.001
    momentum: float = 0.0
    rho: float = 0.9
    epsilon: float = 1e-7


@dataclass(frozen=True)
class Adam(Optimizer, kind=6):
    """Adam. A row that a push does not name does not change.

    beta1, beta2: 0 to below 1. epsilon: above 0.
    """

    lr: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8


@dataclass(frozen=True)
class AdamW(Adam, kind=7):
    """Adam with decoupled weight decay. A row decays only when a push names it."""

    weight_decay: float = field(default=0.01, kw_only=True)
    _decays_itself: ClassVar[bool] = True


@dataclass(frozen=True)
class AdamAsync(Adam, kind=8):
    """Adam for asynchronous training: one bias correction for the table instead of one for a row."""


@dataclass(frozen=True)
class FTRL(Optimizer, kind=9):
    """FTRL-Proximal for each coordinate, or for whole rows with FTRLGroup.

    l1, l2, initial_accumulator: 0 or more. lr_power: at most 0.
    """

    lr: float = 0.05
    l1: float = 0.0
    l2: float = 0.0
    lr_power: float = -0.5
    initial_accumulator: float = 0.1


@dataclass(frozen=True)
class FTRLGroup(FTRL, kind=10):
    """FTRL-Proximal whose l1 sets whole rows to zero."""


@dataclass(frozen=True)
class RowwiseAdagrad(Adagrad, kind=11):
    """Adagrad with one accumulator for a row: the mean of g^2."""


@dataclass(frozen=True)
class RowwiseAdam(Adam, kind=12):
    """Adam with one second moment for a row: of the mean of g^2."""


@dataclass(frozen=True)
class Adadelta(Optimizer, kind=13):
    """Adadelta; lr scales its step.

    rho: 0 to 1. epsilon: above 0.
    """

    lr: float = 1.0
    rho: float = 0.9
    epsilon: float = 1e-6


@dataclass(frozen=True)
class Lion(Optimizer, kind=14):
    """Lion: steps of lr, with the sign of the momentum.

    beta1, beta2: 0 to below 1.
    """

    lr: float = 0.0001
    beta1: float = 0.9
    beta2: float = 0.99


@dataclass(frozen=True)
class Lamb(AdamW, kind=15):
    """AdamW whose step is proportional to the norm of the row."""

    epsilon: float = 1e-6


def optimizer_of(members: Dict[str, Any]) -> Optimizer:
    """Returns the optimizer of a table, from the members of its specification."""
    cls = next(kind for kind in _all_kinds(Optimizer) if kind._kind == members["optimizer"])
    values = {member.name: members[member.name] for member in fields(cls) if member.name != "decay"}
    values = {name: float(str(numpy.float32(value))) if isinstance(value, float) else value
              for name, value in values.items()}  # 0.1 as it was given, not as f32 has it
    decay = (None, "l2", "decoupled")[members["decay"]]
    if decay is None and not cls._decays_itself:
        values["weight_decay"] = 0.0
    return cls(decay=decay, **values)


def _all_kinds(base: Type[Optimizer]) -> List[Type[Optimizer]]:
    kinds = list(base.__subclasses__())
    return kinds + [kind for sub in kinds for kind in _all_kinds(sub)]


@dataclass(frozen=True)
class Initializer(_Spec):
    """Base of the initializers. A first value depends on the seed, the key and the column only. All members
    are finite."""


@dataclass(frozen=True)
class Zeros(Initializer):
    """All values are 0."""


@dataclass(frozen=True)
class Constant(Initializer, kind=1):
    """All values are `value`."""

    value: float


@dataclass(frozen=True)
class Uniform(Initializer, kind=2):
    """Uniform in [low, high); low is below high."""

    low: float = -0.05
    high: float = 0.05
    seed: int = 0


@dataclass(frozen=True)
class Normal(Initializer, kind=3):
    """Normal with this mean and standard deviation, which is 0 or more."""

    std: float = 0.01
    mean: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class TruncatedNormal(Normal, kind=4):
    """Normal, drawn again beyond two standard deviations."""


@dataclass(frozen=True)
class Consistency:
    """Whether a pull waits for slower workers: ASP, BSP or SSP(staleness)."""

    mode: str = "asp"
    staleness: int = 0

    def __post_init__(self) -> None:
        if self.mode not in ("asp", "bsp", "ssp"):
            raise ValueError(f"mode: {self.mode!r}; accepted: 'asp', 'bsp', 'ssp'")
        check_integer("staleness", self.staleness, 0, 2**32 - 1)
        if self.staleness and self.mode != "ssp":
            raise ValueError(f"staleness: {self.staleness} with {self.mode}; "
                             "accepted: 0 or more with 'ssp', else 0")

    def _spec(self, workers: int) -> Tuple[int, int, int]:
        mode = ("asp", "bsp", "ssp").index(self.mode)
        if mode and not workers:
            raise ValueError(f"consistency: {self.mode} counts the workers of the job, which are not known; "
                             "connect(workers=...) or the launcher says how many")
        return mode, self.staleness, workers if mode else 0


ASP = Consistency("asp")
"""Pulls never wait."""

BSP = Consistency("bsp")
"""Pulls of an iteration see exactly the pushes of earlier iterations."""


def SSP(staleness: int) -> Consistency:  # noqa: N802 - a mode, beside ASP and BSP
    """Pulls of iteration c wait until all workers have ended iteration c - staleness."""
    return Consistency("ssp", staleness)


@dataclass(frozen=True)
class Slot:
    """Thresholds of the keys of one slot of a Policy; 0: as for the other keys."""

    ttl_steps: int = 0
    admit_count: int = 0

    def __post_init__(self) -> None:
        check_integer("ttl_steps", self.ttl_steps, 0, 2**32 - 1)
        check_integer("admit_count", self.admit_count, 0, 2**32 - 1)


@dataclass(frozen=True)
class Policy:
    """Which rows of a sparse table the servers forget while they serve; by default none.

    A row that is forgotten reads as its first values; its next push creates it again. A step is a push or
    an assign of the table at a shard; the age of a row is the number of steps since its last one. Rows go
    at the latest a quarter of ttl_steps, or of protect_steps, after they are due.

    ttl_steps: rows of at least this age go. protect_steps: younger rows stay, whatever the rest says.
    count_below: rows with fewer pushes go; l2_below: rows with a lower Euclidean norm go; both need
    protect_steps. rows_max: most rows of the table; beyond it rows go in this order: "lru", longest not pushed
    first; "lfu", rarest first, where pushes count half for each half_life_steps of the row's age; "l2", least
    norm first. With an order, rows also go when the memory limit of the servers is near. 0 and None: off.

    admission: which keys get a row; the gradients of others are dropped, and they read as their first values.
    "count": keys that were pushed admit_count times; those not pushed for admit_age_steps count anew.
    "probability": each push of a key has the chance admit_probability. "bloom": as "count", up to 15, with a
    Bloom filter in place of the keys: it is made for keys_expected keys, and false_positives, by default 0.01,
    is the share of keys that it may admit early; all its counts are halved each admit_age_steps.

    ttl_seconds: rows go so many seconds after their last push, or up to a third and some seconds later.
    slots: own thresholds by slot, for features that share the table: {3: Slot(ttl_steps=5000, admit_count=5)}.
    The slot of a key is its slot_bits bits, 1 to 8, from bit slot_shift on.
    """

    ttl_steps: int = 0
    protect_steps: int = 0
    count_below: int = 0
    l2_below: float = 0.0
    rows_max: int = 0
    order: Optional[str] = None
    half_life_steps: int = 0
    admission: str = "count"
    admit_count: int = 0
    admit_age_steps: int = 0
    admit_probability: float = 0.0
    ttl_seconds: int = 0
    slot_shift: int = 0
    slot_bits: int = 0
    slots: Mapping[int, Slot] = field(default_factory=dict)
    keys_expected: int = 0
    false_positives: float = 0.0

    def __post_init__(self) -> None:
        if self.order not in _ORDERS:
            raise ValueError(f"order: {self.order!r}; accepted: 'lru', 'lfu', 'l2', None")
        if self.admission not in _ADMISSIONS:
            raise ValueError(f"admission: {self.admission!r}; accepted: {', '.join(map(repr, _ADMISSIONS))}")
        for name in ("ttl_steps", "protect_steps", "count_below", "half_life_steps", "admit_count",
                     "admit_age_steps", "ttl_seconds", "slot_shift", "slot_bits"):
            check_integer(name, getattr(self, name), 0, 2**32 - 1)
        check_integer("rows_max", self.rows_max, 0, 2**64 - 1)
        check_integer("keys_expected", self.keys_expected, 0, 2**64 - 1)
        for number, slot in self.slots.items():
            check_integer("slots", number, 0, 255)
            if not isinstance(slot, Slot):
                raise TypeError(f"slots: {slot!r}; accepted: Slot(ttl_steps=5000)")
        order, values = self._spec()
        try:
            _native.check_spec(0, 0, values, order)
        except InvalidError as error:
            raise InvalidError("Policy: " + re.sub(r".*: (?=policy)|policy\.", "", str(error))) from None

    def _spec(self) -> Tuple[int, Dict[str, Any]]:
        slots = [self.slots.get(number, Slot()) for number in range(max(self.slots, default=-1) + 1)]
        values = {**asdict(self), "admission": _ADMISSIONS.index(self.admission),
                  "slots": b"".join(struct.pack("=II", slot.ttl_steps, slot.admit_count) for slot in slots)}
        return _ORDERS.index(values.pop("order")), values


_ORDERS = (None, "lru", "lfu", "l2")
_ADMISSIONS = ("count", "probability", "bloom")
