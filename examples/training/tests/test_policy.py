"""Needs torch and transformers, which the training environment has."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from trainer.data import Group, Sequence  # noqa: E402
from trainer.loop import TokensOff, check  # noqa: E402
from trainer.policy import Learner, Policy  # noqa: E402


@pytest.fixture
def policy(tmp_path):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4
    )
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "base")
    return Learner(tmp_path / "base", 1e-2)


def plain(policy, prompt, output):
    """Log-probabilities by one whole forward pass, nothing shared and nothing padded."""
    with torch.no_grad():
        logits = policy.model(torch.tensor([prompt + output])).logits[0]
    every = logits.log_softmax(1)
    return [every[len(prompt) - 1 + at, token].item() for at, token in enumerate(output)]


def group_of(policy, outputs, rewards):
    prompt = [3, 9, 27, 17]
    return Group(
        "g",
        [
            Sequence("r", prompt, output, plain(policy, prompt, output), [1] * len(output), [0] * len(output), reward, {})
            for output, reward in zip(outputs, rewards)
        ],
    )


OUTPUTS = [[5, 6, 7], [8], [1, 2, 3, 4, 5, 6], [7, 7]]


def test_a_shared_prompt_and_padding_change_no_log_probability(policy):
    ratio = policy.ratio([group_of(policy, OUTPUTS, [0, 0, 1, 1])], 0)
    assert ratio.tokens == 12
    assert ratio.largest < 1e-5


def test_only_sampled_tokens_of_the_version_are_compared(policy):
    group = group_of(policy, OUTPUTS, [0, 0, 1, 1])
    group.sequences[0].logprobs[1] -= 0.5
    assert policy.ratio([group], 0).largest == pytest.approx(0.5, abs=1e-4)
    group.sequences[0].mask[1] = 0
    assert policy.ratio([group], 0).largest < 1e-5


def test_an_update_raises_what_was_better_and_lowers_what_was_worse(policy):
    group = group_of(policy, OUTPUTS, [0, 0, 1, 1])
    before = policy.logprobs(group.sequences).sum(1)
    policy.update([group], (0.2, 0.28), 2.0)
    after = policy.logprobs(group.sequences).sum(1)
    assert [(b > a).item() for a, b in zip(before, after)] == [False, False, True, True]


def test_weights_that_the_servers_did_not_get_are_noticed(policy):
    group = group_of(policy, OUTPUTS, [0, 0, 1, 1])
    assert check([group], 0, 0, lambda _: policy).tokens == 12
    with pytest.raises(TokensOff, match=r"versions \[0\], where 1 is current and may be 0 behind"):
        check([group], 1, 0, lambda _: policy)
    policy.update([group], (0.2, 0.28), 2.0)
    # As with --leave-out-swap: what the servers sampled is called the new version's.
    for one in group.sequences:
        one.versions[:] = [1] * len(one.versions)
    with pytest.raises(TokensOff, match="do not sample with these weights"):
        check([group], 1, 0, lambda _: policy)
    with pytest.raises(TokensOff, match=r"versions \[1\], where 0 is current"):
        check([group], 0, 0, lambda _: policy)


def test_tokens_of_the_version_before_are_compared_with_its_weights(policy, tmp_path):
    stale = group_of(policy, OUTPUTS, [0, 0, 1, 1])
    policy.update([stale], (0.2, 0.28), 2.0)
    policies = {0: Policy(tmp_path / "base"), 1: policy}
    fresh = group_of(policy, OUTPUTS, [0, 0, 1, 1])
    for one in fresh.sequences:
        one.versions[:] = [1] * len(one.versions)
    ratio = check([stale, fresh], 1, 1, policies.__getitem__)
    assert ratio.tokens == 24
    assert ratio.largest < 1e-5
    # Its servers never got the weights of version 1: the tokens that the next step finds one version old are of 0.
    for one in stale.sequences:
        one.versions[:] = [1] * len(one.versions)
    with pytest.raises(TokensOff, match="of version 1 is"):
        check([stale], 2, 1, policies.__getitem__)


def test_groups_with_equal_rewards_change_nothing(policy):
    group = group_of(policy, OUTPUTS, [1, 1, 1, 1])
    before = policy.logprobs(group.sequences)
    assert policy.update([group], (0.2, 0.28), 2.0) == {"loss": 0.0, "gradient": 0.0}
    assert torch.equal(policy.logprobs(group.sequences), before)


def test_a_checkpoint_goes_on_as_if_nothing_had_been(policy, tmp_path):
    group = group_of(policy, OUTPUTS, [0, 0, 1, 1])
    policy.update([group], (0.2, 0.28), 2.0)
    policy.save(tmp_path / "1", {"version": 1})
    again = Learner(tmp_path / "1", 1e-2)
    for one in (policy, again):
        one.update([group], (0.2, 0.28), 2.0)
    assert torch.equal(policy.logprobs(group.sequences), again.logprobs(group.sequences))
