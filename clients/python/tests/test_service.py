"""Against a real service, as test/python-client/client.test.ts starts it."""

import asyncio
import time

import httpx
import pytest

from durable_rollouts import (
    AsyncRolloutClient,
    Conflict,
    InvalidRequest,
    NotAllowed,
    NotFound,
    Retries,
    RolloutClient,
    RolloutError,
)
from durable_rollouts.adapters import Ungraded, of_group, of_lines
from durable_rollouts.models import Batch, BatchState, Group, GroupState


#: A loaded machine may take its time.
PATIENCE = 240


def in_time(look):
    """What `look` finds, as soon as it does: lists lag behind."""
    until = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < until
        time.sleep(0.05)
    return found


def task(identity: str, *rewards: float, hold: bool = False):
    """Sample n is rewarded with rewards[n]; `hold`: the agent works until it is paused or cancelled."""
    data = {"question": "What is 1 + 1?", "answer": "#### 2", "rewards": rewards, "hold": hold}
    return {"handler": "math", "id": identity, "data": data}


def test_a_rollout_from_beginning_to_end(client: RolloutClient):
    rollout = client.submit(task("whole", 0.5), {"sampling": {"temperature": 0.5}}, batch_id="listed")
    record = client.wait(rollout, PATIENCE)
    assert (record.outcome, record.reward and record.reward.total, record.task_id) == ("completed", 0.5, "whole")
    assert record.trajectory and record.timings.total_ms > 0
    (line,) = client.trajectory(rollout)
    assert line.rollout_id == rollout and line.sampling["temperature"] == 0.5
    assert sum(line.loss_mask) == record.trajectory.sampled_tokens
    (sequence,) = of_lines([line])
    assert sequence.reward == 0.5 and sequence.line.sampled_versions
    state = client.get(rollout)
    assert state.done and state.record == record
    (listed,) = in_time(lambda: client.list_rollouts(batch_id="listed", outcome="completed"))
    assert (listed.rollout_id, listed.reward) == (rollout, 0.5)


def test_a_key_is_a_rollout_and_another_request_a_conflict(client: RolloutClient):
    first = client.submit(task("keyed", 1), key="step 3, task 7")
    assert client.submit(task("keyed", 1), key="step 3, task 7") == first
    with pytest.raises(Conflict, match="another request") as raised:
        client.submit(task("keyed", 1), {"limits": {"max_turns": 2}}, key="step 3, task 7")
    assert (raised.value.status, raised.value.tries) == (409, 1)
    assert client.submit(task("keyed", 1)) != client.submit(task("keyed", 1))


def test_what_is_wrong_is_named(client: RolloutClient, address):
    with pytest.raises(InvalidRequest) as raised:
        client.submit(task("wrong", 1), {"limits": {"max_turns": 0}, "sampling": {"temperature": -1}})
    assert sorted(raised.value.fields) == ["/limits/maxTurns", "/sampling/temperature"]
    with pytest.raises(InvalidRequest, match="question"):
        client.submit({"handler": "math", "id": "x", "data": {}})
    with pytest.raises(InvalidRequest) as raised:
        client.begin_group(task("wrong", 1), {"samples": 2, "min_samples": 3})
    assert raised.value.fields == ["/minSamples"]
    with pytest.raises(NotFound, match="no rollout nobody"):
        client.wait("nobody")
    with RolloutClient(address[0], "nobody's token") as stranger, pytest.raises(NotAllowed):
        stranger.list_rollouts()


def test_it_is_paused_resumed_and_cancelled(client: RolloutClient):
    rollout = client.submit(task("steered", 1, hold=True))
    client.pause(rollout)
    assert client.get(rollout).stage == "paused"
    with pytest.raises(Conflict, match="has not ended"):
        client.trajectory(rollout)
    client.resume(rollout)
    with pytest.raises(TimeoutError):
        client.wait(rollout, 0.1)
    client.cancel(rollout, "stale")
    record = client.wait(rollout, PATIENCE)
    assert record.outcome == "cancelled" and record.cancel and record.cancel.reason == "stale"
    client.cancel(rollout)
    with pytest.raises(Conflict):
        client.pause(rollout)


def test_a_group_and_what_a_trainer_makes_of_it(client: RolloutClient):
    group_id = client.begin_group(task("group", 0, 1), {"samples": 2}, key="a-group")
    assert group_id == "a-group"
    group = client.wait_group(group_id, PATIENCE)
    assert (group.verdict, [sample.shaped for sample in group.samples]) == ("useful", [0, 1])
    assert isinstance(client.group(group_id), Group)
    with pytest.raises(ValueError, match="without trajectories"):
        of_group(group)
    held = client.begin_group(task("held", 1, 1, hold=True), {"samples": 2})
    assert isinstance(client.group(held), GroupState)
    client.pause_group(held)
    client.resume_group(held)
    client.cancel_group(held)
    assert client.wait_group(held, PATIENCE).verdict == "cancelled"


SOURCES = [{"tasks": [task("a", 0, 1), task("b", 1, 1), task("c", 1, 0), task("d", 0, 0)]}]


def test_a_batch_its_groups_and_its_events(client: RolloutClient):
    batch = client.begin_batch(SOURCES, {"groups": 2}, group={"samples": 2}, key="a-batch")
    assert client.begin_batch(SOURCES, {"groups": 2}, group={"samples": 2}, key="a-batch") == batch == "a-batch"
    groups = list(client.batch_groups(batch, trajectories=True))
    assert [group.task_id for group in groups] == ["a", "c"]
    for group in groups:
        sequences = of_group(group)
        assert [one.reward for one in sequences] == [sample.reward for sample in group.samples]
        assert all(one.line.group_id == group.group_id for one in sequences)
    assert [group.task_id for group in client.batch_groups(batch, after=1)] == ["c"]
    result = client.wait_batch(batch, PATIENCE)
    assert (result.end, result.counts.dropped["allOne"]) == ("full", 1)
    assert isinstance(client.batch(batch), Batch)
    events = list(client.batch_events(batch))
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    assert (events[-1].kind, events[-1].why) == ("ended", "full")
    assert list(client.batch_events(batch, after=len(events) - 2)) == events[-2:]


