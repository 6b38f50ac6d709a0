"""The trajectory: one line per sequence, token ids in, token ids out."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, model_validator

from .record import Reward, Truncation
from .request import Task


class TrajectoryPart(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


class ToolCall(TrajectoryPart):
    call_id: str
    tool: str
    arguments: dict[str, Any]
    call_status: str
    result_status: str | None
    exit_code: int | None
    ms: float | None


class Turn(TrajectoryPart):
    """Spans are half-open ranges of `output_ids`."""

    turn: int
    sampled: tuple[int, int]
    observed: tuple[int, int]
    finish: Literal["stop", "length", "abort"]
    #: The oldest that sampled any of the turn's tokens.
    policy_version: int
    server: str
    started_at: str
    generate_ms: float
    tool_calls: list[ToolCall]


class Message(TrajectoryPart):
    """Of the conversation as text, for people."""

    role: str
    content: str


class Model(TrajectoryPart):
    """What produced the tokens."""

    name: str
    model_hash: str
    tokenizer_hash: str
    template_hash: str


class Trajectory(TrajectoryPart):
    """
    `logprobs`, `loss_mask` and `policy_versions` are aligned with `output_ids`; tokens of tools and of the template have
    mask 0, logprob 0 and version -1.
    """

    schema_version: Literal[1]
    rollout_id: str
    workflow_run_id: str
    attempt: int
    sequence_index: int
    sequence_count: int
    task: Task
    sample: int
    group_id: str | None
    batch_id: str | None
    input_ids: list[int]
    output_ids: list[int]
    logprobs: list[float]
    loss_mask: list[int]
    policy_versions: list[int]
    #: None while ungraded: cancelled or failed.
    reward: Reward | None
    finish_reason: Literal["finished", "turns", "tokens", "context", "deadline", "aborted"]
    truncated: Truncation | None
    turns: list[Turn]
    messages: list[Message]
    #: Parameters as sent.
    sampling: dict[str, Any]
    model: Model
    metadata: dict[str, Any]
    checksum: str

    @model_validator(mode="after")
    def _aligned(self) -> Trajectory:
        for name in ("logprobs", "loss_mask", "policy_versions"):
            entries = len(getattr(self, name))
            if entries != len(self.output_ids):
                raise ValueError(f"{name} has {entries} entries for {len(self.output_ids)} output_ids")
        return self

    @property
    def sampled_versions(self) -> tuple[int, int] | None:
        """Oldest and newest policy version of the sampled tokens; None if none was sampled."""
        versions = [version for version, sampled in zip(self.policy_versions, self.loss_mask) if sampled]
        return (min(versions), max(versions)) if versions else None
