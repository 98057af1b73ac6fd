"""Models of TorchRec with their rows on Starling's servers. torchrec itself is not needed: collections and their
configurations are known by their members."""

from __future__ import annotations

import functools
import inspect
import math
import zlib
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional

import torch

from ..client import Client
from ..specs import (ASP, SGD, Consistency, Constant, Initializer, Normal, Optimizer, Policy, TruncatedNormal, Uniform,
                     Zeros, check_integer)
from .embedding import EmbeddingBag, EmbeddingBagCollection, EmbeddingCollection

_VALUES = {"FP32": "f32", "FP16": "f16", "BF16": "bf16", "INT8": "int8"}
_INITIALIZERS: Dict[str, Callable[[Mapping[str, Any], int], Optional[Initializer]]] = {  # of arguments of torch.nn.init, and a seed
    "uniform_": lambda given, seed: Uniform(given["a"], given["b"], seed),
    "normal_": lambda given, seed: Normal(given["std"], given["mean"], seed),
    "trunc_normal_": lambda given, seed: TruncatedNormal(given["std"], given["mean"], seed) if _is_two_deviations(given) else None,
    "constant_": lambda given, _: Constant(given["val"]),
    "zeros_": lambda *_: Zeros(),
    "ones_": lambda *_: Constant(1.0)}
_ROOM = 64  # rows for each of sqrt(num_embeddings): the keys that a shard of some hundred has above its share


class _Table(NamedTuple):
    """A table of a collection, before it is opened."""

    config: Any
    name: str
    features: List[str]
    mode: str
    options: Dict[str, Any]  # of Client.sparse, beside those that all tables have


def replace(model: torch.nn.Module, client: Client, optimizer: Optimizer = SGD(), consistency: Consistency = ASP, *,
            init: Mapping[str, Initializer] = {}, policy: Optional[Policy] = None, prefix: str = "") -> torch.nn.Module:
    """Replaces the collections of a model of TorchRec by those of this package, and returns the model; if it is a
    collection itself, what replaces it.

    Collections are the innermost modules with embedding_bag_configs() or embedding_configs(). Each configuration
    becomes a table: its name, embedding_dim, data_type (FP32, FP16, BF16, INT8: `values` of the table), init_fn,
    pooling and feature_names; is_weighted() and need_indices() of the collection count too. The rows that a
    collection has are not copied: rows begin as init_fn says, with other random numbers. All workers of a job
    call it with equal arguments, before Optimizer and DenseParameters.

    optimizer, consistency: of the tables.
    init: initializers by the name in the configuration, which count before init_fn. An init_fn without one is
    a function of torch.nn.init, or a functools.partial of one: uniform_, normal_, constant_, zeros_, ones_, or
    trunc_normal_ that cuts at two standard deviations.
    policy: of all tables. None: order is "lru", and rows_max is num_embeddings plus 64 times its square root.
    Shards share keys unevenly: with so much room they evict no row of keys below num_embeddings, unless memory
    is short. BSP accepts no such policy: give one.
    prefix: of the names of the tables.
    Raises ValueError, which names what is not supported, before a table is opened; else as Client.sparse.
    The model changes only if all tables could be opened.
    """
    found = [module for module in model.modules() if _is_collection(module) and not any(map(_is_collection, _within(module)))]
    if not found:
        raise ValueError(f"model: {type(model).__name__}; accepted: a model that has a module with embedding_bag_configs() or "
                         "embedding_configs()")
    if policy is None and consistency.mode == "bsp":
        raise ValueError("policy: None, which evicts rows beyond num_embeddings; accepted with BSP: a policy without order, "
                         "such as starling.Policy()")
    tables = {module: [_table_of(module, config, init, policy, prefix) for config in _configs_of(module)] for module in found}
    names = [table.name for of_module in tables.values() for table in of_module]
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise ValueError(f"table {twice[0]}: two configurations have this name; accepted: one; replace each collection alone, "
                         "with a prefix of its own")
    unknown = [name for name in init if prefix + name not in names]
    if unknown:
        raise ValueError(f"init: {unknown[0]!r}; accepted: {', '.join(repr(name[len(prefix):]) for name in names)}")
    replaced = {module: _collection_of(module, of_module, client, optimizer, consistency) for module, of_module in tables.items()}
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if child in replaced:
                parent._modules[name] = replaced[child]
    return replaced.get(model, model)


def _within(module: torch.nn.Module) -> List[torch.nn.Module]:
    return list(module.modules())[1:]


def _is_collection(module: torch.nn.Module) -> bool:
    """Of TorchRec's modules, wrappers of a collection have its configurations too, and a ManagedCollisionCollection,
    which has evict(), those of another module."""
    methods = (getattr(module, name, None) for name in ("embedding_bag_configs", "embedding_configs"))
    return any(map(callable, methods)) and not hasattr(module, "evict") and not isinstance(module, EmbeddingBagCollection)


