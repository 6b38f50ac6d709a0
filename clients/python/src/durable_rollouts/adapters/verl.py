"""
verl: the fields of `AgentLoopOutput` (verl/experimental/agent_loop/agent_loop.py, 0.9.1), and of the DataProto that its
agent loops make of several.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from ..models import Trajectory
from .sequence import TrainingSequence


def agent_loop_output(sequence: TrainingSequence) -> dict[str, Any]:
    """Of one rollout: `AgentLoopOutput(**agent_loop_output(sequence))` is what an AgentLoopBase's `run` returns."""
    line = sequence.line
    sampling, tools = sequence.seconds
    oldest, newest = line.sampled_versions or (None, None)
    return {
        "prompt_ids": sequence.prompt_ids,
        "response_ids": sequence.response_ids,
        "response_mask": sequence.mask,
        "response_logprobs": sequence.logprobs,
        "reward_score": sequence.reward,
        "num_turns": num_turns(line),
        "metrics": {"generate_sequences": sampling, "tool_calls": tools},
        "extra_fields": {
            "reward_extra_info": dict(line.reward.parts) if line.reward else {},
            # verl's global step is the policy version here.
            "min_global_steps": oldest,
            "max_global_steps": newest,
            "rollout_id": line.rollout_id,
            "truncated": sequence.truncated,
        },
    }


def num_turns(line: Trajectory) -> int:
    """As verl's tool agent loop counts: the prompt, what the policy said, and what tools answered."""
    return 1 + sum(1 + (turn.observed[1] > turn.observed[0]) for turn in line.turns)


def data_proto(sequences: Sequence[TrainingSequence], pad_token_id: int) -> dict[str, dict[str, list[Any]]]:
    """
    `tensors` and `non_tensors` as `DataProto.from_dict` takes them, once each list of the first is a tensor: prompts padded
    on the left, responses on the right, the reward at the response's last token (`rm_scores`). `uid` is the task's group.
    """
    prompt_width = max(len(one.prompt_ids) for one in sequences)
    response_width = max(len(one.response_ids) for one in sequences)
    rows = [_row(one, prompt_width, response_width, pad_token_id) for one in sequences]
    return {
        "tensors": {name: [row[name] for row in rows] for name in rows[0]},
        "non_tensors": {
            "uid": [one.line.group_id or one.line.task.id for one in sequences],
            "__num_turns__": [num_turns(one.line) for one in sequences],
            "rollout_id": [one.line.rollout_id for one in sequences],
        },
    }


def _row(one: TrainingSequence, prompt_width: int, response_width: int, pad: int) -> dict[str, list[Any]]:
    before = prompt_width - len(one.prompt_ids)
    length = len(one.response_ids)
    after = response_width - length
    prompt = [pad] * before + one.prompt_ids
    response = one.response_ids + [pad] * after
    attended = [0] * before + [1] * (len(one.prompt_ids) + length) + [0] * after
    return {
        "prompts": prompt,
        "responses": response,
        "response_mask": one.mask + [0] * after,
        "input_ids": prompt + response,
        "attention_mask": attended,
        # Places among the attended tokens; 0 for padding before them, the last place for padding after.
        "position_ids": [max(0, seen - 1) for seen in accumulate(attended)],
        "rollout_log_probs": one.logprobs + [0.0] * after,
        "rm_scores": [one.reward if place == length - 1 else 0.0 for place in range(response_width)],
    }
