from types import SimpleNamespace

import pytest

from trainer.data import Group, Sequence, part_mean, versions_of


def sequence(reward: float, versions=(3, 3, -1, 4), mask=(1, 1, 0, 1)) -> Sequence:
    return Sequence.of(
        SimpleNamespace(
            rollout_id=f"r{reward}",
            input_ids=[1, 2],
            output_ids=[5, 6, 7, 8],
            logprobs=[-0.5, -0.25, 0, -1],
            loss_mask=list(mask),
            policy_versions=list(versions),
            reward=SimpleNamespace(total=reward, parts={"call": reward / 2, "answer": reward / 2}),
        )
    )


def test_advantages_are_deviations_from_the_groups_mean():
    group = Group("g", [sequence(one) for one in (0, 0, 1, 1)])
    assert group.advantages() == pytest.approx([-1, -1, 1, 1], abs=1e-5)
    assert not group.uniform


def test_equal_rewards_teach_nothing():
    group = Group("g", [sequence(0.3)] * 4)
    assert group.uniform
    assert group.advantages() == [0, 0, 0, 0]


def test_only_sampled_tokens_have_a_version():
    # A token that nobody sampled has none, whatever stands there.
    assert versions_of([Group("g", [sequence(1)])]) == {3, 4}
    assert versions_of([Group("g", [sequence(1, versions=(5, 5, 0, 5))])]) == {5}


def test_means():
    groups = [Group("a", [sequence(1), sequence(0)]), Group("b", [sequence(1), sequence(1)])]
    assert part_mean(groups) == 0.75
    assert part_mean(groups, "call") == 0.375
    assert groups[0].sequences[0].sampled == 3
