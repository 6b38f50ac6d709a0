"""The client for code that awaits: the calls of `client`, by the same names."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar

import httpx

from . import calls
from .calls import LONG_POLL, Call
from .endpoint import Endpoint
from .models import (
    Batch,
    BatchEvent,
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
from .streams import Events, Groups, Lines, Stream
from .tries import Retries, Tries

T = TypeVar("T")
S = TypeVar("S")


class AsyncRolloutClient:
    """
    Every call is made again while the service can't be reached or is busy, and may be: it has a key, made anew where
    none is given. Raises RequestRefused for what the service refuses (with the fields that are wrong), and RolloutError
    after the last try.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        retries: Retries = Retries(),
        http: httpx.AsyncClient | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ):
        """`http`: a client of your own, for certificates or proxies; it stays open."""
        self._endpoint = Endpoint(url, token)
        self._retries = retries
        self._own = http is None
        self._http = httpx.AsyncClient() if http is None else http
        self._sleep = sleep

    async def __aenter__(self) -> AsyncRolloutClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._own:
            await self._http.aclose()

    async def submit(
        self,
        task: Task | Mapping[str, Any],
        settings: RolloutSettings | Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        sample: int | None = None,
        group_id: str | None = None,
        batch_id: str | None = None,
    ) -> str:
        """Begins a rollout; durable when this returns its id. The same call with the same key begins nothing new."""
        return (await self._do(calls.submit(task, settings, key, sample, group_id, batch_id))).rollout_id

    async def get(self, rollout_id: str, wait: float = 0) -> RolloutState:
        """Where it is, or its record; `wait` seconds (60 at most) for that."""
        return await self._do(calls.get(rollout_id, wait))

    async def wait(self, rollout_id: str, seconds: float | None = None) -> RolloutRecord:
        """Its terminal record. Raises TimeoutError after so many seconds."""
        return await self._poll(lambda wait: calls.record(rollout_id, wait), rollout_id, seconds)

    async def trajectory(self, rollout_id: str) -> list[Trajectory]:
        """Of a rollout that has ended, a line per sequence. Raises Conflict before, NotFound if it has no tokens."""
        return await self._do(calls.trajectory(rollout_id))

    async def list_rollouts(
        self,
        *,
        batch_id: str | None = None,
        group_id: str | None = None,
        task_id: str | None = None,
        stage: str | None = None,
        outcome: str | None = None,
        host: str | None = None,
        limit: int = 100,
    ) -> list[RolloutListing]:
        """Those that match, newest first; one just begun may be missing for a moment."""
        filters = {"batchId": batch_id, "groupId": group_id, "taskId": task_id}
        return await self._do(calls.list_rollouts({**filters, "stage": stage, "outcome": outcome, "host": host}, limit))

    async def pause(self, rollout_id: str) -> None:
        """Returns when it has given its slot back. Raises Conflict if it has ended."""
        await self._do(calls.steer("rollouts", rollout_id, "pause"))

    async def resume(self, rollout_id: str) -> None:
        await self._do(calls.steer("rollouts", rollout_id, "resume"))

    async def cancel(self, rollout_id: str, reason: CancelReason = "user") -> None:
        """Harmless on one that has ended."""
        await self._do(calls.cancel("rollouts", rollout_id, reason))

    async def cancel_stale(self, below_version: int) -> SweepReport:
        """Ends every rollout with a token of an older policy version, from now on."""
        return await self._do(calls.cancel_stale(below_version))

    async def begin_group(
        self,
        task: Task | Mapping[str, Any],
        rules: GroupRules | Mapping[str, Any] | None = None,
        *,
        rollout: RolloutSettings | Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> str:
        """Begins several rollouts of one task; durable when this returns the group's id, which is the key."""
        return await self._do(calls.begin_group(task, rules, rollout, key))

    async def group(self, group_id: str, wait: float = 0) -> Group | GroupState:
        """Its result, `wait` seconds (60 at most) for that; else how it stands."""
        return await self._do(calls.group(group_id, wait))

    async def wait_group(self, group_id: str, seconds: float | None = None) -> Group:
        """Its result. Raises TimeoutError after so many seconds."""
        return await self._poll(lambda wait: calls.ended_group(group_id, wait), group_id, seconds)

    async def pause_group(self, group_id: str) -> None:
        await self._do(calls.steer("groups", group_id, "pause"))

    async def resume_group(self, group_id: str) -> None:
        await self._do(calls.steer("groups", group_id, "resume"))

    async def cancel_group(self, group_id: str, reason: CancelReason = "user") -> None:
        await self._do(calls.cancel("groups", group_id, reason))

    async def begin_batch(
        self,
        sources: Iterable[Source | Mapping[str, Any]],
        rules: BatchRules | Mapping[str, Any],
        *,
        group: GroupRules | Mapping[str, Any] | None = None,
        rollout: RolloutSettings | Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> str:
        """Begins a batch of groups; durable when this returns its id, which is the key."""
        return await self._do(calls.begin_batch(sources, rules, group, rollout, key))

    async def batch(self, batch_id: str, wait: float = 0) -> Batch | BatchState:
        """Its result, `wait` seconds (60 at most) for that; else how it stands."""
        return await self._do(calls.batch(batch_id, wait))

    async def wait_batch(self, batch_id: str, seconds: float | None = None) -> Batch:
        """Its result. Raises TimeoutError after so many seconds."""
        return await self._poll(lambda wait: calls.ended_batch(batch_id, wait), batch_id, seconds)

    def batch_groups(self, batch_id: str, *, trajectories: bool = False, after: int = 0) -> AsyncIterator[Group]:
        """Groups of the batch in their order, each as soon as it is one, but for the first `after`, until it ends."""
        return self._follow(Groups(batch_id, trajectories, after))

    def batch_events(self, batch_id: str, *, after: int = 0) -> AsyncIterator[BatchEvent]:
        """What happens in the batch after the event with this number, until it ends."""
        return self._follow(Events(batch_id, after))

    async def cancel_batch(self, batch_id: str, reason: CancelReason = "user") -> None:
        """Ends the batch and all that it has begun."""
        await self._do(calls.cancel("batches", batch_id, reason))

    async def pool(self, name: str = "default") -> Pool:
        """The LLM servers, and the version that each samples with."""
        return await self._do(calls.pool(name))

    async def swap(
        self,
        version: int,
        folder: str,
        mode: Literal["drain", "abort", "inFlight"],
        *,
        pool: str = "default",
        label: str | None = None,
        drain_seconds: float | None = None,
    ) -> PoolReport:
        """
        Has all servers of a label load the weights of a folder, as their machines see it. From when this returns no
        request begins on older ones. Servers that failed are in the report, and out of use.
        """
        command = {"version": version, "folder": folder, "mode": mode, "label": label, "drainSeconds": drain_seconds}
        return await self._do(calls.swap(pool, command))

    async def replace_servers(
        self,
        version: int,
        servers: Iterable[NewServer | Mapping[str, Any]],
        *,
        pool: str = "default",
        label: str | None = None,
        drain_seconds: float | None = None,
    ) -> PoolReport:
        """Other servers, which have the weights already, take the place of those of a label (blue/green)."""
        command = {"version": version, "servers": calls.servers_wire(servers), "mode": "blueGreen"}
        return await self._do(calls.swap(pool, {**command, "label": label, "drainSeconds": drain_seconds}))

    async def _do(self, call: Call[T]) -> T:
        tries = Tries(self._retries, call.what)
        while True:
            try:
                response = await self._http.request(**self._endpoint.request(call))
            except httpx.TransportError as error:
                pause = tries.unreachable(error)
            else:
                if response.is_success:
                    return call.read(response)
                pause = tries.answered(response)
            await self._sleep(pause)

    async def _follow(self, stream: Stream[S]) -> AsyncIterator[S]:
        tries = Tries(self._retries, stream.call().what)
        while True:
            opened = False
            try:
                async with self._http.stream(**self._endpoint.request(stream.call())) as response:
                    opened = True
                    if response.is_success:
                        lines = Lines()
                        async for piece in response.aiter_bytes():
                            for line in lines.feed(piece):
                                item = stream.read(line)
                                if item is not None:
                                    tries.progress()
                                    yield item
                        # 204: the service has nothing more, and never will.
                        if stream.over or response.status_code == 204:
                            return
                        pause = tries.cut()
                    else:
                        await response.aread()
                        pause = tries.answered(response)
            except httpx.TransportError as error:
                # Where nothing new came for long, the next connection tells whether somebody is there.
                silent = opened and isinstance(error, httpx.ReadTimeout)
                pause = 0.0 if silent else tries.unreachable(error)
            await self._sleep(pause)

    async def _poll(self, ask: Callable[[float], Call[S | None]], what: str, seconds: float | None) -> S:
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            left = LONG_POLL if until is None else max(0.0, until - time.monotonic())
            found = await self._do(ask(min(left, LONG_POLL)))
            if found is not None:
                return found
            if left == 0:
                raise TimeoutError(f"{what} has not ended within {seconds} s")
