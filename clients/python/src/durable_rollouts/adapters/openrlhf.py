"""
OpenRLHF: what the `execute` of an AgentExecutorBase returns; names as in openrlhf/utils/agent.py and as
openrlhf/trainer/ppo_utils/samples_generator.py (0.11.2) reads them.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from .sequence import TrainingSequence


def agent_response(sequence: TrainingSequence, prompt: str, label: str) -> dict[str, Any]:
    """`prompt` and `label` are those that `execute` was called with: OpenRLHF gets them back."""
    prompt_ids, line = sequence.prompt_ids, sequence.line
    return {
        "prompt": prompt,
        "label": label,
        "images": None,
        "mm_train_inputs": None,
        "reward": sequence.reward,
        "scores": sequence.reward,
        "observation_tokens": prompt_ids + sequence.response_ids,
        "action_ranges": sampled_ranges(sequence.mask, len(prompt_ids)),
        "rollout_log_probs": [0.0] * len(prompt_ids) + sequence.logprobs,
        "truncated": sequence.truncated,
        "extra_logs": dict(line.reward.parts) if line.reward else {},
    }


def sampled_ranges(mask: list[int], offset: int) -> list[tuple[int, int]]:
    """Half-open ranges of mask 1, counted from `offset`."""
    ranges = []
    for sampled, run in groupby(enumerate(mask, offset), key=lambda each: each[1]):
        if sampled:
            places = [place for place, _ in run]
            ranges.append((places[0], places[-1] + 1))
    return ranges
