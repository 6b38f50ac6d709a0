"""Trajectories as numbers: what a record of the service means for the loss."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from durable_rollouts.models import Trajectory


@dataclass(frozen=True)
class Sequence:
    """One line of a trajectory, cut down to what the loss needs. The last three lists are aligned with `output`."""

    rollout: str
    prompt: list[int]
    output: list[int]
    logprobs: list[float]
    mask: list[int]
    versions: list[int]
    reward: float
    parts: dict[str, float]

    @staticmethod
    def of(line: Trajectory) -> Sequence:
        return Sequence(
            rollout=line.rollout_id,
            prompt=line.input_ids,
            output=line.output_ids,
            logprobs=line.logprobs,
            mask=line.loss_mask,
            versions=line.policy_versions,
            reward=line.reward.total,
            parts=line.reward.parts,
        )

    @property
    def sampled(self) -> int:
        return sum(self.mask)


@dataclass(frozen=True)
class Group:
    """All samples of one task."""

    id: str
    sequences: list[Sequence]

    @property
    def uniform(self) -> bool:
        """Equal rewards give no gradient."""
        return len({one.reward for one in self.sequences}) == 1

    def advantages(self) -> list[float]:
        """(reward - mean) / deviation over the group, as in GRPO."""
        rewards = [one.reward for one in self.sequences]
        mean, deviation = fmean(rewards), pstdev(rewards)
        return [(reward - mean) / (deviation + 1e-6) for reward in rewards]


def part_mean(groups: list[Group], part: str | None = None) -> float:
    """Mean reward, or mean of one of its parts."""
    return fmean(
        one.reward if part is None else one.parts[part] for group in groups for one in group.sequences
    )


def versions_of(groups: list[Group]) -> set[int]:
    """Policy versions of the sampled tokens."""
    return {v for group in groups for one in group.sequences for v, m in zip(one.versions, one.mask) if m}
