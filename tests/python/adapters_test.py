#!/usr/bin/env python3
"""The adapters for verl and vLLM: trainers and inference workers in processes of their own, behind the interfaces in shapes/."""

import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import types
import unittest

import support
from support import harness, starling

try:
    import torch
except ImportError:
    print("skipped: this interpreter has no torch (Debian: python3-torch)")
    sys.exit(harness.SKIPPED)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "shapes"))
from verl.checkpoint_engine import CheckpointEngineRegistry, update_weights  # noqa: E402
from vllm.distributed.weight_transfer import WeightTransferEngineFactory, WeightTransferTrainerFactory  # noqa: E402

import starling.adapters.verl  # noqa: E402
import starling.adapters.vllm  # noqa: E402
from starling import objects  # noqa: E402

TIMEOUT = harness.DEADLINE_S
multiprocessing.set_forkserver_preload(["torch"])  # to import it takes seconds
WorkerEngine, TrainerEngine = "StarlingWeightTransferEngine", "StarlingTrainerEngine"
WeightTransferEngineFactory.register_engine("starling", "starling.adapters.vllm", WorkerEngine)
WeightTransferTrainerFactory.register_engine("starling", "starling.adapters.vllm", TrainerEngine)


def weights(step):
    """Pairs of name and tensor, which a generator makes, as a sharded trainer gathers them."""
    yield "wide.weight", torch.full((300, 500), float(step))
    yield "narrow.bias", torch.arange(3, dtype=torch.float32) + step
    yield "count", torch.tensor([step], dtype=torch.int64)


def summary(tensors):
    return {name: (str(tensor.dtype), list(tensor.shape), float(tensor.sum())) for name, tensor in tensors.items()}


class VerlWorker:
    """A worker of verl. Its step counts updates."""

    def __init__(self, is_master, options):
        self.engine, self.step = CheckpointEngineRegistry.new("starling", bucket_size=1 << 20, is_master=is_master, **options), 0

    def send_weights(self):
        self.step += 1
        asyncio.run(self.engine.send_weights(weights(self.step), global_steps=self.step))

    def receive_weights(self):
        async def read():
            return summary({name: tensor.add_(0) async for name, tensor in self.engine.receive_weights()})
        return asyncio.run(read())

    def __getattr__(self, name):
        return getattr(self.engine, name)


class Model:
    is_loading, tensors, loads = False, {}, 0

    def load_weights(self, pairs):
        assert self.is_loading
        self.loads += 1
        self.tensors = {**self.tensors, **dict(pairs)}


class VllmWorker:
    """A worker of vLLM, with a model."""

    def __init__(self):
        self.model = Model()
        self.engine = WeightTransferEngineFactory.create_engine(
            types.SimpleNamespace(backend="starling"), types.SimpleNamespace(model_config=None), torch.device("cpu"), self.model)

    def init_weight_transfer_engine(self, info):
        self.engine.init_transfer_engine(self.engine.parse_init_info(json.loads(info)))

    def update_weights(self, info):
        self.engine.update_weights(json.loads(info))

    def summary(self):
        return summary(self.model.tensors), self.model.is_loading, self.model.loads

    def __getattr__(self, name):
        return getattr(self.engine, name)


def serve(pipe, kind, arguments):
    """A process that makes the worker, and answers calls until its pipe ends."""
    worker = kind(*arguments)
    while True:
        try:
            method, options = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, getattr(worker, method)(**options)))
        except Exception as error:
            pipe.send((False, f"{type(error).__name__}: {error}"))


