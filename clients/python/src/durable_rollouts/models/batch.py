"""Batches: groups until so many of them are of use."""

from __future__ import annotations

from typing import Literal

from .base import Answer, Asked
from .request import Task


class Source(Asked):
    """Where tasks come from: the tasks themselves, or a file as the service's machine sees it, and its handler."""

    tasks: list[Task] | None = None
    file: str | None = None
    handler: str | None = None
    weight: float | None = None
    #: Of the order in which tasks are drawn; their own without one.
    seed: int | None = None
    #: Tasks that are drawn last: the sum of what earlier batches have `drawn`.
    skip: int | None = None
    domain: str | None = None


class Adaptive(Asked):
    most: int


class BatchRules(Asked):
    #: Groups that the batch is full with.
    groups: int
    adaptive: Adaptive | None = None
    drop_equal: bool | None = None
    oversampling: float | None = None
    open_groups: int | None = None
    attempts_per_task: int | None = None
    deadline_seconds: float | None = None
    surplus: Literal["cancel", "carry"] | None = None
    carry_from: str | None = None
    staleness: int | None = None


class DomainCounts(Answer):
    started: int
    admitted: int


class BatchCounts(Answer):
    started: int
    carried: int
    open: int
    admitted: int
    #: By verdict.
    dropped: dict[str, int]
    by_domain: dict[str, DomainCounts]
    tokens_admitted: float | None
    tokens_discarded: float | None
    reward_mean: float | None


class Batch(Answer):
    """How a batch ended."""

    schema_version: Literal[1]
    batch_id: str
    end: Literal["full", "exhausted", "deadline", "cancelled"]
    wanted: int
    #: In the order of their starts.
    groups: list[str]
    surplus: list[str]
    counts: BatchCounts
    #: Tasks, by source.
    drawn: list[int] | None = None
    started_at: str
    ended_at: str


class BatchState(Answer):
    """How a batch stands that has not ended."""

    batch_id: str
    wanted: int
    admitted: list[str]
    counts: BatchCounts
    events: int


class BatchEvent(Answer):
    """What happened in a batch. A reader that has this one goes on after its number."""

    number: int
    kind: Literal["started", "admitted", "dropped", "ended"]
    at: str
    group_id: str | None = None
    #: Why it was dropped, or how the batch ended.
    why: str | None = None
