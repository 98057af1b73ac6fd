"""The shape of vllm.distributed.weight_transfer.base."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field


@dataclass
class WeightTransferInitInfo(ABC):
    pass


@dataclass
class WeightTransferUpdateInfo(ABC):
    pass


@dataclass
class TrainerInitInfo:
    rank: int = field(kw_only=True)

    @property
    def is_sender(self):
        return self.rank == 0


class WeightTransferEngine(ABC):
    def __init__(self, config, vllm_config, device, model):
        self.config, self.vllm_config, self.device, self.model = config, vllm_config, device, model
        self.model_config = vllm_config.model_config

    def parse_init_info(self, given):
        return self.init_info_cls(**given)

    def update_weights(self, given):
        self.receive_weights(self.update_info_cls(**given))

    @abstractmethod
    def init_transfer_engine(self, init_info): ...

    @abstractmethod
    def start_weight_update(self): ...

    @abstractmethod
    def finish_weight_update(self): ...

    @abstractmethod
    def receive_weights(self, update_info): ...

    @abstractmethod
    def shutdown(self): ...

    @staticmethod
    @abstractmethod
    def trainer_send_weights(iterator, trainer_args): ...


class TrainerWeightTransferEngine(ABC):
    def __init__(self, *, client, source, is_sender=True):
        self.client, self.source, self.is_sender = client, source, is_sender

    @classmethod
    @abstractmethod
    def trainer_init(cls, init_info, *, client, source=None): ...

    @abstractmethod
    def send_weights(self): ...

    def shutdown(self): ...
