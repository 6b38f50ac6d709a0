"""The training loop: batch, check, update, checkpoint, swap; in turn, or with the next batch under way meanwhile."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from durable_rollouts import RolloutClient

from .data import Group, Sequence, part_mean, versions_of
from .journal import Journal
from .policy import Learner, Policy, Ratio
from .servers import Servers

#: Float32 on both sides agrees within this; weights that were not swapped are off by a thousand times as much.
LARGEST_MEAN_LOG_RATIO = 1e-4
#: Importance weights of tokens from an older version are cut here.
TRUNCATION = 2.0


class TokensOff(Exception):
    """What the service recorded is not what this policy samples: training on it would be wrong."""


class BatchShort(Exception):
    """A batch that ended with fewer groups than wanted."""


@dataclass(frozen=True)
class Run:
    """One run: which task, and what about it is its own."""

    name: str
    seed: int
    settings: dict
    #: Batch k+1 is sampled while step k is updated.
    ahead: bool = False
    #: For the proof that a swap left out is noticed: the servers are given the old weights as the new version.
    leave_out_swap: bool = False


def tasks_of(run: Run, part: str, count: int) -> list[dict]:
    """Sums drawn by seed and part. Training draws odd first operands, held-out questions even ones."""
    low, high = run.settings["operands"]
    draw = random.Random(f"{run.settings['name']} {run.seed} {part}")
    parity = 0 if part.startswith("held-out") else 1
    firsts = [n for n in range(low, high + 1) if n % 2 == parity]
    pairs = [(draw.choice(firsts), draw.randint(low, high)) for _ in range(count)]
    return [
        {"id": f"{n}-{a}-plus-{b}", "handler": "sum-by-tool", "data": {"a": a, "b": b}}
        for n, (a, b) in enumerate(pairs)
    ]


class Loop:
    def __init__(self, run: Run, service: RolloutClient, servers: Servers, journal: Journal):
        self.run, self.service, self.servers, self.journal = run, service, servers, journal
        self.settings = run.settings
        version = journal.version
        self.policy = Learner(journal.weights(version), self.settings["learningRate"])
        self.version = version
        #: Sampled tokens of all groups that this process took.
        self.tokens = 0

    def train(self) -> None:
        self._bring(self.version)
        while self.version < self.settings["steps"] and self._step(self.version):
            pass

    def held_out(self, version: int) -> dict[str, float]:
        """
        Format and right answers on questions that training never draws, one sample each, by the policy of a version: the
        current one, or one that was asked before.
        """
        batch, count = f"{self.run.name}-held-out-{version}", self.settings["heldOut"]
        rules = {"groups": count, "oversampling": 1, "dropEqual": False}
        self._begin_batch(batch, tasks_of(self.run, "held-out", count), 1, rules)
        groups = self._take(batch, count)
        return {"call": part_mean(groups, "call") / 0.3, "answer": part_mean(groups, "answer") / 0.7}

    def _step(self, step: int) -> bool:
        """One batch, update and swap; False if no group of all that were drawn has anything to learn from."""
        began = time.monotonic()
        self._begin(step)
        rules = self.settings["rules"]
        # Where groups with equal rewards are dropped, a policy that has learnt its task leaves few of those that there are.
        groups = self._take(self._name(step), 0 if rules["dropEqual"] else rules["groups"])
        if not groups:
            say(f"{self.run.name}: nothing more to learn from: {self.service.batch(self._name(step)).counts}")
            return False
        sampled = time.monotonic()
        if self.run.ahead and step + 1 < self.settings["steps"]:
            self._begin(step + 1)
        ratio = check(groups, step, 1 if self.run.ahead else 0, self._policy_of)
        update = self.policy.update(groups, tuple(self.settings["clip"]), TRUNCATION)
        updated = time.monotonic()
        counts = self.service.batch(self._name(step), wait=30).counts
        row = {
            "version": step + 1,
            "reward": part_mean(groups),
            #: Of all groups that ended, dropped ones too.
            "rewardDrawn": counts.reward_mean,
            "call": part_mean(groups, "call") / 0.3,
            "answer": part_mean(groups, "answer") / 0.7,
            "uniform": sum(group.uniform for group in groups),
            "dropped": counts.dropped,
            "groups": [group.id for group in groups],
            "ratio": ratio.mean,
            "largestRatio": ratio.largest,
            "sampledTokens": tokens_of(groups),
            "staleness": step - min(versions_of(groups)),
            **update,
            "seconds": {"sampling": sampled - began, "update": updated - sampled},
        }
        self.policy.save(self.journal.checkpoints / str(step + 1), row)
        self.version = step + 1
        self._bring(self.version)
        self.journal.close_step()
        say(
            f"{self.run.name} step {step + 1}: reward {row['reward']:.2f} (all drawn {counts.reward_mean:.2f}, call "
            f"{row['call']:.2f}, answer {row['answer']:.2f}), |log ratio| {ratio.mean:.1e} at most {ratio.largest:.1e}, stale {row['staleness']}, "
            f"{sampled - began:.1f} s sampling, {updated - sampled:.1f} s update, "
            f"{time.monotonic() - updated:.1f} s swap"
        )
        return True

    def _policy_of(self, version: int) -> Policy:
        """The weights that a version was sampled with: this policy's own, or those of the checkpoint before."""
        return self.policy if version == self.version else Policy(self.journal.weights(version))

    def _bring(self, version: int) -> None:
        """Brings the servers to a version; after a crash they may be there already, or one behind."""
        if self.service.pool().version == version:
            return
        self.servers.bring(version, self.journal.weights(version - 1 if self.run.leave_out_swap else version))

    def _name(self, step: int) -> str:
        return f"{self.run.name}-{step}"

    def _begin(self, step: int) -> None:
        tasks = tasks_of(self.run, f"step-{step}", self.settings["tasksPerStep"])
        self._begin_batch(self._name(step), tasks, self.settings["samples"], self.settings["rules"])

    def _begin_batch(self, batch: str, tasks: list[dict], samples: int, rules: dict) -> None:
        """The same call again begins nothing new."""
        group = {"samples": samples, "overlong": {"mode": "keep"}}
        rollout = self.settings["rollout"]
        self.service.begin_batch([{"tasks": tasks}], rules, group=group, rollout=rollout, key=batch)

    def _take(self, batch: str, wanted: int) -> list[Group]:
        """Waits for the groups of a batch. Raises BatchShort if it ends with fewer than are wanted."""
        taken = list(self.service.batch_groups(batch, trajectories=True))
        if len(taken) < wanted:
            raise BatchShort(f"batch {batch} has {len(taken)} of {wanted} groups: {self.service.batch(batch).counts}")
        groups = [
            Group(one.group_id, [Sequence.of(line) for sample in one.samples if sample.train for line in sample.trajectories])
            for one in taken
        ]
        self.tokens += tokens_of(groups)
        return groups


def check(groups: list[Group], version: int, allowed: int, policy_of: Callable[[int], Policy]) -> Ratio:
    """
    How exact the log-probabilities of a batch are: of each sampled token, by the weights of the version that it is said to be
    of. Raises TokensOff if they are not those weights', or tokens are more than `allowed` versions old.
    """
    versions = versions_of(groups)
    if not version - allowed <= min(versions) <= max(versions) <= version:
        raise TokensOff(f"tokens are of versions {sorted(versions)}, where {version} is current and may be {allowed} behind")
    ratios = []
    for of in sorted(versions):
        ratio = policy_of(of).ratio(groups, of)
        if ratio.mean > LARGEST_MEAN_LOG_RATIO:
            raise TokensOff(
                f"mean |log ratio| of version {of} is {ratio.mean:.2e} (at most {LARGEST_MEAN_LOG_RATIO:.0e}): "
                "the servers do not sample with these weights"
            )
        ratios.append(ratio)
    return Ratio.of_all(ratios)


def tokens_of(groups: list[Group]) -> int:
    return sum(one.sampled for group in groups for one in group.sequences)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
