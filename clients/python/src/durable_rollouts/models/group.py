"""Groups: several rollouts of one task."""

from __future__ import annotations

from typing import Literal

from .base import Answer, Asked
from .record import Outcome, Truncation
from .trajectory import Trajectory

Verdict = Literal["useful", "allZero", "allOne", "allEqual", "incomplete", "mixedVersions", "cancelled"]


class Overlong(Asked):
    """What happens to samples that a limit cut. `max_tokens` and `cache` belong to `penalty`."""

    mode: Literal["mask", "drop", "keep", "penalty"]
    max_tokens: int | None = None
    cache: int | None = None


class GroupRules(Asked):
    samples: int | None = None
    min_samples: int | None = None
    replacements: int | None = None
    deadline_seconds: float | None = None
    uniform_version: bool | None = None
    overlong: Overlong | None = None


class EndedRollout(Answer):
    rollout_id: str
    outcome: Outcome
    reward: float | None
    truncated: Truncation | None
    cancelled: str | None
    failure: str | None
    versions: tuple[int, int] | None
    #: After the prompt.
    tokens: int


class GroupSample(EndedRollout):
    #: The reward with what overlong samples cost.
    shaped: float | None
    #: False: it has no reward, or is not to be trained on.
    train: bool
    #: Where they were asked for.
    trajectories: list[Trajectory] | None = None


class Group(Answer):
    """How a group ended."""

    schema_version: Literal[1]
    group_id: str
    batch_id: str | None
    task_id: str
    handler: str
    verdict: Verdict
    reward_mean: float | None
    counted: int
    tokens: int
    #: By number; those that were replaced are among them.
    samples: list[GroupSample]
    replaced: int
    #: Why rollouts could not be begun.
    problem: str | None
    versions: tuple[int, int] | None
    started_at: str
    ended_at: str


class GroupState(Answer):
    """How a group stands that has not ended."""

    group_id: str
    open: int
    ended: list[EndedRollout]
