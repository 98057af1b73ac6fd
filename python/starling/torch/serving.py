"""Models of torch as versions that starling-serve answers: ONNX for the dense part, keys for the tables."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import subprocess
import tempfile
import warnings
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import torch

from ..cluster import _program
from ..errors import StarlingError
from .embedding import EmbeddingBag, EmbeddingBagCollection, EmbeddingCollection, arguments_of

_OPSET = 13
# Newer torch has a second exporter, which is the default there, and which traces no modules.
_EXPORTER = {"dynamo": False} if "dynamo" in inspect.signature(torch.onnx.export).parameters else {}
_METADATA = "starling.lookup"  # programs/serve/engine/lookup.h describes it
_LookUp = Callable[[str, EmbeddingBag, Tuple[Any, ...]], torch.Tensor]


class _Feature(NamedTuple):
    """A look-up of the example's forward pass."""

    name: str
    bag: EmbeddingBag
    keys: torch.Tensor
    offsets: Optional[torch.Tensor]
    pooled: torch.Tensor


def publish(model: torch.nn.Module, name: str, inputs: Tuple[Any, ...], *, lengths: Mapping[str, int] = {},
            catalogue: Optional[str] = None, timeout: float = 60.0) -> int:
    """Publishes the model as a new version of `name`, which starling-serve answers, and returns its number.

    The version has the module's own parameters as they are here, and the rows of its tables as the servers
    have them; they run with --objects. One worker of a job calls it; others may train meanwhile.
    catalogue: HOST:PORT; None: STARLING_OBJECTS_CATALOGUE, which starling-launch --objects sets.
    Otherwise as export. Raises StarlingError with the text of starling-serve deploy.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        export(model, path, inputs, lengths=lengths)
        command = [_program("starling-serve"), "deploy", path, "--name", name, "--timeout", f"{round(1000 * timeout)}ms"]
        command += ["--catalogue", catalogue] if catalogue is not None else []
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise StarlingError(f"{name}: {done.stderr.strip().replace(path, 'the model')}")
    return int(done.stdout.rpartition(f"{name}@")[2].partition(":")[0])


def export(model: torch.nn.Module, path: str, inputs: Tuple[Any, ...], *, lengths: Mapping[str, int] = {}) -> None:
    """Writes the model as an ONNX file for `starling-serve deploy`: its rows stay in the tables that it names.

    inputs: the arguments of a forward pass, such as those of a batch of two rows; their first dimension counts
    rows. A request has a tensor for each argument, or for each entry of a dict, by its name: float32, or int64
    for integers. Keys that are columns of an argument, or all of it, are looked up in the tables; an argument
    of shape (rows,) is (rows, 1). Other keys, such as those that forward computes, or that come with offsets,
    become an input named after the feature of the EmbeddingBagCollection, or after the EmbeddingBag's place in
    the model: (rows, length), filled up with padding_idx. lengths: of such features; else the longest bag of
    the example has it. Raises ValueError for a model that cannot be served, and what torch.onnx.export raises.
    """
    if not isinstance(inputs, tuple):
        raise TypeError(f"inputs: {type(inputs).__name__}; accepted: a tuple of the arguments of model.forward")
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        with torch.no_grad():
            _export(model, path, inputs, lengths)
    finally:
        for module, mode in modes:
            module.training = mode


def _export(model: torch.nn.Module, path: str, inputs: Tuple[Any, ...], lengths: Mapping[str, int]) -> None:
    given = dict(_flatten(model, inputs))
    arguments = {name: (each if each.is_floating_point() or each.dtype == torch.bool else each.long()).clone()
                 for name, each in given.items()}
    features, outputs = _record(model, _rebuild(inputs, iter(arguments.values())))
    rows = outputs[0].shape[0] if outputs[0].dim() > 0 else 0
    columns: Dict[str, int] = {}  # of each input with keys
    described = [_describe(feature, arguments, rows, columns, lengths) for feature in features]
    pooled = {f"rows:{feature.name}": feature.pooled.reshape(rows, -1) for feature in features}
    graph = _Graph(model, inputs, arguments,
                   {f"rows:{feature.name}": feature.bag.table.dim for feature in features if feature.pooled.shape[0] != rows})
    used = graph.find_used({**arguments, **pooled})
    twice = [name for name in columns if name in used]
    if twice:
        raise ValueError(f"{twice[0]}: forward looks its keys up, and also computes with them; accepted: an argument for each")
    wrong = [name for name in used if name in arguments and (arguments[name].dim() == 0 or len(arguments[name]) != rows)]
    if wrong:
        raise ValueError(f"{wrong[0]}: {tuple(arguments[wrong[0]].shape)} for {rows} rows of the output; accepted: (rows, ...)")
    unused = [name for name in pooled if name not in used]
    if unused:
        raise ValueError(f"{unused[0][5:]}: forward does not use its rows; accepted: features that it uses")
    graph.names = used
    outputs_named = ["output" if i == 0 else f"output.{i}" for i in range(len(outputs))]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="torch.onnx")
        torch.onnx.export(graph, tuple({**arguments, **pooled}[name] for name in used), path, input_names=used,
                          output_names=outputs_named, opset_version=_OPSET,
                          dynamic_axes={name: {0: "rows"} for name in used + outputs_named}, **_EXPORTER)
    if features:
        names = list(columns)
        for each in described:
            each["input"] = names.index(each["input"])
        with open(path, "ab") as file:
            file.write(_metadata(json.dumps({"inputs": list(columns.items()), "features": described})))


# Arguments

def _flatten(model: torch.nn.Module, inputs: Tuple[Any, ...]) -> List[Tuple[str, torch.Tensor]]:
    """The tensors of the arguments, by name."""
    names = [each.name for each in inspect.signature(model.forward).parameters.values()
             if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    names += [f"input.{i}" for i in range(len(names), len(inputs))]
    found: List[Tuple[str, torch.Tensor]] = []
    for name, value in zip(names, inputs):
        _add_tensors(name, value, found)
    twice = [name for i, (name, _) in enumerate(found) if name in dict(found[:i])]
    if twice:
        raise ValueError(f"inputs: two tensors are named {twice[0]!r}; accepted: names of their own")
    return found


def _add_tensors(name: str, value: Any, found: List[Tuple[str, torch.Tensor]]) -> None:
    """A dict names its entries; of a tuple, such as (keys, offsets), the first one has the name."""
    if isinstance(value, torch.Tensor):
        found.append((name, value))
    elif isinstance(value, Mapping):
        for key, each in value.items():
            _add_tensors(str(key), each, found)
    elif isinstance(value, (tuple, list)):
        for i, each in enumerate(value):
            _add_tensors(name if i == 0 else f"{name}.{i}", each, found)


def _rebuild(value: Any, tensors: Iterator[torch.Tensor]) -> Any:
    """The arguments with other tensors."""
    if isinstance(value, torch.Tensor):
        return next(tensors)
    if isinstance(value, Mapping):
        return {key: _rebuild(each, tensors) for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)([_rebuild(each, tensors) for each in value])
    return value


# Look-ups

@contextlib.contextmanager
def _replaced(model: torch.nn.Module, look_up: _LookUp) -> Iterator[None]:
    """Replaces each look-up in the model's forward pass."""

    def forward_of(path: str, module: torch.nn.Module) -> Optional[Callable[..., Any]]:
        if isinstance(module, EmbeddingBagCollection):
            def of_collection(features: Any) -> Dict[str, torch.Tensor]:
                if not isinstance(features, Mapping) or isinstance(module, EmbeddingCollection):
                    raise ValueError(f"{path}: {type(module).__name__} of {type(features).__name__}; accepted in a served model: "
                                     "EmbeddingBagCollection of a dict")
                given = module._arguments_of("features", features)
                return {name: look_up(name, *each) for name, each in zip(features, given)}
            return of_collection
        if isinstance(module, EmbeddingBag):
            def of_bag(keys: torch.Tensor, offsets: Any = None, per_sample_weights: Any = None) -> torch.Tensor:
                return look_up(path or "keys", module, arguments_of(path, (keys, offsets, per_sample_weights)))
            return of_bag
        if isinstance(module, torch.nn.EmbeddingBag) and module.mode in ("sum", "mean") and module.padding_idx is None:
            def of_torch(keys: torch.Tensor, offsets: Any = None, per_sample_weights: Any = None) -> torch.Tensor:
                if offsets is not None or per_sample_weights is not None or keys.dim() != 2:
                    raise ValueError(f"{path}: offsets or weights; accepted of torch's EmbeddingBag: keys (bags, length)")
                found = torch.nn.functional.embedding(keys, module.weight)
                return found.sum(1) if module.mode == "sum" else found.mean(1)
            return of_torch  # ONNX has no bags
        return None

    modules = [(module, forward_of(path, module)) for path, module in model.named_modules()]
    replaced = [(module, forward) for module, forward in modules if forward is not None]
    try:
        for module, forward in replaced:
            module.forward = forward  # type: ignore
        yield
    finally:
        for module, _ in replaced:
            module.__dict__.pop("forward", None)


