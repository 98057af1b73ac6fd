"""The shape of verl.checkpoint_engine."""

from abc import ABC, abstractmethod


class CheckpointEngineRegistry:
    engines = {}

    @staticmethod
    def register(backend):
        def add(engine):
            CheckpointEngineRegistry.engines[backend] = engine
            return engine
        return add

    @classmethod
    def new(cls, backend, *arguments, **options):
        return cls.engines[backend](*arguments, **options)


class CheckpointEngine(ABC):
    @abstractmethod
    def prepare(self): ...

    @classmethod
    @abstractmethod
    def build_topology(cls, trainer_world_size, rollout_world_size, metadata): ...

    @abstractmethod
    def init_process_group(self, **options): ...

    @abstractmethod
    def finalize(self): ...

    @abstractmethod
    async def send_weights(self, weights): ...

    @abstractmethod
    async def receive_weights(self): ...


def update_weights(backend, trainers, rollouts):
    """One update. trainers, rollouts: functions call(method, **options), which return a function that waits for the
    result. Returns the results of send_weights and receive_weights."""
    workers = [*trainers, *rollouts]
    metadata = [result() for result in [worker("prepare") for worker in workers]]
    topology = CheckpointEngineRegistry.engines[backend].build_topology(len(trainers), len(rollouts), metadata)
    for group, options in zip((trainers, rollouts), topology):
        assert all(len(values) == len(group) for values in options.values())
    each = [{name: values[i] for name, values in options.items()}
            for group, options in zip((trainers, rollouts), topology) for i in range(len(group))]
    for result in [worker("init_process_group", **options) for worker, options in zip(workers, each)]:
        result()
    moves = [worker("receive_weights") for worker in rollouts] + [worker("send_weights") for worker in trainers]
    results = [result() for result in moves]
    for result in [worker("finalize") for worker in workers]:
        result()
    return results
