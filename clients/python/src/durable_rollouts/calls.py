"""The calls of the service: what is sent, and how the answer is read. Both clients make them; nothing here does I/O."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel

from .models import (
    Batch,
    BatchRules,
    BatchState,
    CancelReason,
    Group,
    GroupRules,
    GroupState,
    NewServer,
    Pool,
    PoolReport,
    RolloutListing,
    RolloutRecord,
    RolloutSettings,
    RolloutState,
    Source,
    SweepReport,
    Task,
    Trajectory,
)
from .models.base import Asked

S = TypeVar("S")
T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
N = TypeVar("N", bound=BaseModel)

#: Silence after which an answer is no longer waited for, beyond what it was asked to wait, in seconds.
PATIENCE = 30.0
#: The longest that one call is asked to wait, in seconds; proxies close what is silent for longer.
LONG_POLL = 30.0
#: Servers may take so long to load weights, in seconds.
LOADING = 3600.0
#: A stream may be silent for so long before it is asked for anew, in seconds.
SILENCE = 120.0


@dataclass(frozen=True)
class Call(Generic[T]):
    method: str
    path: str
    read: Callable[[httpx.Response], T]
    body: Any = None
    params: Mapping[str, str | float] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Silence that is no failure, in seconds.
    silence: float = PATIENCE

    @property
    def what(self) -> str:
        return f"{self.method} {self.path}"


def submit(
    task: Task | Mapping[str, Any],
    settings: RolloutSettings | Mapping[str, Any] | None,
    key: str | None,
    sample: int | None,
    group_id: str | None,
    batch_id: str | None,
) -> Call[RolloutState]:
    named = {"sample": sample, "groupId": group_id, "batchId": batch_id}
    body = {
        **wire(RolloutSettings, settings),
        **{name: value for name, value in named.items() if value is not None},
        "task": task_wire(task),
    }
    return Call("POST", "/v1/rollouts", one(RolloutState), body, headers=keyed(key))


def get(rollout_id: str, wait: float) -> Call[RolloutState]:
    return _looked_at(f"/v1/rollouts/{part(rollout_id)}", one(RolloutState), wait)


def record(rollout_id: str, wait: float) -> Call[RolloutRecord | None]:
    return _then(get(rollout_id, wait), lambda state: state.record)


def trajectory(rollout_id: str) -> Call[list[Trajectory]]:
    return Call("GET", f"/v1/rollouts/{part(rollout_id)}/trajectory", lines(Trajectory))


def list_rollouts(filters: Mapping[str, str | None], limit: int) -> Call[list[RolloutListing]]:
    given = {name: value for name, value in filters.items() if value is not None}

    def read(response: httpx.Response) -> list[RolloutListing]:
        return [RolloutListing.model_validate(each) for each in response.json()["rollouts"]]

    return Call("GET", "/v1/rollouts", read, params={**given, "limit": limit})


def steer(kind: str, identity: str, action: str) -> Call[None]:
    """`pause` or `resume`."""
    return Call("POST", f"/v1/{kind}/{part(identity)}/{action}", nothing)


def cancel(kind: str, identity: str, reason: CancelReason) -> Call[None]:
    return Call("POST", f"/v1/{kind}/{part(identity)}/cancel", nothing, {"reason": reason})


def cancel_stale(below_version: int) -> Call[SweepReport]:
    return Call("POST", "/v1/cancel-stale", one(SweepReport), {"belowVersion": below_version})


def begin_group(
    task: Task | Mapping[str, Any],
    rules: GroupRules | Mapping[str, Any] | None,
    rollout: RolloutSettings | Mapping[str, Any] | None,
    key: str | None,
) -> Call[str]:
    body = {**wire(GroupRules, rules), "task": task_wire(task), "rollout": wire(RolloutSettings, rollout)}
    return Call("POST", "/v1/groups", text_of("groupId"), body, headers=keyed(key))


def group(group_id: str, wait: float) -> Call[Group | GroupState]:
    return _looked_at(f"/v1/groups/{part(group_id)}", ended_or_open(Group, GroupState), wait)


def ended_group(group_id: str, wait: float) -> Call[Group | None]:
    return _then(group(group_id, wait), lambda known: known if isinstance(known, Group) else None)


def begin_batch(
    sources: Iterable[Source | Mapping[str, Any]],
    rules: BatchRules | Mapping[str, Any],
    group: GroupRules | Mapping[str, Any] | None,
    rollout: RolloutSettings | Mapping[str, Any] | None,
    key: str | None,
) -> Call[str]:
    body = {
        "sources": [wire(Source, source) for source in sources],
        "rules": wire(BatchRules, rules),
        "group": wire(GroupRules, group),
        "rollout": wire(RolloutSettings, rollout),
    }
    return Call("POST", "/v1/batches", text_of("batchId"), body, headers=keyed(key))


def batch(batch_id: str, wait: float) -> Call[Batch | BatchState]:
    return _looked_at(f"/v1/batches/{part(batch_id)}", ended_or_open(Batch, BatchState), wait)


def ended_batch(batch_id: str, wait: float) -> Call[Batch | None]:
    return _then(batch(batch_id, wait), lambda known: known if isinstance(known, Batch) else None)


def batch_groups(batch_id: str, trajectories: bool, after: int) -> Call[None]:
    params = {"trajectories": "true" if trajectories else "false", "after": after}
    path = f"/v1/batches/{part(batch_id)}/groups"
    return Call("GET", path, nothing, params=params, silence=SILENCE)


def batch_events(batch_id: str, after: int) -> Call[None]:
    headers = {"accept": "text/event-stream", "last-event-id": str(after)}
    return Call("GET", f"/v1/batches/{part(batch_id)}/events", nothing, headers=headers, silence=SILENCE)


def pool(name: str) -> Call[Pool]:
    return Call("GET", f"/v1/pools/{part(name)}", one(Pool))


def swap(name: str, command: Mapping[str, Any]) -> Call[PoolReport]:
    given = {field: value for field, value in command.items() if value is not None}
    path = f"/v1/policies/{part(name)}/version"
    return Call("POST", path, one(PoolReport), given, headers=keyed(None), silence=LOADING)


def _looked_at(path: str, read: Callable[[httpx.Response], T], wait: float) -> Call[T]:
    return Call("GET", path, read, params={"wait": wait}, silence=wait + PATIENCE)


def _then(call: Call[T], found: Callable[[T], S]) -> Call[S]:
    return Call(
        call.method,
        call.path,
        lambda response: found(call.read(response)),
        call.body,
        call.params,
        call.headers,
        call.silence,
    )


def keyed(key: str | None) -> dict[str, str]:
    """The same for all tries of a call, so that it is done once whatever becomes of the answers."""
    return {"idempotency-key": str(uuid.uuid4()) if key is None else key}


def wire(kind: type[Asked], given: Asked | Mapping[str, Any] | None) -> dict[str, Any]:
    """Raises pydantic's ValidationError naming a field that is not known, or of another kind."""
    if given is None:
        return {}
    return (given if isinstance(given, kind) else kind.model_validate(given)).wire()


def task_wire(task: Task | Mapping[str, Any]) -> dict[str, Any]:
    return (task if isinstance(task, Task) else Task.model_validate(task)).model_dump(mode="json")


def servers_wire(servers: Iterable[NewServer | Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [wire(NewServer, server) for server in servers]


def part(identity: str) -> str:
    """An id as a part of a path."""
    return quote(identity, safe=":")


def one(kind: type[M]) -> Callable[[httpx.Response], M]:
    return lambda response: kind.model_validate_json(response.content)


def lines(kind: type[M]) -> Callable[[httpx.Response], list[M]]:
    return lambda response: [kind.model_validate_json(line) for line in response.content.splitlines()]


def text_of(name: str) -> Callable[[httpx.Response], str]:
    return lambda response: str(response.json()[name])


def ended_or_open(ended: type[M], still_open: type[N]) -> Callable[[httpx.Response], M | N]:
    def read(response: httpx.Response) -> M | N:
        answer = response.json()
        kind: type[M] | type[N] = ended if answer.pop("done") else still_open
        return kind.model_validate(answer)

    return read


def nothing(_: httpx.Response) -> None:
    return None
