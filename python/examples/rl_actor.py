#!/usr/bin/env python3
"""An actor of rl_trainer.py: plays CartPole with the newest policy, and publishes what happened. Needs NumPy alone.

    python3 rl_actor.py --catalogue 127.0.0.1:7000 --task 1      # the trainer prints its catalogue

It plays 64 steps in 8 environments for each version that it sees; versions that appear meanwhile are skipped.
"""

import argparse
import os
import sys
import time

import numpy

import starling.objects

POLICY, ROLLOUTS = "rl/policy", "rl/rollouts/"  # names: of the policy; of an actor's rollouts, before its task
DONE = "done"  # note of the last version
ENVIRONMENTS, STEPS, LAYERS = 8, 64, 3
WAIT_S = 60.0  # longest wait for the next version


class CartPoles:
    """Environments of CartPole-v1: push a cart left (0) or right (1), so that the pole on it stays up.

    state (environments, 4): position and velocity of the cart, in m and m/s, angle and angular velocity of the pole. A
    step gives reward 1. An episode ends at 2.4 m, at 12 degrees, or after 500 steps; then a new one begins.
    """

    def __init__(self, count, seed):
        self.random = numpy.random.default_rng(seed)
        self.state, self.age = self.random.uniform(-0.05, 0.05, (count, 4)), numpy.zeros(count, numpy.int64)

    def step(self, action):
        """Returns which episodes ended, and their lengths."""
        gravity, cart, pole, half_length, push, dt = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02  # m/s^2, kg, kg, m, N, s
        x, v, angle, spin = self.state.T
        force, sine, cosine = numpy.where(action == 1, push, -push), numpy.sin(angle), numpy.cos(angle)
        common = (force + pole * half_length * spin**2 * sine) / (cart + pole)
        turn = (gravity * sine - cosine * common) / (half_length * (4 / 3 - pole * cosine**2 / (cart + pole)))
        move = common - pole * half_length * turn * cosine / (cart + pole)
        self.state = numpy.stack([x + dt * v, v + dt * move, angle + dt * spin, spin + dt * turn], 1)
        self.age += 1
        ended = (abs(self.state[:, 0]) > 2.4) | (abs(self.state[:, 2]) > numpy.radians(12)) | (self.age >= 500)
        lengths = self.age[ended]
        self.state[ended] = self.random.uniform(-0.05, 0.05, (len(lengths), 4))
        self.age[ended] = 0
        return ended, lengths


def forward(network, states):
    """Returns the values of all layers, (rows, columns) each, of which the last one is the output."""
    values = [states]
    for layer in range(LAYERS):
        output = values[-1] @ network[f"weight.{layer}"] + network[f"bias.{layer}"]
        values.append(numpy.tanh(output) if layer < LAYERS - 1 else output)
    return values


def log_softmax(logits):
    shifted = logits - logits.max(1, keepdims=True)
    return shifted - numpy.log(numpy.exp(shifted).sum(1, keepdims=True))


def play(carts, policy):
    """Returns the rollout of STEPS steps as arrays, with the returns of the episodes that ended."""
    states = numpy.zeros((STEPS + 1, ENVIRONMENTS, 4), numpy.float32)
    actions, ended = (numpy.zeros((STEPS, ENVIRONMENTS), dtype) for dtype in (numpy.int8, bool))
    scores, episodes = numpy.zeros((STEPS, ENVIRONMENTS), numpy.float32), []
    for step in range(STEPS):
        states[step] = carts.state
        logs = log_softmax(forward(policy, states[step])[-1])
        actions[step] = carts.random.random(ENVIRONMENTS) < numpy.exp(logs[:, 1])
        scores[step] = logs[range(ENVIRONMENTS), actions[step]]
        ended[step], lengths = carts.step(actions[step])
        episodes.extend(lengths)
    states[STEPS] = carts.state
    return {"states": states, "actions": actions, "log_probabilities": scores, "ended": ended,
            "episodes": numpy.array(episodes, numpy.float32)}


def follow(node, task):
    """Plays until the last version."""
    carts = CartPoles(ENVIRONMENTS, seed=task)
    for got in node.follow(POLICY, timeout=WAIT_S):
        rollout = play(carts, got.tensors)
        age = node.staleness(POLICY)
        rollout["staleness"] = numpy.array([age.behind_mean, 1000 * age.behind_seconds_mean, age.opened, age.skipped])
        node.publish(ROLLOUTS + str(task), rollout, note=str(got.version), take_over=True)
        if got.note == DONE:
            time.sleep(1)  # without an agent this process serves the rollout: the trainer fetches it meanwhile
            return


def act(catalogue, task):
    """The actor with this number. catalogue: None: that of starling-launch --objects."""
    try:
        with starling.objects.connect(catalogue) as node:
            follow(node, task)
    except starling.DeadlineError as error:
        sys.exit(f"actor {task}: {error}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--catalogue", metavar="HOST:PORT", help="that of the trainer; default: that of starling-launch --objects")
    parser.add_argument("--task", type=int, default=int(os.environ.get("RANK", 1)), help="number of this actor, from 1")
    args = parser.parse_args()
    act(args.catalogue, args.task)


if __name__ == "__main__":
    main()