class Adapters(unittest.TestCase):
    def start(self, kind, *arguments):
        """Starts a worker, and returns call(method, **options), which returns a function that waits for the result."""
        context = multiprocessing.get_context("forkserver")
        here, there = context.Pipe()
        process = context.Process(target=serve, args=(there, kind, arguments), daemon=True)
        process.start()
        there.close()
        self.addCleanup(process.join, TIMEOUT)
        self.addCleanup(here.close)

        def call(method, **options):
            here.send((method, options))

            def result():
                if not here.poll(TIMEOUT):
                    raise AssertionError(f"no answer to {method}")
                is_good, value = here.recv()
                if not is_good:
                    raise RuntimeError(value)
                return value
            return result
        return call

    def expected(self, step, dtype=None):
        return summary({name: tensor.to(dtype) if dtype and tensor.is_floating_point() else tensor for name, tensor in weights(step)})

    def test_verl(self):
        options = {"rollout_dtype": None, "name": "actor"}
        trainers = [self.start(VerlWorker, rank == 0, options) for rank in range(2)]
        rollouts = [self.start(VerlWorker, False, options) for _ in range(2)]
        for step in (1, 2, 3, 4, 5):
            self.assertEqual(update_weights("starling", trainers, rollouts), [self.expected(step)] * 2 + [None] * 2)
        rollouts.append(self.start(VerlWorker, False, options))  # a replica that joins
        self.assertEqual(update_weights("starling", trainers, rollouts)[2], self.expected(6))

    def test_verl_trainer_that_restarts_and_one_that_fails(self):
        node = objects.serve()
        self.addCleanup(node.close)
        options = {"catalogue": node.address, "timeout": TIMEOUT}
        rollout = self.start(VerlWorker, False, options)
        for _ in range(2):
            self.assertEqual(update_weights("starling", [self.start(VerlWorker, True, options)], [rollout])[0],
                             self.expected(1, torch.bfloat16))
        self.assertEqual([(each.version, each.note) for each in node.versions("policy")], [(1, "step 1"), (2, "step 1")])
        rollout = self.start(VerlWorker, False, {**options, "timeout": 0.5})
        rollout("init_process_group", master={"catalogue": node.address, "version": 3})()
        with self.assertRaisesRegex(RuntimeError, "NotFoundError.*policy has no version 3|DeadlineError.*policy"):
            rollout("receive_weights")()

    def test_vllm(self):
        workers = [self.start(VllmWorker) for _ in range(2)]

        class Client:
            calls = []

            def call(self, method, **options):
                self.calls.append(method)
                for result in [worker(method, **options) for worker in workers]:
                    result()

            def init_weight_transfer_engine(self, info):
                self.call("init_weight_transfer_engine", info=json.dumps(info))

            def update_weights(self, info):
                self.call("update_weights", info=json.dumps(info))

            def start_weight_update(self):
                self.call("start_weight_update")

            def finish_weight_update(self, weight_version=None):
                self.call("finish_weight_update")
                self.version = weight_version

        class Source:
            step = reads = 0

            def __iter__(self):
                self.reads += 1
                return weights(self.step)

        client, source = Client(), Source()
        info = starling.adapters.vllm.StarlingTrainerInitInfo
        trainer, other = (WeightTransferTrainerFactory.trainer_init(info(rank=rank, timeout=TIMEOUT), client=client, source=source)
                          for rank in range(2))
        self.addCleanup(trainer.shutdown)
        for source.step in (1, 2):
            trainer.send_weights()
            other.send_weights()
            for worker in workers:
                self.assertEqual(worker("summary")(), (self.expected(source.step), False, 3 * source.step))
            self.assertEqual(client.version, str(source.step))
        self.assertEqual(client.calls, ["init_weight_transfer_engine", *["start_weight_update", "update_weights", "finish_weight_update"] * 2])
        self.assertEqual(source.reads, 4)
        with self.assertRaisesRegex(RuntimeError, "NotFoundError.*no version 9"):
            workers[0]("update_weights", info='{"version": 9}')()
        workers[0]("finish_weight_update")()
        self.assertEqual(workers[0]("summary")(), (self.expected(2), False, 6))
        with self.assertRaisesRegex(ValueError, "source: None"):
            WeightTransferTrainerFactory.trainer_init(info(rank=0), client=client)
        for worker in workers:
            worker("shutdown")()
            with self.assertRaisesRegex(RuntimeError, "init_transfer_engine comes first"):
                worker("update_weights", info='{"version": 1}')()

    def test_package_needs_neither(self):
        script = "import starling, starling.adapters, starling.objects, sys; print([name for name in sys.modules if name in ('torch', 'verl', 'vllm')])"
        done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=False, timeout=TIMEOUT, cwd="/tmp",
                              env={**os.environ, **support.PRELOAD})
        self.assertEqual((done.stdout, done.stderr), ("[]\n", ""))


if __name__ == "__main__":
    harness.main()
