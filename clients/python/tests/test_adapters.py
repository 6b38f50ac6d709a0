"""What the adapters give, against the trainers' own types where these run, else against their sources."""

import ast
import typing

import pydantic
import pytest
from sources import function, parsed, subscripts, taken

from durable_rollouts.adapters import TrainingSequence, of_lines, openrlhf, skyrl, trl, verl


@pytest.fixture
def pair(line) -> list[TrainingSequence]:
    """A real sequence, and one that a limit cut: shorter, and masked by its group's rules."""
    short = {"output_ids": 5, "logprobs": 5, "loss_mask": 5, "policy_versions": 5}
    cut = {name: getattr(line, name)[:length] for name, length in short.items()}
    cut_line = line.model_copy(update={**cut, "input_ids": line.input_ids[:-3], "truncated": "tokens"})
    return [*of_lines([line]), TrainingSequence(cut_line, 0.25, train=False)]


def tokens(pair):
    """Sampled tokens with their log-probabilities, of the first: what every form must agree on."""
    line = pair[0].line
    return [(i, p) for i, p, sampled in zip(line.output_ids, line.logprobs, line.loss_mask) if sampled]


def test_verl_agent_loop_output(pair):
    module = parsed("verl", "experimental/agent_loop/agent_loop.py")
    given = {"BaseModel": pydantic.BaseModel, "Optional": typing.Optional, "Any": typing.Any}
    kind = taken(module, ["AgentLoopMetrics", "AgentLoopOutput"], given)["AgentLoopOutput"]
    fields = verl.agent_loop_output(pair[0])
    assert fields.keys() <= kind.model_fields.keys()
    output = kind(**fields)
    assert output.model_dump(include=fields.keys())["response_ids"] == pair[0].line.output_ids
    sampled = zip(output.response_ids, output.response_logprobs, output.response_mask)
    assert [(i, p) for i, p, mask in sampled if mask] == tokens(pair)
    assert output.reward_score == pair[0].line.reward.total
    assert output.num_turns == 4  # prompt, call, result, answer
    assert output.metrics.generate_sequences > 0
    assert sum(kind(**verl.agent_loop_output(pair[1])).response_mask) == 0


def test_verl_data_proto(pair):
    made = verl.data_proto(pair, pad_token_id=9)
    tensors = made["tensors"]
    (first, second) = (pair[0].line, pair[1].line)
    assert {len(row) for row in tensors["input_ids"]} == {len(first.input_ids) + len(first.output_ids)}
    assert tensors["prompts"][1] == [9, 9, 9] + second.input_ids
    assert tensors["responses"][1][:6] == second.output_ids + [9]
    assert tensors["attention_mask"][1][:4] == [0, 0, 0, 1]
    assert tensors["position_ids"][1][:5] == [0, 0, 0, 0, 1]
    width = len(first.input_ids)
    rewards = [(place, reward) for place, reward in enumerate(tensors["rm_scores"][1]) if reward]
    assert rewards == [(4, 0.25)] and tensors["attention_mask"][1][width + 4 : width + 6] == [1, 0]
    assert made["non_tensors"]["uid"] == [first.group_id, second.group_id]
    module = parsed("verl", "experimental/agent_loop/agent_loop.py")
    written = {ast.unparse(node) for node in ast.walk(function(module, "_postprocess")) if isinstance(node, ast.Constant)}
    assert {repr(name) for name in tensors} <= written


def test_trl_rollout_func(pair):
    made = trl.rollout_output(pair)
    module = parsed("trl", "trainer/grpo_trainer.py")
    generate = function(module, "_generate")
    (required,) = [
        ast.literal_eval(node.value)
        for node in ast.walk(generate)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "required_keys"
    ]
    assert required <= made.keys()
    assert "extra_fields.pop('env_mask', None)" in ast.unparse(generate)
    sampled = zip(made["completion_ids"][0], made["logprobs"][0], made["env_mask"][0])
    assert [(i, p) for i, p, mask in sampled if mask] == tokens(pair)
    assert trl.recorded_reward(prompts=[], completions=[], **made) == [pair[0].reward, 0.25]
    assert (sum(made["env_mask"][1]), made["truncated"]) == (0, [False, True])


class Numbers:
    """As much of numpy as SkyRL's check uses."""

    @staticmethod
    def concatenate(rows):
        class Whole(list):
            def sum(self):
                return sum(self)

        return Whole(number for row in rows for number in row)


def test_skyrl_generator_output(pair):
    made = skyrl.generator_output(pair)
    module = parsed("skyrl", "train/generators/base.py")
    (kind,) = [node for node in module.body if getattr(node, "name", None) == "GeneratorOutput"]
    assert list(made) == [node.target.id for node in kind.body if isinstance(node, ast.AnnAssign)]
    check = taken(
        parsed("skyrl", "train/utils/trainer_utils.py"),
        ["validate_generator_output"],
        {"GeneratorOutput": dict, "np": Numbers},
    )["validate_generator_output"]
    check(2, made)
    with pytest.raises(AssertionError, match="rollout logprobs"):
        check(2, {**made, "rollout_logprobs": [[0.0], [0.0]]})
    assert (made["stop_reasons"], made["rewards"]) == (["stop", "length"], [pair[0].reward, 0.25])
    sampled = zip(made["response_ids"][0], made["rollout_logprobs"][0], made["loss_masks"][0])
    assert [(i, p) for i, p, mask in sampled if mask] == tokens(pair)


def test_openrlhf_agent_response(pair):
    made = openrlhf.agent_response(pair[0], "What is 14 times 6?", "84")
    samples = parsed("openrlhf", "trainer/ppo_utils/samples_generator.py")
    read = subscripts(function(samples, "_process_response_into_experience"), "response")
    assert {"observation_tokens", "action_ranges", "rollout_log_probs", "truncated"} <= read <= made.keys()
    everything = list(zip(made["observation_tokens"], made["rollout_log_probs"], strict=True))
    sampled = [pair_ for start, end in made["action_ranges"] for pair_ in everything[start:end]]
    assert sampled == tokens(pair)
    assert len(made["action_ranges"]) == len(pair[0].line.turns)
    masked = openrlhf.agent_response(pair[1], "", "")
    assert (masked["action_ranges"], masked["truncated"], masked["reward"]) == ([], True, 0.25)
