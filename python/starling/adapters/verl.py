"""The backend "starling" of verl's checkpoint engines: trainer rank 0 publishes the weights, each rollout worker views them.

    checkpoint_engine.backend=starling
    checkpoint_engine.custom_backend_module=starling.adapters.verl

The import registers the backend. docs/weights.md names the version of verl.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, AsyncIterator, Dict, Iterable, List, Optional, Tuple

import torch
from verl.checkpoint_engine import CheckpointEngine, CheckpointEngineRegistry

from .. import objects
from ..errors import NotFoundError

_PAUSE_S = 0.02  # between looks whether the version is there
_Pairs = Iterable[Tuple[str, torch.Tensor]]


@CheckpointEngineRegistry.register("starling")
class StarlingCheckpointEngine(CheckpointEngine):
    """The part of one worker. verl makes it, with engine_kwargs.starling as further arguments.

    bucket_size: not used; a version is fetched in blocks of 256 KiB.
    is_master: this worker publishes. verl sets it for rank 0 of the trainer.
    name: of the versions. One job at a time publishes it.
    catalogue: "host:port" of a catalogue; None: that of starling-launch --objects, or rank 0 hosts one.
    rollout_dtype: of the tensors of floating point that are published; None: that of the trainer.
    timeout: seconds for one publication, or for a view of it from the call on.
    options: of starling.objects.connect and serve, the same for all workers, such as secret_file, pool_bytes, agent.
    """

    def __init__(self, bucket_size: int, is_master: bool = False, name: str = "policy", catalogue: Optional[str] = None,
                 rollout_dtype: Optional[str] = "bfloat16", timeout: float = 600.0, **options: Any) -> None:
        self.is_master, self.name, self.catalogue, self.timeout = is_master, name, catalogue, timeout
        self.dtype = None if rollout_dtype is None else getattr(torch, str(rollout_dtype).replace("torch.", "", 1))
        self.options, self.version = options, 0
        self.node: Optional[objects.Node] = None

    def prepare(self) -> Optional[Dict[str, Any]]:
        """Starts the publisher's node, and returns the catalogue and the number of the next version. Of others None."""
        if not self.is_master:
            return None
        if self.node is None:
            self.node = (objects.connect(self.catalogue, **self.options) if self.catalogue is not None
                         else objects.serve(**self.options))
        self.version = 1 + max([self.version, *(each.version for each in self.node.versions(self.name, self.timeout))])
        return {"catalogue": self.node.catalogue, "version": self.version}

    @classmethod
    def build_topology(cls, trainer_world_size: int, rollout_world_size: int,
                       metadata: List[Any]) -> Tuple[Dict[str, List[Any]], Dict[str, List[Any]]]:
        """All workers get what rank 0 of the trainer prepared: there is no group of processes."""
        return {"master": [metadata[0]] * trainer_world_size}, {"master": [metadata[0]] * rollout_world_size}

    def init_process_group(self, master: Dict[str, Any]) -> None:
        """Sets the version of this step; a rollout worker connects in the first step, and if the catalogue is another one."""
        self.version = master["version"]
        if self.node is not None and self.node.catalogue != master["catalogue"]:
            self.close()
        self.catalogue = master["catalogue"]

    def finalize(self) -> None:
        """Does nothing: versions stay for workers that join later, and the node for the next step."""

    def close(self) -> None:
        """Ends the node. A second close does nothing."""
        node, self.node = self.node, None
        if node is not None:
            node.close()

    async def send_weights(self, weights: _Pairs, global_steps: Optional[int] = None) -> None:
        """Publishes the weights; trainer ranks above 0 only take part in gathering them. Raises as objects.Node.publish.

        Rank 0 has a copy of all weights in the memory of its host, and one in the pool.
        """
        gathered = [(name, self._host(tensor)) for name, tensor in weights if self.is_master]
        if self.is_master:
            assert self.node is not None, "prepare comes first"
            note = "" if global_steps is None else f"step {global_steps}"
            await asyncio.to_thread(self.node.publish, self.name, gathered, note, self.version, take_over=True,
                                    timeout=self.timeout)

    def _host(self, tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.detach()
        return tensor.to("cpu", self.dtype if tensor.is_floating_point() and self.dtype is not None else tensor.dtype)

    async def receive_weights(self, global_steps: Optional[int] = None) -> AsyncIterator[Tuple[str, torch.Tensor]]:
        """Yields copies of the tensors, on the accelerator if there is one, once the whole version is on this host.

        Raises NotFoundError if it was not published in time, and as objects.Node.view.
        """
        device = "cuda" if torch.cuda.is_available() else "cpu"
        with await asyncio.to_thread(self._view) as view:
            for name in view:
                yield name, view.torch(name).to(device, copy=True)

    def _view(self) -> objects.View:
        if self.node is None:
            self.node = objects.connect(self.catalogue, **self.options)
        end = time.monotonic() + self.timeout
        while True:
            left = max(0.001, end - time.monotonic())
            try:
                return self.node.view(self.name, self.version, left)
            except NotFoundError:  # it is not published yet
                if left <= _PAUSE_S:
                    raise
                time.sleep(_PAUSE_S)