def _pools(module: Any) -> bool:
    return hasattr(module, "embedding_bag_configs")


def _is_weighted(module: Any) -> bool:
    return _pools(module) and hasattr(module, "is_weighted") and bool(module.is_weighted())


def _configs_of(module: Any) -> List[Any]:
    configs = list(module.embedding_bag_configs() if _pools(module) else module.embedding_configs())
    if not configs:
        raise ValueError(f"{type(module).__name__}: no configurations; accepted: at least one")
    return configs


def _table_of(module: Any, config: Any, init: Mapping[str, Initializer], policy: Optional[Policy], prefix: str) -> _Table:
    what, features = f"table {config.name}", list(config.feature_names) or [config.name]
    if len(set(features)) < len(features):
        raise ValueError(f"{what}: feature_names {features}; accepted: each name once")
    pooling = _name_of(getattr(config, "pooling", "SUM")) if _pools(module) else "SUM"
    if pooling not in (["SUM"] if _is_weighted(module) else ["SUM", "MEAN"]):
        raise ValueError(f"{what}: pooling {pooling}{' with is_weighted' if _is_weighted(module) else ''}; accepted: SUM, and "
                         "MEAN without weights, as in torch.nn.EmbeddingBag")
    kind = _name_of(getattr(config, "data_type", "FP32"))
    if kind not in _VALUES:
        raise ValueError(f"{what}: data_type {kind}; accepted: {', '.join(_VALUES)}")
    evicts = type(getattr(config, "virtual_table_eviction_policy", None)).__name__
    if policy is None and evicts not in ("NoneType", "NoEvictionPolicy"):
        raise ValueError(f"{what}: virtual_table_eviction_policy {evicts}; accepted: none; "
                         "policy=starling.Policy(...) of replace() says which rows go")
    count, name = config.num_embeddings, prefix + config.name
    check_integer(f"{what}: num_embeddings", count, 1, 2**62)
    if policy is None:
        policy = Policy(rows_max=count + _ROOM * math.isqrt(count), order="lru")
    first = init[config.name] if config.name in init else _initializer_of(what, config, zlib.crc32(name.encode()))
    return _Table(config, name, features, pooling.lower(),
                  {"dim": config.embedding_dim, "values": _VALUES[kind], "init": first, "policy": policy})


def _initializer_of(what: str, config: Any, seed: int) -> Initializer:
    """Returns the initializer that draws as init_fn does."""
    given = getattr(config, "init_fn", None)
    if given is None:  # as TorchRec's configurations fill it in
        given = functools.partial(torch.nn.init.uniform_, a=config.get_weight_init_min(), b=config.get_weight_init_max())
    function, args, named = (given.func, given.args, given.keywords) if isinstance(given, functools.partial) else (given, (), {})
    name, made = getattr(function, "__name__", ""), None
    if name in _INITIALIZERS and function is getattr(torch.nn.init, name):
        bound = inspect.signature(function).bind(None, *args, **named)
        bound.apply_defaults()
        made = _INITIALIZERS[name](bound.arguments, seed)
    if made is not None:
        return made
    raise ValueError(f"{what}: init_fn {given!r}, which the servers cannot call for each new row; accepted: "
                     f"{', '.join(_INITIALIZERS)} of torch.nn.init, also in a functools.partial; trunc_normal_ that cuts at two "
                     f"standard deviations; or an initializer in replace(init={{{config.name!r}: starling.Normal(std=0.01)}})")


def _is_two_deviations(given: Mapping[str, Any]) -> bool:
    """Returns whether trunc_normal_ cuts where TruncatedNormal does."""
    mean, std = given["mean"], given["std"]
    return math.isclose(given["a"], mean - 2 * std) and math.isclose(given["b"], mean + 2 * std)


def _collection_of(module: Any, tables: List[_Table], client: Client, optimizer: Optimizer,
                   consistency: Consistency) -> EmbeddingBagCollection:
    """Opens the tables. A feature of several tables has a bag of each, which is named feature@table as in TorchRec."""
    every = [name for table in tables for name in table.features]
    bags = {}
    for table in tables:
        bag = EmbeddingBag(client.sparse(table.name, optimizer=optimizer, consistency=consistency, **table.options), table.mode)
        bags.update({name if every.count(name) == 1 else f"{name}@{table.config.name}": bag for name in table.features})
    if _pools(module):
        made = EmbeddingBagCollection(bags, _is_weighted(module))
    else:
        made = EmbeddingCollection(bags, bool(module.need_indices()) if hasattr(module, "need_indices") else False)
    made._configs = [table.config for table in tables]
    return made.train(module.training)


def _name_of(member: Any) -> str:
    """Returns the name of a member of an enumeration, such as DataType.FP32."""
    return str(getattr(member, "name", member))
