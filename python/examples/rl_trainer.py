#!/usr/bin/env python3
"""Learns CartPole by proximal policy optimization (Schulman et al., 2017): publishes the policy, which actors follow, and learns
from the rollouts that they publish. Needs NumPy alone.

    starling-launch --ps 1 --workers 9 --objects --agents -- python3 rl_trainer.py    # worker 0 trains, 8 are actors
    python3 rl_trainer.py --actors 2                                                  # prints the command of an actor

An update needs the rollouts of half of the actors: the others may be late.
"""

import argparse
import collections
import contextlib
import os
import queue
import sys
import threading
import time

import numpy
import rl_actor
from rl_actor import DONE, ENVIRONMENTS, LAYERS, POLICY, ROLLOUTS, STEPS, WAIT_S, forward, log_softmax

import starling.objects

HIDDEN = 64
DISCOUNT, SMOOTHING = 0.99, 0.95  # of rewards; of generalized advantage estimation (Schulman et al., 2015)
RATE, PASSES, BATCH, CLIP, ENTROPY = 1e-3, 6, 512, 0.2, 0.005


class Network:
    """A perceptron with two hidden layers, and its Adam optimizer (Kingma and Ba, 2014)."""

    def __init__(self, random, outputs):
        sizes = [4, HIDDEN, HIDDEN, outputs]
        self.weights = {}
        for layer, (rows, columns) in enumerate(zip(sizes, sizes[1:])):
            scale = 0.01 if layer == LAYERS - 1 else 1 / numpy.sqrt(rows)
            self.weights[f"weight.{layer}"] = random.normal(0, scale, (rows, columns)).astype(numpy.float32)
            self.weights[f"bias.{layer}"] = numpy.zeros(columns, numpy.float32)
        self.means, self.squares = ({name: numpy.zeros_like(each) for name, each in self.weights.items()} for _ in range(2))
        self.steps = 0

    def learn(self, values, gradient):
        """One step down. values: of forward; gradient: of the loss by the last of them."""
        self.steps += 1
        rate = RATE * numpy.sqrt(1 - 0.999**self.steps) / (1 - 0.9**self.steps)
        for layer in reversed(range(LAYERS)):
            found = {f"weight.{layer}": values[layer].T @ gradient, f"bias.{layer}": gradient.sum(0)}
            gradient = (gradient @ self.weights[f"weight.{layer}"].T) * (1 - values[layer]**2)
            for name, each in found.items():
                self.means[name] += 0.1 * (each - self.means[name])
                self.squares[name] += 0.001 * (each**2 - self.squares[name])
                self.weights[name] -= rate * self.means[name] / (numpy.sqrt(self.squares[name]) + 1e-8)


def estimate(critic, rollout):
    """Returns advantages and targets of the critic, (steps, environments)."""
    values = forward(critic.weights, rollout["states"].reshape(-1, 4))[-1].reshape(STEPS + 1, ENVIRONMENTS)
    goes_on = 1 - rollout["ended"].astype(numpy.float32)
    advantages, later = numpy.zeros((STEPS, ENVIRONMENTS), numpy.float32), 0
    for step in reversed(range(STEPS)):
        surprise = 1 + DISCOUNT * goes_on[step] * values[step + 1] - values[step]
        advantages[step] = later = surprise + DISCOUNT * SMOOTHING * goes_on[step] * later
    return advantages, advantages + values[:-1]


def learn(actor, critic, rollouts, random):
    """One update. Actors had other versions of the policy: their probabilities are in the rollouts."""
    advantages, targets = (numpy.concatenate([each.reshape(-1) for each in column])
                           for column in zip(*(estimate(critic, rollout) for rollout in rollouts)))
    states, actions, scores = (numpy.concatenate([rollout[name][:STEPS].reshape(STEPS * ENVIRONMENTS, -1) for rollout in rollouts])
                               for name in ("states", "actions", "log_probabilities"))
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    for _ in range(PASSES):
        order = random.permutation(len(states))
        for rows in (order[begin:begin + BATCH] for begin in range(0, len(order), BATCH)):
            values = forward(actor.weights, states[rows])
            logs = log_softmax(values[-1])
            probabilities, chosen = numpy.exp(logs), numpy.eye(2, dtype=numpy.float32)[actions[rows, 0]]
            ratio = numpy.exp((logs * chosen).sum(1) - scores[rows, 0])
            is_clipped = numpy.where(advantages[rows] > 0, ratio > 1 + CLIP, ratio < 1 - CLIP)
            by_log = numpy.where(is_clipped, 0, -ratio * advantages[rows])[:, None]
            by_entropy = probabilities * (logs - (probabilities * logs).sum(1, keepdims=True))
            actor.learn(values, (by_log * (chosen - probabilities) + ENTROPY * by_entropy) / len(rows))
            values = forward(critic.weights, states[rows])
            critic.learn(values, (values[-1] - targets[rows, None]) / len(rows))


