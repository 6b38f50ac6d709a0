"""A trainer made for ProRL Agent's rollout server, which knows that server's calls and nothing of this project."""

import asyncio

import httpx
import pytest

FIELDS = {
    *("instance_id", "trajectory_id", "resolved", "git_patch", "success", "error", "finish", "end_properly"),
    *("critical_error", "filter", "messages", "tools", "timing"),
}
TIMING = {"init_time", "run_time", "eval_time", "others_time", "counted_elapsed", "timeout_triggered"}
SAMPLING = {
    **{"model": "hosted_vllm/policy", "api_key": "none", "temperature": 0.8, "top_p": 0.95},
    **{"max_iterations": 5, "token_level_generation": True},
}


def job(instance_id: str, trajectory_id: int = 0, **more) -> dict:
    instance = {
        **{"data_source": "math", "instance_id": instance_id, "trajectory_id": trajectory_id},
        **{"question": "1 + 1?", "answer": "#### 2", "rewards": [1, 0, 1, 0], **more},
    }
    return {"instance": instance, "sampling_params": SAMPLING}


@pytest.fixture
def http(address):
    url, token = address
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=300) as http:
        yield http


def test_jobs_are_taken_answered_asked_for_again_and_ended(http, address):
    assert http.get("/status").status_code == 503
    assert http.post("/process", json=job("early")).status_code == 503
    assert http.post("/start").json() == {"status": "Server started successfully"}
    assert http.post("/clear_llm_server").status_code == 200
    assert http.post("/process", json=job("no-server")).status_code == 503
    added = http.post("/add_llm_server", json={"address": "http://127.0.0.1:11"})
    assert added.status_code == 200, added.text

    answers = asyncio.run(side_by_side(address, [job("sum", number) for number in range(4)]))
    assert [(one["instance_id"], one["trajectory_id"], one["resolved"]) for one in answers] == [
        ("sum", number, number % 2 == 0) for number in range(4)
    ]
    for answer in answers:
        assert FIELDS <= set(answer) and set(answer["timing"]) == TIMING
        assert (answer["success"], answer["critical_error"], answer["error"]) == (True, None, None)
        assert_token_exact(answer["messages"])

    for wrong, field in (
        ({**job("x"), "sampling_params": {**SAMPLING, "temperature": "hot"}}, "/sampling_params/temperature"),
        ({**job("x"), "sampling_params": {**SAMPLING, "token_level_generation": "no"}}, "/sampling_params/token_level_generation"),
        ({"sampling_params": SAMPLING}, "/instance"),
        ({**job("x"), "job_id": ""}, "/job_id"),
    ):
        refused = http.post("/process", json=wrong)
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, field)

    held = {**job("held", hold=True), "job_id": "step 3, sample 1"}
    with pytest.raises(httpx.ReadTimeout):
        http.post("/process", json=held, timeout=httpx.Timeout(300, read=2))
    assert set(http.get("/status").json()) == {
        *("init_queue", "run_queue", "eval_queue", "active_init", "active_run", "active_eval", "total"),
    }
    ended = asyncio.run(ended_meanwhile(address, held))
    assert (ended["filter"], ended["error"], ended["resolved"]) == (True, "cancelled: user", False)
    again = http.post("/process", json=held).json()
    assert again["rollout_id"] == ended["rollout_id"], "the same job is the same rollout"
    assert http.post("/cancel", json={"job_id": "nobody's"}).status_code == 404

    assert http.post("/stop").status_code == 200
    assert http.post("/process", json=held).status_code == 503
    assert http.post("/stop").status_code == 503


async def side_by_side(address: tuple[str, str], jobs: list[dict]) -> list[dict]:
    async with asynchronous(address) as http:
        return [answer.json() for answer in await asyncio.gather(*(http.post("/process", json=one) for one in jobs))]


async def ended_meanwhile(address: tuple[str, str], held: dict) -> dict:
    """Asks again for a job, and ends it while that waits."""
    async with asynchronous(address) as http:
        asked = asyncio.ensure_future(http.post("/process", json=held))
        while (await http.post("/cancel", json={"job_id": held["job_id"]})).status_code == 404:
            await asyncio.sleep(0.1)
        return (await asked).json()


def asynchronous(address: tuple[str, str]) -> httpx.AsyncClient:
    url, token = address
    return httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=300)


def assert_token_exact(messages: list[dict]) -> None:
    """Every prompt is the one before, what was sampled after it, and what was said meanwhile."""
    sequence: list[int] = []
    for message in messages:
        if message["role"] == "assistant" and message["input_ids"] is not None:
            assert message["input_ids"] == sequence
            assert len(message["logprobs"]) == len(message["token_ids"]) > 0
        sequence += message["token_ids"]
    assert messages[-1]["role"] == "assistant"