def test_streams_go_on_where_the_connection_broke(address):
    url, token = address
    breaking = Breaking()
    with RolloutClient(url, token, http=httpx.Client(transport=breaking), sleep=lambda _: None) as client:
        batch = client.begin_batch(SOURCES, {"groups": 2}, group={"samples": 2}, key="a-batch")
        breaking.after = 1
        assert [group.task_id for group in client.batch_groups(batch, trajectories=True)] == ["a", "c"]
        assert breaking.asked == [("after", "0"), ("after", "1")]
        breaking.asked.clear()
        breaking.after = 1
        numbers = [event.number for event in client.batch_events(batch)]
        assert numbers == list(range(1, len(numbers) + 1))
        assert breaking.asked == [("last-event-id", "0"), ("last-event-id", "1")]


class Breaking(httpx.HTTPTransport):
    """Breaks the next stream in the middle of what comes after its first so many lines or events."""

    def __init__(self):
        super().__init__()
        self.after: int | None = None
        self.asked: list[tuple[str, str]] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = super().handle_request(request)
        events = request.url.path.endswith("/events")
        if not events and not request.url.path.endswith("/groups"):
            return response
        position = ("last-event-id", request.headers["last-event-id"]) if events else ("after", request.url.params["after"])
        self.asked.append(position)
        if self.after is not None:
            response.stream = Broken(response.stream, b"\n\n" if events else b"\n", self.after)
            self.after = None
        return response


class Broken(httpx.SyncByteStream):
    def __init__(self, stream, end: bytes, after: int):
        self.stream, self.end, self.after = stream, end, after

    def __iter__(self):
        whole = b""
        for piece in self.stream:
            whole += piece
            parts = whole.split(self.end)
            if len(parts) > self.after and parts[self.after]:
                yield self.end.join(parts[: self.after]) + self.end + parts[self.after][:4]
                raise httpx.ReadError("broken on purpose")
        raise AssertionError("there was nothing to break")

    def close(self):
        self.stream.close()


def test_a_batch_is_cancelled(client: RolloutClient):
    batch = client.begin_batch([{"tasks": [task("e", 1, 1, hold=True)]}], {"groups": 1}, group={"samples": 1})
    assert isinstance(client.batch(batch), BatchState)
    client.cancel_batch(batch, "superseded")
    assert client.wait_batch(batch, PATIENCE).end == "cancelled"


def test_weights_are_swapped(client: RolloutClient):
    assert client.pool().version == 0
    report = client.swap(5, "/weights/5", "abort", drain_seconds=1)
    assert (report.state.version, report.failed, report.drained) == (5, [], True)
    with pytest.raises(InvalidRequest, match="versions only grow"):
        client.swap(4, "/weights/4", "abort")
    report = client.replace_servers(6, [{"url": "http://127.0.0.1:10", "dialect": "vllm"}])
    (member,) = report.state.members
    assert (member.server.url, report.state.version) == ("http://127.0.0.1:10", 6)
    assert client.cancel_stale(6).silent_hosts == []
    assert client.pool().floor == 6
    with pytest.raises(NotFound):
        client.pool("other")


def test_the_same_calls_awaited(address):
    async def all_at_once():
        async with AsyncRolloutClient(*address) as client:
            rollouts = await asyncio.gather(*(client.submit(task(f"async-{n}", n)) for n in range(4)))
            records = await asyncio.gather(*(client.wait(rollout, PATIENCE) for rollout in rollouts))
            assert [record.reward and record.reward.total for record in records] == [0, 1, 2, 3]
            assert (await client.trajectory(rollouts[0]))[0].rollout_id == rollouts[0]
            batch = await client.begin_batch(SOURCES, {"groups": 2}, group={"samples": 2}, key="a-batch")
            groups = [group.task_id async for group in client.batch_groups(batch)]
            assert groups == ["a", "c"]
            assert [event.kind async for event in client.batch_events(batch)][-1] == "ended"
            with pytest.raises(NotFound):
                await client.wait("nobody")
        async with AsyncRolloutClient("http://127.0.0.1:1", retries=Retries(most=0)) as nowhere:
            with pytest.raises(RolloutError, match="tried 1 times"):
                await nowhere.list_rollouts()

    asyncio.run(all_at_once())


def test_a_service_that_is_killed_after_it_accepted_has_one_rollout(pytestconfig, address):
    url = pytestconfig.getoption("--restarting")
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        time.sleep(min(seconds, 0.2))

    with RolloutClient(url, retries=Retries(most=1000), sleep=pause) as client:
        rollout = client.submit(task("accepted-once", 1))
        assert pauses
        assert client.wait(rollout, PATIENCE).outcome == "completed"


def test_one_that_nobody_serves_raises_after_the_last_try():
    pauses: list[float] = []
    with RolloutClient("http://127.0.0.1:1", retries=Retries(most=2), sleep=pauses.append) as client:
        with pytest.raises(RolloutError, match=r"ConnectError .* \(tried 3 times\)"):
            client.submit(task("never", 1))
    assert len(pauses) == 2


def test_a_cancelled_rollout_is_not_a_reward_of_0(line):
    ended = line.model_copy(update={"reward": None, "finish_reason": "aborted"})
    with pytest.raises(Ungraded, match=f"{line.rollout_id} has no reward: it ended as aborted"):
        of_lines([ended])