def _record(model: torch.nn.Module, arguments: Tuple[Any, ...]) -> Tuple[List[_Feature], List[torch.Tensor]]:
    """A forward pass: its look-ups, and its outputs."""
    found: Dict[str, _Feature] = {}

    def look_up(name: str, bag: EmbeddingBag, given: Tuple[Any, ...]) -> torch.Tensor:
        keys, offsets, weights = (*given, None, None)[:3]
        if name in found or weights is not None:
            raise ValueError(f"feature {name}: looked up twice, or with per_sample_weights; accepted: once in a forward pass, "
                             "as features of one EmbeddingBagCollection, without weights")
        pooled = EmbeddingBag.forward(bag, keys, offsets)
        found[name] = _Feature(name, bag, keys, offsets, pooled)
        return pooled

    with _replaced(model, look_up):
        outputs: List[Tuple[str, torch.Tensor]] = []
        _add_tensors("output", model(*arguments), outputs)
    if not outputs:
        raise ValueError("model: forward returned no tensor; accepted: a tensor or a tuple of them")
    return list(found.values()), [tensor for _, tensor in outputs]


def _describe(feature: _Feature, arguments: Mapping[str, torch.Tensor], rows: int, columns: Dict[str, int],
              lengths: Mapping[str, int]) -> Dict[str, Any]:
    """What the engine needs of a feature. Adds its input to `columns`."""
    bag, keys = feature.bag, feature.keys
    count = feature.pooled.shape[0]
    bags = count // rows if rows > 0 else 0
    if bags < 1 or bags * rows != count:
        raise ValueError(f"feature {feature.name}: {count} bags for {rows} rows of the output; accepted: one of each row")
    first = 0
    if feature.offsets is not None:
        ends = torch.cat([feature.offsets[1:], torch.tensor([keys.numel()])])
        length = lengths.get(feature.name, max(1, int((ends - feature.offsets).max())))
        if bag.padding_idx is None or bags > 1:
            raise ValueError(f"feature {feature.name}: offsets; accepted in a served model: a bag a row, of an EmbeddingBag with a "
                             "padding_idx, which fills up the rows of a request")
        name = feature.name
    else:
        length = keys.shape[1]
        name, first = next(((each, at) for each, tensor in arguments.items()
                            for at in [_first_column(keys, tensor, rows, bags)] if at >= 0), (feature.name, 0))
        if bags > 1 and name not in arguments:
            raise ValueError(f"feature {feature.name}: {count} bags for {rows} rows of the output; accepted: one of each row, or "
                             "an argument of (rows, bags * length) as it is")
    tensor = arguments.get(name)
    width = bags * length if tensor is None or feature.offsets is not None else max(1, tensor[0].numel())
    if columns.setdefault(name, width) != width:
        raise ValueError(f"inputs: two with keys are named {name!r}; accepted: names of their own")
    members = bag.table._members()
    return {"rows": f"rows:{feature.name}", "input": name, "first": first, "bags": bags, "columns": length,
            "table": bag.table.name, "mode": bag.mode, "padding": bag.padding_idx,
            "init": [members["initializer"], members["low"], members["high"], _signed(members["seed"])]}


