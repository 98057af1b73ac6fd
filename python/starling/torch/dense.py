"""The dense parameters of a model, in one table."""

from __future__ import annotations

from time import monotonic, sleep
from typing import Iterable, List, Optional, Tuple

import torch

from .. import specs
from ..client import Client
from ..errors import DeadlineError
from ..tables import Step, Table

_POLL_S = 0.05
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class DenseParameters:
    """The parameters of a module that require a gradient, which all workers share in a dense table.

    They become views of one flat tensor. Worker 0, or a client without a task, assigns their initial
    values to a table that nothing was written to; the other workers wait for that, for the client's
    timeout at most. All then take the table's values: also a worker that was started again, and all
    workers of a restored job. Each worker has the same module. Buffers, and parameters that are
    frozen, stay in the process.

    module: with parameters in CPU memory, all of float32, of bfloat16 or of float16; the servers have float32 values.
    name, optimizer, consistency, reject_nonfinite: of the table.
    Members: table, values (the flat tensor). Raises ValueError for other parameters, TableMismatch for a
    module of another size, DeadlineError. One thread at a time.
    """

    def __init__(self, module: torch.nn.Module, client: Client, name: str,
                 optimizer: specs.Optimizer = specs.SGD(), consistency: specs.Consistency = specs.ASP, *,
                 reject_nonfinite: Optional[bool] = None) -> None:
        self._named = _trainable(module)
        self.values = torch.cat([each.detach().reshape(-1) for _, each in self._named])
        self.table = client.dense(name, self.values.numel(), optimizer, consistency=consistency,
                                  reject_nonfinite=reject_nonfinite)
        self._initialize(client)
        sections = torch.split(self.values, [each.numel() for _, each in self._named])
        self._views = [section.view(each.shape) for section, (_, each) in zip(sections, self._named)]
        for view, (_, each) in zip(self._views, self._named):
            each.data = view
        # Empty views, through which pull() tells autograd that the parameters have changed.
        self._changes = [each.detach().view(-1)[:0] for _, each in self._named]

    def _initialize(self, client: Client) -> None:
        """Assigns or awaits the first values, then pulls. A shard that a crash of worker 0 left without
        values has applied no write, so that worker 0 assigns all again."""
        client._check_values()
        end = monotonic() + client.timeout
        while self.table.stats().steps == 0:
            if client.task <= 0:
                self.table.assign(self.values)
                break
            if monotonic() > end:
                raise DeadlineError(f"DenseParameters: worker 0 has not assigned the first values of table "
                                    f"{self.table.name} within {client.timeout} s")
            sleep(_POLL_S)
        self.table.pull(self.values)

    def parameters(self) -> List[torch.nn.Parameter]:
        """Returns the parameters, in the order of `values`."""
        return [each for _, each in self._named]

    def _check_finite(self) -> None:
        for name, each in self._named:
            if each.grad is not None:
                check_finite(f"parameter {name}", each.grad)

    def push(self, *, step: Optional[Step] = None) -> None:
        """Pushes the gradients of the parameters as one push of the table; zeros for a parameter without
        one, and nothing if none has one. The gradients stay until zero_grad().

        With a step it becomes a part of that step. Raises CorruptError if a server has lost its values.
        """
        self.table.client._check_values()
        if any(each.grad is not None for _, each in self._named):
            grads = [torch.zeros(each.numel(), dtype=each.dtype) if each.grad is None else each.grad.reshape(-1)
                     for _, each in self._named]
            self.table.push(torch.cat(grads), step=step)

    def pull(self, *, step: Optional[Step] = None) -> None:
        """Pulls the values into the parameters. With a step they have them after its wait.

        Raises RuntimeError if a parameter has other memory now, such as after module.to(), CorruptError if
        a server has lost its values.
        """
        self.table.client._check_values()
        for view, (name, each) in zip(self._views, self._named):
            if view.data_ptr() != each.data_ptr():
                raise RuntimeError(f"parameter {name}: its memory was replaced; accepted: module.to() and the like "
                                   "before DenseParameters, load_state_dict() and changes in place after it")
        self.table.pull(self.values, step=step)
        for change in self._changes:
            change.zero_()


def client_of(what: str, tables: Iterable[Table]) -> Client:
    """Returns the client of the tables, after checking that it is one."""
    names = {table.client: table.name for table in tables}
    if not names:
        raise ValueError(f"{what}: none; accepted: at least one")
    if len(names) > 1:
        raise ValueError(f"{what}: tables {' and '.join(names.values())} were opened by {len(names)} clients; "
                         "accepted: tables of one client")
    return next(iter(names))


def check_finite(what: str, grad: torch.Tensor) -> None:
    """Raises FloatingPointError if a gradient is not finite."""
    if not grad.isfinite().all():
        raise FloatingPointError(f"gradient of {what}: NaN or infinite; nothing was sent; "
                                 "zero_grad() forgets the gradients")


def _trainable(module: torch.nn.Module) -> List[Tuple[str, torch.nn.Parameter]]:
    """Returns the parameters that require a gradient, with their names. A shared one counts once."""
    named = [(name, each) for name, each in module.named_parameters() if each.requires_grad]
    if not named:
        raise ValueError("module: none of its parameters requires a gradient; accepted: at least one")
    for name, each in named:
        if each.dtype not in DTYPES or each.dtype != named[0][1].dtype or each.device.type != "cpu":
            raise ValueError(f"parameter {name}: {each.dtype} on {each.device}; accepted: float32, bfloat16 or float16, one "
                             "for all parameters, in CPU memory; convert with module.float().cpu()")
    return named
