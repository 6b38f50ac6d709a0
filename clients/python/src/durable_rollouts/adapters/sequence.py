"""What every trainer needs of a line, whatever it calls it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..models import Group, Trajectory


class Ungraded(ValueError):
    """A line without a reward: its rollout was cancelled or failed, and that is not a reward of 0."""


@dataclass(frozen=True)
class TrainingSequence:
    """A graded line. `mask` is 1 for the tokens to train on; `logprobs` and `mask` are aligned with the response."""

    line: Trajectory
    reward: float
    #: False: it counts for its group, and no token of it is trained on.
    train: bool = True

    @property
    def prompt_ids(self) -> list[int]:
        return self.line.input_ids

    @property
    def response_ids(self) -> list[int]:
        return self.line.output_ids

    @property
    def logprobs(self) -> list[float]:
        return self.line.logprobs

    @property
    def mask(self) -> list[int]:
        return self.line.loss_mask if self.train else [0] * len(self.line.loss_mask)

    @property
    def truncated(self) -> bool:
        return self.line.truncated is not None

    @property
    def seconds(self) -> tuple[float, float]:
        """Spent on sampling, and on tools."""
        turns = self.line.turns
        tools = sum(call.ms or 0 for turn in turns for call in turn.tool_calls)
        return sum(turn.generate_ms for turn in turns) / 1000, tools / 1000


def of_lines(lines: Iterable[Trajectory]) -> list[TrainingSequence]:
    """Raises Ungraded naming a rollout that has no reward."""
    sequences = []
    for line in lines:
        if line.reward is None:
            raise Ungraded(f"rollout {line.rollout_id} has no reward: it ended as {line.finish_reason}")
        sequences.append(TrainingSequence(line, line.reward.total))
    return sequences


def of_group(group: Group) -> list[TrainingSequence]:
    """
    All samples with a reward, as the group's rules shaped it. The group must have come with its trajectories.
    """
    sequences = []
    for sample in group.samples:
        if sample.trajectories is None:
            raise ValueError(f"group {group.group_id} came without trajectories: ask for them")
        if sample.shaped is not None:
            sequences += [TrainingSequence(line, sample.shaped, sample.train) for line in sample.trajectories]
    return sequences