def _first_column(keys: torch.Tensor, argument: torch.Tensor, rows: int, bags: int) -> int:
    """The column of the argument with which the keys begin, whose memory they are; -1: they are not."""
    if argument.dtype != torch.int64 or keys.dtype != torch.int64 or argument.dim() not in (1, 2) or len(argument) != rows:
        return -1
    width = argument[0].numel()
    at = (keys.data_ptr() - argument.data_ptr()) // argument.element_size()
    if bags > 1:
        return 0 if at == 0 and keys.is_contiguous() and keys.numel() == argument.numel() else -1
    fits = 0 <= at and at + keys.shape[1] <= width and (rows == 1 or keys.stride(0) == width)
    return at if fits and (keys.shape[1] == 1 or keys.stride(1) == 1) else -1


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


# Graph

class _Graph(torch.nn.Module):
    """The model as a function of the tensors `names`: of arguments, others of which are constants, and of pooled
    rows. dims: of features that have several bags a row."""

    def __init__(self, model: torch.nn.Module, inputs: Tuple[Any, ...], arguments: Mapping[str, torch.Tensor],
                 dims: Mapping[str, int]) -> None:
        super().__init__()
        self.model = model
        self.inputs = inputs
        self.arguments = dict(arguments)
        self.dims = dims
        self.names: List[str] = []

    def forward(self, *tensors: torch.Tensor) -> Any:
        values = {**self.arguments, **dict(zip(self.names, tensors))}

        def look_up(name: str, bag: EmbeddingBag, given: Tuple[Any, ...]) -> torch.Tensor:
            rows, dim = values[f"rows:{name}"], self.dims.get(f"rows:{name}")
            return rows if dim is None else rows.reshape(-1, dim)

        with _replaced(self.model, look_up):
            return self.model(*_rebuild(self.inputs, (values[name] for name in self.arguments)))

    def find_used(self, values: Mapping[str, torch.Tensor]) -> List[str]:
        """The names of the tensors that the outputs depend on."""
        self.names = list(values)
        traced = torch.jit.trace(self, tuple(values.values()), check_trace=False, strict=False).inlined_graph
        torch._C._jit_pass_dce(traced)
        return [name for name, value in zip(self.names, list(traced.inputs())[1:]) if value.uses()]


def _metadata(text: str) -> bytes:
    """An entry of ONNX's ModelProto.metadata_props, which may be appended to a file."""

    def field(number: int, value: bytes) -> bytes:
        size, length = len(value), b""
        while size > 127:
            length, size = length + bytes([size % 128 + 128]), size // 128
        return bytes([number << 3 | 2]) + length + bytes([size]) + value

    return field(14, field(1, _METADATA.encode()) + field(2, text.encode()))
