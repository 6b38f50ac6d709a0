"""
TRL's GRPOTrainer: what its `rollout_func` returns, and a reward function that hands on what was graded. TRL has no type
for it; names as in trl/trainer/grpo_trainer.py (1.16.0), `_generate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

from .sequence import TrainingSequence


class RolloutOutput(TypedDict):
    """One entry per completion, in the order of the prompts. What TRL does not know goes to the reward functions."""

    prompt_ids: list[list[int]]
    completion_ids: list[list[int]]
    logprobs: list[list[float]]
    #: 1 for tokens of the policy, 0 for those of tools and template.
    env_mask: list[list[int]]
    recorded_reward: list[float]
    rollout_id: list[str]
    truncated: list[bool]


def rollout_output(sequences: Sequence[TrainingSequence]) -> RolloutOutput:
    return {
        "prompt_ids": [one.prompt_ids for one in sequences],
        "completion_ids": [one.response_ids for one in sequences],
        "logprobs": [one.logprobs for one in sequences],
        "env_mask": [one.mask for one in sequences],
        "recorded_reward": [one.reward for one in sequences],
        "rollout_id": [one.line.rollout_id for one in sequences],
        "truncated": [one.truncated for one in sequences],
    }


def recorded_reward(recorded_reward: list[float], **_: Any) -> list[float]:
    """For `reward_funcs`: the rewards of `rollout_output`."""
    return recorded_reward
