"""Rollouts: the terminal record, and where one is that has not ended."""

from __future__ import annotations

from typing import Literal

from .base import Answer
from .request import CancelReason

Truncation = Literal["turns", "tokens", "context", "deadline"]
Outcome = Literal["completed", "truncated", "cancelled", "failed"]


class Reward(Answer):
    """`total` is what a trainer uses."""

    total: float
    parts: dict[str, float]


class StageFailure(Answer):
    type: str
    stage: str
    cause: Literal["request", "infrastructure"]
    message: str
    attempt: int


class CancelTimes(Answer):
    """Milliseconds, from when its worker or host was told; None for what was not there."""

    #: To the close of the LLM request.
    llm_ms: float | None
    #: The death of the sandbox's processes.
    kill_ms: float | None
    release_ms: float | None


class CancelReceipt(Answer):
    """What a cancellation reached."""

    reason: CancelReason
    stage: str
    turn: int | None
    llm_aborted: bool
    processes_killed: int
    sandbox_released: bool
    ms: float
    #: What each of it took; None in records of an earlier service.
    took: CancelTimes | None = None


class TrajectoryRef(Answer):
    """Where the service keeps a trajectory."""

    uri: str
    sha256: str
    bytes: int
    turns: int
    prompt_tokens: int
    output_tokens: int
    #: Output tokens with loss mask 1.
    sampled_tokens: int


class Timings(Answer):
    """Milliseconds."""

    init_ms: float
    run_ms: float
    evaluate_ms: float
    paused_ms: float = 0
    queue_ms: float
    total_ms: float


class RolloutRecord(Answer):
    """The terminal record: exactly one for each accepted rollout."""

    schema_version: Literal[1]
    rollout_id: str
    workflow_run_id: str
    handler: str
    task_id: str
    sample: int
    group_id: str | None
    batch_id: str | None
    outcome: Outcome
    #: There exactly for completed and truncated: a failure is never a reward.
    reward: Reward | None
    truncation: Truncation | None
    cancel: CancelReceipt | None
    failure: StageFailure | None
    #: Failures that were retried on the way.
    retried: list[StageFailure]
    attempt: int
    host: str | None
    backend: str | None
    #: Lowest and highest among the sampled tokens.
    policy_versions: tuple[int, int] | None
    trajectory: TrajectoryRef | None
    started_at: str
    ended_at: str
    timings: Timings


class RolloutState(Answer):
    """Where a rollout is; `record` once it has ended."""

    rollout_id: str
    done: bool
    stage: str | None = None
    record: RolloutRecord | None = None


class RolloutListing(Answer):
    """A rollout in a list."""

    rollout_id: str
    stage: str | None
    outcome: Outcome | None
    reward: float | None
    task_id: str | None
    batch_id: str | None
    host: str | None
    started_at: str
    workflow_state: str


class SweepReport(Answer):
    """What ending many at once has done."""

    aborted: int
    signalled: int
    silent_hosts: list[str]