class Rollouts:
    """The rollouts of all actors: a thread follows each actor."""

    def __init__(self, node, actors):
        self.arrived, self.staleness, self.rewards = queue.Queue(), {}, collections.deque(maxlen=100)
        self.first_rewards = []  # of the first 100 episodes
        self.episodes = 0
        for task in range(1, actors + 1):
            threading.Thread(target=self._follow, args=(node, task), daemon=True, name=f"actor-{task}").start()

    def _follow(self, node, task):
        try:
            for got in node.follow(ROLLOUTS + str(task)):
                self.arrived.put((task, int(got.note), got.tensors))
        except starling.ClosedError:
            pass  # the job has ended

    def take_all(self, least):
        """Returns those that have arrived, and waits until there are enough."""
        found = [self.take() for _ in range(least)]
        return found + [self.take() for _ in range(self.arrived.qsize())]

    def take(self, wait_s=WAIT_S):
        """Waits for the next rollout, and returns the actor, the version that it used, and the rollout. Raises queue.Empty."""
        task, version, rollout = self.arrived.get(timeout=wait_s)
        self.staleness[task] = rollout["staleness"]
        self.rewards.extend(rollout["episodes"])
        self.first_rewards.extend(rollout["episodes"][:100 - len(self.first_rewards)])
        self.episodes += len(rollout["episodes"])
        return task, version, rollout


def report(args, update, begun, rollouts, lags):
    versions, milliseconds = numpy.mean([age[:2] for age in rollouts.staleness.values()], 0)
    print(f"{time.monotonic() - begun:4.0f} s, update {update}: {rollouts.episodes} episodes, mean reward of the last "
          f"{len(rollouts.rewards)} {numpy.mean(rollouts.rewards or [0]):.1f}; policy of an actor {versions:.2f} versions, {milliseconds:.1f} ms "
          f"behind; rollouts {numpy.mean(lags):.2f} versions old", flush=True)


def train(args, node):
    random = numpy.random.default_rng(args.seed)
    actor, critic = Network(random, 2), Network(random, 1)
    rollouts, lags = Rollouts(node, args.actors), collections.deque(maxlen=100)
    begun = printed = time.monotonic()
    version, update = node.publish(POLICY, actor.weights, note="update 0", take_over=True), 0
    while update < args.updates and time.monotonic() - begun < args.seconds:
        taken = rollouts.take_all((args.actors + 1) // 2)
        lags.extend(version - used for _, used, _ in taken)
        learn(actor, critic, [rollout for _, _, rollout in taken], random)
        version, update = node.publish(POLICY, actor.weights, note=f"update {update + 1}"), update + 1
        if time.monotonic() - printed > 3:
            printed = time.monotonic()
            report(args, update, begun, rollouts, lags)
    version, left = node.publish(POLICY, actor.weights, note=DONE), set(range(1, args.actors + 1))
    with contextlib.suppress(queue.Empty):
        while left:  # each actor that still runs plays the last version too
            task, used, _ = rollouts.take(10)
            left -= {task} if used == version else set()
    report(args, update, begun, rollouts, lags)
    finish(node, rollouts, update + 2)


def finish(node, rollouts, count):
    """Prints what was learned and moved."""
    opened, skipped = numpy.sum([age[2:] for age in rollouts.staleness.values()], 0)
    each_kb = node.versions(POLICY)[-1].bytes / 1000
    print(f"mean reward of the first {len(rollouts.first_rewards)} episodes {numpy.mean(rollouts.first_rewards or [0]):.1f}, of the last "
          f"{len(rollouts.rewards)} {numpy.mean(rollouts.rewards or [0]):.1f}")
    print(f"{count} versions of {each_kb:.1f} KB; {len(rollouts.staleness)} actors used {opened:.0f} and skipped {skipped:.0f}")
    if os.environ.get("STARLING_OBJECTS_AGENT"):
        print(f"copied to the pool of this host: {count * each_kb:.0f} KB; without an agent: {opened * each_kb:.0f} KB, "
              f"{(opened - count) * each_kb:.0f} KB more")
    else:
        print(f"fetched by actors: {opened * each_kb:.0f} KB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--actors", type=int, default=int(os.environ.get("WORLD_SIZE", 9)) - 1, help="number of actors")
    parser.add_argument("--seconds", type=float, default=30, help="longest time to train")
    parser.add_argument("--updates", type=int, default=1000000, help="most updates")
    parser.add_argument("--seed", type=int, default=1, help="of first weights")
    args = parser.parse_args()
    if int(os.environ.get("RANK", 0)) > 0:
        rl_actor.act(None, int(os.environ["RANK"]))
        return
    if args.actors < 1:
        parser.error(f"--actors {args.actors}; accepted: 1 or more; starling-launch needs --workers 2 or more")
    with starling.objects.serve() as node:
        is_host = "STARLING_OBJECTS_CATALOGUE" not in os.environ
        if is_host:
            print(f"python3 rl_actor.py --catalogue {node.catalogue} --task TASK      # TASK: 1 to {args.actors}", flush=True)
        try:
            train(args, node)
        except queue.Empty:
            sys.exit(f"no rollout within {WAIT_S:.0f} s; start actors, or look at their output")
        time.sleep(2 * is_host)  # actors end before their catalogue


if __name__ == "__main__":
    main()
