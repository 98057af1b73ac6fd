"""The shape of vllm.distributed.weight_transfer: a factory for each side."""

import importlib


class _Factory:
    def __init_subclass__(cls):
        cls.engines = {}

    @classmethod
    def register_engine(cls, name, module, class_name):
        cls.engines[name] = module, class_name

    @classmethod
    def load(cls, name):
        module, class_name = cls.engines[name]
        return getattr(importlib.import_module(module), class_name)


class WeightTransferEngineFactory(_Factory):
    @classmethod
    def create_engine(cls, config, vllm_config, device, model):
        return cls.load(config.backend)(config, vllm_config, device, model)


class WeightTransferTrainerFactory(_Factory):
    @classmethod
    def trainer_init(cls, init_info, *, client, source=None):
        return cls.load(init_info.backend).trainer_init(init_info, client=client, source=source)
