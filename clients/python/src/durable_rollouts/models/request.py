"""What a caller asks for: a task, and what about its rollout is to be other than the service is configured."""

from __future__ import annotations

from typing import Any, Literal

from .base import Answer, Asked

CancelReason = Literal["user", "stale", "superseded", "batchComplete", "deadline", "shutdown"]


class Task(Answer):
    """The handler that knows this kind of task, an id, and the task in the handler's own format."""

    handler: str
    id: str
    data: dict[str, Any]


class Sampling(Asked):
    temperature: float | None = None
    top_p: float | None = None
    max_tokens_per_turn: int | None = None
    #: Of turn 0; turn n samples with seed + n.
    seed: int | None = None


class Limits(Asked):
    """Bounds on the agent: reaching one ends the run as truncated, and what exists is graded."""

    max_turns: int | None = None
    max_total_tokens: int | None = None
    tool_timeout_seconds: float | None = None


class Deadlines(Asked):
    init_seconds: float | None = None
    #: Active time of the agent: no queue, no pause.
    run_seconds: float | None = None
    evaluate_seconds: float | None = None
    queue_seconds: float | None = None
    total_seconds: float | None = None


class Attempts(Asked):
    """How often infrastructure may fail before the rollout does."""

    rollout: int | None = None
    stage: int | None = None


class RolloutSettings(Asked):
    """What of a rollout is to be other than the service is configured."""

    sampling: Sampling | None = None
    limits: Limits | None = None
    deadlines: Deadlines | None = None
    attempts: Attempts | None = None
    heartbeat_timeout_seconds: float | None = None
    host_lost_seconds: float | None = None
    #: Of a pause, after which the sandbox is given back.
    paused_sandbox_seconds: float | None = None
    #: Label of the LLM servers that sample it.
    server_label: str | None = None
