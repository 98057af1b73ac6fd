"""The backend "starling" of vLLM's weight transfer: the trainer publishes a version, each inference worker views it.

    from vllm.distributed.weight_transfer import WeightTransferEngineFactory, WeightTransferTrainerFactory
    WeightTransferEngineFactory.register_engine("starling", "starling.adapters.vllm", "StarlingWeightTransferEngine")
    WeightTransferTrainerFactory.register_engine("starling", "starling.adapters.vllm", "StarlingTrainerEngine")

docs/weights.md names the version of vLLM.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Dict, Optional

from vllm.distributed.weight_transfer.base import (TrainerInitInfo, TrainerWeightTransferEngine, WeightTransferEngine,
                                                   WeightTransferInitInfo, WeightTransferUpdateInfo)

from .. import objects


@dataclass
class StarlingInitInfo(WeightTransferInitInfo):
    """What the trainer tells the workers once. options: of starling.objects.connect."""

    catalogue: str
    name: str
    timeout: float
    options: Dict[str, Any]


@dataclass
class StarlingUpdateInfo(WeightTransferUpdateInfo):
    """What the trainer tells them for each update."""

    version: int


class StarlingWeightTransferEngine(WeightTransferEngine):
    """The part of an inference worker. A version that cannot be fetched leaves its model as it is."""

    init_info_cls, update_info_cls = StarlingInitInfo, StarlingUpdateInfo
    _node: Optional[objects.Node] = None
    _is_loading = False  # the model accepts weights

    def init_transfer_engine(self, init_info: StarlingInitInfo) -> None:
        """Connects to the catalogue. Raises as objects.connect."""
        self.shutdown()
        self._info = init_info
        self._node = objects.connect(init_info.catalogue, **{"timeout": init_info.timeout, **init_info.options})

    def start_weight_update(self) -> None:
        """Does nothing: receive_weights begins to change the model."""

    def receive_weights(self, update_info: StarlingUpdateInfo) -> None:
        """Loads a version tensor by tensor, in the format of checkpoints, once all of it has been verified in the memory
        of this host. Raises as objects.Node.view, before the model is changed."""
        if self._node is None:
            raise RuntimeError("receive_weights: init_transfer_engine comes first")
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload
        with self._node.view(self._info.name, update_info.version, self._info.timeout) as view:
            if not self._is_loading:
                initialize_layerwise_reload(self.model)
                self._is_loading = True
            for name in view:
                self.model.load_weights([(name, view.torch(name).to(self.device, copy=True))])

    def finish_weight_update(self) -> None:
        """Has the model use the weights, if there are any."""
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload
        if self._is_loading:
            self._is_loading = False
            finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        """Ends the node. A second call does nothing."""
        node, self._node = self._node, None
        if node is not None:
            node.close()

    @staticmethod
    def trainer_send_weights(*args: Any, **kwargs: Any) -> None:
        """Not for this backend: StarlingTrainerEngine sends."""
        raise NotImplementedError("trainer_send_weights; use WeightTransferTrainerFactory.trainer_init")


@dataclass
class StarlingTrainerInitInfo(TrainerInitInfo):
    """How the trainer publishes. rank: of this process; rank 0 publishes.

    catalogue: "host:port"; None: that of starling-launch --objects, or rank 0 hosts one.
    name: of the versions. timeout: seconds for one publication, and for one view.
    options: of starling.objects.connect and serve, sent to the workers too, such as secret_file, pool_bytes, agent.
    """

    backend: ClassVar[str] = "starling"
    catalogue: Optional[str] = None
    name: str = "policy"
    timeout: float = 600.0
    options: Dict[str, Any] = field(default_factory=dict)


class StarlingTrainerEngine(TrainerWeightTransferEngine):
    """The part of a trainer. All ranks call trainer_init and send_weights."""

    init_info_cls = StarlingTrainerInitInfo
    _node: Optional[objects.Node] = None

    @classmethod
    def trainer_init(cls, init_info: StarlingTrainerInitInfo, *, client: Any, source: Any = None) -> StarlingTrainerEngine:
        """Starts the publisher's node, and has the workers connect. Raises as objects.connect and the client."""
        if source is None:
            raise ValueError("source: None; accepted: a WeightSource")
        engine = cls(client=client, source=source, is_sender=init_info.is_sender)
        engine._info = init_info
        if engine.is_sender:
            options = {"timeout": init_info.timeout, **init_info.options}
            engine._node = (objects.connect(init_info.catalogue, **options) if init_info.catalogue is not None
                            else objects.serve(**options))
            client.init_weight_transfer_engine({"catalogue": engine._node.catalogue, "name": init_info.name,
                                                "timeout": init_info.timeout, "options": init_info.options})
        return engine

    def send_weights(self) -> None:
        """Publishes the weights, and then has the workers load them.

        Raises as objects.Node.publish, then no worker has begun; and as the client.
        """
        gathered = [(name, tensor.detach().cpu()) for name, tensor in self.source if self.is_sender]
        if self._node is None:
            return
        version = self._node.publish(self._info.name, gathered, take_over=True, timeout=self._info.timeout)
        self.client.start_weight_update()
        self.client.update_weights({"version": version})
        self.client.finish_weight_update(str(version))

    def shutdown(self) -> None:
        """Ends the node: versions in it go with it. A second call does nothing."""
        node, self._node = self._node, None
        if node is not None:
            node.close()
