"""SkyRL: the `GeneratorOutput` of skyrl/train/generators/base.py (0.3.0), whole trajectories rather than steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .sequence import TrainingSequence


def generator_output(sequences: Sequence[TrainingSequence]) -> dict[str, Any]:
    """
    In the order of the input batch. `trajectory_ids` are SkyRL's own objects: put the batch's in where step-wise training
    or its asynchronous trainer wants them.
    """
    return {
        "prompt_token_ids": [one.prompt_ids for one in sequences],
        "response_ids": [one.response_ids for one in sequences],
        "rewards": [one.reward for one in sequences],
        "loss_masks": [one.mask for one in sequences],
        "stop_reasons": ["length" if one.truncated else "stop" for one in sequences],
        "rollout_metrics": None,
        "rollout_logprobs": [one.logprobs for one in sequences],
        "trajectory_ids": None,
        "trajectory_generation_times": [sum(one.seconds) for one in sequences],
        "rollout_expert_indices": None,
        "is_last_step": None,
        "env_metrics": [dict(one.line.reward.parts) if one.line.reward else {} for one in sequences],
        "pixel_values": None,
        "image_grid_thw": None,
    }
